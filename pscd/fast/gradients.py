"""An energy and its gradient with respect to the input, as fast as the kind of energy allows.

A chain takes this gradient at every step and needs nothing else: no gradient of the weights, no graph. For sequences of
known layers it is written by hand, see `pscd.fast.sequence`; any other energy goes through autograd. Weights are read
once per chain, so that spectral normalisation, for example, is computed once.

A module of your own takes part by a method `as_sequence() -> Sequence | None` if it is one, or else by a method
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

NOISE_NUMBERS = 1_000_000  # random numbers drawn in advance for one call
DEVICES = ("cpu", "cuda")
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
    """What a chain calls at every step, for the current weights."""
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
    """Energy and gradient by hand, for sequences of known layers and modules with a method `input_gradient`."""
    if not _may_go_by_hand(energy):
        return None
    sequence = _as_sequence(energy, shape)
    if sequence is not None:
        return sequences.evaluator(sequence, compiled=_mode.get() == "auto")
    if isinstance(energy, HasInputGradient) and _speaks_for_itself(energy, "input_gradient"):
        return energy.input_gradient()
    return None


def energies(energy: Energy, x: Tensor) -> Tensor:
    """E(x) for a loss, differentiable once and with respect to the weights alone; in C++ where possible."""
    if _mode.get() == "auto" and torch.is_grad_enabled() and not x.requires_grad and _may_go_by_hand(energy):
        sequence = _as_sequence(energy, tuple(x.shape[1:]))
        e = sequences.energies(sequence, x) if sequence is not None else None
        if e is not None:
            return e
    return energy(x)


def _may_go_by_hand(energy: Energy) -> TypeGuard[nn.Module]:
    autocast = any(map(torch.is_autocast_enabled, DEVICES))
    return _mode.get() != "plain" and isinstance(energy, nn.Module) and not autocast


def _as_sequence(energy: nn.Module, shape: tuple[int, ...] | None) -> Sequence | None:
    """The sequence that an `nn.Sequential` ending in `nn.Flatten(0)`, or a module's `as_sequence`, stands for."""
    if isinstance(energy, IsSequence) and _speaks_for_itself(energy, "as_sequence"):
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
    """What chains call at every step inside the block; an energy that needs autograd is frozen meanwhile.

    Args:
        energy: maps `(B, *shape)` to `(B,)`.
        x: the chains' points, `(B, *shape)`.

    Yields:
        Energy and gradient, the fastest way.
    """
    known = by_hand(energy, tuple(x.shape[1:]))
    if known is not None:
        yield known
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
    most = max(1, NOISE_NUMBERS // max(x.numel(), 1))
    for first in range(0, n_steps, most):
        z = x.new_empty(min(most, n_steps - first), *x.shape)
        if noise != 0:
            # torch draws normals in groups of 16: whole groups are the same at once as step by step.
            for part in [z] if x.numel() % 16 == 0 else z:
                part.normal_(generator=generator)
            z *= noise
        else:
            z.zero_()
        x = moves(x, z, float(step_size), math.inf if max_grad is None else max_grad, bounds or (-math.inf, math.inf))
    return x


def _ends_rows(module: nn.Module) -> bool:
    """Whether the module does nothing but turn `(B, 1)` into `(B,)`."""
    return type(module) is nn.Flatten and (module.start_dim, module.end_dim) == (0, -1) and not has_hooks(module)


def _speaks_for_itself(energy: nn.Module, method: str) -> bool:
    """Whether the method was written for the `forward` in use: a subclass may override `forward` alone."""
    owners = type(energy).__mro__
    speaker = next((i for i, owner in enumerate(owners) if method in vars(owner)), len(owners))
    doer = next(i for i, owner in enumerate(owners) if "forward" in vars(owner))
    return speaker <= doer and not has_hooks(energy)
