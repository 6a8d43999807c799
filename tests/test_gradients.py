import pytest
import torch
from torch import nn

from pscd import gradients
from pscd.energies import MLP, Correction, Quadratic
from pscd.errors import UserError
from pscd.gradients import ACTIVATIONS, by_autograd, by_hand, evaluator, kind, using
from pscd.rng import generator
from pscd.samplers import Tempered, frozen, langevin


def sequence(*inner):
    return nn.Sequential(nn.Linear(4, 8), *inner, nn.Linear(8, 1), nn.Flatten(0))


ENERGIES = {
    "mlp": (MLP((4,), width=8), (4,)),
    "waves and base": (MLP((2,), width=8, fourier=5, base_scale=2.0), (2,)),
    "rows with a shape": (MLP((3, 2), width=8, fourier=2), (3, 2)),
    "spectral norm": (MLP((4,), width=8, spectral_norm=True), (4,)),
    "correction": (Correction(3, bound=2.0, width=8), (3,)),
    "tempered": (Tempered(MLP((2,), width=8, fourier=3, base_scale=1.0), 1.7), (2,)),
    "nested, without bias": (sequence(nn.Sequential(nn.SiLU(), nn.Linear(8, 8, bias=False), nn.Tanh())), (4,)),
    **{f"sequence with {name.__name__}": (sequence(name()), (4,)) for name in ACTIVATIONS},
}
# Most call the same kernels in the same order as autograd; in the others, sums and products are in another order.
OTHER_ORDER = ("waves and base", "rows with a shape", "correction", "tempered")


def perturbed(module):
    """Without the zeros that a correction starts from, and with offsets."""
    g = generator(1)
    for p in module.parameters():
        p.data.add_(0.3 * torch.randn(p.shape, generator=g))
    return module


@pytest.mark.parametrize("name", ENERGIES)
def test_by_hand_is_autograd(name):
    energy, shape = ENERGIES[name]
    perturbed(energy)
    with frozen(energy):
        evaluate = by_hand(energy)
        assert evaluate is not None
        for batch in (6, 6, 3, 7):  # memory is used again, and made anew for another size
            x = 2 * torch.randn(batch, *shape, generator=generator(batch))
            ours, theirs = evaluate(x), by_autograd(energy)(x)
            for a, b in zip(ours, theirs, strict=True):
                assert a.shape == b.shape
                assert not a.requires_grad
                if name in OTHER_ORDER:
                    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
                else:
                    assert torch.equal(a, b)


def test_what_was_returned_stays_when_called_again():
    evaluate = by_hand(MLP((2,), width=8, fourier=2, base_scale=2.0))
    first = evaluate(torch.ones(5, 2))
    kept = [t.clone() for t in first]
    evaluate(torch.zeros(5, 2))
    assert all(torch.equal(a, b) for a, b in zip(first, kept, strict=True))


class Doubled(MLP):
    """Another energy than the one whose gradient it inherits."""

    def forward(self, x):
        return 2 * super().forward(x)


def hooked():
    net = sequence(nn.SiLU())
    net[0].register_forward_hook(lambda module, args, out: 2 * out)
    return net


def patched():
    net = MLP((4,), width=8)
    net.forward = lambda x: x.square().sum(1)
    return net


@pytest.mark.parametrize(
    "energy",
    [
        Doubled((4,), width=8),
        hooked(),
        patched(),
        sequence(nn.Dropout(0.5)),
        nn.Sequential(nn.Linear(4, 8), nn.SiLU(), nn.Linear(8, 1)),  # (B, 1), not (B,)
        nn.Sequential(nn.Linear(4, 8), nn.Flatten(0)),
        Quadratic(dim=4),
        lambda x: x.square().sum(1),
    ],
    ids=["derived", "hooked", "patched", "unknown layer", "column", "many outputs", "no layers", "function"],
)
def test_whatever_is_not_known_goes_through_autograd(energy):
    assert by_hand(energy) is None
    assert kind(energy) == "by autograd"
    if not isinstance(energy, nn.Module) or isinstance(energy, Doubled):
        x = torch.randn(3, 4, generator=generator(0))
        e, grad = evaluator(energy)(x)
        if not isinstance(energy, nn.Module):
            assert torch.equal(grad, 2 * x)
        else:
            torch.testing.assert_close(e, energy(x).detach())


def test_modes():
    energy = MLP((2,), width=8)
    assert kind(energy) == "by hand"
    with using("plain"):
        assert kind(energy) == "by autograd"
        with using("auto"):  # leaves the choice to what is around it
            assert kind(energy) == "by autograd"
    assert kind(energy) == "by hand"
    with pytest.raises(UserError, match="gradients must be one of auto, plain"), using("quick"):
        pass


def test_a_chain_is_the_same_either_way():
    energy = perturbed(MLP((4,), width=8))
    x = torch.randn(10, 4, generator=generator(0))

    def chain():
        return langevin(energy, x, n_steps=20, step_size=0.02, generator=generator(1))

    fast = chain()
    with using("plain"):
        assert torch.equal(chain(), fast)


def test_weights_are_fetched_anew_for_each_chain():
    energy = MLP((2,), width=8)
    x = torch.randn(4, 2, generator=generator(0))
    before = gradients.evaluator(energy)(x)[0]
    perturbed(energy)
    assert torch.equal(gradients.evaluator(energy)(x)[0], energy(x).detach())
    assert not torch.equal(before, energy(x).detach())
