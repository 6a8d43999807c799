"""Find the outlier rows and wrong cells of a table, or the outliers of a folder of pictures, and say why.

Examples:
  pscd detect my.csv --id name --out runs/my
  pscd detect holiday-pictures --out runs/pictures
"""

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pscd.cli.cells import cell_words, write_cells
from pscd.cli.flags import Extend, Parser, at_least, join_names, number_or_auto, parse_names
from pscd.cli.learnt import n_learnt, print_learnt
from pscd.cli.output import check_folder, check_out, say, write
from pscd.cli.pictures import detect_pictures, is_of_pictures, score_pictures
from pscd.cli.reading import FILES, add_reading_flags, device, notes_of, read_args, reading_options, tell_notes
from pscd.cli.streams import source_of
from pscd.errors import UserError
from pscd.run_folder import RunFolder

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from pscd.detector.estimator import EnergyDetector
    from pscd.detector.reading import Rows

COLUMNS_TOLD = 5  # that are left out, where nothing is left
STRANGEST = 10  # rows that are printed
WORST = 5  # cells that are printed
OWN_COLUMNS = ("row", "energy", "outlier", "because", "log_density")  # of the scores


def add_flags(parser: Parser) -> None:
    """Add the flags of `pscd detect`.

    Args:
        parser: the command's parser.
    """
    parser.add_argument(
        "data",
        type=Path,
        metavar="FILE",
        help=f"a table ({FILES}), a folder of Parquet files or a folder of pictures, junk included",
    )
    parser.add_argument("--out", type=Path, help="run folder (default: runs/NAME)")
    parser.add_argument("--force", action="store_true", help="replace a detector that is there")
    add_learning_flags(parser)
    parser.add_argument(
        "--contamination",
        type=number_or_auto,
        default="auto",
        help="share of the rows to call outliers, up to 0.5 (default: auto)",
    )
    parser.add_argument(
        "--rank",
        choices=("energy", "neighbours"),
        default="energy",
        help="rank rows by energy, or by the distance to neighbours, for tables of several groups (default: energy)",
    )
    add_reading_flags(parser)


def add_learning_flags(parser: Parser) -> None:
    """Add the flags that say what a detector learns from a table.

    Args:
        parser: the command's parser.
    """
    parser.add_argument(
        "--columns",
        type=parse_names,
        action=Extend,
        help="columns to learn from, by name (a,b,c; a name with a comma in double quotes; default: all but the ids)",
    )
    parser.add_argument(
        "--id",
        type=parse_names,
        action=Extend,
        default=(),
        help="columns that name a row and are not learnt from (a,b)",
    )
    parser.add_argument(
        "--gamma",
        type=float,
        default=0.5,
        help="robustness: 0 weights all rows alike, more gives odd rows less weight (default: 0.5)",
    )
    parser.add_argument("--updates", type=at_least(1), default=200, help="updates of the network (default: 200)")
    parser.add_argument("--seed", type=at_least(0), default=0, help="the same seed gives the same result (default: 0)")


def run(args: argparse.Namespace) -> None:
    """Learn what the rows of a table have in common, and report the strange ones.

    Args:
        args: the flags.

    Raises:
        UserError: the table or the folder is no good.
    """
    out = args.out or Path("runs") / args.data.name.split(".")[0]
    if RunFolder(out).is_detector and not args.force:
        scores = RunFolder(out).scores
        ids = f" --id {shlex.quote(join_names(args.id))}" if args.id else ""
        stopped = f"; to go on scoring: pscd score {out} {args.data}{ids} --out {scores}"
        hint = stopped if scores.with_name(f"{scores.name}.partial").is_dir() else ""
        raise UserError(f"{out} holds a detector; choose another --out, or add --force to replace it{hint}")
    if RunFolder(out).model.exists() or RunFolder(out).state.exists():
        raise UserError(f"{out} holds a run of pscd train; choose another --out")
    check_folder(out)
    if args.data.is_dir() and not any(args.data.glob("*.parquet")):
        detect_pictures(args, out)
        return
    check_ids(args.id)
    source = source_of(args, args.data)
    if source is not None:
        from pscd.cli.scoring import detect_in_blocks

        detect_in_blocks(args, source, out)
        return
    frame = read_args(args, args.data)
    detector = fit_detector(args, frame, args.data, contamination=args.contamination, rank=args.rank)
    save_detector(args, detector, out)
    print_learnt(detector, len(frame))
    tell_notes(notes_of(frame))
    report(detector, frame, args.data, out / "scores.csv", args.id, picture=out / "scores.png")
    _report_cells(detector, frame, out / "cells.csv")
    say(f"run: {out}")


def save_detector(args: argparse.Namespace, detector: "EnergyDetector", out: Path) -> None:
    """Keep a detector, and where its rows came from.

    Args:
        args: the flags.
        detector: the fitted detector.
        out: the run folder.

    Raises:
        UserError: the folder cannot be written to.
    """
    from pscd.files import write_json
    from pscd.tables import ReadOptions, open_table

    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot write to {out}: {error.strerror}") from None
    detector.save(out)
    reading = reading_options(args)
    source = {"data": str(args.data), "ids": args.id, "reading": reading}
    fingerprint = open_table(args.data, ReadOptions(**reading)).fingerprint()
    write_json(RunFolder(out).source, {**source, "fingerprint": fingerprint})


def fit_detector(
    args: argparse.Namespace, frame: Any, path: Path, *, contamination: float | str = "auto", rank: str = "energy"
) -> "EnergyDetector":
    """A detector fitted to a table as the flags say.

    Args:
        args: the flags.
        frame: the table.
        path: the file that it was read from.
        contamination: share of the rows to call outliers.
        rank: what rows are ranked by.

    Returns:
        The fitted detector.

    Raises:
        UserError: there is nothing to learn, or a column is not there.
    """
    from pscd.data import check_enough
    from pscd.detector.estimator import EnergyDetector

    check_enough(len(frame), path)
    detector = EnergyDetector(
        gamma=args.gamma,
        contamination=contamination,
        rank=rank,
        n_updates=args.updates,
        kinds=_kinds(args, list(frame.columns), path) or None,
        missing=args.missing,
        random_state=args.seed,
        verbose=True,
    )
    try:
        return detector.fit(frame)
    except ValueError as error:
        schema = detector.reader_.schema if hasattr(detector, "reader_") else None
        if schema is not None and not schema.learnt():
            why = "; ".join(f"{column.name}: {column.notes[0]}" for column in schema.columns[:COLUMNS_TOLD])
            raise UserError(f"{path}: no column is left to learn from ({why})") from None
        raise UserError(f"{path}: {error}") from None


def _kinds(args: argparse.Namespace, there: Sequence[str], path: Path) -> dict[str, str]:
    """What the flags say the columns are; ids, and columns that were not chosen, are left out."""
    from pscd.tables.levels import listed

    gone = [name for name in (*(args.columns or ()), *args.id) if name not in there]
    if gone:
        raise UserError(f"{path}: has no column {listed(gone)}; it has {listed(list(there))}")
    both = [name for name in args.columns or () if name in args.id]
    if both:
        raise UserError(f"{path}: column {listed(both)} cannot be an id and be learnt from")
    chosen = there if args.columns is None else args.columns
    left_out = {name: "skip" for name in there if name not in chosen or name in args.id}
    return {**args.kinds, **left_out}


def score_rows(args: argparse.Namespace, *, in_blocks: bool = False) -> None:
    """Score the rows of a file by a detector, for `pscd score`.

    Args:
        args: the flags.
        in_blocks: whether even a small file is read in blocks.

    Raises:
        UserError: the file does not fit the detector, or cannot be read or written.
    """
    from pscd.detector.estimator import EnergyDetector

    if device(args.device).type != "cpu":
        raise UserError("a detector scores on the cpu; leave --device out")
    detector = EnergyDetector.load(args.run)
    if is_of_pictures(detector) and not args.file.is_file():
        check_out(args.out, args.force)
        check_out(args.out.with_suffix(".png"), args.force, (".png",))
        score_pictures(detector, args.file, args.out)
        return
    source = source_of(args, args.file, always=in_blocks or is_nameless(detector))
    if source is not None:
        from pscd.cli.scoring import score_by_detector

        score_by_detector(args, detector, source, args.out)
        return
    frame = read_for(detector, args)
    tell_notes(notes_of(frame))
    report(detector, frame, args.file, args.out, args.id, log_density=args.log_density)


def is_nameless(detector: "EnergyDetector") -> bool:
    """Whether a detector was fitted to an array, in Python, and so knows no names of columns.

    Args:
        detector: the fitted detector.

    Returns:
        True if columns go by their place.
    """
    return not hasattr(detector, "feature_names_in_")


def read_for(detector: "EnergyDetector", args: argparse.Namespace) -> Any:
    """The table that a command was given, with the columns that a detector was fitted to.

    Args:
        detector: the fitted detector.
        args: the flags.

    Returns:
        The table.

    Raises:
        UserError: it cannot be read, or a column is not there.
    """
    frame = detector.read_file(args.file, **reading_options(args))
    gone = [name for name in args.id if name not in frame.columns]
    if gone:
        raise UserError(f"{args.file}: has no column {gone[0]!r} for --id")
    return frame


def report(
    detector: "EnergyDetector",
    frame: "pd.DataFrame",
    source: Path,
    out: Path,
    ids: Sequence[str],
    *,
    picture: Path | None = None,
    log_density: bool = False,
) -> None:
    """Write all scores, print the strangest rows with the columns to blame, and draw them if asked to.

    Args:
        detector: the fitted detector.
        frame: the table.
        source: the file that it was read from.
        out: file for the scores.
        ids: columns to carry over.
        picture: file for the picture.
        log_density: whether to write it too.
    """
    import numpy as np

    from pscd.detector.reasons import reasons_of

    rows = detector.read(frame[detector.columns])
    energy = -detector.score_samples(rows)
    outlier = energy > -detector.offset_
    strangest = np.argsort(-energy)[:STRANGEST]
    # What nobody reads is not computed: a file of numbers has no reasons in it.
    some = strangest if out.suffix == ".npy" and picture is None else np.arange(len(frame))
    because = dict(zip(some.tolist(), reasons_of(detector, rows, some), strict=True))
    row = np.arange(1, len(energy) + 1)
    carried = {name: frame[name].tolist() for name in ids}
    if out.suffix == ".npy":
        write(out, detector.log_density(rows) if log_density else energy, {})
    else:
        columns = {"row": row, **carried, "energy": energy, "outlier": outlier.astype(int)}
        columns["because"] = [because[i] for i in range(len(energy))]
        if log_density:
            columns["log_density"] = detector.log_density(rows)
        write(out, energy, columns)
    say(f"{int(outlier.sum())} of {len(energy)} rows of {source} are outliers; the strangest:")
    for i in strangest:
        label = ", ".join(str(values[i]) for values in carried.values()) or f"row {row[i]}"
        say(f"  {label:<14} energy {energy[i]:>9.2f}   {because[int(i)]}")
    bad = int(rows.impossible.any(1).sum())
    if bad:
        who = "1 row has" if bad == 1 else f"{bad:,} rows have"
        say(f"{who} a cell that cannot be, such as a word among numbers or a new category; the reasons name it")
    say(f"scores: {out}")
    if picture is not None:
        _draw(detector, rows, energy, outlier, picture)


def _draw(
    detector: "EnergyDetector",
    rows: "Rows",
    energy: "np.ndarray",
    outlier: "np.ndarray",
    picture: Path,
) -> None:
    """Draw the energies, and the rows in the two columns of numbers that outliers are most to blame for."""
    import numpy as np

    from pscd.plots import plot_scores

    reader = detector.reader_
    parts = reader.plain_numbers.nonzero().flatten().tolist()
    if not parts:
        return
    columns = reader.sources[parts].tolist()
    cost = np.asarray(detector.explain(rows.take(np.flatnonzero(outlier))))
    worst = np.argsort(-cost.sum(0)[columns])[:2].tolist()
    names = [reader.names(rows.table)[c] for c in columns]
    x = rows.x[:, parts].numpy()
    say(f"picture: {plot_scores(energy, -detector.offset_, x, names, worst, picture)}")


def _report_cells(detector: "EnergyDetector", frame: "pd.DataFrame", out: Path) -> None:
    """Write and print the cells that look wrong."""
    rows = frame[detector.columns]
    found = detector.cells(rows)
    found = found[found["problem"] == "wrong"]
    write_cells(found, out)
    if not len(found):
        say("no cell looks wrong by itself")
        return
    n_cells = len(frame) * n_learnt(detector)
    say(f"{len(found):,} of {n_cells:,} cells look wrong by themselves (pscd clean mends them); the worst:")
    for cell in found.head(WORST).to_dict("records"):
        say(f"  {cell_words(cell)}")
    say(f"cells: {out}")


def is_detector(run: Path) -> bool:
    """Whether a run folder was written by `pscd detect`.

    Args:
        run: the folder.

    Returns:
        True if it holds a detector.
    """
    return RunFolder(run).is_detector


def check_ids(ids: Sequence[str]) -> None:
    """Refuse ids that have the name of a column of the scores.

    Args:
        ids: names of columns.

    Raises:
        UserError: one of them is taken.
    """
    taken = [name for name in ids if name in OWN_COLUMNS]
    if taken:
        raise UserError(f"the scores have a column {taken[0]!r} of their own; rename it in the file to carry it along")
