import datetime

import numpy as np
import pandas as pd
import polars as pl
import pytest

from pscd.errors import UserError
from pscd.tables.cells import as_frame, cells_of, number_text


def cells(values, missing=()):
    return cells_of(as_frame(pd.DataFrame({"a": values}))["a"], missing)


def every(found):
    """The cells, one after the other, as texts."""
    return found.spread(found.texts(), None).tolist()


@pytest.mark.parametrize(
    ("values", "kind", "texts"),
    [
        (pd.array([1, None, 3], dtype="Int64"), "number", ["1", None, "3"]),
        (pd.array([1.5, None, 3], dtype="Float64"), "number", ["1.5", None, "3"]),
        (np.array([1.0, np.nan, 3.0]), "number", ["1", None, "3"]),
        (pd.array([True, None, False], dtype="boolean"), "boolean", ["True", None, "False"]),
        (pd.Categorical([3, None, 1]), "text", ["3", None, "1"]),
        (pd.Categorical(["x", None, "y"]), "text", ["x", None, "y"]),
        (pd.Series([1, "NA", " two "], dtype=object), "text", ["1", None, "two"]),
        (pd.Series([2.0, True, datetime.date(2020, 1, 2)], dtype=object), "text", ["2", "True", "2020-01-02"]),
        (pd.Series([None, None, None], dtype=object), "text", [None, None, None]),
        (pd.to_datetime(["2020-01-02", None, "2020-01-02 03:04"], format="ISO8601"), "date", None),
        (pd.to_datetime(["2020-01-02", None, "2020-01-02"]).tz_localize("Asia/Tokyo"), "date", None),
    ],
)
def test_columns_of_every_type(values, kind, texts):
    found = cells(values)
    assert found.kind == kind
    assert found.codes.tolist().count(-1) == sum(pd.isna(pd.Series(values))) + (texts == ["1", None, "two"])
    if texts is not None:
        assert every(found) == texts
    else:
        assert every(found)[:2] == ["2020-01-02", None]


def test_columns_of_polars():
    frame = pl.DataFrame(
        {
            "day": [datetime.date(2020, 1, 2), None],
            "cat": pl.Series(["x", None], dtype=pl.Categorical),
            "when": pl.Series([datetime.datetime(2020, 1, 2, 3, 4), None]).dt.replace_time_zone("Europe/Berlin"),
            "flag": [True, None],
            "none": [None, None],
            "clock": [datetime.time(3, 4), None],
        }
    )
    found = {name: every(cells_of(as_frame(frame.lazy())[name])) for name in frame.columns}
    lists = pl.DataFrame({"a": [[1, 2], None]})
    assert every(cells_of(as_frame(lists)["a"]))[1] is None
    assert found == {
        "day": ["2020-01-02", None],
        "cat": ["x", None],
        "when": ["2020-01-02 03:04:00", None],
        "flag": ["True", None],
        "none": [None, None],
        "clock": ["03:04:00", None],
    }


def test_missing_values_in_any_spelling():
    spellings = ["", " ", "NA", "N/A", "n/a", "nan", "NaN", "null", "NULL", "None", "-", "?", ".", "#N/A"]
    assert every(cells([*spellings, "x", "0", "n"])) == [None] * len(spellings) + ["x", "0", "n"]
    assert every(cells(["999", "999.0", "Unknown", "99", "x"], ["999", "unknown"])) == [None, None, None, "99", "x"]
    assert every(cells([999.0, 99.0], ["999"])) == [None, "99"]


def test_values_that_differ_in_blanks_are_one():
    found = cells(["a", " a", "b", "a  "])
    assert found.values.tolist() == ["a", "b"]
    assert found.counts.tolist() == [3, 1]


def test_what_is_no_table():
    with pytest.raises(UserError, match="'a' is there twice"):
        as_frame(pd.DataFrame([[1, 2]], columns=["a", "a"]))
    with pytest.raises(UserError, match="got list"):
        as_frame([[1, 2]])
    with pytest.raises(UserError, match="this array has 3"):
        as_frame(np.zeros((2, 2, 2)))
    assert as_frame(np.zeros((2, 3))).columns == ["x0", "x1", "x2"]
    assert as_frame(pd.DataFrame({0: [1], ("a", 1): [2]})).columns == ["0", "('a', 1)"]


def test_numbers_as_people_write_them():
    for value, text in [(3.0, "3"), (-3.0, "-3"), (0.25, "0.25"), (2.0**53, "9007199254740992.0"),
                        (2.0**53 - 1, "9007199254740991"), (-(2.0**53), "-9007199254740992.0"), (np.inf, "inf"),
                        (np.nan, "nan")]:  # fmt: skip
        assert number_text(value) == text


def test_cells_of_objects_as_texts():
    now = datetime.datetime(2020, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
    values = [np.float32(2.0), np.int64(7), 2.5, np.True_, now, datetime.datetime(2020, 1, 2), (1, 2), b"x"]
    texts = ["2", "7", "2.5", "True", "2020-01-02 03:04:05", "2020-01-02", "(1, 2)", "b'x'"]
    assert every(cells(pd.Series(values, dtype=object))) == texts
    fine = pd.Series([datetime.datetime(2020, 1, 2, 3, 4, 5, 600)], dtype=object)
    assert every(cells(fine)) == ["2020-01-02 03:04:05.000600"]


def test_how_often_values_occur_and_how_many_there_are():
    found = cells(["a", "b", None, "a", "NA"])
    assert (found.counts.tolist(), found.n_present) == ([2, 1], 3)
    assert found.spread(np.array([10.0, 20.0])).tolist()[:2] == [10, 20]
    assert np.isnan(found.spread(np.array([10.0, 20.0]))[2])
    assert found.spread(np.array([True, False]), False).tolist() == [True, False, False, True, False]


def test_numbers_and_words_that_are_told_to_be_missing():
    assert every(cells(["x", "y", " X "], ["x "])) == [None, "y", None]
    assert every(cells(["1", "2", "1.0"], ["1"])) == [None, "2", None]
    assert every(cells([1.0, 2.0, 1.0], ["1.0", "word"])) == [None, "2", None]
    assert every(cells([1.0, 2.0], ["word"])) == ["1", "2"]
    assert every(cells([True, False], ["1"])) == ["True", "False"]  # flags are no numbers
    assert every(cells(["b", "NA", "a", "NA", "c", "a"])) == ["b", None, "a", None, "c", "a"]


def test_names_that_are_there_twice_once_they_are_texts():
    with pytest.raises(UserError, match="column '1' is there twice; give every column a name of its own"):
        as_frame(pd.DataFrame([[1, 2, 3]], columns=[1, "1", "a"]))
    frame = pd.DataFrame({"a": [1], "b": [2]})
    assert as_frame(frame).columns == ["a", "b"]
