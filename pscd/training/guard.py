"""The guard of a run: what stops an update, the progress line, and the diagnostics at the end in plain words."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from pscd.config import TrainConfig
from pscd.errors import Diverged


@dataclass(frozen=True)
class Thresholds:
    """Where diagnostics become warnings."""

    tail: float = 0.2  # the last part of a run, over which diagnostics are averaged
    min_ess: float = 0.1  # below, a tenth of the batch has all the weight
    max_gap: float = 1.0  # between the phases' median energies, in nats
    max_gap_spreads: float = 5.0  # and in spreads of the data's energies, which are coarser
    # Nats, or spreads, by which the mean energy of data may lie below that of samples while the medians agree.
    max_mean_gap: float = 50.0
    acceptance: tuple[float, float] = (0.2, 0.95)
    min_jumps: float = 0.02
    max_mode_error: float = 0.1
    max_accuracy: float = 0.95  # of telling noise from data, above which the noise teaches next to nothing


Modes = Callable[[Tensor], Tensor]


def diagnose(rows: Sequence[dict[str, float]], *, retries: int = 0, limits: Thresholds | None = None) -> list[str]:
    """Sentences on what went wrong in a run and what to do about it, from the rows of `metrics.jsonl`.

    >>> diagnose([{"step": 1, "ess_pos": 0.9, "ess_neg": 0.01}])
    ['weights collapsed (ESS 0.010): lower gamma (or beta) or warm up longer']
    """
    limits = limits or Thresholds()
    gains = [row.get("gain", -math.inf) for row in rows]
    # Held-out rows chose the update to keep; what came after it is not part of the model.
    rows = rows[: gains.index(max(gains)) + 1] if rows and "gain" in rows[-1] else rows
    tail = rows[-max(1, round(limits.tail * len(rows))) :]

    def mean(name: str, otherwise: float) -> float:
        values = [row[name] for row in tail if name in row]
        return sum(values) / len(values) if values else otherwise

    problems = []
    spread = mean("spread", 1.0)  # logged if it is the unit of energies instead of nats
    unit, apart = ("nats", limits.max_gap) if spread == 1 else ("spreads", limits.max_gap_spreads)
    gap, ess = mean("gap", 0.0) / spread, min(mean("ess_pos", 1.0), mean("ess_neg", 1.0))
    if ess < limits.min_ess:
        # At gamma 0 the only weights are those of draws of the density that a network corrects.
        problems.append(
            f"weights collapsed (ESS {ess:.3f}): lower gamma (or beta) or warm up longer"
            if mean("gamma", 1.0) > 0
            else f"few draws of the mixture look like data (ESS {ess:.3f}): samples and log Z are less exact than "
            "usual; model.log_z() has the error"
        )
    if gap < -apart:
        problems.append(
            f"negatives lag behind the data by {-gap:.1f} {unit}: more sampling steps or a lower learning rate"
        )
    if gap > apart:
        problems.append(
            f"samples have {gap:.1f} {unit} less energy than the data: a lower learning rate, or a base for the energy"
        )
    sunk = (mean("e_neg", 0.0) - mean("e_pos", 0.0)) / spread
    if sunk > limits.max_mean_gap and abs(gap) <= apart:
        problems.append(
            f"a few rows lie far below all samples (the mean by {sunk:.0f} {unit}), where no chain goes: leave out "
            "rows that are far from all others, or start from a mixture (rows.start)"
        )
    acceptance = mean("acceptance", sum(limits.acceptance) / 2)
    if not limits.acceptance[0] <= acceptance <= limits.acceptance[1]:
        problems.append(f"the sampler's step has not settled (acceptance {acceptance:.2f}): train longer")
    if mean("jumps", 1.0) < limits.min_jumps:
        problems.append("jumps are rarely accepted, so modes may drift: more jump components or sampling steps")
    if mean("mode_error", 0.0) > limits.max_mode_error:
        problems.append(
            f"modes hold the wrong mass (off by {mean('mode_error', 0.0):.2f}): use jumps, or warm up longer"
        )
    if mean("told_apart", 0.5) > limits.max_accuracy:
        share = mean("told_apart", 0.5)
        problems.append(f"noise is separated from data too easily ({share:.0%}): use mixture noise, or more components")
    if retries:
        times = "once" if retries == 1 else f"{retries} times"
        problems.append(f"the run was rolled back {times}: a lower learning rate would be safer")
    return problems or ["no problem found"]


def mode_shares(x: Tensor, modes: Modes, n_modes: int) -> Tensor:
    """The share of rows `(n, *shape)` in each mode: `(n_modes,)`, summing to one."""
    return torch.bincount(modes(x), minlength=n_modes).float() / len(x)


def check(stats: dict[str, Tensor], config: TrainConfig) -> None:
    """Raise `Diverged` for an update whose numbers are not finite, or whose gap is too wide."""
    # One transfer for all: the only synchronisation with the device in an update.
    values = dict(
        zip(stats, torch.stack([s.float().to(stats["loss"].device) for s in stats.values()]).tolist(), strict=True)
    )
    for name, value in values.items():
        if not math.isfinite(value):
            raise Diverged(f"{name} is {value}")
    # With the unit `spread` the gap is measured in spreads too.
    gap = abs(values.get("gap", 0.0)) / values.get("spread", 1.0)
    if gap > config.guard.max_gap:
        raise Diverged(f"the energies of data and samples are {gap:.0f} {'spreads ' * ('spread' in values)}apart")


def summary(row: dict[str, float]) -> str:
    """A row of the log, as the progress line shows it."""
    shown = {"e_pos": "E data", "e_neg": "E samples", "ess_neg": "ESS", "acceptance": "accept", "temperature": "T"}
    return ", ".join(f"{label} {row[name]:.3g}" for name, label in shown.items() if name in row)


def last_words(message: str, config: TrainConfig, step: int, folder: Path | None) -> Diverged:
    """The error that ends a run whose retries are used up; it names what to try."""
    kept = f"the model of update {step} is kept in {folder}; " if folder is not None else ""
    return Diverged(
        f"training diverged {config.guard.max_retries + 1} times, last at {message}",
        f"{kept}try a smaller lr, more sampler steps, or a smaller sampler step size",
    )
