import math
import sys
import types

import pytest
import torch
from scipy import stats

from pscd.data import load_dataset
from pscd.data.toys import MIXTURE_1D, TOYS, TOYS_2D, Toy, contaminated_1d, find_toy
from pscd.errors import UserError
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


@pytest.mark.parametrize("name", TOYS_2D)
def test_density_and_draws_agree(name):
    """The expected histogram of a coarse grid from the density, against draws, by chi-squared."""
    edges = torch.linspace(-8, 8, 33, dtype=torch.float64)
    fine = torch.linspace(-8, 8, 32 * 12 + 1, dtype=torch.float64)
    centres = (fine[1:] + fine[:-1]) / 2
    density = TOYS_2D[name].log_density(torch.cartesian_prod(centres, centres)).exp() * (centres[1] - centres[0]) ** 2
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


def corner(n, generator=None):
    """Uniform between (1.5, -3) and (2.5, 5)."""
    return torch.rand(n, 2, generator=generator) * torch.tensor([1.0, 8.0]) + torch.tensor([1.5, -3.0])


def test_a_toy_that_does_not_say_where_it_lives_is_looked_at():
    toy = Toy(corner)
    # The range of 10,000 uniform draws falls short of the whole by about 1e-4 of it at each end.
    assert toy.quadrature_box.low == pytest.approx((0.5, -11), abs=0.02)
    assert toy.quadrature_box.high == pytest.approx((3.5, 13), abs=0.02)
    assert toy.figure_window == (-3, 5)
    said = Toy(corner, box=TOYS["moon"].box, window=(0, 1))
    assert (said.quadrature_box, said.figure_window) == (TOYS["moon"].box, (0, 1))
    assert TOYS["gaussian_1d"].quadrature_box.low < (-4.0,)


@pytest.fixture
def module(monkeypatch):
    made = types.ModuleType("toys_of_ones_own")
    made.corner, made.number = Toy(corner), 3
    monkeypatch.setitem(sys.modules, "toys_of_ones_own", made)


@pytest.mark.usefixtures("module")
def test_a_toy_of_ones_own_is_data_by_its_import_path():
    assert find_toy("toys_of_ones_own:corner").draw is corner
    data = load_dataset("toys_of_ones_own:corner", seed=3, n=50)
    assert torch.equal(data.train, corner(50, generator(3, 0)))
    assert len(data.held_out) == 10_000
    with pytest.raises(UserError, match="is a toy without column names"):
        load_dataset("toys_of_ones_own:corner", seed=3, columns=["a"])


@pytest.mark.usefixtures("module")
def test_a_path_that_names_no_toy_is_told_in_one_line():
    with pytest.raises(UserError, match=r"toys_of_ones_own:number is of the type int, not a pscd\.data\.Toy"):
        load_dataset("toys_of_ones_own:number", seed=0)
    with pytest.raises(UserError, match="import toys_of_nobody first"):
        load_dataset("toys_of_nobody:corner", seed=0)
    assert "toys_of_nobody" not in sys.modules


def test_data_without_a_name_are_not_the_current_folder():
    with pytest.raises(UserError, match="no data are named"):
        load_dataset("", seed=0)
