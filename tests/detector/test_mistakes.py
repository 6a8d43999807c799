import numpy as np
import pytest
from scipy.stats import cauchy, norm

from pscd.detector.mistakes import BROAD, MISTAKES, WIDEST, Expected, find_mistakes


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
