import copy
from dataclasses import replace

import pytest
import torch
from torch import nn

from pscd.energies import MLP, ConvNet, Correction, LabelledEnergy, PlainCNN, TemperedEnergy
from pscd.fast import by_hand, cpp, energies, fixed_weights, frozen, sequence, using
from pscd.fast.gradients import by_autograd
from pscd.fast.sequence import Sequence, evaluator
from pscd.fast.torch_layers import ACTIVATIONS
from pscd.rng import generator
from tests.fast.helpers import limited


def energy_of(*inner):
    return nn.Sequential(nn.Linear(4, 8), *inner, nn.Linear(8, 1), nn.Flatten(0))


def images(*inner, channels=1, **settings):
    """Convolutions, of which the first goes back by matrix products if the image has few channels."""
    first = nn.Conv2d(channels, 8, (3, 2), **{"padding": (1, 1), **settings})
    body = nn.Sequential(first, *inner, nn.Conv2d(8, 6, 4, stride=2, padding=1), nn.SiLU(), nn.Flatten())
    size = body(torch.zeros(1, channels, 9, 10)).shape[1]
    return nn.Sequential(body, nn.Linear(size, 1), nn.Flatten(0))


LABEL = torch.arange(50) * 3 % 5
ENERGIES = {
    "mlp": (MLP((4,), width=8), (4,)),
    "waves and base": (MLP((2,), width=8, fourier=5, base_scale=2.0), (2,)),
    "many waves": (MLP((3,), width=40, fourier=33), (3,)),
    "rows with a shape": (MLP((3, 2), width=8, fourier=2), (3, 2)),
    "spectral norm": (MLP((4,), width=8, spectral_norm=True), (4,)),
    "wide": (MLP((70,), width=100, depth=2), (70,)),
    "correction": (Correction(3, bound=2.0, width=8), (3,)),
    "tempered": (TemperedEnergy(MLP((2,), width=8, fourier=3, base_scale=1.0), 1.7), (2,)),
    "nested, without bias": (energy_of(nn.Sequential(nn.SiLU(), nn.Linear(8, 8, bias=False), nn.Tanh())), (4,)),
    "no activation": (energy_of(nn.Linear(8, 8)), (4,)),
    "flat images": (
        nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.SiLU(), nn.Linear(8, 1), nn.Flatten(0)),
        (1, 3, 4),
    ),
    "convolutions": (images(nn.SiLU()), (1, 9, 10)),
    "without padding or bias": (images(nn.ReLU(), padding=0, bias=False), (1, 9, 10)),
    "colours, pooled": (images(nn.LeakyReLU(0.1), nn.AvgPool2d(2), channels=3), (3, 9, 10)),
    "many channels": (images(nn.SiLU(), nn.AvgPool2d(3, stride=2, padding=1), channels=6), (6, 9, 10)),
    "dilated, grouped": (images(nn.Conv2d(8, 8, 2, dilation=2, groups=2, padding=(2, 1)), nn.Tanh()), (1, 9, 10)),
    "the small network": (ConvNet((1, 10, 9), width=4, depth=3), (1, 10, 9)),
    "its labels": (LabelledEnergy(ConvNet((3, 8, 8), width=4, depth=2, classes=5), LABEL), (3, 8, 8)),
    "stack": (PlainCNN((3, 8, 8), width=4, depth=2, spectral_norm=True), (3, 8, 8)),
    "labels of a stack": (LabelledEnergy(PlainCNN((1, 8, 8), width=4, depth=2, classes=5), LABEL), (1, 8, 8)),
    **{f"with {name.__name__}": (energy_of(name()), (4,)) for name in ACTIVATIONS},
}
# Most call the same kernels in the same order as autograd; in the others, sums and products are in another order.
IMAGES = [name for name, (_, shape) in ENERGIES.items() if len(shape) == 3 and name != "flat images"]
OTHER_ORDER = ("waves and base", "many waves", "rows with a shape", "correction", "tempered", *IMAGES)
NOT_IN_CPP = ("with Softplus", "colours, pooled", "many channels", "dilated, grouped")


def perturbed(module):
    """A copy without the zeros that a correction starts from, and with offsets."""
    module, g = copy.deepcopy(module), generator(1)
    for p in module.parameters():
        p.data.add_(0.2 * torch.randn(p.shape, generator=g))
    return module


def rows(batch, shape):
    return 2 * torch.randn(batch, *shape, generator=generator(batch))


@pytest.mark.parametrize("name", ENERGIES)
def test_by_hand_is_autograd(name):
    energy, shape = ENERGIES[name]
    energy = perturbed(energy)
    with frozen(energy), using("eager"):
        evaluate = by_hand(energy)
        assert evaluate.how == "by hand"
        for batch in (6, 6, 3, 7):  # memory is used again, and made anew for another size
            x = rows(batch, shape)
            for a, b in zip(evaluate(x), by_autograd(energy)(x), strict=True):
                assert a.shape == b.shape
                assert not a.requires_grad
                if name in OTHER_ORDER:
                    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
                else:
                    assert torch.equal(a, b)


@pytest.mark.skipif(cpp.library() is None, reason="no C++ compiler")
@pytest.mark.parametrize("name", [name for name in ENERGIES if name not in NOT_IN_CPP])
def test_cpp_is_autograd_to_rounding(name):
    energy, shape = ENERGIES[name]
    energy = perturbed(energy)
    with frozen(energy):
        evaluate = by_hand(energy, shape)
        assert evaluate.how == "by hand in C++"
        for batch in (1, 11, 12, 13, 50):  # around the number of rows that go together
            x = rows(batch, shape)
            for a, b in zip(evaluate(x), by_autograd(energy)(x), strict=True):
                assert a.shape == b.shape
                assert (a - b).abs().max() <= 1e-5 * max(1.0, b.abs().max().item())


def test_what_cpp_does_not_know_is_done_with_torch():
    for name in NOT_IN_CPP:
        energy, shape = ENERGIES[name]
        assert by_hand(energy, shape).how == "by hand"
    energy, shape = ENERGIES["convolutions"]
    assert by_hand(energy).how == "by hand"  # for want of a size
    assert by_hand(MLP((2,), width=8).double()).how == "by hand"
    assert by_hand(energy_of(nn.SiLU(), nn.SiLU())).how == "by hand"


@pytest.mark.parametrize("mode", ["auto", "eager"])
def test_what_was_returned_stays_when_called_again(mode):
    with using(mode):
        evaluate = by_hand(MLP((2,), width=8, fourier=2, base_scale=2.0))
    first = evaluate(torch.ones(5, 2))
    stored = [t.clone() for t in first]
    evaluate(torch.zeros(5, 2))
    assert all(torch.equal(a, b) for a, b in zip(first, stored, strict=True))


@pytest.mark.parametrize(
    "net",
    [
        nn.Sequential(),
        nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1)),
        nn.Sequential(nn.Linear(4, 8), nn.SiLU()),
        nn.Sequential(nn.Linear(4, 8), nn.SiLU(), nn.Linear(8, 2)),
        nn.Sequential(nn.Conv2d(1, 4, 3, padding="same"), nn.Flatten(), nn.Linear(64, 1)),
        nn.Sequential(nn.Conv2d(1, 4, 3, padding=1, padding_mode="circular"), nn.Flatten(), nn.Linear(64, 1)),
        nn.Sequential(nn.Flatten(2), nn.Linear(4, 1)),
    ],
    ids=["nothing", "unknown layer", "activation last", "two outputs", "same", "circular", "half flat"],
)
def test_none_for_other_networks(net):
    assert evaluator(Sequence(net)) is None


def test_spectral_norm_takes_no_power_iteration():
    energy = MLP((4,), width=8, spectral_norm=True).train()
    before = {name: t.clone() for name, t in energy.state_dict().items()}
    x = rows(3, (4,))
    e, _ = by_hand(energy)(x)
    assert energy.training
    assert energy.net[0].parametrizations.weight[0].training
    assert all(torch.equal(t, before[name]) for name, t in energy.state_dict().items())
    torch.testing.assert_close(e, energy.eval()(x).detach())


# Fully connected, with weights that are parameters themselves.
LEARNT_IN_CPP = (
    *("mlp", "waves and base", "many waves", "rows with a shape", "wide", "correction", "nested, without bias"),
    *("no activation", "flat images", "with SiLU", "with Tanh", "with ReLU", "with LeakyReLU"),
)


def learnt(energy, x, mode):
    """Energies and the gradients of all weights, of a loss with squares; and whether C++ was used."""
    with using(mode):
        e = energies(energy, x)
    factor = torch.linspace(-1, 1, len(x))
    energy.zero_grad()
    (factor * e + 0.1 * e.square()).sum().backward()
    return e.detach(), [p.grad.clone() for p in energy.parameters()], "_Energies" in type(e.grad_fn).__name__


@pytest.mark.skipif(cpp.library() is None, reason="no C++ compiler")
@pytest.mark.parametrize("name", ENERGIES)
def test_weights_learn_the_same_in_cpp(name, any_size):
    energy, shape = ENERGIES[name]
    energy = perturbed(energy).eval()  # in which spectral normalisation stands still
    for batch in (1, 12, 13, 50):
        x = rows(batch, shape)
        e, grads, compiled = learnt(energy, x, "auto")
        plain_e, plain_grads, other = learnt(energy, x, "plain")
        assert compiled == (name in LEARNT_IN_CPP)
        assert not other
        torch.testing.assert_close(e, plain_e, rtol=1e-5, atol=1e-5)
        for a, b in zip(grads, plain_grads, strict=True):
            assert (a - b).abs().max() <= 1e-5 * max(1.0, b.abs().max().item())


@pytest.mark.skipif(cpp.library() is None, reason="no C++ compiler")
def test_what_asks_for_more_than_weights_goes_through_autograd(any_size):
    energy, x = MLP((4,), width=8), rows(5, (4,))

    def in_cpp(x=x):
        return "_Energies" in type(energies(energy, x).grad_fn).__name__

    assert in_cpp()
    assert not in_cpp(x.clone().requires_grad_())
    with using("eager"):
        assert not in_cpp()
    with torch.no_grad():
        assert energies(energy, x).grad_fn is None
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not in_cpp()
    hook = energy.net[0].register_full_backward_hook(lambda *_: None)
    assert not in_cpp()
    hook.remove()
    energy.net.insert(1, energy.net[1])  # SiLU twice
    assert not in_cpp()
    energy.double()
    assert not in_cpp(x.double())


@pytest.mark.skipif(cpp.library() is None, reason="no C++ compiler")
@pytest.mark.parametrize(("width", "batch", "compiled"), [(100, 200, True), (100, 90, False), (800, 200, False)])
def test_networks_of_a_middling_size_learn_in_cpp(width, batch, compiled):
    e = energies(MLP((4,), width=width, depth=2), rows(batch, (4,)))
    assert ("_Energies" in type(e.grad_fn).__name__) == compiled


@pytest.mark.skipif(cpp.library() is None, reason="no C++ compiler")
def test_a_layer_that_occurs_twice_learns_from_both(any_size):
    layer = nn.Linear(4, 4)
    energy = nn.Sequential(layer, nn.SiLU(), layer, nn.SiLU(), nn.Linear(4, 1), nn.Flatten(0))
    x = rows(5, (4,))
    for a, b in zip(learnt(energy, x, "auto")[1], learnt(energy, x, "plain")[1], strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.skipif(cpp.library() is None, reason="no C++ compiler")
def test_weights_that_are_held_get_no_gradient_and_a_record_serves_once(any_size):
    energy = MLP((4,), width=8)
    energy.net[0].weight.requires_grad_(False)
    loss = energies(energy, rows(5, (4,))).sum()
    loss.backward(retain_graph=True)
    assert energy.net[0].weight.grad is None
    assert energy.net[0].bias.grad is not None
    with pytest.raises(RuntimeError, match="a second time"):
        loss.backward()


@pytest.mark.skipif(cpp.library() is None, reason="no C++ compiler")
def test_layouts_are_kept_only_where_weights_are_fixed(any_size):
    energy, x = MLP((4,), width=8, base_scale=2.0), rows(5, (4,))
    first = by_hand(energy)(x)[0]
    with fixed_weights():
        by_hand(energy)
        with torch.no_grad():
            energy.net[0].weight.zero_()  # a promise that is broken, to see whether it was relied on
        assert torch.equal(by_hand(energy)(x)[0], first)
        assert torch.equal(energies(energy, x), first)
        energy.base_scale = 1.0  # not a weight
        assert not torch.equal(by_hand(energy)(x)[0], first)
    torch.testing.assert_close(by_hand(energy)(x)[0], energy(x).detach())


@pytest.mark.skipif(cpp.library() is None, reason="no C++ compiler")
@pytest.mark.parametrize(
    ("inputs", "batch", "compiled"),
    [(99, 99, False), (99, 100, True), (4999, 3, True), (5000, 3, False)],
    ids=["too few rows", "a million in all", "half a million a row", "too wide"],
)
def test_where_autograd_is_as_fast_it_is_used(inputs, batch, compiled):
    """With 100 hidden units a row takes 100 (inputs + 1) multiply-adds."""
    energy = nn.Sequential(nn.Linear(inputs, 100), nn.SiLU(), nn.Linear(100, 1), nn.Flatten(0))
    e = energies(energy, rows(batch, (inputs,)))
    assert ("_Energies" in type(e.grad_fn).__name__) == compiled


@pytest.mark.skipif(cpp.library() is None, reason="no C++ compiler")
def test_how_deep_and_how_large_networks_in_cpp_may_be():
    def deep(n):
        return nn.Sequential(*(nn.Linear(2, 2) for _ in range(n)), nn.Linear(2, 1), nn.Flatten(0))

    assert [by_hand(deep(n)).how for n in (1, 32, 33)] == ["by hand in C++", "by hand in C++", "by hand"]
    assert by_hand(nn.Sequential(nn.Linear(2, 1), nn.Flatten(0))).how == "by hand"  # no hidden layer
    with limited(sequence.Limits(max_work=4)):
        assert [by_hand(deep(n)).how for n in (1, 2)] == ["by hand in C++", "by hand"]


@pytest.mark.skipif(cpp.library() is None, reason="no C++ compiler")
def test_what_is_kept_is_kept_for_the_same_extras_only():
    net, waves = nn.Sequential(nn.Linear(4, 2), nn.Linear(2, 1)), torch.zeros(1, 1)
    first = Sequence(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1)))
    with fixed_weights():
        result = sequence._parsed(first)
        assert sequence._parsed(replace(first)) is result
        for changes in ({"shape": (2,)}, {"precision": 1.0}, {"bound": 2.0}):
            assert sequence._parsed(replace(first, **changes)) is not result
        assert sequence._parsed(first, compiled=False)[1] is None
    assert sequence._parsed(first) is not sequence._parsed(first)
    other = Sequence(net, frequencies=waves)
    assert sequence._are_same(other, replace(other))
    assert not sequence._are_same(other, replace(other, frequencies=waves.clone()))
    assert not sequence._are_same(other, replace(other, output=torch.zeros(1)))
