"""Find the outlier rows and wrong cells of a table, or the outliers of a folder of pictures, and say why.

Examples:
  pscd detect my.csv --id name --out runs/my
  pscd detect holiday-pictures --out runs/pictures
"""

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pscd.cli import reading
from pscd.cli.flags import Parser, join_names, number_or_auto
from pscd.cli.output import cell_columns, cell_text, check_folder, check_ids, say, write
from pscd.cli.scoring import Scoring, describe_pictures, picture_frame, write_picture_scores, write_scores
from pscd.errors import UserError
from pscd.run_folder import RunFolder

if TYPE_CHECKING:
    from pscd.detector.estimator import EnergyDetector
    from pscd.detector.reading import EncodedRows
    from pscd.images.thumbnails import Described


def add_flags(parser: Parser) -> None:
    """Add the flags of `pscd detect`."""
    parser.add_argument(
        "data", type=Path, metavar="FILE", help=f"a table ({reading.FILES}), a folder of Parquet files or of pictures"
    )
    parser.add_argument("--out", type=Path, metavar="RUN", help="run folder (default: runs/NAME)")
    parser.add_argument("--force", action="store_true", help="replace a detector that is there")
    group = reading.add_learning_flags(parser)
    group.add_argument(
        "--contamination",
        type=number_or_auto,
        default="auto",
        help="share of the rows to call outliers, up to 0.5 (default: auto)",
    )
    group.add_argument(
        "--rank",
        choices=("energy", "neighbours"),
        default="energy",
        help="rank rows by energy, or by the distance to neighbours, for tables of several groups (default: energy)",
    )
    reading.add_reading_flags(parser)


def run(args: argparse.Namespace) -> None:
    """Fit a detector, keep it, and report outlier rows and wrong cells."""
    out = args.out or Path("runs") / args.data.name.split(".")[0]
    folder = RunFolder(out)
    _check_out(args, folder)
    if args.data.is_dir() and not any(args.data.rglob("*.parquet")):
        _detect_pictures(args, folder)
        return
    check_ids(args.ids)
    table = reading.open_file(args, args.data)
    detector, frame, rows = reading.fit_detector(args, table, contamination=args.contamination, rank=args.rank)
    options = {name: value for name, value in vars(reading.read_options(args)).items() if value not in (None, ())}
    source = {"data": str(args.data), "ids": args.ids, "reading": options, "fingerprint": table.fingerprint()}
    _save(detector, folder, source)
    _say_fit(detector, len(frame))
    reading.say_notes(table.notes)
    scoring = Scoring(detector, args.ids, "outliers", False, lambda b: rows if b is frame else detector.read(b))
    write_scores(scoring, table, folder.scores, out)
    _draw(detector, rows, folder.scores.with_suffix(".png"))
    if table.is_large:
        say(f"cells: pscd clean {args.data} --run {out} lists those that are wrong")
    else:
        _write_cells(detector, rows, out / "cells.csv")
    say(f"run: {out}")


def _check_out(args: argparse.Namespace, folder: RunFolder) -> None:
    """Refuse a run folder that holds something else."""
    if folder.is_detector and not args.force:
        hint = ""
        if folder.scores.with_name(f"{folder.scores.name}.partial").is_dir():
            ids = f" --id {shlex.quote(join_names(args.ids))}" if args.ids else ""
            hint = f"; to score all rows: pscd score {folder.path} {args.data}{ids} --out {folder.scores}"
        raise UserError(f"{folder.path} holds a detector; choose another --out, or add --force to replace it{hint}")
    if folder.model.exists() or folder.state.exists():
        raise UserError(f"{folder.path} holds a run of pscd train; choose another --out")
    check_folder(folder.path)


def _save(detector: "EnergyDetector", folder: RunFolder, source: dict[str, Any]) -> None:
    from pscd.files import write_json, writing_to

    folder.make()
    with writing_to(folder.path):
        detector.save(folder.path)
        write_json(folder.source, source)


def _say_fit(detector: "EnergyDetector", n_rows: int) -> None:
    """Print what was modelled, and what the detector makes of the rows as a whole."""
    from pscd.detector.estimator import THRESHOLD

    inside = 100 * THRESHOLD.inside
    beyond = f"outliers beyond the {100 - inside:.3g} % expected of clean rows: {100 * detector.contamination_:.1f} %"
    say(f"{n_rows:,} rows, {len(detector.columns)} columns; {beyond}")
    for column in detector.reader_.schema.columns:
        if not column.is_learnt and column.notes and "stated" not in column.notes[0]:
            say(f"  left out: {column.name} ({'; '.join(column.notes)})")
        elif column.invalid or any("as stated" in note for note in column.notes):
            say(f"  {column.name}: {'; '.join(column.notes)}")
    say(f"gamma {detector.gamma:.3g}: {detector.n_ignored:,} rows have a weight below {THRESHOLD.ignored:g}")
    where = f"which {inside:.3g} % of the model's samples, or of these rows, stay below (--contamination)"
    if detector.contamination != "auto":
        where = f"as {100 * float(detector.contamination):.3g} % of these rows have (--contamination)"
    say(f"outlier: energy above {-detector.offset_:.4g}, {where}")


def _draw(detector: "EnergyDetector", rows: "EncodedRows", picture: Path) -> None:
    """Draw the energies, and the rows in the two numeric columns to which outliers owe most energy."""
    import numpy as np

    from pscd.plots import plot_scores

    reader = detector.reader_
    parts = reader.plain_numbers.nonzero().flatten().tolist()
    if not parts:
        return
    energy = -detector.score_samples(rows)
    highest = np.argsort(-energy)[: max(10, min(1000, int((energy > -detector.offset_).sum())))]
    columns = reader.sources[parts].tolist()
    cost = np.asarray(detector.explain(rows.take(highest))).sum(0)[columns]
    names = [reader.schema.names[j] for j in columns]
    x = rows.x[:, parts].numpy()
    say(f"picture: {plot_scores(energy, -detector.offset_, x, names, np.argsort(-cost)[:2].tolist(), picture)}")


def _write_cells(detector: "EnergyDetector", rows: "EncodedRows", out: Path) -> None:
    """Write the wrong and missing cells, and print the surest."""
    cells = detector.cells(rows)
    write(out, cells.to_numpy(), cell_columns(cells))
    wrong = cells[cells["problem"] == "wrong"]
    n, n_missing = len(rows) * len(detector.columns), len(cells) - len(wrong)
    say(f"{len(wrong):,} of {n:,} cells are probably wrong, {n_missing:,} are missing (pscd clean repairs them)")
    for cell in wrong.head(5).to_dict("records"):
        say(f"  {cell_text(cell)}")
    say(f"cells: {out}")


def _detect_pictures(args: argparse.Namespace, folder: RunFolder) -> None:
    """Fit a detector to what pictures look like, and report outliers and near-duplicates."""
    from pscd.data import check_enough
    from pscd.images.thumbnails import columns_for

    if args.columns or args.ids:
        raise UserError(f"{args.data} is a folder of pictures, without columns; leave --columns and --id out")
    described = describe_pictures(args.data)
    n = len(described.paths)
    check_enough(n, args.data)
    try:
        detector = reading.make_detector(args, contamination=args.contamination).fit(
            picture_frame(described, columns_for(n))
        )
    except ValueError as error:
        raise UserError(f"{args.data}: {error}") from None
    unreadable = [(path.relative_to(args.data).as_posix(), why) for path, why in described.unreadable]
    _save(detector, folder, {"data": str(args.data), "kind": "pictures", "unreadable": unreadable})
    write_picture_scores(detector, described, args.data, folder.scores)
    if n < 100:
        say(f"note: {n} pictures are few; rely on their order rather than on the number of outliers")
    _write_duplicates(described, args.data, folder.duplicates)
    say(f"run: {folder.path}")


def _write_duplicates(described: "Described", folder: Path, out: Path) -> None:
    """Write and print groups of pictures that hardly differ."""
    import numpy as np

    from pscd.images.thumbnails import near_duplicates

    groups = near_duplicates(described.miniatures)
    if not groups:
        out.unlink(missing_ok=True)  # of the pictures before
        say("no near-duplicates")
        return
    names = [path.relative_to(folder).as_posix() for path in described.paths]
    rows = [(number, names[i]) for number, group in enumerate(groups) for i in group]
    write(out, np.array([number for number, _ in rows]), {"group": [r[0] for r in rows], "file": [r[1] for r in rows]})
    say(f"pictures that are near-duplicates of another: {len(rows) - len(groups)}")
    for group in groups[:5]:
        more = f" and {len(group) - 4} more" if len(group) > 4 else ""
        say(f"  {', '.join(names[i] for i in group[:4])}{more}")
    say(f"near-duplicates: {out}")
