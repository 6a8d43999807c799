import numpy as np
import pandas as pd
import pytest

from pscd import EnergyDetector, UserError
from pscd.tables import open_table


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    made = pd.DataFrame(rng.normal(size=(60, 2)).round(2), columns=["a", "b"])
    return made.assign(colour=rng.choice(["red", "blue"], 60))


@pytest.mark.parametrize("columns", [["a", "b"], ["a", "b", "colour"]])
def test_all_blocks_are_read_as_the_first(tmp_path, frame, columns):
    """The last block alone, `1,000` and the like, would be taken for thousands."""
    detector = EnergyDetector(updates=5).fit(frame[columns])
    frame = frame.copy()
    frame.loc[50:, ["a", "b"]] = 1.25
    frame.to_csv(tmp_path / "x.csv", index=False, sep=";", decimal=",", float_format="%.3f")
    table = open_table(tmp_path / "x.csv")
    reader = detector.reader_for(table)
    found = np.concatenate([detector.score_samples(reader.read(block[columns])) for block in table.blocks(10)])
    np.testing.assert_allclose(found, detector.score_samples(frame[columns]), rtol=1e-12)


def test_infinite_numbers_are_impossible_cells(tmp_path, frame):
    x = frame[["a", "b"]].to_numpy().copy()
    detector = EnergyDetector(updates=5).fit(x)
    x[3, 1], x[4, 0] = np.inf, -1e31
    np.save(tmp_path / "x.npy", x)
    table = open_table(tmp_path / "x.npy")
    rows = detector.reader_for(table).read(next(table.blocks(10)))
    assert rows.impossible.nonzero().tolist() == [[3, 1], [4, 0]]
    assert np.isfinite(detector.score_samples(rows)).all()


def test_other_columns_are_refused(tmp_path, frame):
    frame.to_csv(tmp_path / "x.csv", index=False)
    np.save(tmp_path / "x.npy", np.zeros((20, 5)))
    detector = EnergyDetector(updates=1).fit(frame.rename(columns={"a": "c"})[["b", "c"]])
    for name, message in (
        ("x.csv", "has no column 'c'; it has 'a', 'b', 'colour'"),
        ("x.npy", "5 numbers a row, but the detector was fitted to 2 columns"),
    ):
        with pytest.raises(UserError, match=message):
            detector.reader_for(open_table(tmp_path / name))
