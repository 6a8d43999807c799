"""Cells of a table in a list: the file that they are written to, and the lines that tell of them."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pscd.cli.output import say, write

if TYPE_CHECKING:
    import pandas as pd

    from pscd.tables import Schema

SHIFTED = "shifted"  # how the mistake of a whole row begins
SHOWN = 12  # lines of the summary


def write_cells(found: "pd.DataFrame", out: Path) -> None:
    """Write cells as `suspects` lists them, with rows counted from 1.

    Args:
        found: the cells.
        out: a `.csv` file.
    """
    write(out, found.to_numpy(), cell_columns(found))


def in_own_format(found: "pd.DataFrame", schema: "Schema | None") -> "pd.DataFrame":
    """Cells whose intervals are written as the table writes its own, where it is text.

    Args:
        found: as `suspects` lists them.
        schema: what the columns are taken for; None: all are numbers.

    Returns:
        A copy with texts for `lower` and `upper` of cells of text.
    """
    import pandas as pd

    from pscd.tables import spell

    if schema is None:
        return found
    made = found.astype({"lower": object, "upper": object})
    known = {column.name for column in schema.learnt() if column.kind in ("number", "integer", "date")}
    text = (
        found["column"].isin(known) & found["lower"].notna() & found["suggested"].map(lambda new: isinstance(new, str))
    )
    for name, cells in found[text].groupby("column", sort=False):
        for bound in ("lower", "upper"):
            values = pd.DataFrame({str(name): cells[bound].tolist()})
            made.loc[cells.index, bound] = spell(values, schema)[str(name)].tolist()
    return made


def cell_columns(found: "pd.DataFrame") -> "dict[str, pd.Series]":
    """Cells as `suspects` lists them, as they are written: rows counted from 1, and cells as they stand in the table.

    Args:
        found: the cells.

    Returns:
        Values by name of the column.
    """
    texts = {name: found[name].map(str).where(found[name].notna(), "") for name in ("found", "suggested")}
    named = found.assign(row=found["row"] + 1, **texts).rename(columns={"cost": "energy"})
    return {str(name): named[name] for name in named.columns}


def cell_words(cell: Mapping[Any, Any], *, why: bool = True) -> str:
    """A cell that looks wrong, in a line.

    Args:
        cell: a row of what `suspects` gives.
        why: whether to say which mistake explains it.

    Returns:
        Where it is, what stands there, and what should.
    """
    from pscd.detector.reasons import short_cell

    lower, mistake = cell["lower"], cell["mistake"]
    known = lower is not None and not (isinstance(lower, float) and math.isnan(lower))
    between = f" ({short_cell(lower)} to {short_cell(cell['upper'])})" if known else ""
    said = f": {mistake}" if why and isinstance(mistake, str) else ""
    where = f"row {cell['row'] + 1}, {cell['column']} = {short_cell(cell['found'])}"
    return f"{where}, expected {short_cell(cell['suggested'])}{between}{said}"


Group = list[Any]  # plain values: place, mistake, number of cells, the line for one of them, and for several


def group_cells(wrong: "pd.DataFrame") -> list[Group]:
    """Cells that look wrong, those that the same mistake explains together.

    Args:
        wrong: as `suspects` lists them.

    Returns:
        Groups that `merge_groups` takes, in the order of their first cells; a row that is shifted is one of its own.
    """
    groups: dict[tuple[str, str], Group] = {}
    for cell in wrong.to_dict("records"):
        mistake = cell["mistake"] if isinstance(cell["mistake"], str) else ""
        place = f"row {cell['row'] + 1}" if mistake.startswith(SHIFTED) else str(cell["column"])
        if (place, mistake) not in groups:
            groups[place, mistake] = [place, mistake, 0, cell_words(cell), cell_words(cell, why=False)]
        groups[place, mistake][2] += 1
    return list(groups.values())


def merge_groups(groups: Sequence[Group]) -> list[Group]:
    """Groups of several blocks of a table as those of the whole.

    Args:
        groups: of all blocks, in their order.

    Returns:
        Groups, those with a mistake that explains them first, then by their size.
    """
    merged: dict[tuple[str, str], Group] = {}
    for place, mistake, n, *words in groups:
        merged.setdefault((place, mistake), [place, mistake, 0, *words])[2] += n
    return sorted(merged.values(), key=lambda group: (group[1] == "", -group[2]))


def print_groups(groups: Sequence[Group], n_wrong: int, n_cells: int, *, more: int = 0) -> None:
    """Print a summary on one screen: a mistake that explains several cells is told once.

    Args:
        groups: of `merge_groups`.
        n_wrong: cells that look wrong.
        n_cells: of the table.
        more: groups that are not among them.
    """
    if not n_wrong:
        say(f"none of {n_cells:,} cells looks wrong")
        return
    say(f"{n_wrong:,} of {n_cells:,} cells look wrong:")
    for place, mistake, n, alone, among in groups[:SHOWN]:
        what = f"{mistake}: " if mistake else ""
        say(f"  {alone}" if n == 1 else f"  {n:,} in {place}: {what}such as {among}")
    more += max(len(groups) - SHOWN, 0)
    if more:
        say(f"  ... and {more:,} more kinds")


def count_gaps(gaps: "pd.DataFrame") -> dict[str, int]:
    """How many cells are missing, by column.

    Args:
        gaps: as `EnergyDetector.gaps` lists them.

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
