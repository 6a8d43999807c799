"""Objectives that weight rows by a power of the model's density: PS-CD and its robust relatives."""

import math
from dataclasses import dataclass, replace
from typing import Literal, Self

import torch
from torch import Tensor, nn

from pscd import losses
from pscd.errors import UserError
from pscd.objectives.protocol import both_phases, check_gamma, check_l2, check_warmup, phase_stats, warmed_up
from pscd.types import Energy, check_choices, documented, option

NO_SPREAD = 1e-6  # of energies that are all alike, as those of a new network are


@documented
@dataclass(frozen=True)
class PseudoSpherical:
    """Pseudo-spherical contrastive divergence (Yu et al. 2021); gamma = 0 is contrastive divergence.

    Gamma rises from 0 over the first `warmup` of the run. Before the model knows where the data are, a
    full gamma takes whatever it does not cover yet for contamination and never comes back to it.

    The negative phase is an expectation under r, proportional to q^(gamma + 1). It is estimated by weighting
    draws from q with exp(-gamma E), as published, or by draws from r themselves. Below gamma = 0 r is broader
    than q: the weights grow without bound in the tails, where q is never drawn from, and from gamma = -1/2
    down their variance is infinite for a Gaussian. `auto` therefore draws from r there.

    Weights exp(-gamma E) suppose that chains follow exp(-E). Where they do not, as in recipes for images, whose noise
    is a thousand times too small for their step, energies have some other scale and a gamma some other strength.
    With the `unit` spread, gamma is divided by the spread of the data's energies, which is 1 for a Gaussian in two
    dimensions: a gamma then leaves a share of the data in play that depends neither on temperature nor on dimension.
    """

    gamma: float = option(1.0, "robustness: 0 is maximum likelihood, 1 the spherical score; at least -1")
    warmup: float = option(0.5, "fraction of the run over which gamma rises from 0")
    l2: float = option(0.0, "weight of the squared energies of both phases, which keeps them near 0")
    negatives: Literal["auto", "weighted", "direct"] = option(
        "auto", "draw from q and weight (weighted), or from r, q^(gamma+1) (direct); auto: direct below gamma 0"
    )
    unit: Literal["nats", "spread"] = option(
        "nats", "gamma is per nat of energy, or per spread of the data's energies (spread), for images"
    )

    needs_negatives = True

    def __post_init__(self) -> None:
        check_gamma(self.gamma)
        check_warmup(self.warmup)
        check_l2(self.l2)
        check_choices(self)
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
        return replace(self, gamma=warmed_up(self.gamma, self.warmup, progress))

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
        if self.unit == "nats":
            return self._loss(e_pos, e_neg)
        spread = losses.energy_spread(e_pos).clamp(min=NO_SPREAD)
        loss, stats = self._loss(e_pos / spread, e_neg / spread, l2=self.l2 * spread)
        in_nats = {name: stats[name] * spread for name in ("e_pos", "e_neg", "gap")}
        # The gradient is of the size that CD's is, whatever the spread.
        return loss * spread, {**stats, **in_nats, "spread": spread}

    def _loss(self, e_pos: Tensor, e_neg: Tensor, l2: float | Tensor | None = None) -> tuple[Tensor, dict[str, Tensor]]:
        loss = losses.pseudo_spherical(e_pos, e_neg, self.gamma, drawn_from_r=self.drawn_from_r)
        if self.l2:
            weight = self.l2 if l2 is None else l2
            loss = loss + weight * losses.squares(e_pos, e_neg, self.gamma, drawn_from_r=self.drawn_from_r)
        return loss, phase_stats(e_pos, e_neg, self.gamma, drawn_from_r=self.drawn_from_r)


@documented
@dataclass(frozen=True)
class DensityPower:
    """The density power divergence (Basu et al. 1998): PS-CD's older relative, beta = 0 being contrastive divergence.

    It is not homogeneous: -1/beta E_p[q^beta] + 1/(1+beta) times the integral of q^(1+beta) depends on log Z. But
    its gradient does so only through the factor Z^-beta, common to all terms and positive, which changes no
    minimum and no direction of descent. In its place stands a factor that the samples know, so that weights are
    1 on average over them (see `losses.density_power`): no log Z has to be estimated.
    """

    beta: float = option(0.5, "robustness: 0 is maximum likelihood, 1 the squared distance of densities")
    warmup: float = option(0.5, "fraction of the run over which beta rises from 0")
    l2: float = option(0.0, "weight of the squared energies of both phases, which keeps them near 0")

    needs_negatives = True
    sampling_power = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.beta < math.inf:
            raise UserError(f"beta must be a finite number >= 0, got {self.beta}")
        check_warmup(self.warmup)
        check_l2(self.l2)

    def init(self, energy: nn.Module, x: Tensor) -> None:
        """Nothing beside the energy is trained."""
        return None

    def at(self, progress: float) -> Self:
        """Beta in proportion to the warm-up done."""
        return replace(self, beta=warmed_up(self.beta, self.warmup, progress))

    def __call__(
        self,
        energy: Energy,
        aux: nn.Module | None,
        x_pos: Tensor,
        x_neg: Tensor,
        generator: torch.Generator,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Loss over the batches of all processes together."""
        e_pos, e_neg = both_phases(energy, x_pos, x_neg)
        loss = losses.density_power(e_pos, e_neg, self.beta)
        if self.l2:
            loss = loss + self.l2 * losses.squares(e_pos, e_neg, self.beta)
        stats = phase_stats(e_pos, e_neg, self.beta)
        return loss, {"beta": stats.pop("gamma"), **stats}


@documented
@dataclass(frozen=True)
class WeightedNegatives:
    """An ablation of PS-CD: weights on the samples alone.

    Its optimum is r = p, r being proportional to q^(gamma+1), so that the model itself ends up broader than the
    data: for a Gaussian by the factor gamma + 1 in variance.
    """

    gamma: float = option(1.0, "exponent of the samples' weights")

    needs_negatives = True
    sampling_power = 1.0

    def __post_init__(self) -> None:
        check_gamma(self.gamma)

    def init(self, energy: nn.Module, x: Tensor) -> None:
        """Nothing beside the energy is trained."""
        return None

    def at(self, progress: float) -> Self:
        """The same at all times."""
        return self

    def __call__(
        self,
        energy: Energy,
        aux: nn.Module | None,
        x_pos: Tensor,
        x_neg: Tensor,
        generator: torch.Generator,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Loss over the batches of all processes together."""
        e_pos, e_neg = both_phases(energy, x_pos, x_neg)
        loss = losses.weighted_negatives(e_pos, e_neg, self.gamma)
        return loss, phase_stats(e_pos, e_neg, self.gamma)
