"""The protocol of samplers, and helpers that they share."""

import math
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor

from pscd.errors import UserError
from pscd.types import Energy

ChainCallback = Callable[[dict[str, Any]], None]


class Proposal(Protocol):
    """A density that can be sampled and evaluated, for independence Metropolis jumps."""

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw `n` rows, `(n, d)`."""
        ...

    def log_prob(self, x: Tensor) -> Tensor:
        """Log density of each row, `(n, *shape)` to `(n,)`."""
        ...


class Sampler(Protocol):
    """What training needs of a sampler: a chain, its initial step size, and how the step size adapts.

    A sampler is a frozen dataclass that inherits these defaults and has `n_steps`, the steps per update.
    """

    @property
    def n_steps(self) -> int:
        """Steps per call, each with one gradient."""
        ...

    @property
    def step_size(self) -> float:
        """The initial step size; 1 for a sampler without one."""
        return 1.0

    @property
    def low(self) -> float | None:
        """Lower bound of the box that chains stay in; None by default."""
        return None

    @property
    def high(self) -> float | None:
        """Upper bound of the box that chains stay in; None by default."""
        return None

    @property
    def slope(self) -> float:
        """Images: exponent of the spectrum that steps follow (see `pscd.sampling.spectrum`); 0, none, by default."""
        return 0.0

    def run(
        self,
        energy: Energy,
        x: Tensor,
        *,
        step_size: Tensor,
        n_steps: int,
        proposal: Proposal | None = None,
        generator: torch.Generator | None = None,
        callback: ChainCallback | None = None,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Run chains from the points `x`.

        Args:
            energy: maps `(B, *shape)` to `(B,)`.
            x: starting points, `(B, *shape)`; not changed.
            step_size: as adapted so far.
            n_steps: number of steps.
            proposal: a density to jump to draws of, for samplers that jump.
            generator: source of randomness; torch's global one by default.
            callback: called after each step, see `pscd.sampling.langevin`.

        Returns:
            The points at the end, and statistics for the log.
        """
        ...

    def adapt(self, step_size: Tensor, stats: dict[str, Tensor]) -> Tensor:
        """The step size for the next call; the same by default.

        Args:
            step_size: of the last call.
            stats: what `run` returned for the log.

        Returns:
            The new step size.
        """
        return step_size


def langevin_noise(step_size: float | Tensor) -> float | Tensor:
    """The standard deviation of the noise for temperature 1, sqrt(2 step_size)."""
    return (2 * step_size) ** 0.5


def box(low: float | None, high: float | None) -> tuple[float, float] | None:
    """The bounds of a box."""
    if low is None and high is None:
        return None
    return (-torch.inf if low is None else low, torch.inf if high is None else high)


def check_box(low: float | None, high: float | None) -> None:
    """Refuse an empty box."""
    if low is not None and high is not None and not low < high:
        raise UserError(f"the sampler's box is empty: low {low} is not below high {high}")


def check_positive(**values: float) -> None:
    """Refuse settings that are not positive numbers."""
    for name, value in values.items():
        if not 0 < value < math.inf:
            raise UserError(f"{name} must be a positive number, got {value}")
