"""List the wrong and missing cells of a table, and write a repaired copy where asked.

Examples:
  pscd clean my.csv
  pscd clean my.csv --repair --fill --out clean.csv
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pscd.cli.cells import count_gaps, group_cells, merge_groups, print_gaps, print_groups, write_cells
from pscd.cli.detect import (
    add_learning_flags,
    fit_detector,
    is_detector,
    is_nameless,
    read_for,
)
from pscd.cli.flags import Parser, share
from pscd.cli.learnt import n_learnt
from pscd.cli.output import say
from pscd.cli.reading import ARRAYS, FILES, add_reading_flags, notes_of, read_args, tell_notes
from pscd.cli.streams import source_of
from pscd.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

    from pscd.detector.estimator import EnergyDetector

BLOCK_ROWS = 32_768  # of a large table: a cell takes far more memory than a score
NOTHING_CHANGED = "nothing was changed; add --repair, --fill or both, and --out for the mended copy"


def add_flags(parser: Parser) -> None:
    """Add the flags of `pscd clean`.

    Args:
        parser: the command's parser.
    """
    parser.add_argument(
        "file", type=Path, metavar="FILE", help=f"a table as it comes ({FILES}), or a folder of Parquet files"
    )
    parser.add_argument("--out", type=Path, help="file for the mended copy (default: nothing is mended, only told)")
    parser.add_argument("--repair", action="store_true", help="put what should stand there into cells that look wrong")
    parser.add_argument("--fill", action="store_true", help="put what is to be expected into missing cells")
    parser.add_argument(
        "--cells", type=Path, help="file for the list of cells (default: FILE.cells.csv, or beside --out)"
    )
    parser.add_argument(
        "--confidence", type=share, default=0.5, help="least probability that a listed cell is wrong (default: 0.5)"
    )
    parser.add_argument(
        "--run", type=Path, help="a detector that was fitted before (default: one is fitted to the table)"
    )
    parser.add_argument("--force", action="store_true", help="replace files that are there")
    add_learning_flags(parser)
    add_reading_flags(parser)


def run(args: argparse.Namespace) -> None:
    """List the wrong and missing cells of a table, and write a copy in which they are mended.

    Args:
        args: the flags.

    Raises:
        UserError: the flags contradict each other, or a file cannot be read or written.
    """
    cells = args.cells or _beside(args.out or args.file)
    _check(args, cells)
    detector = _loaded(args.run) if args.run is not None else None
    always = detector is not None and is_nameless(detector)
    source = source_of(args, args.file, always=always, most=BLOCK_ROWS)
    if source is not None:
        from pscd.cli.cleaning import clean_in_blocks

        clean_in_blocks(args, source, detector, cells)
        return
    if detector is None:
        frame = read_args(args)
        detector = fit_detector(args, frame, args.file)
    else:
        frame = read_for(detector, args)
    tell_notes(notes_of(frame))
    found = detector.cells(frame[detector.columns], confidence=args.confidence)
    wrong, gaps = (found[found["problem"] == what] for what in ("wrong", "missing"))
    print_groups(merge_groups(group_cells(wrong)), len(wrong), len(frame) * n_learnt(detector))
    print_gaps(count_gaps(gaps))
    changed = found[found["problem"].isin(asked(args))]
    if args.out is not None:  # first, so that a copy that cannot be made leaves no list behind
        _write_mended(args, frame, changed)
    write_cells(found, cells)
    say(f"cells: {cells}")
    if args.out is not None:
        say(f"{len(changed):,} cells changed: {args.out}")
    elif len(found):
        say(NOTHING_CHANGED)


def asked(args: argparse.Namespace) -> list[str]:
    """What is to be mended, as `EnergyDetector.cells` calls it.

    Args:
        args: the flags.

    Returns:
        "wrong", "missing", both or neither.
    """
    return ["wrong"] * args.repair + ["missing"] * args.fill


def _loaded(run: Path) -> "EnergyDetector":
    from pscd.detector.estimator import EnergyDetector

    if not is_detector(run):
        raise UserError(f"{run}: holds no fitted detector; pscd detect makes one")
    return EnergyDetector.load(run)


def _check(args: argparse.Namespace, cells: Path) -> None:
    """Find out that something cannot be written before any work is done for it."""
    from pscd.files import suffix_of

    if (args.repair or args.fill) != (args.out is not None):
        raise UserError("--out goes with --repair, --fill or both: say what to mend, and where to write it")
    if args.out is not None and args.out.resolve() == args.file.resolve():
        raise UserError(f"{args.out} is the table itself; choose another --out, nothing is overwritten")
    if not args.file.exists():
        raise UserError(f"{args.file}: no such file")
    if args.out is not None and suffix_of(args.out) not in (endings := _endings(args.file)):
        raise UserError(f"{args.out}: the name must end in {' or '.join(endings)}")
    if suffix_of(cells) != ".csv":
        raise UserError(f"{cells}: the name must end in .csv")
    for path in (cells, args.out):
        if path is not None and path.exists() and not args.force:
            raise UserError(f"{path} exists; choose another name, or add --force to replace it")


def _endings(path: Path) -> tuple[str, ...]:
    """How the name of a copy of a file may end."""
    from pscd.files import suffix_of
    from pscd.tables import TEXT_SUFFIXES

    if is_text(path):
        return (*TEXT_SUFFIXES, ".parquet")
    return (".csv", ".parquet", ".npy") if suffix_of(path) in ARRAYS else (".csv", ".parquet")


def is_text(path: Path) -> bool:
    """Whether the name of a file says that it is a text file, gzipped or not.

    Args:
        path: the file.

    Returns:
        True for `.csv` and its kin.
    """
    from pscd.files import suffix_of
    from pscd.tables import TEXT_SUFFIXES

    return suffix_of(path) in TEXT_SUFFIXES


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.name.split('.')[0]}.cells.csv")


def _write_mended(args: argparse.Namespace, frame: "pd.DataFrame", changed: "pd.DataFrame") -> None:
    """A copy of the table: byte for byte where it is text, otherwise with its types."""
    import numpy as np

    from pscd.files import replacing, suffix_of, writing_to
    from pscd.tables.write import write_like

    if is_text(args.file) and is_text(args.out):
        texts = {
            (int(row), str(name)): str(new)
            for row, name, new in zip(changed["row"], changed["column"], changed["suggestion"], strict=True)
        }
        write_like(args.file, texts, args.out, **layout_flags(args))
        return
    made = mended(frame, changed)
    with writing_to(args.out), replacing(args.out) as temporary:
        if suffix_of(args.out) == ".parquet":
            made.to_parquet(temporary)
        elif suffix_of(args.out) == ".npy":
            with temporary.open("wb") as file:
                np.save(file, made.to_numpy())
        else:
            made.to_csv(temporary, index=False)


def layout_flags(args: argparse.Namespace) -> dict[str, Any]:
    """What the flags say about the layout of a text file.

    Args:
        args: the flags.

    Returns:
        Options of `write_like`.
    """
    return {name: getattr(args, name) for name in ("delimiter", "encoding", "header")}


def mended(frame: "pd.DataFrame", changed: "pd.DataFrame") -> "pd.DataFrame":
    """A table with some cells as they should be.

    Args:
        frame: the table.
        changed: the cells, as `EnergyDetector.cells` lists them.

    Returns:
        A copy; whole numbers that are mended to a value with decimals become floats.
    """
    made = frame.copy()
    for name, cells in changed.groupby("column", sort=False):
        values = made[str(name)].copy()
        new = cells["suggestion"].tolist()
        if values.dtype.kind in "iu" and any(value != int(value) for value in new):
            values = values.astype(float)
        values.iloc[cells["row"].to_numpy()] = new
        made[str(name)] = values
    return made
