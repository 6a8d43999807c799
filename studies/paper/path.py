"""path: why the start decides. The gamma-score's gradient flow in one dimension, for a density that can be anything."""

import math
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from pscd.data.toys import GaussianMixture1d
from studies.engine import Experiment, Result, Row, Run, Settings

CLEAN, RATIO = GaussianMixture1d((1.0,), (0.0,), (1.0,)), 0.1
DIRTY = GaussianMixture1d((1 - RATIO, RATIO), (0.0, 5.0), (1.0, 0.3**2))
# Where training starts: with the junk, knowing nothing, or with the majority alone.
STARTS = {"knows the junk": DIRTY, "ignorant": GaussianMixture1d((1.0,), (0.0,), (25.0,)), "robust": CLEAN}
GAMMAS = (0.0, 0.5, 1.0)
LOW, HIGH, BORDER = -20.0, 20.0, 3.5  # the line, and where the junk begins
SHOWN = 10.0  # the time at which densities are shown


def flow(log_q: Tensor, log_p: Tensor, gamma: float, cell: float, times: Tensor, step: float) -> list[Tensor]:
    """Follow the gamma-score's natural gradient: dq/dt = p q^gamma / E_p[q^gamma] - q q^gamma / E_q[q^gamma].

    With log q(x) at every x as a parameter, the gradient of the score is p q^gamma / E_p[q^gamma] - q^(1+gamma) /
    integral of q^(1+gamma); the Fisher metric divides it by q. At gamma 0 that is dq/dt = p - q: every place learns
    at the rate 1. Otherwise a place learns at the rate q^gamma. Steps are half implicit, which keeps q positive.
    """
    q, p, at, seen = log_q.exp(), log_p.exp(), 0.0, []
    q, p = q / (q.sum() * cell), p / (p.sum() * cell)
    for time in times.tolist():
        n = max(1, math.ceil((time - at) / step))
        h = (time - at) / n
        for _ in range(n):
            power = q**gamma
            of_p, of_q = (p * power).sum() * cell, (q * power).sum() * cell
            q = (q + h * p * power / of_p) / (1 + h * power / of_q)
            q = q / (q.sum() * cell)
        at = time
        seen.append(q)
    return seen


def _runs(quick: bool, seeds: int) -> list[Settings]:
    size = {"n": 400, "times": 12, "until": 20.0, "step": 0.05} if quick else _FULL
    return [{"start": start, "gamma": gamma, **size} for start in STARTS for gamma in GAMMAS]


_FULL = {"n": 1600, "times": 81, "until": 200.0, "step": 0.005}


def line(n: int) -> tuple[Tensor, float]:
    """The centres of n cells, `(n,)`, and their width."""
    cell = (HIGH - LOW) / n
    return LOW + cell * (torch.arange(n, dtype=torch.float64) + 0.5), cell


def _compute(settings: Settings) -> Result:
    x, cell = line(settings["n"])
    times = torch.logspace(-2, math.log10(settings["until"]), settings["times"], dtype=torch.float64)
    log_p, log_q = DIRTY.log_prob(x[:, None]), STARTS[settings["start"]].log_prob(x[:, None])
    densities = flow(log_q, log_p, settings["gamma"], cell, times, settings["step"])
    weights = [float(q[x > BORDER].sum() * cell) for q in densities]
    half = next((float(t) for t, w in zip(times, weights, strict=True) if w >= RATIO / 2), None)
    shown = int((times - SHOWN).abs().argmin())
    error = [float((q - log_p.exp()).abs().sum() * cell / 2) for q in densities]
    return {
        "times": times.tolist(),
        "weights": weights,
        "density": densities[shown].tolist(),
        "weight_then": weights[shown],
        "weight_at_the_end": weights[-1],
        "half": half,
        "distance": error[-1],
    }


def _rows(done: Sequence[Run]) -> list[Row]:
    names = {
        "weight_then": f"weight of the junk at time {SHOWN:g}",
        "weight_at_the_end": "at the end",
        "half": "time at which half of it is learnt",
        "distance": "total variation from the dirty density at the end",
    }
    return [
        Row(f"{d.settings['start']}, gamma {d.settings['gamma']:g}", column, d.result[value])
        for d in done
        for value, column in names.items()
        if d.result[value] is not None and (value != "half" or d.settings["start"] == "robust")
    ]


def _notes(done: Sequence[Run]) -> str:
    return f"""
Data: N(0, 1), of which {RATIO:.0%} is junk, N(5, .3) (deviation). The model is a density on a fine grid that can be
anything, and follows the natural gradient of the gamma-score,

    dq/dt = p q^gamma / E_p[q^gamma] - q q^gamma / E_q[q^gamma],    at gamma 0: dq/dt = p - q,

without sampling, by quadrature. The score is strictly proper: its only optimum is the dirty density p, junk included,
and every start ends there if one waits long enough. What gamma changes is the speed: a place learns at the rate
q^gamma. So the start decides. *Knows the junk* (fitted to all rows, or warmed up at gamma 0): it is at the optimum
already and nothing makes it forget. *Ignorant* (N(0, 5^2)): the junk is as likely as the data, and both are learnt
alike. *Robust* (fitted to the majority): the junk has a density of about 1e-6, and its weight stays near nothing for a
time that grows with gamma; training is over before. A network learns by steps of its own, so the units of time are not
those of updates; the order of the curves is what carries over.
"""


def _draw(done: Sequence[Run], out: Path) -> list[Path]:
    from studies.paper import figures

    x, _ = line(done[0].settings["n"])
    panels = {
        start: {f"gamma {d.settings['gamma']:g}": d.result for d in done if d.settings["start"] == start}
        for start in STARTS
    }
    truth = {name: p.log_prob(x[:, None]).exp().tolist() for name, p in (("all rows", DIRTY), ("clean", CLEAN))}
    return [figures.paths(panels, x.tolist(), truth, out / "path.png", ratio=RATIO, time=SHOWN)]


PATH = Experiment(
    "path",
    "Why the start decides: the gamma-score's gradient flow from three starts",
    "1 minute",
    1,
    _runs,
    _compute,
    _rows,
    _draw,
    _notes,
)
