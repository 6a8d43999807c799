import math

import pytest
import torch

from pscd.losses import (
    contrastive_divergence,
    effective_sample_fraction,
    free_energy,
    importance_weights,
    pseudo_spherical,
)

GAMMAS = [-1.0, -0.5, 0.0, 0.1, 0.5, 1.0, 2.0]


def energies(dtype=torch.float64, n=64, seed=0):
    g = torch.Generator().manual_seed(seed)
    e_pos, e_neg = torch.randn(n, generator=g, dtype=dtype), 1 + 2 * torch.randn(n, generator=g, dtype=dtype)
    return e_pos.requires_grad_(), e_neg.requires_grad_()


def gradients(gamma, e_pos, e_neg):
    return torch.autograd.grad(pseudo_spherical(e_pos, e_neg, gamma), (e_pos, e_neg))


def test_contrastive_divergence_by_hand():
    assert contrastive_divergence(torch.tensor([1.0, 3.0]), torch.tensor([5.0, 7.0, 9.0])).item() == -5.0


def test_gamma_zero_is_exactly_contrastive_divergence():
    e_pos, e_neg = energies(torch.float32)
    assert torch.equal(pseudo_spherical(e_pos, e_neg, 0.0), contrastive_divergence(e_pos, e_neg))


@pytest.mark.parametrize("gamma", [1e-6, -1e-6, 1e-12])
@pytest.mark.parametrize("offset", [0.0, 100.0])
def test_smooth_through_zero_in_float32(gamma, offset):
    e_pos, e_neg = (e.detach() + offset for e in energies(torch.float32))
    e_pos.requires_grad_(), e_neg.requires_grad_()
    torch.testing.assert_close(
        pseudo_spherical(e_pos, e_neg, gamma), contrastive_divergence(e_pos, e_neg), rtol=1e-4, atol=0
    )
    for near, at in zip(gradients(gamma, e_pos, e_neg), gradients(0.0, e_pos, e_neg), strict=True):
        torch.testing.assert_close(near, at, rtol=1e-4, atol=0)


@pytest.mark.parametrize("gamma", GAMMAS)
def test_gradient_is_the_weights(gamma):
    e_pos, e_neg = energies()
    d_pos, d_neg = gradients(gamma, e_pos, e_neg)
    torch.testing.assert_close(d_pos, torch.softmax(-gamma * e_pos, 0))
    torch.testing.assert_close(d_neg, -torch.softmax(-gamma * e_neg, 0))


@pytest.mark.parametrize("gamma", [-0.5, 0.1, 0.5, 1.0, 2.0])
def test_gradient_equals_autograd_through_the_grid_integral(gamma):
    """Rows repeated in whole numbers stand for p and q exactly, so there is no sampling error at all."""
    x = torch.linspace(-3, 3, 61, dtype=torch.float64)
    p_counts = (400 * torch.exp(-((x - 0.5) ** 2))).round().long() + 1
    q_counts = (300 * torch.exp(-((x + 0.3) ** 2) / 3)).round().long() + 1
    theta = torch.zeros(3, dtype=torch.float64, requires_grad=True)

    def energy():  # at theta = 0, exp(-E) is proportional to q_counts
        return -q_counts.double().log() + theta[0] * x + theta[1] * x.sin() + theta[2] * x**2

    p = p_counts.double() / p_counts.sum()
    e = energy()
    exact = -(p * torch.exp(-gamma * e)).sum().log() / gamma + torch.logsumexp(-(gamma + 1) * e, 0) / (gamma + 1)
    (exact_gradient,) = torch.autograd.grad(exact, theta)
    e = energy()
    loss = pseudo_spherical(e.repeat_interleave(p_counts), e.repeat_interleave(q_counts), gamma)
    (gradient,) = torch.autograd.grad(loss, theta)
    torch.testing.assert_close(gradient, exact_gradient, rtol=1e-10, atol=1e-10)
    assert gradient.norm() > 1e-2


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_finite_for_huge_energies(gamma, dtype):
    e_pos, e_neg = (torch.tensor([-1e4, 0.0, 1e4], dtype=dtype, requires_grad=True) for _ in range(2))
    loss = pseudo_spherical(e_pos, e_neg, gamma)
    assert torch.isfinite(loss)
    assert all(torch.isfinite(g).all() for g in torch.autograd.grad(loss, (e_pos, e_neg)))


@pytest.mark.parametrize("gamma", GAMMAS)
def test_invariant_to_an_added_constant(gamma):
    e_pos, e_neg = (e.detach() for e in energies())
    shifted = pseudo_spherical(e_pos + 1234.5, e_neg + 1234.5, gamma)
    torch.testing.assert_close(shifted, pseudo_spherical(e_pos, e_neg, gamma), rtol=1e-9, atol=1e-9)


def test_free_energy_keeps_its_digits_when_one_row_of_many_counts():
    e = torch.full((100_000,), 50.0)
    e[7] = 0.0
    assert free_energy(e, 1.0).item() == pytest.approx(math.log(100_000), rel=1e-6)
    assert free_energy(e, -1.0).item() == pytest.approx(50 + math.log(99_999 / 100_000), rel=1e-6)


def test_outliers_count_less_with_larger_gamma():
    e_pos = torch.tensor([0.0, 0.0, 5.0], requires_grad=True)
    share = [torch.autograd.grad(pseudo_spherical(e_pos, torch.zeros(3), g), e_pos)[0][2].item() for g in (0, 0.5, 1)]
    assert share[0] == pytest.approx(1 / 3)
    assert share[0] > share[1] > share[2] > 0


@pytest.mark.parametrize("gamma", [-1.01, math.nan, math.inf])
def test_refuses_gamma_out_of_range(gamma):
    with pytest.raises(ValueError, match="gamma must be"):
        pseudo_spherical(torch.zeros(2), torch.zeros(2), gamma)


@pytest.mark.parametrize("loss", [contrastive_divergence, lambda p, n: pseudo_spherical(p, n, 1.0)])
def test_refuses_bad_energies(loss):
    with pytest.raises(ValueError, match="e_neg contains NaN"):
        loss(torch.zeros(2), torch.tensor([0.0, math.nan]))
    with pytest.raises(ValueError, match=r"e_pos must hold one energy per row.*\(2, 1\)"):
        loss(torch.zeros(2, 1), torch.zeros(2))
    with pytest.raises(ValueError, match="e_pos must hold"):
        loss(torch.zeros(0), torch.zeros(2))


def test_effective_sample_fraction():
    assert effective_sample_fraction(torch.ones(7)).item() == pytest.approx(1)
    assert effective_sample_fraction(torch.tensor([1.0, 0, 0, 0])).item() == 0.25


def test_effective_sample_fraction_of_a_gaussian_is_the_closed_form():
    """((1 + 2g) / (1 + g)^2)^(d/2) for a d-dimensional Gaussian; .75 at gamma 1, d = 2."""
    z = torch.randn(200_000, 2, generator=torch.Generator().manual_seed(0))
    ess = effective_sample_fraction(importance_weights(z.square().sum(1) / 2, 1.0))
    assert ess.item() == pytest.approx(0.75, abs=0.005)
