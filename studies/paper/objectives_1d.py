"""One Gaussian fitted to the mixture of f-EBM's authors by every objective, beside the exact optimum of each."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from pscd import exact, losses
from pscd.data.toys import MIXTURE_1D
from pscd.energies import Quadratic
from pscd.errors import Diverged, UserError
from pscd.objectives import (
    FEBM,
    DenoisingScoreMatching,
    DensityPower,
    NoiseContrastive,
    Objective,
    PseudoSpherical,
    ScoreMatching,
    SlicedScoreMatching,
    WeightedNegatives,
)
from pscd.objectives.nce import Noise
from pscd.rng import generator
from pscd.training.state import init_state
from studies.engine import Experiment, Result, Row, Run, Settings, mean_rows
from studies.engine.streams import StudyStream
from studies.paper.gaussian_fit import GRID, best_gaussian, exact_optimum, gaussian_config, train_gaussian
from studies.paper.objectives_2d import BLOCK, RIVALS, ROUNDS, cost_rows, relative_costs, split

# For distances of a fitted Gaussian to the data: neither has anything outside, or finer than a cell.
NEAR = exact.grid(exact.Box((-20.0,), (20.0,)), 1000)
FAR = 0.1  # from the exact mean or deviation: a run that ends there counts as failed
# A Gaussian cannot say what the mixture's density is, so the critic is a network.
RIVALS_1D: dict[str, Objective] = {
    name: replace(objective, critic="mlp") if isinstance(objective, FEBM) else objective
    for name, objective in RIVALS.items()
}
FULL = {"n_data": 200_000, "steps": 2000, "batch_size": 1024, "lr": 0.01, "ema": 0.998}
QUICK = {"n_data": 5_000, "steps": 30, "batch_size": 128, "lr": 0.03, "ema": 0.9}
VALUES = ("mean", "sd", "kl", "mmd")


# --- the exact answers ---


def exact_gaussian(objective: Objective, noise: Noise | None, start: tuple[float, float]) -> tuple[float, float]:
    """(mean, sd) of the Gaussian at which the objective has its minimum, with the mixture's density for data."""
    log_p = MIXTURE_1D.log_prob(GRID.points)
    p = log_p.exp() * GRID.h

    if isinstance(objective, PseudoSpherical):
        return exact_optimum(MIXTURE_1D, objective.number, start)
    if isinstance(objective, FEBM):
        f = losses.DIVERGENCES[objective.divergence]

        def divergence(energy: Quadratic, _: Tensor) -> Tensor:
            log_q = exact.log_density(energy, GRID)
            return _bound(log_p - log_q, p, log_q.exp() * GRID.h, f)

        return best_gaussian(divergence, start)
    if isinstance(objective, NoiseContrastive):
        assert noise is not None
        with torch.no_grad():
            log_n = noise.double().density.log_prob(GRID.points)
        f = losses.DIVERGENCES[objective.divergence]

        def contrast(energy: Quadratic, log_z: Tensor) -> Tensor:
            # With a log Z of its own: where no Gaussian fits, the best one need not integrate to 1.
            t = -energy(GRID.points) - log_z - log_n - math.log(objective.ratio)
            return -_bound(t, p, objective.ratio * log_n.exp() * GRID.h, f)

        return best_gaussian(contrast, start)
    if isinstance(objective, DensityPower):
        beta = objective.beta

        def density_power(energy: Quadratic, _: Tensor) -> Tensor:
            log_q = exact.log_density(energy, GRID)
            whole = ((1 + beta) * log_q).exp() * GRID.h
            return whole.sum() / (1 + beta) - (p * (beta * log_q).exp()).sum() / beta

        return best_gaussian(density_power, start)
    return _by_moments(objective, start)


def _by_moments(objective: Objective, start: tuple[float, float]) -> tuple[float, float]:
    """With a Gaussian these fit the moments, as likelihood does: of noisy data, or too broad, if only samples weigh."""
    mean, sd = exact_optimum(MIXTURE_1D, 0.0, start)
    if isinstance(objective, ScoreMatching | SlicedScoreMatching):
        return mean, sd
    if isinstance(objective, DenoisingScoreMatching):
        return mean, math.hypot(sd, objective.sigma)
    if isinstance(objective, WeightedNegatives):
        return mean, sd * math.sqrt(1 + objective.gamma)
    raise UserError(f"the exact answer of {type(objective).__name__} is not known; add it to exact_gaussian")


def _bound(log_ratio: Tensor, p: Tensor, q: Tensor, f: losses.Divergence) -> Tensor:
    """E_p[f'(u)] - E_q[f*(f'(u))], with the probabilities of all cells."""
    return (p * f.slope(log_ratio)).sum() - (q * f.conjugate(log_ratio)).sum()


# --- the runs ---


def _runs(quick: bool, seeds: int) -> list[Settings]:
    size = {**(QUICK if quick else FULL), "schedule": "constant", "restart": 0.0}
    configs = {name: gaussian_config(o, {**size, "seed": 0}).to_dict()["objective"] for name, o in RIVALS_1D.items()}
    cost = {"rounds": 2 if quick else ROUNDS, "block": 1 if quick else BLOCK, "objectives": configs, **size}
    return [cost] + [
        {"objective": name, "settings": configs[name], "seed": seed, **size}
        for seed in range(seeds)
        for name in RIVALS_1D
    ]


def _compute(settings: Settings) -> Result:
    seed = settings.get("seed", 0)
    x = MIXTURE_1D.sample(settings["n_data"], generator(seed, StudyStream.DATA_1D))
    start = (float(x.mean()), float(x.std()))
    if "rounds" in settings:
        configs = {name: gaussian_config(o, {**settings, "seed": 0}) for name, o in RIVALS_1D.items()}
        times = {"rounds": settings["rounds"], "block": settings["block"]}
        return {"costs": relative_costs(configs, x, energy=lambda: Quadratic(*start), **times)}
    objective = RIVALS_1D[settings["objective"]]
    aux = init_state(x, gaussian_config(objective, settings), Quadratic(*start), torch.device("cpu")).aux
    exact_mean, exact_sd = exact_gaussian(objective, aux if isinstance(aux, Noise) else None, start)
    result = {f"exact_{name}": value for name, value in _measured(exact_mean, exact_sd).items()}
    try:
        mean, sd = train_gaussian(x, objective, start, settings)
    except Diverged as error:
        return {**result, **dict.fromkeys(VALUES), "error": str(error)}
    return {**result, **_measured(mean, sd)}


@torch.no_grad()
def _measured(mean: float, sd: float) -> Result:
    """Where the Gaussian is, and how far from the data, exactly; MMD^2 in units of 1e-4."""
    log_p, log_q = MIXTURE_1D.log_prob(NEAR.points), exact.log_density(Quadratic(mean, sd).double(), NEAR)
    kl, mmd = exact.kl(log_p, log_q, NEAR), 1e4 * exact.mmd_between(log_p, log_q, NEAR)
    return {"mean": mean, "sd": sd, "kl": float(kl), "mmd": float(mmd)}


def failed(result: Result) -> bool:
    """Whether a run diverged, or ended far from the exact optimum of its own objective."""
    return result["mean"] is None or any(abs(result[name] - result[f"exact_{name}"]) > FAR for name in ("mean", "sd"))


# --- the page ---


def _rows(done: Sequence[Run]) -> list[Row]:
    runs, cost = split(done)
    rows = list(cost_rows(cost.result["costs"]))
    names = dict.fromkeys(d.settings["objective"] for d in runs)
    for name in names:
        group = [d for d in runs if d.settings["objective"] == name]
        rows.append(Row(name, "failures", float(sum(failed(d.result) for d in group)), n=len(group)))
    for value, column in zip(VALUES, ("mean", "sd", "KL(p || q)", "MMD^2 x 1e4"), strict=True):
        rows += mean_rows(runs, lambda s, c=column: (s["objective"], c), value, exact=f"exact_{value}")  # type: ignore[misc]
    return sorted(rows, key=lambda row: list(names).index(row.row))


def _notes(done: Sequence[Run]) -> str:
    runs, cost = split(done)
    size = runs[0].settings
    return f"""
One Gaussian fitted to 0.33 N(-1, 0.0625) + 0.67 N(2, 2) (variances), which it cannot be: objectives disagree, and each
is right by its own lights. *exact* is the minimum of the objective itself by quadrature (that of `nce` depends on its
noise, a mixture fitted to the data; of several seeds the first is shown), *measured* what training reaches from
{size["n_data"]:,} samples in {size["steps"]:,} updates on {size["batch_size"]:,} rows, with one trainer and sampler for
all. KL(p || q) and MMD^2 are those of the Gaussian to the data's density, exact. A failure is a run that diverged or
ended more than {FAR:g} from its own optimum in mean or deviation. The critics of f-EBM are networks, the energy has two
parameters: hence their cost. *time of an update* is measured in turns in one process, medians over
{cost.settings["rounds"]} blocks.
"""


def _draw(done: Sequence[Run], out: Path) -> list[Path]:
    from studies.paper import figures

    runs, _ = split(done)
    first = {
        d.settings["objective"]: d.result for d in runs if d.settings["seed"] == 0 and d.result["mean"] is not None
    }
    curves = {name: (r["exact_mean"], r["exact_sd"], r["mean"], r["sd"]) for name, r in first.items()}
    return [figures.gaussians(MIXTURE_1D, curves, out / "objectives-1d.png")]


OBJECTIVES_1D = Experiment(
    "objectives-1d",
    "One Gaussian fitted to a mixture, by every objective (beyond the paper)",
    "10 minutes",
    5,
    _runs,
    _compute,
    _rows,
    _draw,
    _notes,
)
