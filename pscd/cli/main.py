"""The entry point: finds the command, and reports a mistake in one line."""

import argparse
import importlib
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pscd.cli.flags import Parser
from pscd.cli.output import is_first_process, say
from pscd.errors import Diverged, LostProcess, UserError
from pscd.extensions import NotImported, import_module
from pscd.version import __version__

# Each is the name of a module here: its docstring is the help of the command, `add_flags` and `run` do the rest.
COMMANDS = ("look", "detect", "clean", "score", "train", "sample", "report")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: the words after `pscd`; None: those of this process.

    Returns:
        The exit code: 0 success, 1 training diverged, 2 bad input, 3 one of several processes is lost, 130
            stopped by the user.
    """
    argv = list(sys.argv[1:] if argv is None else argv)
    _open_closed_streams()
    try:
        args = parser_for(argv[:1]).parse_args(argv[1:] if argv[:1] and argv[0] in COMMANDS else argv)
        _prepare(args)
        with _warnings_as_notes():
            args.run_command(args)
        sys.stdout.flush()  # a full disk is reported here, not by the interpreter at exit
    except (UserError, Diverged) as error:
        hint = f", with --import {error.module}" if isinstance(error, NotImported) else ""
        return _report(f"{error}{hint}", 2 if isinstance(error, UserError) else 1)
    except LostProcess as error:  # the first process may be the one that is lost: each reports
        say(f"pscd: {error}", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        say("pscd: stopped; the same command resumes what it has written in parts", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader, such as head, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (OSError, MemoryError, RuntimeError, ImportError, SystemError) as error:
        return _report(_what_is_missing(error), 2)
    return 0


def parser_for(words: Sequence[str]) -> Parser:
    """The parser of the command that the first word names; the one that lists the commands if it names none."""
    if words and words[0] in COMMANDS:
        command = importlib.import_module(f"pscd.cli.{words[0]}")
        parser = Parser(f"pscd {words[0]}", description=command.__doc__)
        command.add_flags(parser)
        parser.set_defaults(run_command=command.run)
        return parser
    parser = Parser("pscd", description="Train energy-based models on contaminated data, find outliers, draw samples.")
    parser.add_argument("--version", action="version", version=f"pscd {__version__}")
    parser.add_argument("command", choices=COMMANDS, metavar="COMMAND", help="pscd COMMAND --help explains each")
    if words and words[0] in ("-h", "--help"):
        modules = {name: importlib.import_module(f"pscd.cli.{name}") for name in COMMANDS}
        lines = (f"  {name:<8}{(module.__doc__ or '').splitlines()[0]}" for name, module in modules.items())
        parser.epilog = "\n".join(["commands:", *lines])
    return parser


@contextmanager
def _warnings_as_notes() -> Iterator[None]:
    """Print warnings of the library in one line, without the place in the code; other warnings as usual."""
    with warnings.catch_warnings():
        show = warnings.showwarning

        def note(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
            if category is not UserWarning:
                show(message, category, *where, **more)
            elif is_first_process():
                say(f"note: {message}", file=sys.stderr)

        warnings.showwarning = note
        yield


def _open_closed_streams() -> None:
    """Streams that were closed (`>&-`) lead nowhere: otherwise the next file opened would take their place."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 (until the process ends)


def _report(message: str, code: int) -> int:
    """Print a message, once if there are several processes; returns the exit code."""
    if is_first_process():
        say(f"pscd: {message}", file=sys.stderr)
    return code


def _what_is_missing(error: Exception) -> str:
    """What the machine could not give: disk, file handles or memory; a bug of this library is raised."""
    if isinstance(error, OSError):
        return f"{error.filename or 'this machine'}: {error.strerror or error}"
    # torch has a class for the memory of a GPU, and only a message for that of the machine.
    words = (
        *("MemoryError", "allocate memory", "not enough memory", "bad_alloc", "start new thread", "OutOfMemory"),
        "failed to map segment",  # of a library that is imported
        "error return without exception set",  # the interpreter itself, in the middle of an import
    )
    if any(word in f"{type(error).__name__}: {error}" for word in words):
        return "there is not enough memory; what was written before is kept"
    raise error


def _prepare(args: argparse.Namespace) -> None:
    """Do what `--import` and `--threads` ask for."""
    for module in getattr(args, "imports", ()):
        import_module(module)
    if getattr(args, "threads", None) is not None:
        import torch

        torch.set_num_threads(args.threads)
