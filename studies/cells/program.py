"""`python -m studies cells`: measure, and write a page, its numbers and its figure."""

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pscd.errors import UserError
from pscd.version import __version__
from studies.cells import figure, report
from studies.cells.summary import summarise, table_rows
from studies.cells.work import METHODS, Plan, all_settings, make_plan, measure
from studies.engine import Experiment, Run, run_experiment

SEEDS, ROWS, COLUMNS = 2, 500, 15
QUICK_ROWS, QUICK_COLUMNS = 150, 6
FEWEST_ROWS, FEWEST_COLUMNS = 50, 3


def flags(parser: argparse.ArgumentParser) -> None:
    """The flags of this study."""
    parser.add_argument(
        "--data", type=Path, metavar="FOLDER", help="ADBench's .npz files, X (n, d) and y (n,); default: without them"
    )
    parser.add_argument(
        "--max-rows", type=int, help=f"rows drawn of a larger table (default: {ROWS}; {QUICK_ROWS} with --quick)"
    )
    parser.add_argument(
        "--max-columns",
        type=int,
        help=f"columns taken of a wider table of numbers (default: {COLUMNS}; {QUICK_COLUMNS} with --quick)",
    )
    parser.add_argument("--only", metavar="NAMES", help="tables, by comma (default: all)")
    parser.add_argument("--methods", metavar="NAMES", help=f"by semicolon, of: {'; '.join(METHODS)} (default: all)")
    parser.add_argument("--trial", action="store_true", help="only the tables on which our settings were chosen")


def run(args: argparse.Namespace) -> Path:
    """Run the benchmark; returns its page."""
    seeds = args.seeds or (1 if args.quick else SEEDS)
    rows = args.max_rows if args.max_rows is not None else QUICK_ROWS if args.quick else ROWS
    columns = args.max_columns if args.max_columns is not None else QUICK_COLUMNS if args.quick else COLUMNS
    for flag, value, least in (("--max-rows", rows, FEWEST_ROWS), ("--max-columns", columns, FEWEST_COLUMNS)):
        if value < least:
            raise UserError(f"{flag} must be at least {least}, got {value}")
    plan = make_plan(
        args.data,
        seeds=seeds,
        rows=rows,
        columns=columns,
        only=_names(args.only, ","),
        methods=_names(args.methods, ";"),
        quick=args.quick,
        trial=args.trial,
    )
    study = experiment(plan, command(args, seeds, rows, columns))
    return run_experiment(study, args.out, quick=args.quick, seeds=seeds, jobs=args.jobs, hours=args.hours)


def _names(text: str | None, separator: str) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(separator)]


def command(args: Any, seeds: int, rows: int, columns: int) -> str:
    """What makes the page again; where the tables lie is the reader's own matter."""
    words = ["python -m studies cells"]
    words += ["--data FOLDER"] if args.data else []
    words += ["--quick"] if args.quick else []
    words += ["--trial"] if args.trial else []
    words += [f"--seeds {seeds} --max-rows {rows} --max-columns {columns}"]
    words += [f"--only {args.only}"] if args.only else []
    words += [f"--methods '{args.methods}'"] if args.methods else []
    return " ".join(words)


def experiment(plan: Plan, command: str) -> Experiment:
    """The comparison as an experiment, with a page of its own."""

    def extra(done: Sequence[Run]) -> dict[str, Any]:
        libraries = {name: value for method in plan.methods.values() for name, value in method["versions"].items()}
        return {
            "command": command,
            "max_rows": plan.rows,
            "max_columns": plan.columns,
            "libraries": {"pscd": __version__} | libraries,
            "summary": summarise(done),
        }

    return Experiment(
        "cells",
        report.TITLE,
        "1.5 hours",
        plan.seeds,
        lambda quick, seeds: all_settings(plan),
        partial(measure, plan.data),
        table_rows,
        lambda done, folder: [figure.draw(summarise(done), folder / report.FIGURE)],
        page=lambda made, done: report.page(plan, made, command),
        extra=extra,
        stored=_short,
    )


def _short(run: Run) -> dict[str, Any]:
    """Without what is the same for every run of a method, and is written once; thousands of runs, so rounded."""
    unwanted = ("versions", "code", "rows", "columns", "checksum")
    settings = {name: value for name, value in run.settings.items() if name not in unwanted}
    return settings | {name: round(v, 4) if isinstance(v, float) else v for name, v in run.result.items()}
