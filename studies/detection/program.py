"""`python -m studies detection FOLDER`: measure, and write a page, its numbers and its figures."""

import argparse
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pscd.errors import UserError
from pscd.version import versions
from studies.detection import figures, report
from studies.detection.detectors import DETECTORS, QUICK
from studies.detection.summary import detector_rows, summarise, table_rows
from studies.detection.work import Plan, all_settings, by_key, make_plan, measure
from studies.engine import Experiment, Row, Run, run_experiment

SEEDS, MAX_ROWS = 3, 10_000
QUICK_SEEDS, QUICK_ROWS = 1, 500
FEWEST_ROWS = 20


def flags(parser: argparse.ArgumentParser) -> None:
    """The flags of this study."""
    parser.add_argument("folder", type=Path, help=".npz files with arrays X (n, d) and y (n,), 1 for an anomaly")
    parser.add_argument(
        "--max-rows", type=int, help=f"rows drawn of a larger table (default: {MAX_ROWS}; {QUICK_ROWS} with --quick)"
    )
    parser.add_argument("--only", metavar="NAMES", help="tables, by comma (default: all of the folder)")
    parser.add_argument("--detectors", metavar="NAMES", help=f"by comma, of: {'; '.join(DETECTORS)} (default: all)")


def run(args: argparse.Namespace) -> Path:
    """Run the benchmark; returns its page."""
    seeds = args.seeds or (QUICK_SEEDS if args.quick else SEEDS)
    max_rows = (QUICK_ROWS if args.quick else MAX_ROWS) if args.max_rows is None else args.max_rows
    if max_rows < FEWEST_ROWS:
        raise UserError(f"--max-rows must be at least {FEWEST_ROWS}, got {max_rows}")
    detectors = split_names(args.detectors, DETECTORS) if args.detectors else QUICK if args.quick else None
    only = [name.strip() for name in args.only.split(",")] if args.only else None
    plan = make_plan(args.folder, seeds=seeds, max_rows=max_rows, only=only, detectors=detectors, quick=args.quick)
    study = experiment(plan, command(args, seeds, max_rows))
    return run_experiment(study, args.out, quick=args.quick, seeds=seeds, jobs=args.jobs)


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
    words = ["python -m studies detection FOLDER"]
    words += ["--quick"] if args.quick else []
    words += [f"--seeds {seeds} --max-rows {max_rows}"]
    words += [f"--only {args.only}"] if args.only else []
    words += [f"--detectors '{args.detectors}'"] if args.detectors else []
    return " ".join(words)


def experiment(plan: Plan, command: str) -> Experiment:
    """The comparison as an experiment: its page sorts the detectors and names the command that makes it again."""

    def rows(done: Sequence[Run]) -> list[Row]:
        return table_rows(detector_rows(plan, by_key(plan, done)), plan.seeds)

    def draw(done: Sequence[Run], folder: Path) -> list[Path]:
        numbers = summarise(plan, by_key(plan, done))
        drawn = [figures.detectors(numbers["detectors"], numbers["sets"], folder / report.FIGURE)]
        if numbers["contamination"]["curves"]:
            drawn.append(figures.contamination(numbers["contamination"], folder / report.CURVES_FIGURE))
        return drawn

    def extra(done: Sequence[Run]) -> dict[str, Any]:
        return {
            "command": command,
            "max_rows": plan.max_rows,
            "libraries": _libraries(plan),
            "detectors": plan.detectors,
            "summary": summarise(plan, by_key(plan, done)),
        }

    return Experiment(
        "detection",
        report.TITLE,
        "hours",
        plan.seeds,
        lambda quick, seeds: all_settings(plan),
        partial(measure, plan.folder),
        rows,
        draw,
        page=lambda made, done: report.page(plan, made, command),
        extra=extra,
        stored=_short,
    )


def _short(run: Run) -> dict[str, Any]:
    """Without what is the same for all runs of a detector and is written once."""
    unwanted = ("configuration", "versions", "code")
    return {"settings": {k: v for k, v in run.settings.items() if k not in unwanted}, **run.result}


def _libraries(plan: Plan) -> dict[str, str]:
    used = versions()
    names = {"pscd": used["pscd"], "torch": used["torch"].removeprefix("torch ")}
    for identity in plan.detectors.values():
        names |= {name: value for name, value in identity["versions"].items() if name not in names}
    return names
