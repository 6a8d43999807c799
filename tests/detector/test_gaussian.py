import pytest
import torch

from pscd.detector.gaussian import Gaussian, fit_gaussian, floors, gamma_for_share, majority, silverman
from pscd.losses import effective_sample_fraction, free_energy, importance_weights
from pscd.metrics import auroc
from pscd.mixtures.neighbours import isolation
from pscd.rng import Stream, generator


def clean(n=20_000, d=2):
    factor = torch.tensor([[1.0, 0.0], [0.8, 0.6]], dtype=torch.float64)
    return torch.randn(n, d, generator=generator(0), dtype=torch.float64) @ factor.T


def with_junk(share=0.2):
    z = clean()
    n = int(share * len(z))
    z[:n] = 0.1 * z[:n] + 6
    return z


def by_hand():
    covariance = torch.tensor([[2.0, 0.5], [0.5, 1.0]])
    return Gaussian(torch.tensor([1.0, -2.0]), covariance, 0.0, covariance)


def test_gamma_zero_is_mean_and_covariance():
    z = with_junk()
    fitted = fit_gaussian(z, gamma=0.0, ridge=0.0, floor=0.0, shrink=0.0)
    torch.testing.assert_close(fitted.mean, z.mean(0))
    torch.testing.assert_close(fitted.covariance, torch.cov(z.T))


def test_the_score_is_stationary():
    """-1/gamma log E[exp(-gamma E)] + log ||exp(-E)||_{gamma+1}, closed form for a Gaussian."""
    z, gamma = with_junk(0.05), 0.5
    fitted = fit_gaussian(z, gamma=gamma, ridge=0.0, floor=0.0, shrink=0.0)
    mean, factor = fitted.mean.clone().requires_grad_(), fitted.factor.clone().requires_grad_()
    u = torch.linalg.solve_triangular(factor, (z - mean).T, upper=False).T
    energy = 0.5 * u.square().sum(1)
    # log of the norm is the log determinant of the factor over (1 + gamma), up to a constant
    loss = free_energy(energy, gamma) + factor.diagonal().log().sum() / (1 + gamma)
    for gradient in torch.autograd.grad(loss, [mean, factor]):
        lower = gradient.tril() if gradient.ndim == 2 else gradient
        assert lower.abs().max() < 1e-6


@pytest.mark.parametrize("share", [0.05, 0.2, 0.4])
def test_junk_is_ignored(share):
    plain, robust = (fit_gaussian(with_junk(share), gamma=gamma, shrink=0.0) for gamma in (0.0, 0.5))
    truth = clean()
    assert (robust.mean - truth.mean(0)).abs().max() < 0.05
    assert (plain.mean - truth.mean(0)).abs().max() > 0.2
    expected = torch.cov(truth.T) + 0.05 * torch.eye(2)
    assert (robust.scatter - expected).abs().max() < 0.08


def test_clean_gaussian_data_are_fitted_without_bias():
    z = clean()
    robust = fit_gaussian(z, gamma=0.5, ridge=0.0, floor=0.0, shrink=0.0)
    # The robust estimate is unbiased; its standard error is a small multiple of 1 / sqrt(n).
    assert (robust.covariance - torch.cov(z.T)).abs().max() < 5 * 2 / len(z) ** 0.5


@pytest.mark.parametrize("share", [1.0, 0.9, 0.75])
def test_gamma_is_chosen_by_the_share_of_rows_in_effect(share):
    z = with_junk(0.1)
    fitted = fit_gaussian(z, share=share)
    left = effective_sample_fraction(importance_weights(fitted.energy(z), fitted.gamma))
    assert float(left) == pytest.approx(share, abs=0.01)
    assert (fitted.gamma == 0) == (share == 1)


def test_gamma_for_share_by_formula():
    # Energies of a d-dimensional Gaussian: ((1 + 2g) / (1 + g)^2)^(d/2); at d = 2 and g = 1 that is 3/4.
    energy = 0.5 * torch.randn(400_000, 2, generator=generator(0)).square().sum(1)
    assert gamma_for_share(energy, 0.75, most=5.0) == pytest.approx(1.0, abs=0.02)
    assert gamma_for_share(energy, 0.1) == 1.0


def test_coordinates_there_and_back():
    fitted = by_hand()
    z = torch.randn(50, 2, generator=generator(1))
    torch.testing.assert_close(fitted.colour(fitted.whiten(z)), z)
    reference = torch.distributions.MultivariateNormal(fitted.mean, fitted.covariance)
    difference = fitted.energy(z) + reference.log_prob(z)
    torch.testing.assert_close(difference, difference[0].expand(50), rtol=1e-4, atol=1e-4)


def test_a_replaced_column_is_the_conditional_mean():
    fitted = by_hand()
    replaced = fitted.without_column(torch.tensor([[9.0, 0.0]]), 0)
    assert replaced[0].tolist() == pytest.approx([1 + 0.5 / 1.0 * 2, 0.0])


def test_duplicate_and_constant_columns_are_no_trouble():
    z = clean()
    z = torch.cat([z, z[:, :1], torch.zeros(len(z), 1)], 1)
    assert torch.isfinite(fit_gaussian(z, gamma=0.5).factor).all()


@pytest.mark.parametrize(("n", "k"), [(100, 2), (300, 30), (5000, 10)])
def test_nothing_to_be_robust_against_means_gamma_zero(n, k):
    z = torch.randn(n, k, generator=generator(n), dtype=torch.float64)
    assert majority(z, 0.8, inside=0.99, clean=0.05).gamma == 0
    z[: n // 10] = 5 + 0.1 * z[: n // 10]
    assert majority(z, 0.8, inside=0.99, clean=0.05).gamma > 0


@pytest.mark.parametrize(("n", "k"), [(400, 5), (2000, 20)])
@pytest.mark.parametrize("junk", [0.05, 0.2])
def test_a_group_apart_calls_for_robustness(n, k, junk):
    """Tight junk at a few deviations, which the plain Gaussian takes for a part of the data."""
    z = torch.randn(n, k, generator=generator(n), dtype=torch.float64)
    z[: int(junk * n)] = 8 / k**0.5 + 0.5 + 0.2 * z[: int(junk * n)]
    assert majority(z, 0.75, inside=0.99, clean=0.05).gamma > 0


def test_long_tails_of_the_majority_do_not():
    """One column is exponential; in the others junk lies on a circle of three deviations."""
    rng, n, junk = generator(0), 2000, 100
    z = torch.randn(n, 3, generator=rng, dtype=torch.float64)
    z[:, 0] = -2 * torch.rand(n, generator=rng, dtype=torch.float64).log()
    angle = 2 * torch.pi * torch.rand(junk, generator=rng, dtype=torch.float64)
    z[:junk, 1:] = 3 * torch.stack([angle.cos(), angle.sin()], 1)
    plain, robust = fit_gaussian(z, gamma=0.0), fit_gaussian(z, share=0.75)
    assert robust.outside(z, 0.99).double().mean() > 0.05
    plain_finds, robust_finds = (auroc(g.energy(z)[junk:], g.energy(z)[:junk]) for g in (plain, robust))
    assert plain_finds > robust_finds + 0.03  # for the robust one the end of the tail is as strange as the junk
    assert majority(z, 0.75, inside=0.99, clean=0.05).gamma == 0


def test_isolation_by_hand():
    # Ten rows on a line: the neighbours that count are the fifth ones.
    u = torch.tensor([[0.0], [1], [2], [3], [4], [5], [6], [7], [8], [100]]).double()
    assert isolation(u).tolist() == pytest.approx([5, 4, 3, 3, 3, 3, 3, 4, 5, 96], rel=1e-12)
    assert isolation(u[:2]).tolist() == [1, 1]


def test_the_share_outside_is_what_it_should_be():
    z = torch.randn(100_000, 3, generator=generator(0), dtype=torch.float64)
    # five standard errors of a share of one in a hundred, doubled for the median's own error
    error = 2 * 5 * (0.01 * 0.99 / len(z)) ** 0.5
    assert fit_gaussian(z, gamma=0.0).outside(z, 0.99).double().mean() == pytest.approx(0.01, abs=error)
    wide = fit_gaussian(z, gamma=0.0, ridge=3.0)
    assert wide.outside(z, 0.99).double().mean() == pytest.approx(0.01, abs=error)


def test_silverman_by_hand():
    assert silverman(1000, 2) == pytest.approx(1000 ** (-1 / 6))  # (4 / (d + 2)) is 1 at d = 2


@pytest.mark.parametrize("p", [0.001, 0.003, 0.01])
def test_a_rare_value_costs_about_minus_its_log_probability(p):
    z = torch.zeros(10_000, 1, dtype=torch.float64)
    z[: int(p * len(z))] = torch.asinh(torch.tensor(p**-0.5))
    energy = fit_gaussian(z, gamma=0.0, floor=floors(torch.tensor([True]))).energy(z)
    surprise = -torch.log(torch.tensor(p)).item()
    assert float(energy[0] - energy[-1]) == pytest.approx(surprise, rel=0.3)


@pytest.mark.parametrize("shrink", [0.0, 0.5, 1.0])
def test_shrinking_keeps_the_mean_energy(shrink):
    z = clean()
    fitted = fit_gaussian(z, gamma=0.0, ridge=0.0, floor=0.0, shrink=shrink)
    # tr(P S) = k for the precision of S, for that of its diagonal, and for all between; n / (n - 1) from the variance
    assert float(fitted.energy(z).mean()) == pytest.approx(1.0, rel=1e-4)
    if shrink == 1:
        torch.testing.assert_close(fitted.covariance, torch.diag(z.var(0)))


def test_the_gate_is_right_for_correlated_columns():
    # Shrinking makes energies of correlated Gaussian rows spread more than a chi-squared would.
    z = torch.randn(20_000, 1, generator=generator(0), dtype=torch.float64)
    z = z + 0.3 * torch.randn(20_000, 20, generator=generator(1), dtype=torch.float64)
    fitted = fit_gaussian(z, gamma=0.0)
    assert fitted.outside(z, 0.99).double().mean() == pytest.approx(
        0.01, abs=0.02
    )  # the ridge is not small beside 0.3^2


def test_variances_have_a_ridge_and_a_floor_and_precisions_are_drawn_to_independent_columns():
    """By hand for seven rows of two columns, the second of which hardly varies."""
    z = torch.randn(7, 2, generator=generator(0), dtype=torch.float64) * torch.tensor([2.0, 0.1])
    covariance = torch.cov(z.T)
    scatter = covariance.clone()
    scatter[0, 0] += 0.05
    scatter[1, 1] = 0.2 + 0.05
    drawn = 1 - 0.5 * 7 / 9
    precision = (1 - drawn) * scatter.inverse() + drawn * torch.diag(1 / scatter.diagonal())
    fitted = fit_gaussian(z, gamma=0.0)
    torch.testing.assert_close(fitted.scatter, scatter)
    torch.testing.assert_close(fitted.precision, precision)
    torch.testing.assert_close(fitted.covariance, precision.inverse())
    assert fitted.gamma == 0
    assert floors(torch.tensor([True, False])).tolist() == pytest.approx([1.0, 0.2])
    spiked = fit_gaussian(z, gamma=0.0, floor=floors(torch.tensor([False, True])))
    assert spiked.scatter[1, 1] == pytest.approx(1.05)
    assert fit_gaussian(z, share=1.0).gamma == 0
    one = fit_gaussian(z[:, :1], gamma=0.0)
    assert one.scatter.item() == pytest.approx(covariance[0, 0].item() + 0.05)


def test_a_fixed_point_by_hand():
    """The iteration from the half nearest to the median, three rounds of it written out."""
    z, gamma = with_junk()[::40], 0.5
    distance = (z - z.median(0).values).square().sum(1)
    middle = z[distance <= distance.median()]
    mean = middle.mean(0)
    covariance = (middle - mean).T @ (middle - mean) / len(middle)
    for _ in range(60):
        inverse = (covariance + 0.05 * torch.eye(2)).inverse()
        w = torch.softmax(-gamma * 0.5 * ((z - mean) @ inverse * (z - mean)).sum(1), 0)
        mean = w @ z
        covariance = (1 + gamma) * ((z - mean) * w[:, None]).T @ (z - mean)
    fitted = fit_gaussian(z, gamma=gamma, shrink=0.0, floor=0.0)
    torch.testing.assert_close(fitted.mean, mean, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(fitted.scatter, covariance + 0.05 * torch.eye(2), rtol=1e-8, atol=1e-8)


def test_what_lies_outside_is_counted_from_the_median_energy():
    z = clean(2000)
    fitted = fit_gaussian(z, gamma=0.0)
    whitened = torch.linalg.solve_triangular(fitted.factor, fitted.scatter, upper=False)
    weights = torch.linalg.eigvalsh(torch.linalg.solve_triangular(fitted.factor, whitened.T, upper=False))
    rng = generator(0, Stream.GAUSSIAN_CALIBRATION)
    draws = torch.randn(20_000, 2, generator=rng, dtype=torch.float64).square() @ weights
    limit = fitted.energy(z).median() * draws.quantile(0.9) / draws.median()
    assert torch.equal(fitted.outside(z, 0.9), fitted.energy(z) > limit)


class Fixed:
    """A Gaussian whose answers are given."""

    def __init__(self, beyond, energies):
        self.beyond, self.energies = beyond, energies

    def outside(self, z, inside):
        return self.beyond

    def whiten(self, z):
        return z

    def energy(self, z):
        return self.energies


def decided(monkeypatch, beyond, away, robust_energy, plain_energy):
    """Whether the majority gets the robust Gaussian, and how many rows counted as odd, if that was asked."""
    robust, plain, odd = Fixed(beyond, robust_energy), Fixed(beyond, plain_energy), []

    def spy(low, high):
        odd.append(len(high))
        return auroc(low, high)

    monkeypatch.setattr(
        "pscd.detector.gaussian.fit_gaussian", lambda z, gamma=None, **_: robust if gamma is None else plain
    )
    monkeypatch.setattr("pscd.detector.gaussian.isolation", lambda z: away)
    monkeypatch.setattr("pscd.detector.gaussian.auroc", spy)
    found = majority(torch.zeros(len(away), 1).double(), 0.5, inside=0.9, clean=0.05)
    return found is robust, odd[0] if odd else None


@pytest.mark.parametrize(
    ("beyond", "dense", "robust"),
    [(4, 4, False), (5, 5, True), (6, 5, True), (6, 4, None)],
    ids=["few outside", "a dense group", "and some others", "neither"],
)
def test_which_gaussian_the_majority_gets(monkeypatch, beyond, dense, robust):
    """Of a hundred rows the first are outside, and of these the first close together."""
    rows = torch.arange(100)
    away = torch.where(rows < dense, 0.0, torch.where(rows < beyond, 1000.0, 1.0 + rows)).double()
    odd = (rows < dense) | (away >= away.sort().values[-10])
    tells, nothing = odd.double(), torch.zeros(100).double()
    for first, second in ((tells, nothing), (nothing, tells), (nothing, nothing)):
        expected = robust if robust is not None else second is nothing
        assert decided(monkeypatch, rows < beyond, away, first, second) == (expected, 14 if robust is None else None)


def test_a_group_is_dense_below_three_quarters_of_what_the_majority_has(monkeypatch):
    """Ninety rows of the majority are 0, 1, ... 89 away, three quarters of them up to 66.75."""
    beyond = torch.arange(100) >= 90
    energy = torch.zeros(100).double()
    for away, robust in ((66.7, True), (66.8, None)):
        found = decided(monkeypatch, beyond, torch.where(beyond, away, torch.arange(100.0)).double(), energy, energy)
        assert found == (True, None if robust else 10)


@pytest.mark.parametrize(("n", "odd"), [(9, 1), (19, 1), (20, 2), (300, 30)])
def test_a_tenth_of_the_rows_but_at_least_one_counts_as_odd(monkeypatch, n, odd):
    rows = torch.arange(n)
    energy = torch.zeros(n).double()
    assert decided(monkeypatch, rows >= n - n // 3, rows.double(), energy, energy)[1] == odd


def test_gamma_for_a_share_at_its_ends():
    energy = torch.tensor([0.0, 1.0, 2.0, 5.0], dtype=torch.float64)
    assert gamma_for_share(energy, 1.0) == 0
    assert gamma_for_share(torch.arange(5.0).double(), 1.0) == 0  # though by rounding no gamma has this share
    least = float(effective_sample_fraction(importance_weights(energy, 1.0)))
    assert gamma_for_share(energy, least) == 1.0
    assert gamma_for_share(energy, least - 0.01) == 1.0
    assert gamma_for_share(energy, least - 0.01, most=3.0) > 1.0
    assert gamma_for_share(energy, least + 1e-6) == pytest.approx(1.0, abs=1e-4)
