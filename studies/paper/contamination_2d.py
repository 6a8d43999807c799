"""contamination-2d: six 2-D sets with junk in them; how far from the clean density each way of training ends."""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from pscd import exact
from pscd.config import TrainConfig
from pscd.data import TOYS_2D, contaminate
from pscd.errors import Diverged, UserError
from pscd.metrics import auroc
from pscd.objectives import PseudoSpherical, Trimmed
from pscd.rng import Stream, generator
from pscd.training.fit import fit
from studies.baselines.tables import FlowDensity
from studies.engine import Experiment, Result, Row, Run, Settings, mean_rows, number
from studies.engine.markdown import markdown_table
from studies.engine.streams import StudyStream
from studies.presets import PRESETS

N_DATA, STEPS = 20_000, 2_000
N_GRID, N_FRESH = 512, 5_000
HALF_WIDTH = 32.0  # of the box of the quadrature: a Gaussian of deviation 5 has all its mass there
CLUSTER = {"moon": (6.0, 6.0), "mog": (0.0, 6.0)}  # sets with a far cluster, and where it is
CLUSTER_SD = 0.3
KINDS = ("uniform", "gaussian", "cluster")
RATIOS, LATER_RATIOS = (0.1, 0.2), (0.05, 0.3)
METHODS, FLOWS = ("CD", "auto", "trim", "gamma 1"), ("flow", "trimmed flow")
QUICK = {"updates": 40, "energy.width": 16, "energy.depth": 2, "chains.jump_components": 4, "chains.buffer_size": 500}
MMD_LIMIT, KL_FACTOR, KL_EXTRA = 2.0, 1.5, 0.01  # what is aimed at: MMD^2 x 1e4, and KL over that of clean training
LOST = "-"


def junk(kind: str, name: str) -> Callable[[int, torch.Generator | None], Tensor]:
    """A function that draws rows of junk."""
    if kind == "uniform":
        return lambda n, g: 12 * torch.rand(n, 2, generator=g) - 6
    if kind == "gaussian":
        return lambda n, g: 5 * torch.randn(n, 2, generator=g)
    return lambda n, g: torch.tensor(CLUSTER[name]) + CLUSTER_SD * torch.randn(n, 2, generator=g)


def configuration(method: str, ratio: float, seed: int, *, quick: bool) -> TrainConfig:
    """How a method trains; trimming is told the true share of junk, which nobody else is."""
    config = {
        "CD": TrainConfig(objective=PseudoSpherical(gamma=0.0)),
        "trim": TrainConfig(objective=Trimmed(alpha=ratio)),
        "auto": PRESETS["plane"],
        "gamma 1": PRESETS["plane"].changed({"objective.gamma": 1.0}),
    }[method]
    return config.changed({"updates": STEPS, "seed": seed, "rows.n_data": N_DATA}).changed(QUICK if quick else {})


def _runs(quick: bool, seeds: int) -> list[Settings]:
    """What matters most comes first, so that a run that is stopped has seen it."""
    runs: list[Settings] = []
    for seed in range(seeds):
        for method, kind, ratio, name in _plan(quick, seed):
            size = {"n_data": 600, "n_grid": 96, "n_fresh": 200} if quick else {"n_data": N_DATA, "n_grid": N_GRID}
            run = {
                "set": name,
                "kind": kind,
                "ratio": ratio,
                "method": method,
                "seed": seed,
                "n_fresh": N_FRESH,
                **size,
            }
            if method in FLOWS:
                run |= {"alpha": ratio if method == "trimmed flow" else 0.0, "steps": 40 if quick else STEPS}
            else:
                run |= {"config": configuration(method, ratio, seed, quick=quick).to_dict()}
            runs.append(run)
    return runs


def _plan(quick: bool, seed: int) -> Iterator[tuple[str, str, float, str]]:
    if quick:
        yield from (("CD", "none", 0.0, "mog"), ("CD", "uniform", 0.1, "mog"), ("auto", "none", 0.0, "mog"))
        yield from (("auto", "uniform", 0.1, "mog"), ("trim", "cluster", 0.1, "mog"))
        return

    def with_junk(methods: Sequence[str], ratios: Sequence[float]) -> Iterator[tuple[str, str, float, str]]:
        for ratio in ratios:
            for kind in KINDS:
                for name in TOYS_2D if kind != "cluster" else CLUSTER:
                    yield from ((method, kind, ratio, name) for method in methods)

    def clean(methods: Sequence[str]) -> Iterator[tuple[str, str, float, str]]:
        # Nothing to trim is CD, and a trimmed flow a flow.
        yield from ((method, "none", 0.0, name) for name in TOYS_2D for method in methods)

    yield from clean(("CD", "auto"))
    yield from with_junk(METHODS[:3], RATIOS)
    yield from clean(METHODS[3:])
    yield from with_junk(METHODS[3:], RATIOS)
    yield from with_junk(METHODS, LATER_RATIOS)
    if seed == 0:
        yield from clean(FLOWS[:1])
        yield from with_junk(FLOWS, (0.05, 0.1, 0.2, 0.3))


def _compute(settings: Settings) -> Result:
    name, kind, ratio, seed = (settings[key] for key in ("set", "kind", "ratio", "seed"))
    clean = TOYS_2D[name](settings["n_data"], generator(seed, Stream.TOY_TRAIN))
    noise = junk("uniform" if kind == "none" else kind, name)
    x = contaminate(clean, ratio, noise, generator(seed, StudyStream.CONTAMINATION_2D)).x
    notes: tuple[str, ...] = ()
    try:
        if settings["method"] in FLOWS:
            flow = FlowDensity(settings["alpha"], settings["steps"]).fit(x, seed=seed)
            energy: Callable[[Tensor], Tensor] = lambda rows: -flow.log_prob(rows)  # noqa: E731
        else:
            model = fit(x, config=TrainConfig.from_dict(settings["config"]))
            energy, notes = model, model.notes
        found = measure(energy, settings)
    except (Diverged, UserError) as error:
        return {"kl": None, "mmd": None, "auroc": None, "ignored": None, "error": str(error)}
    return {
        **found,
        "ignored": share_ignored(notes),
        "named": any("a group of" in n for n in notes),
        "notes": list(notes),
    }


@torch.no_grad()
def measure(energy: Callable[[Tensor], Tensor], settings: Settings) -> Result:
    """KL(clean || q) in nats, MMD^2 x 1e4 between the densities, both by quadrature, and AUROC of fresh junk."""
    name, seed = settings["set"], settings["seed"]
    toy = TOYS_2D[name]
    assert toy.log_density is not None
    grid = exact.grid(wide_box(toy.quadrature_box), settings["n_grid"])
    log_p, log_q = toy.log_density(grid.points), exact.log_density(energy, grid)
    inside = toy(settings["n_fresh"], generator(seed, StudyStream.FRESH_CLEAN))
    kind = "uniform" if settings["kind"] == "none" else settings["kind"]
    outside = junk(kind, name)(settings["n_fresh"], generator(seed, StudyStream.FRESH_OUTLIERS))
    return {
        "kl": float(exact.kl(log_p, log_q, grid)),
        "mmd": 1e4 * float(exact.mmd_between(log_p, log_q, grid)),
        "auroc": auroc(*(exact.evaluate(energy, rows) for rows in (inside, outside))),
    }


def wide_box(box: exact.Box) -> exact.Box:
    """A box around the same place that holds all kinds of junk too."""
    middle = [(low + high) / 2 for low, high in zip(box.low, box.high, strict=True)]
    low, high = (tuple(m + side * HALF_WIDTH for m in middle) for side in (-1, 1))
    return replace(box, low=low, high=high, cut=0.01)


def share_ignored(notes: Sequence[str]) -> float:
    """The share of the rows that a model's notes say are ignored."""
    found = re.search(r"([\d.]+)% are ignored", " ".join(notes))
    return float(found[1]) / 100 if found else 0.0


def limit(done: Sequence[Run], settings: Settings) -> float | None:
    """The KL that is aimed at: one and a half times that of CD on clean data of the same seed, plus .01."""
    for d in done:
        s = d.settings
        if (s["method"], s["ratio"], s["set"], s["seed"]) == ("CD", 0.0, settings["set"], settings["seed"]):
            return None if d.result["kl"] is None else KL_FACTOR * d.result["kl"] + KL_EXTRA
    return None


def _methods(done: Sequence[Run]) -> list[str]:
    there = {d.settings["method"] for d in done}
    return [m for m in (*METHODS, *FLOWS) if m in there]


def _label(settings: Settings) -> str:
    return (
        f"{settings['set']}, {settings['kind']} {settings['ratio']:g}"
        if settings["ratio"]
        else f"{settings['set']}, clean"
    )


def _rows(done: Sequence[Run]) -> list[Row]:
    rows: list[Row] = []
    for value in ("kl", "mmd", "auroc", "ignored"):
        kept = [d for d in done if value != "ignored" or d.settings["method"] in ("auto", "gamma 1")]
        rows += mean_rows(kept, lambda s, v=value: (_label(s), f"{s['method']}: {NAMES[v]}"), value)  # type: ignore[misc]
    order = {name: i for i, name in enumerate(TOYS_2D)}
    return sorted(rows, key=lambda r: order[r.row.split(",")[0]])


NAMES = {"kl": "KL(clean || q)", "mmd": "MMD x 1e4", "auroc": "AUROC of junk", "ignored": "share of rows ignored"}


def summary(done: Sequence[Run]) -> str:
    """For each kind and ratio: per method the mean over the sets, the worst, and how many runs meet the targets."""
    head = ["junk", "method", "runs", "KL, mean", "KL, worst", "MMD, mean", "MMD, worst", "AUROC, mean", "meet both"]
    groups: dict[tuple[float, str], list[Run]] = {}
    for d in done:
        groups.setdefault((d.settings["ratio"], d.settings["kind"]), []).append(d)
    lines = []
    for (ratio, kind), group in sorted(groups.items(), key=lambda item: (KINDS_ORDER[item[0][1]], item[0][0])):
        for method in _methods(group):
            mine = [d for d in group if d.settings["method"] == method]
            good = [d for d in mine if d.result["kl"] is not None]
            line = [f"{kind} {ratio:g}" if ratio else "none", method, str(len(mine))]
            for value in ("kl", "mmd"):
                line += [_of(good, value, lambda v: sum(v) / len(v)), _of(good, value, max)]
            line += [
                _of(good, "auroc", lambda v: sum(v) / len(v)),
                f"{sum(meets(done, d) for d in mine)} of {len(mine)}",
            ]
            lines.append(line)
    return markdown_table(head, lines)


KINDS_ORDER = {"none": 0, **{kind: i + 1 for i, kind in enumerate(KINDS)}}


def _of(done: Sequence[Run], value: str, reduce: Callable[[list[float]], float]) -> str:
    return number(reduce([d.result[value] for d in done])) if done else LOST


def meets(done: Sequence[Run], run: Run) -> bool:
    """Whether a run meets both targets, of MMD and of KL."""
    wanted = limit(done, run.settings)
    if run.result["kl"] is None or wanted is None:
        return False
    return bool(run.result["mmd"] <= MMD_LIMIT and run.result["kl"] <= wanted)


def per_set(done: Sequence[Run]) -> str:
    """KL / MMD of every set, junk and method, means over the seeds."""
    methods = _methods(done)
    groups: dict[str, dict[str, list[Run]]] = {}
    for d in done:
        groups.setdefault(_label(d.settings), {}).setdefault(d.settings["method"], []).append(d)
    lines = []
    for label, group in sorted(groups.items()):
        first = next(iter(group.values()))[0]
        wanted = limit(done, first.settings)
        ignored = [d.result["ignored"] for d in group.get("auto", []) if d.result["ignored"] is not None]
        line = [label, number(wanted)]
        for method in methods:
            good = [d for d in group.get(method, []) if d.result["kl"] is not None]
            kl, mmd = (_of(good, v, lambda v: sum(v) / len(v)) for v in ("kl", "mmd"))
            line.append(f"{kl} / {mmd}" if good else LOST if group.get(method) else "")
        lines.append([*line, number(sum(ignored) / len(ignored)) if ignored else ""])
    return markdown_table(["set, junk", "KL aimed at", *methods, "auto ignores"], lines)


def clusters(done: Sequence[Run]) -> str:
    """What becomes of the far cluster: ignored or not, and whether the notes name it."""
    lines = [
        [
            _label(d.settings),
            str(d.settings["seed"]),
            number(d.result["ignored"]),
            "yes" if d.result.get("named") else "no",
        ]
        for d in done
        if d.settings["kind"] == "cluster" and d.settings["method"] == "auto" and d.result["kl"] is not None
    ]
    return markdown_table(["set, cluster", "seed", "share of rows ignored", "named in the notes"], sorted(lines))


def _notes(done: Sequence[Run]) -> str:
    lost = sum(d.result["kl"] is None for d in done)
    seeds = ", ".join(str(s) for s in sorted({d.settings["seed"] for d in done}))
    return f"""
{N_DATA} rows (600 with `--quick`), a share of which is replaced by junk: *uniform* on [-6, 6]^2, *gaussian* with
deviation 5, or a far tight *cluster* (moon and mog only). KL(clean || q) and MMD^2 x 1e4 (kernel exp(-|x - y|^2 / 4))
compare the model's density with that of clean data, both by quadrature. *AUROC*: fresh junk against fresh clean rows;
on clean data the junk is uniform.

*CD*: the library's plain defaults with gamma 0. *auto*: the preset `plane`, which is what `pscd.fit(x)` takes: a robust
mixture weighs the rows, gamma is chosen from them. *gamma 1*: the same with gamma 1 per spread. *trim*: CD without the
rows of highest energy in each batch; it is told the true share of junk, and at 0 it is CD, which is not run again.
*flow*: zuko's neural spline flow by maximum likelihood; *trimmed flow* is told the share too. {STEPS} updates each;
*auto* ends earlier if held-out rows have gained nothing for long.

A run *meets both* targets if MMD^2 x 1e4 is at most {MMD_LIMIT:g} and KL at most {KL_FACTOR:g} times that of CD on
clean data of the same set and seed plus {KL_EXTRA:g}. Of {len(done)} runs {lost} gave up or left the box of the
quadrature. Seeds that were run: {seeds}; {_what_ran(done)}. Means are over the runs that were run, of which methods
may have different ones where the page is not complete.

{summary(done)}

KL / MMD by set (means over seeds):

{per_set(done)}

The far cluster, under *auto*:

{clusters(done)}

All of it:
"""


def _what_ran(done: Sequence[Run]) -> str:
    """Which ratios each method was run with."""
    parts = []
    for method in _methods(done):
        ratios = sorted({d.settings["ratio"] for d in done if d.settings["method"] == method})
        parts.append(f"{method} at {', '.join(f'{r:g}' for r in ratios)}")
    return "ratios: " + "; ".join(parts)


def _draw(done: Sequence[Run], out: Path) -> list[Path]:
    from studies.paper import figures

    panels: dict[str, dict[str, list[tuple[float, float]]]] = {}
    limits: dict[str, float] = {}
    for kind in KINDS:
        for name in TOYS_2D:
            dirty = [d for d in done if (d.settings["set"], d.settings["kind"]) == (name, kind)]
            clean = [d for d in done if (d.settings["set"], d.settings["kind"]) == (name, "none")]
            if not dirty:
                continue
            title = f"{name.replace('_', ' ')}, {kind}"
            lines = {m: _line([*clean, *dirty], m) for m in _methods(dirty)}
            panels[title] = {m: points for m, points in lines.items() if points}
            limits[title] = limit(done, dirty[0].settings) or math.nan
    return [figures.against_ratio(panels, limits, out / "contamination-2d.png", quantity="KL(clean || q)")]


def _line(runs: Sequence[Run], method: str) -> list[tuple[float, float]]:
    """Mean KL over the seeds at each ratio; trimming nothing is CD, and a flow."""
    same = {"trim": "CD", "trimmed flow": "flow"}
    by_ratio: dict[float, list[float]] = {}
    for d in runs:
        s = d.settings
        is_mine = s["method"] == (same.get(method, method) if s["ratio"] == 0 else method)
        if is_mine and d.result["kl"] is not None:
            by_ratio.setdefault(s["ratio"], []).append(d.result["kl"])
    return sorted((ratio, sum(v) / len(v)) for ratio, v in by_ratio.items())


CONTAMINATION_2D = Experiment(
    "contamination-2d",
    "Junk in six 2-D sets: CD, robust training, trimming and flows",
    "4 hours",
    3,
    _runs,
    _compute,
    _rows,
    _draw,
    _notes,
    resumes_from_page=True,
)
