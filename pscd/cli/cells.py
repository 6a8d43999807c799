"""Cells of a table in a list: the file that they are written to, and the lines that tell of them."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pscd.cli.output import say, write

if TYPE_CHECKING:
    import pandas as pd

SHOWN = 12  # lines of the summary


def write_cells(found: "pd.DataFrame", out: Path) -> None:
    """Write cells as `EnergyDetector.cells` lists them, with rows counted from 1.

    Args:
        found: the cells.
        out: a `.csv` file.
    """
    write(out, found.to_numpy(), cell_columns(found))


def cell_columns(found: "pd.DataFrame") -> "dict[str, pd.Series]":
    """Columns of the list of cells, as it is written: rows counted from 1, missing values empty.

    Args:
        found: the cells.

    Returns:
        Values by name of the column.
    """
    texts = {name: found[name].map(str).where(found[name].notna(), "") for name in ("value", "suggestion")}
    named = found.assign(row=found["row"] + 1, **texts)
    return {str(name): named[name] for name in named.columns}


def cell_words(cell: Mapping[Any, Any]) -> str:
    """A cell that looks wrong, in a line: where it is, its value, and what is suggested."""
    from pscd.detector.reasons import short_cell

    low = cell["low"]
    has_interval = low is not None and not (isinstance(low, float) and math.isnan(low))
    between = f" ({short_cell(low)} to {short_cell(cell['high'])})" if has_interval else ""
    where = f"row {cell['row'] + 1}, {cell['column']} = {short_cell(cell['value'])}"
    return f"{where}, expected {short_cell(cell['suggestion'])}{between}"


Group = list[Any]  # plain values: column, number of cells, the line for one of them


def group_cells(wrong: "pd.DataFrame") -> list[Group]:
    """Cells that look wrong by column, in the order of their first cells."""
    groups: dict[str, Group] = {}
    for cell in wrong.to_dict("records"):
        group = groups.setdefault(str(cell["column"]), [str(cell["column"]), 0, cell_words(cell)])
        group[1] += 1
    return list(groups.values())


def merge_groups(groups: Sequence[Group]) -> list[Group]:
    """Groups of several blocks of a table as those of the whole, the largest first."""
    merged: dict[str, Group] = {}
    for column, n, words in groups:
        merged.setdefault(column, [column, 0, words])[1] += n
    return sorted(merged.values(), key=lambda group: -group[1])


def print_groups(groups: Sequence[Group], n_wrong: int, n_cells: int) -> None:
    """Print a summary on one screen, a line for each column."""
    if not n_wrong:
        say(f"none of {n_cells:,} cells looks wrong")
        return
    say(f"{n_wrong:,} of {n_cells:,} cells look wrong:")
    for column, n, words in groups[:SHOWN]:
        say(f"  {words}" if n == 1 else f"  {n:,} in {column}: such as {words}")
    if len(groups) > SHOWN:
        say(f"  ... and in {len(groups) - SHOWN:,} more columns")


def count_gaps(gaps: "pd.DataFrame") -> dict[str, int]:
    """How many cells are missing, by column.

    Args:
        gaps: as `EnergyDetector.cells` lists them.

    Returns:
        Columns without any are left out.
    """
    return {str(name): int(count) for name, count in gaps["column"].value_counts().items()}


def print_gaps(counts: Mapping[str, int]) -> None:
    """Print how many cells are missing, and where.

    Args:
        counts: of missing cells, by column.
    """
    if not counts:
        say("no cell is missing")
        return
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    shown = ", ".join(f"{count:,} in {name}" for name, count in ordered[:6])
    n = sum(counts.values())
    say(f"{f'{n:,} cells are' if n > 1 else '1 cell is'} missing: {shown}{', ...' if len(counts) > 6 else ''}")
