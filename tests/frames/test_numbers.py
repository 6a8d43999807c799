import numpy as np
import pytest

from pscd.frames.numbers import NumberFormat, decimals_of, guess_format, least_decimals, number_spelling
from pscd.frames.schema import Column


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
        "1.5", "2.5", "6,2", "unknown", "12-15", "<5", "3%", "70 kg", "1.2.3", "inf", "1e40", "(3", "$", "A1"
    )
    assert form == NumberFormat()
    assert numbers[:2] == [1.5, 2.5]
    assert np.isnan(numbers[2:]).all()


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
