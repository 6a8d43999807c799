"""Cells of a table in a list: the file that they are written to, and the line that tells of one."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pscd.cli.common import write

if TYPE_CHECKING:
    import pandas as pd


def write_cells(found: "pd.DataFrame", out: Path) -> None:
    """Write cells as `suspects` lists them, with rows counted from 1.

    Args:
        found: the cells.
        out: a `.csv` file.
    """
    named = found.assign(row=found["row"] + 1).rename(columns={"cost": "energy"})
    write(out, named.to_numpy(), {name: named[name] for name in named.columns})


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
