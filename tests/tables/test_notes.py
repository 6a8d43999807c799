import numpy as np
import pandas as pd
import pytest

from pscd.tables import look, open_table
from pscd.tables.notes import copied_rows, odd_levels, odd_numbers

rng = np.random.default_rng(0)


def notes(values):
    distinct, counts = np.unique(np.asarray(values, float), return_counts=True)
    return " | ".join(odd_numbers(distinct, counts, (), 0, None))


heights = rng.normal(1.7, 0.1, 300).round(2)
ages = rng.integers(18, 80, 300)


@pytest.mark.parametrize(
    ("values", "note"),
    [
        ([*heights, 170, 181, 165], "3 values are 100 times the others: '165', '170'"),
        ([*(heights * 100), 1.7, 1.81], "2 values are 100 times smaller than the others"),
        ([*(heights * 1000), 1.7, 1.81], "2 values are 1000 times smaller than the others"),
        ([*ages, 999, 999], "999 x 2 looks like a code for missing: missing=999"),
        ([*ages, -1, -1, -1], ""),  # too near to be sure
        ([*(ages * 1000), -99, -99], ""),
        ([*heights, -9, -9], "-9 x 2 looks like a code for missing: missing=-9"),
        ([*heights[:200], *(100 * heights[:100])], ""),  # two kinds of things
        (heights, ""),
        (ages, ""),
        (np.exp(rng.normal(0, 2, 500)), ""),  # a long tail is no slip of a factor
        (rng.pareto(1, 500) + 1, ""),
        (rng.integers(0, 100, 500), ""),  # 99 is an age like others
    ],
)
def test_odd_numbers(values, note):
    found = notes(values)
    assert note in found if note else found == ""


@pytest.mark.parametrize(
    ("values", "count", "code"),
    [
        ([0, 1, 2, 3, 4, 99], 2, 99),
        ([0, 1, 2, 3, 4, 99], 1, None),  # once is no habit
        ([0, 1, 2, 3, 99], 2, None),  # four others are too few to tell
        ([38, 48, 58, 68, 78, 99], 2, 99),
        ([39, 49, 59, 69, 79, 99], 2, None),  # the gap must be more than half of their range
        ([1, 6, 11, 16, 21, -9], 5, None),
        ([1, 6, 11, 16, 21, -9], 6, -9),  # less than 0 alone, and more than five times as often as others
        ([0, 6, 11, 16, 21, -9], 6, -9),
        ([-1, 6, 11, 16, 21, -9], 6, None),
        ([0, 1, 2, 3, 4, 98], 2, None),
    ],
)
def test_a_code_for_missing_is_frequent_and_far_from_all_others(values, count, code):
    found = notes([*values, *[values[-1]] * (count - 1)])
    assert (f"{code} x {count} looks like a code for missing" in found) if code else ("code" not in found)


@pytest.mark.parametrize(
    ("others", "note"),
    [
        ([10.0] * 3, "3 values are 10 times the others"),
        ([10.0], ""),  # once is no habit
        ([14.0] * 3, "3 values are 10 times the others"),
        ([14.1] * 3, ""),
        ([7.0] * 3, "3 values are 10 times the others"),
        ([6.9] * 3, ""),
        ([100.0] * 3, "3 values are 100 times the others"),
        ([1000.0] * 3, "3 values are 1000 times the others"),
        ([0.1] * 3, "3 values are 10 times smaller than the others"),
        ([*[10.0] * 3, 3.0], "3 values are 10 times the others"),
        ([*[10.0] * 3, 4.0], ""),  # no gap, of the root of ten, between them
        ([*[10.0] * 3, 5.0], "3 values are 10 times the others"),  # beyond the bulk itself
        ([*[10.0] * 3, 60.0, 60.0], "3 values are 10 times the others"),  # three of five
        ([*[10.0] * 3, 60.0, 60.0, 60.0], ""),
        ([*[10.0] * 3, 0.0], ""),
    ],
)
def test_slips_of_a_factor_stand_apart_from_a_narrow_bulk(others, note):
    found = notes([*[1.0] * 90, *others])
    assert note in found if note else found == ""


def test_slips_of_a_factor_are_few_among_many():
    assert "2 values" in notes([*[1.0] * 18, 10.0, 10.0])
    assert notes([*[1.0] * 17, 10.0, 10.0]) == ""
    assert "20 values" in notes([*[1.0] * 80, *[100.0] * 20])
    assert notes([*[1.0] * 79, *[100.0] * 21]) == ""


def test_words_and_broken_numbers():
    found = odd_numbers(np.array([1.0, 2.0, 2.5]), np.array([500, 500, 1]), ("x", "y", "z", "w"), 7, 0)
    assert found == ("7 words: x, y, z, ...", "1 not whole: '2.5'")


def test_odd_levels():
    texts = np.array(["Male", "male", "Female", "Femal", "Room 12", "Room 13"], dtype=object)
    counts = np.array([100, 20, 100, 1, 1, 100])
    found = odd_levels(texts, counts)
    assert found == ("differ in case or blanks alone: Male / male", "misspelt: Femal x 1 (like Female)")


def test_slips_of_a_factor_name_two_examples():
    assert notes([*[1.0] * 90, 10.0, 11.0, 12.0]) == "3 values are 10 times the others: '10', '11' and 1 more"
    assert notes([*[1.0] * 90, 10.0, 11.0]) == "2 values are 10 times the others: '10', '11'"
    assert notes([*[1.0] * 90, 0.1, 0.11]) == "2 values are 10 times smaller than the others: '0.1', '0.11'"


def test_numbers_that_are_not_whole_among_whole_ones_are_named():
    values, counts = np.array([1.0, 2.5, 3.25, 4.75, 5.5]), np.array([500, 1, 2, 1, 1])
    note = "5 not whole: '2.5', '3.25', '4.75' and 1 more"
    assert odd_numbers(values, counts, (), 0, 0) == (note,)
    assert odd_numbers(values, counts, (), 0, 1) == odd_numbers(values, counts, (), 0, None) == ()


@pytest.mark.parametrize(
    ("words", "n", "note"),
    [(("x",), 1, "1 word: x"), (("x",), 2, "2 words: x"), (("x", "y", "z"), 3, "3 words: x, y, z"),
     (("x", "y", "z", "w"), 4, "4 words: x, y, z, ...")],
)  # fmt: skip
def test_words_among_numbers_are_named(words, n, note):
    assert odd_numbers(np.array([1.0, 2.0]), np.array([5, 5]), words, n, None) == (note,)


def test_a_code_for_missing_is_left_out_of_what_else_is_odd():
    """Of the numbers that are left, none is 100 times the others; they come in any order."""
    values = np.array([999.0, 5.0, 1.0, 3.0, 4.0, 2.0])
    found = odd_numbers(values, np.array([3, 9, 9, 9, 9, 9]), (), 0, 0)
    assert found == ("999 x 3 looks like a code for missing: missing=999",)


def test_levels_in_the_order_of_the_alphabet_and_no_more_than_three():
    pairs = ["b", "B", "a", "A", " c", "c", "d", "D"]
    found = odd_levels(np.array(pairs, dtype=object), np.array([9] * 8))
    assert found == ("differ in case or blanks alone: B / b; A / a;  c / c",)
    words = ["female", "elephant", "crocodile", "butterfly"]
    texts = np.array([*words, *(word[:-1] for word in words)], dtype=object)
    (wrong,) = odd_levels(texts, np.array([100] * 4 + [1] * 4))
    first = "misspelt: butterfl x 1 (like butterfly), crocodil x 1 (like crocodile), elephan x 1 (like elephant), ..."
    assert wrong == first
    (wrong,) = odd_levels(texts[[0, 1, 2, 4, 5, 6]], np.array([100] * 3 + [1] * 3))
    assert wrong.count("like") == 3
    assert not wrong.endswith("...")


def test_copied_rows_are_told_where_they_are_no_chance():
    frame = pd.DataFrame({"name": [f"n{i}" for i in range(20)], "kind": ["a", "b"] * 10})
    assert copied_rows(frame) == ()
    assert copied_rows(frame[["kind"]]) == ()  # few categories: equal rows are to be expected
    (one,) = copied_rows(pd.concat([frame, frame[3:4]]))
    assert one == "1 row is an exact copy of another (row 21); remove it if read twice"
    (many,) = copied_rows(pd.concat([frame[:5], frame, frame]))  # the second run begins with the five again
    assert many == "25 rows are exact copies of others (the first: row 6); remove them if read twice"
    assert copied_rows(pd.concat([frame[:19], frame[:1]])) == ()  # few rows
    # 26 different names among 29 different rows are just below nine tenths of them, 27 just above.
    for n, told in ((26, False), (27, True)):
        some = pd.DataFrame(
            {"name": [f"n{i % n}" for i in range(29)], "kind": ["b" if i >= n else "a" for i in range(29)]}
        )
        assert bool(copied_rows(pd.concat([some, some[:1]]))) == told
    assert copied_rows(frame.assign(kind=[[i % 2] for i in range(20)])) == ()  # cells that cannot be compared


def test_a_file_with_copies_says_so(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("name,x\n" + "".join(f"n{i},{i}\n" for i in [*range(30), 4, 5]))
    assert "2 rows are exact copies of others (the first: row 31)" in " ".join(look(open_table(path)).notes)
