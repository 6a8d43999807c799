import numpy as np
import pandas as pd
import pytest

import pscd
from pscd.detector.files import fitting_frame, read_rows
from pscd.errors import UserError


@pytest.fixture(scope="module")
def detector():
    rows = np.random.default_rng(0).normal(size=(40, 2))
    return pscd.EnergyDetector(n_updates=2).fit(pd.DataFrame(rows, columns=["a", "b"]))


def test_text_becomes_the_numbers_that_the_detector_was_fitted_to(detector, tmp_path):
    path = tmp_path / "t.txt"
    path.write_text("who;b;a\nx;1,5;2\ny;?;3\n")
    frame = fitting_frame(detector, read_rows(path, {"decimal": ","}), path, tmp_path, ids=["who"])
    assert frame["b"].tolist()[0] == 1.5
    assert np.isnan(frame["b"].tolist()[1])
    assert frame["who"].tolist() == ["x", "y"]


def test_an_array_gets_the_names_of_the_columns(detector, tmp_path):
    path = tmp_path / "t.npy"
    np.save(path, np.ones((3, 2)))
    assert list(fitting_frame(detector, read_rows(path), path, tmp_path).columns) == ["a", "b"]
    np.save(path, np.ones((3, 3)))
    with pytest.raises(UserError, match="3 numbers a row, but run was trained on 2 columns"):
        fitting_frame(detector, read_rows(path), path, "run")
    np.save(path, np.ones((3, 2, 2)))
    with pytest.raises(UserError, match="no table"):
        read_rows(path)


def test_columns_that_are_not_there_are_named(detector, tmp_path):
    frame = pd.DataFrame({"a": [1.0], "c": [2.0]})
    with pytest.raises(UserError, match="has no column 'b', 'who'"):
        fitting_frame(detector, frame, tmp_path / "t.csv", tmp_path, ids=["who"])
