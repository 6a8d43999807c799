import numpy as np
import pandas as pd
import pytest

from pscd.errors import UserError
from pscd.frames import look
from pscd.frames.levels import MOST_LEVELS

N = 200
rng = np.random.default_rng(0)


def taken_for(values, name="a", **options):
    return look(pd.DataFrame({name: values}), **options).columns[0]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (rng.normal(size=N).astype(str), "number"),
        (rng.normal(size=N), "number"),
        (rng.integers(0, 9, N).astype(str), "integer"),
        (rng.integers(1, 3, N), "integer"),
        (rng.integers(0, 2, N), "boolean"),
        (rng.integers(0, 2, N).astype(float).astype(str), "boolean"),
        (rng.integers(0, 2, N).astype(bool), "boolean"),
        (rng.choice(["yes", "no", "Yes", "NO"], N), "boolean"),
        (rng.choice(["ja", "nein"], N), "boolean"),
        (rng.choice(["f", "m"], N), "category"),
        (rng.choice(["0", "1", "2", "3+"], N), "category"),
        (rng.choice(["02139", "10115", "80331"], N), "category"),
        (rng.choice(["01", "02", "11", "12"], N), "integer"),
        (pd.date_range("2020-01-01", periods=N).astype(str), "date"),
        (pd.date_range("2020-01-01", periods=N), "date"),
        (pd.date_range("2020-01-01", periods=N).strftime("%Y%m%d").astype(int), "date"),
        (rng.integers(1990, 2020, N), "integer"),
        ([f"p{i}" for i in range(N)], "left out"),
        (np.arange(N) + 1, "left out"),
        (rng.permutation(N), "left out"),
        (np.arange(N) + 1900, "integer"),
        ([f"a remark that says {i} things at length" for i in range(N)], "left out"),
        (["x"] * N, "left out"),
        ([3.0] * N, "left out"),
        (["x", None] * (N // 2), "left out"),
        ([None] * N, "left out"),
        ([f"p{i // 2}" for i in range(N)], "left out"),  # 100 values, each twice
    ],
)
def test_columns_are_taken_for_what_they_are(values, kind):
    assert taken_for(values).kind == kind


def test_names_tell_identifiers():
    numbers = rng.permutation(10 * N)[:N] + 5000
    assert taken_for(numbers, "amount").kind == "integer"
    for name in ("id", "ID", "customer_id", "PassengerId", "Unnamed: 0", "Row"):
        assert taken_for(numbers, name).kind == "left out", name
    shops = rng.choice([101, 205, 307], N)
    assert taken_for(shops, "shop_id").levels == ("101", "205", "307")
    assert taken_for(shops, "paid").kind == "integer"


def test_stray_words_do_not_make_a_text_of_a_number():
    values = rng.normal(50, 9, N).round(1).astype(str)
    values[:60] = "unknown"
    column = taken_for(values)
    assert (column.kind, column.stray, column.decimals) == ("number", 60, 1)
    assert column.notes[0] == "60 words: unknown"
    values[60:150] = "unknown"  # by now words are the rule
    assert taken_for(values).kind != "number"


def test_rare_values_share_a_level():
    common = [f"city {i % 20:02d}" for i in range(800)]
    column = taken_for([*common, *(f"village {i}" for i in range(100))])
    assert column.kind == "category"
    assert len(column.levels) == MOST_LEVELS
    assert column.others
    assert column.levels[-1] == "other"
    assert "57 rare values (57 cells) share the level 'other'" in column.notes
    many = taken_for([f"v{i}" for i in range(10_000)] * 3)
    assert many.kind == "left out"
    assert many.notes == ("10,000 different values, none common: too many for a category",)
    assert taken_for([f"v{i}" for i in range(10_000)] * 3, kinds={"a": "category"}).others


def test_corrections():
    numbers = [f"{i % 5}" for i in range(N)]
    assert taken_for(numbers, kinds={"a": "category"}).levels == ("0", "1", "2", "3", "4")
    assert taken_for([10.0, 9.0, 10.0], kinds={"a": "category"}).levels == ("9", "10")
    assert taken_for(numbers, kinds={"a": "skip"}).kind == "left out"
    assert taken_for(numbers, ids=["a"]).kind == "left out"
    assert taken_for(["1", "x", "y"], kinds={"a": "number"}).stray == 2
    assert taken_for(["13-2020", "14-2021"], kinds={"a": "date:%d-%Y"}).resolution == "day"
    assert taken_for(["up", "down"], kinds={"a": "boolean"}).levels == ("down", "up")
    for kinds, message in [
        ({"b": "number"}, "no column 'b'; there are 'a'"),
        ({"a": "colour"}, "a=colour: a column can be number, integer"),
        ({"a": "date:%Q"}, "a=date:%Q: .*bad directive"),
    ]:
        with pytest.raises(UserError, match=message):
            taken_for(numbers, kinds=kinds)


def test_missing_by_column():
    frame = pd.DataFrame({"a": [1.0, 999.0, 3.0, 4.0], "b": [999.0, 2.0, 1.0, 7.0]})
    schema = look(frame, missing=["a=999"])
    assert [column.missing for column in schema.columns] == [1, 0]
    assert [column.missing for column in look(frame, missing=["999"]).columns] == [1, 1]


def test_tables_with_nothing_in_them():
    with pytest.raises(UserError, match="no rows"):
        look(pd.DataFrame({"a": []}))
    with pytest.raises(UserError, match="no columns"):
        look(pd.DataFrame(index=range(3)))
    assert look(pd.DataFrame({"a": [1]})).notes == ("one row: there is nothing to compare it with",)
    assert look(pd.DataFrame({"a": [None, None]})).notes == ("no column is left to learn from",)


def test_the_whole_table_shows_the_decimal_sign():
    frame = pd.DataFrame({"a": ["1,234", "5,678"], "b": ["0,5", "1,25"]})
    assert [column.highest for column in look(frame).columns] == [5.678, 1.25]
    assert look(frame, decimal=".").columns[0].highest == 5678
