"""Modified energies: with given labels, in bfloat16, at another temperature, with a part of the input held fixed."""

from functools import cache

import torch
from torch import Tensor, nn

from pscd import fast
from pscd.energies.images import ConvNet, PlainCNN
from pscd.fast import Evaluator, Sequence, has_hooks
from pscd.types import Energy


class LabelledEnergy(nn.Module):
    """E(x, label) for fixed labels: a function of x alone, as samplers and losses need it.

    Args:
        energy: a conditional energy.
        label: `(n,)`; a batch of B <= n rows has the first B of them.
    """

    def __init__(self, energy: nn.Module, label: Tensor) -> None:
        super().__init__()
        self.energy, self.label = energy, label

    def forward(self, x: Tensor) -> Tensor:
        """Energies, `(B, *shape)` to `(B,)`."""
        return self.energy(x, self.label[: len(x)])

    def as_sequence(self) -> Sequence | None:
        """The energy as a sequence for `pscd.fast`; None unless its last layer has an output for each label."""
        inner = self.energy
        if not isinstance(inner, ConvNet | PlainCNN) or type(inner) not in (ConvNet, PlainCNN) or has_hooks(inner):
            return None
        return inner.as_sequence(self.label)


class BFloat16Energy(nn.Module):
    """An energy whose network computes in bfloat16 where that is safe; energies are returned in float32."""

    def __init__(self, energy: nn.Module) -> None:
        super().__init__()
        self.energy = energy

    def forward(self, x: Tensor) -> Tensor:
        """Energies, `(B, *shape)` to `(B,)`."""
        with torch.autocast(x.device.type, dtype=torch.bfloat16):
            return self.energy(x).float()


class TemperedEnergy(nn.Module):
    """power * E(x), whose samples follow q^power."""

    def __init__(self, energy: nn.Module, power: float) -> None:
        super().__init__()
        self.energy, self.power = energy, power

    def forward(self, x: Tensor) -> Tensor:
        """Energies, `(B, *shape)` to `(B,)`."""
        return self.power * self.energy(x)

    def input_gradient(self) -> Evaluator | None:
        """Energy and gradient by hand, times the power; None if the energy itself needs autograd."""
        inner = fast.by_hand(self.energy)
        if inner is None:
            return None

        def evaluate(x: Tensor) -> tuple[Tensor, Tensor]:
            e, grad = inner(x)
            return self.power * e, self.power * grad

        def alone(x: Tensor) -> Tensor:
            return self.power * inner.energy(x)

        if inner.moves is None or self.power <= 0:
            return Evaluator(evaluate, inner.how, alone=alone)
        inner_moves = inner.moves

        def moves(x: Tensor, noise: Tensor, step_size: float, max_grad: float, box: tuple[float, float]) -> Tensor:
            return inner_moves(x, noise, self.power * step_size, max_grad / self.power, box)

        return Evaluator(evaluate, inner.how, moves, alone)


class MaskedEnergy(nn.Module):
    """E(x) with a part of x held fixed: the gradient is 0 there, so chains move only the rest.

    Args:
        energy: of whole images.
        x: images `(B, *shape)` that hold the known pixels.
        known: `(*shape)` or `(B, *shape)`, true where a pixel is held fixed.
    """

    def __init__(self, energy: Energy, x: Tensor, known: Tensor) -> None:
        super().__init__()
        self.energy, self.x, self.known = energy, x, known

    def whole(self, x: Tensor) -> Tensor:
        """`x` with the known pixels filled in."""
        return torch.where(self.known, self.x, x)

    def forward(self, x: Tensor) -> Tensor:
        """Energies, `(B, *shape)` to `(B,)`."""
        return self.energy(self.whole(x))


def as_function(energy: nn.Module, precision: str, *label: Tensor | None) -> nn.Module:
    """The energy as a function of x alone, with its labels and precision."""
    known = [part for part in label if part is not None]
    energy = LabelledEnergy(energy, torch.cat(known)) if known else energy
    if precision != "bfloat16":
        return energy
    device = next((p.device.type for p in energy.parameters()), "cpu")
    return BFloat16Energy(energy) if device != "cpu" or has_bfloat16() else energy


@cache
def has_bfloat16() -> bool:
    """Whether this processor has instructions for bfloat16; without them it takes many times as long as float32."""
    # A private operator of torch, which not every build has.
    supported = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None)
    return supported is not None and bool(supported())
