"""The command `score`: the energy of new rows, by a trained model or a detector."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pscd.cli.common import Command, Parser, add_out, add_run, check_out, in_words, load_model, parse_names, write
from pscd.cli.detect import check_ids, is_detector, score_rows
from pscd.cli.images import score_folder
from pscd.cli.reading import ARRAYS, FILES, add_reading_flags
from pscd.errors import UserError


def add_score(parser: Parser) -> None:
    """Add the flags of `pscd score`.

    Args:
        parser: the command's parser.
    """
    add_run(parser)
    parser.add_argument(
        "file",
        type=Path,
        help=f"rows to score ({FILES}); for an image model also a folder of pictures",
    )
    parser.add_argument("--id", type=parse_names, default=(), help="columns to carry over, such as a row's name (a,b)")
    parser.add_argument("--log-density", action="store_true", help="write the log density of every row too, in nats")
    add_out(parser, ".csv or .npy file for the energies, in the order of the rows")
    add_reading_flags(parser)


def run_score(args: argparse.Namespace) -> None:
    """Write the energy of every row of a file; the higher, the stranger.

    Args:
        args: the flags.

    Raises:
        UserError: the file does not fit the run, or cannot be read or written.
    """
    import numpy as np

    from pscd.data import read_table
    from pscd.files import suffix_of

    check_out(args.out, args.force)
    check_ids(args.id)
    named = suffix_of(args.file) not in ARRAYS
    if is_detector(args.run):
        score_rows(args)
        return
    model = load_model(args.run, args.device)
    if model.is_image and args.file.is_dir():
        score_folder(model, args.file, args.out)
        return
    table = read_table(args.file, model.columns if named else None, args.id)
    _check_width(table.x.shape[1:], model.shape, args)
    energy = model.energies(table.x).numpy()
    columns: dict[str, Any] = {"row": np.arange(1, len(energy) + 1), **table.ids, "energy": energy}
    if args.log_density:
        columns["log_density"] = model.log_prob(table.x).numpy()
        warning = model.log_z().warning
        if warning is not None:
            print(f"warning: {warning}")
    write(args.out, columns["log_density"] if args.log_density else energy, columns)
    print(f"{len(energy)} rows scored: {args.out}")


def _check_width(found: Sequence[int], wanted: Sequence[int], args: argparse.Namespace) -> None:
    if tuple(found) != tuple(wanted):
        raise UserError(f"{args.file}: {in_words(found)} a row, but {args.run} was trained on {in_words(wanted)}")


SCORE = Command("write the energy of new rows: the higher, the stranger", add_score, run_score)
