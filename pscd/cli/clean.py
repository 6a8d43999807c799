"""`pscd clean`: which cells of a table are wrong or missing, and a copy in which they are mended where asked."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pscd.cli.cells import cell_words, write_cells
from pscd.cli.common import Command, Parser, add_force
from pscd.cli.detect import (
    add_learning_flags,
    fit_detector,
    is_detector,
    n_learnt,
    read_for,
)
from pscd.cli.reading import FILES, add_reading_flags, read_args
from pscd.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

    from pscd.detector.estimator import EnergyDetector

SHIFTED = "shifted"  # how the mistake of a whole row begins
SHOWN = 12  # lines of the summary


def add_clean(parser: Parser) -> None:
    """Add the flags of `pscd clean`.

    Args:
        parser: the command's parser.
    """
    parser.add_argument("file", type=Path, metavar="FILE", help=f"a table as it comes ({FILES})")
    parser.add_argument("--out", type=Path, help="file for the mended copy (default: nothing is mended, only told)")
    parser.add_argument("--repair", action="store_true", help="put what should stand there into cells that look wrong")
    parser.add_argument("--fill", action="store_true", help="put what is to be expected into missing cells")
    parser.add_argument(
        "--cells", type=Path, help="file for the list of cells (default: FILE.cells.csv, or beside --out)"
    )
    parser.add_argument(
        "--false-alarms", type=_share, default=0.001, help="share of right cells that may be called wrong (.001)"
    )
    parser.add_argument(
        "--run", type=Path, help="a detector that was fitted before (default: one is fitted to the table)"
    )
    add_force(parser, "replace files that are there")
    add_learning_flags(parser)
    add_reading_flags(parser)


def run_clean(args: argparse.Namespace) -> None:
    """List the wrong and missing cells of a table, and write a copy in which they are mended.

    Args:
        args: the flags.

    Raises:
        UserError: the flags contradict each other, or a file cannot be read or written.
    """
    from pscd.detector.estimator import EnergyDetector

    _check(args)
    cells = args.cells or _beside(args.out or args.file)
    for path in (cells, args.out):
        if path is not None and path.exists() and not args.force:
            raise UserError(f"{path} exists; choose another name, or add --force to replace it")
    if args.run is None:
        frame = read_args(args)
        detector = fit_detector(args, frame, args.file)
    else:
        if not is_detector(args.run):
            raise UserError(f"{args.run}: holds no fitted detector; pscd detect makes one")
        detector = EnergyDetector.load(args.run)
        frame = read_for(detector, args)
    rows = frame[detector.feature_names_in_] if detector.reader_.schema is None else frame
    wrong = detector.suspects(rows, false_alarms=args.false_alarms)
    gaps = detector.gaps(rows)
    _print_wrong(detector, wrong, len(frame))
    _print_gaps(gaps)
    import pandas as pd

    listed = pd.concat([wrong.assign(what="wrong"), gaps.assign(what="missing")], ignore_index=True)
    write_cells(listed, cells)
    print(f"cells: {cells}")
    changed = pd.concat([part for part, asked in ((wrong, args.repair), (gaps, args.fill)) if asked] or [wrong[:0]])
    if args.out is None:
        if len(listed):
            print("nothing was changed; add --repair, --fill or both, and --out for the mended copy")
        return
    _write_mended(args, detector, rows, frame, changed)
    print(f"{len(changed):,} cells changed: {args.out}")


def _check(args: argparse.Namespace) -> None:
    if (args.repair or args.fill) != (args.out is not None):
        raise UserError("--out goes with --repair, --fill or both: say what to mend, and where to write it")
    if args.out is not None and args.out.resolve() == args.file.resolve():
        raise UserError(f"{args.out} is the table itself; choose another --out, nothing is overwritten")
    if not args.file.is_file():
        raise UserError(f"{args.file}: {'a folder, not a file' if args.file.is_dir() else 'no such file'}")


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.name.split('.')[0]}.cells.csv")


def _print_wrong(detector: "EnergyDetector", wrong: "pd.DataFrame", n_rows: int) -> None:
    """A summary on one screen: a mistake that explains several cells is told once."""
    n_cells = n_rows * n_learnt(detector)
    if not len(wrong):
        print(f"none of {n_cells:,} cells looks wrong")
        return
    print(f"{len(wrong):,} of {n_cells:,} cells look wrong:")
    groups: dict[tuple[str, str], list[dict[Any, Any]]] = {}
    for cell in wrong.to_dict("records"):
        mistake = cell["mistake"] if isinstance(cell["mistake"], str) else ""
        place = f"row {cell['row'] + 1}" if mistake.startswith(SHIFTED) else cell["column"]
        groups.setdefault((place, mistake), []).append(cell)
    ordered = sorted(groups.items(), key=lambda item: (item[0][1] == "", -len(item[1])))
    for (place, mistake), cells in ordered[:SHOWN]:
        if len(cells) == 1:
            print(f"  {cell_words(cells[0])}")
        else:
            what = f"{mistake}: " if mistake else ""
            print(f"  {len(cells):,} in {place}: {what}such as {cell_words(cells[0], why=False)}")
    if len(ordered) > SHOWN:
        print(f"  ... and {len(ordered) - SHOWN} more kinds")


def _print_gaps(gaps: "pd.DataFrame") -> None:
    if not len(gaps):
        print("no cell is missing")
        return
    counts = gaps["column"].value_counts()
    shown = ", ".join(f"{count:,} in {name}" for name, count in counts.head(6).items())
    print(f"{len(gaps):,} cells are missing: {shown}{', ...' if len(counts) > 6 else ''}")


def _write_mended(
    args: argparse.Namespace, detector: "EnergyDetector", rows: Any, frame: "pd.DataFrame", changed: "pd.DataFrame"
) -> None:
    """A copy of the table: byte for byte where it is text, otherwise with its types."""
    from pscd.files import replacing, suffix_of, writing_to
    from pscd.frames.reading import TEXT_SUFFIXES
    from pscd.frames.writing import write_like

    cells = changed.to_dict("records")
    texts = {(int(cell["row"]), str(cell["column"])): str(cell["suggested"]) for cell in cells}
    if suffix_of(args.file) in TEXT_SUFFIXES and suffix_of(args.out) in TEXT_SUFFIXES:
        told = {name: getattr(args, name) for name in ("delimiter", "encoding", "header")}
        write_like(args.file, texts, args.out, **told)
        return
    made = frame.copy()
    for cell in cells:
        name, value = cell["column"], cell["suggested"]
        if made[name].dtype.kind in "iu" and value != int(value):
            made[name] = made[name].astype(float)
        made.loc[made.index[cell["row"]], name] = value
    with writing_to(args.out), replacing(args.out) as temporary:
        if suffix_of(args.out) == ".parquet":
            made.to_parquet(temporary)
        elif suffix_of(args.out) == ".csv":
            made.to_csv(temporary, index=False)
        else:
            raise UserError(f"{args.out}: the name must end in .csv or .parquet")


def _share(text: str) -> float:
    share = float(text)
    if not 0 < share < 1:
        raise argparse.ArgumentTypeError(f"must be between 0 and 1, got {text}")
    return share


_share.__name__ = "share"  # argparse names it in its message

CLEAN = Command(
    "list the wrong and missing cells of a table, and mend them where asked",
    add_clean,
    run_clean,
    "  pscd clean my.csv                                        only say what is wrong\n"
    "  pscd clean my.csv --repair --out mended.csv              wrong cells mended, every other byte as it was\n"
    "  pscd clean my.csv --repair --fill --out mended.csv       missing cells filled too\n"
    "  pscd clean new.csv --run runs/my --repair --out new2.csv  by a detector fitted before",
)
