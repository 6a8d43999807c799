import narwhals.stable.v1 as nw
import numpy as np
import pandas as pd
import polars as pl
import pytest

from pscd.errors import UserError
from pscd.tables import Column, ReadOptions, Schema, adapted, decode, encode, look, spell
from pscd.tables.cells import cells_of
from pscd.tables.levels import as_boolean, as_category, few_levels, level_codes
from tests.tables.helpers import read_frame

N = 40
rng = np.random.default_rng(0)


def test_arrays_have_the_columns_of_the_schema():
    frame = pd.DataFrame({"a": rng.normal(size=N), "b": rng.normal(size=N)})
    np.testing.assert_array_equal(encode(frame.to_numpy(), look(frame)).x, frame.to_numpy())


def test_a_new_file_may_write_numbers_and_dates_another_way():
    days = pd.date_range("2020-01-01", periods=N)
    size = rng.normal(size=N).round(3)
    first = pd.DataFrame({"size": size.astype(str), "day": days.strftime("%Y-%m-%d")})
    schema = look(first)
    comma = pd.DataFrame({"size": [f"{s:.3f}".replace(".", ",") for s in size], "day": days.strftime("%d.%m.%Y")})
    for other in (comma, pd.DataFrame({"size": size, "day": days})):
        encoded = encode(other, schema)
        assert not encoded.invalid.any()
        np.testing.assert_array_equal(encoded.x, encode(first, schema).x)
    unit = encode(first.assign(size=first["size"] + " kg"), schema)
    np.testing.assert_array_equal(unit.x, encode(first, schema).x)
    one = first.copy()
    one.loc[3, "size"] = "0,5"  # a single slip is no other way to write
    assert encode(one, schema).invalid.sum() == 1


def test_dates_that_are_dates_already_are_not_read_again():
    """As text, most of these would be days, and the one with a time of day would not belong."""
    days = pd.date_range("2020-01-01", periods=N)
    schema = look(pd.DataFrame({"day": days.strftime("%Y-%m-%d")}))
    encoded = encode(pd.DataFrame({"day": [*days[:3], pd.Timestamp("2020-01-05 12:00")]}), schema)
    assert not encoded.invalid.any()
    assert encoded.x[:, 0].tolist() == [18262.0, 18263.0, 18264.0, 18266.5]


def test_another_way_to_write_numbers_must_fit_better():
    """Here it would be the one without a unit, which reads fewer cells than the one that is known."""
    schema = Schema((Column("a", "number", suffix=" kg"),))
    cells = ["2.5"] * 3 + ["5 kg"] + ["7%"] * 3 + ["x"] * 2
    x = encode(pd.DataFrame({"a": cells}), schema).x[:, 0]
    np.testing.assert_array_equal(x, [2.5] * 3 + [5.0] + [np.nan] * 5)


def test_the_decimal_sign_that_was_told_counts(tmp_path):
    schema = Schema((Column("a", "number"), Column("b", "number")))
    (tmp_path / "x.csv").write_text("a;b\n1,234;1\n5,678;2\n")
    frame = read_frame(tmp_path / "x.csv")
    assert encode(frame, schema).x[:, 0].tolist() == [1234, 5678]
    assert encode(frame, adapted(frame, schema, ReadOptions(decimal=","))).x[:, 0].tolist() == [1.234, 5.678]


def test_the_missing_values_that_were_told_are_remembered():
    schema = look(
        pd.DataFrame({"a": ["1", "2", "none", "4"], "b": ["x", "y", "x", "y"]}), options=ReadOptions(missing=("b=x",))
    )
    encoded = encode(pd.DataFrame({"a": ["x", "1"], "b": ["x", "y"]}), schema)
    assert encoded.missing.tolist() == [[False, True], [False, False]]
    assert encoded.invalid.tolist() == [[True, False], [False, False]]


def test_samples_keep_the_types_of_the_table():
    frame = pd.DataFrame(
        {
            "size": rng.normal(size=N).round(1),
            "count": rng.integers(3, 90, N),
            "flag": rng.integers(0, 2, N),
            "truth": rng.integers(0, 2, N).astype(bool),
            "grade": rng.integers(1, 4, N),
            "share": rng.choice([0.25, 0.5], N),
            "day": pd.date_range("2020-01-01", periods=N).strftime("%Y%m%d").astype(int),
            "word": rng.choice(["x", "y"], N),
        }
    )
    schema = look(frame, kinds={"grade": "category", "share": "category"})
    x = encode(frame, schema).x
    back = decode(x, schema)
    pd.testing.assert_frame_equal(back, frame, check_dtype=False)
    assert [back[name].dtype.kind for name in frame.columns[:6]] == ["f", "i", "i", "b", "i", "f"]
    drawn = decode(x + rng.normal(scale=2.0, size=x.shape), schema)
    assert (drawn["size"] == drawn["size"].round(1)).all()
    for name in ("flag", "truth", "grade", "share", "word"):
        assert set(drawn[name]) == set(frame[name]), name
    x[0] = np.nan
    holes = decode(x, schema, like=pl.DataFrame())
    assert holes.row(0) == (None,) * 8
    assert holes.row(1) == tuple(frame.iloc[1])


@pytest.mark.parametrize(
    ("texts", "spelt"),
    [
        (["1.234,50 €", "0,25 €", "unbekannt", "7,00 €", "8,00 €"], "1.234,50 €"),
        (["12 %", "13 %", "14 %"], "12 %"),
        (["1.0", "2.0", "", "3.0"], "1.0"),
        (["Jun 12 1998", "Feb 01 1999"], "Jun 12 1998"),
        (["9:15 AM", "11:30 PM"], "09:15 AM"),
        (["JA", "nein", "JA", "ja"], "JA"),
    ],
)
def test_values_are_spelt_as_the_file_spells_them(texts, spelt):
    frame = pd.DataFrame({"a": texts})
    schema = look(frame, ids=())
    written = spell(decode(encode(frame, schema).x, schema), schema)
    assert written["a"][0] == spelt
    assert (written["a"] == "").sum() == schema.columns[0].missing + schema.columns[0].invalid


def test_rare_and_new_values_share_a_code_without_a_text():
    words = [f"w{i % 20}" for i in range(800)] + [f"rare {i}" for i in range(100)]
    schema = look(pd.DataFrame({"a": words}))
    encoded = encode(pd.DataFrame({"a": ["w3", "never seen"]}), schema)
    assert schema.columns[0].levels[int(encoded.x[0, 0])] == "w3"
    assert encoded.x[1, 0] == len(schema.columns[0].levels) == schema.n_levels[0] - 1
    assert not encoded.invalid.any()
    assert decode(encoded.x, schema)["a"].isna().tolist() == [False, True]
    assert spell(decode(encoded.x, schema), schema)["a"].tolist() == ["w3", ""]


def test_what_never_is_negative_does_not_become_so():
    counts = Schema((Column("n", "integer", decimals=0, lowest=0.0), Column("t", "integer", decimals=0, lowest=-3.0)))
    assert decode(np.array([[-1.2, -1.2], [np.nan, 2.0]]), counts).values.tolist()[0] == [0, -1]


def test_columns_that_are_not_there_are_named():
    schema = Schema((Column("a", "number"), Column("b", "left out"), Column("c", "number")))
    with pytest.raises(UserError, match="no column 'a', 'c'; there are 'd'"):
        encode(pd.DataFrame({"d": [1.0]}), schema)
    with pytest.raises(UserError, match="no column 'a', 'c'; there are 'x0', 'x1'"):
        encode(np.zeros((1, 2)), schema)  # an array of another width may be anything
    assert encode(np.array([[1.0, 2.0, 3.0]]), schema).x.tolist() == [[1.0, 3.0]]
    found = encode(pd.DataFrame({"c": [3.0], "a": [None]}, dtype=float), schema)  # what is left out need not be there
    assert found.missing.tolist() == [[True, False, False]]
    assert encode(pd.DataFrame({"a": [1.0], "b": [None], "c": [2]}), schema).missing.tolist() == [[False, True, False]]


@pytest.mark.parametrize(
    ("cells", "signs", "sign"),
    [
        (["1.5", "2.5"], ".", None),
        (["1,5", "2,5"], ".", ","),
        (["1,5"], ".", None),  # a single cell may be a slip
        (["1,5", "2,5", "3,5", "1.5", "2.5"], ".", ","),
        (["1,5", "2,5", "1.5", "2.5"], ".", None),  # as many as there are of the other kind
        (["1.5", "2.5"], ",", "."),
        (["1,5", "2,5"], ",", None),
        (["1.5", "2.5"], ",.", None),  # of two columns one has each: the point is taken to be known
        (["1,5", "2,5"], ",.", ","),
        (["1.5", "2.5"], ",,.", "."),
    ],
)
def test_another_decimal_sign_has_the_votes_of_more_than_one_cell(cells, signs, sign):
    schema = Schema(tuple(Column(f"c{i}", "number", decimal=s) for i, s in enumerate(signs)))
    frame = pd.DataFrame({f"c{i}": cells if i == 0 else ["7"] * len(cells) for i in range(len(signs))})
    signs_of = {column.decimal for column in adapted(frame, schema).columns[:1]}
    assert signs_of == {sign or signs[0]}
    assert adapted(frame.astype(object).map(lambda v: 1.0), schema) == schema  # typed numbers have no sign


def test_words_have_no_vote_on_the_decimal_sign():
    schema = Schema((Column("a", "number"), Column("b", "category", ("1,5", "2,5"))))
    assert adapted(pd.DataFrame({"a": ["1", "2", "3"], "b": ["1,5", "2,5", "1,5"]}), schema) == schema


def test_a_stated_sign_holds_for_columns_that_can_be_read_with_it():
    schema = Schema((Column("a", "number", thousands=","), Column("b", "number")))
    frame = pd.DataFrame({"a": ["1.234", "5.678"], "b": ["1.5", "2.25"]})
    a, b = adapted(frame, schema, ReadOptions(decimal=",")).columns
    assert (a.decimal, a.thousands, b.decimal) == (",", ".", ".")
    assert encode(frame, adapted(frame, schema, ReadOptions(thousands="."))).x.tolist() == [[1234, 1.5], [5678, 2.25]]


@pytest.mark.parametrize(("known", "other", "read"), [(2, 2, False), (2, 3, True)])
def test_another_way_to_write_is_looked_for_if_more_than_half_does_not_fit(known, other, read):
    schema = Schema((Column("a", "number"), Column("d", "date", formats=("%Y-%m-%d",), date_parts=("days",))))
    numbers = ["1"] * known + ["2 kg"] * other
    days = ["2020-01-02"] * known + ["13.01.2020"] * other
    found = encode(pd.DataFrame({"a": numbers, "d": days}), schema)
    assert found.invalid[:, 0].tolist() == found.invalid[:, 1].tolist() == [False] * known + [not read] * other


def test_what_a_column_cannot_hold_is_stray():
    schema = Schema((Column("a", "number"),))
    assert encode(pd.DataFrame({"a": pd.date_range("2020-01-01", periods=2)}), schema).invalid.all()
    sizes = encode(pd.DataFrame({"a": [1e30, -1e30, 0.99e30, -0.99e30, np.inf]}), schema)
    assert sizes.invalid[:, 0].tolist() == [True, True, False, False, True]
    flags = encode(pd.DataFrame({"a": [True, False]}), schema)
    assert flags.x[:, 0].tolist() == [1, 0]
    told = encode(pd.DataFrame({"a": [1.0, 99.0, np.nan]}), Schema(schema.columns, missing=("99",)))
    assert told.missing[:, 0].tolist() == [False, True, True]


def decoded(column, values):
    return decode(np.array(values, float)[:, None], Schema((column,)))[column.name]


def test_numbers_come_back_with_the_places_and_the_floor_of_their_column():
    assert decoded(Column("a", "number"), [-1.234, 2.5]).tolist() == [-1.234, 2.5]
    assert decoded(Column("a", "number", decimals=1), [-1.26, 2.24]).tolist() == [-1.3, 2.2]
    for lowest, first in ((0.0, 0.0), (1.0, 0.0), (-0.5, -1.234), (None, -1.234)):
        assert decoded(Column("a", "number", lowest=lowest), [-1.234]).tolist() == [first]
    whole = decoded(Column("a", "integer"), [1.6, -2.6])
    assert (whole.tolist(), whole.dtype) == ([2, -3], np.int64)
    holes = decoded(Column("a", "integer"), [1.6, np.nan, np.inf])
    assert (holes.tolist(), str(holes.dtype)) == ([2, pd.NA, pd.NA], "Int64")


def test_categories_and_flags_come_back_among_their_values():
    letters = Column("a", "category", ("x", "y", "z"))
    assert decoded(letters, [-3.0, 0.4, 0.6, 1.4, 9.0]).tolist() == ["x", "x", "y", "y", "z"]
    holes = decoded(letters, [np.nan, 2.0])
    assert (holes.isna().tolist(), holes[1]) == ([True, False], "z")
    flags = Column("a", "boolean", ("no", "yes"), source="boolean")
    assert decoded(flags, [0.0, 1.0]).tolist() == [False, True]
    assert decoded(flags, [0.0, np.nan, 1.0]).tolist() == [False, pd.NA, True]
    grades = Column("a", "category", ("1", "2"), source="number")
    whole = decoded(grades, [0.0, 1.0])
    assert (whole.tolist(), whole.dtype) == ([1, 2], np.int64)
    assert decoded(grades, [0.0, np.nan]).tolist() == [1, pd.NA]
    shares = decoded(Column("a", "category", ("0.5", "2"), source="number"), [0.0, np.nan, 1.0])
    np.testing.assert_array_equal(shares, [0.5, np.nan, 2.0])
    rare = Column("a", "category", ("1", "2"), source="number", others=True)
    assert decoded(rare, [0.0, 1.0, 2.0]).tolist() == [1, 2, pd.NA]


def test_tables_come_back_in_the_library_that_is_asked_for():
    schema = Schema((Column("a", "number"),))
    x = np.array([[1.5], [np.nan]])
    assert isinstance(decode(x, schema, like=x), pd.DataFrame)
    assert isinstance(decode(x, schema, like=pd.DataFrame()), pd.DataFrame)
    made = decode(x, schema, like=pl.DataFrame())
    assert isinstance(made, pl.DataFrame)
    assert made["a"].to_list() == [1.5, None]


@pytest.mark.parametrize(
    ("formats", "resolution", "spelt"),
    [
        (("%d.%m.%Y",), "day", "02.03.2021"),
        (("%m/%Y", "%d.%m.%Y"), "day", "02.03.2021"),
        (("%m/%Y", "%d.%m.%Y"), "month", "03/2021"),
        (("%Y",), "year", "2021"),
        (("%Y",), "day", "2021-03-02"),
        (("%d.%m.%Y", "%d.%m.%Y %H:%M"), "minute", "02.03.2021 14:05"),
        (("%d.%m.%Y %I:%M %p",), "second", "02.03.2021 02:05 PM"),
        (("%d.%m.%Y",), "second", "2021-03-02 14:05:06"),
        ((), "day", "2021-03-02"),
    ],
)
def test_dates_are_spelt_in_the_commonest_format_that_can_tell_them(formats, resolution, spelt):
    schema = Schema((Column("d", "date", formats=formats, resolution=resolution),))
    written = spell(pd.DataFrame({"d": pd.to_datetime(["2021-03-02 14:05:06", None])}), schema)
    assert written["d"].tolist() == [spelt, ""]


def test_what_is_missing_is_spelt_as_nothing():
    schema = Schema((Column("a", "number", decimals=1), Column("b", "category", ("x",)), Column("c", "boolean")))
    frame = pd.DataFrame({"a": [1.25, None], "b": ["x", None], "c": [True, None]}, index=[5, 7])
    written = spell(frame, schema)
    assert written.values.tolist() == [["1.2", "x", "True"], ["", "", ""]]
    assert written.index.tolist() == [0, 1]


def cells(texts):
    return cells_of(nw.from_native(pd.Series(texts, dtype=object), series_only=True))


@pytest.mark.parametrize(
    ("counts", "few"),
    [
        ([1] * 64, True),
        ([1] * 65, False),
        ([40, 10, 10] + [1] * 60, True),
        ([5] * 13 + [1] * 65, True),  # half of the cells are of common levels
        ([5] * 13 + [1] * 66, False),
        ([4] * 60 + [1] * 40, False),  # four cells are not common
        ([5] * 64 + [1] * 310, True),  # of the common levels 63 count
        ([5] * 64 + [1] * 311, False),
    ],
)
def test_categories_are_few_or_some_of_them_common(counts, few):
    assert few_levels(cells([f"v{i}" for i, n in enumerate(counts) for _ in range(n)])) is few


def test_levels_beyond_the_sixty_fourth_share_one():
    words = [f"{i:02d}" for i in range(64) for _ in range(2)]
    column = as_category("a", cells(words))
    assert (len(column.levels), column.others, column.notes) == (64, False, ())
    column = as_category("a", cells([*words, "64", "65", *["66"] * 3]))
    assert (len(column.levels), column.others, column.n_codes) == (63, True, 64)
    assert "66" in column.levels
    assert "62" not in column.levels  # of those that are as rare the first stay
    assert column.notes == ("4 rare values (6 cells) are treated as one",)
    assert as_category("a", cells(["10", "9", "9", "2"])).levels == ("2", "9", "10")
    assert as_category("a", cells(["10", "9", "x", "2"])).levels == ("10", "2", "9", "x")


def test_misspelt_levels_are_stray_unless_nothing_would_be_left_to_tell_apart():
    column = as_category("a", cells(["female"] * 100 + ["male"] * 100 + ["femal"]))
    assert (column.levels, column.misspelt, column.invalid) == (("female", "male"), ("femal",), 1)
    assert as_category("a", cells(["female"] * 100 + ["femal"])).levels == ("femal", "female")


def test_flags_are_read_whatever_they_are_written_like():
    column = as_boolean("a", cells(["Nein", "JA", "ja", "x", "y", "x"]), ("Nein", "ja"))
    assert (column.invalid, column.notes) == (3, ("3 cells are neither: 'x', 'y'",))
    assert as_boolean("a", cells(["no", "yes", "x"]), ("no", "yes")).notes == ("1 cell is neither: 'x'",)
    codes = level_codes(cells(["Nein", "JA", "true", "False", "1", "0.0", "2", "x"]), column)
    np.testing.assert_array_equal(codes, [0, 1, 1, 0, 1, 0, np.nan, np.nan])
    grades = Column("a", "category", ("1", "2", "b"), misspelt=("bb",))
    np.testing.assert_array_equal(
        level_codes(cells(["2.0", "1", "B", "b", "bb", "true"]), grades), [1, 0, np.nan, 2, np.nan, np.nan]
    )
    others = Column("a", "category", ("x",), misspelt=("xx",), others=True)
    np.testing.assert_array_equal(level_codes(cells(["x", "q", "xx"]), others), [0, 1, np.nan])
