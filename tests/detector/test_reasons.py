import numpy as np
import pandas as pd
import pytest

from pscd import EnergyDetector
from pscd.detector.reasons import reasons_of, short_cell


@pytest.fixture(scope="module")
def frame():
    return pd.DataFrame(np.random.default_rng(0).normal(size=(60, 2)), columns=["a", "b"])


def test_cells_are_short():
    assert short_cell(1.23456789) == "1.23457"
    assert short_cell("a" * 40) == "a" * 27 + "..."


def test_the_columns_that_cost_most_come_first_with_value_and_cost(frame):
    detector = EnergyDetector(updates=5).fit(frame)
    changed = frame.assign(other="x")
    changed.loc[7, ["a", "b"]] = [-9.0, 30.0]
    rows = detector.read(changed[["a", "b"]])
    cost = detector.explain(rows).loc[7]
    (text,) = reasons_of(detector, rows, np.array([7]))
    assert text == f"b = 30 (+{cost['b']:.1f}); a = -9 (+{cost['a']:.1f})"
    assert reasons_of(detector, rows, np.array([7]), most=1) == [text.split("; ")[0]]
    assert reasons_of(detector, rows, np.array([], int)) == []
    plain = EnergyDetector(updates=5).fit(frame.to_numpy())
    (text,) = reasons_of(plain, plain.read(changed[["a", "b"]].to_numpy()), np.array([7]))
    assert text.startswith("x1 = 30 (+")


def test_many_rows_are_explained_in_blocks(frame):
    detector = EnergyDetector(updates=5).fit(frame)
    rows, index = detector.read(frame), np.array([3, 50, 7, 8, 20])
    assert reasons_of(detector, rows, index, size=2) == reasons_of(detector, rows, index)
