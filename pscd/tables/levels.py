"""Categories and flags: the levels of a column, the level of a cell, and misspelt values."""

from collections.abc import Iterable, Sequence

import numpy as np
from rapidfuzz.distance import OSA, Levenshtein

from pscd.tables.cells import Cells, as_number, number_text
from pscd.tables.schema import Column

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
MOST_LEVELS = 64  # codes of a category, one of them for all rarer values


def few_levels(cells: Cells, common: int = 5, covered: float = 0.5) -> bool:
    """Whether a column's values are few enough, or its commonest frequent enough, for a category."""
    counts = np.sort(cells.counts)[::-1]
    top = counts[: MOST_LEVELS - 1]
    return len(counts) <= MOST_LEVELS or bool(top[top >= common].sum() >= covered * counts.sum())


def as_category(name: str, cells: Cells) -> Column:
    """A column of categories: the commonest values are levels, in their order; all others share one more code."""
    texts, counts = cells.texts(), cells.counts
    wrong = misspellings(texts.tolist(), counts)
    if len(wrong) > len(texts) - 2:  # a column without them would be constant
        wrong = {}
    right = ~np.isin(texts, list(wrong))
    invalid = int(counts[~right].sum())
    texts, counts = texts[right], counts[right]
    others = len(texts) > MOST_LEVELS
    top = np.argsort(-counts, kind="stable")[: MOST_LEVELS - 1 if others else MOST_LEVELS]
    notes: tuple[str, ...] = ()
    if others:
        rare = int(counts.sum() - counts[top].sum())
        notes = (f"{len(texts) - len(top):,} rare values ({rare:,} cells) are treated as one",)
    levels = tuple(_ordered(texts[top].tolist()))
    slipped = tuple(sorted(wrong))
    return Column(
        name, "category", levels, invalid=invalid, notes=notes, source=cells.kind, misspelt=slipped, others=others
    )


def as_boolean(name: str, cells: Cells, flags: tuple[str, str], values: np.ndarray | None = None) -> Column:
    """A column of flags: the false and the true word, or 0 and 1 in `values` if the cells are numbers."""
    column = Column(name, "boolean", flags, source=cells.kind)
    codes = level_codes(cells, column) if values is None else values
    bad = ~np.isfinite(codes)
    invalid = int(cells.counts[bad].sum())
    are = "cell is" if invalid == 1 else "cells are"
    notes = (f"{invalid} {are} neither: {listed(cells.texts()[bad], 3)}",) if invalid else ()
    return Column(name, "boolean", flags, invalid=invalid, notes=notes, source=cells.kind)


def level_codes(cells: Cells, column: Column) -> np.ndarray:
    """The code of each distinct value in float64; NaN for a value that is no level."""
    code: dict[str, float] = {level: i for i, level in enumerate(column.levels)}
    if column.kind == "boolean":
        code |= {level.casefold(): i for i, level in enumerate(column.levels)}
        # Whatever the flag was spelled like, True and 1 mean the same.
        code = {word: i for pair in (FLAGS[0], ("0", "1")) for i, word in enumerate(pair)} | code
    code |= dict.fromkeys(column.misspelt, np.nan)
    unknown = float(len(column.levels)) if column.others else np.nan
    codes = [code.get(text, code.get(_other_spelling(text, column.kind), unknown)) for text in cells.texts()]
    return np.array(codes, dtype=np.float64)


def _other_spelling(text: str, kind: str) -> str:
    """A flag in small letters; 3.0 as 3, which is how a file writes whole numbers beside missing ones."""
    number = as_number(text)
    return number_text(number) if number is not None else text.casefold() if kind == "boolean" else text


def listed(names: Sequence[object], most: int = 8) -> str:
    """Names for a message in quotation marks, the first few of many.

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


def is_slip(text: str, meant: str, *, shortest: int = 3, sure: int = 5) -> bool:
    """Whether a text is another one with a single slip: a letter exchanged with the next, doubled, or left out.

    >>> is_slip("Torgesen", "Torgersen"), is_slip("Room 12", "Room 13"), is_slip("Iraq", "Iran")
    (True, False, False)
    """
    # From `sure` letters on any letter too many or another letter is one, too (Iran and Iraq are two countries), and in
    # any word differences of case and blanks. Texts with other digits are different things.
    if text == meant:
        return False
    short, long = _plain(text), _plain(meant)
    if short == long:
        return True
    if len(meant) < shortest or _digits(short) != _digits(long) or OSA.distance(short, long, score_cutoff=1) != 1:
        return False
    if len(meant) >= sure or len(short) < len(long):
        return True
    if len(short) == len(long):
        return Levenshtein.distance(short, long) == 2  # exchanged
    return any(short[:i] + short[i + 1 :] == long and short[i] == short[i - 1] for i in range(1, len(short)))


def _plain(text: str) -> str:
    return "".join(text.casefold().split())


def _digits(text: str) -> str:
    return "".join(ch for ch in text if ch.isdigit())


def meant(text: str, levels: Iterable[str]) -> list[str]:
    """The levels of which a text is a slip, mostly none or one."""
    return [level for level in levels if is_slip(text, level)]


def misspellings(
    texts: Sequence[str], counts: np.ndarray, *, rare: float = 0.01, times: int = 10, most: int = 2_000
) -> dict[str, str]:
    """For each misspelt value of a column the common one that is meant, at least `times` as common; at most `rare`.

    >>> misspellings(["Male", "Female", "Femal"], np.array([100, 90, 1]))
    {'Femal': 'Female'}
    """
    if len(texts) > most:
        return {}
    order = np.argsort(-np.asarray(counts), kind="stable")
    total, meant_by = int(np.sum(counts)), {}
    common = [(str(texts[i]), int(counts[i])) for i in order if counts[i] >= times]
    for i in order[::-1]:
        text, count = str(texts[i]), int(counts[i])
        if count > max(2, rare * total) or times * count > (common[0][1] if common else 0):
            continue
        right = meant(text, (level for level, often in common if often >= times * count))
        if right:
            meant_by[text] = right[0]
    return meant_by
