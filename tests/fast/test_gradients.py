import math
from contextlib import suppress

import pytest
import torch
from torch import nn

from pscd.energies import MLP, Quadratic, TemperedEnergy
from pscd.errors import UserError
from pscd.fast import gradients
from pscd.fast.gradients import MODES, by_hand, evaluator, using
from pscd.fast.sequence import Limits, limits
from pscd.fast.torch_layers import Evaluator
from pscd.rng import generator
from pscd.sampling import langevin


class Doubled(MLP):
    """Another energy than the one whose gradient it inherits."""

    def forward(self, x):
        return 2 * super().forward(x)


def sequence(*inner):
    return nn.Sequential(nn.Linear(4, 8), *inner, nn.Linear(8, 1), nn.Flatten(0))


def hooked(layer):
    net = sequence(nn.SiLU())
    module = net if layer is None else net[layer]
    module.register_forward_hook(lambda module, args, out: 2 * out)
    return net


def patched():
    net = MLP((4,), width=8)
    net.forward = lambda x: x.square().sum(1)
    return net


@pytest.fixture
def noise_numbers():
    """Sets how many random numbers are drawn in advance."""
    token = limits.set(limits.get())
    yield lambda n: limits.set(Limits(noise_numbers=n))
    limits.reset(token)


@pytest.mark.parametrize(
    "energy",
    [
        Doubled((4,), width=8),
        hooked(0),
        hooked(-1),
        hooked(None),
        patched(),
        sequence(nn.Dropout(0.5)).eval(),
        nn.Sequential(nn.Linear(4, 8), nn.SiLU(), nn.Linear(8, 1), nn.Softplus(), nn.Flatten(0)),
        Quadratic(dim=4),
        lambda x: x.square().sum(1),
    ],
    ids=["derived", "hooked", "hooked end", "hooked whole", "patched", "unknown", "wrong end", "no layers", "function"],
)
def test_whatever_is_not_known_goes_through_autograd(energy):
    assert by_hand(energy) is None
    evaluate = evaluator(energy)
    assert evaluate.how == "by autograd"
    x = torch.randn(3, 4, generator=generator(0), requires_grad=True)
    e, grad = evaluate(x)
    expected = energy(x)
    expected.sum().backward()
    assert torch.equal(e, expected)
    assert torch.equal(grad, x.grad)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("power", [1.0, 1.5])
def test_the_energy_alone_is_that_beside_the_gradient(mode, power):
    torch.manual_seed(0)
    energy = TemperedEnergy(MLP((4,), width=8), power)
    x = torch.randn(13, 4, generator=generator(0))
    with using(mode):
        evaluate = evaluator(energy)
        alone = evaluate.energy(x)
    assert torch.equal(alone, evaluate(x)[0])
    assert not alone.requires_grad


def test_modes():
    energy = MLP((2,), width=8)
    assert evaluator(energy).how in ("by hand in C++", "by hand")
    with using("eager"):
        assert evaluator(energy).how == "by hand"
    with using("plain"):
        assert evaluator(energy).how == "by autograd"
        with using("auto"):  # leaves the choice to what is around it
            assert evaluator(energy).how == "by autograd"
    assert evaluator(energy).how != "by autograd"
    with pytest.raises(UserError, match="gradients must be one of auto, eager, plain, got 'quick'"), using("quick"):
        pass


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"noise_scale": 0.0},
        {"noise_scale": 0.3, "max_grad": 0.02, "bounds": (-0.5, 1.0)},
        {"step_size": torch.tensor(0.02)},
    ],
    ids=["plain", "no noise", "clamped", "tensor"],
)
@pytest.mark.parametrize("power", [1.0, 1.5])
@pytest.mark.parametrize("block", [10**6, 100])
@pytest.mark.parametrize("batch", [10, 12])
def test_a_chain_is_the_same_whichever_way(settings, power, block, batch, noise_numbers):
    """By autograd, by hand step by step, and in C++ at once, in blocks of steps too: 100 numbers are 2 steps.

    Steps of 12 rows are whole groups of 16 numbers, whose noise is drawn at once.
    """
    noise_numbers(block)
    torch.manual_seed(0)
    energy = TemperedEnergy(MLP((2, 2), width=8), power)
    settings = {"n_steps": 21, "step_size": 0.02, **settings}
    x = torch.randn(batch, 2, 2, generator=generator(0))
    ends = {}
    for mode in MODES:
        with using(mode):
            ends[mode] = langevin(energy, x, generator=generator(1), **settings)
    torch.testing.assert_close(ends["eager"], ends["plain"], rtol=0 if power == 1 else 1e-5, atol=1e-5 * (power != 1))
    torch.testing.assert_close(ends["auto"], ends["plain"], rtol=1e-5, atol=1e-5)
    assert not torch.allclose(ends["auto"], x)
    steps = []
    seen = langevin(energy, x, generator=generator(1), callback=steps.append, **settings)
    assert len(steps) == 21
    torch.testing.assert_close(seen, ends["auto"], rtol=1e-5, atol=1e-5)


def test_weights_are_fetched_anew_for_each_chain():
    energy = MLP((2,), width=8)
    x = torch.randn(4, 2, generator=generator(0))
    before = evaluator(energy)(x)[0]
    energy.net[0].weight.data.add_(1)
    torch.testing.assert_close(evaluator(energy)(x)[0], energy(x).detach())
    assert not torch.allclose(before, energy(x).detach())


@pytest.mark.parametrize("rows", [3, 8, 17])
def test_the_noise_of_many_steps_at_once_is_that_of_single_ones(rows, noise_numbers):
    """torch draws normals in groups of 16, so that 17 rows of two are other numbers if five steps are drawn at once."""
    noise_numbers(3 * 2 * rows)  # three steps at a time
    drawn = []

    def moves(x, noise, *settings):
        drawn.append(noise.clone())
        assert settings == (0.5, math.inf, (-math.inf, math.inf))
        return x + 1

    end = gradients.at_once(moves, torch.zeros(rows, 2), 5, torch.tensor(0.5), 2.0, None, None, generator(0))
    rng = generator(0)
    single = [2.0 * torch.empty(rows, 2).normal_(generator=rng) for _ in range(5)]
    assert [len(part) for part in drawn] == [3, 2]
    assert torch.equal(torch.cat(drawn), torch.stack(single))
    assert (end == 2).all()
    drawn.clear()
    gradients.at_once(moves, torch.zeros(rows, 2), 2, 0.5, 0.0, None, None, rng)
    assert (drawn[0] == 0).all()


class Spoken(nn.Module):
    """An energy with a method for its gradient."""

    def __init__(self, answer=True):
        super().__init__()
        self.answer = answer

    def forward(self, x):
        return x.square().sum(1)

    def input_gradient(self):
        return Evaluator(lambda x: (x.square().sum(1), 2 * x), "by itself") if self.answer else None


class Louder(Spoken):
    def forward(self, x):
        return 3 * super().forward(x)


def test_an_energy_may_know_its_own_gradient():
    assert by_hand(Spoken()).how == evaluator(Spoken()).how == "by itself"
    assert evaluator(Spoken(answer=False)).how == "by autograd"
    assert evaluator(Louder()).how == "by autograd"  # it was written for another energy
    with using("eager"):
        assert evaluator(Spoken()).how == "by itself"
    with using("plain"):
        assert evaluator(Spoken()).how == "by autograd"
    hooked = Spoken()
    hooked.register_forward_hook(lambda module, args, out: 2 * out)
    assert evaluator(hooked).how == "by autograd"


class Derived(nn.Sequential):
    pass


@pytest.mark.parametrize(
    ("energy", "known"),
    [
        (nn.Sequential(nn.Linear(4, 1), nn.Flatten(0)), True),
        (nn.Sequential(nn.Flatten(0)), False),
        (nn.Sequential(nn.Linear(4, 1), nn.Flatten(1)), False),
        (nn.Sequential(nn.Linear(4, 1), nn.Flatten(0, 1)), False),
        (nn.Sequential(nn.Linear(4, 1), nn.Linear(1, 1)), False),
        (Derived(nn.Linear(4, 1), nn.Flatten(0)), False),
    ],
)
def test_which_sequences_are_known(energy, known):
    assert (gradients._as_sequence(energy, (4,)) is not None) is known


def test_in_mixed_precision_nothing_goes_by_hand():
    energy = MLP((2,), width=8)
    with torch.autocast("cpu", torch.bfloat16):
        assert evaluator(energy).how == "by autograd"
    assert evaluator(energy).how != "by autograd"


def test_energies_of_a_loss_go_by_hand_only_where_their_gradient_is_that_of_the_weights(monkeypatch):
    energy, x = MLP((2,), width=8), torch.randn(5, 2, generator=generator(0))
    asked = []

    def spy(sequence, x):
        asked.append(1)
        return original(sequence, x)

    original = gradients.sequences.energies
    monkeypatch.setattr(gradients.sequences, "energies", spy)
    expected = energy(x)
    weights = list(energy.parameters())
    slopes = torch.autograd.grad(expected.square().sum(), weights)

    def by_hand_then(x):
        asked.clear()
        e = gradients.energies(energy, x)
        torch.testing.assert_close(e, energy(x))
        return bool(asked)

    assert by_hand_then(x)
    result = torch.autograd.grad(gradients.energies(energy, x).square().sum(), weights)
    torch.testing.assert_close(result, slopes)
    assert not by_hand_then(x.clone().requires_grad_(True))
    with torch.no_grad():
        assert not by_hand_then(x)
    for mode in ("eager", "plain"):
        with using(mode):
            assert not by_hand_then(x)
    with torch.autocast("cpu", torch.bfloat16):
        gradients.energies(energy, x)
    assert gradients.energies(lambda x: x.sum(1), x).tolist() == x.sum(1).tolist()


def test_an_energy_is_frozen_inside_of_a_block_and_as_before_after_it():
    energy = nn.Sequential(nn.Linear(2, 2), nn.Dropout(), nn.Linear(2, 1))
    energy[0].weight.requires_grad_(False)
    before = [p.requires_grad for p in energy.parameters()]
    assert before == [False, True, True, True]
    for training in (True, False):
        energy.train(training)
        seen = []
        with suppress(KeyError), gradients.frozen(energy):
            seen += [energy.training, energy[1].training, *(p.requires_grad for p in energy.parameters())]
            raise KeyError
        assert seen == [False] * 6
        assert energy.training is energy[1].training is training
        assert [p.requires_grad for p in energy.parameters()] == before
    with gradients.frozen(torch.sum):
        pass


def test_chains_freeze_what_goes_through_autograd_alone():
    x = torch.zeros(3, 4)
    energy = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1), nn.Flatten(0))
    with gradients.evaluating(energy, x) as evaluate:
        assert evaluate.how == "by autograd"
        assert not energy.training
    assert energy.training
    known = MLP((4,), width=8)
    with gradients.evaluating(known, x) as evaluate:
        assert evaluate.how != "by autograd"
        assert known.training


def test_more_numbers_than_fit_are_one_step_at_a_time(noise_numbers):
    noise_numbers(5)
    lengths = []

    def moves(x, noise, step, most, bounds):
        lengths.append((len(noise), step, most, bounds))
        return x

    settings = {"step_size": 0.5, "noise": 1.0, "bounds": (0.0, 1.0), "max_grad": 0.25, "generator": None}
    gradients.at_once(moves, torch.zeros(3, 2), 2, **settings)
    assert lengths == [(1, 0.5, 0.25, (0.0, 1.0))] * 2
    lengths.clear()
    gradients.at_once(moves, torch.zeros(0, 2), 7, **settings)
    assert [n for n, *_ in lengths] == [5, 2]


def test_what_autograd_gives_has_no_graph():
    energy = Quadratic(dim=4)
    e, grad = evaluator(energy)(torch.ones(3, 4, requires_grad=True))
    assert not e.requires_grad
    assert not grad.requires_grad
    assert not evaluator(energy).energy(torch.ones(3, 4)).requires_grad
