"""Show what each column of a table is inferred as, and what is unusual about it.

Examples:
  pscd look my.csv
  pscd look my.csv --as zip=category,notes=skip --missing 999,unknown
"""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from pscd.cli.flags import Extend, Parser, join_names, parse_names
from pscd.cli.output import say
from pscd.cli.pictures import check_no_folder
from pscd.cli.reading import FILES, add_reading_flags, look_args, read_args

if TYPE_CHECKING:
    from pscd.tables import Column, Schema

SHOWN_LEVELS = 4
FEW = 30  # whole numbers between the lowest and the highest of a column that might be a category
WIDEST = 34  # characters of a column of the printed table, but for the last


def add_flags(parser: Parser) -> None:
    """Add the flags of `pscd look`.

    Args:
        parser: the command's parser.
    """
    parser.add_argument("file", type=Path, metavar="FILE", help=f"a table as it comes ({FILES})")
    parser.add_argument("--id", action=Extend, type=parse_names, default=(), help="columns that name a row (a,b)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    add_reading_flags(parser)


def run(args: argparse.Namespace) -> None:
    """Print what the columns of a table are taken for.

    Args:
        args: the flags.

    Raises:
        UserError: the file cannot be read as a table.
    """
    check_no_folder(args.file)
    frame = read_args(args)
    schema = look_args(args, frame, args.id)
    if args.json:
        say(json.dumps({"file": str(args.file)} | schema.to_json(), indent=1, ensure_ascii=False))
    else:
        say(report(schema, args.file))


def report(schema: "Schema", path: Path) -> str:
    """The schema of a table in words.

    Args:
        schema: what the columns are taken for.
        path: the file.

    Returns:
        Lines: a table of the columns that are learnt, those that are left out and why, and how to correct it.
    """
    size = "1 row" if schema.n_rows == 1 else f"{schema.n_rows:,} rows"
    lines = [f"{path}: {size}, {len(schema.columns)} columns"]
    lines += [f"  {note}" for note in schema.notes]
    learnt, left_out = schema.learnt(), [c for c in schema.columns if not c.is_learnt]
    if learnt:
        head = ("column", "taken for", "missing", "values", "odd")
        rows = [head] + [
            (c.name, c.kind, _share(c.missing, schema.n_rows), values(c), "; ".join(c.notes)) for c in learnt
        ]
        widths = [min(WIDEST, max(len(row[j]) for row in rows)) for j in range(len(head) - 1)]
        lines.append("")
        for row in rows:
            cells = [_cut(text, width).ljust(width) for text, width in zip(row, widths, strict=False)]
            lines.append("  ".join([*cells, row[-1]]).rstrip())
    if left_out:
        width = min(WIDEST, max(len(c.name) for c in left_out))
        lines += ["", "left out, a model does not see them:"]
        lines += [f"  {_cut(c.name, width):<{width}}  {'; '.join(c.notes)}" for c in left_out]
    lines += ["", *_advice(schema)]
    return "\n".join(lines)


def values(column: "Column") -> str:
    """The values of a column, in a few words.

    Args:
        column: of the schema.

    Returns:
        Its range, or its levels.
    """
    import numpy as np

    from pscd.tables.numbers import number_spelling

    if column.kind in ("category", "boolean"):
        shown = ", ".join(column.levels[:SHOWN_LEVELS]) + (", ..." if len(column.levels) > SHOWN_LEVELS else "")
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
    """How to correct what is wrong, with columns of this table as the example."""
    codes = dict.fromkeys(column.missing_code for column in schema.columns if column.missing_code)
    few = next((c for c in schema.learnt() if c.kind == "integer" and _span(c) < FEW), None)
    text = next((c for c in schema.columns if not c.is_learnt and "different" in c.notes[0]), None)
    examples = [f"{c.name}=category" for c in (few, text) if c is not None] or [f"{schema.columns[0].name}=skip"]
    told = join_names(examples)
    lines = [f"not right? --as {_quoted(told)}  (number, integer, boolean, category, date, date:%d.%m.%Y or skip)"]
    return lines + [f"           --missing {','.join(codes)}"] * bool(codes)


def _span(column: "Column") -> float:
    return float("inf") if column.lowest is None or column.highest is None else column.highest - column.lowest


def _quoted(text: str) -> str:
    return f"'{text}'" if any(c in text for c in " ()#&;$'\"") else text


def _share(count: int, total: int) -> str:
    return f"{100 * count / total:.1f} %" if count else ""


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 3]}..."
