"""The flags that say how a table is read, for every command that takes a file of rows as they come."""

import argparse
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pscd.cli.flags import Extend, Parser, parse_kinds, parse_names
from pscd.cli.output import say
from pscd.errors import UserError

if TYPE_CHECKING:
    import torch

    from pscd.detector.estimator import EnergyDetector
    from pscd.model import Model
    from pscd.tables import Schema

ARRAYS = (".npy", ".npz")
FILES = ".csv, .tsv, .txt (also .gz), .parquet, .xlsx, .npy, .npz"


def add_reading_flags(parser: Parser) -> None:
    """Add the flags that say how a table is read.

    Args:
        parser: the command's parser.
    """
    group = parser.add_argument_group("how the table is read (all of it is found out unless you say so)")
    group.add_argument(
        "--as",
        dest="kinds",
        action=Extend,
        type=parse_kinds,
        default={},
        metavar="COLUMN=KIND,...",
        help="what columns are: number, integer, boolean, category, date, date:FORMAT or skip (age=number,zip=skip)",
    )
    group.add_argument(
        "--missing",
        action=Extend,
        type=parse_names,
        default=(),
        metavar="WORD,...",
        help="more spellings of a missing value, for all columns or one (-999,unknown or age=999), repeatable; known: "
        "empty, NA, N/A, nan, null, None, -, ?, .",
    )
    group.add_argument(
        "--delimiter", metavar="SIGN", help="between fields: one character, or tab, semicolon, space, bar"
    )
    group.add_argument("--decimal", choices=(".", ","), help="the decimal sign")
    group.add_argument("--thousands", metavar="SIGN", help="what separates thousands")
    group.add_argument("--encoding", metavar="NAME", help="of a text file: utf-8, utf-16, cp1252, latin-1 ...")
    group.add_argument("--sheet", metavar="NAME", help="of a workbook (default: the first)")
    names = group.add_mutually_exclusive_group()
    names.add_argument(
        "--header", dest="header", action="store_true", default=None, help="the first line has the names of the columns"
    )
    names.add_argument("--no-header", dest="header", action="store_false", help="the first line is a row")
    order = group.add_mutually_exclusive_group()
    order.add_argument(
        "--day-first", dest="day_first", action="store_true", default=None, help="1/2/2020 is in February"
    )
    order.add_argument("--month-first", dest="day_first", action="store_false", help="1/2/2020 is in January")


def read_args(args: argparse.Namespace, path: Path | None = None) -> Any:
    """The table that a command was given, read as its flags say.

    Args:
        args: the flags, those of `add_reading_flags` among them.
        path: the file; None: `args.file` or `args.data`.

    Returns:
        A data frame; columns of arrays are called x0, x1, ...

    Raises:
        UserError: the file cannot be read as a table.
    """
    from pscd.files import suffix_of
    from pscd.tables import as_frame, read_frame
    from pscd.tables.reading import about_unused

    path = path or getattr(args, "file", None) or args.data
    if suffix_of(path) in ARRAYS:
        from pscd.tables import read_array

        x = read_array(path)
        if x.ndim > 2:
            raise UserError(f"{path}: rows of {' x '.join(map(str, x.shape[1:]))} numbers are no table; use pscd train")
        frame = as_frame(x if x.ndim == 2 else x[:, None]).to_native()
        frame.attrs["pscd"] = {"notes": about_unused(suffix_of(path), reading_options(args))}
        return frame
    return read_frame(path, **reading_options(args))


def reading_options(args: argparse.Namespace) -> dict[str, Any]:
    """What the flags say about the file, by the names of the parameters of `read_frame`.

    Args:
        args: the flags.

    Returns:
        Options, None where nothing was said.
    """
    names = ("delimiter", "decimal", "thousands", "encoding", "missing", "sheet", "header", "day_first")
    return {name: getattr(args, name) for name in names}


def tell_notes(notes: Sequence[str]) -> None:
    """Print what is odd about a file, and what was assumed about it.

    Args:
        notes: of the table.
    """
    for note in notes:
        say(f"note: {note}")


def notes_of(frame: Any) -> Sequence[str]:
    """What `read_frame` found odd about a file.

    Args:
        frame: the table.

    Returns:
        Sentences.
    """
    notes: Sequence[str] = frame.attrs.get("pscd", {}).get("notes", ())
    return notes


def look_args(args: argparse.Namespace, frame: Any, ids: Sequence[str] = ()) -> "Schema":
    """What the columns of a table are, as its flags say.

    Args:
        args: the flags.
        frame: as `read_args` read it.
        ids: columns that name a row.

    Returns:
        The schema.
    """
    from pscd.tables import look

    return look(frame, kinds=args.kinds, missing=args.missing, ids=ids)


def device(name: str) -> "torch.device":
    """The device of that name, after a first number was computed on it."""
    import torch

    try:
        found = torch.device(name)
        torch.empty(1, device=found).item()
    except (RuntimeError, AssertionError, NotImplementedError):
        raise UserError(f"device {name!r} is not available here; cpu always is") from None
    return found


def load_model(run: Path, where: str) -> "Model":
    """The model of a run folder or file; warnings, such as that training was stopped, are printed as notes."""
    from pscd.runs import load

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        model = load(run, device=device(where))
    for warning in caught:
        say(f"note: {warning.message}")
    return model


def load_detector(run: Path) -> "EnergyDetector | None":
    """The detector of a run folder; None if it holds none."""
    from pscd.run_folder import RunFolder

    if not RunFolder(run).is_detector:
        return None
    from pscd.detector.estimator import EnergyDetector

    return EnergyDetector.load(run)
