"""The entry point: which commands there are, and how a mistake is reported.

argparse and not a generator of command lines: objective and sampler are chosen by a word, and every mistake is
reported in one line.
"""

import argparse
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pscd.cli import clean, detect, images, look, report, runs, tables, train
from pscd.cli.common import Command, Parser, add_command, is_first_process
from pscd.errors import Diverged, LostProcess, UserError
from pscd.extensions import import_module
from pscd.version import __version__

DESCRIPTION = """\
Train energy-based models on data that are not clean, then find strange rows and draw new ones.

  pscd look my.csv                              your own table as it comes: what its columns are taken for
  pscd detect my.csv --out runs/my              which rows are strange and which cells are wrong, and why
  pscd clean my.csv --repair --out clean.csv    a copy in which wrong cells are mended
  pscd score runs/my new.csv --out scores.csv   new rows: the higher the energy, the stranger the row
  pscd sample runs/my --n 1000 --out new.csv    rows like yours, without the junk
  pscd report runs/my                           everything about it as one HTML file
  pscd train moon --gamma 1 --out runs/moon     a toy, to see it work
  pscd train my.csv --out runs/full             a density of your own table, and samples; every setting is a flag
"""
COMMANDS: dict[str, Command] = {
    "look": look.LOOK,
    "detect": detect.DETECT,
    "clean": clean.CLEAN,
    "score": tables.SCORE,
    "train": train.TRAIN,
    "sample": runs.SAMPLE,
    "evaluate": runs.EVALUATE,
    "plot": runs.PLOT,
    "report": report.REPORT,
    "strip": images.STRIP,
    "mend": images.MEND,
}
# What the same command does after it was stopped, where it does not start again.
GOES_ON = {"train": "the same command continues it"}
GOES_ON |= dict.fromkeys(("score", "sample"), "of many rows, the same command goes on with it, of few it starts again")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: the words after `pscd`; None: those of this process.

    Returns:
        The exit code: 0 success, 1 training diverged, 2 bad input, 3 one of several processes is lost, 130
            stopped by the user.
    """
    argv = list(sys.argv[1:] if argv is None else argv)
    try:
        args = build_parser(argv).parse_args(argv)
        _prepare(args)
        with _warnings_as_notes():
            args.command(args)
        sys.stdout.flush()  # a full disk is told here, not by the interpreter at its end
    except (UserError, Diverged) as error:
        return _tell(str(error), 2 if isinstance(error, UserError) else 1)
    except LostProcess as error:  # the first process may be the one that is lost: each tells
        print(f"pscd: {error}", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        print(f"pscd: stopped; {GOES_ON.get(argv[0], 'the same command starts again')}", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (OSError, MemoryError, RuntimeError, ImportError, SystemError) as error:
        return _tell(_what_is_missing(error), 2)
    return 0


@contextmanager
def _warnings_as_notes() -> Iterator[None]:
    """Print what the library warns of in one line, without the place in the code; other warnings as ever."""
    with warnings.catch_warnings():
        show = warnings.showwarning

        def note(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
            if category is not UserWarning:
                show(message, category, *where, **more)
            elif is_first_process():
                print(f"note: {message}", file=sys.stderr)

        warnings.showwarning = note
        yield


def _tell(message: str, code: int) -> int:
    """Print a message, once if there are several processes; returns the exit code."""
    if is_first_process():
        print(f"pscd: {message}", file=sys.stderr)
    return code


def _what_is_missing(error: Exception) -> str:
    """What the machine could not give: disk, file handles or memory; a mistake of this library's own is raised."""
    if isinstance(error, OSError):
        return f"{error.filename or 'this machine'}: {error.strerror or error}"
    # torch has a class for the memory of a GPU, and for that of the machine only words.
    words = (
        *("MemoryError", "allocate memory", "not enough memory", "bad_alloc", "start new thread", "OutOfMemory"),
        "failed to map segment",  # of a library that is imported
        "error return without exception set",  # the interpreter itself, in the middle of an import
    )
    if any(word in f"{type(error).__name__}: {error}" for word in words):
        return "there is not enough memory for this; what was kept before is still there"
    raise error


def build_parser(argv: Sequence[str]) -> Parser:
    """The parser for these words. Only the command they name gets its flags, so that the others cost nothing.

    Args:
        argv: the words after `pscd`. The first is the command: no flag before it takes a value.

    Returns:
        The parser.

    Raises:
        UserError: `train` is asked for an objective or a sampler that there is not.
    """
    parser = Parser("pscd", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", action="version", version=f"pscd {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        inner = add_command(commands, name, command)
        if argv[:1] == [name]:
            inner.words = argv[1:]
            command.add(inner)
    return parser


def _prepare(args: argparse.Namespace) -> None:
    """Do what `--import` and `--threads` ask for."""
    for module in getattr(args, "imports", ()):
        import_module(module)
    threads = getattr(args, "threads", None)
    if threads is not None:
        import torch

        if threads < 1:
            raise UserError(f"--threads must be at least 1, got {threads}")
        torch.set_num_threads(threads)
