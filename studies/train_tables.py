"""Does `pscd train FILE`, with nothing else said, learn from any table? Runs, runs lost, and whether junk stands out.

    python -m studies train_tables TABLES --out docs/results/train-tables

TABLES is a folder of `.npz` files with rows `X` and labels `y`, 1 for an anomaly, as ADBench has them. Of each table
the normal rows, at most 3,000, are taken and a tenth of junk is added, even over the ranges of the columns. Each is
trained on as the command line would, for gamma auto, 0 and 1, and several seeds. A run is lost if it raises, or if an
energy or log density is not finite. Runs that were made are kept in `OUT.jsonl` and not made again.
"""

import argparse
import json
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import joblib
import numpy as np
import torch

from pscd.errors import Diverged, UserError
from pscd.files import write_json, write_text_atomic
from pscd.metrics import auroc
from pscd.presets import default_preset
from pscd.runs import load, train
from pscd.version import machine, versions
from studies.engine.markdown import markdown_table

GAMMAS = ("auto", 0.0, 1.0)
MOST_ROWS = 3000
JUNK = 0.1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", type=Path, help="folder of .npz files")
    parser.add_argument("--out", type=Path, required=True, help="files to write, without an ending")
    parser.add_argument("--seeds", type=int, default=3, help="seeds (default: 3)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default: 2)")
    args = parser.parse_args()
    wanted = [
        {"table": path.stem, "gamma": gamma, "seed": seed}
        for seed in range(args.seeds)
        for gamma in GAMMAS
        for path in sorted(args.tables.glob("*.npz"))
    ]
    kept = args.out.with_suffix(".jsonl")
    done = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    keys = {(row["table"], row["gamma"], row["seed"]) for row in done}
    missing = [w for w in wanted if tuple(w.values()) not in keys]
    parallel = joblib.Parallel(n_jobs=args.jobs, return_as="generator_unordered")
    for row in parallel(joblib.delayed(run)(args.tables, w) for w in missing):
        done.append(row)
        with kept.open("a") as file:
            file.write(json.dumps(row) + "\n")
    write(done, args.out)


def run(tables: Path, wanted: dict) -> dict:
    """One run, as `pscd train FILE --gamma G --seed S` would make it."""
    torch.set_num_threads(1)
    x, is_junk = dirty_table(tables / f"{wanted['table']}.npz", wanted["seed"])
    row = {**wanted, "rows": len(x), "columns": x.shape[1]}
    start = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.npy"
        np.save(path, x)
        config = replace(default_preset(str(path), x.shape[1]), data=str(path), seed=wanted["seed"])
        config = config.changed({"objective.gamma": wanted["gamma"]})
        try:
            model = load(train(config, Path(folder) / "run", progress=False))
            energy, log_prob = model.energies(x), model.log_prob(x)
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
        "seconds": round(time.process_time() - start, 1),
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


def write(done: list[dict], out: Path) -> None:
    """The page and its numbers."""
    write_json(out.with_suffix(".json"), {"runs": done, "versions": versions(), "machine": machine()})
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
    seeds = 1 + max(row["seed"] for row in done)
    text = [
        "# `pscd train FILE` on any table",
        "",
        f"Made by `python -m studies train_tables TABLES --seeds {seeds}`. {machine()}; {versions()['torch']}.",
        f"{len(done)} runs, {len(lost)} lost. Normal rows of each table (at most {MOST_ROWS}), a tenth of junk.",
        "AUROC is how well the energy tells junk from other rows, in the worst seed; seconds of one core, median.",
        "",
        markdown_table(head, rows),
        "",
        *(f"- lost: {row['table']}, gamma {row['gamma']}, seed {row['seed']}: {row['lost']}" for row in lost),
    ]
    write_text_atomic(out.with_suffix(".md"), "\n".join(text).rstrip() + "\n")
