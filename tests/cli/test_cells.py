import pandas as pd

from pscd.cli.cells import cell_words, write_cells


def test_days_are_told_without_a_time():
    cell = {"row": 0, "column": "born", "found": "1.2.1950", "suggested": pd.Timestamp("1950-02-01"), "mistake": None}
    ends = {"lower": pd.Timestamp("1949-05-01"), "upper": pd.Timestamp("1950-11-30 06:30")}
    expected = "row 1, born = 1.2.1950, expected 1950-02-01 (1949-05-01 to 1950-11-30 06:30:00)"
    assert cell_words({**cell, **ends}) == expected


def test_rows_are_counted_from_one_and_costs_are_energies(tmp_path):
    found = pd.DataFrame({"row": [0, 6], "column": ["a", "b"], "cost": [50.0, 7.25]})
    write_cells(found, tmp_path / "cells.csv")
    written = pd.read_csv(tmp_path / "cells.csv")
    assert written.to_dict("list") == {"row": [1, 7], "column": ["a", "b"], "energy": [50.0, 7.25]}
