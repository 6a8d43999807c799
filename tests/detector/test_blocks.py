import numpy as np
import pandas as pd
import pytest

from pscd import EnergyDetector
from pscd.detector.blocks import fitting_blocks, sample_rows
from pscd.tables.blocks import open_blocks


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    made = pd.DataFrame(rng.normal(size=(60, 2)).round(2), columns=["a", "b"])
    return made.assign(colour=rng.choice(["red", "blue"], 60))


@pytest.mark.parametrize("columns", [["a", "b"], ["a", "b", "colour"]])
def test_all_blocks_are_read_as_the_first(tmp_path, frame, columns):
    """The last block alone, `1,000` and the like, would be taken for thousands."""
    detector = EnergyDetector(n_updates=5).fit(frame[columns])
    frame = frame.copy()
    frame.loc[50:, ["a", "b"]] = 1.25
    frame.to_csv(tmp_path / "x.csv", index=False, sep=";", decimal=",", float_format="%.3f")
    source = open_blocks(tmp_path / "x.csv", size=10)
    fitting = fitting_blocks(detector, source)
    found = np.concatenate([detector.score_samples(fitting(block)) for block in source.blocks()])
    np.testing.assert_allclose(found, detector.score_samples(frame[columns]), rtol=1e-12)


def test_numbers_that_cannot_be_are_missing(tmp_path, frame):
    x = frame[["a", "b"]].to_numpy().copy()
    detector = EnergyDetector(n_updates=5).fit(x)
    x[3, 1], x[4, 0] = np.inf, -1e31
    np.save(tmp_path / "x.npy", x)
    source = open_blocks(tmp_path / "x.npy", size=10)
    rows = fitting_blocks(detector, source)(next(source.blocks()))
    assert np.argwhere(np.isnan(rows)).tolist() == [[3, 1], [4, 0]]


@pytest.mark.parametrize("kind", ["npy", "parquet"])
def test_a_sample_is_drawn_evenly_and_in_order(tmp_path, kind):
    x = np.arange(5000.0)
    if kind == "npy":
        np.save(tmp_path / "x.npy", x[:, None])
    else:
        pd.DataFrame({"a": x}).to_parquet(tmp_path / "x.parquet")
    source = open_blocks(tmp_path / f"x.{kind}", size=100)
    drawn = np.asarray(sample_rows(source, 400, seed=0)).ravel()
    assert len(drawn) == 400
    assert (np.diff(drawn) > 0).all()
    # The mean of 400 rows out of 5,000 deviates by 5000 / sqrt(12 * 400) * sqrt(1 - 400 / 5000) = 69.
    assert abs(drawn.mean() - 2500) < 5 * 69
    np.testing.assert_array_equal(drawn, np.asarray(sample_rows(source, 400, seed=0)).ravel())
    assert not np.array_equal(drawn, np.asarray(sample_rows(source, 400, seed=1)).ravel())
    assert len(sample_rows(source, 9999, seed=0)) == 5000
