"""A column of any data frame as distinct values and codes, so that each value is looked at once."""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import narwhals.stable.v1 as nw
import numpy as np
import pandas as pd
from narwhals.stable.v1.dependencies import is_into_dataframe

from pscd.errors import UserError

MISSING = frozenset(
    ("", "na", "n/a", "#n/a", "#na", "n.a.", "nan", "-nan", "null", "none", "nil", "-", "--", "?", ".", "<na>", "nat")
)


@dataclass(frozen=True)
class Cells:
    """The cells of one column."""

    kind: str  # what the values are: `text` (stripped), `number`, `boolean` (as 0 and 1) or `date`
    values: np.ndarray  # the distinct values: an object array of texts, float64, or datetime64 in microseconds
    codes: np.ndarray  # index of each cell's value; -1: missing

    @property
    def counts(self) -> np.ndarray:
        """How often each value occurs."""
        return np.bincount(self.codes[self.codes >= 0], minlength=len(self.values))

    @property
    def n_present(self) -> int:
        """Cells that are not missing."""
        return int((self.codes >= 0).sum())

    def texts(self) -> np.ndarray:
        """The values as texts: whole numbers without a decimal point, dates as ISO has them."""
        if self.kind == "text":
            return self.values
        spell = {"date": _date_text, "boolean": lambda v: str(bool(v)), "number": number_text}[self.kind]
        return np.array([spell(value) for value in self.values], dtype=object)

    def spread(self, of_values: np.ndarray, missing: Any = np.nan) -> np.ndarray:
        """One entry for each cell, from one entry for each distinct value and one for missing cells."""
        return np.append(of_values, np.asarray([missing], of_values.dtype))[self.codes]


def as_frame(frame: Any) -> "nw.DataFrame[Any]":
    """Any data frame, or an array of numbers, in narwhals' common form.

    Args:
        frame: of pandas, polars, pyarrow or another library that narwhals knows; or a two-dimensional array.

    Returns:
        The same table; columns of an array are called x0, x1, ...

    Raises:
        UserError: it is no table, or two columns have one name.
    """
    if isinstance(frame, np.ndarray):
        if frame.ndim != 2:
            raise UserError(f"a table has two dimensions, this array has {frame.ndim}")
        frame = pd.DataFrame(frame, columns=[f"x{j}" for j in range(frame.shape[1])])
    if isinstance(frame, pd.DataFrame):
        frame = with_text_names(frame)
    try:
        native = nw.from_native(frame)
    except TypeError:
        raise UserError(f"expected a data frame of pandas, polars or pyarrow, got {type(frame).__name__}") from None
    return native.collect() if isinstance(native, nw.LazyFrame) else native


def is_frame(table: Any) -> bool:
    """Whether this is a data frame in memory of a library that narwhals knows."""
    return not isinstance(table, np.ndarray) and is_into_dataframe(table)


def with_text_names(frame: pd.DataFrame) -> pd.DataFrame:
    """A pandas frame whose columns have distinct texts as names, as those of other libraries do."""
    names = [str(name) for name in frame.columns]
    if len(set(names)) < len(names):
        twice = min(name for name in names if names.count(name) > 1)
        raise UserError(f"column {twice!r} is there twice; give every column a name of its own")
    return frame if names == list(frame.columns) else frame.set_axis(names, axis=1)


def cells_of(series: "nw.Series[Any]", missing: Sequence[str] = ()) -> Cells:
    """A column as distinct values and codes; `missing` are spellings beside the usual ones."""
    dtype = series.dtype
    values: Any
    if dtype == nw.Boolean:
        kind, values = "boolean", series.cast(nw.Int8).cast(nw.Float64).to_numpy()
    elif dtype.is_numeric():
        kind, values = "number", series.cast(nw.Float64).to_numpy()
    elif dtype in (nw.Datetime, nw.Date):
        kind, values = "date", _naive(series)
    elif dtype in (nw.Categorical, nw.Enum):
        kind, values = "text", series.to_pandas()
        values = values.cat.rename_categories([_cell_text(level) for level in values.cat.categories])
    else:
        kind, values = "text", series.to_pandas()
        if dtype != nw.String:
            values = values.map(_cell_text, na_action="ignore")
    codes, distinct = pd.factorize(values)
    distinct = np.asarray(distinct, dtype=object if kind == "text" else None)
    if kind == "text":
        # Values that differ in blanks around them are one.
        again, distinct = pd.factorize(objects(value.strip() for value in distinct))
        codes = np.append(again, -1)[codes]
    return _without_missing(Cells(kind, distinct, codes.astype(np.int64)), missing)


def objects(values: Any) -> np.ndarray:
    """An object array of texts, which numpy would otherwise make one of fixed width."""
    return np.array([*values, ""], dtype=object)[:-1]


def number_text(value: float) -> str:
    """A number in its shortest text: 3, not 3.0.

    >>> number_text(3.0), number_text(0.25)
    ('3', '0.25')
    """
    is_exact = np.isfinite(value) and value == int(value) and abs(value) < 2.0**53
    return str(int(value)) if is_exact else repr(float(value))


def column_missing(name: str, missing: Sequence[str]) -> list[str]:
    """The spellings of a missing value that hold for one column.

    >>> column_missing("age", ["unknown", "age=999", "height=0"])
    ['unknown', '999']
    """
    return [word.removeprefix(f"{name}=") for word in missing if "=" not in word or word.startswith(f"{name}=")]


def as_number(text: str) -> float | None:
    """The number that a text is, in Python's spelling."""
    try:
        return float(text)
    except ValueError:
        return None


def _naive(series: "nw.Series[Any]") -> np.ndarray:
    """Times as the clock on the wall shows them, whatever the zone."""
    if series.dtype == nw.Date:
        series = series.cast(nw.Datetime("us"))
    elif getattr(series.dtype, "time_zone", None) is not None:
        series = series.dt.replace_time_zone(None)
    return np.asarray(series.to_numpy(), dtype="datetime64[us]")


def _without_missing(cells: Cells, missing: Sequence[str]) -> Cells:
    numbers = [number for number in map(as_number, missing) if number is not None]
    is_missing = np.zeros(len(cells.values), bool)
    if cells.kind == "text":
        spellings = MISSING | {word.strip().casefold() for word in missing}
        is_missing = np.array([value.casefold() in spellings for value in cells.values], dtype=bool)
        if numbers:  # 999 is 999.0, too
            is_missing |= np.isin(pd.to_numeric(pd.Series(cells.values), errors="coerce"), numbers)
    elif cells.kind == "number" and numbers:
        is_missing = np.isin(cells.values, numbers)
    if not is_missing.any():
        return cells
    renumbered = np.where(is_missing, -1, np.cumsum(~is_missing) - 1)
    return Cells(cells.kind, cells.values[~is_missing], np.append(renumbered, -1)[cells.codes])


def _cell_text(value: Any) -> str:
    """A cell of a column of Python objects, as a spreadsheet gives it."""
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    if isinstance(value, float | np.floating):
        return number_text(float(value))
    if isinstance(value, datetime.datetime):
        return _date_text(np.datetime64(value.replace(tzinfo=None), "us"))
    return str(value)


def _date_text(value: np.datetime64) -> str:
    day, time = str(value.astype("datetime64[us]")).split("T")
    return day if time == "00:00:00.000000" else f"{day} {time.removesuffix('.000000')}"
