"""`python -m studies speed`: measure, and write speed.json, speed.md and speed.png.

A cell (a case, a setting, an axis) is written down as soon as it is measured. Parts that are not asked for stay as
they are in the file; parts that are asked for are measured anew, or, with `--resume`, where a cell is missing.
"""

import json
import os
import platform
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy
import torch

from pscd.cli.flags import Parser, parse_names
from pscd.errors import UserError
from pscd.files import write_json, write_text_atomic
from pscd.version import __version__
from studies.engine.experiment import with_reading
from studies.speed import figure, growth, processes, quality, report, rivals, updates

PROGRAM = "studies speed"
LETTERS = {"a": "updates", "b": "updates", "c": "updates", "d": "quality", "e": "growth", "f": "processes"}
Cells = dict[str, Callable[[], dict[str, Any]]]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; returns 0 if it went well, 2 for bad input."""
    args = build_parser().parse_args(argv)
    out = args.out or Path("results/quick" if args.quick else "docs/results")
    try:
        if args.rounds is not None and args.rounds < 1:
            raise UserError(f"--rounds must be at least 1, got {args.rounds}")
        parts = chosen_parts(args.parts)
        page = benchmark(
            parts, out, quick=args.quick, rounds=args.rounds, only=args.only, resume=args.resume, command=_command(args)
        )
    except UserError as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{PROGRAM}: stopped; it goes on with the same command and --resume", file=sys.stderr)
        return 130
    print(page.read_text())
    print(f"page: {page}")
    return 0


def build_parser() -> Parser:
    """The flags."""
    parser = Parser(f"python -m {PROGRAM}", description="Speed beside torchebm, ebmkit and a plain PyTorch loop.")
    parser.add_argument(
        "--parts",
        default="a,b,c,d,e,f",
        help="a update, b PS-CD over CD, c sampler over bound (these three are one), d time to quality, e growth, "
        "f two processes (default: all)",
    )
    parser.add_argument("--only", help="cells whose name contains this text")
    parser.add_argument(
        "--rounds", type=int, help="rounds of an update (default: 40, of the ResNet 30; 3 with --quick)"
    )
    parser.add_argument("--resume", action="store_true", help="keep the cells that are there")
    parser.add_argument("--quick", action="store_true", help="one small cell of each part, to see that it works")
    parser.add_argument("--out", type=Path, help="folder (default: docs/results, results/quick with --quick)")
    return parser


def chosen_parts(text: str) -> list[str]:
    """Parts by their letters, each once."""
    letters = parse_names(text)
    unknown = [letter for letter in letters if letter not in LETTERS]
    if unknown:
        raise UserError(f"unknown part {unknown[0]!r}; there are: {', '.join(LETTERS)}")
    return list(dict.fromkeys(LETTERS[letter] for letter in letters))


def cells_of(part: str, quick: bool, rounds: int | None) -> Cells:
    """What a part measures, by name."""
    if part == "updates":
        return updates.cells(quick, rounds)
    return {"quality": quality.cells, "growth": growth.cells, "processes": processes.cells}[part](quick)


def benchmark(
    parts: Sequence[str],
    out: Path,
    *,
    quick: bool,
    rounds: int | None = None,
    only: str | None = None,
    resume: bool = False,
    command: str = f"python -m {PROGRAM}",
) -> Path:
    """Measure and write the files; returns the page."""
    for name in rivals.missing_peers():
        print(f"{name} is not installed and is left out; `make bench` installs it", file=sys.stderr)
    out.mkdir(parents=True, exist_ok=True)
    results = kept_results(out / "speed.json", quick)
    wanted = {part: cells_of(part, quick, rounds) for part in parts}
    if only is not None:
        wanted = {part: {name: cell for name, cell in cells.items() if only in name} for part, cells in wanted.items()}
        if not any(wanted.values()):
            raise UserError(f"no cell has {only!r} in its name")
    for part, cells in wanted.items():
        if not resume and only is None:
            results[part] = {}
        for name, measure in cells.items():
            if resume and name in results.get(part, {}):
                continue
            print(f"{part}: {name}", file=sys.stderr)
            results.setdefault(part, {})[name] = measure()
            write(results, out, quick, command)
    return write(results, out, quick, command)


def kept_results(path: Path, quick: bool) -> dict[str, dict[str, Any]]:
    """What an earlier run of the same kind left."""
    try:
        before = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return before["results"] if before.get("quick") == quick else {}


def write(results: dict[str, dict[str, Any]], out: Path, quick: bool, command: str) -> Path:
    """All three files; what people wrote about the results, in `speed.reading.md`, is the end of the page."""
    absent = rivals.missing_peers()
    remarks = ["Quick: too few rounds to mean anything."] if quick else []
    remarks += [f"{name} was not installed and is left out." for name in absent]
    made = {
        "command": command,
        "quick": quick,
        "machine": machine(),
        "versions": versions(),
        "remarks": remarks,
        "targets": report.targets(results),
        "results": results,
    }
    write_json(out / "speed.json", made)
    figure.draw(results, out / "speed.png")
    page = out / "speed.md"
    write_text_atomic(page, with_reading(report.page(made), page))
    return page


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


def _command(args: Any) -> str:
    every = chosen_parts(args.parts) == chosen_parts(",".join(LETTERS))
    words = ["make bench"] if every and not (args.quick or args.rounds or args.only) else [f"python -m {PROGRAM}"]
    words += [] if every else [f"--parts {args.parts}"]
    words += ["--quick"] * args.quick + ([f"--rounds {args.rounds}"] if args.rounds else [])
    return " ".join(words)
