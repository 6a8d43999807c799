import math

import pytest
import torch
from torch import nn

from pscd.energies import MLP, Quadratic, TemperedEnergy
from pscd.errors import UserError
from pscd.fast import gradients
from pscd.fast.gradients import MODES, by_hand, evaluator, using
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
def test_a_chain_is_the_same_whichever_way(settings, power, block, batch, monkeypatch):
    """By autograd, by hand step by step, and in C++ at once, in blocks of steps too: 100 numbers are 2 steps.

    Steps of 12 rows are whole groups of 16 numbers, whose noise is drawn at once.
    """
    monkeypatch.setattr(gradients, "NOISE_NUMBERS", block)
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
def test_the_noise_of_many_steps_at_once_is_that_of_single_ones(rows, monkeypatch):
    """torch draws normals in groups of 16, so that 17 rows of two are other numbers if five steps are drawn at once."""
    monkeypatch.setattr(gradients, "NOISE_NUMBERS", 3 * 2 * rows)  # three steps at a time
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
