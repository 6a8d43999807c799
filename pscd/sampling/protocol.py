"""What the trainer asks of a sampler, and what samplers share."""

import math
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor

from pscd.errors import UserError
from pscd.types import Energy

Callback = Callable[[dict[str, Any]], None]


class Proposal(Protocol):
    """A density that can be drawn from and evaluated, for independence Metropolis jumps."""

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """`n` rows."""
        ...

    def log_prob(self, x: Tensor) -> Tensor:
        """Log density of each row."""
        ...


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


def langevin_noise(step_size: float | Tensor) -> float | Tensor:
    """The noise that goes with a step at temperature 1."""
    return (2 * step_size) ** 0.5


def box(low: float | None, high: float | None) -> tuple[float, float] | None:
    """The bounds of a box, infinite where there is none; None if there is no bound at all."""
    if low is None and high is None:
        return None
    return (-torch.inf if low is None else low, torch.inf if high is None else high)


def check_box(low: float | None, high: float | None) -> None:
    """Refuse an empty box, in one line."""
    if low is not None and high is not None and not low < high:
        raise UserError(f"the sampler's box is empty: low {low} is not below high {high}")


def check_positive(**values: float) -> None:
    """Refuse settings that are not positive numbers, in one line."""
    for name, value in values.items():
        if not 0 < value < math.inf:
            raise UserError(f"{name} must be a positive number, got {value}")
