"""Strange pictures of a folder: what `pscd detect` and `pscd score` do for pictures."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pscd.cli.output import say, write
from pscd.errors import UserError
from pscd.run_folder import RunFolder

if TYPE_CHECKING:
    import pandas as pd

    from pscd.detector.estimator import EnergyDetector
    from pscd.images.thumbnails import Described

STRANGEST = 10  # pictures that are named
SHOWN = 60  # pictures of the contact sheet
FEW = 100  # pictures below which the threshold rests on too few
NAMED = 5  # unreadable pictures, and groups of near-duplicates, that are named


def detect_pictures(args: argparse.Namespace, out: Path) -> None:
    """Learn what the pictures of a folder have in common, and report the strange ones.

    Args:
        args: the flags of `pscd detect`.
        out: the run folder.

    Raises:
        UserError: there are too few pictures, or a flag is for tables only.
    """
    from pscd.data import check_enough
    from pscd.detector.estimator import EnergyDetector
    from pscd.files import write_json, writing_to
    from pscd.images.thumbnails import columns_for

    if args.columns or args.id:
        raise UserError(f"{args.data} is a folder of pictures, without columns; leave --columns and --id out")
    described = _described(args.data)
    check_enough(len(described.paths), args.data)
    detector = EnergyDetector(
        gamma=args.gamma,
        contamination=args.contamination,
        n_updates=args.updates,
        random_state=args.seed,
        verbose=True,
    )
    try:
        detector.fit(_frame(described, columns_for(len(described.paths))))
    except ValueError as error:
        raise UserError(f"{args.data}: {error}") from None
    run = RunFolder(out)
    with writing_to(out):
        out.mkdir(parents=True, exist_ok=True)
        detector.save(out)
        unreadable = [(path.relative_to(args.data).as_posix(), why) for path, why in described.unreadable]
        write_json(run.source, {"data": str(args.data), "kind": "pictures", "unreadable": unreadable})
    report(detector, described, args.data, run.scores)
    if len(described.paths) < FEW:
        say(f"note: {len(described.paths)} pictures are few; trust the order more than how many are called strange")
    _report_duplicates(described, args.data, run.duplicates)
    say(f"run: {out}")


def is_of_pictures(detector: "EnergyDetector") -> bool:
    """Whether a detector was fitted to a folder of pictures.

    Args:
        detector: the fitted detector.

    Returns:
        True if its columns are those that describe pictures.
    """
    from pscd.data.looks import COLUMNS

    return tuple(getattr(detector, "feature_names_in_", ()))[:3] == COLUMNS[:3]


def check_no_folder(path: Path) -> None:
    """Refuse a folder where one table is needed, and say what it is good for.

    Args:
        path: what a command was given as a table.

    Raises:
        UserError: it is a folder, of pictures or of something else.
    """
    if not path.is_dir():
        return
    from pscd.data.pictures import all_pictures

    if all_pictures(path):
        hint = f"pscd detect {path} finds the strange ones, pscd train {path} learns to draw such pictures"
        raise UserError(f"{path}: a folder of pictures, not a table; {hint}")
    raise UserError(f"{path}: a folder, not a file; give one table")


def score_pictures(detector: "EnergyDetector", folder: Path, out: Path) -> None:
    """Score the pictures of another folder, for `pscd score`.

    Args:
        detector: a detector that was fitted to pictures.
        folder: the pictures.
        out: file for the scores; the contact sheet stands beside it.

    Raises:
        UserError: there are no pictures that can be read, or the detector knows pictures by other numbers.
    """
    from pscd.data.looks import COLUMNS

    if not folder.is_dir():
        raise UserError(f"{folder}: the detector was fitted to pictures; give it a folder of pictures")
    names = tuple(detector.feature_names_in_)
    if names != COLUMNS[: len(names)]:
        raise UserError(f"{folder}: the detector is of an earlier version; run pscd detect on its pictures again")
    report(detector, _described(folder), folder, out)


def _described(folder: Path) -> "Described":
    from pscd.data.pictures import PICTURE_SUFFIXES, all_pictures
    from pscd.images.thumbnails import describe

    paths = all_pictures(folder)
    if not paths:
        raise UserError(f"{folder}: holds no pictures ({', '.join(PICTURE_SUFFIXES)})")
    described = describe(paths)
    if not described.paths:
        path, reason = described.unreadable[0]
        raise UserError(f"{folder}: none of its {len(paths)} pictures can be read, {path.name} for one ({reason})")
    return described


def _frame(described: "Described", columns: Sequence[str]) -> "pd.DataFrame":
    """The table of the pictures, with the first columns."""
    import pandas as pd

    return pd.DataFrame(described.x[:, : len(columns)], columns=list(columns))


def report(detector: "EnergyDetector", described: "Described", folder: Path, out: Path) -> None:
    """Write all scores, name the strangest pictures and say why, and draw them on a contact sheet.

    Args:
        detector: the fitted detector.
        described: the pictures.
        folder: where they are.
        out: file for the scores; the contact sheet stands beside it.
    """
    import numpy as np

    from pscd.images import grids
    from pscd.images.thumbnails import reason

    frame = _frame(described, detector.feature_names_in_)
    energy = -detector.score_samples(frame)
    outlier = energy > -detector.offset_
    cost, typical = np.asarray(detector.explain(frame)), np.median(described.x, 0)
    because = [reason(x, typical, row) for x, row in zip(described.x, cost, strict=True)]
    names = [path.relative_to(folder).as_posix() for path in described.paths]
    order = np.argsort(-energy, kind="stable")
    columns = {"file": names, "energy": energy, "outlier": outlier.astype(int), "because": because}
    write(out, energy, columns)
    say(f"{int(outlier.sum())} of {len(names)} pictures in {folder} are strange; the strangest:")
    for i in order[:STRANGEST]:
        say(f"  {names[i]:<32} energy {energy[i]:>9.2f}   {because[i]}")
    _report_unreadable(described, folder)
    shown = order[:SHOWN]
    labels = [f"{energy[i]:.0f}  {names[i]}" for i in shown]
    sheet = grids.contact_sheet([described.paths[i] for i in shown], labels)
    say(f"scores: {out}")
    say(f"picture: {grids.save(sheet, out.with_suffix('.png'))}")


def _report_unreadable(described: "Described", folder: Path) -> None:
    if not described.unreadable:
        return
    n = len(described.unreadable)
    say(f"{n} picture{'s' if n > 1 else ''} cannot be read, and {'were' if n > 1 else 'was'} left out:")
    for path, why in described.unreadable[:NAMED]:
        say(f"  {path.relative_to(folder).as_posix():<32} {why}")
    if len(described.unreadable) > NAMED:
        say(f"  ... and {len(described.unreadable) - NAMED} more")


def _report_duplicates(described: "Described", folder: Path, out: Path) -> None:
    """Write and print groups of pictures that hardly differ."""
    import numpy as np

    from pscd.images.thumbnails import near_duplicates

    groups = near_duplicates(described.miniatures)
    if not groups:
        out.unlink(missing_ok=True)  # of the pictures before
        say("no near-duplicates")
        return
    names = [path.relative_to(folder).as_posix() for path in described.paths]
    rows = [(number, names[i]) for number, group in enumerate(groups, 1) for i in group]
    write(out, np.array([number for number, _ in rows]), {"group": [r[0] for r in rows], "file": [r[1] for r in rows]})
    extra = len(rows) - len(groups)
    say(f"{extra} picture{'s are near-duplicates' if extra > 1 else ' is a near-duplicate'} of another:")
    for group in groups[:NAMED]:
        say(f"  {_listed([names[i] for i in group])}")
    say(f"near-duplicates: {out}")


def _listed(names: Sequence[str], most: int = 4) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"
