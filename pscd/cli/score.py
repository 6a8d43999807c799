"""Write the energy of new rows: higher energy = more anomalous.

Examples:
  pscd score runs/my new.csv --id name --out scores.csv
  pscd score runs/mine pictures/ --by complexity --out scores.csv
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pscd.cli.detect import check_ids, is_detector, score_rows
from pscd.cli.flags import Extend, Parser, add_machine, add_out, add_run, parse_names
from pscd.cli.images import add_strangeness, check_strangeness, score_images
from pscd.cli.output import check_out, say, write
from pscd.cli.reading import ARRAYS, FILES, add_reading_flags, load_model, reading_options
from pscd.cli.scoring import in_words, scorable, score_by_model
from pscd.cli.streams import OUTPUTS, source_of
from pscd.errors import UserError


def add_flags(parser: Parser) -> None:
    """Add the flags of `pscd score`.

    Args:
        parser: the command's parser.
    """
    add_run(parser)
    parser.add_argument(
        "file",
        type=Path,
        help=f"rows to score ({FILES}), or a folder of Parquet files; for an image model also a folder of pictures",
    )
    parser.add_argument(
        "--id", action=Extend, type=parse_names, default=(), help="columns to carry over, such as a row's name (a,b)"
    )
    parser.add_argument("--log-density", action="store_true", help="write the log density of every row too, in nats")
    parser.add_argument(
        "--reasons",
        choices=("all", "outliers", "none"),
        help="which rows a detector gives reasons for (default: all; of a large table the outliers)",
    )
    add_out(
        parser, ".csv, .parquet or .npy file for the energies in the order of the rows, or a folder of Parquet files"
    )
    add_strangeness(parser)
    add_reading_flags(parser)
    add_machine(parser)


def run(args: argparse.Namespace) -> None:
    """Write the energy of every row of a file; the higher, the stranger.

    Args:
        args: the flags.

    Raises:
        UserError: the file does not fit the run, or cannot be read or written.
    """
    import numpy as np

    from pscd.data import rows_of
    from pscd.files import suffix_of
    from pscd.tables import ReadOptions, open_table

    check_out(args.out, args.force, OUTPUTS)
    check_ids(args.id)
    named = suffix_of(args.file) not in ARRAYS
    if is_detector(args.run):
        check_strangeness(args, of_images=False)
        score_rows(args, in_blocks=_in_blocks(args))
        return
    model = load_model(args.run, args.device)
    check_strangeness(args, of_images=model.is_image)
    if model.is_image and (args.file.is_dir() or args.by not in (None, "energy")):
        score_images(args, model)
        return
    source = source_of(args, args.file, always=_in_blocks(args))
    if source is not None:
        score_by_model(args, model, source, args.out)
        return
    if model.is_image:
        score_images(args, model)
        return
    try:
        table = open_table(args.file, ReadOptions(**reading_options(args)))
        x = rows_of(table, model.columns if named else None, args.id)
        if x.isnan().any():
            raise UserError(f"{args.file}: has missing values")
        ids = {name: table.frame()[name].fillna("").tolist() for name in args.id}
    except UserError:
        # In blocks a row with a bad cell is marked and counted, and the others are scored.
        source = scorable(args, model)
        if source is None:
            raise
        score_by_model(args, model, source, args.out)
        return
    _check_width(x.shape[1:], model.shape, args)
    energy = model.energy(x).numpy()
    columns: dict[str, Any] = {"row": np.arange(1, len(energy) + 1), **ids, "energy": energy}
    if args.log_density:
        columns["log_density"] = model.log_density(x).numpy()
        warning = model.log_z().warning
        if warning is not None:
            say(f"warning: {warning}")
    write(args.out, columns["log_density"] if args.log_density else energy, columns)
    say(f"{len(energy)} rows scored: {args.out}")


def _in_blocks(args: argparse.Namespace) -> bool:
    """Whether even a small file is read in blocks, since only then it can be done."""
    return not args.out.suffix or args.reasons in ("outliers", "none")


def _check_width(found: Sequence[int], wanted: Sequence[int], args: argparse.Namespace) -> None:
    if tuple(found) != tuple(wanted):
        raise UserError(f"{args.file}: {in_words(found)} a row, but {args.run} was trained on {in_words(wanted)}")
