import math
from dataclasses import replace

import pytest
import torch

from pscd.mixtures import MixtureSettings
from pscd.mixtures.em import Statistics, expect, maximise, run_em
from pscd.mixtures.missing import Block
from pscd.mixtures.robust import first_component
from pscd.rng import generator
from tests.mixtures.test_table_mixture import LEVELS, mixture

EXACT = MixtureSettings(pseudo_rows=0.0, to_diagonal=0.0, ridge=0.0, smoothing=0.0, rounds=1)


def skewed(n, d, seed=0):
    rng = generator(seed)
    factor = torch.eye(d).double() + 0.5 * torch.randn(d, d, generator=rng, dtype=torch.float64).tril(-1)
    return 3 + torch.randn(n, d, generator=rng, dtype=torch.float64) @ factor.T


@pytest.mark.parametrize("background", [True, False])
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_the_likelihood_never_falls(missing, background):
    """EM with missing numbers and categories, a tail and a background beside the components, and no shrinkage."""
    truth, rng = mixture(), generator(1)
    x = truth.sample(600, rng)
    x[torch.rand(x.shape, generator=rng) < missing] = torch.nan
    x[:30, [0, 2, 4]] *= 5
    model = first_component(x, torch.tensor(LEVELS), replace(EXACT, background=background), None)
    components, shares, frame = mixture(seed=5), model.shares, model.frame
    scores = []
    for _ in range(25):
        blocks = list(components.blocks(x))
        spread = [frame.log_background(block) for block in blocks]
        scores.append(expect(components, shares, blocks, spread, frame)[2])
        components, shares = run_em(components, shares, x, frame)
    rises = torch.tensor(scores).diff()
    assert rises.min() > -1e-9
    assert scores[-1] > scores[0] + 0.1


@pytest.mark.parametrize("d", [1, 3, 7])
def test_one_step_is_that_of_weighted_moments(d):
    """Shares of 0 and 1: counts, means and covariances by hand, with the pseudo-rows of the pooled covariance."""
    z, share = skewed(60, d), torch.zeros(60, 2, dtype=torch.float64)
    share[:20, 0] = share[20:, 1] = 1
    levels = torch.zeros(d).long()
    frame = first_component(z, levels, MixtureSettings(pseudo_rows=0.5), None).frame
    statistics = Statistics.zeros(2, levels)
    statistics.add(Block(torch.arange(60), z, z.new_empty(60, 0).long(), []), share, frame.tail)
    found = maximise(statistics, levels, frame)
    torch.testing.assert_close(found.weights, torch.tensor([1, 2]).double() / 3, rtol=1e-8, atol=1e-8)
    groups = (z[:20], z[20:])
    own = [torch.cov(rows.T, correction=0).reshape(d, d) for rows in groups]
    pooled = (20 * own[0] + 40 * own[1]) / 60
    part = min(1, frame.settings.to_diagonal * d / 60)
    pooled = (1 - part) * pooled + part * torch.diag(pooled.diagonal())
    extra = 0.5 * math.sqrt(d)
    for k, (rows, covariance) in enumerate(zip(groups, own, strict=True)):
        torch.testing.assert_close(found.means[k], rows.mean(0), rtol=1e-8, atol=1e-8)
        expected = (len(rows) * covariance + extra * pooled) / (len(rows) + extra)
        expected = expected + frame.settings.ridge * torch.diag(pooled.diagonal())
        torch.testing.assert_close(found.factors[k] @ found.factors[k].T, expected, rtol=1e-7, atol=1e-8)


def test_one_gaussian_with_missing_cells_is_at_its_maximum_of_likelihood():
    """The gradient of the mean log density of the observed cells is zero, by autograd of each pattern's marginal."""
    rng = generator(3)
    x = skewed(120, 3)
    x[torch.rand(x.shape, generator=rng) < 0.25] = torch.nan
    settings = replace(EXACT, background=False, tail_weight=1e-12, rounds=2000, tolerance=1e-14)
    model = first_component(x, torch.zeros(3).long(), settings, None)
    found, _ = run_em(model.components, model.shares, x, model.frame)
    mean = found.means[0].clone().requires_grad_()
    covariance = (found.factors[0] @ found.factors[0].T).requires_grad_()
    total = torch.zeros(()).double()
    for row in x:
        there = ~row.isnan()
        if there.any():
            normal = torch.distributions.MultivariateNormal(mean[there], covariance[there][:, there])
            total = total + normal.log_prob(row[there])
    slopes = torch.autograd.grad(total / len(x), (mean, covariance))
    assert max(slope.abs().max() for slope in slopes) < 1e-5


def test_the_background_has_at_most_its_share():
    x = 20 * torch.rand(500, 2, generator=generator(0), dtype=torch.float64)
    model = first_component(x, torch.zeros(2).long(), MixtureSettings(max_share=0.3), None)
    _, shares = run_em(model.components, model.shares, x, model.frame)
    assert shares.sum() <= 0.3 + 1e-9
