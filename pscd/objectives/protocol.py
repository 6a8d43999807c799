"""What the trainer asks of an objective, and what objectives share."""

from typing import Protocol, Self

import torch
from torch import Tensor, nn

from pscd import distributed, fast, losses
from pscd.errors import UserError
from pscd.types import Energy


class Objective(Protocol):
    """What the trainer asks of an objective."""

    @property
    def needs_negatives(self) -> bool:
        """Whether samples of the model are needed at every update."""
        ...

    @property
    def sampling_power(self) -> float:
        """The power of q that negatives are drawn from; 1 is the model itself."""
        ...

    def init(self, energy: nn.Module, x: Tensor) -> nn.Module | None:
        """Something to be trained beside the energy (a critic, a log Z); usually nothing.

        `x` are all the data, in the network's coordinates. Random weights come from torch's global generator,
        as those of any new module do; the trainer seeds it.
        """
        ...

    def at(self, progress: float) -> Self:
        """The objective at a fraction of the run, for what warms up."""
        ...

    def __call__(
        self,
        energy: Energy,
        aux: nn.Module | None,
        x_pos: Tensor,
        x_neg: Tensor,
        generator: torch.Generator,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss on this batch, and what to log."""
        ...


def both_phases(energy: Energy, x_pos: Tensor, x_neg: Tensor) -> tuple[Tensor, Tensor]:
    """Energies of data and samples from one forward pass, gathered from all processes."""
    e = fast.energies(energy, torch.cat([x_pos, x_neg]))
    e_pos, e_neg = distributed.gather_parts(e, [len(x_pos), len(x_neg)])
    return e_pos, e_neg


def phase_stats(e_pos: Tensor, e_neg: Tensor, gamma: float, *, drawn_from_r: bool = False) -> dict[str, Tensor]:
    """The diagnostics that every objective with two phases logs.

    The gap compares like with like: data with draws from q, weighted data with draws from r. It is between
    medians, since a gross outlier in the data may have an energy of thousands by right.
    """
    e_pos, e_neg = e_pos.detach(), e_neg.detach()
    pos_weights = losses.importance_weights(e_pos, gamma)
    neg_weights = losses.importance_weights(e_neg, 0.0 if drawn_from_r else gamma)
    middle = weighted_median(e_pos, pos_weights) if drawn_from_r else e_pos.median()
    return {
        "e_pos": e_pos.mean(),
        "e_neg": e_neg.mean(),
        "gap": middle - e_neg.median(),
        "ess_pos": losses.effective_sample_fraction(pos_weights),
        "ess_neg": losses.effective_sample_fraction(neg_weights),
        "gamma": torch.tensor(gamma),
    }


def weighted_median(values: Tensor, weights: Tensor) -> Tensor:
    """The smallest of the values `(n,)` with at least half of the weight at or below it."""
    ordered, order = values.sort()
    share = weights[order].cumsum(0)
    return ordered[torch.searchsorted(share, 0.5 * share[-1])]


def warmed_up(value: float, warmup: float, progress: float) -> float:
    """A setting that rises from 0 in proportion, over the first `warmup` of the run."""
    return value if warmup == 0 else value * min(1.0, progress / warmup)


def check_gamma(gamma: float) -> None:
    """Refuse a gamma for which the score is not defined, in one line."""
    try:
        losses.check_gamma(gamma)
    except ValueError as error:
        raise UserError(str(error)) from None


def check_warmup(warmup: float) -> None:
    """Refuse what is no fraction of a run."""
    if not 0 <= warmup <= 1:
        raise UserError(f"warmup is a fraction of the run between 0 and 1, got {warmup}")


def check_l2(l2: float) -> None:
    """Refuse a weight below 0."""
    if not l2 >= 0:
        raise UserError(f"l2 must not be negative, got {l2}")
