"""An energy and its gradient with respect to the input, as fast as the energy's kind allows.

A chain takes this gradient at every step, and nothing else: no gradient of the weights, no graph to keep. For fully
connected layers it is a few matrix products and activations, written down here layer by layer with the very kernels
that autograd calls, in memory that is used again at the next step. Weights are fetched once for a whole chain, so that
spectral normalisation, say, is computed once. Any other energy goes through autograd.

A module of one's own takes part by a method `input_gradient() -> Evaluate`, called at the start of each chain.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol, Self, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import type_before_parametrizations

from pscd.errors import UserError

Energy = Callable[[Tensor], Tensor]
Evaluate = Callable[[Tensor], tuple[Tensor, Tensor]]  # x to E(x), (B,), and its gradient, both detached

MODES = ("auto", "plain")
_mode: ContextVar[str] = ContextVar("mode", default="auto")
_aten = torch.ops.aten


@runtime_checkable
class HasInputGradient(Protocol):
    """A module that knows its gradient."""

    def input_gradient(self) -> Evaluate | None:
        """For the weights as they are now; None if autograd should do it."""
        ...


@contextmanager
def using(mode: str) -> Iterator[None]:
    """Choose for all chains inside: `plain` is autograd throughout, `auto` what was chosen outside or the fastest."""
    if mode not in MODES:
        raise UserError(f"gradients must be one of {', '.join(MODES)}, got {mode!r}")
    token = _mode.set(_mode.get() if mode == "auto" else mode)
    try:
        yield
    finally:
        _mode.reset(token)


def evaluator(energy: Energy) -> Evaluate:
    """The function that a chain calls at every step, for the weights as they are now."""
    return by_hand(energy) or by_autograd(energy)


def kind(energy: Energy) -> str:
    """How `evaluator` goes about it, in words."""
    return "by hand" if by_hand(energy) is not None else "by autograd"


def by_autograd(energy: Energy) -> Evaluate:
    """For any callable."""

    def evaluate(x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            x = x.detach().requires_grad_(True)
            e = energy(x)
            (grad,) = torch.autograd.grad(e.sum(), x)
        return e.detach(), grad

    return evaluate


def by_hand(energy: Energy) -> Evaluate | None:
    """For modules with a method `input_gradient`, and `nn.Sequential` of known layers; None for others."""
    if _mode.get() == "plain" or not isinstance(energy, nn.Module) or torch.is_autocast_enabled("cpu"):
        return None
    if isinstance(energy, HasInputGradient):
        return energy.input_gradient() if _speaks_for_itself(energy) else None
    if type(energy) is nn.Sequential and len(energy) and _ends_rows(energy[-1]):
        chain = LayerChain.of(energy[:-1])
        if chain is not None:
            return chain
    return None


class LayerChain:
    """Fully connected layers with one output: called with `(B, n)`, it gives `(B,)` and the gradient.

    Intermediate values are overwritten by the next call; what is returned is not.
    """

    def __init__(self, layers: "list[Linear | Activation]", last: "Linear") -> None:
        self.layers, self.last = layers, last
        self._top = last.weight

    @classmethod
    def of(cls, net: nn.Module) -> Self | None:
        """The layers of an `nn.Sequential`, nested ones too; None if there is one whose gradient is not known here."""
        layers: list[Linear | Activation] = []
        for module in _flat(net):
            if module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module):
                return None
            module_type = type_before_parametrizations(module)
            if module_type is nn.Linear:
                layers.append(Linear(module))
            elif module_type in ACTIVATIONS:
                layers.append(ACTIVATIONS[module_type](module))
            else:
                return None
        last = layers.pop() if layers else None
        return cls(layers, last) if isinstance(last, Linear) and len(last.weight) == 1 else None

    @torch.no_grad()
    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The output of each row, and its gradient."""
        h = x
        for layer in self.layers:
            h = layer.forward(h)
        e = self.last.forward(h).squeeze(1).clone()
        # The gradient of a sum over rows enters the last layer as ones, and leaves it as its weights.
        if len(self._top) != len(x):
            self._top = self.last.weight.expand(len(x), -1).contiguous()
        grad = self._top
        for layer in reversed(self.layers):
            grad = layer.backward(grad)
        return e, grad.clone()


class Linear:
    """x W^T + b, and back."""

    def __init__(self, module: Any) -> None:
        self.weight: Tensor = module.weight.detach()
        self.bias: Tensor = self.weight.new_zeros(len(self.weight)) if module.bias is None else module.bias.detach()
        self._out = self._grad = self.weight.new_empty(0)

    def forward(self, x: Tensor) -> Tensor:
        """`(B, n)` to `(B, m)`."""
        self._out = _room(self._out, len(x), self.weight.shape[0])
        return torch.addmm(self.bias, x, self.weight.T, out=self._out)

    def backward(self, grad: Tensor) -> Tensor:
        """`(B, m)` to `(B, n)`."""
        self._grad = _room(self._grad, len(grad), self.weight.shape[1])
        return torch.mm(grad, self.weight, out=self._grad)


class Activation:
    """A function of each number.

    Args:
        function: called with the input, and `out`.
        derivative: called with the gradient, then with the input of `function`, or its output if `from_output`;
            and `grad_input`.
    """

    def __init__(
        self, function: Callable[..., Tensor], derivative: Callable[..., Tensor], *, from_output: bool = False
    ) -> None:
        self.function, self.derivative, self.from_output = function, derivative, from_output
        self._out = self._grad = torch.empty(0)

    def forward(self, x: Tensor) -> Tensor:
        """`(B, n)` to `(B, n)`."""
        self._out, self._x = _room(self._out.to(x), *x.shape), x
        return self.function(x, out=self._out)

    def backward(self, grad: Tensor) -> Tensor:
        """`(B, n)` to `(B, n)`."""
        self._grad = _room(self._grad.to(grad), *grad.shape)
        return self.derivative(grad, self._out if self.from_output else self._x, grad_input=self._grad)


def _relu(module: nn.Module) -> Activation:
    return Activation(
        lambda x, out: torch.clamp(x, min=0, out=out),
        lambda g, x, grad_input: _aten.threshold_backward.grad_input(g, x, 0, grad_input=grad_input),
    )


def _leaky_relu(module: nn.Module) -> Activation:
    slope = module.negative_slope
    return Activation(
        lambda x, out: _aten.leaky_relu.out(x, slope, out=out),
        lambda g, x, grad_input: _aten.leaky_relu_backward.grad_input(g, x, slope, False, grad_input=grad_input),
    )


def _softplus(module: nn.Module) -> Activation:
    beta, threshold = module.beta, module.threshold
    return Activation(
        lambda x, out: _aten.softplus.out(x, beta, threshold, out=out),
        lambda g, x, grad_input: _aten.softplus_backward.grad_input(g, x, beta, threshold, grad_input=grad_input),
    )


ACTIVATIONS: dict[type, Callable[[nn.Module], Activation]] = {
    nn.SiLU: lambda module: Activation(_aten.silu.out, _aten.silu_backward.grad_input),
    nn.Tanh: lambda module: Activation(torch.tanh, _aten.tanh_backward.grad_input, from_output=True),
    nn.ReLU: _relu,
    nn.LeakyReLU: _leaky_relu,
    nn.Softplus: _softplus,
}


def _room(room: Tensor, *shape: int) -> Tensor:
    """A tensor of this shape to write to: the one there is if it fits."""
    return room if room.shape == shape else room.new_empty(shape)


def _flat(net: nn.Module) -> Iterator[nn.Module]:
    if type(net) is nn.Sequential and not net._forward_hooks and not net._forward_pre_hooks:
        for part in net:
            yield from _flat(part)
    else:
        yield net


def _ends_rows(module: nn.Module) -> bool:
    """Whether the module turns `(B, 1)` into `(B,)`."""
    return type(module) is nn.Flatten and module.start_dim == 0


def _speaks_for_itself(energy: nn.Module) -> bool:
    """Whether `input_gradient` belongs to the `forward` in use, and not to that of a class it was derived from."""
    if "forward" in vars(energy) or energy._forward_hooks or energy._forward_pre_hooks:
        return False
    for owner in type(energy).__mro__:
        if "input_gradient" in vars(owner):
            return True
        if "forward" in vars(owner):
            return False
    return False
