import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import cauchy, norm

from pscd.detector.mistakes import BROAD, MISTAKES, WIDEST, Expected, _swapped, find_mistakes


def expected(found, mean, deviation, wrong=None, scale=None):
    found, mean = np.atleast_2d(found).astype(float), np.atleast_2d(mean).astype(float)
    deviation = np.broadcast_to(np.asarray(deviation, float), found.shape)
    wrong = np.ones(found.shape, bool) if wrong is None else np.atleast_2d(wrong)
    return Expected(found, mean, deviation, wrong, 2 * deviation[0] if scale is None else np.asarray(scale, float))


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda m: m.words)
def test_every_mistake_is_undone(mistake):
    """The right value is 178.3 where 178 +- 5 is expected; rare mistakes need a narrower expectation."""
    found = (178.3 - mistake.shift) / mistake.factor
    value, words = find_mistakes(expected([found], [178.0], [0.5]), ["a"])
    assert words[0, 0] == mistake.words
    assert value[0, 0] == pytest.approx(178.3)


def test_densities_of_a_right_and_of_a_wrong_cell():
    """A Gaussian no narrower than a share of the column, and a Cauchy density."""
    rows = expected([[1.0, 9.0], [4.0, 5.0]], [[0.5, 7.0], [3.0, 3.0]], [0.2, 1e-9], scale=[3.0, 5.0])
    deviation = np.maximum([0.2, 1e-9], WIDEST * rows.scale)
    np.testing.assert_allclose(rows.log_density(rows.found), norm.logpdf(rows.found, rows.mean, deviation))
    second = norm.logpdf(rows.found[:, 1:], rows.mean[:, 1:], deviation[1:])
    np.testing.assert_allclose(rows.log_density(rows.found[:, 1:], np.s_[1:]), second)
    np.testing.assert_allclose(rows.log_broad(), cauchy.logpdf(rows.found, rows.mean, BROAD * rows.scale))


def test_a_cell_that_is_just_wrong_is_explained_by_nothing():
    value, words = find_mistakes(expected([250.0], [178.0], [5.0]), ["a"])
    assert words[0, 0] is None
    assert np.isnan(value[0, 0])


def test_a_tenth_of_anything_is_near_zero():
    """Around zero every large value divided by ten fits, so that this is no evidence."""
    _, words = find_mistakes(expected([8.0], [0.0], [1.0], scale=[1.0]), ["a"])
    assert words[0, 0] is None


def test_cells_that_are_right_are_left_alone():
    _, words = find_mistakes(expected([[17_800.0, 1.0]], [[178.0, 1.0]], [[0.5, 1.0]], [[False, False]]), ["a", "b"])
    assert (words == None).all()  # noqa: E711


def test_cells_that_are_right_are_no_evidence_for_a_mistake():
    """However many there are, a cell of which a tenth is 5 deviations off stays just wrong."""
    for others in (0, 1000):
        found = np.r_[1530.0, np.full(others, 178.0)][:, None]
        wrong = (np.arange(others + 1) == 0)[:, None]
        _, words = find_mistakes(expected(found, np.full_like(found, 178.0), [5.0], wrong), ["a"])
        assert (words == None).all()  # noqa: E711


def test_two_cells_are_swapped():
    found, mean = [[3.1, 178.2, 50.0]], [[178.0, 3.0, 50.0]]
    value, words = find_mistakes(expected(found, mean, [1.0, 0.2, 5.0], [[True, True, False]]), ["a", "b", "c"])
    assert words[0].tolist() == ["swapped with b", "swapped with a", None]
    np.testing.assert_allclose(value[0, :2], [178.2, 3.1])


def test_a_mistake_that_is_common_in_a_column_is_sooner_believed():
    """Alone, 2.9 deviations from the mean are too far for inches; beside nine clear cases they are not."""
    odd = (180 + 2.9 * 3.0) / 2.54
    alone = find_mistakes(expected([[odd]], [[180.0]], [[3.0]], scale=[8.0]), ["cm"])[1]
    assert alone[0, 0] is None
    rows = np.array([[(180 + 0.1 * i) / 2.54] for i in range(9)] + [[odd]])
    among = find_mistakes(expected(rows, np.full((10, 1), 180.0), np.full((10, 1), 3.0), scale=[8.0]), ["cm"])[1]
    assert among[-1, 0] == "inches, not centimetres"


def chances_by_hand(found, mean, deviation, scale):
    """Cells of one column, one at a time: the chance of each mistake after three rounds."""
    scores = [
        [
            norm.logpdf(m.factor * x + m.shift, mean, deviation)
            + math.log(abs(m.factor))
            - cauchy.logpdf(x, mean, 3 * scale)
            for m in MISTAKES
        ]
        for x in found
    ]
    first = [*[0.05] * 7, *[0.01] * 8]
    chance = [[0.0] * 15 for _ in found]
    for _ in range(3):
        new = []
        for i in range(len(found)):
            counted = [sum(chance[k][h] for k in range(len(found)) if k != i) for h in range(15)]
            share = [(c + 2 * f) / (len(found) - 1 + 2) for c, f in zip(counted, first, strict=True)]
            swaps = 2 * 2 * 0.05 / (len(found) - 1 + 2)
            rest = max(1 - sum(share) - swaps, 1e-3)
            odds = [math.exp(s) * h / rest for s, h in zip(scores[i], share, strict=True)]
            new.append([o / (1 + sum(odds)) for o in odds])
        chance = new
    return chance


@pytest.mark.parametrize(("clear", "words"), [(0, "10 times too large"), (1, "inches, not centimetres"),
                                              (3, "Fahrenheit, not Celsius"), (4, "wrong sign")])  # fmt: skip
def test_a_cell_is_explained_from_even_odds_on(clear, words, monkeypatch):
    """Beside some clear cases of a mistake, one cell moves away from what is expected until nobody believes it."""
    monkeypatch.setattr("pscd.detector.mistakes.PLAUSIBLE", np.inf)  # the odds alone
    mistake = next(m for m in MISTAKES if m.words == words)
    place = [m.words for m in MISTAKES].index(words)
    mean, deviation, scale = 180.0, 3.0, 8.0

    def column(away):
        right = [mean + 0.5 * i for i in range(clear)] + [mean + away * deviation]
        return [(value - mistake.shift) / mistake.factor for value in right]

    tipping = brentq(lambda a: chances_by_hand(column(a), mean, deviation, scale)[-1][place] - 0.5, 0, 8, xtol=1e-9)
    assert tipping > 1
    for away, said in ((tipping - 1e-6, words), (tipping + 1e-6, None)):
        found = np.array(column(away))[:, None]
        rows = expected(found, np.full_like(found, mean), deviation, scale=[scale])
        assert find_mistakes(rows, ["a"])[1][-1, 0] == said


def test_a_swap_is_weighed_against_what_stands_there():
    """Two cells, of which the second looks right: the odds of a swap are both densities over the two as they are."""
    names = ["a", "b"]

    def swap(away, wrong):
        found, mean, deviation, scale = [2.9 + away, 9.0], [9.0, 3.0], np.array([0.8, 0.5]), np.array([6.0, 4.0])
        rows = expected(found, mean, deviation, [wrong], scale=scale)
        both = norm.logpdf(found[1], mean[0], deviation[0]) + norm.logpdf(found[0], mean[1], deviation[1])
        own = [
            cauchy.logpdf(f, m, 3 * s) if w else norm.logpdf(f, m, d)
            for f, m, d, s, w in zip(found, mean, deviation, scale, wrong, strict=True)
        ]
        return rows, both - sum(own)

    for wrong in ([True, True], [True, False]):
        for away in (0.0, 0.4):
            rows, score = swap(away, wrong)
            value, got, words = _swapped(rows, names, 1)
            assert got[0, 0] == pytest.approx(score)
            assert (value[0, 0], words[0, 0]) == (9.0, "swapped with b")
            assert got[0, 1] == -np.inf  # nothing comes after the last
            assert np.isnan(value[0, 1])
            value, got, words = _swapped(rows, names, -1)
            assert got[0, 1] == pytest.approx(score)
            assert (value[0, 1], words[0, 1]) == (2.9 + away, "swapped with a")
            assert got[0, 0] == -np.inf


def test_the_first_guesses_are_those_that_the_benchmarks_were_made_with():
    common = [m.words for m in MISTAKES if m.share == 0.05]
    assert common == [*(f"{k} times too large" for k in (10, 100, 1000)),
                      *(f"{k} times too small" for k in (10, 100, 1000)), "wrong sign"]  # fmt: skip
    assert {m.share for m in MISTAKES} == {0.05, 0.01}
    assert (BROAD, WIDEST) == (3.0, 1e-9)
    by_words = {m.words: (m.factor, m.shift) for m in MISTAKES}
    assert by_words["Fahrenheit, not Celsius"] == pytest.approx((5 / 9, -32 * 5 / 9))
    assert by_words["Celsius, not Fahrenheit"] == (1.8, 32)
    assert by_words["inches, not centimetres"] == (2.54, 0)
    assert by_words["centimetres, not inches"] == pytest.approx((0.393700787, 0))
    assert by_words["feet, not metres"] == (0.3048, 0)
    assert by_words["pounds, not kilograms"] == (0.45359237, 0)
    assert by_words["kilograms, not pounds"] == pytest.approx((2.204622622, 0))
    assert by_words["miles, not kilometres"] == (1.609344, 0)
    for k in (10, 100, 1000):
        assert by_words[f"{k} times too large"] == pytest.approx((1 / k, 0))
        assert by_words[f"{k} times too small"] == (k, 0)


def test_a_value_that_a_mistake_would_leave_as_it_is_is_no_mistake():
    """The wrong sign of 0 is 0."""
    rows = expected([[0.0]], [[0.5]], [[0.5]], scale=[1e6])
    assert find_mistakes(rows, ["a"])[1][0, 0] is None


def test_gaps_are_explained_by_nothing():
    rows = expected([[np.nan, 178.0]], [[178.0, 178.0]], [[1.0, 1.0]], [[True, False]])
    value, words = find_mistakes(rows, ["a", "b"])
    assert words[0].tolist() == [None, None]
    assert np.isnan(value).all()


def test_however_common_a_mistake_is_one_cell_in_a_thousand_is_just_wrong():
    """Of 3,000 wrong cells all others have the wrong sign; the rest of the shares would be .94 / 3,001."""
    mean, deviation, scale, n = 180.0, 0.003, 8.0, 3000
    share = (n - 1 + 2 * 0.05) / (n + 1)

    def odds(away):
        right = mean + away * deviation
        return norm.pdf(right, mean, deviation) / cauchy.pdf(-right, mean, 3 * scale) * share / 1e-3

    tipping = brentq(lambda away: odds(away) - 1, 0, 10)
    for away, said in ((tipping - 0.02, "wrong sign"), (tipping + 0.02, None)):
        found = np.full((n, 1), -mean)
        found[-1] = -(mean + away * deviation)
        rows = expected(found, np.full_like(found, mean), deviation, scale=[scale])
        assert find_mistakes(rows, ["a"])[1][-1, 0] == said


@pytest.mark.parametrize(("right", "undone"), [(125.0, True), (75.0, True), (126.0, False), (74.0, False)])
def test_a_mistake_must_give_a_plausible_value(right, undone):
    """100 +- 10 is expected: 2.576 deviations to either side hold 99 % of a Gaussian."""
    value, words = find_mistakes(expected([100 * right], [100.0], [10.0], scale=[10.0]), ["a"])
    assert (words[0, 0] == "100 times too large") is undone
    assert bool(np.isnan(value[0, 0])) is not undone


def test_what_another_cell_shows_too_need_not_be_plausible():
    """127 is 2.7 deviations away; two such cells do not speak for each other, a plausible one does."""
    for others, undone in (([], False), ([127.0], False), ([101.0], True)):
        found = 100 * np.array([*others, 127.0])[:, None]
        words = find_mistakes(expected(found, np.full_like(found, 100.0), 10.0, scale=[10.0]), ["a"])[1]
        assert (words[-1, 0] == "100 times too large") is undone
