import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal

from pscd.detector.gaussian import Gaussian
from pscd.detector.numbers import NumberEnergy, fit_numbers


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
