"""Layers and their input gradients by hand, with torch.

The kernels are those that autograd would call, in the same order, so results of fully connected layers are equal bit
for bit. Buffers are reused from call to call, and images stay in channels-last order throughout, in which convolutions
are fastest.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.parametrize import is_parametrized, type_before_parametrizations

from pscd.fast import cpp

_aten = torch.ops.aten


# (x, noise of each step `(n, *x.shape)`, step size, largest gradient, box) -> the end of a Langevin chain
Moves = Callable[[Tensor, Tensor, float, float, tuple[float, float]], Tensor]


@dataclass(frozen=True)
class Evaluator:
    """Energy and input gradient of a batch, both detached.

    Args:
        function: maps `(B, *shape)` to E(x), `(B,)`, and its gradient, `(B, *shape)`.
        how: how it is computed, in words.
        moves: runs a whole Langevin chain in one call, where that is possible.
        alone: E(x) without the gradient, where that is cheaper.
    """

    function: Callable[[Tensor], tuple[Tensor, Tensor]]
    how: str
    moves: Moves | None = None
    alone: Callable[[Tensor], Tensor] | None = None

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """E(x) and its gradient."""
        return self.function(x)

    def energy(self, x: Tensor) -> Tensor:
        """E(x) without the gradient: the same numbers, cheaper where possible."""
        return self.function(x)[0] if self.alone is None else self.alone(x)


class Layer(Protocol):
    """A layer with a forward pass, and a backward pass for the same input."""

    def forward(self, x: Tensor) -> Tensor:
        """The output, which the next call may overwrite."""
        ...

    def backward(self, grad: Tensor) -> Tensor:
        """The gradient with respect to the input, given that with respect to the output."""
        ...


def has_hooks(module: nn.Module) -> bool:
    """Whether calling the module may do more than the `forward` of its class."""
    return bool(module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module))


def layers_of(net: nn.Module) -> Iterator[Layer | None]:
    """The layers of a sequence, nested ones included; None for an unknown one."""
    kind = type_before_parametrizations(net)
    if has_hooks(net):
        yield None
    elif type(net) is nn.Sequential:
        for part in net:
            yield from layers_of(part)
    elif kind in WITH_WEIGHTS:
        yield WITH_WEIGHTS[kind](net, *_parameters(net))
    else:
        yield LAYERS[kind](net) if kind in LAYERS else None


class LayerChain:
    """Layers in sequence: one output per row of a batch, and its gradient."""

    # Intermediate values are overwritten by the next call; returned values are not. `output`, `(n,)` with n >= B, is
    # which output each row means if there are several.

    def __init__(self, hidden: list[Layer], last: "Linear", output: Tensor | None = None) -> None:
        self.hidden, self.last, self.output = hidden, last, output
        self._top = last.weight[:0]

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs, `(B,)`, and the gradient, shaped like `x`."""
        h = x
        for layer in self.hidden:
            h = layer.forward(h)
        e = self.last.forward(h)
        which = self.output[: len(x)] if self.output is not None else None
        e = e.squeeze(1).clone() if which is None else e.gather(1, which[:, None]).squeeze(1)
        # The gradient of a sum over rows is 1 at the output, and so the weights at the last layer's input.
        if len(self._top) != len(x):
            weight = self.last.weight
            self._top = weight.expand(len(x), -1).contiguous() if which is None else weight[which]
        grad = self._top
        for layer in reversed(self.hidden):
            grad = layer.backward(grad)
        return e, grad.clone()


class Linear:
    """x W^T + b."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight, self.bias = weight, bias
        self._out = self._grad = weight.new_empty(0)

    def forward(self, x: Tensor) -> Tensor:
        """`(B, n)` to `(B, m)`."""
        self._out = _buffer(self._out, len(x), self.weight.shape[0])
        if self.bias is None:
            return torch.mm(x, self.weight.T, out=self._out)
        return torch.addmm(self.bias, x, self.weight.T, out=self._out)

    def backward(self, grad: Tensor) -> Tensor:
        """`(B, m)` to `(B, n)`."""
        self._grad = _buffer(self._grad, len(grad), self.weight.shape[1])
        return torch.mm(grad, self.weight, out=self._grad)


class Convolution:
    """A 2-D convolution, channels last."""

    def __init__(self, weight: Tensor, bias: Tensor | None, module: Any) -> None:
        self.weight, self.bias = weight, bias
        self.settings = (module.stride, module.padding, module.dilation, module.groups)
        self._filters: Tensor | None = None
        self._x = weight[:0]
        # Up to 4 channels a matrix product is faster than torch's gradient of a convolution.
        self._few_channels = module.in_channels <= 4 and module.dilation == (1, 1) and module.groups == 1

    def forward(self, x: Tensor) -> Tensor:
        """`(B, C, H, W)` to `(B, C', H', W')`."""
        self._x = channels_last(x)
        if self._filters is None:
            self._filters = self.weight.contiguous(memory_format=torch.channels_last)
        return functional.conv2d(self._x, self._filters, self.bias, *self.settings)

    def backward(self, grad: Tensor) -> Tensor:
        """Back to `(B, C, H, W)`."""
        if self._few_channels:
            return self._by_products(grad)
        stride, padding, dilation, groups = self.settings
        arguments = (None, stride, padding, dilation, False, (0, 0), groups, (True, False, False))
        return _aten.convolution_backward(grad, self._x, self._filters, *arguments)[0]

    def _by_products(self, grad: Tensor) -> Tensor:
        """One matrix product for the contributions of each output pixel, which are then summed."""
        batch, channels, height, width = grad.shape
        _, inputs, tall, wide = self.weight.shape
        sent = self.weight.flatten(1).T @ grad.permute(0, 2, 3, 1).reshape(-1, channels).T
        sent = sent.view(inputs, tall, wide, batch, height, width)
        (down, across), (top, left), *_ = self.settings
        _, _, rows, columns = self._x.shape
        total = grad.new_zeros(inputs, batch, rows + 2 * top, columns + 2 * left)
        for i in range(tall):
            for j in range(wide):
                total[:, :, i : i + down * height : down, j : j + across * width : across] += sent[:, i, j]
        return total[:, :, top : top + rows, left : left + columns].transpose(0, 1)


class AveragePool:
    """Means over windows of an image, as `nn.AvgPool2d`."""

    def __init__(self, module: Any) -> None:
        size = _pair(module.kernel_size)
        windows = (size, _pair(module.stride or size), _pair(module.padding))
        self.settings = (*windows, module.ceil_mode, module.count_include_pad, module.divisor_override)
        self._x = torch.empty(0)

    def forward(self, x: Tensor) -> Tensor:
        """`(B, C, H, W)` to `(B, C, H', W')`."""
        self._x = x
        return _aten.avg_pool2d(x, *self.settings)

    def backward(self, grad: Tensor) -> Tensor:
        """Back to `(B, C, H, W)`."""
        return _aten.avg_pool2d_backward(grad, self._x, *self.settings)


class Flatten:
    """`(B, C, H, W)` to `(B, C H W)`, and back to channels last."""

    def __init__(self, module: Any) -> None:
        self._shape = torch.Size()

    def forward(self, x: Tensor) -> Tensor:
        """Rows, from images or rows."""
        self._shape = x.shape
        return x.flatten(1)

    def backward(self, grad: Tensor) -> Tensor:
        """Back to the shape of the input."""
        grad = grad.view(self._shape)
        return channels_last(grad) if grad.ndim == 4 else grad


@dataclass
class Activation:
    """An elementwise function."""

    function: Callable[..., Tensor]
    derivative: Callable[..., Tensor]
    from_output: bool = False
    in_cpp: tuple[int, float] | None = None

    def __post_init__(self) -> None:
        self._x = self._out = self._grad = torch.empty(0)

    def forward(self, x: Tensor) -> Tensor:
        """The function's values, shaped like `x`."""
        self._x, self._out = x, _buffer_like(self._out, x)
        return self.function(x, out=self._out)

    def backward(self, grad: Tensor) -> Tensor:
        """The gradient with respect to the input, shaped like it."""
        self._grad = _buffer_like(self._grad, self._x)
        return self.derivative(grad, self._out if self.from_output else self._x, grad_input=self._grad)


def _relu(module: Any) -> Activation:
    return Activation(
        lambda x, out: torch.clamp(x, min=0, out=out),
        lambda g, x, grad_input: _aten.threshold_backward.grad_input(g, x, 0, grad_input=grad_input),
        in_cpp=(cpp.LEAKY, 0.0),
    )


def _leaky_relu(module: Any) -> Activation:
    slope = module.negative_slope
    return Activation(
        lambda x, out: _aten.leaky_relu.out(x, slope, out=out),
        lambda g, x, grad_input: _aten.leaky_relu_backward.grad_input(g, x, slope, False, grad_input=grad_input),
        in_cpp=(cpp.LEAKY, slope),
    )


def _softplus(module: Any) -> Activation:
    beta, threshold = module.beta, module.threshold
    return Activation(
        lambda x, out: _aten.softplus.out(x, beta, threshold, out=out),
        lambda g, x, grad_input: _aten.softplus_backward.grad_input(g, x, beta, threshold, grad_input=grad_input),
    )


def _silu(module: Any) -> Activation:
    return Activation(_aten.silu.out, _aten.silu_backward.grad_input, in_cpp=(cpp.SILU, 0.0))


def _tanh(module: Any) -> Activation:
    return Activation(torch.tanh, _aten.tanh_backward.grad_input, from_output=True, in_cpp=(cpp.TANH, 0.0))


ACTIVATIONS: dict[type, Callable[[Any], Activation]] = {
    nn.SiLU: _silu,
    nn.Tanh: _tanh,
    nn.ReLU: _relu,
    nn.LeakyReLU: _leaky_relu,
    nn.Softplus: _softplus,
}


def _linear(module: Any, weight: Tensor, bias: Tensor | None) -> Linear:
    return Linear(weight, bias)


def _convolution(module: Any, weight: Tensor, bias: Tensor | None) -> Convolution | None:
    supported = module.padding_mode == "zeros" and not isinstance(module.padding, str)
    return Convolution(weight, bias, module) if supported else None


def _flatten(module: Any) -> Flatten | None:
    return Flatten(module) if (module.start_dim, module.end_dim) == (1, -1) else None


WITH_WEIGHTS: dict[type, Callable[[Any, Tensor, Tensor | None], Layer | None]] = {
    nn.Linear: _linear,
    nn.Conv2d: _convolution,
}
LAYERS: dict[type, Callable[[Any], Layer | None]] = {
    **ACTIVATIONS,
    nn.AvgPool2d: AveragePool,
    nn.Flatten: _flatten,
}


def _parameters(module: Any) -> tuple[Tensor, Tensor | None]:
    """Weight and bias in evaluation mode, in which spectral normalisation takes no further power iteration."""
    bias = module.bias.detach() if module.bias is not None else None
    if not module.training or not is_parametrized(module):
        return module.weight.detach(), bias
    weight = module.eval().weight
    module.train()
    return weight.detach(), bias


def channels_last(x: Tensor) -> Tensor:
    """Images `(B, C, H, W)` in channels-last order, in which convolutions are fastest."""
    x = x.contiguous(memory_format=torch.channels_last)
    _, channels, height, width = x.shape
    # With one channel both orders are the same in memory, but torch takes the default strides for channels first.
    return x if channels > 1 else x.contiguous().as_strided(x.shape, (height * width, 1, width, 1))


def prefer_channels_last(net: nn.Module) -> nn.Module:
    """Put the weights of convolutions into channels-last order, in place; returns the network."""
    if any(isinstance(module, nn.Conv2d) for module in net.modules()):
        net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return net


def _pair(size: int | tuple[int, int]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else size


def _buffer(buffer: Tensor, *shape: int) -> Tensor:
    """`buffer` if it has this shape, else a new one."""
    return buffer if buffer.shape == shape else buffer.new_empty(shape)


def _buffer_like(buffer: Tensor, x: Tensor) -> Tensor:
    """`buffer` if it has the shape and memory order of `x`, else a new one."""
    return buffer if buffer.shape == x.shape and buffer.stride() == x.stride() else torch.empty_like(x)
