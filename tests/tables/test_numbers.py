import numpy as np
import pytest

from pscd.errors import UserError
from pscd.tables.numbers import (
    NumberFormat,
    _spaced,
    decimal_votes,
    decimals_of,
    guess_format,
    least_decimals,
    number_spelling,
    stated_marks,
    stated_or_shown,
)
from pscd.tables.schema import Column


def texts(*words):
    return np.array([*words, ""], dtype=object)[:-1]


def read(*words, decimal="."):
    form = guess_format(texts(*words), np.ones(len(words), int), decimal)
    return form, form.parse(texts(*words)).tolist()


@pytest.mark.parametrize(
    ("words", "numbers"),
    [
        (["1", "-2.5", "+3e2", ".5", "4."], [1, -2.5, 300, 0.5, 4]),
        (["1,234.5", "12", "1,234,567"], [1234.5, 12, 1234567]),
        (["1.234,5", "12", "1.234.567"], [1234.5, 12, 1234567]),
        (["3,5", "12", "1.234"], [3.5, 12, 1234]),  # one cell shows that the comma is the decimal sign
        (["3.5", "12", "1,234"], [3.5, 12, 1234]),
        (["1 234,5", "1\u202f234,25", "7"], [1234.5, 1234.25, 7]),
        (["1'234.5", "1\u2019000", "7"], [1234.5, 1000, 7]),
        (["$12", "$1,000.50", "-$3", "($4)"], [12, 1000.5, -3, -4]),
        (["12 €", "3,50 €", "\u22123 €"], [12, 3.5, -3]),
        (["EUR 12", "EUR 3.50"], [12, 3.5]),
        (["12%", "3.5 %", "0%"], [12, 3.5, 0]),
        (["70 kg", "82.5 kg", "68kg"], [70, 82.5, 68]),
    ],
)
def test_numbers_as_people_write_them(words, numbers):
    assert read(*words)[1] == numbers


def test_what_is_no_number_is_none():
    form, numbers = read(
        "1.5", "2.5", "6,2", "0,189", "unknown", "12-15", "<5", "3%", "70 kg", "1.2.3", "inf", "1e40", "(3", "$", "A1"
    )
    assert form == NumberFormat()
    assert numbers[:2] == [1.5, 2.5]
    assert np.isnan(numbers[2:]).all()


def test_one_separator_among_many_plain_numbers_is_no_custom():
    form, numbers = read("6246.59", "1250.00", "6,246.59")
    assert numbers == [6246.59, 1250.0, 6246.59]
    assert form.thousands == ""
    assert read("6,246.59", "1,250.00", "1250")[0].thousands == ","


def test_the_table_decides_where_the_column_cannot():
    assert read("1,234", "5,678", decimal=".")[1] == [1234, 5678]
    assert read("1,234", "5,678", decimal=",")[1] == [1.234, 5.678]


def test_ordinals_and_codes_have_no_unit():
    assert guess_format(texts("4th", "5th", "6th"), np.ones(3, int), ".").suffix == ""
    assert np.isnan(read("PAL0708", "PAL0809")[1]).all()


def test_decimals():
    assert decimals_of(np.array([1.0, 2.0]), np.array([1, 1])) == 0
    assert decimals_of(np.array([0.1, 0.25]), np.array([1, 1])) == 2
    assert decimals_of(np.array([1 / 3]), np.array([1])) is None
    assert decimals_of(np.array([0.0, 0.5]), np.array([999, 1])) == 0  # one in a thousand is an exception
    assert least_decimals(texts("1.50", "2.00", "$3.25"), NumberFormat()) == 2
    assert least_decimals(texts("1.5", "2"), NumberFormat()) == 0


@pytest.mark.parametrize(
    ("value", "column", "text"),
    [
        (1234.5, Column("a", "number", decimals=2), "1234.5"),
        (1234.5, Column("a", "number", decimals=2, least_decimals=2, thousands=","), "1,234.50"),
        (-3.0, Column("a", "integer", decimals=0, prefix="$"), "-$3"),
        (-0.001, Column("a", "number", decimals=2), "0"),
        (100.0, Column("a", "integer", decimals=0), "100"),
        (12.0, Column("a", "number", decimals=1, suffix="%"), "12%"),
        (0.1234567891, Column("a", "number"), "0.1234568"),
    ],
)
def test_numbers_are_written_as_the_column_writes_them(value, column, text):
    assert number_spelling(value, column) == text


@pytest.mark.parametrize(
    ("word", "votes"),
    [
        ("3,5", (0, 1)), ("3,25", (0, 1)), ("3,125", (0, 0)), ("3,1250", (0, 1)), ("0,125", (0, 1)),
        ("1234,567", (0, 1)), ("1.234,5", (0, 1)), ("1.234.567", (0, 1)), ("1.234", (0, 0)), (",5", (0, 1)),
        ("3.5", (1, 0)), ("3.25", (1, 0)), ("3.125", (0, 0)), ("3.1250", (1, 0)), ("0.125", (1, 0)),
        ("1234.567", (1, 0)), ("1,234.5", (1, 0)), ("1,234,567", (1, 0)), ("1,234", (0, 0)), (".5", (1, 0)),
        ("12", (0, 0)), ("$3,5", (0, 1)), ("1 234,5", (0, 1)), ("1'234.5", (1, 0)), ("word", (0, 0)), ("a.b", (0, 0)),
    ],
)  # fmt: skip
def test_which_decimal_sign_a_cell_shows(word, votes):
    assert decimal_votes(texts(word), np.array([1])) == votes
    assert decimal_votes(texts(word, "x"), np.array([7, 2])) == tuple(7 * vote for vote in votes)


def test_a_guess_is_made_from_two_thousand_values_spaced_evenly():
    assert _spaced(0).tolist() == []
    assert _spaced(5).tolist() == list(range(5))
    assert _spaced(2000).tolist() == list(range(2000))
    some = _spaced(2001)
    assert (len(some), some[0], some[-1]) == (2000, 0, 2000)


def test_numbers_of_any_size_and_dress():
    form = NumberFormat(",", ".", "CHF ", " kg")
    words = texts(
        "CHF 1.234,5 kg",
        "1,5",
        "1.5",
        "12.34",
        "€3",
        "3€",
        "-3",
        "- 3",
        "(3)",
        "(-3)",
        "CHF -3",
        ",",
        "()",
        "3,",
        "1e3",
        "1,5E-1",
    )
    expected = [1234.5, 1.5, np.nan, np.nan, 3, 3, -3, -3, -3, 3, -3, np.nan, np.nan, 3, 1000, 0.15]
    np.testing.assert_array_equal(form.parse(words), expected)
    sizes = NumberFormat().parse(texts("1e30", "-1e30", "9.9e29", "-9.9e29", "nan", "-inf"))
    np.testing.assert_array_equal(sizes, [np.nan, np.nan, 9.9e29, -9.9e29, np.nan, np.nan])


@pytest.mark.parametrize(
    ("words", "counts", "form"),
    [
        (["70 kg", "82"], [1, 1], NumberFormat(suffix=" kg")),  # half of them have the unit
        (["70 kg", "82"], [1, 2], NumberFormat()),
        (["70 kg", "82kg"], [1, 1], NumberFormat(suffix=" kg")),  # half of these with a blank
        (["70 kg", "82kg"], [1, 2], NumberFormat(suffix="kg")),
        (["7%", "8"], [1, 1], NumberFormat(suffix="%")),
        (["7%", "8"], [1, 2], NumberFormat()),
        (["$7", "8"], [1, 1], NumberFormat(prefix="$")),
        (["$7", "8"], [1, 2], NumberFormat()),
        (["1,234", "5678"], [1, 1], NumberFormat(thousands=",")),
        (["1,234", "5678"], [1, 2], NumberFormat()),
        (["1'234", "1,234"], [2, 1], NumberFormat(thousands="'")),
        (["word"], [1], NumberFormat()),
        (["1,5", "2.5"], [2, 1], NumberFormat(",")),
        (["1,5", "2.5"], [1, 2], NumberFormat(".")),
        (["70 kg", "word"], [1, 9], NumberFormat(suffix=" kg")),
    ],
)
def test_what_half_of_the_numbers_have_is_their_format(words, counts, form):
    assert guess_format(texts(*words), np.array(counts), ".") == form


def test_what_somebody_told_is_the_format_where_the_cells_do_not_speak():
    assert guess_format(texts("1,5", "2.5"), np.array([1, 1]), ",").decimal == ","
    assert guess_format(texts("1,234"), np.array([1]), ".", "").thousands == ""
    assert guess_format(texts("1'234"), np.array([1]), ".", " ").thousands == " "
    assert guess_format(texts("word"), np.array([1]), ",", " ") == NumberFormat(",", " ")


def test_decimals_that_nearly_all_cells_need():
    assert decimals_of(np.array([0.0, 0.5]), np.array([99, 1])) == 0
    assert decimals_of(np.array([0.0, 0.5]), np.array([98, 1])) == 1
    assert decimals_of(np.array([0.12345678]), np.array([1])) == 8
    assert decimals_of(np.array([0.123456789]), np.array([1])) is None
    assert decimals_of(np.array([1 + 1.5e-9]), np.array([1])) is None
    assert decimals_of(np.array([1 + 0.9e-9]), np.array([1])) == 0
    assert decimals_of(np.array([1e6 + 9e-4]), np.array([1])) == 0  # to nine digits of its own size
    assert decimals_of(np.array([1e6 + 2e-3]), np.array([1])) == 3
    assert decimals_of(np.array([-1e6 - 2e-3]), np.array([1])) == 3


def test_places_that_all_but_a_tenth_of_the_numbers_have():
    assert least_decimals(texts(*["1.50"] * 10, "2"), NumberFormat()) == 2
    assert least_decimals(texts(*["1.50"] * 9, "2", "2"), NumberFormat()) == 0
    assert least_decimals(texts("1,50 €", "2,5 €"), NumberFormat(",")) == 1
    assert least_decimals(texts(), NumberFormat()) == 0


@pytest.mark.parametrize(
    ("value", "column", "text"),
    [
        (1.0, Column("a", "number", decimals=0, least_decimals=2), "1.00"),
        (1.25, Column("a", "number", decimals=2, least_decimals=1), "1.25"),
        (1.2, Column("a", "number", decimals=2, least_decimals=1), "1.2"),
        (1.0, Column("a", "number", decimals=2, least_decimals=1), "1.0"),
        (1.0, Column("a", "number", decimals=2), "1"),
        (1200.0, Column("a", "number", decimals=1), "1200"),
        (1234567.5, Column("a", "number", decimals=1, decimal=",", thousands="."), "1.234.567,5"),
        (1234567.5, Column("a", "number", decimals=1, decimal=","), "1234567,5"),
        (-1234.5, Column("a", "number", decimals=1, suffix=" kg"), "-1234.5 kg"),
        (-0.04, Column("a", "number", decimals=1, suffix=" kg"), "0 kg"),
        (-12345678.9, Column("a", "number", decimal=","), "-1,234568e+07"),
        (0.0, Column("a", "number", decimals=1, least_decimals=1), "0.0"),
    ],
)
def test_numbers_are_written_with_the_places_of_their_column(value, column, text):
    assert number_spelling(value, column) == text


def test_stated_marks_leave_the_other_sign():
    assert stated_marks(None, ".") == (",", ".")
    assert stated_marks(None, ",") == (".", ",")
    assert stated_marks(None, "'") == (None, "'")
    assert stated_marks(",", None) == (",", None)
    with pytest.raises(UserError, match=r"'\.' cannot be both"):
        stated_marks(".", ".")


def test_stated_marks_hold_unless_a_column_can_hardly_be_read_with_them():
    comma, point = NumberFormat(",", "."), NumberFormat(".")
    words = texts("1.234", "2.500", "0.75")
    assert stated_or_shown(comma, point, words, np.array([9, 9, 2])) == (comma, "")  # nine in ten
    assert stated_or_shown(comma, point, words, np.array([9, 8, 2])) == (point, "0.75")
    assert stated_or_shown(comma, point, texts("x", "y"), np.array([1, 1])) == (comma, "")


def test_any_sign_may_separate_thousands():
    assert NumberFormat(".", "*").parse(texts("1*234.5"))[0] == 1234.5
    assert np.isnan(NumberFormat(".").parse(texts("1*234.5"))[0])


@pytest.mark.parametrize(
    ("words", "prefix"), [(("€ 5", "€ 6", "€7"), "€ "), (("€5", "€6", "€ 7"), "€"), (("5", "6"), "")]
)
def test_a_blank_after_the_currency_stays(words, prefix):
    form = guess_format(texts(*words), np.ones(len(words), int), ".")
    assert form.prefix == prefix
    np.testing.assert_array_equal(form.parse(texts("€ 8", "€8", "-€ 8", "8")), [8, 8, -8, 8])
    column = Column("pay", "integer", decimals=0, prefix=form.prefix)
    assert number_spelling(-9.0, column) == f"-{prefix}9"
