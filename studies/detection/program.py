"""`python -m studies detection FOLDER`: measure, and write a page, its numbers and its figures."""

import json
import sys
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pscd.cli.flags import Parser
from pscd.errors import UserError
from pscd.files import write_json, write_text_atomic
from studies.detection import figures, report
from studies.detection.cells import Plan, all_settings, by_key, make_plan, measure
from studies.detection.detectors import DETECTORS, QUICK
from studies.detection.summary import artefact_rows, detector_rows, summarise
from studies.engine.experiment import CellResult, Experiment, Row, run

PROGRAM = "studies detection"
SEEDS, MAX_ROWS = 3, 10_000
QUICK_SEEDS, QUICK_ROWS = 1, 500
FEWEST_ROWS = 20


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; returns 0 if it went well, 2 for bad input."""
    args = build_parser().parse_args(argv)
    seeds = (QUICK_SEEDS if args.quick else SEEDS) if args.seeds is None else args.seeds
    max_rows = (QUICK_ROWS if args.quick else MAX_ROWS) if args.max_rows is None else args.max_rows
    out = args.out or Path("results/quick" if args.quick else "docs/results")
    try:
        for flag, value, least in (("--seeds", seeds, 1), ("--max-rows", max_rows, FEWEST_ROWS)):
            if value < least:
                raise UserError(f"{flag} must be at least {least}, got {value}")
        if args.jobs == 0:
            raise UserError("--jobs must not be 0; -1 means one per core")
        detectors = split_names(args.detectors, DETECTORS) if args.detectors else QUICK if args.quick else None
        only = [name.strip() for name in args.only.split(",")] if args.only else None
        plan = make_plan(args.folder, seeds=seeds, max_rows=max_rows, only=only, detectors=detectors, quick=args.quick)
        page = benchmark(plan, out, command(args, seeds, max_rows), quick=args.quick, n_jobs=args.jobs)
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
    parser = Parser(f"python -m {PROGRAM}", description="Unsupervised anomaly detection on a folder of tables.")
    parser.add_argument("folder", type=Path, help=".npz files with arrays X (n, d) and y (n,), 1 for an anomaly")
    parser.add_argument("--out", type=Path, help="folder (default: docs/results, results/quick with --quick); resumes")
    parser.add_argument("--seeds", type=int, help=f"seeds (default: {SEEDS}; {QUICK_SEEDS} with --quick)")
    parser.add_argument(
        "--max-rows", type=int, help=f"rows drawn of a larger table (default: {MAX_ROWS}; {QUICK_ROWS} with --quick)"
    )
    parser.add_argument("--jobs", type=int, default=-1, help="processes (default: one per core)")
    parser.add_argument("--only", metavar="NAMES", help="tables, by comma (default: all of the folder)")
    parser.add_argument("--detectors", metavar="NAMES", help=f"by comma, of: {'; '.join(DETECTORS)} (default: all)")
    parser.add_argument("--quick", action="store_true", help="few rows and detectors, to see that it works")
    return parser


def split_names(text: str, known: Iterable[str]) -> list[str]:
    """Names from a list with commas; a name that has a comma itself is found too."""
    known = list(known)
    parts = [part.strip() for part in text.split(",")]
    names = []
    while parts:
        longest = next((n for n in range(len(parts), 0, -1) if ", ".join(parts[:n]) in known), 0)
        if not longest:
            raise UserError(f"unknown detector {parts[0]!r}; there are: {'; '.join(known)}")
        names.append(", ".join(parts[:longest]))
        parts = parts[longest:]
    return list(dict.fromkeys(names))


def command(args: Any, seeds: int, max_rows: int) -> str:
    """What makes the page again; where the tables lie is the reader's own matter."""
    words = [f"python -m {PROGRAM} FOLDER"]
    words += ["--quick"] if args.quick else []
    words += [f"--seeds {seeds} --max-rows {max_rows}"]
    words += [f"--only {args.only}"] if args.only else []
    words += [f"--detectors '{args.detectors}'"] if args.detectors else []
    return " ".join(words)


def benchmark(plan: Plan, out: Path, command: str, *, quick: bool, n_jobs: int, show: bool = True) -> Path:
    """Compute what is missing and write `detection.json`, `detection.md` and the figures; returns the page.

    Cells, figures and JSON are made as those of the paper's experiments are. The page is our own: its tables
    are sorted and its command is another.
    """

    def rows(done: Sequence[CellResult]) -> list[Row]:
        return artefact_rows(detector_rows(plan, by_key(plan, done)), plan.seeds)

    def draw(done: Sequence[CellResult], folder: Path) -> list[Path]:
        numbers = summarise(plan, by_key(plan, done))
        drawn = [figures.detectors(numbers["detectors"], numbers["sets"], folder / report.FIGURE)]
        if numbers["contamination"]["curves"]:
            drawn.append(figures.contamination(numbers["contamination"], folder / report.CURVES_FIGURE))
        return drawn

    compute = partial(measure, plan.folder)
    experiment = Experiment(
        "detection", report.TITLE, "hours", plan.seeds, lambda quick, seeds: all_settings(plan), compute, rows, draw
    )
    path = run(experiment, out, quick=quick, seeds=plan.seeds, jobs=n_jobs, show=show)
    written = json.loads(path.with_suffix(".json").read_text())
    done = [
        CellResult(cell["settings"], {name: value for name, value in cell.items() if name != "settings"})
        for cell in written["cells"]
    ]
    written["cells"] = [{"settings": _short(d.settings), **d.result} for d in done]
    written |= {
        "command": command,
        "max_rows": plan.max_rows,
        "libraries": _libraries(plan, written["versions"]),
        "detectors": plan.detectors,
        "summary": summarise(plan, by_key(plan, done)),
    }
    write_json(path.with_suffix(".json"), written)
    write_text_atomic(path, report.page(plan, written, command))
    return path


def _short(settings: dict[str, Any]) -> dict[str, Any]:
    """Without what is the same for all cells of a detector and is written once."""
    return {name: value for name, value in settings.items() if name not in ("configuration", "versions", "code")}


def _libraries(plan: Plan, versions: dict[str, str]) -> dict[str, str]:
    found = {"pscd": versions["pscd"], "torch": versions["torch"].removeprefix("torch ")}
    for identity in plan.detectors.values():
        found |= {name: value for name, value in identity["versions"].items() if name not in found}
    return found
