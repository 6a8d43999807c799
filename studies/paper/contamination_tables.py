"""contamination-tables: real tables with junk in them; the log density of clean rows, against other densities."""

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pscd.errors import Diverged, UserError
from pscd.metrics import auroc
from pscd.mixtures import dequantise
from pscd.recipes.configs import for_rows
from pscd.rng import generator
from pscd.training.fit import fit
from studies.baselines.tables import FlowDensity, GaussianMixtureDensity, KernelDensity
from studies.engine import Experiment, Result, Row, Run, Settings, mean_rows, number
from studies.engine.markdown import markdown_table
from studies.engine.streams import StudyStream
from studies.paper.contamination_2d import share_ignored

MOST_ROWS, FEWEST_ROWS = 2_000, 100  # clean rows of a table
COLUMNS = (3, 64)
SMALL = 16  # tables, the smallest, that come before the others
HELD_OUT = 0.3  # share of the clean rows that are never trained on
N_JUNK = 500  # fresh rows of junk for the AUROC, at most
KINDS = ("uniform", "shuffled", "own")
RATIOS, LATER_RATIOS = (0.1,), (0.05, 0.2)
OURS = "auto"
FIRST, NEXT, FLOWS = (OURS, "mixture", "kernels"), ("gamma 0", "gamma 1"), ("flow", "trimmed flow")
RIVALS = ("mixture", "kernels", *FLOWS)  # what ours is to be above; the other gammas are its own
METHODS = (*FIRST, *NEXT, *FLOWS)


def read(path: Path) -> tuple[Tensor, Tensor]:
    """The clean rows of a table and its anomalies, without columns that do not vary among the clean ones."""
    try:
        with np.load(path) as arrays:
            x, y = arrays["X"], arrays["y"]
    except (OSError, KeyError, ValueError) as error:
        raise UserError(f"{path}: not an .npz file with X and y ({error})") from None
    rows, odd = torch.from_numpy(np.asarray(x, dtype=np.float64)), torch.from_numpy(np.asarray(y).ravel() != 0)
    varies = (rows[~odd] != rows[~odd][:1]).any(0)
    return rows[~odd][:, varies], rows[odd][:, varies]


def usable(folder: Path) -> list[Path]:
    """The tables of a folder with a fitting number of rows and columns, small ones first."""
    found = []
    for path in sorted(folder.glob("*.npz")):
        clean, _ = read(path)
        if len(clean) >= FEWEST_ROWS and COLUMNS[0] <= clean.shape[1] <= COLUMNS[1]:
            found.append((min(len(clean), MOST_ROWS) * clean.shape[1], path))
    if not found:
        raise UserError(f"{folder}: no .npz tables (X, y) with {FEWEST_ROWS} clean rows and {COLUMNS} columns")
    return [path for _, path in sorted(found)]


def split(clean: Tensor, odd: Tensor, kind: str, ratio: float, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Rows to train on, clean rows held out, and fresh junk.

    Held-out rows have ties spread over cells as training does it, in one way for all methods. Of a table's own
    anomalies half are kept for the AUROC, so there may be fewer in training than the ratio asks for.
    """
    order = torch.randperm(len(clean), generator=generator(seed, StudyStream.TABLE_SPLIT))[:MOST_ROWS]
    spread = dequantise(clean[order], generator(seed, StudyStream.TABLE_SPREAD))
    n_held = int(HELD_OUT * len(order))
    train = clean[order[n_held:]]
    # A column may vary among the held-out rows alone; what training cannot see has no density.
    seen = (train != train[:1]).any(0)
    train, held, odd = train[:, seen], spread[:n_held, seen], odd[:, seen]
    n_junk = round(ratio / (1 - ratio) * len(train))
    rng = generator(seed, StudyStream.TABLE_OUTLIERS)
    n = n_junk + N_JUNK
    if kind == "own":
        mixed = odd[torch.randperm(len(odd), generator=rng)]
        inside, fresh = mixed[: min(n_junk, len(odd) // 2)], mixed[len(odd) // 2 :][:N_JUNK]
    elif kind == "shuffled":
        index = torch.randint(len(train), (n, train.shape[1]), generator=rng)
        junk = train.gather(0, index)
        inside, fresh = junk[:n_junk], junk[n_junk:]
    else:
        low, high = train.amin(0), train.amax(0)
        junk = low + (high - low) * torch.rand(n, train.shape[1], generator=rng, dtype=train.dtype)
        inside, fresh = junk[:n_junk], junk[n_junk:]
    return torch.cat([train, inside]), held, fresh


def _runs(folder: Path, quick: bool, seeds: int) -> list[Settings]:
    """What matters most comes first, so that a run that is stopped has seen it."""
    tables = usable(folder)
    checks = {path: f"{zlib.crc32(path.read_bytes()):08x}" for path in tables}
    return [
        {
            "table": path.stem,
            "checksum": checks[path],
            "kind": kind,
            "ratio": ratio,
            "method": method,
            "seed": seed,
            "steps": 20 if quick else None,
            **_configuration(path, method),
        }
        for seed in range(seeds)
        for methods, ratios in _plan(quick)
        for part in ([tables[:2]] if quick else [tables[:SMALL], tables[SMALL:]])
        for kind, ratio in _junk(ratios)
        for path in part
        for method in methods
    ]


def _configuration(path: Path, method: str) -> Settings:
    """Ours with all its settings, so that a change of a default is a change of the run."""
    if method not in (OURS, *NEXT):
        return {}
    gamma = {} if method == OURS else {"objective.gamma": float(method.split()[1])}
    return {"config": for_rows((COLUMNS[0],)).changed(gamma).to_dict()}


def _plan(quick: bool) -> Iterator[tuple[Sequence[str], Sequence[float]]]:
    if quick:
        yield FIRST, (0.0, 0.1)
        return
    yield FIRST, (0.0, *RATIOS, *LATER_RATIOS)
    yield FLOWS, (0.0, *RATIOS)
    yield NEXT, (0.0, *RATIOS, *LATER_RATIOS)
    yield FLOWS, LATER_RATIOS


def _junk(ratios: Sequence[float]) -> Iterator[tuple[str, float]]:
    for ratio in ratios:
        yield from ((kind, ratio) for kind in (KINDS if ratio else ("none",)))


def _compute(folder: Path, settings: Settings) -> Result:
    kind, ratio, seed = (settings[key] for key in ("kind", "ratio", "seed"))
    x, held, junk = split(*read(folder / f"{settings['table']}.npz"), kind, ratio, seed)
    steps = settings["steps"]
    shape: Result = {"rows": len(x), "columns": x.shape[1]}
    try:
        log_prob, more = _fitted(settings, x, steps)
        inside, outside = log_prob(held), log_prob(junk)
    except (Diverged, UserError) as error:
        return {"log_prob": None, "auroc": None, "error": str(error), **shape}
    return {
        "log_prob": float(inside.mean()),
        "median": float(inside.median()),
        "auroc": auroc(-inside, -outside) if len(junk) else None,
        **more,
        **shape,
    }


def _fitted(settings: Settings, x: Tensor, steps: int | None) -> tuple[Callable[[Tensor], Tensor], Result]:
    """The log density that a method finds, and what there is to tell of it."""
    method, seed = settings["method"], settings["seed"]
    if method == "mixture":
        mixture = GaussianMixtureDensity().fit(x, seed=seed)
        return mixture.log_prob, {"components": mixture.components}
    if method == "kernels":
        return KernelDensity().fit(x, seed=seed).log_prob, {}
    if method in FLOWS:
        flow = FlowDensity(settings["ratio"] if method == "trimmed flow" else 0.0)
        return (replace(flow, steps=steps) if steps else flow).fit(x, seed=seed).log_prob, {}
    from pscd.config import TrainConfig

    config = replace(TrainConfig.from_dict(settings["config"]), seed=seed)
    model = fit(x, config=replace(config, updates=steps) if steps else config)
    found = {"ignored": share_ignored(model.notes), "notes": list(model.notes), "log_z_error": model.log_z().error}
    return model.log_density, found


# --- the page ---


def _label(settings: Settings) -> str:
    return f"{settings['kind']} {settings['ratio']:g}" if settings["ratio"] else "clean"


def _grouped(done: Sequence[Run]) -> dict[str, dict[str, dict[str, list[Run]]]]:
    """Runs by kind and ratio, by table, and by method."""
    groups: dict[str, dict[str, dict[str, list[Run]]]] = {}
    for d in sorted(done, key=lambda d: (d.settings["ratio"] > 0, d.settings["kind"], d.settings["ratio"])):
        of_table = groups.setdefault(_label(d.settings), {}).setdefault(d.settings["table"], {})
        of_table.setdefault(d.settings["method"], []).append(d)
    return groups


def _mean(runs: Sequence[Run], value: str) -> float | None:
    """The mean over the seeds; None if a run of them failed."""
    values = [d.result[value] for d in runs]
    return None if not values or any(v is None for v in values) else sum(values) / len(values)


def above(table: dict[str, list[Run]], rivals: Sequence[str]) -> bool | None:
    """Whether ours finds clean rows likelier than every one of the rivals that were run; None: nothing to compare."""
    ours, theirs = table.get(OURS), [table[m] for m in rivals if m in table]
    if not ours or not theirs:
        return None
    mine = _mean(ours, "log_prob")
    if mine is None:
        return False
    return all((other := _mean(runs, "log_prob")) is None or mine > other for runs in theirs)


def summary(done: Sequence[Run]) -> str:
    """For each kind of junk and ratio: on how many tables ours is on top, and means over the tables that all have."""
    methods = [m for m in METHODS if any(d.settings["method"] == m for d in done)]
    lines = []
    for label, tables in _grouped(done).items():
        verdicts = [v for v in (above(table, RIVALS) for table in tables.values()) if v is not None]
        mixture = [v for v in (above(table, RIVALS[:1]) for table in tables.values()) if v is not None]
        line = [label, f"{sum(verdicts)} of {len(verdicts)}", f"{sum(mixture)} of {len(mixture)}"]
        for method in methods:
            pairs = [
                (_mean(t.get(method, []), "log_prob"), _mean(t.get(OURS, []), "log_prob")) for t in tables.values()
            ]
            gaps = torch.tensor([ours - other for other, ours in pairs if other is not None and ours is not None])
            found = [_mean(t[method], "auroc") for t in tables.values() if method in t]
            odd = [v for v in found if v is not None]
            shown = "" if method == OURS or not len(gaps) else f"{gaps.median():+.2f}, "
            line.append(f"{shown}{sum(odd) / len(odd):.3f}" if odd else "")
        lines.append(line)
    return markdown_table(["junk", "above all rivals", "above the mixture", *methods], lines)


def per_table(done: Sequence[Run]) -> str:
    """Mean log density of clean held-out rows of every table and kind of junk."""
    methods = [m for m in METHODS if any(d.settings["method"] == m for d in done)]
    lines = []
    for label, tables in _grouped(done).items():
        for name, table in tables.items():
            first = next(iter(table.values()))[0].result
            ignored = _mean(table[OURS], "ignored") if OURS in table and _mean(table[OURS], "log_prob") else None
            values = [number(_mean(table[m], "log_prob")) or "failed" if m in table else "" for m in methods]
            size = f"{name} ({first['rows']} x {first['columns']})"
            lines.append([size, label, *values, number(ignored)])
    lines.sort(key=lambda line: line[0])
    return markdown_table(["table", "junk", *methods, "auto ignores"], lines)


def _rows(done: Sequence[Run]) -> list[Row]:
    rows: list[Row] = []
    for value, name in (("log_prob", "log density of clean rows"), ("auroc", "AUROC of junk")):
        rows += mean_rows(
            done,
            lambda s, n=name: (f"{s['table']}, {_label(s)}", f"{s['method']}: {n}"),  # type: ignore[misc]
            value,
        )
    return sorted(rows, key=lambda row: row.row)


def _notes(done: Sequence[Run]) -> str:
    tables = sorted({d.settings["table"] for d in done})
    failed = [d for d in done if d.result["log_prob"] is None]
    not_run = [m for m in METHODS if all(d.settings["method"] != m for d in done)]
    names = "; ".join(sorted({f"{d.settings['method']} on {d.settings['table']}" for d in failed}))
    return f"""
{len(tables)} tables with at least {FEWEST_ROWS} clean rows and {COLUMNS[0]} to {COLUMNS[1]} columns.
At most {MOST_ROWS} clean rows of each are taken, of which {HELD_OUT:.0%} are held out.
Junk is added to the others until it has its share: *uniform* in the box of the clean rows, *shuffled* (each column of
each row from a clean row of its own), or the table's *own* anomalies, half of which are kept for the AUROC (so there
may be fewer than the share). Columns that do not vary are left out; ties are spread over cells alike for all. Measured:
the mean log density of clean held-out rows in the units of the data (nats, the higher the better), and the AUROC of
fresh junk against them (on clean data: of uniform junk).

*auto*: what `pscd.fit(x)` does; *gamma 0*, *gamma 1*: the same with that gamma per spread. Rivals, fitted to the same
dirty rows: *mixture* (scikit-learn, number of Gaussians by BIC, ridge by held-out rows), *kernels* (bandwidth by
held-out rows), *flow* (zuko's spline flow, stopped by held-out rows), *trimmed flow* (told the true share).
Not run: {", ".join(not_run) or "nothing"}. {len(failed)} of {len(done)} fits failed{": " + names if failed else ""}.

How often ours is above every rival that was run; then for each method the median over the tables of how many nats ours
is ahead of it, and its mean AUROC:

{summary(done)}

Each table:

{per_table(done)}

All of it:
"""


def _draw(done: Sequence[Run], out: Path) -> list[Path]:
    from studies.paper import figures

    gaps: dict[str, dict[str, list[float]]] = {}
    for label, tables in _grouped(done).items():
        for table in tables.values():
            ours = _mean(table.get(OURS, []), "log_prob")
            for method in (m for m in METHODS if m in table and m != OURS):
                other = _mean(table[method], "log_prob")
                if ours is not None and other is not None:
                    gaps.setdefault(label, {}).setdefault(method, []).append(ours - other)
    return [figures.ahead(gaps, out / "contamination-tables.png")]


def contamination_tables(folder: Path) -> Experiment:
    """The experiment for the tables of a folder."""
    return Experiment(
        "contamination-tables",
        "Junk in real tables: log density of clean rows, against other densities",
        "6 hours",
        1,
        partial(_runs, folder),
        partial(_compute, folder),
        _rows,
        _draw,
        _notes,
        command="contamination-tables --data FOLDER",
        resumes_from_page=True,
    )
