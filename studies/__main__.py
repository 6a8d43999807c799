"""`python -m studies` lists what can be reproduced; `python -m studies NAME` reproduces it."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from pscd.errors import Diverged, UserError
from studies.registry import Study, find, studies


def main(argv: Sequence[str] | None = None) -> int:
    """Run one study, or list them all; returns the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        if not words:
            for name, study in studies().items():
                print(f"{name:<24} {study.title} - {study.cost} on 2 cores")
            return 0
        if words[0] in ("-h", "--help"):
            print(f"{__doc__}\n\n`python -m studies NAME --help` lists the flags of a study.")
            return 0
        return run(words[0].replace("_", "-"), words[1:])
    except (UserError, Diverged) as error:
        print(f"studies: {error}", file=sys.stderr)
        return 2 if isinstance(error, UserError) else 1
    except KeyboardInterrupt:
        print("studies: stopped; the same command continues", file=sys.stderr)
        return 130


def run(name: str, words: Sequence[str]) -> int:
    """Run one study with the flags that follow its name, and print its page."""
    study = find(name)
    args = parser(name, study).parse_args(words)
    args.name = name
    if "out" in study.takes and args.out is None:
        args.out = Path("results/quick" if getattr(args, "quick", False) else "results")
    page = study.load().run(args)
    if isinstance(page, Path):
        print(page.read_text())
        print(f"page: {page}")
    return page if isinstance(page, int) else 0


class Parser(argparse.ArgumentParser):
    """A parser that reports a mistake in one line."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message} (see {self.prog} --help)")


def parser(name: str, study: Study) -> Parser:
    """The shared flags that a study takes, and its own."""
    made = Parser(f"python -m studies {name}", description=f"{study.title} ({study.cost} on 2 cores).")
    if "out" in study.takes:
        made.add_argument(
            "--out", type=Path, help="folder (default: results; results/quick with --quick); a stopped study resumes"
        )
    if "quick" in study.takes:
        made.add_argument("--quick", action="store_true", help="a small version that shows that the study works")
    if "seeds" in study.takes:
        made.add_argument("--seeds", type=positive, help="number of seeds (default: the study's own; 1 with --quick)")
    if "jobs" in study.takes:
        made.add_argument("--jobs", type=processes, default=-1, help="runs at a time (default: -1, one per core)")
    if "hours" in study.takes:
        made.add_argument("--hours", type=float, help="start no run after this time; the page says what is missing")
    if hasattr(module := study.load(), "flags"):
        module.flags(made)
    return made


def positive(text: str) -> int:
    """A whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return int(text)


def processes(text: str) -> int:
    """A number of processes; -1: one per core."""
    if text == "-1":
        return -1
    return positive(text)


if __name__ == "__main__":
    sys.exit(main())
