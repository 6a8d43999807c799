"""The columns of a table as a report draws them: numbers, dates as years, or words."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MISSING = "missing"
DAYS_OF_YEAR = 365.25


@dataclass(frozen=True)
class DrawnColumn:
    """A column of rows `(n,)` and of samples `(m,)`: numbers, NaN where missing, or words, None where missing."""

    name: str
    values: NDArray[Any]
    samples: NDArray[Any]
    is_date: bool = False  # numbers are years

    @property
    def is_number(self) -> bool:
        """Whether it holds numbers, not words."""
        return bool(self.values.dtype != object)

    def number(self, value: float) -> str:
        """A number of the column in a sentence; a date as YYYY-MM-DD."""
        if not self.is_date:
            return f"{value:.4g}"
        year = int(np.floor(value))
        return str(np.datetime64(f"{year:04d}-01-01") + round((value - year) * DAYS_OF_YEAR))

    def text(self, cell: object, digits: int = 6) -> str:
        """A cell of the column as a table shows it, rounded if it is the text of a number."""
        if self.is_number and not self.is_date and isinstance(cell, str):
            try:
                return shown(float(cell), digits)
            except ValueError:  # a word among numbers, or a decimal comma
                return shown(cell)
        return shown(cell, digits)


def column(name: str, values: Sequence[Any], samples: Sequence[Any]) -> DrawnColumn:
    """A column of cells and samples of any kind, None where they are missing.

    >>> column("a", [1, None], [2.5]).values.tolist(), column("b", ["x", True], ["y"]).values.tolist()
    ([1.0, nan], ['x', 'True'])
    """
    cells = [value for part in (values, samples) for value in part if not is_missing(value)]
    if all(isinstance(cell, int | float | np.number) and not isinstance(cell, bool | np.bool_) for cell in cells):
        return DrawnColumn(name, _floats(values), _floats(samples))
    if all(hasattr(cell, "timetuple") for cell in cells):
        return DrawnColumn(name, _floats(values, _year), _floats(samples, _year), is_date=True)
    return DrawnColumn(name, _words(values), _words(samples))


def shown(value: object, digits: int = 6, longest: int = 5_000) -> str:
    """A value as a table shows it: numbers rounded, texts cut.

    >>> shown(3.14159265), shown("a"), shown(2.0), shown(float("nan"))
    ('3.14159', 'a', '2', 'missing')
    """
    if is_missing(value):
        return MISSING
    if isinstance(value, float | np.floating):
        return f"{value:.{digits}g}"
    if hasattr(value, "timetuple"):
        return f"{value:%Y-%m-%d}"
    text = str(value)
    if not text.strip():
        return MISSING
    return text if len(text) <= longest else f"{text[:longest]} ... ({len(text):,} characters)"


def is_missing(value: Any) -> bool:
    """Whether a cell is None, NaN or no date."""
    return value is None or bool(pd.isna(value))


def _floats(values: Sequence[Any], number_of: Callable[[Any], float] = float) -> Floats:
    return np.array([np.nan if is_missing(value) else number_of(value) for value in values], dtype=np.float64)


def _words(values: Sequence[Any]) -> NDArray[np.object_]:
    return np.array([None if is_missing(value) else str(value) for value in values], dtype=object)


def _year(date: Any) -> float:
    return float(date.year + (date.timetuple().tm_yday - 1) / DAYS_OF_YEAR)
