"""What to blame for the error of a 2-D model: training with its sampled parts replaced by exact ones.

Three stages, each with one source of error more than the one before: both phases by quadrature, data in
the positive phase, and the recipe as it is, with chains in the negative phase. All of them go through the
same training loop; only the objective that is put into it differs.
"""

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import torch
from torch import Tensor, nn

from pscd import exact, losses
from pscd.config import TrainConfig
from pscd.coordinates import Coordinates
from pscd.data import TOYS_2D
from pscd.errors import Diverged
from pscd.model import Model
from pscd.objectives import Objective, PseudoSpherical
from pscd.rng import Stream, generator
from pscd.training.fit import fit
from pscd.types import Energy
from studies.engine import Experiment, Result, Row, Run, Settings, mean_rows, number, objective_label
from studies.engine.markdown import markdown_table
from studies.paper.toys_2d import MANY, toy_settings

STAGES = ("exact", "data", "sampled")
GAMMAS = (0.0, 1.0)
STEPS = 1500  # updates of every stage, so that a run with quadrature takes about a minute
N_TRAIN = 96  # cells per axis of the grid that the training integrates on
SETS = ("cosine", "moon", "rings")  # a density with edges, a thin one, and one with separate modes
QUICK_SETS = ("moon",)
MEASURES = {"KL": "kl", "gamma-1 divergence": "gamma_1", "MMD x 1e4": "mmd"}
RULES = ("KL", "gamma-1 divergence")  # what the objectives of `GAMMAS` minimise


@dataclass(frozen=True, eq=False)
class Quadrature(Objective):
    """The objective of a rule with exact expectations: the negative gamma-score, differentiable.

    L = -1/gamma log E_p[exp(-gamma E)] + log ||exp(-E)||_(gamma+1), and E_p[E] + log Z at gamma = 0. Grids lie in the
    coordinates of the data, and the network sees standardised ones: the Jacobian is a constant factor of the norm,
    which
    does not enter the gradient.

    Updates take the grids in turn. A network that sees the points of one grid alone learns to be right there and
    wrong
    between them; interleaved grids prevent that at the price of one.
    """

    rule: PseudoSpherical
    grids: tuple[exact.Grid, ...]
    log_p: tuple[Tensor, ...] | None  # on each grid
    shift: Tensor
    scale: Tensor
    steps: int
    turn: int = 0

    needs_negatives = False

    def at(self, progress: float) -> Self:
        """Gamma warms up as that of the rule does, and it is the next grid's turn."""
        return replace(self, rule=self.rule.at(progress), turn=round(progress * self.steps) % len(self.grids))

    def __call__(
        self, energy: Energy, aux: nn.Module | None, x_pos: Tensor, x_neg: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss; the batch `x_pos` is in the network's coordinates, and not looked at if p is known."""
        gamma, grid = self.rule.number, self.grids[self.turn]

        def in_data_coordinates(x: Tensor) -> Tensor:
            return energy(((x - self.shift) / self.scale).float())

        if self.log_p is not None:
            loss = -exact.gamma_score(self.log_p[self.turn], in_data_coordinates, gamma, grid)
        else:
            e = exact.evaluate(in_data_coordinates, grid.points)
            log_norm = exact.log_integral(-(gamma + 1) * e, grid) / (gamma + 1)
            loss = losses.free_energy(energy(x_pos).double(), gamma) + log_norm
        return loss, {"gamma": torch.tensor(gamma)}


def interleaved_grids(box: exact.Box, n: int) -> tuple[exact.Grid, ...]:
    """Grids of `n` cells per axis, shifted by half a cell: their points together are those of one with `2 n`."""
    fine = exact.grid(box, 2 * n)
    return tuple(
        exact.Grid(
            box,
            tuple(edges[::2] for edges in fine.edges),
            tuple(axis[start::2] for axis, start in zip(fine.axes, starts, strict=True)),
            tuple(2 * width[start::2] for width, start in zip(fine.widths, starts, strict=True)),
        )
        for starts in itertools.product((0, 1), repeat=len(fine.axes))
    )


def compute(settings: Settings) -> Result:
    """Train one stage on one set and measure it; nothing to measure if it diverged."""
    config, name, stage = TrainConfig.from_dict(settings["config"]), settings["set"], settings["stage"]
    x = TOYS_2D[name](config.rows.n_data, generator(config.seed, Stream.TOY_TRAIN))
    # An untrained model reaches beyond the box; what it has there fades with the Gaussian base of the network.
    grids = interleaved_grids(replace(TOYS_2D[name].quadrature_box, cut=math.inf), settings["n_train"])
    log_p = tuple(_log_density(name, grid) for grid in grids)
    if stage != "sampled":
        assert isinstance(config.objective, PseudoSpherical)
        known = log_p if stage == "exact" else None
        seen = Coordinates.standard(x)
        objective = Quadrature(config.objective, grids, known, seen.shift, seen.scale, config.updates)
        config = replace(config, objective=objective)
    try:
        model = fit(x, config=config)
    except Diverged as error:
        return {**dict.fromkeys((*MEASURES.values(), "kl_train")), "error": str(error)}
    return {**measure(model, name, settings["n_grid"]), "kl_train": _kl_on(grids, log_p, model)}


def _log_density(name: str, grid: exact.Grid) -> Tensor:
    log_density = TOYS_2D[name].log_density
    assert log_density is not None, name
    return log_density(grid.points)


@torch.no_grad()
def measure(model: Model, name: str, n_grid: int) -> Result:
    """KL, the gamma-1 divergence and MMD^2 x 1e4 between data and model, by quadrature: without noise."""
    grid = exact.grid(replace(TOYS_2D[name].quadrature_box, cut=0.01), n_grid)
    log_p, log_q = _log_density(name, grid), exact.log_density(model, grid)
    return {
        "kl": float(exact.kl(log_p, log_q, grid)),
        "gamma_1": float(exact.gamma_divergence(log_p, model, 1.0, grid)),
        "mmd": 1e4 * float(exact.mmd_between(log_p, log_q, grid)),
    }


@torch.no_grad()
def _kl_on(grids: Sequence[exact.Grid], log_p: Sequence[Tensor], model: Model) -> float:
    """KL(p || q) as training sees it, on its own grids."""
    return statistics.mean(
        float(exact.gamma_divergence(values, model, 0.0, grid)) for grid, values in zip(grids, log_p, strict=True)
    )


def _runs(quick: bool, seeds: int) -> list[Settings]:
    changes = None if quick else {"updates": STEPS}
    return [
        {
            "stage": stage,
            "n_train": 64 if quick else N_TRAIN,
            **toy_settings(name, MANY, gamma, seed, quick=quick, changes=changes),
        }
        for gamma in GAMMAS
        for stage in STAGES
        for name in (QUICK_SETS if quick else SETS)
        for seed in range(seeds)
    ]


def _rows(done: Sequence[Run]) -> list[Row]:
    rows: list[Row] = []
    for measured, value in MEASURES.items():
        rows += mean_rows(
            done,
            lambda s, measured=measured: (s["set"], f"{objective_label(s['gamma'])}, {s['stage']}: {measured}"),  # type: ignore[misc]
            value,
        )
    return sorted(rows, key=lambda row: list(TOYS_2D).index(row.row))


def _values(done: Sequence[Run], gamma: float, stage: str, value: str) -> dict[str, float]:
    """For each set the mean over its seeds, without runs that diverged."""
    groups: dict[str, list[float]] = {}
    for d in done:
        if (d.settings["gamma"], d.settings["stage"]) == (gamma, stage) and d.result[value] is not None:
            groups.setdefault(d.settings["set"], []).append(d.result[value])
    return {name: statistics.mean(values) for name, values in groups.items()}


def _mean_table(done: Sequence[Run]) -> str:
    """A table of means over the sets: one line for each objective and scoring rule, one column for each stage."""
    rows = []
    # A set without a number somewhere is left out everywhere: the means are to be compared.
    common = set.intersection(*(set(_values(done, gamma, stage, "kl")) for gamma in GAMMAS for stage in STAGES))
    for measured in RULES:
        for gamma in GAMMAS:
            sets = [_values(done, gamma, stage, MEASURES[measured]) for stage in STAGES]
            means = [number(statistics.mean(s[name] for name in common) if common else None) for s in sets]
            rows.append([f"{objective_label(gamma)}: {measured}", *means])
    return markdown_table(["mean over the sets", *STAGES], rows)


def _rule_line(done: Sequence[Run], stage: str) -> str:
    """On how many sets each objective is the better one under its own scoring rule."""
    counts = []
    for gamma, other, measured in zip(GAMMAS, reversed(GAMMAS), RULES, strict=True):
        ours, theirs = (_values(done, g, stage, MEASURES[measured]) for g in (gamma, other))
        common = ours.keys() & theirs.keys()
        better = sum(ours[name] < theirs[name] for name in common)
        counts.append(f"{objective_label(gamma)} has the lower {measured} on {better} of {len(common)} sets")
    return f"- *{stage}*: {', and '.join(counts)}."


def _grid_error(done: Sequence[Run], stage: str) -> float | None:
    """The largest change of KL from the grids of training to the finer one of measuring."""
    results = [d.result for d in done if d.settings["stage"] == stage and d.result["kl"] is not None]
    return max((abs(result["kl"] - result["kl_train"]) for result in results), default=None)


def _notes(done: Sequence[Run]) -> str:
    first = done[0].settings
    n_train, n_grid, steps = first["n_train"], first["n_grid"], first["config"]["updates"]
    errors = ", ".join(f"{number(_grid_error(done, stage))} (*{stage}*)" for stage in STAGES)
    lost = sum(d.result["kl"] is None for d in done)
    parts = [
        f"""
Three ways to train the default network with the default optimiser, schedule and averaging, {steps} updates each
(the default is {TrainConfig().updates}). *exact*: both phases by quadrature with the known density of the data; no
sampling, and no data but for the standardisation. What is left is network, optimiser and objective. *data*: the
positive phase from batches of {MANY:,} drawn points, the same batches as in the next stage; the rise from *exact*
is to blame on the noise of data. *sampled*: the recipe itself, with chains; the rise from *data* is to blame on the
sampler. A difference means something only where it is larger than that between two seeds.
""",
        _mean_table(done),
        """
All numbers are by quadrature, between densities: KL(p || q), the gamma-divergence for gamma 1, and MMD^2 x 1e4 with
the kernel exp(-|x - y|^2 / 4). CD minimises the first of them and gamma 1 the second, so that each is the better one
under its own rule where nothing else is to blame:
""",
        *(_rule_line(done, stage) for stage in STAGES),
        f"""
The stages with quadrature take four grids of {n_train} x {n_train} cells in turn, shifted by half a cell, which
together are one of {2 * n_train} x {2 * n_train}. KL of the finished models on these differs from that on the
{n_grid} x {n_grid} cells of the measurement by at most {errors}.
Models of the stage *sampled* have never seen those grids.

Of {len(done)} runs, {lost} diverged.
""",
    ]
    return "\n".join(parts)


def _draw(done: Sequence[Run], out: Path) -> list[Path]:
    from studies.paper import figures

    rows = [replace(row, column=row.column.removesuffix(": KL")) for row in _rows(done) if row.column.endswith(": KL")]
    return [figures.bars(rows, out / "blame-2d.png", quantity="KL(p || q)", floor=1e-3)]


BLAME_2D = Experiment(
    "blame-2d",
    "Is it the objective, the sampler or the optimiser? 2-D training with parts replaced by exact ones "
    "(beyond the paper)",
    "25 minutes",
    1,
    _runs,
    compute,
    _rows,
    _draw,
    _notes,
)
