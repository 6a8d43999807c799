import math

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal

from pscd.detector import numbers as module
from pscd.detector.numbers import NumberEnergy, fit_numbers, silverman, training


@pytest.fixture(scope="module")
def rows():
    mixing = torch.tensor([[1.0, 0.0, 0.0], [0.8, 0.6, 0.0], [0.3, -0.5, 0.9]]).double()
    return torch.randn(500, 3, generator=torch.Generator().manual_seed(0)).double() @ mixing.T


@pytest.fixture(scope="module")
def energy(rows):
    return fit(rows, gamma=0.0, updates=20)


def fit(rows, **settings):
    spiked = torch.zeros(rows.shape[1], dtype=torch.bool)
    return fit_numbers(rows, **{"bound": 2.0, "seed": 0, "spiked": spiked, "verbose": False} | settings)


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


def test_silverman_by_hand():
    assert silverman(1000, 2) == pytest.approx(1000 ** (-1 / 6))  # (4 / (d + 2)) is 1 at d = 2


def test_the_network_is_trained_with_gamma():
    """A far cluster of a tenth of the rows: at gamma 0 the network makes room for it, at gamma 1 it does not."""
    angle = 2 * torch.pi * torch.rand(450, generator=torch.Generator().manual_seed(3)).double()
    ring = 3 * torch.stack([angle.cos(), angle.sin()], 1)
    x = torch.cat([ring, torch.full((50, 2), 9.0).double()])
    corrections = []
    for gamma in (0.0, 1.0):
        energy = fit(x, gamma=gamma, bound=4.0, updates=150)
        correction = energy.energy(x) - energy.gaussian.energy(x)
        corrections.append(correction[450:].mean() - correction[:450].mean())
        assert energy.model.config.objective.gamma == gamma
    assert corrections[0] < -0.5
    assert corrections[1] > corrections[0] + 1


def test_a_fit_goes_by_its_seed_and_leaves_the_global_generator_alone(rows):
    state = torch.get_rng_state()
    one, same, other = (fit(rows, gamma=0.5, updates=2, seed=seed).energy(rows) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert training(0.5, 2, 1, noise=0.1).rows.data_noise == 0.1


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
