import math

import pytest
import torch

from pscd import fast
from pscd.energies import Architecture, CorrectedEnergy
from pscd.energies.corrected import BoundedNetwork, local_waves
from pscd.errors import UserError
from pscd.mixtures import Mixture
from pscd.rng import generator


def mixture(d=3):
    rng = generator(d)
    factors = torch.eye(d).double() + 0.3 * torch.randn(2, d, d, generator=rng, dtype=torch.float64).tril(-1)
    return Mixture(torch.tensor([0.3, 0.7]).double(), torch.randn(2, d, generator=rng, dtype=torch.float64), factors)


def corrected(d=3, waves=5, **settings):
    """A correction whose network is not 0 any more."""
    architecture = Architecture("corrected", width=16, depth=2, **settings)
    energy = architecture.correct(mixture(d), local_waves(mixture(d), waves, generator(0)))
    torch.manual_seed(0)
    with torch.no_grad():
        for p in energy.network.parameters():
            p.copy_(torch.randn_like(p))
    return energy, architecture


def test_it_starts_as_the_mixture_to_the_last_bit():
    energy = Architecture("corrected", width=16).correct(mixture(), torch.empty(3, 0))
    z = torch.randn(50, 3, generator=generator(0))
    assert torch.equal(energy.network(z), torch.zeros(50))
    assert torch.equal(energy(z), -energy.mixture.log_prob(z))
    torch.testing.assert_close(energy(z).double(), -mixture().log_prob(z.double()), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bound", [None, 0.5])
def test_the_network_stays_within_its_bound(bound):
    energy, _ = corrected(bound=bound)
    most = 4.0 if bound is None else bound
    f = energy.network(100 * torch.randn(1000, 3, generator=generator(0)))
    assert f.abs().max() <= most
    assert f.abs().max() > 0.9 * most  # weights this large reach it
    with pytest.raises(UserError, match="bound must be positive"):
        Architecture("corrected", bound=0.0)


def test_the_formula_by_hand():
    waves = torch.tensor([[2.0], [0.0]])
    network = BoundedNetwork(2, width=1, depth=1, bound=3.0, frequencies=waves)
    hidden, _, last = network.net
    with torch.no_grad():
        hidden.weight.copy_(torch.tensor([[1.0, -1.0, 0.5, 2.0]]))
        hidden.bias.fill_(0.1)
        last.weight.fill_(1.5)
        last.bias.fill_(-0.2)
    x, y = 0.4, -0.7
    inner = x - y + 0.5 * math.sin(2 * x) + 2 * math.cos(2 * x) + 0.1
    value = 1.5 * inner / (1 + math.exp(-inner)) - 0.2
    assert network(torch.tensor([[x, y]])).item() == pytest.approx(3 * math.tanh(value / 3), rel=1e-5)


@pytest.mark.parametrize("waves", [0, 5])
@pytest.mark.parametrize("mode", ["auto", "eager"])
@pytest.mark.parametrize("d", [2, 12])
def test_energy_and_gradient_by_hand_are_those_of_autograd(waves, mode, d):
    energy, _ = corrected(d, waves)
    z = torch.randn(40, d, generator=generator(1))
    with fast.using("plain"):
        expected, slope = fast.evaluator(energy)(z)
    with fast.using(mode):
        by_hand = fast.by_hand(energy)
        assert by_hand is not None
        result, gradient = by_hand(z)
        alone = by_hand.energy(z)
    scale = slope.abs().max().item()
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(alone, expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(gradient, slope, rtol=1e-4, atol=1e-5 * scale)


def test_tensors_of_a_file_rebuild_it_to_the_last_bit():
    energy, architecture = corrected()
    again = architecture.rebuild((3,), energy.state_dict())
    again.load_state_dict(energy.state_dict())
    z = torch.randn(50, 3, generator=generator(1))
    assert isinstance(again, CorrectedEnergy)
    assert torch.equal(again(z), energy(z))
    assert torch.equal(again.mixture.sample(9, generator(0)), energy.mixture.sample(9, generator(0)))
    plain = Architecture("mlp", width=4)
    assert type(plain.rebuild((3,), plain.build((3,)).state_dict())) is type(plain.build((3,)))
    with pytest.raises(RuntimeError, match="another network"):
        plain.rebuild((3,), {})
    with pytest.raises(UserError, match="set start to mixture"):
        architecture.build((3,))


def test_the_mixture_is_not_trained():
    energy, _ = corrected()
    assert {name.split(".")[0] for name, _ in energy.named_parameters()} == {"network"}


def test_waves_have_the_scales_of_the_components():
    """In whitened coordinates a wave is a direction times |N(0, 1)|: mean square 1, five standard errors of sqrt(2/n).

    The narrow component, whose deviation is a hundredth, gets waves a hundred times as fast.
    """
    factors = torch.stack([torch.eye(2), 0.01 * torch.eye(2)]).double()
    factors[0, 1, 0] = 0.8
    single = Mixture(torch.ones(1).double(), torch.zeros(1, 2).double(), factors[:1])
    n = 4000
    waves = local_waves(single, n, generator(0))
    assert waves.shape == (2, n)
    assert waves.dtype == torch.float32
    squares = (factors[0].T @ waves.double()).square()
    assert squares.sum(0).mean().item() == pytest.approx(1, abs=5 * math.sqrt(2 / n))
    # All directions alike: half of the square along either axis, whose variance is below that of the whole.
    assert squares.mean(1).tolist() == pytest.approx([0.5, 0.5], abs=5 * math.sqrt(2 / n))
    both = Mixture(torch.tensor([0.75, 0.25]).double(), torch.zeros(2, 2).double(), factors)
    fast_waves = (local_waves(both, n, generator(0)).norm(dim=0) > 10).double().mean().item()
    # A quarter of the waves have length 100 |N|, above 10 with chance .92; the others hardly ever.
    assert fast_waves == pytest.approx(0.25 * 0.92, abs=5 * math.sqrt(0.25 * 0.75 / n) + 0.005)
    assert local_waves(both, 0, generator(0)).shape == (2, 0)
