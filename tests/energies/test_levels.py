"""Energies of several levels of noise."""

import math

import pytest
import torch

from pscd import fast
from pscd.energies import Architecture, ConvNet, LevelEnergy, NoisyEnergies
from pscd.errors import UserError

IMAGE = (1, 8, 8)


def network(levels=3, least=0.1, most=0.8):
    torch.manual_seed(0)
    net = ConvNet(IMAGE, width=2, depth=2, classes=levels)
    return NoisyEnergies(net, IMAGE, levels=levels, least=least, most=most)


class Silent(torch.nn.Module):
    """f = 0 at all levels."""

    def forward(self, x, label):
        return x.new_zeros(len(x))


def test_the_ladder_is_geometric():
    assert network().sigmas.tolist() == pytest.approx([0.1, 0.2, 0.4, 0.8])


def test_the_formula():
    energy = network().double()
    x = torch.randn(5, *IMAGE, dtype=torch.float64)
    level = torch.tensor([0, 1, 2, 1, 0])
    for row, t, result in zip(x, level, energy(x, level), strict=True):
        s = 0.1 * 2 ** int(t)
        w = math.hypot(s, 0.5)
        f = energy.net(row[None] / w, t[None])
        torch.testing.assert_close(result, row.square().sum() / (2 * w**2) - 8 * 0.5 / s * f[0], rtol=1e-6, atol=0)


def test_without_a_level_it_is_that_of_the_least_noise():
    energy, x = network(), torch.randn(4, *IMAGE)
    torch.testing.assert_close(energy(x), energy(x, torch.zeros(4, dtype=torch.long)), rtol=0, atol=0)


def test_without_a_network_it_is_the_energy_of_a_gaussian_with_noise():
    energy = NoisyEnergies(Silent(), (2,), levels=2, least=0.3, most=1.2)
    x = torch.tensor([[1.0, 2.0]])
    result = energy(x, torch.tensor([1]))
    torch.testing.assert_close(result, torch.tensor([5 / (2 * (0.6**2 + 0.5**2))]))


@pytest.mark.parametrize("level", [0, 2])
def test_the_energy_given_noisier_rows(level):
    energy = network().double()
    x, y = torch.randn(2, 4, *IMAGE, dtype=torch.float64)
    given = LevelEnergy(energy, level, y)
    s = 0.1 * 2**level
    assert given.variance == pytest.approx(3 * s**2)
    expected = energy(x, torch.full((4,), level)) + (x - y).square().sum((1, 2, 3)) / (6 * s**2)
    torch.testing.assert_close(given(x), expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("given_y", [False, True])
@pytest.mark.parametrize("mode", ["auto", "eager"])
@pytest.mark.parametrize("level", [0, 1, 2])
def test_the_gradient_by_hand_is_that_of_autograd(level, mode, given_y):
    energy = network()
    x, y = torch.randn(2, 6, *IMAGE)
    one = LevelEnergy(energy, level, y if given_y else None)
    with fast.using(mode):
        by_hand = fast.by_hand(one, IMAGE)
    assert by_hand is not None
    e, gradient = by_hand(x)
    inputs = x.clone().requires_grad_()
    expected = one(inputs)
    (slope,) = torch.autograd.grad(expected.sum(), inputs)
    torch.testing.assert_close(e, expected.detach(), rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(gradient, slope, rtol=1e-4, atol=1e-3)


def test_a_network_that_is_not_known_goes_through_autograd():
    energy = NoisyEnergies(Silent(), (2,), levels=2, least=0.3, most=1.2)
    assert fast.by_hand(LevelEnergy(energy, 0), (2,)) is None


def test_an_architecture_with_levels():
    config = Architecture("conv", width=2, depth=2, levels=4, least_noise=0.2, most_noise=3.2)
    energy = config.build(IMAGE)
    assert isinstance(energy, NoisyEnergies)
    assert energy.net.classes == 4
    assert energy.sigmas.tolist() == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2])
    again = config.rebuild(IMAGE, energy.state_dict())
    again.load_state_dict(energy.state_dict())
    x = torch.randn(2, *IMAGE)
    torch.testing.assert_close(again(x), energy(x), rtol=0, atol=0)


@pytest.mark.parametrize(
    "settings",
    [
        {"name": "mlp", "levels": 3},
        {"name": "conv", "levels": -1},
        {"name": "conv", "levels": 3, "classes": 10},
        {"name": "conv", "levels": 3, "least_noise": 0.0},
        {"name": "conv", "levels": 3, "least_noise": 2.0, "most_noise": 1.0},
        {"name": "conv", "levels": 3, "most_noise": math.inf},
    ],
)
def test_impossible_levels_are_refused(settings):
    with pytest.raises(UserError, match="noise"):
        Architecture(**settings)
