"""Sequences of layers by hand: in C++ where there is a compiler and that is faster, otherwise with torch.

In C++ (`pscd.fast.cpp`) a few rows at a time go forward and backward through all layers, and a Langevin chain is one
call. With torch (`pscd.fast.torch_layers`) layers are called one after the other. Both agree with autograd to rounding.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from pscd.fast import cpp
from pscd.fast.threads import allowed_threads
from pscd.fast.torch_layers import (
    ACTIVATIONS,
    Activation,
    Convolution,
    Evaluator,
    Flatten,
    Layer,
    LayerChain,
    Linear,
    layers_of,
)

MOST_WORK = 20_000_000  # multiply-adds per row above which torch's convolutions are as fast
# The loss is as fast through autograd below so many multiply-adds per batch, and above so many per row: the weights
# then no longer fit into the L2 cache, and torch's matrix products are better.
LEAST_LEARNT, MOST_LEARNT = 1_000_000, 500_000
DENSE = (nn.Linear, nn.Flatten, *ACTIVATIONS)  # layers of networks that C++ can compute parameter gradients of


@dataclass(frozen=True)
class Sequence:
    """An energy that is an `nn.Sequential` of layers, ending in one number per row, with optional extras around it."""

    net: nn.Module
    shape: tuple[int, ...] | None = None
    output: Tensor | None = None
    frequencies: Tensor | None = None
    precision: float | None = None
    bound: float | None = None


@dataclass(frozen=True)
class _Parsed:
    """Known layers, the last of which is fully connected."""

    hidden: list[Layer]
    last: Linear
    takes_rows: bool  # of numbers; otherwise images


_Found = tuple[_Parsed | None, cpp.Network | None]
_kept: ContextVar[dict[nn.Module, tuple[Sequence, _Found]] | None] = ContextVar("kept", default=None)


@contextmanager
def fixed_weights() -> Iterator[None]:
    """Promise that no weights change in the block: the C++ copy of a network is then shared by chains and loss."""
    token = _kept.set({})
    try:
        yield
    finally:
        _kept.reset(token)


def evaluator(sequence: Sequence, *, compiled: bool = True) -> Evaluator | None:
    """Energy and gradient for the current weights."""
    parsed, network = _parsed(sequence, compiled=compiled)
    if parsed is None:
        return None
    if network is not None:
        return _evaluator_in_cpp(network, sequence.output)
    chain = LayerChain(parsed.hidden, parsed.last, sequence.output)
    function = _with_waves_and_base(chain, sequence)

    @torch.no_grad()
    def evaluate(x: Tensor) -> tuple[Tensor, Tensor]:
        e, grad = function(x.flatten(1) if parsed.takes_rows else x.detach())
        return e, grad.reshape(x.shape)

    return Evaluator(evaluate, "by hand")


def energies(sequence: Sequence, x: Tensor) -> Tensor | None:
    """Energies in C++, differentiable once and with respect to the weights alone."""
    modules = [m for m in sequence.net.modules() if type(m) is not nn.Sequential]
    plain = all(type(m) in DENSE and not m._backward_hooks and not m._backward_pre_hooks for m in modules)
    work = sum(m.weight.numel() for m in modules if isinstance(m, nn.Linear))
    if work > MOST_LEARNT or work * len(x) < LEAST_LEARNT:
        return None
    if not plain or sequence.output is not None or x.dtype != torch.float32 or x.device.type != "cpu":
        return None
    _, network = _parsed(sequence)
    rows = x.detach().flatten(1)
    weights = [t for m in modules if isinstance(m, nn.Linear) for t in (m.weight, m.bias)]
    # `modules()` lists a module that occurs twice only once, so the numbers differ then.
    if network is None or rows.shape[1] != network.inputs or len(weights) != 2 * len(network.layers) + 2:
        return None
    found: Tensor = _Energies.apply(network, rows, *weights)
    return found


class _Energies(torch.autograd.Function):
    """Energies from a network in C++, with gradients for its parameters, weight and bias in turn."""

    @staticmethod
    def forward(ctx: Any, network: cpp.Network, rows: Tensor, *weights: Tensor | None) -> Tensor:
        ctx.network = network
        e, ctx.record = network.remember(rows)
        return e

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.record is None:
            raise RuntimeError("energies were differentiated a second time; compute them anew")
        found = [t for pair in ctx.network.learn(grad, ctx.record) for t in pair]
        ctx.record = None
        needed = ctx.needs_input_grad[2:]
        return (None, None, *(t if wanted else None for t, wanted in zip(found, needed, strict=True)))


def _parsed(sequence: Sequence, *, compiled: bool = True) -> _Found:
    """The layers, if all are known, and the network in C++, if asked for and possible."""
    kept = _kept.get()
    if kept is not None and compiled and sequence.net in kept and _are_same(kept[sequence.net][0], sequence):
        return kept[sequence.net][1]
    parsed = _parse(sequence)
    found = parsed, _in_cpp(sequence, parsed) if compiled and parsed is not None else None
    if kept is not None and compiled:
        kept[sequence.net] = sequence, found
    return found


def _are_same(a: Sequence, b: Sequence) -> bool:
    tensors = a.output is b.output and a.frequencies is b.frequencies
    return tensors and (a.shape, a.precision, a.bound) == (b.shape, b.precision, b.bound)


def _parse(sequence: Sequence) -> _Parsed | None:
    layers = list(layers_of(sequence.net))
    takes_rows = bool(layers) and isinstance(layers[0], Linear | Flatten)
    if layers and isinstance(layers[0], Flatten):
        layers = layers[1:]
    *hidden, last = _with_linear_end(layers) or [None]
    known = [layer for layer in hidden if layer is not None]
    several = isinstance(last, Linear) and len(last.weight) != 1 and sequence.output is None
    if len(known) < len(hidden) or not isinstance(last, Linear) or several:
        return None
    return _Parsed(known, last, takes_rows)


def _evaluator_in_cpp(network: cpp.Network, output: Tensor | None) -> Evaluator:
    def which(x: Tensor) -> Tensor | None:
        return None if output is None else output[: len(x)]

    def evaluate(x: Tensor) -> tuple[Tensor, Tensor]:
        e, grad = network(x.detach().flatten(1), which(x))
        return e, grad.view(x.shape)

    def alone(x: Tensor) -> Tensor:
        return network.energy(x.detach().flatten(1), which(x))

    def moves(x: Tensor, noise: Tensor, step_size: float, max_grad: float, box: tuple[float, float]) -> Tensor:
        rows = network.langevin(x.flatten(1), noise.flatten(2), step_size, max_grad, box, which(x))
        return rows.view(x.shape)

    return Evaluator(evaluate, "by hand in C++", moves, alone)


def _with_linear_end(layers: list[Layer | None]) -> list[Layer | None]:
    """Replace a final convolution over the whole image, followed by flatten, by a fully connected layer."""
    if len(layers) < 2 or not isinstance(layers[-1], Flatten) or not isinstance(layers[-2], Convolution):
        return layers
    last = layers[-2]
    if last.settings != ((1, 1), (0, 0), (1, 1), 1):
        return layers
    return [*layers[:-2], layers[-1], Linear(last.weight.contiguous().flatten(1), last.bias)]


def _in_cpp(sequence: Sequence, parsed: _Parsed) -> cpp.Network | None:
    """The network in C++, if it is of a kind and a size for which that is faster, on the CPU and in float32."""
    layers = _layers_in_cpp(parsed.hidden, None if parsed.takes_rows else sequence.shape)
    if layers is None or not 1 <= len(layers) <= cpp.MOST_LAYERS or sum(layer.work for layer in layers) > MOST_WORK:
        return None
    weights = [parsed.last.weight, *(layer.weight for layer in layers)]
    plain = all(w.dtype == torch.float32 and w.device.type == "cpu" for w in weights)
    if not plain or cpp.library() is None:
        return None
    return cpp.Network(
        layers,
        parsed.last.weight,
        parsed.last.bias,
        frequencies=sequence.frequencies,
        precision=sequence.precision or 0.0,
        bound=sequence.bound or 0.0,
        threads=allowed_threads(),
    )


def _layers_in_cpp(hidden: list[Layer], shape: tuple[int, ...] | None) -> list[cpp.Layer] | None:
    """All layers as convolutions with their activations, a row as an image of one pixel; None if that is impossible."""
    found: list[cpp.Layer] = []
    size, flat = (1, 1), True
    if shape is not None and len(shape) == 3:
        size, flat = (shape[1], shape[2]), False
    for layer in hidden:
        if isinstance(layer, Linear) and flat:
            weight = layer.weight.view(len(layer.weight), -1, *size)
            found.append(cpp.Layer(weight, layer.bias, size))
        elif isinstance(layer, Convolution) and not flat and layer.settings[2:] == ((1, 1), 1):
            found.append(cpp.Layer(layer.weight, layer.bias, size, *layer.settings[:2]))
        elif isinstance(layer, Activation) and found and found[-1].activation == cpp.NONE and layer.in_cpp:
            found[-1] = replace(found[-1], activation=layer.in_cpp)
            continue
        elif isinstance(layer, Flatten):
            flat = True
            continue
        else:
            return None
        _, *rest = found[-1].output
        size = (rest[0], rest[1])
    return found


def _with_waves_and_base(chain: LayerChain, sequence: Sequence) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    frequencies, precision, bound = sequence.frequencies, sequence.precision, sequence.bound

    def evaluate(x: Tensor) -> tuple[Tensor, Tensor]:
        if frequencies is None:
            e, grad = chain(x)
        else:
            phase = x @ frequencies
            sin, cos = phase.sin(), phase.cos_()
            e, along = chain(torch.cat([x, sin, cos], 1))
            grad, along_sin, along_cos = along.split([x.shape[1], *[frequencies.shape[1]] * 2], 1)
            turned = cos.mul_(along_sin).addcmul_(sin, along_cos, value=-1)
            grad = torch.addmm(grad, turned, frequencies.T)
        if bound is not None:
            share = torch.tanh(e / bound)
            e = bound * share
            grad = grad * (1 - share.square()).view(-1, *[1] * (x.ndim - 1))
        if precision is not None:
            e.add_(x.square().flatten(1).sum(1), alpha=0.5 * precision)
            grad = grad.add_(x, alpha=precision)
        return e, grad

    return evaluate
