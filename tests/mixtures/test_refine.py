import math

import pytest
import torch

from pscd.mixtures import Mixture, fit_robust_mixture, refit
from pscd.mixtures import refine as module
from pscd.mixtures.refine import ROWS_OF_A_HALF, refine, settle, split
from pscd.mixtures.robust import TAIL, RobustMixture, em
from pscd.rng import generator


def ring(n, seed, junk=0.0):
    """A ring of radius 3, and an even share of junk around it."""
    rng = generator(seed)
    angle = 2 * math.pi * torch.rand(n, generator=rng, dtype=torch.float64)
    radius = 3 + 0.2 * torch.randn(n, generator=rng, dtype=torch.float64)
    x = torch.stack([radius * angle.cos(), radius * angle.sin()], 1)
    k = int(junk * n)
    x[:k] = 12 * torch.rand(k, 2, generator=rng, dtype=torch.float64) - 6
    return x[torch.randperm(n, generator=rng)]


def moments(mixture: Mixture):
    mean = mixture.weights @ mixture.means
    inner = mixture.factors @ mixture.factors.mT + mixture.means[:, :, None] * mixture.means[:, None]
    return mean, (mixture.weights[:, None, None] * inner).sum(0)


@pytest.fixture(scope="module")
def coarse():
    return fit_robust_mixture(ring(4000, 0), robust=False, seed=0, components=(4,))


def test_halves_lie_along_the_longest_axis_and_keep_mean_and_covariance():
    factor = torch.tensor([[[2.0, 0.0], [0.0, 1.0]]], dtype=torch.float64)
    one = Mixture(torch.ones(1).double(), torch.tensor([[1.0, -1.0]]).double(), factor)
    halves = split(RobustMixture(one, one, torch.empty(0).double(), None)).components
    assert halves.weights.tolist() == [0.5, 0.5]
    apart = (halves.means[1] - halves.means[0]).abs()
    torch.testing.assert_close(apart, torch.tensor([2.0, 0.0]).double())  # half a deviation to each side
    for found, wanted in zip(moments(halves), moments(one), strict=True):
        torch.testing.assert_close(found, wanted)


def test_many_components_are_all_split(coarse):
    halves = split(coarse)
    assert len(halves.components.weights) == 2 * len(coarse.components.weights)
    for found, wanted in zip(moments(halves.components), moments(coarse.components), strict=True):
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("junk", [0.0, 0.2])
def test_fine_structure_is_found_by_splitting(junk):
    """A ring that four Gaussians miss; the density of fresh clean rows tells how far they are off."""
    z, held, fresh = ring(4000, 0, junk), ring(1000, 1, junk), ring(4000, 2)
    start = fit_robust_mixture(z, robust=junk > 0, seed=0, components=(4,))
    fine = refine(start, z, held, seed=0)
    assert len(fine.components.weights) == 16
    assert fine.held_out == pytest.approx(float(fine.log_parts(held).logsumexp(1).mean()))
    gain = fine.density.log_prob(fresh).mean() - refit(start, z).density.log_prob(fresh).mean()
    assert gain > 0.2
    assert fine.share_of_junk == pytest.approx(junk, abs=0.01)


@pytest.mark.parametrize(
    ("scores", "k", "kept"),
    [
        # From the four that were found to eight, which no sixteen improve on; then from two, which are worse.
        ([1.0, 2.0, 2.0, 0.5, 0.4], 8, 2.0),
        ([1.0, 0.9, 0.5, 0.4], 4, 1.0),
        # From two to four that are as good as those that were found: they were split from settled ones.
        ([1.0, 0.9, 0.5, 0.9995, 0.8], 4, 0.9995),
        ([1.0, 2.0, 2.0, 2.5, 2.4], 2, 2.5),
    ],
)
def test_held_out_rows_say_when_splitting_ends_and_which_start_was_better(scores, k, kept, coarse, monkeypatch):
    looks = iter(scores)
    monkeypatch.setattr(module, "_score", lambda found, held: next(looks))
    found = refine(coarse, ring(4000, 0), ring(10, 1), seed=0)
    assert next(looks, None) is None
    assert len(found.components.weights) == k
    assert found.held_out == kept


def test_no_half_has_too_few_rows(coarse, monkeypatch):
    scores = iter(range(20))
    monkeypatch.setattr(module, "_score", lambda found, held: next(scores))
    for n, k in ((8 * ROWS_OF_A_HALF - 1, 4), (8 * ROWS_OF_A_HALF, 8)):
        assert len(refine(coarse, ring(n, 0), ring(10, 1), seed=0).components.weights) == k


def test_the_background_is_as_wide_as_junk_has_made_each_column():
    """Junk that is wide in another column than the data fits no Gaussian that is as wide as the data in each."""
    z = torch.randn(2000, 2, generator=generator(3), dtype=torch.float64) * torch.tensor([1.0, 0.1])
    z[:400] *= torch.tensor([1.0, 100.0])
    start = fit_robust_mixture(z, robust=True, seed=0, components=(2,))
    found = settle(start, z)
    wide = torch.tensor([1.5, 2.0, 3.0]).double()[:, None] * z.std(0)
    torch.testing.assert_close(found.background.deviation[-3:], wide)
    assert len(found.background.deviation) == len(start.background.deviation) + 3
    assert len(found.junk) == found.background.kinds
    assert found.share_of_junk == pytest.approx(0.2, abs=0.02)


def test_the_background_starts_with_the_junk_that_was_found(monkeypatch):
    starts = []
    monkeypatch.setattr(module, "em", lambda start, *rest: (starts.append(start), em(start, *rest))[1])
    z = ring(1000, 0, 0.2)
    found = fit_robust_mixture(z, robust=True, seed=0, components=(8,))
    once = settle(found, z)
    settle(once, ring(1200, 1, 0.2))
    even, known = (start.junk for start in starts)
    torch.testing.assert_close(even, torch.full_like(even, found.share_of_junk / len(even)))
    assert len(even) == len(found.junk) + 3
    assert torch.equal(known, once.junk)


def test_little_is_left_to_gain_when_em_has_settled(coarse):
    z = ring(4000, 0)

    def left(found):
        further = em(found, z, 10, 0.0)
        return float((further.log_parts(z).logsumexp(1) - found.log_parts(z).logsumexp(1)).mean())

    assert 0 < left(settle(coarse, z)) < 3e-4 < left(refit(coarse, z))


@pytest.mark.parametrize(
    ("n", "junk", "weight"), [(50, 0.0, TAIL), (2500, 0.0, 0.002), (400, 0.2, TAIL), (2500, 0.2, 0.006)]
)
def test_the_tail_is_thinner_for_more_rows(n, junk, weight):
    z = ring(n, 0, junk)
    start = fit_robust_mixture(z, robust=junk > 0, seed=0, components=(4,))
    found = settle(start, z)
    assert found.tail_weight == pytest.approx(weight)
    assert float(found.density.weights[-1]) == pytest.approx(weight)
    share = torch.softmax(found.log_parts(z), 1)
    torch.testing.assert_close(found.clean(z), share[:, :2].sum(1))
    assert (found.background is None) == (junk == 0)


def test_rows_and_start_are_left_as_they_were(coarse):
    z, means = ring(1000, 0), coarse.components.means.clone()
    before = z.clone()
    refine(coarse, z, ring(100, 1), seed=0)
    assert torch.equal(z, before)
    assert torch.equal(coarse.components.means, means)
