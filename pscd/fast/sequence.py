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


@dataclass(frozen=True)
class Limits:
    """For which sizes the C++ is used: where it was faster than torch on two cores."""

    max_work: int = 20_000_000  # multiply-adds per row of a chain; above, torch's convolutions are as fast
    min_learning_work: int = 1_000_000  # multiply-adds per batch of a loss; below, autograd is as fast
    max_learning_work: int = 500_000  # per row of a loss; above, the weights do not fit into the L2 cache
    max_layers: int = 32  # as kernels.cpp has it
    noise_numbers: int = 1_000_000  # random numbers drawn in advance for one call


limits: ContextVar[Limits] = ContextVar("limits", default=Limits())  # noqa: B039 (it is frozen)


@dataclass(frozen=True)
class Sequence:
    """An energy that is an `nn.Sequential` of layers with one number per row as output, and optional extras.

    Args:
        net: the layers.
        shape: of a row, for images.
        output: `(n,)` with n >= B, which output of the last layer each row means, if there are several.
        frequencies: `(inputs, waves)`; the first layer also sees sine and cosine of x times these.
        precision: precision |x|^2 / 2 is added to the energy.
        bound: the network's output f is replaced by bound tanh(f / bound).
    """

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


_Parts = tuple[_Parsed | None, cpp.Network | None]
_shared: ContextVar[dict[nn.Module, tuple[Sequence, _Parts]] | None] = ContextVar("shared", default=None)


@contextmanager
def fixed_weights() -> Iterator[None]:
    """Share the C++ copy of a network between chains and loss; no weights may change in the block."""
    token = _shared.set({})
    try:
        yield
    finally:
        _shared.reset(token)


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
    """Energies in C++, differentiable once and only with respect to the weights; None where autograd is faster."""
    modules = [m for m in sequence.net.modules() if type(m) is not nn.Sequential]
    dense = (nn.Linear, nn.Flatten, *ACTIVATIONS)  # C++ has the parameter gradients of these
    plain = all(type(m) in dense and not m._backward_hooks and not m._backward_pre_hooks for m in modules)
    work = sum(m.weight.numel() for m in modules if isinstance(m, nn.Linear))
    if work > limits.get().max_learning_work or work * len(x) < limits.get().min_learning_work:
        return None
    if not plain or sequence.output is not None or x.dtype != torch.float32 or x.device.type != "cpu":
        return None
    _, network = _parsed(sequence)
    rows = x.detach().flatten(1)
    weights = [t for m in modules if isinstance(m, nn.Linear) for t in (m.weight, m.bias)]
    # `modules()` lists a module that occurs twice only once, so the numbers differ then.
    if network is None or rows.shape[1] != network.inputs or len(weights) != 2 * len(network.layers) + 2:
        return None
    e: Tensor = _Energies.apply(network, rows, *weights)
    return e


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
        gradients = [t for pair in ctx.network.learn(grad, ctx.record) for t in pair]
        ctx.record = None
        needed = ctx.needs_input_grad[2:]
        return (None, None, *(t if is_needed else None for t, is_needed in zip(gradients, needed, strict=True)))


def _parsed(sequence: Sequence, *, compiled: bool = True) -> _Parts:
    """The layers, if all are known, and the network in C++, if it should and can be compiled."""
    shared = _shared.get()
    if shared is not None and compiled and sequence.net in shared and _are_same(shared[sequence.net][0], sequence):
        return shared[sequence.net][1]
    parsed = _parse(sequence)
    parts = parsed, _in_cpp(sequence, parsed) if compiled and parsed is not None else None
    if shared is not None and compiled:
        shared[sequence.net] = sequence, parts
    return parts


def _are_same(a: Sequence, b: Sequence) -> bool:
    tensors = a.output is b.output and a.frequencies is b.frequencies
    return tensors and (a.shape, a.precision, a.bound) == (b.shape, b.precision, b.bound)


def _parse(sequence: Sequence) -> _Parsed | None:
    layers = list(layers_of(sequence.net))
    takes_rows = bool(layers) and isinstance(layers[0], Linear | Flatten)
    if layers and isinstance(layers[0], Flatten):
        layers = layers[1:]
    *hidden, last = _with_linear_end(layers) or [None]
    supported = [layer for layer in hidden if layer is not None]
    has_many_outputs = isinstance(last, Linear) and len(last.weight) != 1 and sequence.output is None
    if len(supported) < len(hidden) or not isinstance(last, Linear) or has_many_outputs:
        return None
    return _Parsed(supported, last, takes_rows)


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
    most = limits.get()
    if layers is None or not 1 <= len(layers) <= most.max_layers or sum(layer.work for layer in layers) > most.max_work:
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
    converted: list[cpp.Layer] = []
    size, flat = (1, 1), True
    if shape is not None and len(shape) == 3:
        size, flat = (shape[1], shape[2]), False
    for layer in hidden:
        if isinstance(layer, Linear) and flat:
            weight = layer.weight.view(len(layer.weight), -1, *size)
            converted.append(cpp.Layer(weight, layer.bias, size))
        elif isinstance(layer, Convolution) and not flat and layer.settings[2:] == ((1, 1), 1):
            converted.append(cpp.Layer(layer.weight, layer.bias, size, *layer.settings[:2]))
        elif isinstance(layer, Activation) and converted and converted[-1].activation == cpp.NONE and layer.in_cpp:
            converted[-1] = replace(converted[-1], activation=layer.in_cpp)
            continue
        elif isinstance(layer, Flatten):
            flat = True
            continue
        else:
            return None
        _, *rest = converted[-1].output
        size = (rest[0], rest[1])
    return converted


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
