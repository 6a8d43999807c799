import numpy as np
import pandas as pd
import pytest

from pscd import EnergyDetector
from pscd.cli.scoring import Scoring


@pytest.fixture(scope="module")
def detector():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(60, 2)), columns=["a", "b"])
    return EnergyDetector(updates=5).fit(frame)


@pytest.mark.parametrize("reasons", ["outliers", "all", "none"])
def test_a_part_has_numbers_of_rows_ids_energies_and_reasons(detector, reasons):
    block = pd.DataFrame({"a": [0.0, 30.0, 0.1], "name": ["x", "y", "z"], "b": [0.0, 0.0, 0.2]})
    scoring = Scoring(detector, ["name"], reasons, True, lambda block: detector.read(block[["a", "b"]]))
    part = scoring.part(100, block)
    assert list(part.columns)[:4] == ["row", "name", "energy", "outlier"]
    assert part.columns["row"].tolist() == [100, 101, 102]
    np.testing.assert_allclose(part.columns["energy"], -detector.score_samples(block[["a", "b"]]))
    np.testing.assert_array_equal(part.array, detector.log_density(block[["a", "b"]]))
    assert part.columns["outlier"].tolist() == [0, 1, 0]
    assert next(row[2] for row in part.summary["listed"]) == "y"
    if reasons == "none":
        assert "because" not in part.columns
    else:
        assert part.columns["because"][1].startswith("a = 30")
        assert (part.columns["because"][0] == "") == (reasons == "outliers")
