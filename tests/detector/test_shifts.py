import numpy as np
import pandas as pd
import polars as pl
import pytest

from pscd import EnergyDetector
from pscd.detector.shifts import MOST_COLUMNS, SHORTEST, Block, blocks

SCALE, CENTRE = np.array([1.0, 10, 1, 100, 5, 2]), np.array([0.0, 50, 3, 1000, 20, -5])


@pytest.fixture(scope="module")
def whole():
    rng = np.random.default_rng(0)
    factor = np.linalg.cholesky(0.3 + 0.7 * np.eye(6))
    return rng.normal(size=(300, 6)) @ factor.T * SCALE + CENTRE


def shifted(whole):
    """Row 7 has a field too many from column 2 on, row 8 lacks its first field."""
    x = whole.copy()
    x[7, 2:] = [np.nan, *whole[7, 2:-1]]
    x[8] = [*whole[8, 1:], np.nan]
    return x


def test_blocks_of_either_direction_by_hand():
    assert blocks([True] * SHORTEST) == [Block(0, 2, 1), Block(0, 2, -1)]
    assert blocks([True, True, False, True]) == []
    wide = blocks([True] * (MOST_COLUMNS + 1))
    assert {block.last for block in wide} == {MOST_COLUMNS}
    right, left = Block(1, 3, 1), Block(1, 3, -1)
    assert (list(right.moves), right.emptied, right.surplus) == ([(1, 2), (2, 3)], 3, 1)
    assert (list(left.moves), left.emptied, left.surplus) == ([(2, 1), (3, 2)], 1, 3)


def test_shifted_cells_are_moved_back(whole):
    x = shifted(whole)
    detector = EnergyDetector(n_updates=1).fit(x)
    found = detector.suspects(x)
    said = {row: set(cells["mistake"]) for row, cells in found[found["row"].isin([7, 8])].groupby("row")}
    assert said == {7: {"shifted by one column to the right"}, 8: {"shifted by one column to the left"}}
    mended = detector.repair(x)
    np.testing.assert_allclose(mended[7, :5], whole[7, :5])
    np.testing.assert_allclose(mended[8, 1:], whole[8, 1:])
    assert np.isfinite(mended[[7, 8]]).all()  # the cell that is lost is guessed
    others = found[~found["row"].isin([7, 8])]
    assert not others["mistake"].astype(str).str.contains("shifted").any()


def test_missing_cells_of_shifted_rows_are_gaps_too_and_found_once(whole):
    x = shifted(whole)
    x[20, 3] = np.nan
    detector = EnergyDetector(n_updates=1).fit(x)
    gaps, found = detector.gaps(x), detector.findings(x)
    assert sorted(zip(gaps["row"], gaps["column"], strict=True)) == [(7, "x2"), (8, "x5"), (20, "x3")]
    assert np.isfinite(gaps[["suggested", "lower", "upper"]].to_numpy(float)).all()
    assert not found.duplicated(["row", "column"]).any()
    assert found.loc[found["what"] == "missing", "row"].tolist() == [20]


def test_rows_with_several_wrong_cells_are_not_shifted(whole):
    x = whole.copy()
    x[:20, [1, 3, 5]] += 30 * SCALE[[1, 3, 5]] * np.random.default_rng(1).choice([-1, 1], (20, 3))
    found = EnergyDetector(n_updates=1).fit(x).suspects(x)
    assert len(found) >= 40
    assert not found["mistake"].astype(str).str.contains("shifted").any()


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame])
def test_words_and_categories_move_too(whole, kind):
    names = [f"c{j}" for j in range(4)]
    rng = np.random.default_rng(2)
    cells = [[f"{a:.2f}", f"{b:.1f}", str(rng.choice(["red", "green", "blue"])), f"{c:.1f}"] for a, b, c, *_ in whole]
    dirty = [list(row) for row in cells]
    dirty[5] = [*cells[5][1:], None]
    table = kind({name: [row[j] for row in dirty] for j, name in enumerate(names)})
    mended = EnergyDetector(n_updates=1).fit(table).repair(table)
    row = [mended[name][5] for name in names]
    assert row[1:] == cells[5][1:]
    assert abs(float(row[0])) < 4


def test_columns_that_are_left_out_need_not_be_there(whole):
    names = [f"c{j}" for j in range(5)]
    table = pd.DataFrame(whole[:, :5].round(2), columns=names).assign(name=[f"row {i}" for i in range(len(whole))])
    detector = EnergyDetector(n_updates=1).fit(table)
    new = table[names].head(3).copy()
    new.loc[1] = [*new.loc[1, names[1:]], None]
    assert detector.repair(new).loc[1, names[1:]].tolist() == table.loc[1, names[1:]].tolist()
