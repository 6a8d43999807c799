"""What holds for losses whatever the energies, and for the ways to compute them whatever the network."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import nn

from pscd import losses
from pscd.energies import MLP, Correction
from pscd.fast import cpp, energies, evaluating, sequence, using
from pscd.rng import generator
from tests.fast.helpers import limited

rows = st.lists(st.floats(-40, 40, width=32), min_size=1, max_size=9).map(
    lambda values: torch.tensor(values, dtype=torch.float64)
)
gammas = st.one_of(st.sampled_from([-1.0, 0.0, 1.0]), st.floats(-1, 4))
LOSSES = {
    "ps-cd": losses.pseudo_spherical,
    "ps-cd from r": lambda p, n, gamma: losses.pseudo_spherical(p, n, gamma, drawn_from_r=True),
    "cd": lambda p, n, gamma: losses.contrastive_divergence(p, n),
    "negatives-only": losses.weighted_negatives,
    "beta": lambda p, n, gamma: losses.density_power(p, n, abs(gamma) / 4),
}


def with_gradients(loss, e_pos, e_neg, gamma):
    e_pos, e_neg = e_pos.clone().requires_grad_(), e_neg.clone().requires_grad_()
    value = LOSSES[loss](e_pos, e_neg, gamma)
    return value.detach(), *torch.autograd.grad(value, (e_pos, e_neg))


def same(result, expected, size=40.0):
    for a, b in zip(result, expected, strict=True):
        # Weights of the density power may be as large as exp(80).
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-10 * size * max(1.0, float(b.abs().max())))


@pytest.mark.parametrize("loss", LOSSES)
@given(e_pos=rows, e_neg=rows, gamma=gammas, shift=st.floats(-1000, 1000))
def test_a_constant_added_to_all_energies_changes_nothing(loss, e_pos, e_neg, gamma, shift):
    same(with_gradients(loss, e_pos + shift, e_neg + shift, gamma), with_gradients(loss, e_pos, e_neg, gamma), 1e4)


@pytest.mark.parametrize("loss", LOSSES)
@given(e_pos=rows, e_neg=rows, gamma=gammas, seed=st.integers(0, 99))
def test_the_order_of_rows_does_not_matter(loss, e_pos, e_neg, gamma, seed):
    p, n = (torch.randperm(len(e), generator=generator(seed)) for e in (e_pos, e_neg))
    value, pos, neg = with_gradients(loss, e_pos, e_neg, gamma)
    same(with_gradients(loss, e_pos[p], e_neg[n], gamma), (value, pos[p], neg[n]))


@pytest.mark.parametrize("loss", LOSSES)
@given(e_pos=rows, e_neg=rows, gamma=gammas, k=st.integers(2, 4), m=st.integers(1, 3))
def test_copies_of_all_rows_share_the_weight_of_one(loss, e_pos, e_neg, gamma, k, m):
    value, pos, neg = with_gradients(loss, e_pos, e_neg, gamma)
    many = with_gradients(loss, e_pos.repeat(k), e_neg.repeat(m), gamma)
    same(many, (value, pos.repeat(k) / k, neg.repeat(m) / m))


@given(e_pos=rows, e_neg=rows, gamma=gammas)
def test_the_gradient_of_the_score_are_two_sets_of_weights(e_pos, e_neg, gamma):
    _, pos, neg = with_gradients("ps-cd", e_pos, e_neg, gamma)
    for weights, e, sign in ((pos, e_pos, 1), (-neg, e_neg, 1)):
        assert float(sign * weights.sum()) == pytest.approx(1, abs=1e-9)
        assert (weights >= 0).all()
        expected = [math.exp(-gamma * (v - float(e.min() if gamma > 0 else e.max()))) for v in e.tolist()]
        torch.testing.assert_close(
            weights, torch.tensor(expected, dtype=torch.float64) / math.fsum(expected), rtol=1e-9, atol=1e-12
        )


@given(e_pos=rows, e_neg=rows, gamma=st.floats(-1, 2).filter(bool))
def test_the_score_is_continuous_at_gamma_zero(e_pos, e_neg, gamma):
    """By Hoeffding's lemma log E exp(-gamma e) is within gamma^2 range^2 / 8 of its linear part; a weighted mean moves
    by at most its variance, range^2 / 4, per unit of gamma."""
    spread_pos, spread_neg = (float(e.max() - e.min()) for e in (e_pos, e_neg))
    for scale in (1.0, 1e-3, 1e-9):
        moved = losses.pseudo_spherical(e_pos, e_neg, scale * gamma) - losses.contrastive_divergence(e_pos, e_neg)
        assert abs(float(moved)) <= abs(scale * gamma) * (spread_pos**2 / 8 + spread_neg**2 / 4) + 1e-10


@given(e=rows, gamma=gammas.filter(bool))
def test_the_free_energy_is_a_soft_minimum(e, gamma):
    result = float(losses.free_energy(e, gamma))
    values = [v - float(e.mean()) for v in e.tolist()]
    most = max(-gamma * v for v in values)
    exact = -(most + math.log(math.fsum(math.exp(-gamma * v - most) for v in values) / len(values))) / gamma
    if abs(gamma) > 1e-3:
        assert result == pytest.approx(exact + float(e.mean()), abs=1e-8)
    assert float(e.min()) - 1e-9 <= result <= float(e.max()) + 1e-9
    assert result <= float(e.mean()) + 1e-9 if gamma > 0 else result >= float(e.mean()) - 1e-9


@given(e=rows, shift=st.floats(-100, 100), factor=st.floats(0.01, 100))
def test_the_spread_ignores_shifts_and_scales_with_the_energies(e, shift, factor):
    assume(len(e) >= 4 and float(e.sort().values[(3 * len(e)) // 4] - e.min()) > 1e-3)
    result = float(losses.energy_spread(e))
    assert float(losses.energy_spread(factor * e + shift)) == pytest.approx(factor * result, rel=1e-6)
    # Its definition, an ESS of 3/4, wherever a temperature within the grid of e^-7 ... e^7 reaches it.
    unit = float(e.sort().values[(3 * len(e)) // 4] - e.min())

    def ess(temperature):
        return float(losses.effective_sample_fraction(torch.exp(-(e - e.min()) / temperature)))

    if ess(unit * math.exp(-6.9)) < 0.74 and ess(unit * math.exp(6.9)) > 0.76:
        assert ess(result) == pytest.approx(0.75, abs=2e-3)


@given(e_pos=rows, e_neg=rows, alpha=st.floats(0, 0.99))
def test_trimming_leaves_out_the_highest(e_pos, e_neg, alpha):
    stored = sorted(e_pos.tolist())[: len(e_pos) - math.floor(alpha * len(e_pos) + 1e-9)]
    expected = math.fsum(stored) / len(stored) - math.fsum(e_neg.tolist()) / len(e_neg)
    assert float(losses.trimmed(e_pos, e_neg, alpha)) == pytest.approx(expected, abs=1e-9)


ACTIVATIONS = (nn.SiLU, nn.Tanh, nn.ReLU, lambda: nn.LeakyReLU(0.2))


@st.composite
def networks(draw):
    """A network that `pscd.fast` supports, with rows to evaluate it at; weights far from their usual size."""
    kind = draw(st.sampled_from(["dense", "mlp", "correction", "conv"]))
    seed, n = draw(st.integers(0, 10**6)), draw(st.integers(1, 19))
    width, depth = draw(st.integers(1, 20)), draw(st.integers(1, 3))
    activation = draw(st.sampled_from(ACTIVATIONS))
    torch.manual_seed(seed)
    if kind == "conv":
        channels, height, across = draw(st.integers(1, 3)), draw(st.integers(3, 9)), draw(st.integers(3, 9))
        kernel, stride, padding = draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.integers(0, 1))
        first = nn.Conv2d(channels, width, kernel, stride, padding)
        size = first(torch.zeros(1, channels, height, across)).numel()
        net, shape = (
            nn.Sequential(first, activation(), nn.Flatten(), nn.Linear(size, 1), nn.Flatten(0)),
            (channels, height, across),
        )
    else:
        shape = (draw(st.integers(1, 12)),)
        if kind == "mlp":
            net = MLP(
                shape,
                width=width,
                depth=depth,
                fourier=draw(st.integers(0, 9)),
                base_scale=draw(st.sampled_from([None, 1.5])),
            )
        elif kind == "correction":
            net = Correction(shape[0], bound=draw(st.floats(0.5, 4)), width=width, depth=depth)
        else:
            sizes = [shape[0], *[width] * depth]
            layers = [part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), activation())]
            net = nn.Sequential(*layers, nn.Linear(width, 1), nn.Flatten(0))
    with torch.no_grad():
        for p in net.parameters():
            p.add_(0.3 * torch.randn_like(p))
    return net, torch.randn(n, *shape)


@pytest.mark.skipif(cpp.library() is None, reason="no C++ compiler")
@given(networks(), st.booleans())
def test_energies_and_slopes_agree_in_cpp_eager_and_plain(network, learn):
    """All within rounding of autograd in float64: of the row's own size, since sums cancel."""
    net, x = network
    exact, leaf = net.double(), x.double().requires_grad_()
    e_exact = exact(leaf)
    (slope_exact,) = torch.autograd.grad(e_exact.sum(), leaf)
    e_exact = e_exact.detach()
    weights = torch.linspace(-1, 1, len(x)).double()
    learnt_exact = torch.autograd.grad((weights * exact(x.double())).sum(), list(exact.parameters()))
    net = net.float()
    size = sum(float(part.detach().abs().max()) for part in (e_exact, slope_exact, *net.parameters())) + 1
    for mode in ("auto", "eager", "plain"):
        with using(mode), torch.no_grad(), evaluating(net, x) as evaluate:
            e, slope = evaluate(x)
            alone = evaluate.energy(x)
        for result, expected in ((e, e_exact), (alone, e_exact), (slope, slope_exact)):
            torch.testing.assert_close(result.double(), expected, rtol=1e-4, atol=3e-6 * size)
        if learn:
            with using(mode), limited(sequence.Limits(min_learning_work=0)):
                loss = (weights.float() * energies(net, x)).sum()
            for result, expected in zip(torch.autograd.grad(loss, list(net.parameters())), learnt_exact, strict=True):
                torch.testing.assert_close(result.double(), expected, rtol=1e-3, atol=1e-5 * size)
