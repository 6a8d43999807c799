"""Every objective on the six 2-D sets, through one trainer, network and sampler, with what an update costs."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from pscd.config import RowSettings, TrainConfig
from pscd.data import TOYS_2D
from pscd.objectives import FEBM, OBJECTIVES, Objective, PseudoSpherical
from pscd.rng import Stream, generator
from pscd.training.loop import train_step
from pscd.training.state import init_state
from studies.engine import Experiment, Result, Row, Run, Settings, mean_rows, number
from studies.engine.markdown import markdown_table
from studies.paper import toys_2d
from studies.paper.toys_2d import EMPTY, FAILED, failed, histogram, windows

REFERENCE = "cd"
DIVERGENCES = ("kl", "reverse-kl", "hellinger", "js")  # those that the authors of f-EBM measured
RIVALS: dict[str, Objective] = {
    REFERENCE: OBJECTIVES[REFERENCE],
    "ps-cd, gamma 1": PseudoSpherical(gamma=1.0),
    **{f"f-ebm, {name}": FEBM(divergence=name) for name in DIVERGENCES},
    **{name: OBJECTIVES[name] for name in ("nce", "sm", "dsm", "ssm", "beta", "negatives-only")},
}
STEPS = 1000
N_GRID = 256  # cells per axis: log Z of a model after so few updates changes by less than 1e-5 with twice as many
N_FRESH = 5000
ROUNDS, BLOCK = 15, 10  # of the measurement of time, and updates in each
SHOWN = {"samples": "mmd", "density": "mmd_density", "exact": "mmd_exact"}


# --- what an update costs ---


def relative_costs(
    configs: dict[str, TrainConfig],
    x: Tensor,
    *,
    rounds: int = ROUNDS,
    block: int = BLOCK,
    energy: Callable[[], nn.Module] | None = None,
) -> dict[str, list[float]]:
    """How long an update takes, relative to the reference.

    Objectives take turns in short blocks, so that whatever else the machine does affects all of them alike.
    """
    device = torch.device("cpu")
    states = {name: init_state(x, c, energy() if energy else None, device) for name, c in configs.items()}
    x = states[REFERENCE].coordinates.forward(x)

    def seconds(name: str) -> float:
        start = time.process_time()  # of one thread: what others do on the machine hardly counts
        for _ in range(block):
            train_step(states[name], x, configs[name])
        return time.process_time() - start

    for name in configs:
        seconds(name)
    measured = [{name: seconds(name) for name in configs} for _ in range(rounds)]
    ratios = {name: sorted(r[name] / r[REFERENCE] for r in measured) for name in configs}
    return ratios | {REFERENCE: sorted(r[REFERENCE] / block for r in measured)}


def cost_rows(costs: dict[str, list[float]]) -> list[Row]:
    """Median of the rounds, and half the width of the middle half as their spread."""
    rows = []
    for name, values in costs.items():
        if name == REFERENCE:
            rows.append(Row(name, "time of an update, relative to cd", 1.0, n=len(values)))
            continue
        spread = (values[-1 - len(values) // 4] - values[len(values) // 4]) / 2
        rows.append(Row(name, "time of an update, relative to cd", statistics.median(values), spread, len(values)))
    return rows


def failure_rows(done: Sequence[Run]) -> list[Row]:
    """How many runs of each objective failed."""
    names = dict.fromkeys(d.settings["objective"] for d in done)
    groups = {name: [d for d in done if d.settings["objective"] == name] for name in names}
    return [Row(name, "failures", float(sum(map(failed, group))), n=len(group)) for name, group in groups.items()]


def split(done: Sequence[Run]) -> tuple[list[Run], Run]:
    """The runs, and the measurement of time."""
    (cost,) = [d for d in done if "rounds" in d.settings]
    return [d for d in done if "rounds" not in d.settings], cost


# --- objectives-2d ---


def _runs(quick: bool, seeds: int) -> list[Settings]:
    def run(label: str, name: str, seed: int) -> Settings:
        config = TrainConfig(objective=RIVALS[label], seed=seed, updates=STEPS, rows=RowSettings(data=name))
        settings = toys_2d.run_settings(config, quick=quick, n_grid=N_GRID, n_fresh=N_FRESH)
        return {"objective": label, **settings}

    moon = TrainConfig(updates=STEPS, rows=RowSettings(data="moon")).changed(
        {**toys_2d.QUICK, "rows.n_data": 2000} if quick else {}
    )
    configs = {label: replace(moon, objective=objective).to_dict() for label, objective in RIVALS.items()}
    cost: Settings = {"rounds": 2 if quick else ROUNDS, "block": 1 if quick else BLOCK, "configs": configs}
    sets = ("moon",) if quick else tuple(TOYS_2D)
    return [cost] + [run(label, name, seed) for seed in range(seeds) for label in RIVALS for name in sets]


def _compute(settings: Settings) -> Result:
    if "rounds" not in settings:
        return toys_2d.compute(settings)
    configs = {name: TrainConfig.from_dict(values) for name, values in settings["configs"].items()}
    x = TOYS_2D["moon"](10_000, generator(0))
    return {"costs": relative_costs(configs, x, rounds=settings["rounds"], block=settings["block"])}


def _rows(done: Sequence[Run]) -> list[Row]:
    runs, cost = split(done)
    rows = [*cost_rows(cost.result["costs"]), *failure_rows(runs)]
    ended = [d for d in runs if d.result["mmd"] is not None]
    columns = {**{f"MMD, {kind}": value for kind, value in SHOWN.items()}, "KL(p || q), exact": "kl"}
    for column, value in columns.items():  # those by the density of the data where it is known
        rows += mean_rows([d for d in ended if value in d.result], _key(column), value)
    order = list(RIVALS)
    return sorted(rows, key=lambda row: order.index(row.row))


def _key(what: str) -> Callable[[Settings], tuple[str, str]]:
    return lambda settings: (settings["objective"], f"{settings['set']}: {what}")


def _notes(done: Sequence[Run]) -> str:
    runs, cost = split(done)
    update = 1e3 * statistics.median(cost.result["costs"][REFERENCE])
    n, usual = runs[0].settings["config"]["updates"], TrainConfig().updates
    return f"""
All objectives with one network, sampler, optimiser and schedule: the library's defaults, but {n:,} updates instead
of {usual:,}, so that the numbers of `cd` and `ps-cd` are not those of [toys-2d](toys-2d.md). Settings of
the objectives are their defaults too, which were chosen on other seeds. MMD^2 x 1e4 with the kernel
exp(-|x - y|^2 / 4): *samples* between {runs[0].settings["n_fresh"]:,} fresh data points and as many samples of the
model (U-statistic), *density* the same points against the model's density by quadrature, *exact* between both
densities, without noise; *data against data* is what noise alone gives in the first. A failure is a run that
diverged, whose model left the box of the quadrature, or that ended above {FAILED:g} (*density*); means are over the
runs that have a number. *time*: an update relative to `cd`, measured in turns in one process, medians over
{cost.settings["rounds"]} blocks; `cd` took {update:.1f} ms.

MMD^2 x 1e4, samples / density / exact:

{_table(runs, _means, floor=True)}

KL(p || q), exact, with time and failures:

{_table(runs, _mean_kl, cost)}

All of it:
"""


def _table(
    runs: Sequence[Run],
    show: Callable[[list[Result]], str],
    cost: Run | None = None,
    *,
    floor: bool = False,
) -> str:
    """One line for each objective, one column for each set."""
    sets = list(dict.fromkeys(d.settings["set"] for d in runs))
    times = {} if cost is None else {row.row: row.measured for row in cost_rows(cost.result["costs"])}
    rows = []
    for failures in failure_rows(runs):
        mine = [d for d in runs if d.settings["objective"] == failures.row and d.result["mmd"] is not None]
        line = [failures.row, *(show([d.result for d in mine if d.settings["set"] == name]) for name in sets)]
        if cost is not None:
            line += [f"{times[failures.row]:.2f}", f"{failures.measured:g} of {failures.n}"]
        rows.append(line)
    if floor:
        rows.append(["data against data", *(_floor(runs, name) for name in sets)])
    return markdown_table(["objective", *sets, *(["time", "failures"] if cost is not None else [])], rows)


def _floor(runs: Sequence[Run], name: str) -> str:
    """MMD of data against data: the same points for all objectives, so that one of them tells it."""
    of_one = [d for d in runs if d.settings["objective"] == REFERENCE and d.settings["set"] == name]
    values = [d.result["mmd_data"] for d in of_one if d.result["mmd"] is not None]
    return f"{statistics.mean(values):.2f}" if values else ""


def _means(results: list[Result]) -> str:
    if not results:
        return "none"
    known = [key for key in SHOWN.values() if key in results[0]]
    return " / ".join(f"{statistics.mean(r[key] for r in results):.2f}" for key in known)


def _mean_kl(results: list[Result]) -> str:
    return number(statistics.mean(r["kl"] for r in results)) if results and "kl" in results[0] else "none"


def _draw(done: Sequence[Run], out: Path) -> list[Path]:
    from studies.paper import figures

    runs, _ = split(done)
    sets = list(dict.fromkeys(d.settings["set"] for d in runs))
    first = {(d.settings["objective"], d.settings["set"]): d for d in runs if d.settings["seed"] == 0}
    models = {
        label: {name: first[label, name].result.get("histogram", EMPTY) for name in sets}
        for label in dict.fromkeys(label for label, _ in first)
    }
    data = {
        name: histogram(TOYS_2D[name](runs[0].settings["n_fresh"], generator(0, Stream.FRESH_REAL)), name)
        for name in sets
    }
    return [figures.histograms({"data": data, **models}, windows(sets), out / "objectives-2d.png")]


OBJECTIVES_2D = Experiment(
    "objectives-2d",
    "All objectives on the six 2-D sets (beyond the paper)",
    "90 minutes",
    5,
    _runs,
    _compute,
    _rows,
    _draw,
    _notes,
)
