import pytest
import torch

from pscd.detector.gaussian import Gaussian, GaussianSettings, fit_gaussian, regularised
from pscd.rng import generator

EXACT = GaussianSettings(ridge=0.0, floor=0.0, shrink=0.0)


def clean(n=20_000):
    factor = torch.tensor([[1.0, 0.0], [0.8, 0.6]], dtype=torch.float64)
    return torch.randn(n, 2, generator=generator(0), dtype=torch.float64) @ factor.T


def with_outliers(share):
    z = clean()
    n = int(share * len(z))
    z[:n] = 0.1 * z[:n] + 6
    return z


def fitted(z, *, robust=True, spiked=False, settings=None):
    return fit_gaussian(z, robust=robust, spiked=torch.full((z.shape[1],), spiked), seed=0, settings=settings)


def test_without_robustness_it_is_mean_and_covariance():
    z = with_outliers(0.2)
    gaussian = fitted(z, robust=False, settings=EXACT)
    torch.testing.assert_close(gaussian.mean, z.mean(0))
    # With n rows of k columns the precision is shrunk by k / (n + k).
    torch.testing.assert_close(gaussian.covariance, torch.cov(z.T), rtol=3e-4, atol=0)


@pytest.mark.parametrize("share", [0.05, 0.2])
def test_a_cluster_of_outliers_is_ignored(share):
    plain, robust = (fitted(with_outliers(share), robust=robust, settings=EXACT) for robust in (False, True))
    truth = clean()
    assert (robust.mean - truth.mean(0)).abs().max() < 0.05
    assert (plain.mean - truth.mean(0)).abs().max() > 0.2
    assert (robust.covariance - torch.cov(truth.T)).abs().max() < 0.15


def test_clean_rows_are_fitted_almost_as_without_robustness():
    z = clean()
    robust, plain = fitted(z, settings=EXACT), fitted(z, robust=False, settings=EXACT)
    # The tail component and the background take a few percent of the outermost rows.
    torch.testing.assert_close(robust.covariance, plain.covariance, rtol=0.12, atol=0)


def test_coordinates_there_and_back():
    covariance = torch.tensor([[2.0, 0.5], [0.5, 1.0]])
    gaussian = Gaussian(torch.tensor([1.0, -2.0]), covariance)
    z = torch.randn(50, 2, generator=generator(1))
    torch.testing.assert_close(gaussian.colour(gaussian.whiten(z)), z)
    torch.testing.assert_close(gaussian.precision, covariance.inverse())
    reference = torch.distributions.MultivariateNormal(gaussian.mean, covariance)
    difference = gaussian.energy(z) + reference.log_prob(z)
    torch.testing.assert_close(difference, difference[0].expand(50), rtol=1e-4, atol=1e-4)


def test_duplicate_and_constant_columns_are_regular():
    z = clean(500)
    z = torch.cat([z, z[:, :1], torch.zeros(len(z), 1)], 1)
    assert torch.isfinite(fitted(z).factor).all()
    assert torch.isfinite(fitted(z[:2]).factor).all()


@pytest.mark.parametrize("p", [0.001, 0.003, 0.01])
def test_a_rare_value_costs_about_minus_its_log_probability(p):
    z = torch.zeros(10_000, 1, dtype=torch.float64)
    z[: int(p * len(z))] = torch.asinh(torch.tensor(p**-0.5))
    energy = fitted(z, robust=False, spiked=True).energy(z)
    surprise = -torch.log(torch.tensor(p)).item()
    assert float(energy[0] - energy[-1]) == pytest.approx(surprise, rel=0.3)


@pytest.mark.parametrize("shrink", [0.0, 0.5, 1.0])
def test_shrinking_keeps_the_mean_energy(shrink):
    z = clean()
    gaussian = fitted(z, robust=False, settings=GaussianSettings(ridge=0.0, floor=0.0, shrink=shrink))
    # tr(P S) = k for the precision of S, for that of its diagonal, and for all between; n / (n - 1) from the variance
    assert float(gaussian.energy(z).mean()) == pytest.approx(1.0, rel=1e-4)
    if shrink == 1:
        torch.testing.assert_close(gaussian.covariance, torch.diag(z.var(0)))


def test_ridge_floor_and_shrinkage_by_hand():
    settings = GaussianSettings(ridge=0.1, floor=0.0, shrink=0.5)
    covariance = torch.tensor([[4.0, 1.0], [1.0, 0.5]]).double()
    floor = torch.tensor([0.2, 1.0]).double()
    scatter = torch.tensor([[4.1, 1.0], [1.0, 1.1]]).double()
    weight = 1 - 0.5 * 6 / 8
    precision = (1 - weight) * scatter.inverse() + weight * torch.diag(1 / scatter.diagonal())
    torch.testing.assert_close(regularised(covariance, 6, floor, settings), precision.inverse())
