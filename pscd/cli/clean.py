"""List the wrong and missing cells of a table, and write a repaired copy where asked.

Examples:
  pscd clean my.csv --list cells.csv
  pscd clean my.csv --repair --fill --out clean.csv
"""

import argparse
import csv
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pscd.cli import reading
from pscd.cli.flags import Parser, share
from pscd.cli.output import CELLS, OutputBlock, cell_columns, cell_text, check_ids, in_parts, job_of, say
from pscd.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

    from pscd.detector.estimator import EnergyDetector
    from pscd.detector.reading import EncodedRows
    from pscd.parts import Summary
    from pscd.tables import TableFile

BLOCK_CELLS = 100_000  # each takes about a kilobyte while it is judged


def add_flags(parser: Parser) -> None:
    """Add the flags of `pscd clean`."""
    parser.add_argument(
        "file", type=Path, metavar="FILE", help=f"a table ({reading.FILES}), or a folder of Parquet files"
    )
    parser.add_argument("--list", type=Path, metavar="FILE", help=".csv file for the cells (default: FILE.cells.csv)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="file for the repaired copy")
    parser.add_argument("--repair", action="store_true", help="replace wrong cells by their suggestions")
    parser.add_argument("--fill", action="store_true", help="fill missing cells with their suggestions")
    parser.add_argument(
        "--confidence", type=share, default=0.5, help="least probability that a listed cell is wrong (default: 0.5)"
    )
    parser.add_argument("--run", type=Path, help="a detector fitted before (default: one is fitted to the table)")
    parser.add_argument("--force", action="store_true", help="replace files that exist")
    reading.add_learning_flags(parser)
    reading.add_reading_flags(parser)


def run(args: argparse.Namespace) -> None:
    """List cells block by block, and write a copy with the suggestions."""
    import numpy as np
    import pandas as pd

    listed = args.list or _beside(args.out or args.file)
    check_ids(args.ids, CELLS)
    _check(args, listed)
    table = reading.open_file(args, args.file)
    detector, read, rows = _detector(args, table)
    is_text = _is_text(args.file) and (args.out is None or _is_text(args.out))
    changed = ["wrong"] * args.repair + ["missing"] * args.fill
    wanted = [*detector.columns, *args.ids] if args.out is None or is_text else None
    size, blocks = reading.blocks_of(table, wanted, most=max(1000, BLOCK_CELLS // len(detector.columns)))

    def work(i: int, block: "pd.DataFrame") -> OutputBlock:
        start = i * size
        block = block.set_axis(pd.RangeIndex(start, start + len(block)), axis=0)
        encoded = read(block) if rows is None else rows.take(np.arange(start, start + len(block)))
        cells = detector.cells(encoded, confidence=args.confidence).sort_values("row", kind="stable")
        for position, name in enumerate(args.ids, 1):
            cells.insert(position, name, block.loc[cells["row"], name].to_numpy())
        changes = cells[cells["problem"].isin(changed)]
        copy = None if args.out is None or is_text else _copied(block, changes, table)
        return OutputBlock(cell_columns(cells), np.empty(0), _summary(cells, len(block), len(changes)), copy)

    def finish(parts: Sequence[Path]) -> None:
        if args.out is not None and is_text:
            _copy_text(args, table, parts, changed)

    job = job_of("clean", _settings(args), args.run, table.fingerprint())
    copy = None if is_text else args.out
    found = in_parts(listed, job, blocks, work, total=table.n_rows_estimate, copy=copy, finish=finish)
    reading.say_notes(table.notes)
    _report(args, detector, found, listed)


def _check(args: argparse.Namespace, listed: Path) -> None:
    """Refuse what cannot be written, before any work is done for it."""
    from pscd.files import suffix_of

    if (args.repair or args.fill) != (args.out is not None):
        raise UserError("--out goes with --repair, --fill or both: they say what to change in the copy")
    if args.out is not None and args.out.resolve() == args.file.resolve():
        raise UserError(f"{args.out} is the table itself; choose another --out, nothing is overwritten")
    if not args.file.exists():
        raise UserError(f"{args.file}: no such file")
    endings = (".csv", ".parquet", ".npy")
    if args.out is not None and suffix_of(args.out) not in endings and not (_is_text(args.file) and _is_text(args.out)):
        raise UserError(f"{args.out}: the name must end in {' or '.join(endings)}")
    if suffix_of(listed) != ".csv":
        raise UserError(f"{listed}: the name must end in .csv")
    for path in (listed, args.out):
        if path is not None and path.exists() and not args.force:
            raise UserError(f"{path} exists; choose another name, or add --force to replace it")


def _detector(
    args: argparse.Namespace, table: "TableFile"
) -> "tuple[EnergyDetector, Callable[[pd.DataFrame], EncodedRows], EncodedRows | None]":
    """The detector of `--run` or one fitted to the table, what encodes a block, and all rows if they are encoded."""
    if args.run is None:
        detector, _, rows = reading.fit_detector(args, table)
        return detector, detector.read, None if table.is_large else rows
    loaded = reading.load_detector(args.run)
    if loaded is None:
        raise UserError(f"{args.run}: holds no fitted detector; pscd detect makes one")
    reading.check_columns(table, args.ids)
    return loaded, reading.detector_reader(loaded, table), None


def _settings(args: argparse.Namespace) -> dict[str, Any]:
    """The flags that decide the list and the copy."""
    names = ["ids", "repair", "fill", "confidence", "kinds"]
    names += [] if args.run is not None else ["columns", "gamma", "updates", "seed"]
    return {"out": str(args.out)} | {name: getattr(args, name) for name in names}


def _is_text(path: Path) -> bool:
    from pscd.files import suffix_of
    from pscd.tables import TEXT_SUFFIXES

    return suffix_of(path) in TEXT_SUFFIXES


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.name.split('.')[0]}.cells.csv")


def _summary(cells: "pd.DataFrame", n_rows: int, n_changed: int) -> "Summary":
    """Counts of a block, and the surest wrong cell of each column."""
    wrong = cells[cells["problem"] == "wrong"].sort_values("confidence", ascending=False, kind="stable")
    counts = {str(name): int(n) for name, n in wrong["column"].value_counts().items()}
    examples = wrong.drop_duplicates("column").to_dict("records")
    shown = {str(cell["column"]): [float(cell["confidence"]), cell_text(cell)] for cell in examples}
    missing = cells.loc[cells["problem"] == "missing", "column"].value_counts()
    return {
        "rows": n_rows,
        "changed": n_changed,
        "wrong": counts,
        "examples": shown,
        "missing": {str(name): int(n) for name, n in missing.items()},
    }


def _report(args: argparse.Namespace, detector: "EnergyDetector", found: "Sequence[Summary]", listed: Path) -> None:
    """Print the columns with wrong and missing cells, and what was written."""
    wrong, missing = Counter[str](), Counter[str]()
    examples: dict[str, list[Any]] = {}
    for summary in found:
        wrong.update(summary["wrong"])
        missing.update(summary["missing"])
        for name, example in summary["examples"].items():
            examples[name] = max(examples.get(name, example), example, key=lambda pair: pair[0])
    n_cells = sum(summary["rows"] for summary in found) * len(detector.columns)
    say(f"{wrong.total():,} of {n_cells:,} cells are probably wrong, {missing.total():,} are missing")
    for name, n in wrong.most_common(12):
        say(f"  {n:,} wrong in {name}, such as {examples[name][1]}")
    if missing:
        shown = ", ".join(f"{n:,} in {name}" for name, n in missing.most_common(6))
        say(f"  missing: {shown}{', ...' if len(missing) > 6 else ''}")
    say(f"cells: {listed}")
    if args.out is not None:
        say(f"{sum(summary['changed'] for summary in found):,} cells changed: {args.out}")
    elif wrong or missing:
        say("nothing was changed; add --repair, --fill or both, and --out for the repaired copy")


def _copied(block: "pd.DataFrame", changes: "pd.DataFrame", table: "TableFile") -> OutputBlock:
    """A block with the suggestions, for a file with types; integers become floats where a suggestion has decimals."""
    made = block.copy()
    for name, cells in changes.groupby("column", sort=False):
        values, new = made[str(name)].copy(), cells["suggestion"].tolist()
        if values.dtype.kind in "iu" and any(value != int(value) for value in new):
            values = values.astype(float)
        values.loc[cells["row"].to_numpy()] = new
        made[str(name)] = values
    array = made.to_numpy()
    if table.shape is not None:
        array = array.reshape(len(made), *table.shape)
    return OutputBlock({str(name): made[name] for name in made.columns}, array, {"rows": len(made)})


def _copy_text(args: argparse.Namespace, table: "TableFile", parts: Sequence[Path], changed: Sequence[str]) -> None:
    """A copy of a text file, byte for byte except the cells that the parts of the list change."""
    from pscd.tables import write_like

    def changes() -> Iterator[tuple[int, str, str]]:
        names: list[str] = []
        for path in parts:
            with path.open(encoding="utf-8", newline="") as file:
                records = csv.reader(file)
                names = names or next(records)  # only the first part has a header
                for record in records:
                    cell = dict(zip(names, record, strict=True))
                    if cell["problem"] in changed:
                        yield int(cell["row"]), cell["column"], cell["suggestion"]

    layout = {name: getattr(args, name) for name in ("delimiter", "encoding", "header")}
    write_like(table.path, changes(), args.out, **layout)
