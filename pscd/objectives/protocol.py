"""The protocol of objectives, and helpers that they share."""

from collections.abc import Callable
from typing import Any, Literal, Protocol, Self

import torch
from torch import Tensor, nn

from pscd import distributed, fast, losses
from pscd.errors import UserError
from pscd.types import Energy


class Objective(Protocol):
    """What training needs of an objective: a loss of a batch, and how its negatives are drawn.

    An objective is a frozen dataclass that inherits these defaults; only the call has none. It returns the loss, a
    scalar, and statistics for the log.

    Args:
        energy: maps `(B, *shape)` to `(B,)`.
        aux: what `init` returned.
        x_pos: a batch of data, `(B, *shape)`.
        x_neg: samples of the model, `(B, *shape)`; empty if the objective needs none.
        generator: source of randomness.
    """

    @property
    def needs_negatives(self) -> bool:
        """Whether every update needs samples of the model from chains; True by default."""
        return True

    @property
    def sampling_power(self) -> float:
        """The power of q that negatives are drawn from; 1, the model itself, by default."""
        return 1.0

    @property
    def accepts_labels(self) -> bool:
        """Whether it can train a conditional energy; True by default."""
        return True

    @property
    def gamma(self) -> float | Literal["auto"]:
        """Exponent of the weights that make it robust; 0, all rows count alike, by default."""
        return 0.0

    @property
    def unit(self) -> Literal["nats", "spread"]:
        """Whether gamma is per nat of energy or per spread of the data's energies; nats by default."""
        return "nats"

    @property
    def uses_levels(self) -> bool:
        """Whether its energy has several levels of noise, which it then samples itself; False by default."""
        return False

    def init(self, energy: nn.Module, x: Tensor) -> nn.Module | None:
        """What is trained together with the energy (a critic, log Z); None by default.

        Random weights come from torch's global generator, which the trainer seeds.

        Args:
            energy: the network, before the first update.
            x: all data, `(n, *shape)`, in the network's coordinates.

        Returns:
            A module, or None.
        """
        return None

    def at(self, progress: float) -> Self:
        """The objective after a fraction `progress` of the run, for settings that warm up; itself by default."""
        return self

    def __call__(
        self,
        energy: Energy,
        aux: nn.Module | None,
        x_pos: Tensor,
        x_neg: Tensor,
        generator: torch.Generator,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss over the batches of all processes together."""
        ...

    def sample(
        self,
        energy: nn.Module,
        x: Tensor,
        *,
        n_steps: int | None = None,
        generator: torch.Generator | None = None,
        callback: Callable[[dict[str, Any]], None] | None = None,
    ) -> Tensor:
        """Draw samples, `(n, *shape)`, of an energy with levels of noise, for objectives with `uses_levels`.

        Args:
            energy: the trained network.
            x: starting points, `(n, *shape)`.
            n_steps: number of steps; by default as many as in training.
            generator: source of randomness; torch's global one by default.
            callback: called after each step, see `pscd.langevin`.
        """
        raise UserError(f"{type(self).__name__} does not draw samples; use a sampler")


def both_phases(energy: Energy, x_pos: Tensor, x_neg: Tensor) -> tuple[Tensor, Tensor]:
    """Energies of data and samples from one forward pass, gathered from all processes.

    Args:
        energy: maps `(B, *shape)` to `(B,)`.
        x_pos: data, `(B, *shape)`.
        x_neg: samples, `(B', *shape)`.

    Returns:
        `e_pos` and `e_neg`, of all processes.
    """
    e = fast.energies(energy, torch.cat([x_pos, x_neg]))
    e_pos, e_neg = distributed.gather_parts(e, [len(x_pos), len(x_neg)])
    return e_pos, e_neg


def phase_stats(
    e_pos: Tensor, e_neg: Tensor, gamma: float, *, drawn_from_r: bool = False, log_ratio: Tensor | None = None
) -> dict[str, Tensor]:
    """The statistics that every objective with two phases logs.

    The gap compares data with draws of q, or weighted data with draws of r. It is a difference of medians, since an
    outlier in the data may have an energy of thousands.

    Args:
        e_pos: energies of data, `(B,)`.
        e_neg: energies of samples, `(B',)`.
        gamma: exponent of the weights.
        drawn_from_r: the samples come from r and need no weights.
        log_ratio: they come from another density g, and this is log(q / g), see `losses.importance_weights`.

    Returns:
        Mean energies, gap, effective sample sizes and gamma, by name.
    """
    e_pos, e_neg = e_pos.detach(), e_neg.detach()
    pos_weights = losses.importance_weights(e_pos, gamma)
    neg_weights = losses.importance_weights(e_neg, 0.0 if drawn_from_r else gamma, log_ratio)
    middle = weighted_median(e_pos, pos_weights) if drawn_from_r else e_pos.median()
    if log_ratio is None:
        mean, other_middle = e_neg.mean(), e_neg.median()
    else:
        from_q = losses.importance_weights(e_neg, 0.0, log_ratio)
        mean, other_middle = (from_q * e_neg).sum(), weighted_median(e_neg, from_q)
    return {
        "e_pos": e_pos.mean(),
        "e_neg": mean,
        "gap": middle - other_middle,
        "ess_pos": losses.effective_sample_fraction(pos_weights),
        "ess_neg": losses.effective_sample_fraction(neg_weights),
        "gamma": torch.tensor(gamma),
    }


def weighted_median(values: Tensor, weights: Tensor) -> Tensor:
    """The smallest value with at least half of the weight at or below it.

    Args:
        values: `(n,)`.
        weights: `(n,)`, not negative.

    Returns:
        A scalar.

    >>> weighted_median(torch.tensor([3.0, 1.0, 2.0]), torch.tensor([0.6, 0.2, 0.2])).item()
    3.0
    """
    ordered, order = values.sort()
    share = weights[order].cumsum(0)
    return ordered[torch.searchsorted(share, 0.5 * share[-1])]


def warmed_up(value: float, warmup: float, progress: float) -> float:
    """A setting that rises linearly from 0 over the first part of the run."""
    return value if warmup == 0 else value * min(1.0, progress / warmup)


def check_gamma(gamma: float) -> None:
    """Refuse a gamma for which the score is not defined."""
    try:
        losses.check_gamma(gamma)
    except ValueError as error:
        raise UserError(str(error)) from None


def check_warmup(warmup: float) -> None:
    """Refuse a warm-up that is no fraction."""
    if not 0 <= warmup <= 1:
        raise UserError(f"warmup is a fraction of the run between 0 and 1, got {warmup}")


def check_l2(l2: float) -> None:
    """Refuse a negative weight."""
    if not l2 >= 0:
        raise UserError(f"l2 must not be negative, got {l2}")
