"""Categories and flags: which levels a column has, and which level a cell is."""

from collections.abc import Sequence

import numpy as np

from pscd.tables.cells import Cells, number_text
from pscd.tables.schema import Column
from pscd.tables.spelling import slips

MOST_LEVELS = 64
COMMON = 5  # cells of a common level
COVERED = 0.5  # share of the cells that the common levels must have, if there are more
OTHER = "other"
# The false word first. One pair has to cover a column for it to be a flag.
FLAGS = (
    ("false", "true"),
    ("no", "yes"),
    ("n", "y"),
    ("f", "t"),
    ("0", "1"),
    ("off", "on"),
    ("nein", "ja"),
    ("non", "oui"),
    ("no", "si"),
    ("no", "sí"),
    ("não", "sim"),
    ("nee", "ja"),
    ("nej", "ja"),
)


def few_levels(cells: Cells) -> bool:
    """Whether a column's values are few enough, or some of them common enough, for a category."""
    counts = np.sort(cells.counts)[::-1]
    common = counts[: MOST_LEVELS - 1]
    return len(counts) <= MOST_LEVELS or bool(common[common >= COMMON].sum() >= COVERED * counts.sum())


def as_category(name: str, cells: Cells, *, forced: bool = False) -> Column:
    """A column of categories: the commonest values are levels, all others share one.

    Args:
        name: of the column.
        cells: its cells.
        forced: somebody said so, which is not noted.

    Returns:
        The column; levels in the order of numbers if they are numbers, otherwise of the alphabet.
    """
    texts, counts = cells.texts(), cells.counts
    wrong = slips(texts.tolist(), counts)
    if len(wrong) > len(texts) - 2:  # a column without them would be constant
        wrong = {}
    right = ~np.isin(texts, list(wrong))
    stray = int(counts[~right].sum())
    texts, counts = texts[right], counts[right]
    others = len(texts) > MOST_LEVELS
    kept = np.argsort(-counts, kind="stable")[: MOST_LEVELS - 1 if others else MOST_LEVELS]
    levels = _ordered(texts[kept].tolist())
    notes: tuple[str, ...] = ()
    if others:
        rare = int(counts.sum() - counts[kept].sum())
        levels.append(OTHER if OTHER not in levels else f"({OTHER})")
        notes = (f"{len(texts) - len(kept):,} rare values ({rare:,} cells) share the level {levels[-1]!r}",)
    return Column(
        name,
        "category",
        tuple(levels),
        stray=stray,
        notes=notes,
        source=cells.kind,
        slips=tuple(sorted(wrong)),
        others=others,
    )


def as_boolean(name: str, cells: Cells, flags: tuple[str, str], values: np.ndarray | None = None) -> Column:
    """A column of flags.

    Args:
        name: of the column.
        cells: its cells.
        flags: the false and the true word.
        values: 0 and 1 if the cells are numbers.

    Returns:
        The column.
    """
    column = Column(name, "boolean", flags, source=cells.kind)
    codes = level_codes(cells, column) if values is None else values
    bad = ~np.isfinite(codes)
    stray = int(cells.counts[bad].sum())
    are = "cell is" if stray == 1 else "cells are"
    notes = (f"{stray} {are} neither: {listed(cells.texts()[bad], 3)}",) if stray else ()
    return Column(name, "boolean", flags, stray=stray, notes=notes, source=cells.kind)


def level_codes(cells: Cells, column: Column) -> np.ndarray:
    """The code of each distinct value's level.

    Args:
        cells: the cells of a column, perhaps of another type than those that the levels were found in.
        column: a category or a boolean.

    Returns:
        Codes as float64, one for each distinct value; NaN for a value that is no level.
    """
    code: dict[str, float] = {level: i for i, level in enumerate(column.levels)}
    if column.kind == "boolean":
        code |= {level.casefold(): i for i, level in enumerate(column.levels)}
        # Whatever the flag was spelled like, True and 1 mean the same.
        code = {word: i for pair in (FLAGS[0], ("0", "1")) for i, word in enumerate(pair)} | code
    texts = cells.texts()
    code |= dict.fromkeys(column.slips, np.nan)
    unknown = float(len(column.levels) - 1) if column.others else np.nan
    found = [code.get(text, code.get(_other_spelling(text, column.kind), unknown)) for text in texts]
    return np.array(found, dtype=np.float64)


def _other_spelling(text: str, kind: str) -> str:
    """A flag in small letters; 3.0 as 3, which is how a file writes whole numbers beside missing ones."""
    try:
        return number_text(float(text))
    except ValueError:
        return text.casefold() if kind == "boolean" else text


def listed(names: Sequence[object], most: int = 8) -> str:
    """Names for a message, the first few of many.

    Args:
        names: anything that has a text.
        most: how many to show.

    Returns:
        The names in quotation marks.

    >>> listed(["a", "b", "c"], 2)
    "'a', 'b' and 1 more"
    """
    shown = ", ".join(repr(str(name)) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most:,} more"


def _ordered(levels: list[str]) -> list[str]:
    try:
        return sorted(levels, key=float)
    except ValueError:
        return sorted(levels)
