"""Which modules and functions of pscd a call goes through: `python scripts/trace_walk.py [fit|train|detect]`.

Runs `pscd.fit`, `pscd train my.csv` and `pscd detect my.csv` on a small table with few updates, and prints the modules
in the order in which they are entered, the functions of each, and how often the file is opened, read and encoded.
docs/architecture.md is written from this output.
"""

import argparse
import contextlib
import io
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np

PACKAGE = Path(__file__).parents[1] / "pscd"
N_ROWS, N_UPDATES = 300, 20
COMPREHENSIONS = {"<lambda>", "<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>"}
CO_OPTIMIZED = 1  # set in the code of functions, not in that of modules and class bodies, which run on import


@dataclass
class Walk:
    """What one call entered: calls by module and function in the order of first entry, and openings of the table."""

    calls: Counter[tuple[str, str]] = field(default_factory=Counter)
    openings: int = 0

    def modules(self) -> dict[str, list[str]]:
        """The functions that were entered, by module."""
        entered: dict[str, list[str]] = {}
        for module, function in self.calls:
            entered.setdefault(module, []).append(function)
        return entered

    def count(self, module: str, function: str) -> int:
        """How often a function was called."""
        return self.calls[module, function]


def trace(call: Callable[[], Any], table: Path | None = None) -> Walk:
    """Run `call` and record the functions of pscd that it enters, and how often it opens `table`."""
    walk = Walk()
    first: dict[CodeType, int] = {}  # where a function is entered: a generator is entered again at every value
    prefix = f"{PACKAGE}{os.sep}"

    def profile(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or code.co_name in COMPREHENSIONS or not code.co_flags & CO_OPTIMIZED:
            return
        if code.co_filename.startswith(prefix):
            if first.setdefault(code, frame.f_lasti) != frame.f_lasti:
                return
            module = code.co_filename[len(prefix) :].removesuffix(".py").replace(os.sep, ".")
            walk.calls[module.removesuffix(".__init__"), code.co_qualname] += 1

    def audit(event: str, args: tuple[Any, ...]) -> None:
        if event == "open" and active and table is not None and str(args[0]) == str(table):
            walk.openings += 1

    active = True
    sys.addaudithook(audit)
    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
        active = False
    return walk


def write_table(path: Path, n: int = N_ROWS) -> None:
    """A table of numbers, one column of text and a few missing values."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 3)).round(3)
    lines = [f"{a},{b},{c},{'red' if a > 0 else 'blue'}" for a, b, c in x]
    lines[5] = f"{x[5, 0]},,{x[5, 2]},red"
    path.write_text("\n".join(["a,b,c,colour", *lines]) + "\n")


def walks(folder: Path) -> Iterator[tuple[str, Callable[[], Any], Path | None]]:
    """The calls that are traced: name, call, the table that it reads."""
    from pscd.cli.main import main

    table = folder / "my.csv"
    write_table(table)

    def fit() -> None:
        import pscd

        pscd.fit(np.random.default_rng(0).normal(size=(N_ROWS, 3)), updates=N_UPDATES, seed=0)

    def command(*words: str) -> Callable[[], None]:
        def run() -> None:
            if code := main(words):
                raise SystemExit(code)

        return run

    updates = ("--updates", str(N_UPDATES))
    yield "fit", fit, None
    yield "train", command("train", str(table), *updates, "--out", str(folder / "run")), table
    yield "detect", command("detect", str(table), *updates, "--out", str(folder / "found")), table


def main() -> None:
    """Print the walks that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", nargs="*", help="fit, train, detect (default: all)")
    parser.add_argument("--functions", action="store_true", help="list the functions of each module")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name, call, table in walks(Path(folder)):
            if args.name and name not in args.name:
                continue
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as errors:
                try:
                    walk = trace(call, table)
                except SystemExit:
                    sys.exit(f"{name}: {errors.getvalue()}")
            modules = walk.modules()
            about = "" if table is None else f"; the table is opened {walk.openings} times"
            print(f"{name}: {len(modules)} modules, {len(walk.calls)} functions{about}")
            for module, functions in modules.items():
                names = ", ".join(dict.fromkeys(f.split(".<locals>")[0] for f in functions))
                print(f"  {module} ({len(functions)})" + (f": {names}" if args.functions else ""))


if __name__ == "__main__":
    main()
