"""What commands share to read: tables as their flags say, models, detectors, devices."""

import argparse
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from pscd.cli.flags import Extend, Parser, add_columns, add_ids, at_least, parse_kinds, parse_names
from pscd.cli.output import say
from pscd.errors import UserError

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import torch

    from pscd.detector.estimator import EnergyDetector
    from pscd.detector.reading import EncodedRows
    from pscd.model import Model
    from pscd.tables import ReadOptions, TableFile

FILES = ".csv, .tsv, .txt (also .gz), .parquet, .xlsx, .npy, .npz"
N_FIT = 100_000  # rows of a table that a detector learns from: more hardly change it, and take memory


def add_reading_flags(parser: Parser, *, kinds: bool = True) -> None:
    """Add a flag for each of the `ReadOptions`, and `--as` where kinds of columns are inferred."""
    from pscd.tables import ReadOptions

    group = parser.add_argument_group("how the table is read (default: inferred)")
    if kinds:
        group.add_argument(
            "--as",
            dest="kinds",
            action=Extend,
            type=parse_kinds,
            default={},
            metavar="COLUMN=KIND,...",
            help="what columns are: number, integer, boolean, category, date, date:FORMAT or skip",
        )
    hints = get_type_hints(ReadOptions)
    for f in fields(ReadOptions):
        how: dict[str, Any] = {"metavar": "TEXT", "choices": get_args(get_args(hints[f.name])[0]) or None}
        if f.default == ():
            how = {"metavar": "A,B,...", "action": Extend, "type": parse_names}
        elif bool in get_args(hints[f.name]):
            how = {"action": argparse.BooleanOptionalAction}
        group.add_argument(f"--{f.name.replace('_', '-')}", default=f.default, help=f.metadata["help"], **how)


def read_options(args: argparse.Namespace) -> "ReadOptions":
    """What the flags state about the file."""
    from pscd.tables import ReadOptions

    return ReadOptions(**{f.name: getattr(args, f.name) for f in fields(ReadOptions)})


def open_file(args: argparse.Namespace, path: Path) -> "TableFile":
    """The table that a command was given, and a hint if it is a folder of pictures."""
    from pscd.tables import open_table

    if path.is_dir() and not any(path.rglob("*.parquet")):
        from pscd.data.pictures import all_pictures

        if all_pictures(path):
            hint = f"pscd detect {path} finds outliers among them, pscd train {path} learns to draw such pictures"
            raise UserError(f"{path}: a folder of pictures, not a table; {hint}")
        raise UserError(f"{path}: a folder without Parquet files; give one table")
    table = open_table(path, read_options(args))
    if table.shape is not None and len(table.shape) > 1:
        shape = " x ".join(map(str, table.shape))
        raise UserError(f"{path}: rows of {shape} numbers are no table; pscd train takes them")
    return table


def blocks_of(
    table: "TableFile", columns: Sequence[str] | None = None, *, most: int | None = None
) -> "tuple[int, Callable[[int], Iterator[pd.DataFrame]]]":
    """Rows of a block of a table, and its blocks from a number on; a table that fits into one is read once."""
    from pscd.tables.read import block_size

    if not table.is_large:
        frame = table.frame()
        size = len(frame) if most is None else most
        if size >= len(frame):
            return size, lambda first: iter([frame][first:])
        return size, lambda first: (frame[i : i + size] for i in range(first * size, len(frame), size))
    size = block_size(len(table.names))
    size = size if most is None else min(size, most)
    return size, lambda first: table.blocks(size, first * size, columns)


def say_notes(notes: Sequence[str]) -> None:
    """Print what was assumed about a file, and what is unusual about it."""
    for note in notes:
        say(f"note: {note}")


def add_learning_flags(parser: Parser) -> Any:
    """Add the flags that say what a detector learns; returns their group."""
    group = parser.add_argument_group("model")
    add_columns(group)
    add_ids(group)
    group.add_argument(
        "--gamma",
        type=float,
        default=0.5,
        help="robustness: 0 weights all rows alike, more outliers less (.5)",
    )
    group.add_argument("--updates", type=at_least(1), default=200, help="updates of the network (default: 200)")
    group.add_argument("--seed", type=at_least(0), default=0, help="the same seed gives the same result (default: 0)")
    return group


def check_columns(table: "TableFile", ids: Sequence[str], columns: Sequence[str] | None = None) -> None:
    """Refuse columns that a table does not have, or that are to be an id and modelled."""
    from pscd.tables.levels import listed

    if ids and table.shape is not None:
        raise UserError(f"{table.path}: has no column names, so none can be an id; leave --id out")
    absent = [name for name in (*(columns or ()), *ids) if name not in table.names]
    if absent:
        raise UserError(f"{table.path}: has no column {listed(absent)}; it has {listed(list(table.names))}")
    both = [name for name in columns or () if name in ids]
    if both:
        raise UserError(f"{table.path}: column {listed(both)} cannot be an id and be modelled")


def fit_detector(
    args: argparse.Namespace, table: "TableFile", **options: Any
) -> "tuple[EnergyDetector, pd.DataFrame, EncodedRows]":
    """Fit a detector to a table, or to a sample of a large one."""
    from pscd.data import check_enough

    check_columns(table, args.ids, args.columns)
    if table.is_large:
        say(f"drawing {min(N_FIT, table.n_rows_estimate):,} of about {table.n_rows_estimate:,} rows to learn from")
        frame = table.sample(N_FIT, seed=args.seed)
    else:
        frame = table.frame()
    check_enough(len(frame), table.path)
    skipped = [name for name in table.names if name in args.ids or name not in (args.columns or table.names)]
    kinds = {**args.kinds, **dict.fromkeys(skipped, "skip")}
    detector = make_detector(args, kinds=kinds or None, missing=args.missing, **options)
    try:
        rows = detector.read(frame)
        columns = rows.reader.schema.columns
        if not any(column.is_learnt for column in columns):
            why = "; ".join(f"{column.name}: {column.notes[0]}" for column in columns[:5])
            raise UserError(f"no column is left to learn from ({why})")
        return detector.fit(rows), frame, rows
    except ValueError as error:
        raise UserError(f"{table.path}: {error}") from None


def make_detector(args: argparse.Namespace, **options: Any) -> "EnergyDetector":
    """A detector with the settings of the flags, to be fitted."""
    from pscd.detector.estimator import EnergyDetector

    return EnergyDetector(gamma=args.gamma, updates=args.updates, random_state=args.seed, verbose=True, **options)


def detector_reader(detector: "EnergyDetector", table: "TableFile") -> "Callable[[pd.DataFrame], EncodedRows]":
    """What encodes a block of a table for a detector; refuses a table without its columns."""
    reader = detector.reader_for(table)
    # A detector of plain numbers takes the columns of a block as they come.
    return (lambda block: reader.read(block[reader.columns])) if detector.reader_.is_plain else reader.read


def numbers_reader(table: "TableFile", names: list[str]) -> "Callable[[pd.DataFrame], np.ndarray]":
    """What makes numbers of these columns of a block, NaN where a cell is missing, no number, infinite or too large."""
    import numpy as np
    import pandas as pd

    from pscd.tables import encode, look
    from pscd.tables.numbers import LARGEST

    _, blocks = blocks_of(table, names)
    first = next(blocks(0))[names]
    is_numeric = all(pd.api.types.is_numeric_dtype(first[name]) for name in names)
    schema = None if is_numeric else look(first, kinds=dict.fromkeys(names, "number"), options=table.options)

    def read(block: "pd.DataFrame") -> "np.ndarray":
        x = block[names].to_numpy(np.float64) if schema is None else encode(block[names], schema).x
        with np.errstate(invalid="ignore"):
            return np.where(np.abs(x) < LARGEST, x, np.nan)

    return read


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
    from pscd.runs import load_run

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        model = load_run(run, device=device(where))
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
