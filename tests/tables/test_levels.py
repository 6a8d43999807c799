import numpy as np
import pandas as pd
import pytest

from pscd.tables import encode, look
from pscd.tables.levels import is_slip, meant, misspellings


@pytest.mark.parametrize(
    "text", ["Torgerse", "orgersen", "Togersen", "Torrgersen", "Torgersenn", "Torgeresn", "oTrgersen"]
)
def test_a_letter_doubled_left_out_or_exchanged_is_a_slip(text):
    assert is_slip(text, "Torgersen")


@pytest.mark.parametrize("text", ["Torgarsen", "torgersen", " Torgersen", "Torgersens", "TORGERSEN"])
def test_in_a_long_word_so_is_another_letter_and_in_any_word_case_and_blanks(text):
    assert is_slip(text, "Torgersen")


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("Dream", "Dream"),  # the word itself
        ("Iraq", "Iran"),
        ("East", "West"),
        ("mm", "m"),  # too short to tell
        ("cart", "car"),
        ("Room 12", "Room 13"),
        ("PAL0809", "PAL0709"),
        ("A 11", "A 1"),
        ("Torgen", "Torgersen"),  # three letters
        ("Troegrsen", "Torgersen"),  # two exchanges
        ("", "Dream"),
    ],
)
def test_other_words_are_other_words(text, level):
    assert not is_slip(text, level)


def test_letters_around_digits_may_slip():
    assert is_slip("ccode 12", "code 12")


def test_what_is_meant_is_much_more_common():
    texts = ["Adelie", "Adelei", "Gentoo", "Gento"]
    assert misspellings(texts, np.array([100, 2, 40, 5])) == {"Adelei": "Adelie"}
    assert misspellings(texts, np.array([1000, 2, 400, 5])) == {"Adelei": "Adelie", "Gento": "Gentoo"}
    assert misspellings(texts, np.array([9, 1, 9, 1])) == {}
    assert misspellings(texts, np.array([10_000, 900, 5, 5])) == {}  # 900 people do not slip alike


def test_of_thousands_of_values_none_is_misspelt():
    texts = ["Adelie", "Adelei", *(f"{i:x}" for i in range(2000))]
    assert misspellings(texts, np.array([1000, *[1] * 2001])) == {}


def test_two_levels_as_near():
    assert meant("Marie", ["Maria", "Marieke", "Mariea", "Mario"]) == ["Maria", "Mariea", "Mario"]


def test_misspelt_cells_are_stray_and_no_level():
    frame = pd.DataFrame({"island": [*["Biscoe"] * 40, *["Dream"] * 30, "Bisceo", "dream", "Torgersen"]})
    schema = look(frame)
    (column,) = schema.columns
    assert (column.levels, column.misspelt, column.invalid) == (
        ("Biscoe", "Dream", "Torgersen"),
        ("Bisceo", "dream"),
        2,
    )
    encoded = encode(frame, schema)
    assert encoded.invalid[:, 0].nonzero()[0].tolist() == [70, 71]
    assert np.isnan(encoded.x[[70, 71], 0]).all()


def test_a_column_of_one_value_and_its_slips_keeps_them():
    frame = pd.DataFrame({"answer": [*["never"] * 50, "nevre"], "x": np.arange(51.0) ** 2})
    assert look(frame).columns[0].levels == ("never", "nevre")


def test_among_many_values_a_slip_is_none_of_the_others():
    many = [f"place {chr(65 + i % 26)}{chr(65 + i // 26)}{chr(97 + i % 26)}" for i in range(80)]
    frame = pd.DataFrame({"island": [*["Torgersen"] * 200, *["Biscoe"] * 100, *many, "Torgesren"]})
    schema = look(frame)
    (column,) = schema.columns
    assert (column.others, column.misspelt) == (True, ("Torgesren",))
    encoded = encode(frame, schema)
    assert encoded.invalid[:, 0].nonzero()[0].tolist() == [len(frame) - 1]
