"""`pscd clean` for tables that need not fit into memory: the cells of a block, and a copy with some of them mended."""

import argparse
import csv
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pscd.cli.cells import (
    cell_columns,
    count_gaps,
    group_cells,
    merge_groups,
    print_gaps,
    print_groups,
)
from pscd.cli.clean import NOTHING_CHANGED, asked, is_text, layout_flags, mended
from pscd.cli.learnt import n_learnt
from pscd.cli.output import say
from pscd.cli.reading import reading_options, tell_notes
from pscd.cli.scoring import check_table_ids, fit_to_sample
from pscd.cli.streams import Part, in_parts, job_of
from pscd.errors import UserError
from pscd.files import suffix_of

if TYPE_CHECKING:
    import pandas as pd

    from pscd.detector.estimator import EnergyDetector
    from pscd.parts import Summary
    from pscd.tables.blocks import BlockSource
    from pscd.tables.write import Change

CELLS = 100_000  # of a block that are judged at a time: each takes about a kilobyte meanwhile
LEARNING = ("columns", "id", "gamma", "updates", "seed")
READING = ("kinds", "missing", "delimiter", "decimal", "thousands", "encoding", "header", "day_first")
MENDING = ("repair", "fill", "confidence")


def clean_in_blocks(
    args: argparse.Namespace, source: "BlockSource", detector: "EnergyDetector | None", cells: Path
) -> None:
    """List the wrong and missing cells of a large table, and write a copy in which they are mended.

    Args:
        args: the flags of `pscd clean`.
        source: the table.
        detector: of the run; None: one is fitted to a sample of the table.
        cells: file for the list.

    Raises:
        UserError: the table does not fit the detector, or a file cannot be read or written.
    """
    import numpy as np

    from pscd.detector.blocks import fitting_blocks

    as_text = is_text(source.path)
    _check_copy(args.out, source, as_text)
    if detector is None:
        detector, _ = fit_to_sample(args, source)
    else:
        check_table_ids(args, source)
    fitting = fitting_blocks(detector.reader_, source, reading_options(args))
    typed = args.out is not None and not as_text
    some = None if source.names is None or typed else detector.columns

    def work(i: int, block: Any) -> Part:
        found = _findings(detector, fitting(block), args.confidence)
        changed = found[found["problem"].isin(asked(args))]
        copy = _copied(block, changed) if typed else None
        found["row"] += i * source.size
        return Part(cell_columns(found), np.empty(0), _summary(found, len(block), len(changed)), copy)

    def copy_text(parts: Sequence[Path]) -> None:
        if args.out is not None and as_text:
            _copy_text(args, source, parts)

    learning = () if args.run is not None else LEARNING
    job = job_of("clean", args, args.run, (*MENDING, *READING, *learning), source.files)
    blocks = lambda first: source.blocks(first, some)  # noqa: E731
    beside = args.out if typed else None
    found = in_parts(cells, job, blocks, work, total=source.n_rows, beside=beside, at_end=copy_text)
    tell_notes(source.notes)
    _tell(args, detector, found, cells)


def _check_copy(out: Path | None, source: "BlockSource", as_text: bool) -> None:
    """Refuse a copy of another kind than the table, whose types would have to be guessed from its first rows."""
    endings = (".npy", ".parquet") if source.names is None else (".parquet",)
    if out is None or (is_text(out) if as_text else suffix_of(out) in endings):
        return
    wanted = "as that of the table" if as_text else f"in {' or '.join(endings)}"
    raise UserError(f"{out}: a copy of a table this large is of the same kind; let its name end {wanted}")


def _findings(detector: "EnergyDetector", rows: Any, confidence: float) -> "pd.DataFrame":
    """The wrong and missing cells of a block, in the order of its rows."""
    import numpy as np
    import pandas as pd

    step = max(1000, CELLS // detector.n_features_in_)
    lists = []
    for start in range(0, len(rows), step):
        piece = rows.take(np.arange(start, min(start + step, len(rows))))
        lists.append(detector.cells(piece, confidence=confidence))
    return pd.concat(lists, ignore_index=True).sort_values("row", kind="stable", ignore_index=True)


def _summary(found: "pd.DataFrame", n_rows: int, n_changed: int) -> "Summary":
    wrong, gaps = (found[found["problem"] == what] for what in ("wrong", "missing"))
    groups = merge_groups(group_cells(wrong.sort_values("confidence", ascending=False, kind="stable")))
    counts = {"rows": n_rows, "wrong": len(wrong), "changed": n_changed}
    return {**counts, "groups": groups, "gaps": count_gaps(gaps)}


def _copied(block: Any, changed: "pd.DataFrame") -> Part:
    """The block with some cells mended, for a file that has types."""
    import numpy as np
    import pandas as pd

    if isinstance(block, pd.DataFrame):
        made = mended(block, changed)
    else:
        flat = block.reshape(len(block), -1)
        made = mended(pd.DataFrame(flat, columns=[f"x{j}" for j in range(flat.shape[1])]), changed)
    array = made.to_numpy().reshape(block.shape) if isinstance(block, np.ndarray) else np.empty(0)
    return Part({str(name): made[name] for name in made.columns}, array, {"rows": len(made)})


def _copy_text(args: argparse.Namespace, source: "BlockSource", parts: Sequence[Path]) -> None:
    """A copy of a text file, byte for byte but for the cells that are listed in files."""
    from pscd.progress import progress_bar
    from pscd.tables.write import copy_changed

    def changes() -> "Iterator[Change]":
        names: list[str] = []
        done = 0
        for path in parts:
            with path.open(encoding="utf-8", newline="") as file:
                records = csv.reader(file)
                names = names or next(records)  # the first part has a header
                for record in records:
                    cell = dict(zip(names, record, strict=True))
                    if cell["problem"] in asked(args):
                        row = int(cell["row"])
                        bar.update(row - done)
                        done = row
                        yield row - 1, cell["column"], cell["suggestion"]

    say(f"copying {source.path}")
    with progress_bar(source.n_rows, unit=" rows", in_thousands=True) as bar:
        copy_changed(source.path, changes(), args.out, **layout_flags(args))


def _tell(args: argparse.Namespace, detector: "EnergyDetector", found: "Sequence[Summary]", cells: Path) -> None:
    names = ("rows", "wrong", "changed")
    n_rows, n_wrong, n_changed = (sum(summary[name] for summary in found) for name in names)
    gaps: Counter[str] = Counter()
    for summary in found:
        gaps.update(summary["gaps"])
    groups = merge_groups([group for summary in found for group in summary["groups"]])
    print_groups(groups, n_wrong, n_rows * n_learnt(detector))
    print_gaps(gaps)
    say(f"cells: {cells}, in the order of the table")
    if args.out is not None:
        say(f"{n_changed:,} cells changed: {args.out}")
    elif n_wrong or gaps:
        say(NOTHING_CHANGED)
