"""`python -m studies cells`: measure, and write a page, its numbers and its figure."""

import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pscd.cli.flags import Parser
from pscd.errors import UserError
from pscd.files import write_json, write_text_atomic
from studies.cells import figure, report
from studies.cells.summary import summarise, table_rows
from studies.cells.work import METHODS, Plan, all_settings, make_plan, measure
from studies.engine.experiment import CellResult, Experiment, run, with_reading

PROGRAM = "studies cells"
NAME = "cells"
SEEDS, ROWS, COLUMNS = 2, 500, 15
QUICK_ROWS, QUICK_COLUMNS = 150, 6
FEWEST_ROWS, FEWEST_COLUMNS = 50, 3


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; returns 0 if it went well, 2 for bad input."""
    args = build_parser().parse_args(argv)
    seeds = args.seeds if args.seeds is not None else 1 if args.quick else SEEDS
    rows = args.max_rows if args.max_rows is not None else QUICK_ROWS if args.quick else ROWS
    columns = args.max_columns if args.max_columns is not None else QUICK_COLUMNS if args.quick else COLUMNS
    out = args.out or Path("results/quick" if args.quick else "docs/results")
    try:
        for flag, value, least in (
            ("--seeds", seeds, 1),
            ("--max-rows", rows, FEWEST_ROWS),
            ("--max-columns", columns, FEWEST_COLUMNS),
        ):
            if value < least:
                raise UserError(f"{flag} must be at least {least}, got {value}")
        if args.jobs == 0:
            raise UserError("--jobs must not be 0; -1 means one per core")
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
        page = benchmark(
            plan, out, command(args, seeds, rows, columns), quick=args.quick, n_jobs=args.jobs, hours=args.hours
        )
    except UserError as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{PROGRAM}: stopped; it goes on with the same command", file=sys.stderr)
        return 130
    print(page.read_text())
    print(f"page: {page}")
    return 0


def build_parser() -> Parser:
    """The flags."""
    parser = Parser(f"python -m {PROGRAM}", description="Wrong cells, repair, missing values, rows with missing cells.")
    parser.add_argument(
        "--data", type=Path, metavar="FOLDER", help="ADBench's .npz files, X (n, d) and y (n,); default: without them"
    )
    parser.add_argument("--out", type=Path, help="folder (default: docs/results, results/quick with --quick); resumes")
    parser.add_argument("--seeds", type=int, help=f"seeds (default: {SEEDS}; 1 with --quick)")
    parser.add_argument(
        "--max-rows", type=int, help=f"rows drawn of a larger table (default: {ROWS}; {QUICK_ROWS} with --quick)"
    )
    parser.add_argument(
        "--max-columns",
        type=int,
        help=f"columns taken of a wider table of numbers (default: {COLUMNS}; {QUICK_COLUMNS} with --quick)",
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes; -1 for one per core (default: 1)")
    parser.add_argument("--hours", type=float, help="after which nothing is begun any more; the page says so")
    parser.add_argument("--only", metavar="NAMES", help="tables, by comma (default: all)")
    parser.add_argument("--methods", metavar="NAMES", help=f"by semicolon, of: {'; '.join(METHODS)} (default: all)")
    parser.add_argument("--trial", action="store_true", help="only the tables that our settings were looked for on")
    parser.add_argument("--quick", action="store_true", help="few rows and tables, to see that it works")
    return parser


def _names(text: str | None, separator: str) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(separator)]


def command(args: Any, seeds: int, rows: int, columns: int) -> str:
    """What makes the page again; where the tables lie is the reader's own matter."""
    words = [f"python -m {PROGRAM}"]
    words += ["--data FOLDER"] if args.data else []
    words += ["--quick"] if args.quick else []
    words += ["--trial"] if args.trial else []
    words += [f"--seeds {seeds} --max-rows {rows} --max-columns {columns}"]
    words += [f"--only {args.only}"] if args.only else []
    words += [f"--methods '{args.methods}'"] if args.methods else []
    return " ".join(words)


def benchmark(
    plan: Plan,
    out: Path,
    command: str,
    *,
    quick: bool = False,
    n_jobs: int = 1,
    hours: float | None = None,
    show: bool = True,
) -> Path:
    """Compute what is missing and write `cells.json`, `cells.md` and `cells.png`; returns the page."""

    def draw(done: Sequence[CellResult], folder: Path) -> list[Path]:
        return [figure.draw(summarise(done), folder / report.FIGURE)]

    experiment = Experiment(
        NAME,
        report.TITLE,
        "1.5 hours",
        plan.seeds,
        lambda quick, seeds: all_settings(plan),
        partial(measure, plan.data),
        table_rows,
        draw,
    )
    path = run(experiment, out, quick=quick, seeds=plan.seeds, jobs=n_jobs, show=show, hours=hours)
    written = json.loads(path.with_suffix(".json").read_text())
    done = [
        CellResult(cell["settings"], {name: value for name, value in cell.items() if name != "settings"})
        for cell in written["cells"]
    ]
    written["cells"] = [_short(d.settings) | _rounded(d.result) for d in done]
    libraries = {name: value for method in plan.methods.values() for name, value in method["versions"].items()}
    written |= {
        "command": command,
        "max_rows": plan.rows,
        "max_columns": plan.columns,
        "libraries": {"pscd": written["versions"]["pscd"]} | libraries,
        "summary": summarise(done),
    }
    write_json(path.with_suffix(".json"), written, indent=None)  # thousands of pieces, a megabyte less
    write_text_atomic(path, with_reading(report.page(plan, written, command), path))
    return path


def _short(settings: dict[str, Any]) -> dict[str, Any]:
    """Without what is the same for every piece of a method's work, and is written once."""
    return {
        name: value
        for name, value in settings.items()
        if name not in ("versions", "code", "rows", "columns", "checksum")
    }


def _rounded(result: dict[str, Any]) -> dict[str, Any]:
    return {name: round(value, 4) if isinstance(value, float) else value for name, value in result.items()}
