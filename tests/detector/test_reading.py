import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

from pscd.detector.reading import Reader, Rows, fitting_frame, has_text, native_frame
from pscd.errors import UserError
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


def test_what_is_missing_is_of_the_table_and_not_stray():
    """A date of three parts is one column: it is missing if one of them is; a word among numbers is not."""
    x = torch.tensor([[1.0, 2.0, 3.0, 4.0], [torch.nan, torch.nan, torch.nan, 4.0], [1.0, 2.0, 3.0, torch.nan]])
    stray = torch.tensor([[False, False], [False, False], [False, True]])
    rows = Rows(x, stray, None)
    assert rows.missing(torch.tensor([0, 0, 0, 1])).tolist() == [[False, False], [True, False], [False, False]]
    x[0, 1] = torch.nan
    assert rows.missing(torch.tensor([0, 0, 0, 1]))[0].tolist() == [True, False]


def test_numbers_that_are_told_to_be_something_else_are_looked_at():
    frame = pd.DataFrame({"a": [1.0, 2.0, 999.0, 4.0], "b": [1.0, 2.5, 3.0, 4.0]})
    assert Reader.of(frame).schema is None
    assert Reader.of(frame, missing=["a=999"]).read(frame).x[2, 0].isnan()
    assert Reader.of(frame, kinds={"a": "category"}).levels.tolist() == [4, 0]
    assert Reader.of(frame.to_numpy(), missing=["999"]).schema is None  # columns of an array have no names
    assert Reader.of(frame).n_columns == 2
    mixed = frame.assign(c=list("xyxy"))
    assert Reader.of(mixed).n_columns == 3
    assert Reader.of(frame.assign(c=[True, False, True, True])).levels.tolist() == [0, 0, 2]


def test_parts_of_a_date_are_no_plain_numbers():
    days = pd.date_range("2020-01-01", periods=60)
    frame = pd.DataFrame({"x": np.arange(60.0) % 7, "d": days, "c": list("xy") * 30})
    reader = Reader.of(frame)
    assert reader.plain_numbers.tolist() == [True] + [False] * (len(reader.sources) - 1)
    assert reader.sources.tolist() == [0, *[1] * (len(reader.sources) - 2), 2]
    assert Reader(3).plain_numbers.tolist() == [True] * 3
    assert Reader(3).sources.tolist() == [0, 1, 2]


def test_names_and_labels_of_arrays_and_frames():
    x = np.array([[1.0, 2.0], [3.0, 4.0]])
    reader = Reader.of(x)
    assert reader.names(x) == ["x0", "x1"]
    rows = reader.read(x)
    values = np.array([[5, 6], [7, 8]])
    assert reader.labelled(rows, values) is values
    assert reader.found(rows, 1, [1, 0]) == [4.0, 2.0]
    frame = pd.DataFrame(x, columns=["a", "b"], index=[7, 9])
    reader = Reader.of(frame)
    assert reader.names(frame) == ["a", "b"]
    labelled = reader.labelled(reader.read(frame), values)
    pd.testing.assert_frame_equal(labelled, pd.DataFrame(values, columns=["a", "b"], index=[7, 9]))
    assert reader.found(reader.read(frame), 1, [1, 0]) == [4.0, 2.0]
    other = reader.labelled(Rows(rows.x, rows.stray, pl.DataFrame(x, schema=["a", "b"])), values)
    assert other.to_dict(as_series=False) == {"a": [5, 7], "b": [6, 8]}


def test_numbers_of_a_frame_that_lends_its_memory_may_be_written_to():
    x = np.array([[1.0, 2.0]])
    x.flags.writeable = False
    rows = Reader(2).read(x)
    rows.x[0, 0] = 9.0
    assert x[0, 0] == 1.0
    assert Reader(2).read(None, np.array([[1, 2]])).x.dtype == torch.float64
    assert rows.stray.tolist() == [[False, False]]


def test_misspelt_cells_mean_the_nearest_category_or_the_likeliest_of_them():
    frame = pd.DataFrame({"n": np.arange(90.0) % 7, "c": ["horse", "horst", "dog"] * 30})
    reader = Reader.of(frame)
    other = frame.astype(object).copy()
    other.loc[[2, 4, 5, 6], "c"] = [" dogg ", "xyz", "horsf", "bird"]
    rows = reader.read(other)
    likeliest = torch.zeros(90, 2)
    assert list(reader.misspelt(rows, likeliest)) == [(2, 1, 0.0), (5, 1, 1.0)]
    likeliest[5, 1] = 2
    assert reader.schema.columns[1].levels == ("dog", "horse", "horst")
    assert list(reader.misspelt(rows, likeliest))[1] == (5, 1, 2.0)
    assert list(Reader(2).misspelt(Rows(torch.zeros(1, 2), torch.ones(1, 2).bool(), None), likeliest)) == []


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
    same = reader.replaced(rows, rows.x, torch.zeros(3, 2, dtype=torch.bool))
    pd.testing.assert_frame_equal(same, frame)
    array = Reader(2).read(frame.to_numpy())
    assert Reader(2).replaced(array, array.x + 10, where).tolist() == [[1, 4], [12, 5], [3, 16]]


def test_cells_are_written_as_the_table_writes_them_where_they_are_asked_for():
    frame = pd.DataFrame(
        {"a": ["1.50 €", "2.25 €", "3.00 €"] * 4, "b": ["4.5", "5.5", "6.25"] * 4, "c": ["x", "y", "x"] * 4}
    )
    reader = Reader.of(frame)
    x = reader.read(frame).x[:2]
    assert reader.cells(frame, x) == [["1.50 €", "2.25 €"], ["4.5", "5.5"], ["x", "y"]]
    assert reader.cells(frame, x, [1]) == [[1.5, 2.25], ["4.5", "5.5"], ["x", "y"]]
    assert reader.cells(frame.to_numpy(), x)[0] == [1.5, 2.25]
    left = Reader.of(frame.assign(id=[f"row {i}" for i in range(12)]))
    assert left.cells(frame.assign(id="r"), left.read(frame.assign(id="r")).x[:2])[3] == [None, None]


def test_a_file_as_a_detector_wants_it():
    numbers = Reader(2)
    frame = pd.DataFrame({"b": ["3", "x", "4"], "a": ["1,5", "2,5", "3,5"], "more": ["u", "v", "w"]})
    made = fitting_frame(frame, numbers, ["a", "b"], array=False)
    np.testing.assert_array_equal(made[["a", "b"]].to_numpy(float), [[1.5, 3], [2.5, np.nan], [3.5, 4]])
    assert made["more"].tolist() == ["u", "v", "w"]
    with pytest.raises(UserError, match="has no column 'c', 'd'; it has 'b', 'a', 'more'"):
        fitting_frame(frame, numbers, ["c", "a", "d"], array=False)
    with pytest.raises(UserError, match="3 numbers a row, but the detector was fitted to 2 columns"):
        fitting_frame(frame, numbers, ["a", "b"], array=True)
    bare = fitting_frame(pd.DataFrame({"x0": ["1", "2"], "x1": ["3", "4"]}), numbers, ["a", "b"], array=True)
    assert bare["b"].tolist() == [3, 4]
    kinds = Reader.of(people(30))
    with pytest.raises(UserError, match="has no column 'sex', 'height', 'weight', 'age'"):
        fitting_frame(frame, kinds, [], array=False)
    table = people(5)
    assert fitting_frame(table, kinds, [], array=False) is table


def test_text_among_numbers_and_what_is_no_table():
    assert not has_text(np.array(["a", "b"]))
    assert not has_text(np.zeros((2, 2, 2)))
    assert not has_text([[1, None], ["2", 3.5]])
    assert has_text([[1, None], ["2", "x"]])
    assert has_text(np.array([["1", "b"]]))
    assert native_frame([[1]]) is None
    assert native_frame(np.zeros((1, 1))) is None


@pytest.mark.parametrize("text", [False, True])
def test_names_that_are_numbers_come_back(text):
    frame = pd.DataFrame(np.arange(8.0).reshape(4, 2), columns=[2019, 7], index=[5, 6, 7, 8])
    if text:
        frame[7] = ["a", "b", "a", "b"]
    reader = Reader.of(frame)
    rows = reader.read(frame)
    assert reader.names(frame) == ["2019", "7"]
    assert reader.labels(frame) == [2019, 7]
    assert reader.found(rows, 1, [2]) == [frame[7].iloc[2]]
    assert list(reader.labelled(rows, np.zeros((4, 2))).columns) == [2019, 7]
    where = torch.zeros(4, 2, dtype=torch.bool)
    where[1, 0] = True
    made = reader.replaced(rows, torch.full_like(rows.x, 1), where)
    expected = frame.copy()
    expected.loc[6, 2019] = 1
    pd.testing.assert_frame_equal(made, expected)


def test_a_name_that_is_there_twice_is_told():
    with pytest.raises(UserError, match="column 'a' is there twice; give every column a name of its own"):
        Reader.of(pd.DataFrame(np.zeros((3, 2)), columns=["a", "a"]))


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame])
def test_infinite_numbers_of_a_frame_cannot_be(kind):
    table = kind({"a": [1.0, np.inf, 3.0, np.nan], "b": [-np.inf, 2.0, 1e30, 9e29]})
    rows = Reader.of(table).read(table)
    assert rows.stray.tolist() == [[False, True], [True, False], [False, True], [False, False]]
    np.testing.assert_array_equal(rows.x, [[1, np.nan], [np.nan, 2], [3, np.nan], [np.nan, 9e29]])
    assert (table["b"][0], table["b"][2]) == (-np.inf, 1e30)  # the table itself is left alone
