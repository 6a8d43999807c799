import narwhals.stable.v1 as nw
import numpy as np
import pandas as pd
import pytest

from pscd.errors import UserError
from pscd.tables import ReadOptions, encode, look, open_table
from pscd.tables.cells import cells_of
from pscd.tables.infer import common_decimal

N = 200
rng = np.random.default_rng(0)


def taken_for(values, name="a", **options):
    stated = {key: options.pop(key) for key in ("decimal", "thousands", "day_first") if key in options}
    return look(pd.DataFrame({name: values}), options=ReadOptions(**stated) if stated else None, **options).columns[0]


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
    assert (column.kind, column.invalid, column.decimals) == ("number", 60, 1)
    assert column.notes[0] == "60 words: unknown"
    values[60:150] = "unknown"  # by now words are the rule
    assert taken_for(values).kind != "number"


def test_rare_values_share_a_level():
    common = [f"city {i % 20:02d}" for i in range(800)]
    column = taken_for([*common, *(f"village {i}" for i in range(100))])
    assert column.kind == "category"
    assert (len(column.levels), column.others) == (63, True)
    assert "57 rare values (57 cells) are treated as one" in column.notes
    many = taken_for([f"v{i}" for i in range(10_000)] * 3)
    assert many.kind == "left out"
    assert many.notes == ("10,000 different values, none common: too many for a category",)
    assert taken_for([f"v{i}" for i in range(10_000)] * 3, kinds={"a": "category"}).others


def test_why_a_text_is_left_out():
    prose = taken_for([f"a remark that says {i} things at length" for i in range(N)])
    assert prose.notes == ("free text: 8 words on average",)
    assert taken_for([f"p{i}" for i in range(N)]).notes == ("identifier: different in (nearly) every row",)
    assert "too many for a category" in taken_for([f"p{i % 150}" for i in range(N)]).notes[0]


def test_corrections():
    numbers = [f"{i % 5}" for i in range(N)]
    assert taken_for(numbers, kinds={"a": "category"}).levels == ("0", "1", "2", "3", "4")
    assert taken_for([10.0, 9.0, 10.0], kinds={"a": "category"}).levels == ("9", "10")
    assert taken_for(numbers, kinds={"a": "skip"}).kind == "left out"
    assert taken_for(numbers, ids=["a"]).kind == "left out"
    assert taken_for(["1", "x", "y"], kinds={"a": "number"}).invalid == 2
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
    schema = look(frame, options=ReadOptions(missing=("a=999",)))
    assert [column.missing for column in schema.columns] == [1, 0]
    assert [column.missing for column in look(frame, options=ReadOptions(missing=("999",))).columns] == [1, 1]


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
    assert look(frame, options=ReadOptions(decimal=".")).columns[0].highest == 5678


def words(n, prefix="w"):
    return [f"{prefix}{i}" for i in range(n)]


def numbers(n):
    return [str(100 + 7 * i) for i in range(n)]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        # Numbers: nine cells of ten are enough, and half of them where words are few and numbers many.
        ([*"123456789", "x"], "integer"),
        ([*["1", "2", "3", "4"] * 2, "x", "x"], "category"),
        ([*numbers(12), *["x"] * 12], "integer"),
        ([*numbers(12), *["x"] * 13], "left out"),
        ([*numbers(12), *["x", "y", "z", "u"] * 2], "integer"),  # three numbers for each word
        ([*numbers(11), *["x", "y", "z", "u"] * 2], "left out"),
        ([*numbers(10) * 2, *["x"] * 6], "integer"),  # ten different numbers, though they repeat
        ([*numbers(9) * 2, *["x"] * 6], "category"),
        ([*numbers(9), *["x"] * 3], "integer"),  # fewer if none repeats
        # Flags: 98 cells of a hundred.
        ([*["yes"] * 50, *["no"] * 48, "x", "y"], "boolean"),
        ([*["yes"] * 50, *["no"] * 47, "x", "y", "z"], "category"),
        ([*["yes"] * 50], "left out"),
        ([*["yes"] * 50, "maybe"], "category"),
        # Codes: three digits or more, all of one length, one of them with a zero before it.
        (["012", "345", "012", "345"], "category"),
        (["12", "05", "12", "34"], "integer"),
        (["112", "345", "112", "345"], "integer"),
        (["012", "3456", "012", "3456"], "integer"),
        (["012", "345", "012", "3a5"], "category"),
        # Identifiers: ten rows or more that count from 0 or 1.
        (list(range(10)), "left out"),
        (list(range(9)), "integer"),
        (list(range(1, 11)), "left out"),
        (list(range(2, 12)), "integer"),
        ([*range(9), 10], "integer"),
        ([*range(9), 8], "integer"),
        # Text: more than half of the cells different, in ten rows or more.
        ([*words(5), *words(5)], "category"),
        ([*words(6), *words(4)], "left out"),
        ([*words(6), *words(3)], "category"),
        # Days as numbers.
        ([19000101, 20991231, 20200229], "date"),
        ([19000100, 20991231, 20200229], "integer"),
        ([19000101, 21001232, 20200229], "integer"),
        ([20200101.0, 20200102.5, 20200103.0], "number"),
        ([0.0, 1.0, 1.0], "boolean"),
        ([0.0, 2.0, 2.0], "integer"),
        (["0 kg", "1 kg", "1 kg"], "integer"),
        (["$0", "$1", "$1"], "integer"),
        (["5", "5.0"], "left out"),
        (["5", "5.0", *["x"] * 1], "category"),
    ],
)
def test_columns_at_the_edge_of_what_they_are_taken_for(values, kind):
    assert taken_for(values).kind == kind


@pytest.mark.parametrize(
    ("name", "values", "kind"),
    [
        ("id", list(range(500, 510)), "left out"),
        ("id", list(range(500, 509)), "integer"),  # nine rows show nothing
        ("id", [*range(500, 519), 518], "left out"),  # 19 of 20
        ("id", [*range(500, 518), 517, 516], "integer"),
        ("key", [1, 2, 3, 1, 2, 3, 1], "category"),
        ("key", [1, 2, 3, 1, 2, 3], "integer"),  # half of them are different
        ("key", ["1", "2", "3"] * 9 + ["x"], "integer"),
        ("monkey", [1, 2, 3, 1, 2, 3, 1], "integer"),
        ("id", [0.5, 1.5] * 4, "number"),
    ],
)
def test_names_of_identifiers_at_the_edge(name, values, kind):
    assert taken_for(values, name).kind == kind


def test_why_columns_are_left_out():
    assert taken_for([None, None]).notes == ("all missing",)
    assert taken_for([None, None], kinds={"a": "number"}).notes == ("all missing",)
    assert taken_for(["x" * 30, "x" * 30]).notes == (f"constant: always '{'x' * 30}'",)
    assert taken_for(["x" * 31, "x" * 31]).notes == (f"constant: always '{'x' * 30}...'",)
    assert taken_for([7, 7]).notes == ("constant: always '7'",)
    assert taken_for(["7", "7.0"]).notes == ("constant: always '7'",)
    assert taken_for(list(range(1, 11))).notes == ("identifier: counts the rows from 1",)
    assert taken_for(list(range(500, 510)), "id").notes == ("identifier: different in every row",)
    assert taken_for([1, 2], kinds={"a": "skip"}).notes == ("stated to be left out",)
    assert taken_for([1, 2], ids=["a"]).notes == ("stated to be an id",)
    assert taken_for([1, 2, 3, 1, 2, 3, 1], "key").notes == ("numbers that name something, by the column's name",)
    assert taken_for(["012", "345", "012", "345"]).notes == ("a code: numbers with leading zeros",)
    prose = [f"a b c{i}" for i in range(5)] + [f"a b c d{i}" for i in range(5)]
    assert taken_for(prose).notes == ("free text: 4 words on average",)  # 3.5 of them
    short = [f"a b c{i}" for i in range(6)] + [f"a b c d{i}" for i in range(4)]
    assert taken_for(short).notes == ("identifier: different in (nearly) every row",)
    assert taken_for([*words(19), "w0"]).notes == ("identifier: different in (nearly) every row",)
    assert taken_for([*words(18), "w0", "w1"]).notes == ("18 different values in 20 cells: too many for a category",)


def test_flags_have_their_commonest_spelling():
    assert taken_for(["Yes", "YES", "YES", "no", "No", "no"]).levels == ("no", "YES")
    assert taken_for(["Yes", "YES", "no"]).levels == ("no", "Yes")  # the first of those that are as common
    many = [*("yes", "yeS", "yEs", "Yes", "YEs", "YeS"), *("no", "nO", "No", "NO"), *["yES", "YES"]]
    assert taken_for(many * 5).kind == "boolean"  # twelve spellings
    assert taken_for(["1.0", "0.0", "1"]).levels == ("0.0", "1.0")


def test_what_somebody_said_of_a_column_has_to_fit():
    for values, kind, message in [
        (["x", "y", "z"], "boolean", "column 'a' has 3 different values, not two: it is no boolean"),
        (["x", "y"], "number", "column 'a' holds no numbers, but for example 'x'"),
        (pd.date_range("2020-01-01", periods=2), "number", "column 'a' holds no numbers, but for example '2020-01-01'"),
        (["x", "y"], "date", "column 'a' holds no dates, but for example 'x'; say how they are written: date:%d.%m.%Y"),
        (["x", "y"], "date:%Y", "column 'a' holds no dates, but for example 'x'; does not fit %Y"),
    ]:
        with pytest.raises(UserError, match=message.replace(".", r"\.")):
            taken_for(values, kinds={"a": kind})
    days = pd.date_range("2020-01-01", periods=3)
    assert taken_for(days, kinds={"a": "date"}).source == "date"
    assert taken_for(["1.5", "2.5"], kinds={"a": "integer"}).decimals == 0
    assert taken_for(["1.5", "2.5"], kinds={"a": "number"}).decimals == 1
    assert taken_for([1.0, 2.0], kinds={"a": "number"}).kind == "number"
    assert taken_for(["1.234", "5.678"], kinds={"a": "number"}, decimal=",").highest == 5678
    assert taken_for(["yes", "no", "?", "x"] * 30, kinds={"a": "category"}).levels == ("no", "x", "yes")


def test_numbers_tell_their_range_their_places_and_how_they_are_written():
    column = taken_for(["1.234,50 €", "-0,25 €", "7,00 €", "word", "word", "other"] * 3, kinds={"a": "number"})
    assert (column.lowest, column.highest, column.decimals, column.least_decimals) == (-0.25, 1234.5, 2, 2)
    assert (column.decimal, column.thousands, column.prefix, column.suffix) == (",", ".", "", " €")
    assert (column.invalid, column.source, column.notes[0]) == (9, "text", "9 words: word, other")
    column = taken_for([1.5, 2.25])
    assert (column.lowest, column.highest, column.decimals, column.least_decimals) == (1.5, 2.25, 2, 0)
    assert (column.source, column.invalid, column.notes) == ("number", 0, ())


def test_dates_tell_their_range_and_what_is_none():
    column = taken_for([*["2020-01-01", "2020-03-01", "2021-01-05"] * 6, *["2020-02-30", "2020-02-31"] * 2])
    assert (column.kind, column.invalid, column.lowest, column.highest) == ("date", 4, 18262.0, 18632.0)
    assert column.notes[0] == "4 cells are no date: '2020-02-30', '2020-02-31'"
    assert (column.formats, column.resolution, column.source) == (("%Y-%m-%d",), "day", "text")
    one = taken_for([*["2020-01-01", "2020-03-01", "2021-01-05"] * 4, "2020-02-30"])
    assert one.notes[0] == "1 cell is no date: '2020-02-30'"


@pytest.mark.parametrize(
    ("cells", "delimiter", "sign"),
    [
        ((["1,5"], ["2.5"]), ",", "."),
        ((["1,5"], ["2.5"]), ";", ","),
        ((["1,5", "3,5"], ["2.5"]), ",", ","),
        ((["1,5"], ["2.5", "3.5"]), ";", "."),
        (([1.5], [2.5]), ";", ","),
    ],
)
def test_the_decimal_sign_has_most_votes_or_goes_by_what_parts_the_fields(cells, delimiter, sign):
    found = {str(i): cells_of(nw.from_native(pd.Series(part), series_only=True)) for i, part in enumerate(cells)}
    assert common_decimal(found, delimiter) == sign


def test_what_was_stated_of_a_file_holds_unless_stated_otherwise(tmp_path):
    frame = pd.DataFrame({"a": ["1,234", "5,678"], "d": ["01/02/2020", "03/04/2020"], "x": ["1", "gone"]})
    frame.to_csv(tmp_path / "x.csv", index=False, sep=";")
    options = ReadOptions(decimal=",", thousands="'", day_first=True, missing=("gone",), sheet="1")
    schema = look(open_table(tmp_path / "x.csv", options))
    assert (schema.columns[0].decimal, schema.columns[0].thousands, schema.columns[0].highest) == (",", "'", 5.678)
    assert schema.columns[1].formats == ("%d/%m/%Y",)
    assert (schema.columns[2].missing, schema.missing) == (1, ("gone",))
    assert schema.notes == ("sheet ignored: of no use for a .csv file",)
    schema = look(frame, options=ReadOptions(decimal=".", thousands=",", day_first=False, missing=("1",)))
    assert (schema.columns[0].decimal, schema.columns[0].thousands, schema.columns[0].highest) == (".", ",", 5678)
    assert schema.columns[1].formats == ("%m/%d/%Y",)
    assert (schema.columns[2].missing, schema.missing, schema.n_rows) == (1, ("1",), 2)
    assert look(open_table(tmp_path / "x.csv")).columns[0].highest == 5.678
    assert look(frame).columns[0].highest == 5678
    assert look(frame[["a"]].iloc[:1]).notes == ("one row: there is nothing to compare it with",)


def test_columns_that_are_told_must_be_there():
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.5]})
    with pytest.raises(UserError, match="no column 'd', 'c'; there are 'a', 'b'"):
        look(frame, kinds={"d": "number"}, ids=["c"])
    assert [c.kind for c in look(frame, kinds={"a": "left out"}, ids=["b"]).columns] == ["left out", "left out"]
    assert look(frame, kinds={"a": "skip"}, ids=["a"]).columns[0].notes == ("stated to be an id",)


def test_stated_marks_are_used_and_what_does_not_fit_is_told():
    frame = pd.DataFrame({"v": ["1.193", "5.357", "7.320"], "w": ["1.64", "-0.60", "0.97"]})
    for options in (ReadOptions(thousands="."), ReadOptions(decimal=",")):
        schema = look(frame, options=options)
        v, w = schema.columns
        assert (v.kind, v.lowest, v.highest, v.notes) == ("integer", 1193.0, 7320.0, ())
        assert (w.decimal, w.lowest, w.notes) == (".", -0.6, ("decimal sign '.', not ',' as stated: 1.64",))
        np.testing.assert_array_equal(encode(frame, schema).x, [[1193.0, 1.64], [5357.0, -0.6], [7320.0, 0.97]])
        assert look(frame, kinds={"w": "number"}, options=options).columns[1].notes == w.notes
    assert look(frame, options=ReadOptions(thousands="")).columns[0].lowest == 1.193
