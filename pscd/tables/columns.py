"""Columns of a kind, made from their cells: flags, numbers, dates, categories, or nothing to learn from."""

import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pscd.tables.cells import Cells, number_text
from pscd.tables.dates import date_values, offsets_of, parts_of, resolution_of
from pscd.tables.levels import FLAGS, as_boolean, as_category, few_levels, listed
from pscd.tables.notes import missing_code, odd_levels, odd_numbers
from pscd.tables.numbers import NumberFormat, decimals_of, least_decimals
from pscd.tables.schema import Column

ID_NAME = re.compile(
    r"(?:.*[ _.-])?(?:id|ids|uuid|guid|index|rowid|row|nr|no\.?|key|#)|row[ _]?number|unnamed.*|.*[a-z]I[Dd]"
)


@dataclass(frozen=True)
class Thresholds:
    """What decides on the kind of a column."""

    numbers: float = 0.5  # share of the cells of a number column that must be numbers, if hardly any word repeats
    surely_numbers: float = 0.9  # with so many, all words are invalid cells
    flags: float = 0.98  # share of a boolean's cells that must be true or false
    spellings: int = 12  # of true and false in one column, at most
    shortest_code: int = 3  # digits of a code with leading zeros; months and minutes are padded, too, and are numbers
    rows: int = 10  # fewer do not show that a column of different values is an identifier
    unique: float = 0.95  # share of different values from which a text names its row
    words: float = 3.5  # mean number of words from which text is prose


LIMITS = Thresholds()


def flags_of(cells: Cells) -> tuple[str, str] | None:
    """The false and the true word of a column, in its commonest spelling."""
    counts = cells.counts
    if np.sort(counts)[-LIMITS.spellings :].sum() < LIMITS.flags * counts.sum():
        return None
    texts = cells.texts()
    folded = [text.casefold() for text in texts]
    for pair in FLAGS:
        n_flags = counts[np.isin(folded, pair)].sum()
        if set(pair) <= set(folded) and n_flags >= LIMITS.flags * counts.sum():
            order = np.argsort(-counts, kind="stable")
            commonest = [next(texts[i] for i in order if folded[i] == word) for word in pair]
            return commonest[0], commonest[1]
    return None


def is_code(cells: Cells) -> bool:
    """Digits of one length with leading zeros, such as 02139: a number would not be written so."""
    length = len(cells.values[0])
    if length < LIMITS.shortest_code or not all(len(text) == length and text.isdigit() for text in cells.values):
        return False
    return any(text[0] == "0" for text in cells.values)


def are_days(values: np.ndarray) -> bool:
    """Whether numbers such as 20201231 can be dates."""
    return bool((values >= 1900_01_01).all() and (values <= 2100_12_31).all() and (values == np.round(values)).all())


def are_numbers(cells: Cells, numbers: np.ndarray) -> bool:
    """Whether so many cells of a text column are numbers that the others are invalid."""
    good = np.isfinite(numbers)
    share = cells.counts[good].sum() / cells.n_present
    n_words = int((~good).sum())
    n_numbers = len(np.unique(numbers[good]))
    # A category such as 0, 1, 2, 3+ has few numbers, and they repeat.
    few_words = n_numbers >= 3 * n_words and (n_numbers >= LIMITS.rows or n_numbers == cells.counts[good].sum())
    return bool(share >= LIMITS.surely_numbers or n_words == 0 or (share >= LIMITS.numbers and few_words))


def numeric_column(name: str, cells: Cells, values: np.ndarray, form: NumberFormat) -> Column:
    """A column of numbers: a flag, an identifier or a quantity."""
    good = np.isfinite(values)
    distinct = np.unique(values[good])
    if set(distinct.tolist()) == {0.0, 1.0} and not form.prefix and not form.suffix:
        texts = cells.texts()
        zero, one = (texts[np.flatnonzero(values == v)[0]] for v in (0.0, 1.0))
        return as_boolean(name, cells, (zero, one), values)
    if len(distinct) == 1 and good.all():
        return left_out(name, cells, f"constant: always {short(cells.texts()[0])}")
    return _unless_identifier(number_column(name, cells, values, form), cells, distinct)


def _unless_identifier(column: Column, cells: Cells, distinct: np.ndarray) -> Column:
    """A column of numbers; left out, or a category, if they only name something."""
    if column.kind != "integer":
        return column
    name = column.name
    n, all_differ = cells.n_present, len(distinct) >= LIMITS.unique * cells.n_present
    counted = len(distinct) == n and distinct[0] in (0.0, 1.0) and distinct[-1] - distinct[0] == n - 1
    if n >= LIMITS.rows and counted:
        return left_out(name, cells, f"identifier: counts the rows from {distinct[0]:.0f}")
    if ID_NAME.fullmatch(name) or ID_NAME.fullmatch(name.lower()):
        if all_differ and n >= LIMITS.rows:
            return left_out(name, cells, "identifier: different in every row")
        if len(distinct) < n / 2 and few_levels(cells) and column.invalid == 0:
            return replace(as_category(name, cells), notes=("numbers that name something, by the column's name",))
    return column


def number_column(name: str, cells: Cells, values: np.ndarray, form: NumberFormat) -> Column:
    """A column of quantities, some of whose values may be NaN: invalid cells."""
    good = np.isfinite(values)
    counts = cells.counts
    decimals = decimals_of(values[good], counts[good])
    words = tuple(cells.texts()[~good][np.argsort(-counts[~good], kind="stable")])
    n_invalid = int(counts[~good].sum())
    code = missing_code(values[good], counts[good])
    return Column(
        name,
        "integer" if decimals == 0 else "number",
        decimals=decimals,
        invalid=n_invalid,
        notes=odd_numbers(values[good], counts[good], words, n_invalid, decimals),
        missing_code="" if code is None else number_text(code),
        source=cells.kind,
        lowest=float(values[good].min()),
        highest=float(values[good].max()),
        least_decimals=least_decimals(cells.values[good], form) if cells.kind == "text" else 0,
        decimal=form.decimal,
        thousands=form.thousands,
        prefix=form.prefix,
        suffix=form.suffix,
    )


def date_column(name: str, cells: Cells, dates: np.ndarray, formats: tuple[str, ...], odd: tuple[str, ...]) -> Column:
    """A column of dates, some of which may be NaT: invalid cells."""
    good = ~np.isnat(dates)
    counts = cells.counts
    resolution = resolution_of(dates[good])
    days = date_values(dates[good], "days")
    n_invalid = int(counts[~good].sum())
    if n_invalid:
        are = "cell is" if n_invalid == 1 else "cells are"
        odd = (f"{n_invalid} {are} no date: {listed(cells.texts()[~good], 3)}", *odd)
    return Column(
        name,
        "date",
        invalid=n_invalid,
        notes=odd,
        source=cells.kind,
        lowest=float(days.min()),
        highest=float(days.max()),
        formats=formats,
        date_parts=parts_of(dates[good], formats, resolution),
        resolution=resolution,
        zones=offsets_of(cells.values, dates, counts) if cells.kind == "text" else (),
    )


def text_column(name: str, cells: Cells) -> Column:
    """Text: a category if its values repeat; otherwise it names the row, or is prose."""
    n, different = cells.n_present, len(cells.values)
    words = np.mean([text.count(" ") + 1 for text in cells.values[:1000]])
    if different > n / 2 and n >= LIMITS.rows:
        if words >= LIMITS.words:
            return left_out(name, cells, f"free text: {words:.0f} words on average")
        if different >= LIMITS.unique * n:
            return left_out(name, cells, "identifier: different in (nearly) every row")
        return left_out(name, cells, f"{different:,} different values in {n:,} cells: too many for a category")
    if not few_levels(cells):
        return left_out(name, cells, f"{different:,} different values, none common: too many for a category")
    column = as_category(name, cells)
    return replace(column, notes=(*column.notes, *odd_levels(cells.values, cells.counts)))


def left_out(name: str, cells: Cells, why: str) -> Column:
    """A column that a model does not see, and why."""
    return Column(name, "left out", notes=(why,), source=cells.kind)


def short(text: Any, most: int = 30) -> str:
    """A value for a message, cut if it is long."""
    text = str(text)
    return repr(text if len(text) <= most else f"{text[:most]}...")
