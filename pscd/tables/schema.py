"""What the columns of a table are, and the numeric and categorical parts that a model sees of them."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Any, Self

KINDS = ("number", "integer", "boolean", "category", "date", "left out")


@dataclass(frozen=True)
class Column:
    """What one column of a table was inferred as."""

    name: str
    kind: str  # one of `KINDS`; the model sees nothing of a column that is left out
    levels: tuple[str, ...] = ()  # the values of a category; of a boolean the false and the true one
    decimals: int | None = None  # places after the decimal point that suffice; None: as many as it takes
    missing: int = 0  # missing cells in the table that was looked at
    invalid: int = 0  # invalid cells: a word among numbers, an impossible date, a misspelt category
    notes: tuple[str, ...] = ()  # what is odd about it, or why it is left out
    source: str = "text"  # what the cells were: `text`, `number`, `boolean` or `date`
    misspelt: tuple[str, ...] = ()  # misspelt values of a category, which are invalid cells
    others: bool = False  # whether one more code stands for all values without a level of their own
    lowest: float | None = None  # the smallest number; of dates, in days since 1970
    highest: float | None = None  # the largest
    least_decimals: int = 0  # places that are always written, as in 2.50
    decimal: str = "."  # the decimal sign of numbers in text
    thousands: str = ""  # what separates thousands in text; empty: nothing
    prefix: str = ""  # what stands before the numbers, such as a currency
    suffix: str = ""  # what stands after them, such as a unit
    formats: tuple[str, ...] = ()  # how dates are written (`strptime`), the commonest first
    date_parts: tuple[str, ...] = ()  # what a model sees of a date: `days`, `season`, `weekday`, `clock`
    resolution: str = ""  # of dates: `year`, `month`, `day`, `minute`, `second` or `microsecond`
    # The zone of typed dates; of dates in text what stands after them, "+01:00" or "Z": twelve if it differs by month.
    zones: tuple[str, ...] = ()
    missing_code: str = ""  # a number that looks like a code for a missing value, such as 999

    @property
    def is_learnt(self) -> bool:
        """Whether a model sees the column."""
        return self.kind != "left out"

    @property
    def n_codes(self) -> int:
        """Codes of a category or boolean; 0 for numbers and dates."""
        return len(self.levels) + self.others


@dataclass(frozen=True)
class Part:
    """A column of the matrix that a model sees."""

    name: str  # the column's name, with the part of a date after it
    source: int  # index of the table's column that it is made of, left-out columns counted
    n_levels: int  # 0 for a number; otherwise the cells are codes 0 to n_levels - 1
    # `value`, or which part of a date: `days`, `season cos`, `season sin`, `weekday`, `clock cos`, `clock sin`
    role: str = "value"


@dataclass(frozen=True)
class Schema:
    """The columns of a table in its order; a fitted model keeps it.

    >>> schema = Schema((Column("name", "left out"), Column("sex", "category", ("f", "m")), Column("age", "integer")))
    >>> [part.name for part in schema.parts], schema.n_levels, schema.sources
    (['sex', 'age'], (2, 0), (1, 2))
    >>> Schema.from_json(schema.to_json()) == schema
    True
    """

    columns: tuple[Column, ...]
    missing: tuple[str, ...] = ()  # stated spellings of a missing value, beside the usual ones
    n_rows: int = 0  # of the table that was looked at
    notes: tuple[str, ...] = ()  # what is odd about the table as a whole

    @property
    def names(self) -> tuple[str, ...]:
        """All columns' names."""
        return tuple(column.name for column in self.columns)

    def learnt(self) -> tuple[Column, ...]:
        """The columns that a model sees."""
        return tuple(column for column in self.columns if column.is_learnt)

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """The columns of the encoded matrix."""
        return tuple(part for i, column in enumerate(self.columns) for part in _parts(i, column))

    @property
    def names_out(self) -> tuple[str, ...]:
        """Names of the parts."""
        return tuple(part.name for part in self.parts)

    @property
    def n_levels(self) -> tuple[int, ...]:
        """Codes of each part, 0 for numbers."""
        return tuple(part.n_levels for part in self.parts)

    @property
    def sources(self) -> tuple[int, ...]:
        """Index of the table's column that each part is made of."""
        return tuple(part.source for part in self.parts)

    def numeric(self) -> Self:
        """The schema whose parts are all numbers: flags count as 0 and 1; categories and weekdays are left out."""
        return replace(self, columns=tuple(map(_numeric, self.columns)))

    def to_json(self) -> dict[str, Any]:
        """Plain values without defaults."""
        usual = {f.name: f.default for f in fields(Column)}
        columns = [{k: v for k, v in asdict(column).items() if v != usual[k]} for column in self.columns]
        return {"columns": columns, "missing": self.missing, "n_rows": self.n_rows, "notes": self.notes}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """The schema that `to_json` described; lists stand for tuples."""
        columns = tuple(Column(**_tuples(column)) for column in value["columns"])
        return cls(columns, **_tuples({k: v for k, v in value.items() if k != "columns"}))


def _numeric(column: Column) -> Column:
    if column.kind == "category":
        return replace(column, kind="left out", notes=("a category", *column.notes))
    return replace(column, date_parts=tuple(part for part in column.date_parts if part != "weekday"))


def _tuples(value: Mapping[str, Any]) -> dict[str, Any]:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in value.items()}


def _parts(i: int, column: Column) -> list[Part]:
    if not column.is_learnt:
        return []
    if column.kind != "date":
        return [Part(column.name, i, column.n_codes)]
    parts: list[Part] = []
    for name in column.date_parts:
        if name == "days":
            parts.append(Part(column.name, i, 0, "days"))
        elif name == "weekday":
            parts.append(Part(f"{column.name} (weekday)", i, 7, "weekday"))
        else:
            parts += [Part(f"{column.name} ({name} {f})", i, 0, f"{name} {f}") for f in ("cos", "sin")]
    return parts
