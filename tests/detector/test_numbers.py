import math

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal

from pscd.config import ChainSettings, GuardSettings, OptimizerSettings, RowSettings, TrainConfig
from pscd.detector import numbers as module
from pscd.detector.gaussian import Gaussian, fit_gaussian, majority, silverman
from pscd.detector.numbers import NumberEnergy, fit_numbers
from pscd.mixtures import Mixture
from pscd.objectives import PseudoSpherical
from pscd.sampling import Jumps


@pytest.fixture(scope="module")
def rows():
    mixing = torch.tensor([[1.0, 0.0, 0.0], [0.8, 0.6, 0.0], [0.3, -0.5, 0.9]]).double()
    return torch.randn(500, 3, generator=torch.Generator().manual_seed(0)).double() @ mixing.T


@pytest.fixture(scope="module")
def energy(rows):
    return fit_numbers(
        rows, gamma=0.0, bound=2.0, n_updates=20, seed=0, floor=torch.full((3,), 0.2).double(), verbose=False
    )


def plain(energy: NumberEnergy) -> NumberEnergy:
    """The same energy without what the network says."""

    class Quadratic(torch.nn.Module):
        def forward(self, u):
            return 0.5 * u.square().sum(1)

    found = NumberEnergy(energy.gaussian, energy.model)
    found.__dict__["network"] = Quadratic()
    return found


def test_missing_cells_are_marginalised_exactly(energy, rows):
    """Without the network this is a Gaussian, whose marginals are known."""
    model, gaussian = plain(energy), energy.gaussian
    z = rows[:50].clone()
    z[:, 1] = torch.nan
    marginal = multivariate_normal(gaussian.mean[[0, 2]].numpy(), gaussian.covariance[[0, 2]][:, [0, 2]].numpy())
    # The normalising constant comes from draws, but the network corrects nothing, so that it is exact.
    np.testing.assert_allclose(model.log_density(z).numpy(), marginal.logpdf(z[:, [0, 2]].numpy()), atol=1e-9)


def test_the_energy_of_a_row_with_gaps_is_the_expected_one(energy, rows):
    """E over what the missing cell may be, by quadrature along it."""
    model, gaussian = plain(energy), energy.gaussian
    z = rows[:1].clone()
    z[0, 1] = torch.nan
    line = torch.linspace(-12, 12, 20_001).double()
    along = rows[:1].repeat(len(line), 1)
    along[:, 1] = line
    log_p = -gaussian.energy(along)
    weights = (log_p - log_p.logsumexp(0)).exp()
    assert float(model.energy(z)) == pytest.approx(float((weights * gaussian.energy(along)).sum()), abs=1e-6)


def test_rows_without_gaps_do_not_care_for_those_with(energy, rows):
    z = rows[:10].clone()
    before = energy.energy(z)
    z[3, 0] = torch.nan
    after = energy.energy(z)
    keep = torch.arange(10) != 3
    torch.testing.assert_close(after[keep], before[keep], rtol=0, atol=1e-12)
    assert after[3] != before[3]


def test_a_row_of_gaps_is_an_average_row(energy):
    nothing = torch.full((1, 3), torch.nan).double()
    assert float(plain(energy).energy(nothing)) == pytest.approx(1.5)
    assert float(plain(energy).log_density(nothing)) == pytest.approx(0.0, abs=1e-9)


def test_samples_have_the_covariance_of_the_rows(energy, rows):
    drawn = energy.sample(4000, seed=0)
    torch.testing.assert_close(torch.cov(drawn.T), torch.cov(rows.T), atol=0.35, rtol=0)
    assert isinstance(energy.gaussian, Gaussian)


@pytest.mark.parametrize("gamma", ["auto", 0.25])
def test_the_network_learns_from_whitened_rows_whose_noise_leaves_the_variance_as_it_is(rows, gamma, monkeypatch):
    """What `fit` is asked for, by hand: Silverman's width h for 500 rows of 3 columns, and rows and noise scaled such
    that their variances, 1 and h^2, add up to 1 again."""
    asked = {}
    monkeypatch.setattr(module, "fit", lambda x, config, **more: asked.update(x=x, config=config, **more))
    state, floor = torch.get_rng_state(), torch.full((3,), 0.2).double()
    given = {"gamma": gamma, "bound": 2.0, "n_updates": 70, "seed": 5, "floor": floor, "verbose": True}
    found = fit_numbers(rows, **given)
    assert torch.equal(torch.get_rng_state(), state)
    width = silverman(500, 3)
    narrow = 1 / math.sqrt(1 + width**2)
    torch.testing.assert_close(asked["x"], narrow * found.gaussian.whiten(rows))
    assert (narrow**2 + asked["config"].rows.data_noise ** 2) == pytest.approx(1)
    assert asked["config"] == TrainConfig(
        objective=PseudoSpherical(gamma=found.gaussian.gamma, warmup=0.0, negatives="importance"),
        sampler=Jumps(),
        updates=70,
        seed=5,
        chains=ChainSettings(buffer_size=256, sample_steps=30),
        optimizer=OptimizerSettings(lr=8e-3),
        guard=GuardSettings(max_gap=1e6),
        rows=RowSettings(data="", data_noise=narrow * width, standardise="none"),
    )
    assert asked["progress"] is True
    assert torch.equal(asked["proposal"].log_prob(rows.float()), Mixture.isotropic(3).log_prob(rows.float()))
    if gamma == "auto":
        expected = majority(rows, 0.75, inside=0.99, clean=0.05, floor=floor)
    else:
        expected = fit_gaussian(rows, gamma=0.25, floor=floor)
    # The same rows in another order.
    torch.testing.assert_close(found.gaussian.mean, expected.mean, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found.gaussian.covariance, expected.covariance, rtol=1e-3, atol=1e-3)
    weights = torch.cat([p.detach().flatten() for p in asked["energy"].parameters()])
    fit_numbers(rows, **given)
    assert torch.equal(weights, torch.cat([p.detach().flatten() for p in asked["energy"].parameters()]))
    fit_numbers(rows, **(given | {"seed": 6}))
    assert not torch.equal(weights, torch.cat([p.detach().flatten() for p in asked["energy"].parameters()]))
    assert asked["energy"].bound == 2.0


def test_the_density_of_rows_is_the_energy_normalised(energy, rows):
    """The constant by quadrature over a grid of whitened rows, three standard errors of 20,000 draws apart."""
    axis = torch.linspace(-6, 6, 33).double()
    grid = torch.cartesian_prod(axis, axis, axis)
    log_z = torch.logsumexp(-energy.network(grid).detach(), 0) + 3 * math.log(float(axis[1] - axis[0]))
    log_det = energy.gaussian.factor.diagonal().log().sum()
    expected = -energy.energy(rows[:20]) - log_z - log_det
    u = torch.randn(20_000, 3, generator=torch.Generator().manual_seed(1)).double()
    weights = (0.5 * u.square().sum(1) - energy.network(u).detach()).exp()
    error = float(weights.std() / weights.mean()) / math.sqrt(20_000)
    torch.testing.assert_close(energy.log_density(rows[:20]), expected, rtol=0, atol=3 * error + 1e-6)


def test_the_energy_does_not_depend_on_the_blocks(energy, rows, monkeypatch):
    whole = energy.energy(rows[:30])
    monkeypatch.setattr(module, "SCORE_BLOCK", 7)
    torch.testing.assert_close(energy.energy(rows[:30]), whole, rtol=0, atol=1e-12)
