"""Markov chains that draw from q(x) proportional to exp(-E(x)).

Plain functions of an energy and a starting point. Each step costs one forward and one backward pass;
parameters stay out of the graph; nothing in the loop waits for the device. The frozen dataclasses at
the end bind a sampler to its settings for the trainer.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from pscd import fast
from pscd.errors import UserError
from pscd.fast import Evaluator
from pscd.types import Energy, option

Callback = Callable[[dict[str, Any]], None]


class Proposal(Protocol):
    """A density that can be drawn from and evaluated, for independence Metropolis jumps."""

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """`n` rows."""
        ...

    def log_prob(self, x: Tensor) -> Tensor:
        """Log density of each row."""
        ...


class Tempered(nn.Module):
    """power * E(x): its samples follow q^power."""

    def __init__(self, energy: nn.Module, power: float) -> None:
        super().__init__()
        self.energy, self.power = energy, power

    def forward(self, x: Tensor) -> Tensor:
        """`(B, *shape)` to `(B,)`."""
        return self.power * self.energy(x)

    def input_gradient(self) -> Evaluator | None:
        """That of the energy, times the power."""
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


def langevin(
    energy: Energy,
    x: Tensor,
    *,
    n_steps: int,
    step_size: float | Tensor,
    noise_scale: float | None = None,
    bounds: tuple[float, float] | None = None,
    max_grad: float | None = None,
    generator: torch.Generator | None = None,
    callback: Callback | None = None,
) -> Tensor:
    """Unadjusted Langevin dynamics: x <- x - step_size * grad E(x) + noise_scale * z.

    Eq. 2 of the paper has `step_size = eps / 2` and noise `sqrt(eps)`, which is what
    `noise_scale=None` means: temperature 1. With both given, the chain runs at the temperature
    `noise_scale**2 / (2 * step_size)`; with noise 0 it is gradient descent.

    Args:
        energy: maps `(B, *shape)` to `(B,)`.
        x: starting points; not changed.
        bounds: a box `(low, high)` into which every step is clamped.
        max_grad: clamp every component of the gradient to `[-max_grad, max_grad]`.
        callback: called after each step with `step`, `x`, `energy` (before the step).
    """
    x = x.detach().clone() if bounds is None else x.detach().clamp(*bounds)
    noise = _langevin_noise(step_size) if noise_scale is None else noise_scale
    z = torch.empty_like(x)
    with torch.no_grad(), fast.evaluating(energy, x) as evaluate:
        if evaluate.moves is not None and callback is None:
            return fast.at_once(evaluate.moves, x, n_steps, step_size, noise, bounds, max_grad, generator)
        for step in range(n_steps):
            e, grad = evaluate(x)
            if max_grad is not None:
                grad = grad.clamp(-max_grad, max_grad)
            x = x - step_size * grad
            if noise_scale != 0:
                x += z.normal_(generator=generator).mul_(noise)
            if bounds is not None:
                x = x.clamp_(*bounds)
            if callback is not None:
                callback({"step": step, "x": x, "energy": e})
    return x


def mala(
    energy: Energy,
    x: Tensor,
    *,
    n_steps: int,
    step_size: float | Tensor,
    proposal: Proposal | None = None,
    jump_every: int = 2,
    bounds: tuple[float, float] | None = None,
    generator: torch.Generator | None = None,
    callback: Callback | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Metropolis-adjusted Langevin, with independence jumps if a `proposal` is given.

    A Langevin step is proposed and accepted with probability min(1, exp(E(x) - E(y)) k(x|y) / k(y|x)),
    so q is left exactly invariant whatever the step size. Every `jump_every`-th step proposes instead
    a fresh y from `proposal`, accepted with min(1, exp(E(x) - E(y)) g(x) / g(y)): local steps cannot
    cross between modes, a jump can, and this is what keeps their proportions right.

    Returns:
        The final points, and the mean acceptance of local steps (`acceptance`) and of jumps (`jumps`).
    """
    rows = (-1,) + (1,) * (x.ndim - 1)
    noise = _langevin_noise(step_size)
    z = torch.empty_like(x)
    accepted_local = torch.zeros((), device=x.device)
    accepted_jumps = torch.zeros((), device=x.device)
    n_jumps = 0
    with torch.no_grad(), fast.evaluating(energy, x) as evaluate:
        x = x.detach().clone() if bounds is None else x.detach().clamp(*bounds)
        e, grad = evaluate(x)
        for step in range(n_steps):
            jump = proposal is not None and step % jump_every == jump_every - 1
            if proposal is not None and jump:
                y = proposal.sample(len(x), generator).view_as(x)
                # After the last step nobody asks for a gradient.
                e_y, grad_y = evaluate(y) if step < n_steps - 1 else (evaluate.energy(y), grad)
                before, after = proposal.log_prob(torch.cat([x, y])).chunk(2)
                log_ratio = e - e_y + before - after
            else:
                forward = noise * z.normal_(generator=generator)
                y = x - step_size * grad + forward
                e_y, grad_y = evaluate(y)
                # The way back needs the noise step_size (grad + grad_y) - forward: what is left of the difference
                # of squares over 4 step_size when the squares of `forward` are cancelled by hand.
                both = grad + grad_y
                excess = (both * (2 * forward - step_size * both)).flatten(1).sum(1)
                log_ratio = e - e_y + 0.25 * excess
            if bounds is not None:
                outside = ((y < bounds[0]) | (y > bounds[1])).flatten(1).any(1)
                log_ratio = log_ratio.masked_fill(outside, -torch.inf)
            # A NaN ratio (an overflow far out) compares false, which rejects: the chain stays where it was.
            accept = torch.rand(e.shape, generator=generator, device=e.device, dtype=e.dtype).log() < log_ratio
            x = torch.where(accept.view(rows), y, x)
            grad = torch.where(accept.view(rows), grad_y, grad)
            e = torch.where(accept, e_y, e)
            if jump:
                accepted_jumps += accept.float().mean()
                n_jumps += 1
            else:
                accepted_local += accept.float().mean()
            if callback is not None:
                callback({"step": step, "x": x, "energy": e, "accept": accept})
    stats = {"acceptance": accepted_local / max(n_steps - n_jumps, 1)}
    if n_jumps:
        stats["jumps"] = accepted_jumps / n_jumps
    return x, stats


def adapt_step_size(step_size: Tensor, acceptance: Tensor, target: float, rate: float = 0.05) -> Tensor:
    """Multiply the step size by exp(rate * (acceptance - target) / target): towards the target."""
    return step_size * torch.exp(rate * (acceptance - target) / target)


def _langevin_noise(step_size: float | Tensor) -> float | Tensor:
    return (2 * step_size) ** 0.5


class Sampler(Protocol):
    """What the trainer needs: a starting step size, a chain, and how the step size adapts."""

    @property
    def n_steps(self) -> int:
        """Gradient evaluations per call."""
        ...

    @property
    def step_size(self) -> float:
        """The step size before any adaptation."""
        ...

    @property
    def low(self) -> float | None:
        """Lower bound of the box that chains stay in."""
        ...

    @property
    def high(self) -> float | None:
        """Upper bound of the box that chains stay in."""
        ...

    def run(
        self,
        energy: Energy,
        x: Tensor,
        *,
        step_size: Tensor,
        n_steps: int,
        proposal: Proposal | None = None,
        generator: torch.Generator | None = None,
        callback: Callback | None = None,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Move the points `x`; returns them and what to log."""
        ...

    def adapt(self, step_size: Tensor, stats: dict[str, Tensor]) -> Tensor:
        """The step size for the next call."""
        ...


@dataclass(frozen=True)
class Langevin:
    """Unadjusted Langevin dynamics with a fixed step; for images and other high dimensions."""

    n_steps: int = option(60, "Langevin steps per update", flag="steps")
    step_size: float = option(0.01, "factor of the energy gradient in each step")
    noise_scale: float | None = option(None, "noise in each step; none: sqrt(2 step), temperature 1")
    max_grad: float | None = option(None, "clamp every component of the gradient to this size")
    low: float | None = option(None, "lower bound of the box that chains stay in, in the network's coordinates")
    high: float | None = option(None, "upper bound of the box that chains stay in, in the network's coordinates")

    def __post_init__(self) -> None:
        _check_positive(n_steps=self.n_steps, step_size=self.step_size)
        _check_box(self.low, self.high)
        if self.noise_scale is not None and not 0 <= self.noise_scale < math.inf:
            raise UserError(f"noise_scale must not be negative, got {self.noise_scale}")
        if self.max_grad is not None:
            _check_positive(max_grad=self.max_grad)

    @property
    def temperature(self) -> float:
        """The temperature that step and noise induce: samples follow exp(-E / temperature)."""
        return 1.0 if self.noise_scale is None else self.noise_scale**2 / (2 * self.step_size)

    def run(
        self,
        energy: Energy,
        x: Tensor,
        *,
        step_size: Tensor,
        n_steps: int,
        proposal: Proposal | None = None,
        generator: torch.Generator | None = None,
        callback: Callback | None = None,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """See `langevin`. Jumps need an accept step, so the proposal is not used."""
        bounds = _box(self.low, self.high)
        x = langevin(
            energy,
            x,
            n_steps=n_steps,
            step_size=step_size,
            noise_scale=self.noise_scale,
            bounds=bounds,
            max_grad=self.max_grad,
            generator=generator,
            callback=callback,
        )
        return x, {"temperature": torch.tensor(self.temperature, device=x.device)}

    def adapt(self, step_size: Tensor, stats: dict[str, Tensor]) -> Tensor:
        """Fixed."""
        return step_size


@dataclass(frozen=True)
class Mala:
    """Metropolis-adjusted Langevin with jumps and an adaptive step; for low dimension and tables."""

    n_steps: int = option(4, "steps per update", flag="steps")
    step_size: float = option(0.05, "step size to start from; it adapts to the target acceptance")
    target_acceptance: float = option(0.6, "acceptance that the step size aims at")
    jump_every: int = option(2, "every so many steps is a jump to a draw of the proposal; 0: never")
    low: float | None = option(None, "lower bound of the box that chains stay in, in the network's coordinates")
    high: float | None = option(None, "upper bound of the box that chains stay in, in the network's coordinates")

    def __post_init__(self) -> None:
        _check_positive(n_steps=self.n_steps, step_size=self.step_size)
        _check_box(self.low, self.high)
        if not 0 < self.target_acceptance < 1:
            raise UserError(f"target_acceptance must lie between 0 and 1, got {self.target_acceptance}")
        if self.jump_every < 0 or self.jump_every == 1:
            raise UserError(f"jump_every must be 0 (never) or at least 2, got {self.jump_every}")

    def run(
        self,
        energy: Energy,
        x: Tensor,
        *,
        step_size: Tensor,
        n_steps: int,
        proposal: Proposal | None = None,
        generator: torch.Generator | None = None,
        callback: Callback | None = None,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """See `mala`."""
        bounds = _box(self.low, self.high)
        return mala(
            energy,
            x,
            n_steps=n_steps,
            step_size=step_size,
            proposal=proposal if self.jump_every else None,
            jump_every=self.jump_every,
            bounds=bounds,
            generator=generator,
            callback=callback,
        )

    def adapt(self, step_size: Tensor, stats: dict[str, Tensor]) -> Tensor:
        """See `adapt_step_size`."""
        return adapt_step_size(step_size, stats["acceptance"], self.target_acceptance)


SAMPLERS: dict[str, type[Mala] | type[Langevin]] = {"mala": Mala, "langevin": Langevin}


def _box(low: float | None, high: float | None) -> tuple[float, float] | None:
    if low is None and high is None:
        return None
    return (-torch.inf if low is None else low, torch.inf if high is None else high)


def _check_box(low: float | None, high: float | None) -> None:
    if low is not None and high is not None and not low < high:
        raise UserError(f"the sampler's box is empty: low {low} is not below high {high}")


def _check_positive(**values: float) -> None:
    for name, value in values.items():
        if not 0 < value < math.inf:
            raise UserError(f"{name} must be a positive number, got {value}")
