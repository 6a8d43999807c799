import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

from pscd.detector.frames import native_frame
from pscd.detector.reading import Reader
from pscd.errors import UserError
from tests.detector.tables import people


def test_arrays_and_frames_of_numbers_are_taken_as_they_are():
    x = np.array([[1.0, np.nan], [2.0, 3.0]])
    for table in (x, pd.DataFrame(x, columns=["a", "b"]), pl.DataFrame(x, schema=["a", "b"])):
        reader = Reader.of(table)
        assert reader.is_plain
        assert reader.levels.tolist() == [0, 0]
        assert reader.sources.tolist() == [0, 1]
        rows = reader.read(table)
        np.testing.assert_array_equal(rows.x.numpy(), x)
        assert rows.missing.tolist() == [[False, True], [False, False]]
        assert not rows.impossible.any()
    assert Reader.of(x).names(x) == ["x0", "x1"]
    assert Reader.of(x).names(pd.DataFrame(x, columns=["a", "b"])) == ["a", "b"]


def test_other_tables_are_looked_at():
    frame = people(50)
    reader = Reader.of(frame)
    assert reader.levels.tolist() == [2, 0, 0, 0]
    assert reader.sources.tolist() == [0, 1, 2, 3]
    assert reader.plain_numbers.tolist() == [False, True, True, True]
    assert Reader.of(frame, kinds={"age": "category"}).levels[3] > 0
    numbers = pd.DataFrame({"a": [1.0, 2.0, 999.0, 4.0], "b": [1.0, 2.5, 3.0, 4.0]})
    assert Reader.of(numbers, missing=["a=999"]).read(numbers).missing[2].tolist() == [True, False]
    assert Reader.of(numbers.assign(c=[True, False, True, True])).levels.tolist() == [0, 0, 2]
    with pytest.raises(UserError, match="'a'"):
        Reader.of(pd.DataFrame(np.zeros((3, 2)), columns=["a", "a"]))


def test_parts_of_a_date_are_one_column_of_the_table():
    days = pd.date_range("2020-01-01", periods=60)
    frame = pd.DataFrame({"x": np.arange(60.0) % 7, "d": days, "c": list("xy") * 30})
    frame.loc[3, "d"] = pd.NaT
    reader = Reader.of(frame)
    n_parts = len(reader.sources) - 2
    assert n_parts > 1
    assert reader.sources.tolist() == [0, *[1] * n_parts, 2]
    assert reader.plain_numbers.tolist() == [True] + [False] * (n_parts + 1)
    assert reader.is_ordered.tolist() == [True, True] + [False] * n_parts
    assert reader.read(frame).missing.nonzero().tolist() == [[3, 1]]
    values = torch.arange(1.0, n_parts + 3)[None]
    assert reader.by_column(values).tolist() == [[1.0, float(n_parts + 1), float(n_parts + 2)]]


def test_some_rows_and_blocks_of_rows():
    frame = people(7).set_axis([f"row {i}" for i in range(7)], axis=0)
    for table in (frame, pl.from_pandas(frame)):
        rows = Reader.of(table).read(table)
        blocks = list(rows.blocks(3))
        assert [len(block) for block in blocks] == [3, 3, 1]
        assert torch.equal(torch.cat([block.x for block in blocks]), rows.x)
        some = rows.take(np.array([5, 2]))
        assert torch.equal(some.x, rows.x[[5, 2]])
        assert some.reader.cells(some, np.array([1, 0]), np.array([3, 3])) == [
            frame["age"].iloc[2],
            frame["age"].iloc[5],
        ]
    array = Reader.plain(2).read(np.arange(6.0).reshape(3, 2))
    assert array.take(np.array([2])).table.tolist() == [[4, 5]]


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
    assert made["sex"][3] == {"m": "f", "f": "m"}[frame["sex"][3]]
    assert made["height"][4] == pytest.approx(frame["height"][4] + 1)
    assert made["age"][5] == frame["age"][5] + 1
    made.loc[3, "sex"], made.loc[4, "height"], made.loc[5, "age"] = frame["sex"][3], frame["height"][4], frame["age"][5]
    pd.testing.assert_frame_equal(made, frame, check_dtype=False)


def test_text_stays_text():
    """As a file has it: decimals as they are written, in a column of text."""
    frame = people(40).astype(str)
    frame.loc[3, "weight"] = "heavy"
    reader = Reader.of(frame)
    rows = reader.read(frame)
    assert rows.impossible.nonzero().tolist() == [[3, 2]]
    assert reader.cells(rows, np.array([3]), np.array([2])) == ["heavy"]
    made = reader.replaced(rows, torch.where(rows.x.isnan(), 71.25, rows.x), rows.impossible)
    assert made["weight"][3] in ("71.2", "71.3")
    assert (made["weight"].drop(3) == frame["weight"].drop(3)).all()


def test_values_and_cells_in_the_format_of_the_table():
    frame = pd.DataFrame(
        {"a": ["1.50 €", "2.25 €", "3.00 €"] * 4, "b": ["4.5", "5.5", "6.25"] * 4, "c": ["x", "y", "x"] * 4}
    )
    reader = Reader.of(frame)
    x = reader.read(frame).x[:2].clone()
    assert reader.spelled(frame, x) == [["1.50 €", "2.25 €"], ["4.5", "5.5"], ["x", "y"]]
    assert reader.values(x) == [[1.5, 2.25], [4.5, 5.5], ["x", "y"]]
    x[0] = torch.nan
    assert [column[0] for column in reader.spelled(frame, x)] == [None, None, None]
    left_out = Reader.of(frame.assign(id=[f"row {i}" for i in range(12)]))
    assert left_out.values(left_out.read(frame).x[:2])[3] == [None, None]


def test_arrays_with_text():
    cells = [["a", 1.0], ["b", None], ["a", 3.0], ["c", 2.0]]
    reader = Reader.of(cells)
    assert [column.kind for column in reader.schema.columns] == ["category", "integer"]
    rows = reader.read(cells)
    np.testing.assert_array_equal(rows.x, [[0, 1], [1, np.nan], [0, 3], [2, 2]])
    filled = reader.replaced(rows, rows.x.nan_to_num(nan=7.0), rows.missing)
    assert filled.tolist() == [["a", 1.0], ["b", 7], ["a", 3.0], ["c", 2.0]]


def test_whole_numbers_become_floats_only_if_they_must():
    frame = pd.DataFrame({"a": [1, 2, 3], "b": [4, 5, 6]})
    reader = Reader.of(frame)
    rows = reader.read(frame)
    where = torch.zeros(3, 2, dtype=torch.bool)
    where[1, 0] = where[2, 1] = True
    made = reader.replaced(rows, rows.x + torch.tensor([0.5, 1.0]), where)
    assert made["a"].tolist() == [1, 2.5, 3]
    assert made["b"].tolist() == [4, 5, 7]
    assert (made["a"].dtype.kind, made["b"].dtype.kind) == ("f", "i")
    array = reader.read(frame.to_numpy())
    assert reader.replaced(array, array.x + 10, where).tolist() == [[1, 4], [12, 5], [3, 16]]


@pytest.mark.parametrize("text", [False, True])
def test_names_that_are_numbers_come_back(text):
    frame = pd.DataFrame(np.arange(8.0).reshape(4, 2), columns=[2019, 7], index=[5, 6, 7, 8])
    if text:
        frame[7] = ["a", "b", "a", "b"]
    reader = Reader.of(frame)
    rows = reader.read(frame)
    labelled = reader.labelled(rows, np.zeros((4, 2)))
    assert (list(labelled.columns), list(labelled.index)) == ([2019, 7], [5, 6, 7, 8])
    where = torch.zeros(4, 2, dtype=torch.bool)
    where[1, 0] = True
    made = reader.replaced(rows, torch.full_like(rows.x, 1), where)
    expected = frame.copy()
    expected.loc[6, 2019] = 1
    pd.testing.assert_frame_equal(made, expected)


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame])
def test_infinite_numbers_of_a_frame_are_impossible(kind):
    table = kind({"a": [1.0, np.inf, 3.0, np.nan], "b": [-np.inf, 2.0, 1e30, 9e29]})
    rows = Reader.of(table).read(table)
    assert rows.impossible.tolist() == [[False, True], [True, False], [False, True], [False, False]]
    np.testing.assert_array_equal(rows.x, [[1, np.nan], [np.nan, 2], [3, np.nan], [np.nan, 9e29]])
    assert (table["b"][0], table["b"][2]) == (-np.inf, 1e30)  # the table itself is left alone


def test_another_file_may_have_another_decimal_sign():
    reader = Reader.of(people(60))
    other = people(60).astype(str).map(lambda cell: cell.replace(".", ","))
    torch.testing.assert_close(reader.adapted(other).read(other).x, reader.read(people(60)).x)
    plain = Reader.plain(["height", "weight"])
    numbers = other[["height", "weight"]]
    torch.testing.assert_close(plain.adapted(numbers).read(numbers).x, reader.read(people(60)).x[:, 1:3])
    assert plain.adapted(people(5)[["height", "weight"]]) is plain
