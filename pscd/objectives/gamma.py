"""Objectives that weight rows by a power of the model's density: PS-CD and its robust relatives."""

import math
from dataclasses import dataclass, replace
from typing import Literal, Self

import torch
from torch import Tensor, nn

from pscd import distributed, fast, losses
from pscd.errors import UserError
from pscd.mixtures import Mixture
from pscd.objectives.protocol import Objective, both_phases, check_gamma, check_l2, check_warmup, phase_stats, warmed_up
from pscd.types import Energy, check_types, documented, option


@documented
@dataclass(frozen=True)
class PseudoSpherical(Objective):
    """Pseudo-spherical contrastive divergence (Eq. 17); gamma = 0 is contrastive divergence.

    Gamma rises from 0 over the first `warmup` of the run. Before the model knows where the data are, the full gamma
    would treat everything that it does not cover yet as contamination, permanently.

    The negative phase is an expectation under r, proportional to q^(gamma + 1). It is estimated by weighting draws of q
    with exp(-gamma E), as published (Eq. 19), or by draws of r itself. Below gamma = 0, r is broader than q: the
    weights grow without bound in the tails, where q is never drawn from, and from gamma = -1/2 down their variance is
    infinite for a Gaussian. Therefore `auto` draws from r there. Where the energy corrects a density g by a bounded
    network, draws of g with the weights exp(-gamma E) q / g do without any chain (`importance`; for gamma = 0 see
    Bengio and Senécal 2003): the weights are bounded, and no chain has to mix.

    The weights exp(-gamma E) assume that chains follow exp(-E). In recipes for images they do not: the noise is a
    thousand times too small for the step, so the energies have another scale and gamma another strength. With the
    `unit` spread, gamma is divided by the spread of the data's energies, which is 1 for a Gaussian in two dimensions:
    the effective share of the data then depends neither on the temperature nor on the dimension.

    >>> PseudoSpherical(gamma=1.0, warmup=0.5).at(0.25).gamma  # half-way through the warm-up
    0.5
    """

    gamma: float | Literal["auto"] = option(
        1.0, "robustness: 0 is maximum likelihood, 1 the spherical score; at least -1; auto: chosen from the rows"
    )
    warmup: float = option(0.5, "fraction of the run over which gamma rises from 0")
    l2: float = option(0.0, "weight of the squared energies of both phases, which keeps them near 0")
    negatives: Literal["auto", "weighted", "direct", "importance"] = option(
        "auto",
        "draw from q and weight (weighted), from r, q^(gamma+1) (direct), or without chains, from the density that the "
        "energy corrects (importance); auto: direct below gamma 0, else weighted",
    )
    unit: Literal["nats", "spread"] = option(
        "nats", "gamma is per nat of energy, or per spread of the data's energies (spread), for images"
    )

    @property
    def needs_negatives(self) -> bool:
        """Whether chains run while it trains."""
        return self.negatives != "importance"

    def __post_init__(self) -> None:
        check_types(self)
        if self.gamma != "auto":
            check_gamma(self.gamma)
        check_warmup(self.warmup)
        check_l2(self.l2)
        if self.negatives in ("direct", "importance") and self.gamma == -1:
            raise UserError("at gamma -1 r is flat and cannot be drawn from; set negatives to weighted")

    @property
    def number(self) -> float:
        """Gamma as a number."""
        if self.gamma == "auto":
            raise UserError("gamma auto becomes a number when training starts; give one to use the objective alone")
        return self.gamma

    @property
    def drawn_from_r(self) -> bool:
        """Whether chains sample r, so that their samples need no weights."""
        return self.negatives == "direct" or (self.negatives == "auto" and -1 < self.number < 0)

    @property
    def sampling_power(self) -> float:
        """Chains sample `exp(-sampling_power * E)`."""
        return 1 + self.number if self.drawn_from_r else 1.0

    def init(self, energy: nn.Module, x: Tensor) -> "Drawn | None":
        """The density that negatives are drawn from, if they do not come from chains; nothing else is trained."""
        if self.needs_negatives:
            return None
        density = getattr(energy, "corrected_density", None)
        if density is None:
            raise UserError("negatives importance need an energy that corrects a density; set the energy to corrected")
        # The power of r is fixed only where gamma is per nat.
        return Drawn(density(1 + self.number if self.unit == "nats" else 1.0)).to(x.device)

    def at(self, progress: float) -> Self:
        """The objective after a fraction `progress` of the run: gamma rises over the warm-up."""
        return replace(self, gamma=warmed_up(self.number, self.warmup, progress))

    def __call__(
        self,
        energy: Energy,
        aux: nn.Module | None,
        x_pos: Tensor,
        x_neg: Tensor,
        generator: torch.Generator,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss of Theorem 3's estimator over the batches of all processes together."""
        if self.needs_negatives:
            return self.of_energies(*both_phases(energy, x_pos, x_neg))
        assert isinstance(aux, Drawn)
        y = aux.density.sample(2 * len(x_pos), generator).to(x_pos.dtype)
        e = fast.energies(energy, torch.cat([x_pos, y]))
        parts = torch.cat([e, aux.density.log_prob(y)])
        e_pos, e_neg, log_g = distributed.gather_parts(parts, [len(x_pos), len(y), len(y)])
        return self.of_energies(e_pos, e_neg, (-e_neg - log_g).detach())

    def of_energies(
        self, e_pos: Tensor, e_neg: Tensor, log_ratio: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss as a function of energies; `log_ratio` as in `losses.importance_weights`."""
        if self.unit == "nats":
            return self._loss(e_pos, e_neg, log_ratio=log_ratio)
        spread = losses.energy_spread(e_pos).clamp(min=1e-6)  # energies of a new network may be equal
        loss, stats = self._loss(e_pos / spread, e_neg / spread, l2=self.l2 * spread, log_ratio=log_ratio)
        in_nats = {name: stats[name] * spread for name in ("e_pos", "e_neg", "gap")}
        # Scaled back, so that the gradient is of the size of CD's whatever the spread.
        return loss * spread, {**stats, **in_nats, "spread": spread}

    def _loss(
        self, e_pos: Tensor, e_neg: Tensor, l2: float | Tensor | None = None, log_ratio: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        gamma, from_r = self.number, self.drawn_from_r
        loss = losses.pseudo_spherical(e_pos, e_neg, gamma, drawn_from_r=from_r, log_ratio=log_ratio)
        if self.l2:
            weight = self.l2 if l2 is None else l2
            loss = loss + weight * losses.squares(e_pos, e_neg, gamma, drawn_from_r=from_r, log_ratio=log_ratio)
        return loss, phase_stats(e_pos, e_neg, gamma, drawn_from_r=from_r, log_ratio=log_ratio)


class Drawn(nn.Module):
    """The density that negatives are drawn from where no chains run; it is not trained."""

    def __init__(self, density: Mixture) -> None:
        super().__init__()
        self.density = density


@documented
@dataclass(frozen=True)
class DensityPower(Objective):
    """The density power divergence (Basu et al. 1998), an older relative of PS-CD; beta = 0 is contrastive divergence.

    It is not homogeneous: -1/beta E_p[q^beta] + 1/(1+beta) times the integral of q^(1+beta) depends on log Z. But its
    gradient does so only through a positive factor Z^-beta common to all terms, which changes neither minima nor
    directions of descent. It is replaced by the factor that makes the weights 1 on average over the samples (see
    `losses.density_power`), so log Z need not be estimated.

    >>> DensityPower(beta=0.4, warmup=0.5).at(0.25).beta  # half-way through the warm-up
    0.2
    """

    beta: float = option(0.5, "robustness: 0 is maximum likelihood, 1 the squared distance of densities")
    warmup: float = option(0.5, "fraction of the run over which beta rises from 0")
    l2: float = option(0.0, "weight of the squared energies of both phases, which keeps them near 0")

    def __post_init__(self) -> None:
        if not 0 <= self.beta < math.inf:
            raise UserError(f"beta must be a finite number >= 0, got {self.beta}")
        check_warmup(self.warmup)
        check_l2(self.l2)

    def at(self, progress: float) -> Self:
        """The objective after a fraction `progress` of the run: beta rises over the warm-up."""
        return replace(self, beta=warmed_up(self.beta, self.warmup, progress))

    def __call__(
        self,
        energy: Energy,
        aux: nn.Module | None,
        x_pos: Tensor,
        x_neg: Tensor,
        generator: torch.Generator,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss over the batches of all processes together."""
        e_pos, e_neg = both_phases(energy, x_pos, x_neg)
        loss = losses.density_power(e_pos, e_neg, self.beta)
        if self.l2:
            loss = loss + self.l2 * losses.squares(e_pos, e_neg, self.beta)
        stats = phase_stats(e_pos, e_neg, self.beta)
        return loss, {"beta": stats.pop("gamma"), **stats}


@documented
@dataclass(frozen=True)
class WeightedNegatives(Objective):
    """An ablation of PS-CD: weights on the samples alone.

    Its optimum is r = p, r being proportional to q^(gamma+1), so the model itself becomes broader than the data: for a
    Gaussian by a factor gamma + 1 in variance.

    >>> from pscd import Quadratic
    >>> x_pos, x_neg = torch.zeros(4, 1), torch.ones(4, 1)
    >>> loss, stats = WeightedNegatives()(Quadratic(), None, x_pos, x_neg, torch.Generator())
    >>> loss.item()
    -0.5
    """

    gamma: float = option(1.0, "exponent of the samples' weights")

    def __post_init__(self) -> None:
        check_gamma(self.gamma)

    def __call__(
        self,
        energy: Energy,
        aux: nn.Module | None,
        x_pos: Tensor,
        x_neg: Tensor,
        generator: torch.Generator,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss over the batches of all processes together."""
        e_pos, e_neg = both_phases(energy, x_pos, x_neg)
        loss = losses.weighted_negatives(e_pos, e_neg, self.gamma)
        return loss, phase_stats(e_pos, e_neg, self.gamma)
