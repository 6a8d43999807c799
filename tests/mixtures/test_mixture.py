import pytest
import torch

from pscd.mixtures import Mixture
from pscd.rng import generator


@pytest.fixture(scope="module")
def proposal():
    x = torch.cat([torch.randn(500, 2, generator=generator(0)) * 0.2 + centre for centre in (-2.0, 2.0)])
    return Mixture.fit(x, components=4, seed=0)


def test_the_broad_part_is_three_times_as_wide_as_the_rows(proposal):
    x = torch.cat([torch.randn(500, 2, generator=generator(0)) * 0.2 + centre for centre in (-2.0, 2.0)])
    torch.testing.assert_close(proposal.means[-1], x.mean(0))
    deviation = (x.var(0, correction=0) + 1e-3).sqrt()
    torch.testing.assert_close(proposal.factors[-1], torch.diag(3 * deviation))
    assert proposal.weights[-1].item() == pytest.approx(0.1)
    assert proposal.weights.sum().item() == pytest.approx(1)


def test_log_prob_is_that_of_torch_distributions(proposal):
    reference = torch.distributions.MixtureSameFamily(
        torch.distributions.Categorical(proposal.weights),
        torch.distributions.MultivariateNormal(proposal.means, scale_tril=proposal.factors),
    )
    x = 3 * torch.randn(100, 2, generator=generator(1))
    torch.testing.assert_close(proposal.log_prob(x), reference.log_prob(x), rtol=1e-3, atol=1e-3)


def test_draws_follow_the_density(proposal):
    # E[1 / g(x)] over a region is its area: here the square [-4, 4]^2.
    x = proposal.sample(200_000, generator(2))
    inside = (x.abs() < 4).all(1)
    inverse = torch.where(inside, torch.exp(-proposal.log_prob(x)), 0)
    assert inverse.mean().item() == pytest.approx(64, abs=5 * inverse.std().item() / 200_000**0.5)


def test_reaches_every_mode_and_beyond(proposal):
    x = proposal.sample(5000, generator(3))
    assert (x[:, 0] < -1).float().mean() > 0.3
    assert (x[:, 0] > 1).float().mean() > 0.3
    assert (x.abs() > 4).any(1).float().mean() > 0.02


def test_one_gaussian_has_the_moments_of_the_rows_that_are_not_far_out():
    x = torch.randn(1000, 2, generator=generator(0)) @ torch.tensor([[1.0, 0.5], [0.0, 0.8]])
    reference = torch.distributions.MultivariateNormal(x.mean(0), x.T.cov(correction=0))
    for rows in (x, torch.cat([x, torch.full((3, 2), 1e6)])):
        gaussian = Mixture.gaussian(rows)
        torch.testing.assert_close(gaussian.log_prob(x), reference.log_prob(x), rtol=1e-3, atol=1e-3)


def test_survives_constant_and_duplicate_columns_and_few_rows():
    x = torch.zeros(12, 3)
    x[:, 1] = torch.arange(12) % 2
    proposal = Mixture.fit(x, components=32, seed=0)
    assert proposal.sample(10, generator(0)).isfinite().all()
    assert proposal.log_prob(x).isfinite().all()


def test_tensors_are_enough_to_build_it_again(proposal):
    again = Mixture(**proposal.tensors()).to(torch.device("cpu"))
    x = torch.randn(5, 2, generator=generator(4))
    assert torch.equal(again.log_prob(x), proposal.log_prob(x))


def test_standard_is_a_gaussian_with_a_broad_tenth():
    proposal = Mixture.standard(3)
    x = torch.randn(50, 3, generator=generator(0))
    normal = torch.distributions.Independent(torch.distributions.Normal(torch.zeros(3), torch.ones(3)), 1)
    broad = torch.distributions.Independent(torch.distributions.Normal(torch.zeros(3), 3 * torch.ones(3)), 1)
    expected = (0.9 * normal.log_prob(x).exp() + 0.1 * broad.log_prob(x).exp()).log()
    torch.testing.assert_close(proposal.log_prob(x), expected, rtol=1e-4, atol=1e-4)


def test_a_wide_standard_gaussian_needs_no_matrices():
    """The same numbers as with its matrices, which the slightest skew brings back."""
    proposal = Mixture.standard(20)
    skewed = proposal.factors.clone()
    skewed[:, 1, 0] = 1e-9
    general = Mixture(proposal.weights, proposal.means, skewed)
    assert proposal.is_round
    assert not general.is_round
    x = proposal.sample(1000, generator(0))
    torch.testing.assert_close(x, general.sample(1000, generator(0)))
    torch.testing.assert_close(proposal.log_prob(x), general.log_prob(x), rtol=1e-5, atol=1e-5)


def test_wide_rows_are_drawn_like_narrow_ones():
    torch.manual_seed(0)
    factors = torch.linalg.cholesky(torch.eye(12) + 0.3 * torch.ones(3, 12, 12))
    proposal = Mixture(torch.tensor([0.2, 0.3, 0.5]), torch.randn(3, 12), factors)
    wide = proposal.sample(100, generator(0), max_gathered=0)
    torch.testing.assert_close(wide, proposal.sample(100, generator(0)))


def test_wide_data_get_few_components():
    x = torch.randn(200, 40, generator=generator(0))
    assert len(Mixture.fit(x, components=32, seed=0, max_size=100).weights) == 3  # two, and the broad one


def any_mixture(d, *, is_round=False):
    """Three components in float64, skewed in all columns unless round."""
    rng = generator(d)
    factors = torch.eye(d).double() * torch.tensor([0.5, 1.0, 2.0]).double()[:, None, None]
    if not is_round:
        factors = factors + 0.3 * torch.randn(3, d, d, generator=rng, dtype=torch.float64).tril(-1) / d**0.5
    means = torch.randn(3, d, generator=rng, dtype=torch.float64)
    return Mixture(torch.tensor([0.2, 0.3, 0.5]).double(), means, factors)


@pytest.mark.parametrize(("d", "is_round"), [(1, False), (2, False), (8, False), (9, False), (30, False), (12, True)])
def test_the_gradient_is_that_of_autograd(d, is_round):
    """To rounding: both are sums over three components in float64, of terms below 100."""
    mixture = any_mixture(d, is_round=is_round)
    assert mixture.is_round == is_round
    x = 3 * torch.randn(50, d, generator=generator(1), dtype=torch.float64)
    leaf = x.clone().requires_grad_()
    expected = mixture.log_prob(leaf)
    (slope,) = torch.autograd.grad(expected.sum(), leaf)
    log_prob, gradient = mixture.log_prob_and_gradient(x)
    torch.testing.assert_close(log_prob, expected.detach(), rtol=1e-12, atol=1e-11)
    torch.testing.assert_close(gradient, slope, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize(("d", "is_round"), [(2, False), (9, False), (12, True)])
def test_the_parts_are_the_components(d, is_round):
    mixture = any_mixture(d, is_round=is_round)
    x = torch.randn(20, d, generator=generator(1), dtype=torch.float64)
    parts = mixture.parts(x)
    for k in range(3):
        component = torch.distributions.MultivariateNormal(mixture.means[k], scale_tril=mixture.factors[k])
        torch.testing.assert_close(parts[:, k], component.log_prob(x) + mixture.weights[k].log())
    torch.testing.assert_close(parts.logsumexp(1), mixture.log_prob(x))


def test_far_away_the_gradient_points_back_and_is_finite():
    mixture = any_mixture(3)
    x = torch.full((1, 3), 1e6, dtype=torch.float64)
    log_prob, gradient = mixture.log_prob_and_gradient(x)
    assert log_prob.isfinite().all()
    assert (gradient < 0).all()


@pytest.mark.parametrize("d", [1, 3, 12])
def test_broadened_is_nine_tenths_of_it_and_a_gaussian_three_times_as_wide(d):
    mixture = any_mixture(d)
    broad = mixture.broadened()
    mean = mixture.weights @ mixture.means
    second = torch.stack([f @ f.T + torch.outer(m, m) for f, m in zip(mixture.factors, mixture.means, strict=True)])
    covariance = torch.einsum("k,kij->ij", mixture.weights, second) - torch.outer(mean, mean)
    around = torch.distributions.Normal(mean, 3 * covariance.diagonal().sqrt())
    x = 2 * torch.randn(30, d, generator=generator(2), dtype=torch.float64)
    expected = (0.9 * mixture.log_prob(x).exp() + 0.1 * around.log_prob(x).sum(1).exp()).log()
    torch.testing.assert_close(broad.log_prob(x), expected)


def test_one_gaussian_by_hand_with_a_column_that_never_varies():
    """A millionth is added to every variance; of the other column the rows far out do not count."""
    x = torch.randn(100, 2, generator=generator(0)).double()
    x[:, 1] = 5.0
    found = Mixture.gaussian(x)
    covariance = found.factors[0] @ found.factors[0].T
    centred = x - x.mean(0)
    expected = centred.T @ centred / 100 + 1e-6 * torch.eye(2).double()
    torch.testing.assert_close(covariance.double(), expected, rtol=1e-5, atol=1e-8)
    assert float(covariance[1, 1]) == pytest.approx(1e-6, rel=1e-3)


def test_what_is_derived_is_not_part_of_the_state():
    for mixture in (Mixture.standard(3), Mixture.standard(20)):
        assert mixture.state_dict().keys() == mixture.tensors().keys()


@pytest.mark.parametrize("dim", [2, 20])
def test_isotropic_is_one_gaussian_around_0(dim):
    x = torch.randn(30, dim, generator=generator(0))
    expected = torch.distributions.Normal(0.0, 0.7).log_prob(x).sum(1)
    torch.testing.assert_close(Mixture.isotropic(dim, 0.7).log_prob(x), expected, rtol=1e-4, atol=1e-4)


def test_weights_that_are_loaded_give_their_own_density():
    x = torch.randn(50, 3, generator=generator(0))
    one = Mixture.standard(3)
    other = Mixture(torch.tensor([0.3, 0.7]), torch.randn(2, 3, generator=generator(1)), 2 * one.factors)
    assert not torch.allclose(one.log_prob(x), other.log_prob(x))
    one.load_state_dict(other.state_dict())
    assert torch.equal(one.log_prob(x), other.log_prob(x))
    assert torch.equal(one.sample(5, generator(2)), other.sample(5, generator(2)))
