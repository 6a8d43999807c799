"""The columns of a table as a report draws them: numbers, dates as years, or words."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LONGEST = 5_000  # characters of a text that are kept
MISSING = "missing"
YEARS = "years"
DAYS = 365.25  # of a year


@dataclass(frozen=True)
class DrawnColumn:
    """A column of a table, and of samples of the model.

    Args:
        name: as the file has it.
        values: `(n,)`: numbers, NaN where they are missing, or words, None where they are missing.
        samples: the same of samples, `(m,)`.
        unit: of the numbers, if they stand for something else.
    """

    name: str
    values: NDArray[Any]
    samples: NDArray[Any]
    unit: str = ""

    @property
    def is_number(self) -> bool:
        """Whether it holds numbers, not words."""
        return bool(self.values.dtype != object)

    @property
    def is_date(self) -> bool:
        """Whether its numbers are years that stand for dates."""
        return self.unit == YEARS

    def number(self, value: float) -> str:
        """A number of the column in a sentence: a date as a date."""
        return _date(value) if self.is_date else f"{value:.4g}"

    def text(self, cell: object, digits: int = 6) -> str:
        """A cell of the column as a table shows it.

        Args:
            cell: a number, or what stands in the file.
            digits: significant ones of a number.

        Returns:
            A text; that of a number is short, also if it stands in the file with all its digits.
        """
        if self.is_number and not self.unit and isinstance(cell, str):
            try:
                return shown(float(cell), digits)
            except ValueError:  # a word among numbers, or a number as other countries write it
                return shown(cell)
        return shown(cell, digits)


def column(name: str, values: Sequence[Any], samples: Sequence[Any]) -> DrawnColumn:
    """A column of whatever kind.

    Args:
        name: as the file has it.
        values: numbers, dates, flags or words, None where they are missing.
        samples: the same of samples.

    Returns:
        Numbers as they are, dates as years, everything else as words.

    >>> column("a", [1, None], [2.5]).values.tolist(), column("b", ["x", True], ["y"]).values.tolist()
    ([1.0, nan], ['x', 'True'])
    """
    there = [value for part in (values, samples) for value in part if not is_missing(value)]
    if all(isinstance(value, int | float | np.number) and not isinstance(value, bool | np.bool_) for value in there):
        return DrawnColumn(name, _floats(values), _floats(samples))
    if all(hasattr(value, "timetuple") for value in there):
        return DrawnColumn(name, _floats(values, _year), _floats(samples, _year), unit=YEARS)
    return DrawnColumn(name, _words(values), _words(samples))


def shown(value: object, digits: int = 6) -> str:
    """A value as a table shows it.

    Args:
        value: a number or a text.
        digits: significant ones of a number.

    Returns:
        A text, which is not endless.

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
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ... ({len(text):,} characters)"


def is_missing(value: Any) -> bool:
    """Whether a cell holds nothing: None, NaN, or no date."""
    return value is None or bool(pd.isna(value))


def _floats(values: Sequence[Any], of: Callable[[Any], float] = float) -> Floats:
    return np.array([np.nan if is_missing(value) else of(value) for value in values], dtype=np.float64)


def _words(values: Sequence[Any]) -> NDArray[np.object_]:
    return np.array([None if is_missing(value) else str(value) for value in values], dtype=object)


def _year(date: Any) -> float:
    return float(date.year + (date.timetuple().tm_yday - 1) / DAYS)


def _date(year: float) -> str:
    """A year with its fraction as a date.

    Returns:
        `YYYY-MM-DD`.

    >>> _date(2020.0), _date(_year(pd.Timestamp("2007-11-10")))
    ('2020-01-01', '2007-11-10')
    """
    whole = int(np.floor(year))
    day = np.datetime64(f"{whole:04d}-01-01") + round((year - whole) * DAYS)
    return str(day)
