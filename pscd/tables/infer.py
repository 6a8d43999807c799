"""What the columns of a table are: numbers, flags, categories, dates, or nothing to learn from."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pscd.errors import UserError
from pscd.tables.cells import Cells, as_frame, cells_of, column_missing, number_text
from pscd.tables.dates import date_values, guess_formats, offsets_of, parse_dates, parts_of, resolution_of
from pscd.tables.levels import FLAGS, as_boolean, as_category, few_levels, listed
from pscd.tables.notes import missing_code, odd_levels, odd_numbers
from pscd.tables.numbers import (
    NumberFormat,
    decimal_votes,
    decimals_of,
    guess_format,
    least_decimals,
    stated_marks,
    stated_or_shown,
)
from pscd.tables.read import ReadOptions, TableFile
from pscd.tables.schema import KINDS, Column, Schema

ID_NAME = re.compile(
    r"(?:.*[ _.-])?(?:id|ids|uuid|guid|index|rowid|row|nr|no\.?|key|#)|row[ _]?number|unnamed.*|.*[a-z]I[Dd]"
)
SKIP = ("skip", "left out", "id")


@dataclass(frozen=True)
class Thresholds:
    """What decides on the kind of a column.

    Args:
        numbers: share of the cells of a number column that must be numbers, if hardly any word repeats.
        surely_numbers: with so many, all words are invalid cells.
        flags: share of a boolean's cells that must be true or false.
        spellings: of true and false in one column, at most.
        shortest_code: digits of a code with leading zeros; months and minutes are padded, too, and are numbers.
        rows: fewer do not show that a column of different values is an identifier.
        unique: share of different values from which a text names its row.
        words: mean number of words from which text is prose.
    """

    numbers: float = 0.5
    surely_numbers: float = 0.9
    flags: float = 0.98
    spellings: int = 12
    shortest_code: int = 3
    rows: int = 10
    unique: float = 0.95
    words: float = 3.5


LIMITS = Thresholds()


@dataclass(frozen=True)
class Stated:
    """What the user stated about the whole table, and the decimal sign that it shows."""

    shown: str = "."
    decimal: str | None = None
    thousands: str | None = None
    day_first: bool | None = None


def look(
    table: Any,
    *,
    kinds: Mapping[str, str] | None = None,
    ids: Sequence[str] = (),
    options: ReadOptions | None = None,
    missing: Sequence[str] = (),
) -> Schema:
    """Infer what each column of a table is.

    Args:
        table: a `TableFile`, or a data frame of pandas, polars or pyarrow, of typed columns or of text cells.
        kinds: corrections by column: one of `number`, `integer`, `boolean`, `category`, `date`, `date:FORMAT`, `skip`.
        ids: columns that name a row, and are left out.
        options: decimal sign, separator of thousands, missing values and order of dates, where they are stated; None:
            those of the `TableFile`.
        missing: spellings of a missing value, if there are no options.

    Returns:
        The schema, with what is odd about each column.

    Raises:
        UserError: there are no rows or columns, or a correction does not fit.

    >>> import pandas as pd
    >>> table = pd.DataFrame({"age": ["31", "?", "unknown", "45", "1,020"], "smokes": ["yes", "no", "no", "yes", "no"]})
    >>> schema = look(table)
    >>> [(column.name, column.kind, column.missing, column.stray) for column in schema.columns]
    [('age', 'integer', 1, 1), ('smokes', 'boolean', 0, 0)]
    >>> look(table, kinds={"age": "skip"}).learnt()[0].levels
    ('no', 'yes')
    """
    notes: tuple[str, ...] = ()
    if isinstance(table, TableFile):
        file, table = table, table.frame()
        options, notes = options or file.options, file.notes
    options = options or _options_in(table) or ReadOptions(missing=tuple(missing))
    if missing and not options.missing:
        options = replace(options, missing=tuple(missing))
    notes = notes or tuple(getattr(table, "attrs", {}).get("pscd", {}).get("notes", ()))
    frame = as_frame(table)
    kinds = dict(kinds or {})
    _check_names(frame.columns, kinds, ids)
    if len(frame.columns) == 0 or len(frame) == 0:
        raise UserError("there are no rows in the table" if len(frame.columns) else "the table has no columns")
    cells = {name: cells_of(frame[name], column_missing(name, options.missing)) for name in frame.columns}
    stated = Stated(
        common_decimal(cells, options.delimiter or ","),
        *stated_marks(options.decimal, options.thousands),
        options.day_first,
    )
    columns = []
    for name, found in cells.items():
        kind = "id" if name in ids else kinds.get(name)
        column = _stated_kind(name, found, kind, stated) if kind is not None else _guess(name, found, stated)
        zone = getattr(frame[name].dtype, "time_zone", None) if column.kind == "date" else None
        columns.append(replace(column, missing=int((found.codes < 0).sum()), zones=(zone,) if zone else column.zones))
    if len(frame) == 1:
        notes += ("one row: there is nothing to compare it with",)
    elif not any(column.is_learnt for column in columns):
        notes += ("no column is left to learn from",)
    return Schema(tuple(columns), options.missing, len(frame), notes)


def numeric_schema(
    table: TableFile, columns: Sequence[str] | None = None, *, n_rows: int = 100_000
) -> tuple[Schema, tuple[str, ...]]:
    """What a density of numbers can learn from a table: numbers, flags and dates.

    Args:
        table: the file.
        columns: to learn from, in this order; None: all of these kinds.
        n_rows: of a larger table about so many are looked at.

    Returns:
        The schema, whose parts are all numbers, and a note on the columns that are left out.

    Raises:
        UserError: a column is not there or holds no numbers, or none is left.
    """
    absent = [name for name in columns or () if name not in table.names]
    if absent:
        raise UserError(f"{table.path}: has no column {listed(absent)}; it has {listed(table.names)}")
    frame = table.excerpt(n_rows)
    try:
        schema = look(frame if columns is None else frame[list(columns)], options=table.options)
        numeric = schema.numeric()
        if columns is not None and len(numeric.learnt()) < len(columns):
            kinds = {column.name: "number" for column in numeric.columns if not column.is_learnt}
            numeric = look(frame[list(columns)], kinds=kinds, options=table.options).numeric()
    except UserError as error:
        raise UserError(f"{table.path}: {error}") from None
    left_out = [f"{column.name} ({column.notes[0]})" for column in numeric.columns if not column.is_learnt]
    if not numeric.parts:
        what = "; ".join(left_out[:4])
        raise UserError(f"{table.path}: no column of numbers or dates is left to learn from: {what}")
    shown = ", ".join(left_out[:8]) + ", ..." * (len(left_out) > 8)
    return numeric, (f"not learnt from: {shown}",) if left_out else ()


def _options_in(frame: Any) -> ReadOptions | None:
    about = getattr(frame, "attrs", {}).get("pscd", {})
    names = ("delimiter", "decimal", "thousands", "missing", "day_first")
    return ReadOptions(**{name: about[name] for name in names if name in about}) if about else None


def _check_names(names: Sequence[str], kinds: Mapping[str, str], ids: Sequence[str]) -> None:
    unknown = [name for name in (*kinds, *ids) if name not in names]
    if unknown:
        raise UserError(f"no column {listed(unknown)}; there are {listed(names)}")
    for name, kind in kinds.items():
        if kind not in (*KINDS, *SKIP) and not kind.startswith("date:"):
            words = ", ".join(kind for kind in KINDS if kind != "left out")
            raise UserError(f"{name}={kind}: a column can be {words}, date:FORMAT or skip")


def common_decimal(cells: Mapping[str, Cells], delimiter: str) -> str:
    """The decimal sign that most cells of a table show; where none does, a comma beside semicolons."""
    votes = [decimal_votes(found.values, found.counts) for found in cells.values() if found.kind == "text"]
    points, commas = sum(v[0] for v in votes), sum(v[1] for v in votes)
    if points == commas:
        return "," if delimiter == ";" else "."
    return "." if points > commas else ","


def _guess(name: str, cells: Cells, stated: Stated) -> Column:
    """What a column is, from its cells alone."""
    if cells.n_present == 0:
        return _left_out(name, cells, "all missing")
    if len(cells.values) == 1:
        return _left_out(name, cells, f"constant: always {_short(cells.texts()[0])}")
    if cells.kind == "date":
        return _date(name, cells, cells.values, (), ())
    if cells.kind == "boolean":
        return as_boolean(name, cells, ("False", "True"))
    if cells.kind == "number" and not _are_days(cells.values):
        return _numeric(name, cells, cells.values, NumberFormat())
    return _guess_text(name, cells, stated)


def _guess_text(name: str, cells: Cells, stated: Stated) -> Column:
    texts = cells.texts()
    formats, odd = guess_formats(texts, cells.counts, stated.day_first)
    if formats:
        return _date(name, cells, parse_dates(texts, formats), formats, odd)
    if cells.kind == "number":
        return _numeric(name, cells, cells.values, NumberFormat())
    flags = _flags(cells)
    if flags is not None:
        return as_boolean(name, cells, flags)
    if _is_code(cells):
        column = _text(name, cells)
        return replace(column, notes=("a code: numbers with leading zeros", *column.notes))
    form, odd = _format(cells, stated)
    numbers = form.parse(cells.values)
    if _are_numbers(cells, numbers):
        column = _numeric(name, cells, numbers, form)
        return replace(column, notes=(*odd, *column.notes))
    return _text(name, cells)


def _format(cells: Cells, stated: Stated) -> tuple[NumberFormat, tuple[str, ...]]:
    """How the numbers of a column of text are written, and what is odd about that."""
    shown = guess_format(cells.values, cells.counts, stated.shown, stated.thousands)
    if stated.decimal is None:
        return shown, ()
    form = guess_format(cells.values, cells.counts, stated.decimal, stated.thousands, stated=True)
    form, example = stated_or_shown(form, shown, cells.values, cells.counts)
    odd = f"decimal sign {form.decimal!r}, not {stated.decimal!r} as stated: {example}"
    return form, (odd,) if example else ()


def _stated_kind(name: str, cells: Cells, kind: str, stated: Stated) -> Column:
    """A column as the user stated it."""
    if kind in SKIP:
        return _left_out(name, cells, "stated to be an id" if kind == "id" else "stated to be left out")
    if cells.n_present == 0:
        return _left_out(name, cells, "all missing")
    if kind == "category":
        return as_category(name, cells)
    if kind == "boolean":
        return _stated_boolean(name, cells)
    if kind == "date" or kind.startswith("date:"):
        return _stated_date(name, cells, kind.partition(":")[2], stated)
    return _stated_number(name, cells, kind, stated)


def _stated_boolean(name: str, cells: Cells) -> Column:
    flags = _flags(cells)
    two = sorted(cells.texts().tolist())
    if flags is None and len(two) != 2:
        raise UserError(f"column {name!r} has {len(two)} different values, not two: it is no boolean")
    return as_boolean(name, cells, flags or (two[0], two[1]))


def _stated_number(name: str, cells: Cells, kind: str, stated: Stated) -> Column:
    if cells.kind in ("text", "boolean") and {text.casefold() for text in cells.texts()} <= set(FLAGS[0]):
        return as_boolean(name, cells, ("False", "True"))  # flags are the numbers 0 and 1
    form, odd = _format(cells, stated) if cells.kind == "text" else (NumberFormat(), ())
    values = form.parse(cells.values) if cells.kind == "text" else cells.values
    if cells.kind == "date" or not np.isfinite(values).any():
        raise UserError(f"column {name!r} holds no numbers, but for example {_short(cells.texts()[0])}")
    column = _number(name, cells, values, form)
    decimals = 0 if kind == "integer" else column.decimals
    return replace(column, kind=kind, decimals=decimals, notes=(*odd, *column.notes))


def _stated_date(name: str, cells: Cells, form: str, stated: Stated) -> Column:
    if cells.kind == "date":
        return _date(name, cells, cells.values, (), ())
    formats, odd = ((form,), ()) if form else guess_formats(cells.texts(), cells.counts, stated.day_first)
    try:
        dates = parse_dates(cells.texts(), formats)
    except ValueError as error:
        raise UserError(f"{name}=date:{form}: {error}") from None
    if np.isnat(dates).all():
        advice = f"does not fit {form}" if form else "say how they are written: date:%d.%m.%Y"
        raise UserError(f"column {name!r} holds no dates, but for example {_short(cells.texts()[0])}; {advice}")
    return _date(name, cells, dates, formats, odd)


def _flags(cells: Cells) -> tuple[str, str] | None:
    """The false and the true word of a column, in its commonest spelling."""
    counts = cells.counts
    if np.sort(counts)[-LIMITS.spellings :].sum() < LIMITS.flags * counts.sum():
        return None
    texts = cells.texts()
    folded = [text.casefold() for text in texts]
    for pair in FLAGS:
        there = np.array([word in pair for word in folded])
        if {word for word in folded if word in pair} == set(pair) and counts[
            there
        ].sum() >= LIMITS.flags * counts.sum():
            order = np.argsort(-counts, kind="stable")
            commonest = [next(texts[i] for i in order if folded[i] == word) for word in pair]
            return commonest[0], commonest[1]
    return None


def _is_code(cells: Cells) -> bool:
    """Digits of one length with leading zeros, such as 02139: a number would not be written so."""
    length = len(cells.values[0])
    if length < LIMITS.shortest_code or not all(len(text) == length and text.isdigit() for text in cells.values):
        return False
    return any(text[0] == "0" for text in cells.values)


def _are_days(values: np.ndarray) -> bool:
    """Whether numbers such as 20201231 can be dates."""
    return bool((values >= 1900_01_01).all() and (values <= 2100_12_31).all() and (values == np.round(values)).all())


def _are_numbers(cells: Cells, numbers: np.ndarray) -> bool:
    good = np.isfinite(numbers)
    share = cells.counts[good].sum() / cells.n_present
    n_words = int((~good).sum())
    n_numbers = len(np.unique(numbers[good]))
    # A category such as 0, 1, 2, 3+ has few numbers, and they repeat.
    few_words = n_numbers >= 3 * n_words and (n_numbers >= LIMITS.rows or n_numbers == cells.counts[good].sum())
    return bool(share >= LIMITS.surely_numbers or n_words == 0 or (share >= LIMITS.numbers and few_words))


def _numeric(name: str, cells: Cells, values: np.ndarray, form: NumberFormat) -> Column:
    """A column of numbers: a flag, an identifier or a quantity."""
    good = np.isfinite(values)
    distinct = np.unique(values[good])
    if set(distinct.tolist()) == {0.0, 1.0} and not form.prefix and not form.suffix:
        texts = cells.texts()
        zero, one = (texts[np.flatnonzero(values == v)[0]] for v in (0.0, 1.0))
        return as_boolean(name, cells, (zero, one), values)
    if len(distinct) == 1 and good.all():
        return _left_out(name, cells, f"constant: always {_short(cells.texts()[0])}")
    return _unless_identifier(_number(name, cells, values, form), cells, distinct)


def _unless_identifier(column: Column, cells: Cells, distinct: np.ndarray) -> Column:
    """A column of numbers; left out, or a category, if they only name something."""
    if column.kind != "integer":
        return column
    name = column.name
    n, all_differ = cells.n_present, len(distinct) >= LIMITS.unique * cells.n_present
    counted = len(distinct) == n and distinct[0] in (0.0, 1.0) and distinct[-1] - distinct[0] == n - 1
    if n >= LIMITS.rows and counted:
        return _left_out(name, cells, f"identifier: counts the rows from {distinct[0]:.0f}")
    if ID_NAME.fullmatch(name) or ID_NAME.fullmatch(name.lower()):
        if all_differ and n >= LIMITS.rows:
            return _left_out(name, cells, "identifier: different in every row")
        if len(distinct) < n / 2 and few_levels(cells) and column.stray == 0:
            return replace(as_category(name, cells), notes=("numbers that name something, by the column's name",))
    return column


def _number(name: str, cells: Cells, values: np.ndarray, form: NumberFormat) -> Column:
    good = np.isfinite(values)
    counts = cells.counts
    decimals = decimals_of(values[good], counts[good])
    words = tuple(cells.texts()[~good][np.argsort(-counts[~good], kind="stable")])
    n_stray = int(counts[~good].sum())
    code = missing_code(values[good], counts[good])
    return Column(
        name,
        "integer" if decimals == 0 else "number",
        decimals=decimals,
        stray=n_stray,
        notes=odd_numbers(values[good], counts[good], words, n_stray, decimals),
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


def _date(name: str, cells: Cells, dates: np.ndarray, formats: tuple[str, ...], odd: tuple[str, ...]) -> Column:
    good = ~np.isnat(dates)
    counts = cells.counts
    resolution = resolution_of(dates[good])
    days = date_values(dates[good], "days")
    n_stray = int(counts[~good].sum())
    if n_stray:
        are = "cell is" if n_stray == 1 else "cells are"
        odd = (f"{n_stray} {are} no date: {listed(cells.texts()[~good], 3)}", *odd)
    return Column(
        name,
        "date",
        stray=n_stray,
        notes=odd,
        source=cells.kind,
        lowest=float(days.min()),
        highest=float(days.max()),
        formats=formats,
        date_parts=parts_of(dates[good], formats, resolution),
        resolution=resolution,
        zones=offsets_of(cells.values, dates, counts) if cells.kind == "text" else (),
    )


def _text(name: str, cells: Cells) -> Column:
    """Text: a category if its values repeat; otherwise it names the row, or is prose."""
    n, different = cells.n_present, len(cells.values)
    words = np.mean([text.count(" ") + 1 for text in cells.values[:1000]])
    if different > n / 2 and n >= LIMITS.rows:
        if words >= LIMITS.words:
            return _left_out(name, cells, f"free text: {words:.0f} words on average")
        if different >= LIMITS.unique * n:
            return _left_out(name, cells, "identifier: different in (nearly) every row")
        return _left_out(name, cells, f"{different:,} different values in {n:,} cells: too many for a category")
    if not few_levels(cells):
        return _left_out(name, cells, f"{different:,} different values, none common: too many for a category")
    column = as_category(name, cells)
    return replace(column, notes=(*column.notes, *odd_levels(cells.values, cells.counts)))


def _left_out(name: str, cells: Cells, why: str) -> Column:
    return Column(name, "left out", notes=(why,), source=cells.kind)


def _short(text: Any, most: int = 30) -> str:
    text = str(text)
    return repr(text if len(text) <= most else f"{text[:most]}...")
