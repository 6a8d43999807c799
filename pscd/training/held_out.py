"""Rows that choose the update to keep: a network that corrects a mixture must not memorise a small table."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pscd import losses
from pscd.energies import CorrectedEnergy
from pscd.rng import Stream, generator

N_DRAWS = 16_384  # of the mixture, for the integrals


@dataclass(frozen=True)
class HeldOut:
    """Held-out rows, and draws of the mixture, by which the gamma-score of a model is known up to a constant.

    Args:
        z: rows `(n, d)`.
        clean: `(n,)`, how likely each belongs to the majority.
        log_m: `(n,)`, log density of the mixture there.
        draws: `(N_DRAWS, d)`, of the mixture.
        log_m_draws: `(N_DRAWS,)`.
        gamma: per nat.
    """

    z: Tensor
    clean: Tensor
    log_m: Tensor
    draws: Tensor
    log_m_draws: Tensor
    gamma: float

    @classmethod
    @torch.no_grad()
    def of(
        cls, energy: CorrectedEnergy, z: Tensor, clean: Tensor | None, *, gamma: float, unit: str, seed: int
    ) -> "HeldOut":
        """Rows of a run.

        Args:
            energy: the model; its mixture counts.
            z: the held-out rows.
            clean: their chances, or None where all count alike.
            gamma: of the objective.
            unit: whether it is per nat (`nats`) or per spread of the energies of the mixture's own draws (`spread`).
            seed: of the draws.

        Returns:
            Rows and draws, with gamma per nat.
        """
        rng = generator(seed, Stream.SPREAD, device=z.device)
        draws = energy.mixture.sample(N_DRAWS, rng)
        log_m_draws = energy.mixture.log_prob(draws)
        per_nat = gamma / float(losses.energy_spread(-log_m_draws)) if gamma and unit == "spread" else gamma
        chances = torch.ones_like(z[:, 0]) if clean is None else clean.to(z).clamp(min=1e-6)
        return cls(z, chances, energy.mixture.log_prob(z), draws, log_m_draws, per_nat)

    @torch.no_grad()
    def gain(self, energy: nn.Module) -> float:
        """By how much the network improves the gamma-score of the held-out rows over the mixture alone, in nats."""
        assert isinstance(energy, CorrectedEnergy)
        return score_gain(
            energy.network(self.z), self.log_m, self.clean, energy.network(self.draws), self.log_m_draws, self.gamma
        )


def score_gain(f: Tensor, log_m: Tensor, clean: Tensor, f_draws: Tensor, log_m_draws: Tensor, gamma: float) -> float:
    """How much the gamma-score of rows gains by E = -log m + f over f = 0; the log density at gamma = 0.

    The score is 1/gamma log E_p[exp(-gamma E)] - 1/(1+gamma) log of the integral of exp(-(1+gamma) E), the latter a
    mean over draws of m of m^gamma exp(-(1+gamma) f). Both f share the draws, which cancels most of their noise.

    Args:
        f: `(n,)`, at the rows.
        log_m: `(n,)`, there.
        clean: `(n,)`, weights of the rows.
        f_draws: `(k,)`, at draws of m.
        log_m_draws: `(k,)`, there.
        gamma: per nat, at least 0.

    Returns:
        Nats a row; 0 for f = 0.
    """
    if gamma == 0:
        return float(-(clean * f).sum() / clean.sum() - (torch.logsumexp(-f_draws, 0) - math.log(len(f_draws))))
    rows, power = clean.log(), gamma * log_m_draws
    gain = torch.logsumexp(rows + gamma * (log_m - f), 0) - torch.logsumexp(rows + gamma * log_m, 0)
    cost = torch.logsumexp(power - (1 + gamma) * f_draws, 0) - torch.logsumexp(power, 0)
    return float(gain / gamma - cost / (1 + gamma))
