import math
import sys
import types

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.datasets import make_moons, make_swiss_roll

from pscd.data import load_dataset
from pscd.data.toys import (
    CLEAN_1D,
    CONTAMINATION_1D,
    MIXTURE_1D,
    TOYS,
    TOYS_1D,
    TOYS_2D,
    GaussianMixture1d,
    Toy,
    contaminated_1d,
    find_toy,
)
from pscd.errors import UserError
from pscd.rng import generator, integer_seed


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


def test_draws_by_hand():
    """From the same random numbers, drawn in the same order."""
    n, rng = 7, generator(3)
    x0 = torch.rand(n, generator=rng) * 8 - 4
    expected = torch.stack([x0, 3 * torch.cos(2 * x0) + torch.randn(n, generator=rng)], 1)
    torch.testing.assert_close(TOYS["cosine"](n, generator(3)), expected)
    rng = generator(3)
    x0, z = 2 * torch.randn(n, generator=rng), torch.randn(n, generator=rng)
    expected = torch.stack([x0, z * torch.exp(-x0).clamp(max=10).sqrt()], 1)
    torch.testing.assert_close(TOYS["funnel"](n, generator(3)), expected)
    rng = generator(3)
    side = torch.randint(2, (n,), generator=rng)
    expected = 0.5 * torch.randn(n, 2, generator=rng) + torch.stack([8.0 * side - 4, torch.zeros(n)], 1)
    torch.testing.assert_close(TOYS["mog"](n, generator(3)), expected)
    rng = generator(3)
    radius = torch.tensor([1.0, 3.0, 5.0])[torch.multinomial(torch.tensor([1.0, 3.0, 5.0]), n, True, generator=rng)]
    angle = 2 * math.pi * torch.rand(n, generator=rng)
    expected = torch.stack([radius * angle.cos(), radius * angle.sin()], 1) + 0.2 * torch.randn(n, 2, generator=rng)
    torch.testing.assert_close(TOYS["rings"](n, generator(3)), expected)
    seed = integer_seed(generator(3))
    expected = torch.from_numpy(make_moons(n, noise=0.1, random_state=seed)[0]).float() * 2 + torch.tensor([-1.0, -0.2])
    torch.testing.assert_close(TOYS["moon"](n, generator(3)), expected)
    expected = torch.from_numpy(make_swiss_roll(n, noise=1.0, random_state=seed)[0][:, [0, 2]] / 5).float()
    torch.testing.assert_close(TOYS["swiss_roll"](n, generator(3)), expected)


def test_densities_by_hand():
    """The curved ones by a sum over the curve, each step of which is a Gaussian."""
    x = torch.tensor([[0.3, 1.2], [-1.4, -2.1], [3.9, 0.4], [-3.0, 0.1]]).double()
    a, b = x.numpy().T
    expected = {
        "cosine": np.log(1 / 8) + stats.norm.logpdf(b, 3 * np.cos(2 * a)),
        "funnel": stats.norm.logpdf(a, 0, 2) + stats.norm.logpdf(b, 0, np.sqrt(np.minimum(np.exp(-a), 10))),
        "mog": np.log(stats.norm.pdf(a, -4, 0.5) + stats.norm.pdf(a, 4, 0.5))
        - np.log(2)
        + stats.norm.logpdf(b, 0, 0.5),
    }
    t = (np.arange(20_000) + 0.5) / 20_000

    def along(*curve):
        apart = [(values[:, None] - c) for values, c in zip((a, b), curve, strict=True)]
        return np.exp(-(apart[0] ** 2 + apart[1] ** 2) / (2 * 0.04)).mean(1) / (2 * np.pi * 0.04)

    circle = 2 * np.pi * t
    rings = sum(r / 9 * along(r * np.cos(circle), r * np.sin(circle)) for r in (1, 3, 5))
    half, roll = np.pi * t, 1.5 * np.pi * (1 + 2 * t)
    upper = along(2 * np.cos(half) - 1, 2 * np.sin(half) - 0.2)
    lower = along(1 - 2 * np.cos(half), 0.8 - 2 * np.sin(half))
    expected |= {"rings": np.log(rings), "moon": np.log((upper + lower) / 2)}
    expected["swiss_roll"] = np.log(along(roll * np.cos(roll) / 5, roll * np.sin(roll) / 5))
    for name, values in expected.items():
        near = values > -40
        assert near.sum() >= 2
        np.testing.assert_allclose(TOYS[name].log_density(x).numpy()[near], values[near], rtol=1e-6, atol=1e-6)
    outside = TOYS["cosine"].log_density(torch.tensor([[4.0, 0.0], [-4.0, 0.0], [3.999, 0.0]]))
    assert outside.isinf().tolist() == [True, True, False]


def test_modes():
    x = torch.tensor([[-0.1, 0.0], [0.0, 0.0], [0.1, 0.0], [2.1, 0.0], [1.9, 0.0], [4.1, 0.0]])
    assert TOYS["mog"].mode(x).tolist() == [0, 0, 1, 1, 1, 1]
    assert TOYS["rings"].mode(x).tolist() == [0, 0, 0, 1, 0, 2]
    assert TOYS["moon"].mode(torch.tensor([[-1.0, 1.8], [1.0, -1.2], [1.0, -0.2], [-1.0, 0.8]])).tolist() == [
        0,
        1,
        0,
        1,
    ]
    assert TOYS["cosine"].box.jumps == ((-4.0, 4.0), ())
    assert (TOYS["funnel"].box.jumps, TOYS["funnel"].box.core) == (((-math.log(10),), ()), (None, 0.05))


def test_the_mixtures_of_the_paper():
    assert GaussianMixture1d((0.33, 0.67), (-1.0, 2.0), (0.0625, 2.0)) == MIXTURE_1D
    assert GaussianMixture1d((1.0,), (-1.0,), (0.5,)) == CLEAN_1D
    assert GaussianMixture1d((1.0,), (2.0,), (0.05,)) == CONTAMINATION_1D
    assert contaminated_1d(0.2) == GaussianMixture1d((0.8, 0.2), (-1.0, 2.0), (0.5, 0.05))
    assert sorted(TOYS_1D) == ["contaminated_1d_01", "contaminated_1d_05", "contaminated_1d_10", "contaminated_1d_20",
                               "contaminated_1d_30", "gaussian_1d", "mixture_1d"]  # fmt: skip
    x = torch.tensor([[-1.5], [0.2], [2.0]]).double()
    for percent in (1, 5, 10, 20, 30):
        share = percent / 100
        density = (1 - share) * stats.norm.pdf(x, -1, 0.5**0.5) + share * stats.norm.pdf(x, 2, 0.05**0.5)
        found = TOYS[f"contaminated_1d_{percent:02d}"].log_density(x)
        np.testing.assert_allclose(found, np.log(density)[:, 0], rtol=1e-6)


def test_windows_and_boxes_are_read_off_a_draw():
    toy = Toy(lambda n, generator: torch.stack([torch.linspace(-2.3, 5.1, n), torch.linspace(0.5, 1.5, n)], 1))
    assert toy.figure_window == (-3.0, 6.0)
    assert toy.quadrature_box.low == pytest.approx((-2.3 - 7.4, -0.5))
    assert toy.quadrature_box.high == pytest.approx((5.1 + 7.4, 2.5))
