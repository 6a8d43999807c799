"""Early stopping: held-out rows decide which update is kept, so that a network does not memorise a small table."""

import copy
import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from pscd import distributed, losses
from pscd.config import TrainConfig
from pscd.data.streams import SAMPLE_ROWS, distinct
from pscd.energies import CorrectedEnergy
from pscd.errors import UserError
from pscd.mixtures import Mixture
from pscd.recipes.tables import Prepared, split_rows
from pscd.rng import Stream, generator
from pscd.training.state import Best, TrainState

N_DRAWS = 16_384  # from the mixture, to estimate integrals


def hold_out(prepared: Prepared, config: TrainConfig) -> tuple[Prepared, Prepared | None, Tensor]:
    """Divide rows into those to train on and those that choose the update to keep."""
    n = len(prepared.z)
    n_held = int(config.rows.hold_out * min(n, SAMPLE_ROWS))
    if n_held == 0:
        return prepared, None, torch.empty(0, dtype=torch.long)

    def part(index: Tensor | slice) -> Prepared:
        clean = prepared.clean[index] if prepared.clean is not None else None
        return replace(prepared, z=prepared.z[index], clean=clean)

    if n <= SAMPLE_ROWS:
        rest, index = split_rows(n, config)
        return part(rest), part(index), index
    index = distinct(n, n_held, generator(config.seed, Stream.HOLD_OUT)).sort().values
    held, end = part(index), n - n_held
    # The last rows take the places of those held out: a second copy of all others would take too much memory.
    last = torch.ones(n_held, dtype=torch.bool)
    last[index[index >= end] - end] = False
    for rows in (prepared.z, prepared.clean):
        if rows is not None:
            rows[index[index < end]] = rows[end:][last]
    return part(slice(end)), held, index


@dataclass(frozen=True)
class HeldOut:
    """Held-out rows and draws from the mixture, which give the gamma-score of a model up to a constant."""

    z: Tensor  # held-out rows, `(n, d)`
    clean: Tensor  # the probability that a row belongs to the majority, `(n,)`
    log_m: Tensor  # log density of the mixture at `z`, `(n,)`
    draws: Tensor  # from the mixture, `(N_DRAWS, d)`
    log_m_draws: Tensor  # log density of the mixture at `draws`, `(N_DRAWS,)`
    gamma: float  # of the score, per nat
    whole: Mixture  # the mixture of the model, which in more columns than two has seen the held-out rows

    @classmethod
    @torch.no_grad()
    def of(
        cls,
        energy: CorrectedEnergy,
        z: Tensor,
        clean: Tensor | None,
        *,
        whole: Mixture,
        gamma: float,
        unit: str,
        seed: int,
    ) -> "HeldOut":
        """Draw from the mixture and convert gamma to nats."""
        rng = generator(seed, Stream.SPREAD, device=z.device)
        draws = energy.mixture.sample(N_DRAWS, rng)
        log_m_draws = energy.mixture.log_prob(draws)
        per_nat = gamma / float(losses.energy_spread(-log_m_draws)) if gamma and unit == "spread" else gamma
        chances = torch.ones_like(z[:, 0]) if clean is None else clean.to(z).clamp(min=1e-6)
        return cls(z, chances, energy.mixture.log_prob(z), draws, log_m_draws, per_nat, whole)

    @torch.no_grad()
    def gain(self, energy: nn.Module) -> float:
        """Gain of the network over the mixture alone: the gamma-score of the held-out rows, in nats per row."""
        # A standard error is taken off: noise of rows and draws must not choose where there is little to gain.
        assert isinstance(energy, CorrectedEnergy)
        f, f_draws = energy.network(self.z), energy.network(self.draws)
        parts = (f, self.log_m, self.clean, f_draws, self.log_m_draws, self.gamma)
        return score_gain(*parts) - score_error(*parts)

    def look(self, state: TrainState) -> float:
        """The gain of the averaged weights, which are kept if it is the largest so far."""
        shared = torch.tensor(self.gain(state.averaged), dtype=torch.float64, device=self.z.device)
        distributed.broadcast([shared])  # processes that differ in the last digit would end at different updates
        gain = float(shared)
        if state.best is None or gain > state.best.gain:
            state.best = self.kept(gain, state.averaged, state.step)
        return gain

    def kept(self, gain: float, energy: nn.Module, step: int = 0) -> Best:
        """A copy of the weights, in which what the network has learnt is laid on the mixture of the model."""
        weights = copy.deepcopy(energy.state_dict())
        for name, value in self.whole.state_dict().items():
            weights[f"mixture.{name}"] = value.to(weights[f"mixture.{name}"], copy=True)
        return Best(gain, weights, step)


def judge_of(held_out: Prepared | None, state: TrainState, config: TrainConfig) -> HeldOut | None:
    """What tells how good a correction is; at first the mixture alone is the best there is."""
    if held_out is None:
        return None
    if not isinstance(state.averaged, CorrectedEnergy):
        raise UserError("hold_out judges a network that corrects a mixture; set it to 0, or the energy to corrected")
    assert held_out.mixture is not None
    gamma, unit = float(config.objective.gamma), config.objective.unit
    z = held_out.z.to(state.coordinates.shift.device)
    whole = held_out.mixture.density
    judge = HeldOut.of(state.averaged, z, held_out.clean, whole=whole, gamma=gamma, unit=unit, seed=config.seed)
    state.best = judge.kept(0.0, state.averaged)
    return judge


def score_gain(f: Tensor, log_m: Tensor, clean: Tensor, f_draws: Tensor, log_m_draws: Tensor, gamma: float) -> float:
    """The gamma-score of E = -log m + f minus that of -log m; at gamma = 0, the gain in mean log density."""
    # The score is 1/gamma log E_p[exp(-gamma E)] - 1/(1+gamma) log of the integral of exp(-(1+gamma) E). The integral
    # is E_m[m^gamma exp(-(1+gamma) f)], estimated from draws of m. Both scores use the same draws, so that most of the
    # noise cancels.
    if gamma == 0:
        return float(-(clean * f).sum() / clean.sum() - (torch.logsumexp(-f_draws, 0) - math.log(len(f_draws))))
    rows, power = clean.log(), gamma * log_m_draws
    gain = torch.logsumexp(rows + gamma * (log_m - f), 0) - torch.logsumexp(rows + gamma * log_m, 0)
    cost = torch.logsumexp(power - (1 + gamma) * f_draws, 0) - torch.logsumexp(power, 0)
    return float(gain / gamma - cost / (1 + gamma))


def score_error(f: Tensor, log_m: Tensor, clean: Tensor, f_draws: Tensor, log_m_draws: Tensor, gamma: float) -> float:
    """The standard error of `score_gain`, of which rows and draws are samples."""
    # The log of a ratio of sums, of a_i and of b_i, has a variance of about the sum of (a_i / sum a - b_i / sum b)^2.
    rows, power = clean.log(), gamma * log_m_draws
    if gamma == 0:
        share = torch.softmax(rows, 0)
        moved = share * (f - share @ f)
    else:
        moved = (torch.softmax(rows + gamma * (log_m - f), 0) - torch.softmax(rows + gamma * log_m, 0)) / gamma
    drawn = torch.softmax(power - (1 + gamma) * f_draws, 0) - torch.softmax(power, 0)
    return float((moved.square().sum() + (drawn / (1 + gamma)).square().sum()).sqrt())
