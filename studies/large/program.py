"""`python -m studies large`: measure, and write large.json and large.md.

The table is made in a temporary folder and removed afterwards. Every part runs once; to measure it again, remove the
folder `large.runs`.
"""

import argparse
import os
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pscd.errors import UserError
from studies.engine import Experiment, Result, Run, Settings, run_experiment
from studies.large import cleaning, reading, scoring, training
from studies.speed.program import machine

N_ROWS, QUICK_ROWS = 50_000_000, 300_000
# Each part has `measure(folder, n_rows)`, plain values, and `section(values)`, its lines of the page.
PARTS: dict[str, Any] = {"training": training, "reading": reading, "scoring": scoring, "cleaning": cleaning}


def flags(parser: argparse.ArgumentParser) -> None:
    """The flags of this study."""
    parser.add_argument("--parts", default=",".join(PARTS), help=f"of {', '.join(PARTS)} (default: all)")
    parser.add_argument("--rows", type=int, help=f"of the table (default: {N_ROWS:,}; {QUICK_ROWS:,} with --quick)")
    parser.add_argument("--folder", type=Path, help="where to make the table, 6 GB (default: the system's for such)")


def run(args: argparse.Namespace) -> Path:
    """Measure the parts that are asked for; returns the page."""
    n_rows = args.rows or (QUICK_ROWS if args.quick else N_ROWS)
    parts = chosen_parts(args.parts)
    with tempfile.TemporaryDirectory(prefix="pscd-large-", dir=args.folder) as folder:
        study = experiment(Path(folder), n_rows)
        return run_experiment(study, args.out, quick=args.quick, jobs=1, only=lambda s: s["part"] in parts)


def chosen_parts(text: str) -> list[str]:
    """Parts by their names."""
    names = [name.strip() for name in text.split(",")]
    if unknown := [name for name in names if name not in PARTS]:
        raise UserError(f"unknown part {unknown[0]!r}; there are: {', '.join(PARTS)}")
    return names


def experiment(folder: Path, n_rows: int) -> Experiment:
    """The parts as runs, one after the other, each with all the threads that it takes."""
    return Experiment(
        "large",
        "Tables larger than memory",
        "1 hour",
        1,
        lambda quick, seeds: [{"part": name, "rows": n_rows} for name in PARTS],
        partial(measure, folder),
        lambda done: [],
        lambda done, out: [],
        page=lambda report, done: page(results(done), n_rows),
        extra=lambda done: {"n_rows": n_rows, "results": results(done)},
        n_threads=None,
    )


def measure(folder: Path, settings: Settings) -> Result:
    """One part, with the machine and its load."""
    values = PARTS[settings["part"]].measure(folder, settings["rows"])
    return {"values": values | {"machine": machine(), "load": os.getloadavg()[0]}}


def results(done: Sequence[Run]) -> dict[str, Any]:
    """The values of each part that was measured."""
    return {run.settings["part"]: run.result["values"] for run in done}


def page(results: dict[str, Any], n_rows: int) -> str:
    """The sections of the parts that were measured."""
    lines = [
        "# Tables larger than memory",
        "",
        f"{n_rows:,} rows of ten columns in float32, {4 * 10 * n_rows / 1e9:.2g} GB: four groups, and 5 % "
        "contamination. Written by `python -m studies large`; every measurement runs in a process of its own.",
        "",
    ]
    for name, values in results.items():
        lines += [*PARTS[name].section(values), "", f"*{values['machine']}*", ""]
    return "\n".join(lines).rstrip() + "\n"
