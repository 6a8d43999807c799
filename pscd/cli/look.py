"""Show what each column of a table is inferred as, and what is unusual about it.

Examples:
  pscd look my.csv
  pscd look my.csv --as zip=category,notes=skip --missing 999,unknown
"""

import argparse
import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from pscd.cli.flags import Parser, add_ids, join_names
from pscd.cli.output import say
from pscd.cli.reading import FILES, add_reading_flags, open_file

if TYPE_CHECKING:
    from pscd.tables import Column, Schema


def add_flags(parser: Parser) -> None:
    """Add the flags of `pscd look`."""
    parser.add_argument("file", type=Path, metavar="FILE", help=f"a table ({FILES}), or a folder of Parquet files")
    add_ids(parser)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    add_reading_flags(parser)


def run(args: argparse.Namespace) -> None:
    """Print what the columns of a table are inferred as."""
    from pscd.tables import look

    schema = look(open_file(args, args.file), kinds=args.kinds, ids=args.ids)
    if args.json:
        print(json.dumps({"file": str(args.file)} | schema.to_json(), indent=1))
    else:
        say(report(schema, args.file))


def report(schema: "Schema", path: Path, *, widest: int = 34) -> str:
    """The schema of a table as text: the columns a model sees, those that are left out and why, how to correct it."""
    size = "1 row" if schema.n_rows == 1 else f"{schema.n_rows:,} rows"
    lines = [f"{path}: {size}, {len(schema.columns)} columns", *(f"  {note}" for note in schema.notes)]
    rows = [
        (c.name, c.kind, f"{100 * c.missing / schema.n_rows:.1f} %" if c.missing else "", values(c), "; ".join(c.notes))
        for c in schema.learnt()
    ]
    lines += _columns([("column", "inferred as", "missing", "values", "unusual"), *rows], widest) if rows else []
    left_out = [(c.name, "; ".join(c.notes)) for c in schema.columns if not c.is_learnt]
    lines += _columns([("left out, a model does not see it", ""), *left_out], widest) if left_out else []
    return "\n".join([*lines, "", *_advice(schema)])


def _columns(rows: "list[tuple[str, ...]]", widest: int) -> list[str]:
    """Rows of text in columns, after an empty line."""
    widths = [min(widest, max(len(row[j]) for row in rows)) for j in range(len(rows[0]) - 1)]

    def cut(text: str, width: int) -> str:
        return (text if len(text) <= width else f"{text[: width - 3]}...").ljust(width)

    return ["", *("  ".join([*map(cut, row, widths), row[-1]]).rstrip() for row in rows)]


def values(column: "Column", *, n_levels: int = 4) -> str:
    """The values of a column in a few words: its range, or its levels."""
    import numpy as np

    from pscd.tables.numbers import number_spelling

    if column.kind in ("category", "boolean"):
        shown = ", ".join(column.levels[:n_levels]) + (", ..." if len(column.levels) > n_levels else "")
        return shown if column.kind == "boolean" else f"{len(column.levels)}: {shown}"
    if column.lowest is None or column.highest is None:
        return ""
    if column.kind == "date":
        if column.date_parts == ("clock",):
            return "times of day"
        unit = {"year": "Y", "month": "M"}.get(column.resolution, "D")
        days = np.floor(np.array([column.lowest, column.highest])).astype("datetime64[D]").astype(f"datetime64[{unit}]")
        return f"{days[0]} to {days[1]}"
    return f"{number_spelling(column.lowest, column)} to {number_spelling(column.highest, column)}"


def _advice(schema: "Schema") -> list[str]:
    """How to correct the schema, with columns of this table as the example."""
    codes = dict.fromkeys(column.missing_code for column in schema.columns if column.missing_code)
    few = next((c for c in schema.learnt() if c.kind == "integer" and _n_integers(c) < 30), None)
    text = next((c for c in schema.columns if not c.is_learnt and "different" in c.notes[0]), None)
    examples = [f"{c.name}=category" for c in (few, text) if c is not None] or [f"{schema.columns[0].name}=skip"]
    flag = shlex.quote(join_names(examples))
    lines = [f"to correct it: --as {flag}  (number, integer, boolean, category, date, date:%d.%m.%Y or skip)"]
    return lines + [f"               --missing {','.join(codes)}"] * bool(codes)


def _n_integers(column: "Column") -> float:
    return float("inf") if column.lowest is None or column.highest is None else column.highest - column.lowest
