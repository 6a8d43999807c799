"""From a table to the matrix that a model sees, and back."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import narwhals.stable.v1 as nw
import numpy as np
import pandas as pd

from pscd.errors import UserError
from pscd.tables.cells import Cells, as_frame, cells_of, column_missing
from pscd.tables.dates import date_spelling, date_values, dates_from, guess_formats, in_zone, parse_dates
from pscd.tables.levels import level_codes, listed
from pscd.tables.numbers import (
    LARGEST,
    NumberFormat,
    decimal_votes,
    guess_format,
    number_spelling,
    stated_marks,
    stated_or_shown,
)
from pscd.tables.read import ReadOptions
from pscd.tables.schema import Column, Schema


@dataclass(frozen=True)
class Encoded:
    """A table as a model sees it; `n_source` counts all columns of the schema."""

    x: np.ndarray  # `(n, D)` in float64, one column for each of the schema's parts; NaN where missing or invalid
    invalid: np.ndarray  # `(n, n_source)`: a word among numbers, a new category, an impossible date
    missing: np.ndarray  # `(n, n_source)`: cells without a value


def encode(frame: Any, schema: Schema) -> Encoded:
    """A table as numbers and codes.

    Args:
        frame: a data frame of any library. Its columns may come in another order, with other types, and with others
            between them; text may have another decimal sign or write dates another way.
        schema: what the columns are.

    Returns:
        The matrix, and where it has no value and why.

    Raises:
        UserError: a column is not there.

    >>> import pandas as pd
    >>> from pscd.tables import look
    >>> pets = pd.DataFrame({"pet": ["cat", "dog", "cat"], "kg": [4.5, None, 3.0]})
    >>> encode(pd.DataFrame({"kg": ["4", "heavy"], "pet": ["dog", "bird"]}), look(pets)).x
    array([[ 1.,  4.],
           [nan, nan]])
    """
    table = as_frame(frame)
    if isinstance(frame, np.ndarray) and len(table.columns) == len(schema.columns):
        table = table.rename(dict(zip(table.columns, schema.names, strict=True)))
    absent = [column.name for column in schema.learnt() if column.name not in table.columns]
    if absent:
        raise UserError(f"no column {listed(absent)}; there are {listed(table.columns)}")
    n, n_source = len(table), len(schema.columns)
    x = np.full((n, len(schema.parts)), np.nan)
    invalid, missing = np.zeros((n, n_source), bool), np.zeros((n, n_source), bool)
    parts = [[j for j, part in enumerate(schema.parts) if part.source == i] for i in range(n_source)]
    cells = {}
    for i, column in _present(table, schema).items():
        plain = _plain_numbers(table[column.name], column, schema)
        if plain is None:
            cells[i] = cells_of(table[column.name], column_missing(column.name, schema.missing))
        else:
            x[:, parts[i][0]], missing[:, i] = plain
            invalid[:, i] = np.isnan(plain[0]) & ~plain[1]
    schema = _adapted(cells, schema, ReadOptions())
    for i, of_column in cells.items():
        column = schema.columns[i]
        missing[:, i] = of_column.codes < 0
        if column.is_learnt:
            values = _values(of_column, column)
            bad = np.isnat(values) if values.dtype.kind == "M" else np.isnan(values)
            invalid[:, i] = of_column.spread(bad, False)
            for j in parts[i]:
                role = schema.parts[j].role
                x[:, j] = of_column.spread(date_values(values, role) if column.kind == "date" else values)
    return Encoded(x, invalid, missing)


def adapted(frame: Any, schema: Schema, options: ReadOptions | None = None) -> Schema:
    """The schema for another file with the same columns: its decimal sign, as stated or as its numbers show.

    Args:
        frame: the file, or its first block.
        schema: of the first file.
        options: what the user stated about the other file.

    Returns:
        A schema that encodes all blocks of the file alike.
    """
    table = as_frame(frame)
    cells = {
        i: cells_of(table[column.name], column_missing(column.name, schema.missing))
        for i, column in _present(table, schema).items()
        if column.kind in ("number", "integer")
    }
    return _adapted(cells, schema, options or ReadOptions())


def _present(table: "nw.DataFrame[Any]", schema: Schema) -> dict[int, Column]:
    return {i: column for i, column in enumerate(schema.columns) if column.name in table.columns}


def _plain_numbers(series: "nw.Series[Any]", column: Column, schema: Schema) -> tuple[np.ndarray, np.ndarray] | None:
    """The numbers of a column and which cells are missing, at once; None where most cells are no plain numbers."""
    if column.kind not in ("number", "integer") or column_missing(column.name, schema.missing):
        return None
    if series.dtype.is_numeric():
        values = series.cast(nw.Float64).to_numpy()
        return np.where(np.abs(values) < LARGEST, values, np.nan), np.isnan(values)
    if series.dtype != nw.String or column.decimal != ".":
        return None
    text = series.to_pandas()
    values = pd.to_numeric(text, errors="coerce").to_numpy(np.float64, na_value=np.nan).copy()
    rest = np.flatnonzero(~(np.abs(values) < LARGEST))
    if 2 * len(rest) > len(values):
        return None
    cells = cells_of(nw.from_native(text.iloc[rest], series_only=True))
    values[rest] = cells.spread(_format_of(column).parse(cells.values))
    missing = np.zeros(len(values), bool)
    missing[rest] = cells.codes < 0
    return values, missing


def _adapted(cells: Mapping[int, Cells], schema: Schema, options: ReadOptions) -> Schema:
    numeric = {
        i: of_column
        for i, of_column in cells.items()
        if schema.columns[i].kind in ("number", "integer") and of_column.kind == "text"
    }
    decimal = stated_marks(options.decimal, options.thousands)[0] or _shown_decimal(numeric, schema)
    columns = list(schema.columns)
    for i, of_column in numeric.items():
        column = columns[i]
        if decimal not in (None, column.decimal):
            shown = _format_of(column)
            stated = NumberFormat(decimal, "", column.prefix, column.suffix)
            if stated_or_shown(stated, shown, of_column.values, of_column.counts)[0] is stated:
                thousands = {",": ".", ".": ","}[decimal] if column.thousands else ""
                columns[i] = replace(column, decimal=decimal, thousands=thousands)
    return schema if columns == list(schema.columns) else replace(schema, columns=tuple(columns))


def _shown_decimal(cells: Mapping[int, Cells], schema: Schema) -> str | None:
    """The decimal sign of a new file, if its numbers show that it is not that of the first."""
    if not cells:
        return None
    votes = np.array([decimal_votes(of_column.values, of_column.counts) for of_column in cells.values()]).sum(0)
    points = [schema.columns[i].decimal == "." for i in cells]
    first = 0 if 2 * sum(points) >= len(points) else 1
    # A single cell may be a slip.
    return (",", ".")[first] if votes[1 - first] > max(1, votes[first]) else None


def _format_of(column: Column) -> NumberFormat:
    return NumberFormat(column.decimal, column.thousands, column.prefix, column.suffix)


def _values(cells: Cells, column: Column) -> np.ndarray:
    """The number, code or date of each distinct value; NaN or NaT for invalid ones."""
    if column.kind in ("category", "boolean"):
        return level_codes(cells, column)
    return _dates(cells, column) if column.kind == "date" else _numbers(cells, column)


def _dates(cells: Cells, column: Column) -> np.ndarray:
    if cells.kind == "date":
        return cells.values
    texts = cells.texts()
    dates = parse_dates(texts, column.formats)
    if not _fits(cells, ~np.isnat(dates)):  # a new file may write dates another way
        dates = parse_dates(texts, column.formats + guess_formats(texts, cells.counts)[0])
    return dates


def _numbers(cells: Cells, column: Column) -> np.ndarray:
    if cells.kind == "date":
        return np.full(len(cells.values), np.nan)
    if cells.kind != "text":
        return np.where(np.abs(cells.values) < LARGEST, cells.values, np.nan)
    form = _format_of(column)
    numbers = form.parse(cells.values)
    if not _fits(cells, np.isfinite(numbers)):  # a new file may write numbers another way
        again = guess_format(cells.values, cells.counts, form.decimal).parse(cells.values)
        numbers = again if np.isfinite(again).sum() > np.isfinite(numbers).sum() else numbers
    return numbers


def _fits(cells: Cells, good: np.ndarray) -> bool:
    return bool(2 * cells.counts[good].sum() >= cells.n_present)


def decode(x: np.ndarray, schema: Schema, like: Any = None) -> Any:
    """A table from the matrix that a model sees.

    Args:
        x: `(n, D)` as `Encoded.x`; numbers need not be rounded, NaN is missing.
        schema: what the columns are.
        like: a data frame of the library that the result is wanted in; None: pandas.

    Returns:
        The learnt columns: whole numbers where they were whole, flags and categories among their values, dates. Numbers
        are rounded to the column's decimals. Rare values of a category, which share a code, are missing.

    >>> from pscd.tables import Column, Schema
    >>> schema = Schema((Column("pet", "category", ("cat", "dog")), Column("age", "integer", decimals=0)))
    >>> decode(np.array([[1.0, 3.7]]), schema)
       pet  age
    0  dog    4
    """
    columns = {
        column.name: _decoded({part.role: x[:, j] for j, part in enumerate(schema.parts) if part.source == i}, column)
        for i, column in enumerate(schema.columns)
        if column.is_learnt
    }
    frame = pd.DataFrame(columns, index=pd.RangeIndex(len(x)))
    if like is None or isinstance(like, pd.DataFrame | np.ndarray):
        return frame
    backend = nw.get_native_namespace(as_frame(like))
    plain = {str(name): [None if pd.isna(v) else v for v in values.tolist()] for name, values in frame.items()}
    return nw.from_dict(plain, backend=backend).to_native()


def _decoded(values: dict[str, np.ndarray], column: Column) -> pd.Series:
    if column.kind == "date":
        dates = dates_from(values, column.resolution)
        if column.source == "number":  # 20201231
            return pd.Series(pd.to_numeric(pd.Series(date_spelling(dates, column.formats[0])))).astype("Int64")
        zoned = column.source == "date" and column.zones
        return in_zone(pd.Series(dates), column.zones[0]) if zoned else pd.Series(dates)
    (numbers,) = values.values()
    missing = ~np.isfinite(numbers)
    if column.kind in ("category", "boolean"):
        codes = np.where(missing, 0, np.round(numbers)).astype(int).clip(0, column.n_codes - 1)
        missing |= codes >= len(column.levels)
        return _among(np.array(column.levels, dtype=object)[codes.clip(0, len(column.levels) - 1)], missing, column)
    if column.lowest is not None and column.lowest >= 0:
        numbers = np.maximum(numbers, 0.0)  # a count or a price is not below nothing
    if column.decimals is not None:
        numbers = np.round(numbers, column.decimals)
    if column.kind == "integer":
        return _masked(pd.Series(np.where(missing, 0, np.round(numbers)).astype(np.int64)), missing, "Int64")
    return pd.Series(numbers)


def _among(levels: np.ndarray, missing: np.ndarray, column: Column) -> pd.Series:
    """Levels as the table had them: text, numbers or flags."""
    if column.source == "boolean":
        return _masked(pd.Series(levels == column.levels[1]), missing, "boolean")
    if column.source == "number":
        numbers = pd.Series(np.array([float(level) for level in levels]))
        if (numbers == numbers.round()).all():
            return _masked(numbers.astype(np.int64), missing, "Int64")
        return numbers.mask(missing)
    return pd.Series(levels).mask(missing, None)


def _masked(values: pd.Series, missing: np.ndarray, kind: Literal["Int64", "boolean"]) -> pd.Series:
    return values.astype(kind).mask(missing) if missing.any() else values


def spell(frame: Any, schema: Schema) -> pd.DataFrame:
    """Values as the table's file writes them: decimals, separators, units, date formats; missing cells are empty."""
    table = as_frame(frame).to_pandas()
    by_name = {column.name: column for column in schema.columns}
    columns = {name: _spelled(table[name], by_name[name]) for name in table.columns}
    return pd.DataFrame(columns, index=pd.RangeIndex(len(table)))


def _date_format(column: Column) -> str:
    """The commonest format that can tell the column's dates."""
    timed = column.resolution not in ("year", "month", "day")
    needed = ("%H", "%I") if timed else ("%d",) if column.resolution == "day" else ("%",)
    enough = [form for form in column.formats if any(sign in form for sign in needed)]
    return next(iter((*enough, "%Y-%m-%d %H:%M:%S" if timed else "%Y-%m-%d")))


def _spelled(values: pd.Series, column: Column) -> list[str]:
    if column.kind == "date":
        dates = in_zone(pd.to_datetime(values), None).to_numpy().astype("datetime64[us]")
        offsets = column.zones if column.source == "text" else ()
        return date_spelling(dates, _date_format(column), offsets).tolist()
    if column.kind in ("number", "integer"):
        return ["" if pd.isna(value) else number_spelling(float(value), column) for value in values]
    return ["" if pd.isna(value) else str(value) for value in values]
