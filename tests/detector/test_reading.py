import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

from pscd.detector.reading import Reader, Rows, has_text, native_frame
from tests.detector.tables import people


def test_arrays_and_frames_of_numbers_are_taken_as_they_are():
    x = np.array([[1.0, np.nan], [2.0, 3.0]])
    for table in (x, pd.DataFrame(x, columns=["a", "b"]), pl.DataFrame(x, schema=["a", "b"])):
        reader = Reader.of(table)
        assert reader.schema is None
        assert reader.levels.tolist() == [0, 0]
        np.testing.assert_array_equal(reader.read(table).x.numpy(), x)


def test_other_frames_are_looked_at():
    reader = Reader.of(people(50))
    assert reader.levels.tolist() == [2, 0, 0, 0]
    assert reader.sources.tolist() == [0, 1, 2, 3]
    assert reader.plain_numbers.tolist() == [False, True, True, True]


def test_blocks_are_all_rows_in_order():
    rows = Rows(torch.arange(14.0).view(7, 2), torch.arange(14).view(7, 2) % 3 == 0, "table")
    blocks = list(rows.blocks(3))
    assert [len(block.x) for block in blocks] == [3, 3, 1]
    assert torch.equal(torch.cat([block.x for block in blocks]), rows.x)
    assert torch.equal(torch.cat([block.stray for block in blocks]), rows.stray)


def test_kinds_are_as_told():
    frame = people(50)
    assert Reader.of(frame, kinds={"age": "category"}).levels[3] > 0


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.from_pandas], ids=["pandas", "polars"])
def test_only_the_cells_asked_for_are_replaced(kind):
    frame = people(30)
    table = kind(frame)
    reader = Reader.of(table)
    rows = reader.read(table)
    new = rows.x.clone()
    new[:, 0] = 1 - new[:, 0]
    new[:, 1:] += 1
    where = torch.zeros(30, 4, dtype=torch.bool)
    where[3, 0] = where[4, 1] = where[5, 3] = True
    made = reader.replaced(rows, new, where)
    assert type(made) is type(table)
    made = native_frame(made).to_pandas()
    other = {"m": "f", "f": "m"}
    assert made["sex"][3] == other[frame["sex"][3]]
    assert made["height"][4] == pytest.approx(frame["height"][4] + 1)
    assert made["age"][5] == frame["age"][5] + 1
    made.loc[3, "sex"], made.loc[4, "height"], made.loc[5, "age"] = frame["sex"][3], frame["height"][4], frame["age"][5]
    pd.testing.assert_frame_equal(made, frame, check_dtype=False)


def test_an_index_is_kept():
    frame = people(20).set_index(pd.Index([f"row {i}" for i in range(20)]))
    reader = Reader.of(frame)
    assert list(reader.labelled(reader.read(frame), np.zeros((20, 4))).index) == list(frame.index)


def test_text_stays_text():
    """As a file has it: decimals as they are written, in a column of text."""
    frame = people(40).astype(str)
    frame.loc[3, "weight"] = "heavy"
    reader = Reader.of(frame)
    rows = reader.read(frame)
    assert rows.stray.nonzero().tolist() == [[3, 2]]
    where = rows.stray
    new = torch.where(rows.x.isnan(), 71.25, rows.x)
    made = reader.replaced(rows, new, where)
    assert made["weight"][3] in ("71.2", "71.3")
    assert (made["weight"].drop(3) == frame["weight"].drop(3)).all()
    assert reader.found(rows, 2, [3]) == ["heavy"]


def test_values_are_those_of_the_table():
    frame = people(10)
    reader = Reader.of(frame)
    values = reader.values(reader.read(frame).x)
    assert values[0] == frame["sex"].tolist()
    assert values[3] == frame["age"].tolist()
    assert Reader(2).values(torch.tensor([[1.0, torch.nan]])) == [[1.0], [None]]


def test_arrays_with_text_are_looked_at():
    cells = [["a", 1.0], ["b", None], ["a", 3.0], ["c", 2.0]]
    assert not has_text(np.ones((2, 2)))
    assert not has_text(np.array([["1", "2.5"]]))  # as scikit-learn takes them
    assert has_text(cells)
    reader = Reader.of(cells)
    assert [column.kind for column in reader.schema.columns] == ["category", "integer"]
    rows = reader.read(cells)
    np.testing.assert_array_equal(rows.x, [[0, 1], [1, np.nan], [0, 3], [2, 2]])
    filled = reader.replaced(rows, rows.x.nan_to_num(nan=7.0), rows.missing(reader.sources))
    assert filled.tolist() == [["a", 1.0], ["b", 7], ["a", 3.0], ["c", 2.0]]
