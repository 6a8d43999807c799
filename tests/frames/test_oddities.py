import numpy as np
import pytest

from pscd.frames.oddities import odd_levels, odd_numbers

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
        ([*ages, 999, 999], "999 x 2 looks like a code for missing: --missing 999"),
        ([*ages, -1, -1, -1], ""),  # too near to be sure
        ([*(ages * 1000), -99, -99], ""),
        ([*heights, -9, -9], "-9 x 2 looks like a code for missing: --missing -9"),
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


def test_words_and_broken_numbers():
    found = odd_numbers(np.array([1.0, 2.0, 2.5]), np.array([500, 500, 1]), ("x", "y", "z", "w"), 7, 0)
    assert found == ("7 words: x, y, z, ...", "1 not whole: '2.5'")


def test_odd_levels():
    texts = np.array(["Male", "male", "Female", "Femal", "Room 12", "Room 13"], dtype=object)
    counts = np.array([100, 20, 100, 1, 1, 100])
    found = odd_levels(texts, counts)
    assert found == ("differ in case or blanks alone: Male / male", "misspelt: Femal x 1 (like Female)")
