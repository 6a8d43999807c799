"""The paper's 2-D table: MMD of CD and PS-CD on six toys, with one recipe for all of them."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pscd import exact
from pscd.config import RowSettings, TrainConfig
from pscd.data import TOYS_2D
from pscd.errors import Diverged, UserError
from pscd.metrics import mmd
from pscd.model import Model
from pscd.objectives import PseudoSpherical
from pscd.rng import Stream, generator
from pscd.training.fit import fit
from pscd.training.loop import count_modes
from studies.engine import Experiment, Result, Row, Run, Settings, mean_rows, number, objective_label
from studies.engine.markdown import markdown_table
from studies.paper import published

# Cells of the quadrature per axis: doubling them changes log Z of a trained model by less than 1e-5.
N_GRID = 512
N_FRESH = 10_000  # fresh points on each side of the U-statistic
BINS = 60  # of the histograms that the figure shows
EMPTY = [[0] * BINS] * BINS  # of a run that has no model
FEW = 5000  # training points of the second experiment
MANY = 50_000
FAILED = 20.0  # MMD^2 x 1e4 above which a run counts as lost
VALUES = ("mmd", "mmd_density", "kl")  # of the summary; KL where the data density is known

QUICK = {"updates": 20, "energy.width": 16, "energy.depth": 2, "chains.jump_components": 4, "chains.buffer_size": 1000}


def toy_settings(
    name: str, n_data: int, gamma: float, seed: int, *, quick: bool, changes: dict[str, Any] | None = None
) -> Settings:
    """A run with the library's defaults; only data, gamma, seed, and what `changes` says, differ.

    The whole configuration is part of the run, so that a change of a default is a change of its settings.
    """
    config = TrainConfig(objective=PseudoSpherical(gamma=gamma), seed=seed, rows=RowSettings(data=name, n_data=n_data))
    return {"gamma": gamma, **run_settings(config, quick=quick, changes=changes)}


def run_settings(
    config: TrainConfig,
    *,
    quick: bool,
    changes: dict[str, Any] | None = None,
    n_grid: int = N_GRID,
    n_fresh: int = N_FRESH,
) -> Settings:
    """The settings of a run that trains on a toy and measures."""
    config = config.changed({**(QUICK if quick else {}), **(changes or {})})
    size = {"n_grid": 96, "n_fresh": 1000} if quick else {"n_grid": n_grid, "n_fresh": n_fresh}
    return {
        "set": config.rows.data,
        "n_data": config.rows.n_data,
        "seed": config.seed,
        "config": config.to_dict(),
        **size,
    }


def compute(settings: Settings) -> Result:
    """Train on one set and measure against data that training has not seen.

    A run that diverged, or whose model has left the box of the quadrature, has an error instead of numbers.
    """
    config, name, seed = TrainConfig.from_dict(settings["config"]), settings["set"], settings["seed"]
    rows: list[dict[str, float]] = []
    x = TOYS_2D[name](config.rows.n_data, generator(seed, Stream.TOY_TRAIN))
    mode = TOYS_2D[name].mode
    counts = [] if mode is None else [count_modes(mode, x)]
    try:
        model = fit(x, config=config, callbacks=[*counts, lambda at: rows.append(at["stats"])])
        measured = measure(model, name, seed, n_grid=settings["n_grid"], n_fresh=settings["n_fresh"])
    except (Diverged, UserError) as error:
        return {"mmd": None, "mmd_density": None, "error": str(error)}
    result = {**measured, **last(rows)}
    if _is_drawn(settings):
        result["histogram"] = histogram(model.sample(settings["n_fresh"], seed=seed), name)
    return result


def failed(done: Run) -> bool:
    """Whether a run diverged, or ended far from the data."""
    return done.result["mmd_density"] is None or done.result["mmd_density"] > FAILED


@torch.no_grad()
def measure(model: Model, name: str, seed: int, *, n_grid: int, n_fresh: int) -> Result:
    """MMD^2 x 1e4 by samples and by quadrature, and KL where the data density is known."""
    toy = TOYS_2D[name]
    real, other = (toy(n_fresh, generator(seed, stream)) for stream in (6, 7))
    samples = model.sample(n_fresh, seed=seed)
    # A model early in training has tails; what matters here is settled by far less than a hundredth of its mass.
    grid = exact.grid(replace(toy.quadrature_box, cut=0.01), n_grid)
    log_q = exact.log_density(model, grid)
    result: Result = {
        "mmd": 1e4 * mmd(real, samples),
        "mmd_data": 1e4 * mmd(real, other),
        "mmd_density": 1e4 * float(exact.mmd_to_density(real, log_q, grid)),
    }
    if toy.log_density is not None:
        log_p = toy.log_density(grid.points)
        result["mmd_exact"] = 1e4 * float(exact.mmd_between(log_p, log_q, grid))
        result["kl"] = float(exact.kl(log_p, log_q, grid))
        result["stray"] = stray_mass(log_p, log_q, grid)
    return result


def stray_mass(log_p: Tensor, log_q: Tensor, grid: exact.Grid, emptiest: float = 1e-4) -> float:
    """The mass of q where p has next to none: in the emptiest runs, which together hold `emptiest` of p."""
    order = log_p.argsort()
    p, q = (torch.softmax(log_f + grid.h.log(), 0)[order] for log_f in (log_p, log_q))
    return float(q[p.cumsum(0) <= emptiest].sum())


def last(rows: Sequence[dict[str, float]]) -> Result:
    """Means of the diagnostics over the last tenth of the run."""
    tail = rows[-max(1, len(rows) // 10) :]
    names = ("gap", "ess_pos", "ess_neg", "acceptance", "jumps", "mode_error")
    return {name: sum(row[name] for row in tail) / len(tail) for name in names if name in tail[0]}


def histogram(x: Tensor, name: str) -> list[list[int]]:
    """Counts on the window that the figure shows."""
    low, high = TOYS_2D[name].figure_window
    counts, _ = torch.histogramdd(x, bins=[BINS, BINS], range=[low, high, low, high])
    return [[int(c) for c in row] for row in counts.tolist()]


def windows(names: Iterable[str]) -> dict[str, tuple[float, float]]:
    """What the figure shows of each set."""
    return {name: TOYS_2D[name].figure_window for name in names}


def _runs(quick: bool, seeds: int) -> list[Settings]:
    """CD and gamma 1 with every seed; other gammas, and few training points, with two."""
    grid = [(MANY, gamma, seeds) for gamma in (0.0, 1.0)]
    grid += [(MANY, gamma, min(seeds, 2)) for gamma in (-0.5, 0.5, 2.0)]
    grid += [(FEW, gamma, min(seeds, 2)) for gamma in (0.0, 1.0)]
    return [
        toy_settings(name, n, gamma, seed, quick=quick)
        for n, gamma, count in (grid[:2] if quick else grid)
        for name in TOYS_2D
        for seed in range(count)
    ]


def label(settings: Settings) -> str:
    """What a table calls the objective and the size of the data."""
    name = objective_label(settings["gamma"])
    return name if settings["n_data"] == MANY else f"{name}, {settings['n_data']} points"


def _rows(done: Sequence[Run]) -> list[Row]:
    table = {
        (name, f"{objective_label(gamma)}: MMD, {kind}"): value
        for name, columns in published.TOYS_2D.items()
        for gamma, (value, _) in columns.items()
        for kind in ("samples", "density")
    }
    kinds = {"samples": "mmd", "density": "mmd_density"}
    rows: list[Row] = []
    for kind, value in kinds.items():
        rows += mean_rows(done, lambda s, kind=kind: (s["set"], f"{label(s)}: MMD, {kind}"), value, table)  # type: ignore[misc]
    known = [d for d in done if "kl" in d.result]
    rows += mean_rows(known, lambda s: (s["set"], f"{label(s)}: MMD, exact"), "mmd_exact")
    rows += mean_rows(known, lambda s: (s["set"], f"{label(s)}: KL(p || q), exact"), "kl")
    floor = [d for d in known if d.settings["gamma"] == 0 and d.settings["n_data"] == MANY]
    rows += mean_rows(floor, lambda s: (s["set"], "data against data: MMD, samples"), "mmd_data")
    return sorted(rows, key=lambda row: list(TOYS_2D).index(row.row))


def _notes(done: Sequence[Run]) -> str:
    lost = sum(map(failed, done))
    slowest = max(d.result["seconds"] for d in done)
    return f"""
MMD^2 x 1e4 with the kernel exp(-|x - y|^2 / 4). *samples*: U-statistic between 10,000 fresh data points and 10,000
samples of the model's own chains. *density*: the same data against the model's density by quadrature, without
sampling error of the model. *exact*: both densities by quadrature, no noise at all, where the data density is
known. One recipe, the library's defaults, for every set, objective and seed; 50,000 training points unless said.
The published estimator and sample size are not known; the row *data against data* is what noise alone gives.

Of {len(done)} runs, {lost} diverged or ended above {FAILED:g}; the slowest took {slowest:.0f} s on one core.

{_summary(done)}

All of it:
"""


def _summary(done: Sequence[Run]) -> str:
    """The published table again, with ours beside: means over the seeds, MMD^2 x 1e4."""
    head = ["set"]
    for gamma in (0.0, 1.0):
        name = objective_label(gamma)
        head += [f"{name}: published", "samples", "density", "largest", "KL"]
    rows = []
    for name in dict.fromkeys(d.settings["set"] for d in done):
        line = [name]
        for gamma in (0.0, 1.0):
            group = [d.result for d in done if _is(d.settings, name, gamma) and d.result["mmd"] is not None]
            means = {key: sum(r[key] for r in group) / len(group) for key in VALUES if group and key in group[0]}
            worst = max((r["mmd_density"] for r in group), default=None)
            value, _ = published.TOYS_2D[name][gamma] if name in published.TOYS_2D else (None, None)
            shown = [value, means.get("mmd"), means.get("mmd_density"), worst, means.get("kl")]
            line += [number(value) for value in shown]
        rows.append(line)
    return markdown_table(head, rows)


def _is(settings: Settings, name: str, gamma: float) -> bool:
    return bool(settings["set"] == name and settings["gamma"] == gamma and settings["n_data"] == MANY)


def _is_drawn(settings: Settings) -> bool:
    """Whether the figure shows this run."""
    return settings["seed"] == 0 and settings["n_data"] == MANY and settings.get("gamma", 0.0) in (0.0, 1.0)


def _draw(done: Sequence[Run], out: Path) -> list[Path]:
    from studies.paper import figures

    first = [d for d in done if _is_drawn(d.settings)]
    models = {
        name: {d.settings["set"]: d.result.get("histogram", EMPTY) for d in first if d.settings["gamma"] == gamma}
        for name, gamma in (("CD", 0.0), ("PS-CD, gamma 1", 1.0))
    }
    sets = dict.fromkeys(d.settings["set"] for d in first)
    data = {name: histogram(TOYS_2D[name](N_FRESH, generator(0, Stream.FRESH_REAL)), name) for name in sets}
    return [figures.histograms({"data": data, **models}, windows(data), out / "toys-2d.png")]


TOYS_2D_TABLE = Experiment(
    "toys-2d",
    "Six 2-D sets, CD and PS-CD (Table 3 and Figure 2)",
    "60 minutes",
    5,
    _runs,
    compute,
    _rows,
    _draw,
    _notes,
)
