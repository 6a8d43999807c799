"""Does `pscd train FILE`, with nothing else said, learn from any table? Runs, runs lost, and whether junk stands out.

    python -m studies train-tables TABLES

TABLES is a folder of `.npz` files with rows `X` and labels `y`, 1 for an anomaly, as ADBench has them. Of each table
the normal rows, at most 3,000, are taken and a tenth of junk is added, even over the ranges of the columns. Each is
trained on as the command line would, for gamma auto, 0 and 1, and several seeds. A run is lost if it raises, or if an
energy or log density is not finite.
"""

import argparse
import statistics
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pscd import load, train
from pscd.errors import Diverged, UserError
from pscd.metrics import auroc
from pscd.recipes.configs import for_data
from studies.engine import Experiment, Result, Run, Settings, run_experiment
from studies.engine.markdown import markdown_table

GAMMAS = ("auto", 0.0, 1.0)
MOST_ROWS = 3000
JUNK = 0.1


def flags(parser: argparse.ArgumentParser) -> None:
    """The flags of this study."""
    parser.add_argument("tables", type=Path, help="folder of .npz files")


def run(args: argparse.Namespace) -> Path:
    """Train on every table; returns the page."""
    study = Experiment(
        "train-tables",
        "`pscd train FILE` on any table",
        "hours",
        3,
        lambda quick, seeds: [
            {"table": path.stem, "gamma": gamma, "seed": seed, "updates": 20 if quick else None}
            for seed in range(seeds)
            for gamma in (GAMMAS[:1] if quick else GAMMAS)
            for path in sorted(args.tables.glob("*.npz"))
        ],
        partial(compute, args.tables),
        lambda done: [],
        lambda done, folder: [],
        page=page,
    )
    return run_experiment(study, args.out, quick=args.quick, seeds=args.seeds, jobs=args.jobs)


def compute(tables: Path, settings: Settings) -> Result:
    """One run, as `pscd train FILE --gamma G --seed S` would make it."""
    x, is_junk = dirty_table(tables / f"{settings['table']}.npz", settings["seed"])
    row = {"rows": len(x), "columns": x.shape[1]}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.npy"
        np.save(path, x)
        config = for_data(str(path), x.shape[1]).changed({"rows.data": str(path), "seed": settings["seed"]})
        config = config.changed({"objective.gamma": settings["gamma"]})
        if settings["updates"]:
            config = config.changed({"updates": settings["updates"]})
        try:
            model = load(train(config, Path(folder) / "run", progress=False))
            energy, log_prob = model.energy(x), model.log_density(x)
        except (UserError, Diverged) as error:
            return {**row, "lost": str(error)}
    finite = bool(energy.isfinite().all() and log_prob.isfinite().all())
    return {
        **row,
        "lost": None if finite else "not finite",
        "gamma_used": model.config.objective.gamma,
        "junk_auroc": round(float(auroc(energy[~is_junk], energy[is_junk])), 4),
        "log_density": round(float(log_prob[~is_junk].mean()), 3),
        "log_z_error": round(model.log_z().error, 5),
    }


def dirty_table(path: Path, seed: int) -> tuple[np.ndarray, torch.Tensor]:
    """Normal rows of a table with a tenth of junk, in random order, and which rows are junk."""
    rng = np.random.default_rng(seed)
    with np.load(path) as file:
        clean = file["X"][file["y"] == 0].astype(np.float64)
    clean = clean[rng.permutation(len(clean))[:MOST_ROWS]]
    n_junk = round(JUNK * len(clean) / (1 - JUNK))
    junk = rng.uniform(clean.min(0), clean.max(0), (n_junk, clean.shape[1]))
    order = rng.permutation(len(clean) + n_junk)
    return np.concatenate([clean, junk])[order], torch.from_numpy(order >= len(clean))


def page(report: dict[str, Any], runs: Sequence[Run]) -> str:
    """A row for each table."""
    done = [{**run.settings, **run.result} for run in runs]
    lost = [row for row in done if row["lost"]]
    names = sorted({row["table"] for row in done})
    head = ["table", "rows", "columns", *(f"AUROC, gamma {g}" for g in GAMMAS), "auto chose 0", "seconds"]
    rows = []
    for name in names:
        runs = [row for row in done if row["table"] == name and not row["lost"]]
        auto = [row for row in runs if row["gamma"] == "auto"]
        worst = [min((r["junk_auroc"] for r in runs if r["gamma"] == g), default=float("nan")) for g in GAMMAS]
        zero = sum(row["gamma_used"] == 0 for row in auto)
        spent = statistics.median(row["seconds"] for row in runs) if runs else float("nan")
        sizes = [str(runs[0][key]) for key in ("rows", "columns")] if runs else ["", ""]
        rows.append([name, *sizes, *(f"{w:.3f}" for w in worst), f"{zero} of {len(auto)}", f"{spent:.0f}"])
    text = [
        "# `pscd train FILE` on any table",
        "",
        f"Made by `python -m studies train-tables TABLES --seeds {report['seeds']}`. "
        f"{report['machine']}; {report['versions']['torch']}.",
        f"{len(done)} runs, {len(lost)} lost. Normal rows of each table (at most {MOST_ROWS}), a tenth of junk.",
        "AUROC is how well the energy tells junk from other rows, in the worst seed; seconds of one core, median.",
        "",
        markdown_table(head, rows),
        "",
        *(f"- lost: {row['table']}, gamma {row['gamma']}, seed {row['seed']}: {row['lost']}" for row in lost),
    ]
    return "\n".join(text).rstrip() + "\n"
