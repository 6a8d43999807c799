import math

import numpy as np
import pytest
import torch
from torch import nn

from pscd.energies import MLP, Quadratic
from pscd.errors import UserError
from pscd.losses import (
    DIVERGENCES,
    MAX_LOG_RATIO,
    contrastive_divergence,
    denoising_score_matching,
    density_power,
    effective_sample_fraction,
    f_ebm,
    free_energy,
    importance_weights,
    input_gradient,
    mixed,
    noise_contrastive,
    pseudo_spherical,
    score_matching,
    sliced_score_matching,
    trimmed,
    variational_bound,
    weighted_negatives,
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


def on_a_grid():
    """How often each point stands in a batch of data and in one of samples, and an energy with parameters."""
    x = torch.linspace(-3, 3, 61, dtype=torch.float64)
    p_counts = (400 * torch.exp(-((x - 0.5) ** 2))).round().long() + 1
    q_counts = (300 * torch.exp(-((x + 0.3) ** 2) / 3)).round().long() + 1
    theta = torch.zeros(3, dtype=torch.float64, requires_grad=True)

    def energy():  # at theta = 0, exp(-E) is proportional to q_counts
        return -q_counts.double().log() + theta[0] * x + theta[1] * x.sin() + theta[2] * x**2

    return p_counts, q_counts, theta, energy


@pytest.mark.parametrize("gamma", [-0.5, 0.1, 0.5, 1.0, 2.0])
def test_gradient_equals_autograd_through_the_grid_integral(gamma):
    """Rows repeated in whole numbers stand for p and q exactly, so there is no sampling error at all."""
    p_counts, q_counts, theta, energy = on_a_grid()
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


ENERGIES = ("e_pos", "e_neg")
RATIOS = ("log_ratio_pos", "log_ratio_neg")
JS = DIVERGENCES["js"]
REFUSING = {
    "cd": (ENERGIES, contrastive_divergence),
    "ps-cd": (ENERGIES, lambda p, n: pseudo_spherical(p, n, 1.0)),
    "negatives-only": (ENERGIES, lambda p, n: weighted_negatives(p, n, 1.0)),
    "trimmed": (ENERGIES, lambda p, n: trimmed(p, n, 0.5)),
    "beta": (ENERGIES, lambda p, n: density_power(p, n, 0.5)),
    "f-ebm": (("e_pos", "e_neg", "c_pos", "c_neg"), lambda *parts: f_ebm(*parts, JS)),
    "bound": (RATIOS, lambda p, n: variational_bound(p, n, JS)),
    "nce": (RATIOS, lambda p, n: noise_contrastive(p, n, ratio=1.0, f=JS)),
}


@pytest.mark.parametrize(
    ("loss", "place"), [(name, i) for name, (parts, _) in REFUSING.items() for i in range(len(parts))]
)
def test_every_loss_refuses_bad_energies_in_every_place(loss, place):
    names, function = REFUSING[loss]
    good = [torch.zeros(2)] * len(names)
    assert function(*good).isfinite()
    for bad, message in (
        (torch.tensor([0.0, math.nan]), f"{names[place]} contains NaN"),
        (torch.zeros(2, 1), rf"{names[place]} must hold one energy per row.*\(2, 1\)"),
        (torch.zeros(0), f"{names[place]} must hold"),
    ):
        with pytest.raises(ValueError, match=message):
            function(*good[:place], bad, *good[place + 1 :])


def test_effective_sample_fraction():
    assert effective_sample_fraction(torch.ones(7)).item() == pytest.approx(1)
    assert effective_sample_fraction(torch.tensor([1.0, 0, 0, 0])).item() == 0.25


def test_effective_sample_fraction_of_a_gaussian_is_the_closed_form():
    """((1 + 2g) / (1 + g)^2)^(d/2) for a d-dimensional Gaussian; .75 at gamma 1, d = 2."""
    z = torch.randn(200_000, 2, generator=torch.Generator().manual_seed(0))
    ess = effective_sample_fraction(importance_weights(z.square().sum(1) / 2, 1.0))
    assert ess.item() == pytest.approx(0.75, abs=0.005)


def test_trimmed_by_hand():
    """Of five rows two do not count at .4: those of the highest energies, 7 and 9; the others share the gradient."""
    e_pos = torch.tensor([9.0, 1.0, 2.0, 7.0, 3.0], requires_grad=True)
    e_neg = torch.tensor([4.0, 6.0], requires_grad=True)
    loss = trimmed(e_pos, e_neg, alpha=0.4)
    assert loss.item() == 2.0 - 5.0
    d_pos, d_neg = torch.autograd.grad(loss, (e_pos, e_neg))
    torch.testing.assert_close(d_pos, torch.tensor([0.0, 1 / 3, 1 / 3, 0.0, 1 / 3]))
    torch.testing.assert_close(d_neg, torch.tensor([-0.5, -0.5]))


def test_trimmed_by_nothing_is_cd_and_whole_numbers_of_rows_are_left_out():
    e_pos, e_neg = energies()
    torch.testing.assert_close(trimmed(e_pos, e_neg, 0.0), contrastive_divergence(e_pos, e_neg))
    ten = torch.arange(10.0)
    # .3 * 10 is 3 rows, .29 * 10 only 2: means of 0 to 6, and of 0 to 7.
    assert trimmed(ten, torch.zeros(1), 0.3).item() == 3.0
    assert trimmed(ten, torch.zeros(1), 0.29).item() == 3.5
    with pytest.raises(ValueError, match="alpha"):
        trimmed(e_pos, e_neg, 1.0)


def test_weighted_negatives_is_cd_on_r():
    e_pos, e_neg = energies()
    d_pos, d_neg = torch.autograd.grad(weighted_negatives(e_pos, e_neg, 0.5), (e_pos, e_neg))
    torch.testing.assert_close(d_pos, torch.full_like(e_pos, 1 / len(e_pos)))
    torch.testing.assert_close(d_neg, -torch.softmax(-0.5 * e_neg, 0))
    torch.testing.assert_close(weighted_negatives(e_pos, e_neg, 0.0), contrastive_divergence(e_pos, e_neg))


@pytest.mark.parametrize("beta", [0.1, 0.5, 1.0, 2.0])
def test_density_power_has_the_gradient_of_the_divergence_and_its_direction_without_log_z(beta):
    p_counts, q_counts, theta, energy = on_a_grid()
    p, e = p_counts.double() / p_counts.sum(), energy()
    log_z = torch.logsumexp(-e, 0)
    log_q = -e - log_z
    exact = -(p * (beta * log_q).exp()).sum() / beta + ((1 + beta) * log_q).exp().sum() / (1 + beta)
    (exact_gradient,) = torch.autograd.grad(exact, theta)

    def gradient(**settings):
        e = energy()
        loss = density_power(e.repeat_interleave(p_counts), e.repeat_interleave(q_counts), beta, **settings)
        return torch.autograd.grad(loss, theta)[0]

    torch.testing.assert_close(gradient(log_z=log_z.item()), exact_gradient)
    mean_power = ((1 + beta) * log_q).exp().sum().detach()
    torch.testing.assert_close(gradient() * mean_power, exact_gradient)
    assert exact_gradient.norm() > 1e-4


def test_density_power_at_zero_is_contrastive_divergence_and_no_constant_matters():
    e_pos, e_neg = energies()
    torch.testing.assert_close(density_power(e_pos, e_neg, 0.0), contrastive_divergence(e_pos, e_neg))
    shifted = density_power(e_pos + 1234.5, e_neg + 1234.5, 0.5)
    torch.testing.assert_close(shifted, density_power(e_pos, e_neg, 0.5), rtol=1e-9, atol=1e-9)
    with pytest.raises(ValueError, match="beta must be"):
        density_power(e_pos, e_neg, -0.1)


F = {
    "kl": lambda u: u * u.log(),
    "reverse-kl": lambda u: -u.log(),
    "hellinger": lambda u: (u.sqrt() - 1) ** 2,
    "js": lambda u: u * u.log() - (u + 1) * ((u + 1) / 2).log(),
}


@pytest.mark.parametrize("name", DIVERGENCES)
def test_divergences_are_those_of_their_f(name):
    f = DIVERGENCES[name]
    t = torch.linspace(-4, 4, 41, dtype=torch.float64)
    u = t.exp().requires_grad_()
    (slope,) = torch.autograd.grad(F[name](u).sum(), u)
    torch.testing.assert_close(f.slope(t), slope)
    torch.testing.assert_close(f.conjugate(t), u.detach() * slope - F[name](u.detach()))
    far = torch.tensor([-1e3, 1e3], requires_grad=True)
    assert torch.isfinite(torch.autograd.grad((f.slope(far) + f.conjugate(far)).sum(), far)[0]).all()


@pytest.mark.parametrize("name", DIVERGENCES)
def test_beyond_the_largest_ratios_a_divergence_stays_one(name):
    """Convex f: the conjugate's slope is exp(t) times that of f'. No slope is larger than at the edge."""
    t = torch.linspace(-3 * MAX_LOG_RATIO, 3 * MAX_LOG_RATIO, 62, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(DIVERGENCES[name].slope(t).sum(), t)
    (conjugate,) = torch.autograd.grad(DIVERGENCES[name].conjugate(t).sum(), t)
    torch.testing.assert_close(conjugate, t.exp() * slope)
    assert (slope > 0).all()
    assert max(slope.max(), conjugate.max()) < math.exp(MAX_LOG_RATIO) + 1e-6


@pytest.mark.parametrize("name", DIVERGENCES)
def test_the_bound_is_the_divergence_at_the_true_ratio_and_below_it_elsewhere(name):
    p_counts, q_counts, _, _ = on_a_grid()
    p, q = p_counts.double() / p_counts.sum(), q_counts.double() / q_counts.sum()

    def bound(log_ratio):
        return variational_bound(
            log_ratio.repeat_interleave(p_counts), log_ratio.repeat_interleave(q_counts), DIVERGENCES[name]
        )

    exact = (q * F[name](p / q)).sum()
    torch.testing.assert_close(bound((p / q).log()), exact)
    assert bound((p / q).log() + 0.1) < exact
    assert bound(0.9 * (p / q).log()) < exact


@pytest.mark.parametrize("name", DIVERGENCES)
@pytest.mark.parametrize("optimal", [True, False])
def test_f_ebm_has_the_gradients_of_its_game(name, optimal):
    """Against autograd through the sums: the divergence itself at the best critic, the game's value at any other.

    The critic has learnt the log Z of this theta as a constant; the energy's log Z changes with theta.
    """
    p_counts, q_counts, theta, energy = on_a_grid()
    p, e, f = p_counts.double() / p_counts.sum(), energy(), DIVERGENCES[name]
    log_q = torch.log_softmax(-e, 0)
    critic = (p.log() - log_q - e).detach()
    if not optimal:
        critic = critic + 0.2 * torch.sin(torch.arange(len(p)).double())
    critic.requires_grad_()
    if optimal:
        value = (log_q.exp() * F[name](p / log_q.exp())).sum()
    else:
        log_z = torch.logsumexp(-e, 0)
        ratio = critic + e + log_z - log_z.detach()
        value = (p * f.slope(ratio)).sum() - (log_q.exp() * f.conjugate(ratio)).sum()
    (d_theta,) = torch.autograd.grad(value, theta, retain_graph=True)
    e = energy()
    rows = [v.repeat_interleave(counts) for v in (e, critic) for counts in (p_counts, q_counts)]
    found_theta, found_critic = torch.autograd.grad(f_ebm(*rows, f), (theta, critic))
    torch.testing.assert_close(found_theta, d_theta)
    assert d_theta.norm() > 1e-2
    if optimal:
        torch.testing.assert_close(found_critic, torch.zeros_like(critic))
    else:
        torch.testing.assert_close(found_critic, -torch.autograd.grad(value, critic)[0])  # it climbs


@pytest.mark.parametrize("wrong", [0.0, 1.0, 30.0])  # the last far beyond what a divergence bears
def test_f_ebm_with_kl_is_contrastive_divergence_whatever_the_critic(wrong):
    p_counts, q_counts, theta, energy = on_a_grid()
    e = energy()
    critic = (p_counts.double() / p_counts.sum()).log() - torch.log_softmax(-e.detach(), 0) - e.detach()
    critic = critic + wrong * torch.cos(torch.arange(61).double())
    rows = [v.repeat_interleave(counts) for v in (e, critic) for counts in (p_counts, q_counts)]
    (result,) = torch.autograd.grad(f_ebm(*rows, DIVERGENCES["kl"]), theta, retain_graph=True)
    (cd,) = torch.autograd.grad(contrastive_divergence(*rows[:2]), theta)
    torch.testing.assert_close(result, cd)


@pytest.mark.parametrize("name", DIVERGENCES)
def test_f_ebm_does_not_move_the_energy_along_a_constant(name):
    rows = [e.detach() for seed in (0, 1) for e in energies(seed=seed)]
    shift = torch.zeros((), dtype=torch.float64, requires_grad=True)
    loss = f_ebm(rows[0] + shift, rows[1] + shift, rows[2], rows[3], DIVERGENCES[name])
    assert torch.autograd.grad(loss, shift)[0].item() == pytest.approx(0, abs=1e-12)


def test_noise_contrastive_estimation_is_logistic_regression():
    pos, noise = (e.detach() for e in energies())
    logits = torch.cat([pos, noise]) - math.log(3)
    target = torch.cat([torch.ones(64), torch.zeros(64)]).double()
    entropy = nn.functional.binary_cross_entropy_with_logits(
        logits, target, weight=torch.where(target > 0, 1 / 64, 3 / 64), reduction="sum"
    )
    loss = noise_contrastive(pos, noise, ratio=3, f=DIVERGENCES["js"])
    torch.testing.assert_close(loss, entropy - 4 * math.log(2))


@pytest.mark.parametrize("name", DIVERGENCES)
@pytest.mark.parametrize("ratio", [1, 4])
def test_noise_contrastive_estimation_is_least_at_the_truth_log_z_included(name, ratio):
    p_counts, noise_counts, _, _ = on_a_grid()
    log_p, log_noise = ((c.double() / c.sum()).log() for c in (p_counts, noise_counts))

    def loss(log_q):
        log_ratio = log_q - log_noise
        rows = (log_ratio.repeat_interleave(counts) for counts in (p_counts, noise_counts))
        return noise_contrastive(*rows, ratio=ratio, f=DIVERGENCES[name])

    log_q = log_p.clone().requires_grad_()
    (slope,) = torch.autograd.grad(loss(log_q), log_q)
    torch.testing.assert_close(slope, torch.zeros_like(slope))
    for change in (torch.tensor(0.1), torch.tensor(-0.1), 0.1 * torch.linspace(-1, 1, 61)):
        assert loss(log_p + change) > loss(log_p)


def test_score_matching_of_a_gaussian_is_the_closed_form():
    x = torch.linspace(-2, 2, 9, dtype=torch.float64)[:, None]
    energy = Quadratic(0.3, 0.7).double()
    leaf, _, gradient = input_gradient(energy, x)
    expected = 0.5 * (x[:, 0] - 0.3) ** 2 / 0.7**4 - 1 / 0.7**2
    torch.testing.assert_close(score_matching(gradient, leaf), expected)
    torch.testing.assert_close(sliced_score_matching(gradient, leaf, torch.ones(1, 9, 1)), expected)  # d = 1: no slice


def test_slices_along_all_signs_are_the_trace_of_the_hessian():
    torch.manual_seed(0)
    energy, x = MLP((3,), width=8).double(), torch.randn(5, 3, dtype=torch.float64)
    leaf, _, gradient = input_gradient(energy, x)
    signs = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0])] * 3).double()[:, None].expand(8, 5, 3)
    sliced, exact = sliced_score_matching(gradient, leaf, signs), score_matching(gradient, leaf)
    torch.testing.assert_close(sliced, exact)
    hessians = torch.func.vmap(torch.func.hessian(lambda row: energy(row[None])[0]))(x)
    trace = hessians.diagonal(dim1=1, dim2=2).sum(1)
    torch.testing.assert_close(exact, 0.5 * gradient.square().sum(1) - trace)
    first = [
        torch.autograd.grad(loss.mean(), list(energy.parameters())[:2], retain_graph=True) for loss in (sliced, exact)
    ]
    torch.testing.assert_close(*first)  # and so are the gradients that training sees


def hermite(n=40):
    """Points and weights of the quadrature for a standard Gaussian, exact for polynomials up to degree 2 n - 1."""
    x, w = (torch.from_numpy(a) for a in np.polynomial.hermite_e.hermegauss(n))
    return x, w / w.sum()


@pytest.mark.parametrize(("noise", "true_sigma"), [(None, 0.8), (0.5, math.hypot(0.8, 0.5))])
def test_score_matching_is_least_at_the_truth_and_with_noise_at_the_noised_truth(noise, true_sigma):
    x, w = hermite()
    x = 0.4 + 0.8 * x
    z, wz = hermite()
    pairs, weights = torch.cartesian_prod(x, z), torch.outer(w, wz).flatten()

    def loss(mu, sigma):
        energy = Quadratic(mu, sigma).double()
        if noise is None:
            leaf, _, gradient = input_gradient(energy, x[:, None])
            return (w * score_matching(gradient, leaf)).sum()
        _, _, gradient = input_gradient(energy, pairs[:, :1] + noise * pairs[:, 1:])
        return (weights * denoising_score_matching(gradient, pairs[:, 1:], noise)).sum()

    least = loss(0.4, true_sigma)
    for mu in (0.3, 0.4, 0.5):
        for factor in (0.9, 1.0, 1.1):
            if (mu, factor) != (0.4, 1.0):
                assert loss(mu, factor * true_sigma) > least + 1e-4


def test_score_matching_needs_second_derivatives():
    energy = nn.Sequential(nn.Linear(2, 1), nn.Flatten(0))
    leaf, _, gradient = input_gradient(energy, torch.randn(3, 2))
    with pytest.raises(UserError, match="second derivatives"):
        score_matching(gradient, leaf)


def test_a_mixture_of_divergences_is_the_mixture_of_their_bounds():
    t_pos, t_neg = torch.linspace(-2, 3, 7).double(), torch.linspace(-3, 2, 5).double()
    f, g = DIVERGENCES["js"], DIVERGENCES["kl"]
    values = [variational_bound(t_pos, t_neg, h).item() for h in (f, g, mixed(f, g, 0.3))]
    assert values[2] == pytest.approx(0.3 * values[0] + 0.7 * values[1], rel=1e-12)
    assert mixed(f, g, 1.0) is f
    assert mixed(g, g, 0.3) is g


def test_draws_of_another_density_are_weighted_by_the_ratio():
    e, log_g = torch.tensor([0.3, 1.0, 2.0]).double(), torch.tensor([-1.0, -0.2, -3.0]).double()
    expected = torch.exp(-1.5 * e) / log_g.exp()  # q^(1 + gamma) / g
    result = importance_weights(e, 0.5, -e - log_g + 7)
    torch.testing.assert_close(result, expected / expected.sum())


@pytest.mark.parametrize("gamma", [0.0, 0.7, -0.5])
def test_draws_of_q_and_of_r_are_special_cases(gamma):
    rng = torch.Generator().manual_seed(0)
    e_pos, e_neg = torch.rand(2, 6, generator=rng, dtype=torch.float64)
    same = torch.zeros(6).double()
    torch.testing.assert_close(
        pseudo_spherical(e_pos, e_neg, gamma, log_ratio=same), pseudo_spherical(e_pos, e_neg, gamma)
    )
    torch.testing.assert_close(
        pseudo_spherical(e_pos, e_neg, gamma, log_ratio=gamma * e_neg),  # q / g = q / q^(1 + gamma)
        pseudo_spherical(e_pos, e_neg, gamma, drawn_from_r=True),
    )
