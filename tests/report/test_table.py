import numpy as np
import pandas as pd
import pytest

from pscd.report.blocks import Chart, RankedRows, Table, Text
from pscd.report.cells import CellCosts
from pscd.report.columns import column
from pscd.report.table import Limits, ScoredTable, cells_section, sections


@pytest.fixture
def table():
    """Four of six rows, by falling energy; the third row of the file has the highest."""
    energy = np.array([0.0, 1.0, 9.0, 2.0, 0.5, 0.2])
    number = np.array([2, 3, 1, 0])
    columns = (column("a", [5.0, 1.0, None, 2.0], [1.0, 2.0]), column("town", ["x", "y", "y", "y"], ["x", "y"]))

    def costs(n):
        cost = np.array([[0.1, 3.0], [0.0, 0.2], [0.0, 0.0], [0.0, 0.0]])[:n]
        value = np.array([["5.0", "x"], ["1.0", "y"], [None, "y"], ["2.0", "y"]], dtype=object)[:n]
        suggestion = np.full((n, 2), None, dtype=object)
        suggestion[0, 1] = "y"
        return CellCosts(value, cost, suggestion)

    ids = {"who": ["c", "d", "b", "a"]}
    weight = np.array([0.0, 1.0, np.nan, 1.0])
    return ScoredTable("f.csv", energy, energy[:2], number, energy[number], columns, costs, ids, 5.0, weight)


def test_rows_come_by_energy_and_their_cells_by_cost(table):
    energies, rows, _ = sections(table)
    assert ("outliers", "1 (16.7%)") in energies.blocks[1].rows
    (ranked,) = (block for block in rows.blocks if isinstance(block, RankedRows))
    assert [(row.number, row.ids, row.is_outlier) for row in ranked.rows] == [
        (2, ("c",), True),
        (3, ("d",), False),
        (1, ("b",), False),
        (0, ("a",), False),
    ]
    first = ranked.rows[0].cells
    assert [(cell.column, cell.value, cell.suggestion, cell.cost) for cell in first] == [
        ("town", "x", "y", 3.0),
        ("a", "5", "", 0.1),
    ]
    assert [row.weight for row in ranked.rows] == [0.0, 1.0, None, 1.0]


def test_limits_hold_and_are_stated(table):
    _, rows, columns = sections(table, Limits(rows=2, cells=1, columns=1))
    lines = " ".join(line for part in (rows, columns) for text in part.blocks if isinstance(text, Text)
                     for line in text.lines)  # fmt: skip
    assert "The 2 rows of highest energy" in lines
    assert "1 cells of highest cost are listed, of 2" in lines
    assert "Drawn from 4 of 6 rows" in lines
    assert [chart.title for chart in columns.blocks if isinstance(chart, Chart)] == ["town"]


def test_wrong_and_missing_cells_are_listed_with_the_ids_of_their_rows(table):
    cells = pd.DataFrame(
        {
            "row": [0, 2],
            "column": ["town", "a"],
            "value": ["x", None],
            "problem": ["wrong", "missing"],
            "suggestion": ["y", 1.23456],
            "low": [None, 1.0],
            "high": [None, 2.0],
            "confidence": [0.987, 1.0],
        }
    )
    text, listed = cells_section(cells, table).blocks
    assert text.lines == ("1 of 8 cells look wrong, 1 are missing.",)
    assert isinstance(listed, Table)
    assert listed.rows == (
        ("c", "town", "x", "wrong", "y", "", "0.99"),
        ("b", "a", "missing", "missing", "1.235", "1 to 2", ""),
    )
    (text,) = cells_section(cells[:0], table).blocks
    assert text.tone == "good"
