"""What the commands share: one-line errors, folders to read, files to write."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch

from pscd.errors import UserError


class Parser(argparse.ArgumentParser):
    """Tells a mistake in one line."""

    def error(self, message: str) -> NoReturn:
        """One line and exit code 2."""
        print(f"{self.prog}: {message} (see {self.prog} --help)", file=sys.stderr)
        sys.exit(2)


def command(commands: Any, name: str, run: Callable[[argparse.Namespace], None], help: str) -> Parser:
    """A subcommand that calls `run` with its arguments."""
    parser = commands.add_parser(name, help=help, description=help, formatter_class=argparse.HelpFormatter)
    parser.set_defaults(command=run)
    return parser


def add_run(parser: Parser) -> None:
    """The folder of a run, and where to compute."""
    parser.add_argument("run", type=Path, help="run folder that train or fit wrote")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1 ... (default: cpu)")
    parser.add_argument("--threads", type=int, help="processor threads (default: what torch chooses)")


def add_out(parser: Parser, help: str) -> None:
    """The file to write."""
    parser.add_argument("--out", type=Path, required=True, help=help)
    parser.add_argument("--force", action="store_true", help="replace the file if it is there")


def write(path: Path, array: np.ndarray, columns: dict[str, Any]) -> None:
    """The array as `.npy`, or the columns as `.csv`, whichever the name asks for."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".npy":
            np.save(path, array)
        else:
            import pandas as pd

            pd.DataFrame(columns).to_csv(path, index=False, float_format="%.9g")
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from None


def check_out(path: Path, force: bool, endings: Sequence[str] = (".npy", ".csv")) -> None:
    """Find out that a file cannot be written before any work is done for it."""
    if path.suffix not in endings:
        raise UserError(f"{path}: the name must end in {' or '.join(endings)}")
    if path.exists() and not force:
        raise UserError(f"{path} exists; choose another --out, or add --force to replace it")


def parse_names(text: str) -> tuple[str, ...]:
    """Names from a flag: `a,b,c`."""
    return tuple(part.strip() for part in text.split(","))


def in_words(shape: Sequence[int]) -> str:
    """The shape of a row."""
    if len(shape) == 1:
        return "1 number" if shape[0] == 1 else f"{shape[0]} numbers"
    return " x ".join(map(str, shape))


def device(name: str) -> torch.device:
    """The device of that name, if it can be used here."""
    try:
        found = torch.device(name)
        torch.empty(1, device=found).item()
    except (RuntimeError, AssertionError, NotImplementedError):
        raise UserError(f"device {name!r} is not available here; cpu always is") from None
    return found
