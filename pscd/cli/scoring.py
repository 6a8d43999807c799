"""What `detect` and `score` share: scores of rows and of pictures by a detector, with reasons."""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pscd.cli.output import OutputBlock, in_parts, job_of, say, write
from pscd.cli.reading import blocks_of
from pscd.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

    from pscd.detector.estimator import EnergyDetector
    from pscd.detector.reading import EncodedRows
    from pscd.images.thumbnails import Described
    from pscd.parts import Summary
    from pscd.tables import TableFile

N_LISTED = 10  # rows or pictures that are printed


@dataclass(frozen=True)
class Scoring:
    """What is written about each row."""

    detector: "EnergyDetector"
    ids: Sequence[str]
    reasons: str
    log_density: bool
    read: "Callable[[pd.DataFrame], EncodedRows]"

    def part(self, start: int, block: "pd.DataFrame") -> OutputBlock:
        """The scores of a block whose first row is number `start`."""
        import numpy as np

        from pscd.detector.reasons import reasons_of

        rows = self.read(block)
        energy = -self.detector.score_samples(rows)
        outlier = energy > -self.detector.offset_
        top = np.argsort(-energy, kind="stable")[:N_LISTED]
        chosen = {"all": np.arange(len(energy)), "outliers": np.flatnonzero(outlier), "none": np.arange(0)}
        explained = np.union1d(chosen[self.reasons], top)
        because = dict(zip(explained.tolist(), reasons_of(self.detector, rows, explained), strict=True))
        row = np.arange(start, start + len(energy))
        ids = {name: block[name] for name in self.ids}
        columns: dict[str, Any] = {"row": row, **ids, "energy": energy, "outlier": outlier.astype(int)}
        if self.reasons != "none":
            with_reason = set(chosen[self.reasons].tolist())
            columns["because"] = [because[i] if i in with_reason else "" for i in range(len(energy))]
        if self.log_density:
            columns["log_density"] = self.detector.log_density(rows)
        labels = [", ".join(str(values.iloc[i]) for values in ids.values()) or f"row {row[i]}" for i in top]
        listed = [[float(energy[i]), int(row[i]), label, because[int(i)]] for i, label in zip(top, labels, strict=True)]
        summary = {"rows": len(energy), "outliers": int(outlier.sum()), "listed": listed}
        summary["impossible"] = int(rows.impossible.any(1).sum())
        return OutputBlock(columns, columns["log_density"] if self.log_density else energy, summary)


def write_scores(scoring: Scoring, table: "TableFile", out: Path, run: Path) -> None:
    """Write the scores of a table and print its outliers."""
    size, blocks = blocks_of(table, [*scoring.detector.columns, *scoring.ids])
    settings = {"ids": scoring.ids, "log_density": scoring.log_density, "reasons": scoring.reasons}
    job = job_of("score", settings, run, table.fingerprint())
    found = in_parts(out, job, blocks, lambda i, block: scoring.part(i * size, block), total=table.n_rows_estimate)
    n, outliers, impossible = (sum(summary[name] for summary in found) for name in ("rows", "outliers", "impossible"))
    say(f"{outliers:,} of {n:,} rows of {table.path} are outliers; those of highest energy:")
    for energy, _, label, because in _listed(found):
        say(f"  {label:<14} energy {energy:>9.2f}   {because}")
    if impossible:
        say(f"rows with impossible cells, such as a word among numbers or a new category: {impossible:,}")
    say(f"scores: {out}")


def _listed(found: "Sequence[Summary]") -> list[Any]:
    every = (row for summary in found for row in summary["listed"])
    return heapq.nsmallest(N_LISTED, every, key=lambda row: (-row[0], row[1]))


def describe_pictures(folder: Path) -> "Described":
    """The pictures of a folder in numbers."""
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


def picture_frame(described: "Described", columns: Sequence[str]) -> "pd.DataFrame":
    """The table of pictures, with the first columns."""
    import pandas as pd

    return pd.DataFrame(described.x[:, : len(columns)], columns=list(columns))


def write_picture_scores(detector: "EnergyDetector", described: "Described", folder: Path, out: Path) -> None:
    """Write the scores of pictures, print the outliers with reasons, and draw a contact sheet beside `out`."""
    import numpy as np

    from pscd.images import grids
    from pscd.images.thumbnails import reason

    frame = picture_frame(described, detector.columns)
    energy = -detector.score_samples(frame)
    outlier = energy > -detector.offset_
    cost, typical = np.asarray(detector.explain(frame)), np.median(described.x, 0)
    because = [reason(x, typical, row) for x, row in zip(described.x, cost, strict=True)]
    names = [path.relative_to(folder).as_posix() for path in described.paths]
    columns = {"file": names, "energy": energy, "outlier": outlier.astype(int), "because": because}
    write(out, energy, columns)
    order = np.argsort(-energy, kind="stable")
    say(f"{int(outlier.sum())} of {len(names)} pictures in {folder} are outliers; those of highest energy:")
    for i in order[:N_LISTED]:
        say(f"  {names[i]:<32} energy {energy[i]:>9.2f}   {because[i]}")
    if described.unreadable:
        say(f"pictures that cannot be read, and were left out: {len(described.unreadable)}")
    for path, why in described.unreadable[:5]:
        say(f"  {path.relative_to(folder).as_posix():<32} {why}")
    shown = order[:60]
    sheet = grids.contact_sheet([described.paths[i] for i in shown], [f"{energy[i]:.0f}  {names[i]}" for i in shown])
    say(f"scores: {out}")
    say(f"picture: {grids.save(sheet, out.with_suffix('.png'))}")
