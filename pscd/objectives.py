"""Objectives: frozen dataclasses that bind a loss to the trainer. `--objective` chooses one by name."""

from dataclasses import dataclass, replace
from typing import Protocol, Self

import torch
from torch import Tensor, nn

from pscd import distributed, losses
from pscd.errors import UserError
from pscd.options import option
from pscd.samplers import Energy

NEGATIVES = ("auto", "weighted", "direct")


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
        """Something to be trained beside the energy (a critic, a log Z); usually nothing."""
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


@dataclass(frozen=True)
class PseudoSpherical:
    """Pseudo-spherical contrastive divergence (Yu et al. 2021); gamma = 0 is contrastive divergence.

    Gamma rises from 0 over the first `warmup` of the run. Before the model knows where the data are, a
    full gamma takes whatever it does not cover yet for contamination and never comes back to it.

    The negative phase is an expectation under r, proportional to q^(gamma + 1). It is estimated by weighting
    draws from q with exp(-gamma E), as published, or by draws from r themselves. Below gamma = 0 r is broader
    than q: the weights grow without bound in the tails, where q is never drawn from, and from gamma = -1/2
    down their variance is infinite for a Gaussian. `auto` therefore draws from r there.
    """

    gamma: float = option(1.0, "robustness: 0 is maximum likelihood, 1 the spherical score; at least -1")
    warmup: float = option(0.5, "fraction of the run over which gamma rises from 0")
    l2: float = option(0.0, "weight of the squared energies of both phases, which keeps them near 0")
    negatives: str = option(
        "auto", "draw from q and weight (weighted), or from r, q^(gamma+1) (direct); auto: direct below gamma 0"
    )

    needs_negatives = True

    def __post_init__(self) -> None:
        try:
            losses.check_gamma(self.gamma)
        except ValueError as error:
            raise UserError(str(error)) from None
        if not 0 <= self.warmup <= 1:
            raise UserError(f"warmup is a fraction of the run between 0 and 1, got {self.warmup}")
        if not self.l2 >= 0:
            raise UserError(f"l2 must not be negative, got {self.l2}")
        if self.negatives not in NEGATIVES:
            raise UserError(f"negatives must be one of {', '.join(NEGATIVES)}, got {self.negatives!r}")
        if self.negatives == "direct" and self.gamma == -1:
            raise UserError("at gamma -1 r is flat and cannot be drawn from; use --negatives weighted")

    @property
    def drawn_from_r(self) -> bool:
        """Whether chains run on r, so that their samples need no weights."""
        return self.negatives == "direct" or (self.negatives == "auto" and -1 < self.gamma < 0)

    @property
    def sampling_power(self) -> float:
        """Chains run on `exp(-sampling_power * E)`."""
        return 1 + self.gamma if self.drawn_from_r else 1.0

    def init(self, energy: nn.Module, x: Tensor) -> None:
        """Nothing beside the energy is trained."""
        return None

    def at(self, progress: float) -> Self:
        """Gamma in proportion to the warm-up done."""
        done = 1.0 if self.warmup == 0 else min(1.0, progress / self.warmup)
        return replace(self, gamma=self.gamma * done)

    def __call__(
        self,
        energy: Energy,
        aux: nn.Module | None,
        x_pos: Tensor,
        x_neg: Tensor,
        generator: torch.Generator,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Loss of Theorem 3's estimator, over the batches of all processes together."""
        e_pos, e_neg = both_phases(energy, x_pos, x_neg)
        loss = losses.pseudo_spherical(e_pos, e_neg, self.gamma, drawn_from_r=self.drawn_from_r)
        if self.l2:
            loss = loss + self.l2 * (e_pos.square().mean() + e_neg.square().mean())
        return loss, phase_stats(e_pos, e_neg, self.gamma, drawn_from_r=self.drawn_from_r)


def both_phases(energy: Energy, x_pos: Tensor, x_neg: Tensor) -> tuple[Tensor, Tensor]:
    """Energies of data and samples from one forward pass, gathered from all processes."""
    e_pos, e_neg = energy(torch.cat([x_pos, x_neg])).split([len(x_pos), len(x_neg)])
    return distributed.gather(e_pos), distributed.gather(e_neg)


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


# Contrastive divergence (Hinton 2002) is the member gamma = 0 of the same family.
OBJECTIVES: dict[str, Objective] = {"ps-cd": PseudoSpherical(), "cd": PseudoSpherical(gamma=0.0)}
