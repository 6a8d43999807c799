import math

import pytest
import torch
from scipy import stats

from pscd.data.toys import LOG_DENSITIES, MIXTURE_1D, TOYS, TOYS_2D, contaminated_1d
from pscd.rng import generator


@pytest.mark.parametrize("name", TOYS)
def test_every_toy_draws_rows_and_repeats_with_its_seed(name):
    before = torch.get_rng_state()
    x = TOYS[name](500, generator(3))
    assert torch.equal(before, torch.get_rng_state())
    assert x.shape == (500, 2 if name in TOYS_2D else 1)
    assert x.dtype == torch.float32
    assert x.isfinite().all()
    assert torch.equal(x, TOYS[name](500, generator(3)))
    assert not torch.equal(x, TOYS[name](500, generator(4)))


@pytest.mark.parametrize("name", [name for name in LOG_DENSITIES if name in TOYS_2D])
def test_density_and_draws_agree(name):
    """The expected histogram of a coarse grid from the density, against draws, by chi-squared."""
    edges = torch.linspace(-8, 8, 33, dtype=torch.float64)
    fine = torch.linspace(-8, 8, 32 * 12 + 1, dtype=torch.float64)
    centres = (fine[1:] + fine[:-1]) / 2
    density = LOG_DENSITIES[name](torch.cartesian_prod(centres, centres)).exp() * (centres[1] - centres[0]) ** 2
    expected = density.view(32, 12, 32, 12).sum((1, 3))
    n = 200_000
    x = TOYS_2D[name](n, generator(0)).double()
    observed, _ = torch.histogramdd(x, bins=[edges, edges])
    big = expected * n > 20
    chi2 = ((observed - n * expected) ** 2 / (n * expected))[big].sum().item()
    # mean k and standard deviation sqrt(2k) for k cells
    assert chi2 < big.sum() + 5 * math.sqrt(2 * big.sum())


def test_one_dimensional_mixtures_give_variances():
    x = contaminated_1d(0.3).sample(100_000, generator(0))[:, 0]
    assert (x > 1).float().mean().item() == pytest.approx(0.3, abs=0.01)
    assert x[x > 1].var().item() == pytest.approx(0.05, abs=0.005)

    def cdf(v):
        return 0.33 * stats.norm.cdf(v, -1, 0.25) + 0.67 * stats.norm.cdf(v, 2, math.sqrt(2))

    draws = MIXTURE_1D.sample(4000, generator(1))
    assert stats.kstest(draws[:, 0].numpy(), cdf).statistic < 0.031  # p = .001
    grid = torch.linspace(-12, 12, 5001, dtype=torch.float64)[:, None]
    assert torch.trapezoid(MIXTURE_1D.log_prob(grid).exp(), grid[:, 0]).item() == pytest.approx(1, abs=1e-9)


def test_rings_are_as_likely_as_they_are_long():
    radius = TOYS["rings"](90_000, generator(0)).norm(dim=1)
    shares = [((radius - r).abs() < 1).float().mean().item() for r in (1, 3, 5)]
    assert shares == pytest.approx([1 / 9, 3 / 9, 5 / 9], abs=0.01)
