"""`python -m studies large`: measure, and write large.json and large.md.

The table is made in a temporary folder and removed afterwards. Parts that are not asked for stay as they are in the
file.
"""

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pscd.cli.flags import Parser, parse_names
from pscd.errors import UserError
from pscd.files import write_json, write_text_atomic
from pscd.version import __version__
from studies.engine.experiment import with_reading
from studies.large import cleaning, reading, scoring, training
from studies.speed.program import machine

PROGRAM = "studies large"
N_ROWS, QUICK_ROWS = 50_000_000, 300_000
# Each part has `measure(folder, n_rows)`, plain values, and `section(values)`, its lines of the page.
PARTS: dict[str, Any] = {"training": training, "reading": reading, "scoring": scoring, "cleaning": cleaning}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; returns 0 if it went well, 2 for bad input."""
    args = build_parser().parse_args(argv)
    out = args.out or Path("results/quick" if args.quick else "docs/results")
    rows = args.rows or (QUICK_ROWS if args.quick else N_ROWS)
    try:
        parts = chosen_parts(args.parts)
        with tempfile.TemporaryDirectory(prefix="pscd-large-", dir=args.folder) as made:
            page = benchmark(parts, Path(made), out, rows)
    except UserError as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return 2
    print(page.read_text())
    print(f"page: {page}")
    return 0


def build_parser() -> Parser:
    """The flags."""
    parser = Parser(f"python -m {PROGRAM}", description="Training, scoring and cleaning of a table larger than memory.")
    parser.add_argument("--parts", default=",".join(PARTS), help=f"of {', '.join(PARTS)} (default: all)")
    parser.add_argument("--rows", type=int, help=f"of the table (default: {N_ROWS:,}; {QUICK_ROWS:,} with --quick)")
    parser.add_argument("--quick", action="store_true", help="a small table, to see that it works")
    parser.add_argument("--folder", type=Path, help="where to make the table, 6 GB (default: the system's for such)")
    parser.add_argument("--out", type=Path, help="folder (default: docs/results, results/quick with --quick)")
    return parser


def chosen_parts(text: str) -> list[str]:
    """Parts by their names, each once."""
    names = parse_names(text)
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        raise UserError(f"unknown part {unknown[0]!r}; there are: {', '.join(PARTS)}")
    return list(dict.fromkeys(names))


def benchmark(parts: Sequence[str], folder: Path, out: Path, n_rows: int) -> Path:
    """Measure the parts and write both files; returns the page."""
    out.mkdir(parents=True, exist_ok=True)
    results = kept_results(out / "large.json", n_rows)
    for name in parts:
        print(f"part {name}", file=sys.stderr)
        results[name] = PARTS[name].measure(folder, n_rows) | {"machine": machine(), "load": os.getloadavg()[0]}
        write(results, out, n_rows)
    return out / "large.md"


def kept_results(path: Path, n_rows: int) -> dict[str, Any]:
    """What an earlier run on as many rows left."""
    try:
        before = json.loads(path.read_text())
        return before["results"] if before["n_rows"] == n_rows else {}
    except (OSError, ValueError, KeyError):
        return {}


def write(results: dict[str, Any], out: Path, n_rows: int) -> None:
    """The numbers, and the page with what people wrote about them, in `large.reading.md`, at its end."""
    write_json(out / "large.json", {"n_rows": n_rows, "pscd": __version__, "results": results})
    lines = [
        "# Tables larger than memory",
        "",
        f"{n_rows:,} rows of ten columns in float32, {4 * 10 * n_rows / 1e9:.2g} GB: four groups, and a twentieth of "
        f"junk. Written by `python -m {PROGRAM}`; every measurement runs in a process of its own.",
        "",
    ]
    for name, part in PARTS.items():
        if name in results:
            lines += [*part.section(results[name]), "", f"*{results[name]['machine']}*", ""]
    page = out / "large.md"
    write_text_atomic(page, with_reading("\n".join(lines).rstrip() + "\n", page))
