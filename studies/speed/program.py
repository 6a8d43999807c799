"""`python -m studies speed`: measure, and write speed.json, speed.md and speed.png.

A run is a case, a setting or an axis of one part, stored as soon as it is measured. A stopped study resumes, and the
page has everything that was measured; to measure again, remove the folder `speed.runs`.
"""

import argparse
import os
import platform
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy
import torch

from pscd.errors import UserError
from pscd.version import __version__
from studies.engine import Experiment, Result, Run, Settings, run_experiment
from studies.speed import figure, growth, processes, quality, report, rivals, updates

LETTERS = {"a": "updates", "b": "updates", "c": "updates", "d": "quality", "e": "growth", "f": "processes"}
PARTS: dict[str, Callable[[bool], dict[str, Callable[[], Result]]]] = {
    "updates": updates.runs,
    "quality": quality.runs,
    "growth": growth.runs,
    "processes": processes.runs,
}


def flags(parser: argparse.ArgumentParser) -> None:
    """The flags of this study."""
    parser.add_argument(
        "--parts",
        default="a,b,c,d,e,f",
        help="a update, b PS-CD over CD, c sampler over bound (these three are one), d time to quality, e growth, "
        "f two processes (default: all)",
    )
    parser.add_argument("--only", default="", help="runs whose name contains this text")


def run(args: argparse.Namespace) -> Path:
    """Measure what is asked for and was not measured before; returns the page."""
    for name in rivals.missing_peers():
        print(f"{name} is not installed and is left out; `make bench` installs it", file=sys.stderr)
    parts = chosen_parts(args.parts)
    study = experiment()

    def is_wanted(settings: Settings) -> bool:
        return settings["part"] in parts and args.only in settings["name"]

    if not any(is_wanted(settings) for settings in study.runs(args.quick, 1)):
        raise UserError(f"no run has {args.only!r} in its name")
    return run_experiment(study, args.out, quick=args.quick, jobs=1, only=is_wanted)


def chosen_parts(text: str) -> set[str]:
    """Parts by their letters."""
    letters = [letter.strip() for letter in text.split(",")]
    if unknown := [letter for letter in letters if letter not in LETTERS]:
        raise UserError(f"unknown part {unknown[0]!r}; there are: {', '.join(LETTERS)}")
    return {LETTERS[letter] for letter in letters}


def experiment() -> Experiment:
    """All measurements as runs, one after the other, with the threads that torch takes."""
    return Experiment(
        "speed",
        "Speed",
        "1 hour",
        1,
        lambda quick, seeds: [
            {"part": part, "name": name, "quick": quick} for part, runs in PARTS.items() for name in runs(quick)
        ],
        measure,
        lambda done: [],
        lambda done, out: [figure.draw(results(done), out / "speed.png")],
        page=lambda made, done: report.page(made),
        extra=extra,
        stored=lambda run: {"settings": run.settings, "seconds": run.result["seconds"]},
        n_threads=None,
    )


def measure(settings: Settings) -> Result:
    """One run, by its part and name."""
    return {"values": PARTS[settings["part"]](settings["quick"])[settings["name"]]()}


def results(done: Sequence[Run]) -> dict[str, dict[str, Any]]:
    """What was measured, by part and name."""
    made: dict[str, dict[str, Any]] = {}
    for run in done:
        made.setdefault(run.settings["part"], {})[run.settings["name"]] = run.result["values"]
    return made


def extra(done: Sequence[Run]) -> dict[str, Any]:
    """What the page shows beside the runs."""
    quick = any(run.settings["quick"] for run in done)
    remarks = ["Quick: too few rounds to mean anything."] if quick else []
    remarks += [f"{name} was not installed and is left out." for name in rivals.missing_peers()]
    return {
        "command": "make bench",
        "machine": machine(),
        "versions": versions(),
        "remarks": remarks,
        "targets": report.targets(results(done)),
        "results": results(done),
    }


def versions() -> dict[str, str]:
    """Versions of what is compared and of what it stands on."""
    found = {"pscd": __version__, "torch": torch.__version__, "numpy": numpy.__version__}
    found["Python"] = platform.python_version()
    absent = rivals.missing_peers()
    return found | {name: version(name) for name in rivals.PEERS if name not in absent}


def machine() -> str:
    """Cores and the kind of processor, without the machine's name."""
    kind = platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        kind = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    threads = torch.get_num_threads()
    return f"{os.cpu_count()} cores, {kind}, {platform.system()}, {threads} thread{'s' * (threads > 1)} by default"
