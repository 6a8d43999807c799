"""What the columns of a table are: numbers, flags, categories, dates, or nothing to learn from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pscd.errors import UserError
from pscd.tables.cells import Cells, as_frame, cells_of, column_missing
from pscd.tables.columns import (
    are_days,
    are_numbers,
    date_column,
    flags_of,
    is_code,
    left_out,
    number_column,
    numeric_column,
    short,
    text_column,
)
from pscd.tables.dates import guess_formats, parse_dates
from pscd.tables.levels import FLAGS, as_boolean, as_category, listed
from pscd.tables.numbers import NumberFormat, decimal_votes, guess_format, stated_marks, stated_or_shown
from pscd.tables.read import ReadOptions, TableFile
from pscd.tables.schema import KINDS, Column, Schema


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
) -> Schema:
    """Infer what each column of a table is.

    Args:
        table: a `TableFile`, or a data frame of pandas, polars or pyarrow, of typed columns or of text cells.
        kinds: corrections by column: one of `number`, `integer`, `boolean`, `category`, `date`, `date:FORMAT`, `skip`.
        ids: columns that name a row, and are left out.
        options: decimal sign, separator of thousands, missing values and order of dates, where they are stated; None:
            those of the `TableFile`.

    Returns:
        The schema, with what is odd about each column.

    Raises:
        UserError: there are no rows or columns, or a correction does not fit.

    >>> import pandas as pd
    >>> table = pd.DataFrame({"age": ["31", "?", "unknown", "45", "1,020"], "smokes": ["yes", "no", "no", "yes", "no"]})
    >>> schema = look(table)
    >>> [(column.name, column.kind, column.missing, column.invalid) for column in schema.columns]
    [('age', 'integer', 1, 1), ('smokes', 'boolean', 0, 0)]
    >>> look(table, kinds={"age": "skip"}).learnt()[0].levels
    ('no', 'yes')
    """
    notes: tuple[str, ...] = ()
    if isinstance(table, TableFile):
        file, table = table, table.frame()
        options, notes = options or file.options, file.notes
    options = options or ReadOptions()
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
    for name, one in cells.items():
        kind = "id" if name in ids else kinds.get(name)
        column = _stated_kind(name, one, kind, stated) if kind is not None else _guess(name, one, stated)
        zone = getattr(frame[name].dtype, "time_zone", None) if column.kind == "date" else None
        columns.append(replace(column, missing=int((one.codes < 0).sum()), zones=(zone,) if zone else column.zones))
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
    others = [f"{column.name} ({column.notes[0]})" for column in numeric.columns if not column.is_learnt]
    if not numeric.parts:
        what = "; ".join(others[:4])
        raise UserError(f"{table.path}: no column of numbers or dates is left to learn from: {what}")
    shown = ", ".join(others[:8]) + ", ..." * (len(others) > 8)
    return numeric, (f"not learnt from: {shown}",) if others else ()


def _check_names(names: Sequence[str], kinds: Mapping[str, str], ids: Sequence[str]) -> None:
    unknown = [name for name in (*kinds, *ids) if name not in names]
    if unknown:
        raise UserError(f"no column {listed(unknown)}; there are {listed(names)}")
    for name, kind in kinds.items():
        if kind not in (*KINDS, "skip", "id") and not kind.startswith("date:"):
            words = ", ".join(kind for kind in KINDS if kind != "left out")
            raise UserError(f"{name}={kind}: a column can be {words}, date:FORMAT or skip")


def common_decimal(cells: Mapping[str, Cells], delimiter: str) -> str:
    """The decimal sign that most cells of a table show; where none does, a comma beside semicolons."""
    votes = [decimal_votes(text.values, text.counts) for text in cells.values() if text.kind == "text"]
    points, commas = sum(v[0] for v in votes), sum(v[1] for v in votes)
    if points == commas:
        return "," if delimiter == ";" else "."
    return "." if points > commas else ","


def _guess(name: str, cells: Cells, stated: Stated) -> Column:
    """What a column is, from its cells alone."""
    if cells.n_present == 0:
        return left_out(name, cells, "all missing")
    if len(cells.values) == 1:
        return left_out(name, cells, f"constant: always {short(cells.texts()[0])}")
    if cells.kind == "date":
        return date_column(name, cells, cells.values, (), ())
    if cells.kind == "boolean":
        return as_boolean(name, cells, ("False", "True"))
    if cells.kind == "number" and not are_days(cells.values):
        return numeric_column(name, cells, cells.values, NumberFormat())
    return _guess_text(name, cells, stated)


def _guess_text(name: str, cells: Cells, stated: Stated) -> Column:
    texts = cells.texts()
    formats, odd = guess_formats(texts, cells.counts, stated.day_first)
    if formats:
        return date_column(name, cells, parse_dates(texts, formats), formats, odd)
    if cells.kind == "number":
        return numeric_column(name, cells, cells.values, NumberFormat())
    flags = flags_of(cells)
    if flags is not None:
        return as_boolean(name, cells, flags)
    if is_code(cells):
        column = text_column(name, cells)
        return replace(column, notes=("a code: numbers with leading zeros", *column.notes))
    form, odd = _format(cells, stated)
    numbers = form.parse(cells.values)
    if are_numbers(cells, numbers):
        column = numeric_column(name, cells, numbers, form)
        return replace(column, notes=(*odd, *column.notes))
    return text_column(name, cells)


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
    if kind in ("skip", "left out", "id"):
        return left_out(name, cells, "stated to be an id" if kind == "id" else "stated to be left out")
    if cells.n_present == 0:
        return left_out(name, cells, "all missing")
    if kind == "category":
        return as_category(name, cells)
    if kind == "boolean":
        return _stated_boolean(name, cells)
    if kind == "date" or kind.startswith("date:"):
        return _stated_date(name, cells, kind.partition(":")[2], stated)
    return _stated_number(name, cells, kind, stated)


def _stated_boolean(name: str, cells: Cells) -> Column:
    flags = flags_of(cells)
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
        raise UserError(f"column {name!r} holds no numbers, but for example {short(cells.texts()[0])}")
    column = number_column(name, cells, values, form)
    decimals = 0 if kind == "integer" else column.decimals
    return replace(column, kind=kind, decimals=decimals, notes=(*odd, *column.notes))


def _stated_date(name: str, cells: Cells, form: str, stated: Stated) -> Column:
    if cells.kind == "date":
        return date_column(name, cells, cells.values, (), ())
    formats, odd = ((form,), ()) if form else guess_formats(cells.texts(), cells.counts, stated.day_first)
    try:
        dates = parse_dates(cells.texts(), formats)
    except ValueError as error:
        raise UserError(f"{name}=date:{form}: {error}") from None
    if np.isnat(dates).all():
        advice = f"does not fit {form}" if form else "say how they are written: date:%d.%m.%Y"
        raise UserError(f"column {name!r} holds no dates, but for example {short(cells.texts()[0])}; {advice}")
    return date_column(name, cells, dates, formats, odd)
