import numpy as np
import pandas as pd

from pscd import EnergyDetector
from pscd.detector.reasons import reasons, reasons_of, short_cell


def test_the_columns_that_cost_most_come_first():
    blame = np.array([0.0, 2.0, 5.0, 1.0, 0.5])
    assert reasons("abcde", [1, 2.5, "x", 3, 4], blame) == "c = x (+5.0); b = 2.5 (+2.0); d = 3 (+1.0)"
    assert short_cell(1.23456789) == "1.23457"
    assert short_cell("a" * 40) == "a" * 27 + "..."


def test_many_rows_are_explained_in_blocks(monkeypatch):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(60, 2)), columns=["a", "b"])
    detector = EnergyDetector(n_updates=5).fit(frame)
    some = np.array([3, 50, 7, 8, 20])
    told, asked, explain = reasons_of(detector, frame, frame, some), [], detector.explain
    monkeypatch.setattr("pscd.detector.reasons.EXPLAINED_AT_ONCE", 2)
    monkeypatch.setattr(detector, "explain", lambda rows: asked.append(len(rows)) or explain(rows))
    assert reasons_of(detector, frame, frame, some) == told
    assert asked == [2, 2, 1]


def test_values_are_told_as_they_were_read():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(60, 2)), columns=["a", "b"])
    detector = EnergyDetector(n_updates=5).fit(frame)
    frame.loc[7, "b"] = 30.0
    text = frame.astype({"b": str}).assign(other="x")
    (told,) = reasons_of(detector, frame, text, np.array([7]))
    assert told.startswith("b = 30.0 (+")
    assert reasons_of(detector, frame, text, np.array([], int)) == []
    plain = EnergyDetector(n_updates=5).fit(frame.to_numpy())
    (told,) = reasons_of(plain, frame.to_numpy(), pd.DataFrame(frame.to_numpy()), np.array([7]))
    assert told.startswith("x1 = 30 (+")
