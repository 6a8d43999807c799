"""What users have, arrays and data frames, as rows of numbers, codes and gaps; and the way back."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import narwhals.stable.v1 as nw
import numpy as np
import torch
from narwhals.stable.v1.dependencies import is_pandas_dataframe
from numpy.typing import NDArray
from torch import Tensor

from pscd.errors import UserError
from pscd.tables import Schema, decode, encode, look, spell
from pscd.tables.cells import with_text_names
from pscd.tables.dates import in_zone
from pscd.tables.levels import listed, meant
from pscd.tables.numbers import LARGEST


@dataclass(frozen=True)
class Rows:
    """The rows of a table as a model sees them.

    Args:
        x: `(n, D)` in float64; NaN where a cell is missing or stray, codes for categories.
        stray: `(n, d)`, cells of the table that cannot be: a word among numbers, a category that is none.
        table: the table that they were read from.
    """

    x: Tensor
    stray: Tensor
    table: Any

    def blocks(self, size: int) -> "Iterator[Rows]":
        """Consecutive rows, `size` at a time; the table stays behind."""
        for i in range(0, len(self.x), size):
            yield Rows(self.x[i : i + size], self.stray[i : i + size], None)

    def missing(self, sources: Tensor) -> Tensor:
        """Which cells of the table `(n, d)` hold nothing, given the table's column for each column of `x`."""
        gaps = torch.zeros_like(self.stray, dtype=torch.int64).index_add_(1, sources, self.x.isnan().long())
        return (gaps > 0) & ~self.stray


@dataclass(frozen=True)
class Reader:
    """How a fitted detector reads tables.

    Args:
        n_columns: columns of a table, d.
        schema: what the columns are taken for; None: all are numbers, as in an array.
    """

    n_columns: int
    schema: Schema | None = None

    @classmethod
    def of(cls, table: Any, *, kinds: Mapping[str, str] | None = None, missing: Sequence[str] = ()) -> "Reader":
        """A reader for tables like this one.

        Args:
            table: an array, or a data frame of pandas, polars or pyarrow. Nothing but numbers are taken as they are;
                anything else is looked at.
            kinds: what columns are to be taken for, by name, where the look of them misleads.
            missing: spellings of a missing value beside the usual ones.

        Returns:
            The reader.
        """
        frame = native_frame(table)
        plain = not has_text(table) if frame is None else all(dtype.is_numeric() for dtype in frame.schema.dtypes())
        if plain and (frame is None or not (kinds or missing)):
            return cls(np.shape(table)[1])
        table = np.asarray(table, dtype=object) if frame is None else table
        schema = look(table, kinds=kinds, missing=missing)
        return cls(len(schema.columns), schema)

    @property
    def levels(self) -> Tensor:
        """For each column of the rows the number of its categories, 0 for a number: `(D,)`."""
        return torch.tensor([0] * self.n_columns if self.schema is None else self.schema.n_levels, dtype=torch.long)

    @property
    def sources(self) -> Tensor:
        """The column of the table that each column of the rows is made of, `(D,)`."""
        return torch.tensor(range(self.n_columns) if self.schema is None else self.schema.sources, dtype=torch.long)

    @property
    def plain_numbers(self) -> Tensor:
        """Which columns of the rows are columns of numbers in the table, and not parts of a date: `(D,)`."""
        if self.schema is None:
            return torch.ones(self.n_columns, dtype=torch.bool)
        return torch.tensor([part.n_levels == 0 and part.role == "value" for part in self.schema.parts])

    def read(self, table: Any, numbers: NDArray[np.float64] | None = None) -> Rows:
        """The rows of a table.

        Args:
            table: of the same columns as the one the reader was made for.
            numbers: the table as an array, if there is no schema.

        Returns:
            Numbers, codes and gaps.
        """
        if self.schema is None:
            array = np.asarray(table if numbers is None else numbers, dtype=np.float64)
            x = torch.from_numpy(np.require(array, requirements="W"))  # a frame may lend its memory for reading only
            if native_frame(table) is None:  # scikit-learn has refused an array with infinite numbers
                return Rows(x, torch.zeros(x.shape, dtype=torch.bool), table)
            stray = x.abs() >= LARGEST
            return Rows(x.masked_fill(stray, torch.nan) if stray.any() else x, stray, table)
        encoded = encode(table if native_frame(table) is not None else np.asarray(table, dtype=object), self.schema)
        return Rows(torch.from_numpy(encoded.x), torch.from_numpy(encoded.stray), table)

    def decode(self, x: Tensor, like: Any = None) -> Any:
        """Rows `(n, D)` without gaps as a table with types; `like` is a table of the kind wanted."""
        return x.numpy() if self.schema is None else decode(x.numpy(), self.schema, like=like)

    def names(self, table: Any) -> list[str]:
        """Names of the table's columns, d of them; those of an array are x0, x1, ..."""
        if self.schema is not None:
            return list(self.schema.names)
        frame = native_frame(table)
        return [f"x{j}" for j in range(self.n_columns)] if frame is None else list(frame.columns)

    def labelled(self, rows: Rows, values: NDArray[Any]) -> Any:
        """Values for each cell of the table, `(n, d)`, as a frame of the same kind if the table is one."""
        frame = native_frame(rows.table)
        if frame is None:
            return values
        columns = {name: values[:, j] for j, name in enumerate(self.names(rows.table))}
        made = nw.from_dict(columns, backend=nw.get_native_namespace(frame)).to_native()
        if not is_pandas_dataframe(made):
            return made
        return made.set_axis(rows.table.index, axis=0).set_axis(self.labels(rows.table), axis=1)

    def labels(self, table: Any) -> list[Any]:
        """Names of the table's columns as it has them; those of a pandas frame may be numbers."""
        own = {str(name): name for name in table.columns} if is_pandas_dataframe(table) else {}
        return [own.get(name, name) for name in self.names(table)]

    def found(self, rows: Rows, column: int, index: Sequence[int]) -> list[Any]:
        """What stands in some cells of a column of the table.

        Args:
            rows: the rows of the table.
            column: its number.
            index: numbers of the rows.

        Returns:
            The cells as they are.
        """
        frame = native_frame(rows.table)
        if frame is None:
            return np.asarray(rows.table)[list(index), column].tolist()
        return frame[self.names(rows.table)[column]][list(index)].to_list()

    def misspelt(self, rows: Rows, likeliest: Tensor) -> Iterator[tuple[int, int, float]]:
        """The cells that are a slip of the finger away from a category of their column.

        Args:
            rows: the rows of the table.
            likeliest: the likeliest category of each cell, `(n, D)`, which decides if several are as near.

        Yields:
            Row, column of the table, and the code of the category that is meant.
        """
        for part, (source, size) in enumerate(zip(self.sources.tolist(), self.levels.tolist(), strict=True)):
            index = rows.stray[:, source].nonzero().flatten().tolist() if size and self.schema is not None else []
            if not index:
                continue
            assert self.schema is not None
            levels = self.schema.columns[source].levels
            for i, text in zip(index, self.found(rows, source, index), strict=True):
                near = meant(str(text).strip(), levels)
                if near:
                    codes = [levels.index(level) for level in near]
                    guess = int(likeliest[i, part])
                    yield i, source, float(guess if guess in codes else codes[0])

    def values(self, x: Tensor) -> list[list[Any]]:
        """Rows `(n, D)` as values of the table's columns, d lists; None for NaN, and for columns that are left out."""
        if self.schema is None:
            return [[None if math.isnan(v) else v for v in column] for column in x.T.tolist()]
        typed = decode(x.numpy(), self.schema)
        nothing = [None] * len(x)
        lists = {name: values.astype(object).where(values.notna(), None).tolist() for name, values in typed.items()}
        return [lists.get(name, nothing) for name in self.schema.names]

    def replaced(self, rows: Rows, x: Tensor, where: Tensor) -> Any:
        """The table with some cells replaced; all others are as they were.

        Args:
            rows: the rows of the table.
            x: the new rows, `(n, D)`.
            where: the cells of the table to replace, `(n, d)`.

        Returns:
            A table of the same kind.
        """
        frame = native_frame(rows.table)
        if frame is None and self.schema is None:
            return np.where(where.numpy(), x.numpy(), rows.x.numpy())
        if frame is None:
            whole = np.array(rows.table, dtype=object)
            for j, values in enumerate(self.values(x)):
                whole[where[:, j].numpy(), j] = np.array(values, dtype=object)[where[:, j].numpy()]
            return whole
        some = where.any(1).nonzero().flatten()
        new, changed = self.cells(rows.table, x[some]), where[some]
        columns = []
        for j, name in enumerate(self.names(rows.table)):
            at = changed[:, j].nonzero().flatten()
            if len(at):
                values = [new[j][i] for i in at.tolist()]
                old = frame[name]
                if old.dtype.is_integer() and any(value != int(value) for value in values):
                    old = old.cast(nw.Float64)
                columns.append(old.scatter(some[at].tolist(), values))
        made = frame.with_columns(*columns).to_native()
        return made.set_axis(rows.table.columns, axis=1) if is_pandas_dataframe(made) else made

    def cells(self, table: Any, x: Tensor, columns: Collection[int] | None = None) -> list[list[Any]]:
        """Rows `(n, D)` as cells of a table, d lists: text where it has text, written as its own is.

        Args:
            table: the table.
            x: the rows.
            columns: numbers of those that are needed, the others stay values; None: all of them.

        Returns:
            The cells of each column.
        """
        frame = native_frame(table)
        values = self.values(x)
        if self.schema is None or frame is None:
            return values
        typed = decode(x.numpy(), self.schema)
        wanted = [name for j, name in enumerate(self.schema.names) if columns is None or j in columns]
        texts = [name for name in wanted if name in typed and frame[name].dtype == nw.String]
        words = spell(typed[texts], self.schema)
        for name in typed:
            if name in frame.columns and frame[name].dtype == nw.Datetime and typed[name].dtype.kind == "M":
                dates = in_zone(typed[name], getattr(frame[name].dtype, "time_zone", None))
                values[self.schema.names.index(name)] = dates.astype(object).where(dates.notna(), None).tolist()
        return [
            words[name].tolist() if name in texts else found
            for name, found in zip(self.schema.names, values, strict=True)
        ]


def native_frame(table: Any) -> "nw.DataFrame[Any] | None":
    """A data frame in narwhals' common form, its columns named by texts; None for anything else."""
    if isinstance(table, np.ndarray):  # it would be asked whether it is a frame of a dozen libraries
        return None
    if is_pandas_dataframe(table):
        table = with_text_names(table)
    frame = nw.from_native(table, pass_through=True, eager_only=True)
    return frame if isinstance(frame, nw.DataFrame) else None


def has_text(table: Any) -> bool:
    """Whether an array, or lists of lists, hold text beside numbers."""
    cells = np.asarray(table)
    if cells.ndim != 2 or cells.dtype.kind not in "OUS":
        return False
    return any(isinstance(cell, str) and not _is_number(cell) for cell in cells.ravel().tolist())


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def fitting_frame(frame: Any, reader: Reader, names: Sequence[str], *, array: bool) -> Any:
    """A pandas frame as it was read from a file, as a detector wants it.

    Args:
        frame: text or typed columns.
        reader: of the detector.
        names: columns that the detector was fitted to.
        array: whether the file has no names; its columns then get those of the detector.

    Returns:
        The frame; text has become numbers where the detector knows nothing but numbers.

    Raises:
        UserError: it has other columns.
    """
    wanted = list(names) if reader.schema is None else [column.name for column in reader.schema.learnt()]
    if array:
        if frame.shape[1] != len(wanted):
            raise UserError(f"{frame.shape[1]} numbers a row, but the detector was fitted to {len(wanted)} columns")
        frame = frame.set_axis(wanted, axis=1)
    gone = [name for name in wanted if name not in frame.columns]
    if gone:
        raise UserError(f"has no column {listed(gone)}; it has {listed(list(frame.columns))}")
    if reader.schema is not None:
        return frame
    numbers = look(frame[wanted], kinds=dict.fromkeys(wanted, "number"))
    return frame.assign(**decode(encode(frame[wanted], numbers).x, numbers))
