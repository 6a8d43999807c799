"""An energy and its gradient with respect to the input, as fast as the kind of energy allows.

A chain takes this gradient at every step and needs nothing else: no gradient of the weights, no graph. For sequences of
supported layers it is written by hand, see `pscd.fast.sequence`; any other energy goes through autograd. Weights are
read once per chain, so that spectral normalisation, for example, is computed once.

A custom module uses this by a method `as_sequence() -> Sequence | None` if it is a sequence, or else by a method
`input_gradient() -> Evaluator | None`, which is called at the start of each chain.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol, TypeGuard, runtime_checkable

import torch
from torch import Tensor, nn

from pscd.errors import UserError
from pscd.fast import sequence as sequences
from pscd.fast.sequence import Sequence
from pscd.fast.torch_layers import Evaluator, Moves, has_hooks
from pscd.types import Energy

MODES = ("auto", "eager", "plain")
_mode: ContextVar[str] = ContextVar("mode", default="auto")


@runtime_checkable
class IsSequence(Protocol):
    """A module that can be written as a sequence of layers."""

    def as_sequence(self) -> Sequence | None:
        """The sequence; None to fall back to autograd."""
        ...


@runtime_checkable
class HasInputGradient(Protocol):
    """A module that computes its own input gradient."""

    def input_gradient(self) -> Evaluator | None:
        """Energy and gradient for the current weights, in evaluation mode; None to fall back to autograd."""
        ...


@contextmanager
def using(mode: str) -> Iterator[None]:
    """Choose how chains inside the block get their gradients."""
    if mode not in MODES:
        raise UserError(f"gradients must be one of {', '.join(MODES)}, got {mode!r}")
    token = _mode.set(_mode.get() if mode == "auto" else mode)
    try:
        yield
    finally:
        _mode.reset(token)


def evaluator(energy: Energy, shape: tuple[int, ...] | None = None) -> Evaluator:
    """Energy and gradient for the current weights, by the fastest way."""
    return by_hand(energy, shape) or by_autograd(energy)


def by_autograd(energy: Energy) -> Evaluator:
    """Energy and gradient through autograd, for any callable."""

    def evaluate(x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            x = x.detach().requires_grad_(True)
            e = energy(x)
            (grad,) = torch.autograd.grad(e.sum(), x)
        return e.detach(), grad

    @torch.no_grad()
    def alone(x: Tensor) -> Tensor:
        return energy(x.detach())

    return Evaluator(evaluate, "by autograd", alone=alone)


def by_hand(energy: Energy, shape: tuple[int, ...] | None = None) -> Evaluator | None:
    """Energy and gradient by hand, for sequences and modules with a method `input_gradient`; None for others."""
    if not _allows_by_hand(energy):
        return None
    sequence = _as_sequence(energy, shape)
    if sequence is not None:
        return sequences.evaluator(sequence, compiled=_mode.get() == "auto")
    if isinstance(energy, HasInputGradient) and _describes_forward(energy, "input_gradient"):
        return energy.input_gradient()
    return None


def energies(energy: Energy, x: Tensor) -> Tensor:
    """E(x) for a loss, differentiable once and only with respect to the weights; in C++ where possible."""
    if _mode.get() == "auto" and torch.is_grad_enabled() and not x.requires_grad and _allows_by_hand(energy):
        sequence = _as_sequence(energy, tuple(x.shape[1:]))
        e = sequences.energies(sequence, x) if sequence is not None else None
        if e is not None:
            return e
    return energy(x)


def _allows_by_hand(energy: Energy) -> TypeGuard[nn.Module]:
    autocast = any(map(torch.is_autocast_enabled, ("cpu", "cuda")))
    return _mode.get() != "plain" and isinstance(energy, nn.Module) and not autocast


def _as_sequence(energy: nn.Module, shape: tuple[int, ...] | None) -> Sequence | None:
    """The sequence of an `nn.Sequential` ending in `nn.Flatten(0)`, or that of a module's `as_sequence`."""
    if isinstance(energy, IsSequence) and _describes_forward(energy, "as_sequence"):
        return energy.as_sequence()
    if type(energy) is nn.Sequential and len(energy) > 1 and _ends_rows(energy[-1]) and not has_hooks(energy):
        return Sequence(energy[:-1], shape)
    return None


@contextmanager
def frozen(energy: Energy) -> Iterator[None]:
    """Take the parameters of an energy out of the graph and put it into evaluation mode, for the block.

    Evaluation mode keeps spectral normalisation from advancing its power iteration at every step of a chain.
    """
    if not isinstance(energy, nn.Module):
        yield
        return
    was_training = energy.training
    trainable = [p for p in energy.parameters() if p.requires_grad]
    energy.eval()
    for p in trainable:
        p.requires_grad_(False)
    try:
        yield
    finally:
        for p in trainable:
            p.requires_grad_(True)
        energy.train(was_training)


@contextmanager
def evaluating(energy: Energy, x: Tensor) -> Iterator[Evaluator]:
    """Energy and gradient for chains inside the block; an energy that needs autograd is frozen meanwhile.

    Args:
        energy: maps `(B, *shape)` to `(B,)`.
        x: the chains' points, `(B, *shape)`.

    Yields:
        Energy and gradient, the fastest way.
    """
    fast = by_hand(energy, tuple(x.shape[1:]))
    if fast is not None:
        yield fast
        return
    with frozen(energy):
        yield by_autograd(energy)


def at_once(
    moves: Moves,
    x: Tensor,
    n_steps: int,
    step_size: float | Tensor,
    noise: float | Tensor,
    bounds: tuple[float, float] | None,
    max_grad: float | None,
    generator: torch.Generator | None,
) -> Tensor:
    """The loop of `langevin` with many steps per call of C++, and the same noise."""
    most = max(1, sequences.limits.get().noise_numbers // max(x.numel(), 1))
    for first in range(0, n_steps, most):
        z = x.new_empty(min(most, n_steps - first), *x.shape)
        if noise != 0:
            # torch draws normals in groups of 16: multiples of 16 are the same numbers at once as step by step.
            for part in [z] if x.numel() % 16 == 0 else z:
                part.normal_(generator=generator)
            z *= noise
        else:
            z.zero_()
        x = moves(x, z, float(step_size), math.inf if max_grad is None else max_grad, bounds or (-math.inf, math.inf))
    return x


def _ends_rows(module: nn.Module) -> bool:
    """Whether the module only turns `(B, 1)` into `(B,)`."""
    return type(module) is nn.Flatten and (module.start_dim, module.end_dim) == (0, -1) and not has_hooks(module)


def _describes_forward(energy: nn.Module, method: str) -> bool:
    """Whether the method was written for the `forward` in use: a subclass may override `forward` alone."""
    classes = type(energy).__mro__
    of_method = next((i for i, owner in enumerate(classes) if method in vars(owner)), len(classes))
    of_forward = next(i for i, owner in enumerate(classes) if "forward" in vars(owner))
    return of_method <= of_forward and not has_hooks(energy)
