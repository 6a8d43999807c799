import pandas as pd

from pscd.cli.cells import (
    cell_words,
    group_cells,
    in_own_format,
    merge_groups,
    print_gaps,
    print_groups,
    write_cells,
)
from pscd.tables import Column, Schema


def test_days_are_told_without_a_time():
    cell = {"row": 0, "column": "born", "found": "1.2.1950", "suggested": pd.Timestamp("1950-02-01"), "mistake": None}
    ends = {"lower": pd.Timestamp("1949-05-01"), "upper": pd.Timestamp("1950-11-30 06:30")}
    expected = "row 1, born = 1.2.1950, expected 1950-02-01 (1949-05-01 to 1950-11-30 06:30:00)"
    assert cell_words({**cell, **ends}) == expected


FOUND = pd.DataFrame(
    {"row": [0, 6, 8], "column": ["a", "b", "b"], "found": [0.1, None, "x"], "suggested": [1 / 3, 2, "y"],
     "lower": None, "upper": None, "cost": [50.0, 7.25, 3.0], "mistake": ["10 times too large", None, None]}
)  # fmt: skip


def test_rows_are_counted_from_one_costs_are_energies_and_cells_as_they_stand(tmp_path):
    write_cells(FOUND, tmp_path / "cells.csv")
    assert (tmp_path / "cells.csv").read_text().splitlines() == [
        "row,column,found,suggested,lower,upper,energy,mistake",
        "1,a,0.1,0.3333333333333333,,,50,10 times too large",
        "7,b,,2,,,7.25,",
        "9,b,x,y,,,3,",
    ]


def test_groups_of_blocks_are_those_of_the_whole(capsys):
    whole = merge_groups(group_cells(FOUND))
    blocks = merge_groups([*group_cells(FOUND[:1]), *group_cells(FOUND[1:2]), *group_cells(FOUND[2:])])
    assert blocks == whole
    assert [group[:3] for group in whole] == [["a", "10 times too large", 1], ["b", "", 2]]
    print_groups(whole, 3, 1000, more=2)
    told = capsys.readouterr().out.splitlines()
    assert told[0] == "3 of 1,000 cells look wrong:"
    assert told[1].endswith(": 10 times too large")
    assert told[2].startswith("  2 in b: such as row 7")
    assert told[3] == "  ... and 2 more kinds"


def test_gaps_are_told_by_column(capsys):
    print_gaps({})
    print_gaps({"a": 1})
    print_gaps({"a": 1, "b": 1200})
    assert capsys.readouterr().out.splitlines() == [
        "no cell is missing", "1 cell is missing: 1 in a", "1,201 cells are missing: 1,200 in b, 1 in a"
    ]  # fmt: skip


def test_intervals_are_written_as_the_table_writes_its_own():
    schema = Schema(
        (
            Column("pay", "number", decimals=2, least_decimals=2, decimal=",", thousands=".", prefix="€ "),
            Column("since", "date", formats=("%d.%m.%Y",), resolution="day"),
            Column("pet", "category", ("cat", "dog")),
        )
    )
    day = pd.Timestamp("2020-12-31")
    found = pd.DataFrame(
        {
            "column": ["pay", "since", "pay", "pet", "pay"],
            "suggested": ["€ 2.000,00", "31.12.2020", 2000.0, "cat", "€ 3,00"],
            "lower": [1234.5, day, 1234.5, None, None],
            "upper": [3000.0, day, 3000.0, None, None],
        }
    )
    made = in_own_format(found, schema)
    assert made["lower"].tolist() == ["€ 1.234,50", "31.12.2020", 1234.5, None, None]
    assert made["upper"].tolist() == ["€ 3.000,00", "31.12.2020", 3000.0, None, None]
    assert found["lower"][0] == 1234.5
    assert in_own_format(found, None) is found
