"""Finite sample spaces: every quantity against a sum written out by hand."""

import math

import pytest
import torch

from pscd import discrete
from pscd.discrete import BITS, SPINS, BoltzmannMachine
from pscd.errors import NotFinite
from pscd.losses import pseudo_spherical

GAMMAS = [-0.5, 0.0, 0.5, 1.0, 2.0]
FAMILY = [
    (1.0, 1.5, 0.5, None),
    (0.5, 1.25, 0.5, None),
    (1.0, 1.0, 0.1, None),
    (1.0, 1.0, 0.1, 1.0),
    (0.0, 1.0, 0.5, 1),
]


def machine(d=3, seed=0, scale=0.7):
    model, rng = BoltzmannMachine(d), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(scale * torch.randn(p.shape, generator=rng, dtype=p.dtype))
    return model


def distribution(m, seed=0):
    """Far from uniform and from every machine."""
    return torch.randn(m, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).softmax(0)


def localised(e, p, family):
    gamma, alpha, alpha_prime, power = family
    return discrete.localised_divergence(e, p, gamma, alpha=alpha, alpha_prime=alpha_prime, power=power)


# --- the model ---


def test_boltzmann_machine_of_two_spins_by_hand():
    model = BoltzmannMachine(2)
    with torch.no_grad():
        model.bias.copy_(torch.tensor([0.3, -0.2]))
        model.couplings.fill_(0.5)
    # E = -0.3 x1 + 0.2 x2 - 0.5 x1 x2 at (-1, -1), (-1, 1), (1, -1), (1, 1)
    by_hand = torch.tensor([-0.4, 1.0, 0.0, -0.6], dtype=torch.float64)
    torch.testing.assert_close(model(discrete.states(2, SPINS)), by_hand)
    total = math.exp(0.4) + math.exp(-1.0) + 1 + math.exp(0.6)
    assert discrete.log_partition(by_hand).item() == pytest.approx(math.log(total), abs=1e-14)
    assert discrete.log_probability(by_hand)[0].item() == pytest.approx(0.4 - math.log(total), abs=1e-14)
    # In bits the coupling contributes only where both are 1.
    bits = torch.tensor([0.0, 0.2, -0.3, -0.6], dtype=torch.float64)
    torch.testing.assert_close(model(discrete.states(2, BITS)), bits)


def test_weights_are_symmetric_without_diagonal():
    model = machine(4)
    w = model.weights
    assert torch.equal(w, w.T)
    assert torch.equal(w.diagonal(), torch.zeros(4, dtype=torch.float64))
    assert w[0, 1] == model.couplings[0]
    assert w[2, 3] == model.couplings[-1]


def test_states_and_their_counts():
    x = discrete.states(3, SPINS)
    assert len(torch.unique(x, dim=0)) == 8
    assert discrete.states(1).tolist() == [[0.0], [1.0]]
    assert discrete.states(2, (0.0, 1.0, 2.0)).shape == (9, 2)
    seen, p = discrete.empirical(x[torch.tensor([5, 2, 5, 5])])
    assert torch.equal(seen, x[[2, 5]])
    assert p.tolist() == [0.25, 0.75]


# --- exact quantities ---


@pytest.mark.parametrize("gamma", [0.5, 1.0, 2.0])
def test_gamma_score_is_the_papers_formula(gamma):
    p, e = distribution(8), machine()(discrete.states(3)).detach()
    q = torch.exp(-e)  # unnormalised
    by_hand = (p * q**gamma).sum().log() / gamma - (q ** (gamma + 1)).sum().log() / (gamma + 1)
    torch.testing.assert_close(discrete.gamma_score(p, e, gamma), by_hand)


def test_gamma_zero_is_the_likelihood_and_its_divergence_kl():
    p, e = distribution(8), machine()(discrete.states(3)).detach()
    log_q = torch.log_softmax(-e, 0)
    torch.testing.assert_close(discrete.gamma_score(p, e, 0.0), (p * log_q).sum())
    torch.testing.assert_close(discrete.gamma_divergence(p, e, 0.0), discrete.kl(p, e))
    torch.testing.assert_close(discrete.kl(p, e), (p * (p.log() - log_q)).sum())
    torch.testing.assert_close(discrete.gamma_divergence(p, e, 1e-6), discrete.kl(p, e), rtol=1e-5, atol=0)


@pytest.mark.parametrize("gamma", GAMMAS)
def test_divergence_is_zero_at_p_alone(gamma):
    p, e = distribution(8), machine()(discrete.states(3)).detach()
    assert discrete.gamma_divergence(p, 3 - p.log(), gamma).item() == pytest.approx(0, abs=1e-13)
    assert discrete.gamma_divergence(p, e, gamma).item() > 1e-2


def test_states_without_probability_count_for_nothing():
    p, e = torch.tensor([0.5, 0.5, 0.0], dtype=torch.float64), torch.zeros(3)
    assert discrete.kl(p, e).item() == pytest.approx(math.log(3 / 2))
    # D_1 = log(sum p^2) / 2 + log(sum q^2) / 2 - log(sum p q) with q = 1: (log(1/2) + log 3) / 2 - log 1
    assert discrete.gamma_divergence(p, e, 1.0).item() == pytest.approx(math.log(3 / 2) / 2)
    discrete.kl(p, leaf := torch.zeros(3, dtype=torch.float64, requires_grad=True)).backward()
    torch.testing.assert_close(leaf.grad, p - 1 / 3)


@pytest.mark.parametrize("gamma", GAMMAS)
def test_exact_gradient_equals_autograd(gamma):
    p, model = distribution(8), machine()
    p = torch.where(p < 0.05, 0.0, p)
    p = p / p.sum()
    e = model(discrete.states(3, SPINS))
    gradient = discrete.gamma_gradient(p, e, gamma)
    expected = torch.autograd.grad(-discrete.gamma_score(p, e, gamma), e, retain_graph=True)[0]
    torch.testing.assert_close(gradient, expected)
    by_parameter = torch.autograd.grad(e, model.bias, gradient)[0]
    torch.testing.assert_close(by_parameter, -gradient @ discrete.states(3, SPINS))


@pytest.mark.parametrize("gamma", [0.5, 1.0])
def test_ps_cd_has_the_exact_gradient_if_rows_stand_for_p_and_q(gamma):
    p_counts, q_counts = torch.tensor([5, 1, 2, 12]), torch.tensor([3, 4, 1, 2])
    e = -(q_counts / 10).double().log().requires_grad_()
    rows = torch.arange(4)
    loss = pseudo_spherical(e[rows.repeat_interleave(p_counts)], e[rows.repeat_interleave(q_counts)], gamma)
    (gradient,) = torch.autograd.grad(loss, e)
    torch.testing.assert_close(gradient, discrete.gamma_gradient(p_counts / 20, e, gamma))


# --- the localised score ---


@pytest.mark.parametrize("gamma", [0.0, 0.3, 1.0, 2.0])
def test_homogeneous_divergence_of_p_and_the_model_is_the_gamma_divergence(gamma):
    p, e = distribution(8), machine()(discrete.states(3)).detach()
    value = discrete.homogeneous_divergence(p.log(), -e, gamma)
    torch.testing.assert_close(value, discrete.gamma_divergence(p, e, gamma))
    torch.testing.assert_close(discrete.homogeneous_divergence(p.log() + 3, -e - 5, gamma), value)


def test_localised_divergence_is_three_sums():
    """Takenouchi and Kanamori's family, written out; the library divides by gamma."""
    p, e = distribution(6), torch.linspace(-1, 2, 6, dtype=torch.float64)
    gamma, alpha, alpha_prime = 0.7, 1.2, 0.4
    q, mixed = torch.exp(-e), (alpha + gamma * alpha_prime) / (1 + gamma)
    sums = [(p**a * q ** (1 - a)).sum().log() for a in (alpha, alpha_prime, mixed)]
    by_hand = (sums[0] / (1 + gamma) + gamma / (1 + gamma) * sums[1] - sums[2]) / gamma
    torch.testing.assert_close(localised(e, p, (gamma, alpha, alpha_prime, None)), by_hand)


@pytest.mark.parametrize("family", FAMILY)
def test_states_that_are_not_in_the_data_are_not_needed(family):
    """f and g written out over the whole space, with 0 where the data have nothing."""
    gamma, alpha, alpha_prime, power = family
    frequencies = torch.tensor([0.0, 0.2, 0.5, 0.0, 0.3], dtype=torch.float64)
    e = torch.tensor([0.3, -1.0, 0.4, -2.0, 1.5], dtype=torch.float64)
    power = 1 / (1 + gamma) if power is None else power
    f, g = ((frequencies**a * torch.exp(-(1 - a) * e)) ** power for a in (alpha, alpha_prime))
    if gamma == 0:
        a, b = f / f.sum(), g / g.sum()
        by_hand = torch.where(a > 0, a * (a / b).log(), 0).sum()
    else:
        sums = [(f ** (1 + gamma)).sum().log(), (g ** (1 + gamma)).sum().log(), (f * g**gamma).sum().log()]
        by_hand = (sums[0] / (1 + gamma) + gamma / (1 + gamma) * sums[1] - sums[2]) / gamma
    seen = frequencies > 0
    torch.testing.assert_close(localised(e[seen], frequencies[seen], family), by_hand)


@pytest.mark.parametrize("family", FAMILY)
def test_localised_divergence_is_zero_at_the_truth_alone_whatever_the_offset(family):
    x = discrete.states(3, SPINS)
    truth = machine(seed=1)
    p = discrete.log_probability(truth(x)).exp().detach()
    e = truth(x).detach()
    assert localised(e + 7, p, family).item() == pytest.approx(0, abs=1e-13)
    other = machine(seed=2)(x)
    value = localised(other, p, family)
    assert value.item() > 1e-2
    torch.testing.assert_close(localised(other - 100, p, family), value)
    # Homogeneity in the gradient: it has no part along an offset.
    (gradient,) = torch.autograd.grad(value, other)
    assert gradient.sum().item() == pytest.approx(0, abs=1e-13)
    assert gradient.norm() > 1e-2


def test_gradient_of_the_localised_divergence_by_hand():
    """-1/(1+gamma) [(1-alpha) a + gamma (1-alpha') b - (1 + gamma - alpha - gamma alpha') c] / gamma over energies.

    a, b and c are proportional to the terms of the three sums.
    """
    p, e = distribution(6), torch.linspace(-1, 2, 6, dtype=torch.float64, requires_grad=True)
    gamma, alpha, alpha_prime = 0.7, 1.2, 0.4
    mixed = (alpha + gamma * alpha_prime) / (1 + gamma)
    a, b, c = ((x * p.log() - (1 - x) * e).softmax(0).detach() for x in (alpha, alpha_prime, mixed))
    by_hand = -((1 - alpha) * a + gamma * (1 - alpha_prime) * b) / (1 + gamma) + (1 - mixed) * c
    (gradient,) = torch.autograd.grad(localised(e, p, (gamma, alpha, alpha_prime, None)), e)
    torch.testing.assert_close(gradient, by_hand / gamma)


def test_gamma_to_zero_is_the_kl_of_the_two_mixtures():
    p, e = distribution(8), machine()(discrete.states(3)).detach()
    f, g = ((a * p.log() - (1 - a) * e).softmax(0) for a in (1.2, 0.4))
    torch.testing.assert_close(localised(e, p, (0.0, 1.2, 0.4, None)), (f * (f / g).log()).sum())
    torch.testing.assert_close(localised(e, p, (1e-6, 1.2, 0.4, None)), (f * (f / g).log()).sum(), rtol=1e-4, atol=0)


def test_alpha_one_and_alpha_prime_to_zero_are_renyi_and_gamma_divergences():
    p, e = distribution(8), machine()(discrete.states(3)).detach()
    gamma, order = 1.5, 1 / 2.5
    q = torch.log_softmax(-e, 0).exp()
    renyi = (p**order * q ** (1 - order)).sum().log() / (order - 1)
    torch.testing.assert_close(localised(e, p, (gamma, 1.0, 1e-9, None)), renyi / (1 + gamma), rtol=1e-7, atol=0)
    exact = discrete.gamma_divergence(p, e, gamma)
    torch.testing.assert_close(localised(e, p, (gamma, 1.0, 1e-9, 1.0)), exact, rtol=1e-7, atol=0)


def hessian(loss, model):
    def value(bias, couplings):
        return loss(
            torch.func.functional_call(model, {"bias": bias, "couplings": couplings}, discrete.states(3, SPINS))
        )

    blocks = torch.autograd.functional.hessian(value, (model.bias.detach(), model.couplings.detach()))
    return torch.cat([torch.cat(row, 1) for row in blocks], 0)


@pytest.mark.parametrize("gamma", [0.5, 1.0, 2.0])
def test_efficient_family_has_the_curvature_of_the_likelihood_at_the_truth(gamma):
    """(alpha - alpha')^2 / (1 + gamma)^2 times Fisher's information, for the default power."""
    model = machine(seed=3)
    p = discrete.log_probability(model(discrete.states(3, SPINS))).exp().detach()
    fisher = hessian(lambda e: -discrete.gamma_score(p, e, 0.0), model)
    result = hessian(lambda e: localised(e, p, (gamma, 1.3, 0.2, None)), model)
    torch.testing.assert_close(result, fisher * 1.1**2 / (1 + gamma) ** 2)


def test_convex_exponents_make_it_convex_where_the_gamma_score_is_not():
    p, model = distribution(8), machine(scale=2.0)
    for gamma in (0.5, 1.0, 3.0):
        alpha, alpha_prime = discrete.convex_exponents(gamma)
        assert alpha + gamma * alpha_prime == pytest.approx(1 + gamma)
        for seed in range(5):
            model = machine(seed=seed, scale=2.0)
            curved = hessian(lambda e, f=(gamma, alpha, alpha_prime, None): localised(e, p, f), model)
            assert torch.linalg.eigvalsh(curved)[0] > -1e-12
    curved = hessian(lambda e: -discrete.gamma_score(p, e, 3.0), model)
    assert torch.linalg.eigvalsh(curved)[0] < -1e-3


# --- fits ---


def test_maximum_likelihood_recovers_the_parameters_and_matches_moments():
    x, truth = discrete.states(4, SPINS), machine(4, seed=5, scale=0.5)
    p = discrete.log_probability(truth(x)).exp().detach()
    model = BoltzmannMachine(4)
    assert discrete.fit_exact(model, x, p) < 1e-6
    for result, true in zip(model.parameters(), truth.parameters(), strict=True):
        torch.testing.assert_close(result, true, rtol=0, atol=1e-5)
    assert all(parameter.grad is None for parameter in model.parameters())
    # On anything else, the fit has the means and the correlations of the data.
    other = distribution(16)
    discrete.fit_exact(model, x, other)
    q = discrete.log_probability(model(x)).exp().detach()
    torch.testing.assert_close(q @ x, other @ x, rtol=0, atol=1e-6)
    torch.testing.assert_close(x.T @ (q[:, None] * x), x.T @ (other[:, None] * x), rtol=0, atol=1e-6)


@pytest.mark.parametrize("family", [f for f in FAMILY if f[0] > 0])
def test_gamma_score_and_localised_fits_recover_the_parameters(family):
    x, truth = discrete.states(3, SPINS), machine(seed=5, scale=0.5)
    p = discrete.log_probability(truth(x)).exp().detach()
    by_score, by_localised = BoltzmannMachine(3), BoltzmannMachine(3)
    discrete.fit_exact(by_score, x, p, family[0])
    discrete.minimise(by_localised, x, lambda e: localised(e, p, family))
    for model in (by_score, by_localised):
        for result, true in zip(model.parameters(), truth.parameters(), strict=True):
            torch.testing.assert_close(result, true, rtol=0, atol=1e-5)


# --- draws ---


def test_exact_draws_have_their_probabilities():
    p, n = distribution(8), 100_000
    rng = torch.Generator().manual_seed(0)
    before = torch.get_rng_state()
    share = torch.bincount(discrete.draw(5 - p.log(), n, rng), minlength=8) / n
    assert torch.equal(torch.get_rng_state(), before)
    # five standard errors of a share
    assert ((share - p).abs() < 5 * (p * (1 - p) / n).sqrt()).all()


@pytest.mark.parametrize("values", [BITS, SPINS])
def test_a_gibbs_sweep_leaves_the_model_as_it_is(values):
    """q T = q for the transition matrix of a sweep, put together from the conditionals of all states."""
    x, model = discrete.states(3, values), machine(seed=4)
    q = discrete.log_probability(model(x)).exp().detach()
    row = {tuple(state): j for j, state in enumerate(x.tolist())}
    after = q
    for i in range(3):
        transition = torch.zeros(8, 8, dtype=torch.float64)
        up = discrete.conditional(model, x, i, values).detach()
        for j, state in enumerate(x.tolist()):
            for value, share in ((values[0], 1 - up[j]), (values[1], up[j])):
                transition[j, row[(*state[:i], value, *state[i + 1 :])]] += share
        after = after @ transition
        # Detailed balance, which a wrong conditional with the right mean would break.
        torch.testing.assert_close(q[:, None] * transition, (q[:, None] * transition).T)
    torch.testing.assert_close(after, q)


def test_gibbs_chains_reach_the_model_from_one_state():
    x, model, n = discrete.states(3, SPINS), machine(seed=4), 20_000
    rng = torch.Generator().manual_seed(1)
    start = torch.ones(n, 3, dtype=torch.float64)
    before = torch.get_rng_state()
    end = discrete.gibbs(model, start, 30, SPINS, rng)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(start, torch.ones_like(start))
    q = discrete.log_probability(model(x)).exp().detach()
    seen, share = discrete.empirical(end)
    assert torch.equal(seen, x)
    # Chains are independent; what 30 sweeps of 3 spins leave of the start is far below a standard error.
    assert ((share - q).abs() < 5 * (q * (1 - q) / n).sqrt()).all()


# --- refusals ---


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"alpha": 0.0, "alpha_prime": 0.5}, "must be positive"),
        ({"alpha": 1.0, "alpha_prime": 0.0}, "must be positive"),
        ({"alpha": 1.0, "alpha_prime": -0.5}, "drop out of every sum"),
        ({"alpha": 1.0, "alpha_prime": math.nan}, "must be positive"),
        ({"alpha": 0.5, "alpha_prime": 0.5}, "must differ"),
        ({"alpha": 1.0, "alpha_prime": 0.5, "power": 0.0}, "power must be positive"),
        ({"alpha": 1.0, "alpha_prime": 0.5, "gamma": -0.1}, "gamma >= 0"),
        ({"alpha": 1.0, "alpha_prime": 0.5, "gamma": math.inf}, "gamma >= 0"),
    ],
)
def test_parameters_that_define_no_localised_divergence(settings, message):
    with pytest.raises(ValueError, match=message):
        discrete.localised_divergence(torch.zeros(2), torch.tensor([0.5, 0.5]), **{"gamma": 1.0} | settings)


def test_bad_input():
    half = torch.tensor([0.5, 0.5])
    with pytest.raises(ValueError, match="frequency is 0"):
        localised(torch.zeros(2), torch.tensor([1.0, 0.0]), FAMILY[0])
    with pytest.raises(ValueError, match="sum to 1"):
        discrete.kl(torch.tensor([0.5, 0.4]), torch.zeros(2))
    with pytest.raises(ValueError, match="do not belong"):
        discrete.kl(half, torch.zeros(3))
    with pytest.raises(ValueError, match="one number per state"):
        discrete.log_partition(torch.zeros(2, 2))
    with pytest.raises(NotFinite):
        discrete.log_partition(torch.tensor([0.0, math.nan]))
    with pytest.raises(ValueError, match="gamma > -1 only"):
        discrete.gamma_score(half, torch.zeros(2), -1.0)
    with pytest.raises(ValueError, match="too many to list"):
        discrete.states(23)
    with pytest.raises(ValueError, match="two distinct values"):
        discrete.states(2, (1.0, 1.0))
    with pytest.raises(ValueError, match=r"\(n, d\)"):
        discrete.empirical(torch.zeros(3))


# --- the experiment ---


@pytest.mark.parametrize("gamma", [-1.0, math.inf, math.nan, -2.0])
def test_no_score_takes_a_gamma_that_is_none(gamma):
    p, e = torch.tensor([0.25, 0.75]), torch.tensor([0.0, 1.0])
    for function in (discrete.gamma_score, discrete.gamma_divergence):
        with pytest.raises(ValueError, match="gamma > -1 only"):
            function(p, e, gamma)
    if gamma == -1:  # where the gradient still is one
        assert torch.isfinite(discrete.gamma_gradient(p, e, gamma)).all()
    else:
        with pytest.raises(ValueError, match="gamma must be a finite number >= -1"):
            discrete.gamma_gradient(p, e, gamma)
    with pytest.raises(ValueError, match="needs a finite gamma >= 0"):
        discrete.homogeneous_divergence(p.log(), -e, gamma)


def test_spaces_may_be_as_large_as_memory_allows():
    assert len(discrete.states(3, max_states=8)) == 8
    with pytest.raises(ValueError, match=r"2\^4 states are too many to list \(at most 8\)"):
        discrete.states(4, max_states=8)
    assert discrete.states(1).tolist() == [[0.0], [1.0]]
    for d, values in ((0, BITS), (1, (1.0,)), (1, (1.0, 1.0)), (1, (0.0, 1.0, 1.0))):
        with pytest.raises(ValueError, match="two distinct values"):
            discrete.states(d, values)


def test_frequencies_and_exponents_at_their_edges():
    p, e = torch.tensor([0.25, 0.75]), torch.tensor([0.0, 1.0])
    for wrong in (p + 1e-6, p - 1e-6):
        with pytest.raises(ValueError, match="sum to 1"):
            discrete.kl(wrong.double(), e)
    discrete.kl(p.double() + 0.45e-6, e)  # a rounding error
    with pytest.raises(ValueError, match="must not be negative"):
        discrete.kl(torch.tensor([-0.25, 1.25]), e)
    for settings in ({"alpha": 0.0}, {"alpha_prime": 0.0}, {"alpha": math.inf}, {"alpha_prime": math.inf}):
        with pytest.raises(ValueError, match="must be positive"):
            discrete.localised_divergence(e, p, 1.0, **{"alpha": 1.0, "alpha_prime": 0.5, **settings})
    for power in (0.0, math.inf, -1.0):
        with pytest.raises(ValueError, match="power must be positive"):
            discrete.localised_divergence(e, p, 1.0, alpha=1.0, alpha_prime=0.5, power=power)
    with pytest.raises(ValueError, match="must differ"):
        discrete.localised_divergence(e, p, 1.0, alpha=1.0, alpha_prime=1.0)
    for shape in ((0,), (2, 1), ()):
        with pytest.raises(ValueError, match="one number per state"):
            discrete.log_partition(torch.zeros(shape))
    for x in (torch.zeros(3), torch.zeros(0, 2)):
        with pytest.raises(ValueError, match=r"\(n, d\)"):
            discrete.empirical(x)


def test_the_largest_space():
    with pytest.raises(ValueError, match=r"2\^23 states are too many to list"):
        discrete.states(23)


def test_energies_of_single_precision_are_added_up_in_double():
    e = torch.tensor([0.1, 20.0, -3.0])
    for function in (discrete.log_partition, discrete.log_probability):
        assert function(e).dtype == torch.float64
        assert torch.equal(function(e), function(e.double()))
