"""Tables as a detector sees them, rows of numbers and codes, and the way back."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import narwhals.stable.v1 as nw
import numpy as np
import torch
from narwhals.stable.v1.dependencies import is_pandas_dataframe
from numpy.typing import NDArray
from torch import Tensor

from pscd.detector.frames import framed, has_text, native_frame
from pscd.errors import UserError
from pscd.tables import Column, ReadOptions, Schema, TableFile, decode, encode, look, spell
from pscd.tables.dates import in_zone
from pscd.tables.encode import adapted
from pscd.tables.levels import listed, meant
from pscd.tables.numbers import LARGEST


@dataclass(frozen=True)
class EncodedRows:
    """The rows of a table, encoded once; the methods of a detector accept them in place of the table."""

    x: Tensor  # `(n, D)` in float64, codes for categories; NaN where the model has no value
    impossible: Tensor  # `(n, d)`, cells that cannot be right: a word among numbers, a category that does not exist
    missing: Tensor  # `(n, d)`, cells that hold nothing
    table: Any  # that they were read from
    reader: "Reader"  # that has read them

    def __len__(self) -> int:
        return len(self.x)

    def take(self, index: NDArray[np.int_]) -> "EncodedRows":
        """Some of the rows, with their part of the table."""
        part: Any
        if is_pandas_dataframe(self.table):
            part = self.table.iloc[index]
        else:
            frame = native_frame(self.table)
            part = np.asarray(self.table)[index] if frame is None else frame[index.tolist()].to_native()
        return EncodedRows(self.x[index], self.impossible[index], self.missing[index], part, self.reader)

    def blocks(self, size: int) -> "Iterator[EncodedRows]":
        """Consecutive rows, `size` at a time, without the table."""
        for i in range(0, len(self), size):
            part = slice(i, i + size)
            yield EncodedRows(self.x[part], self.impossible[part], self.missing[part], None, self.reader)


@dataclass(frozen=True)
class Reader:
    """How a fitted detector reads tables."""

    schema: Schema  # the kinds of the d columns
    is_plain: bool = False  # the table was numbers alone, and need not be parsed

    @classmethod
    def of(cls, table: Any, *, kinds: Mapping[str, str] | None = None, missing: Sequence[str] = ()) -> "Reader":
        """A reader for tables like this one; tables that are not numbers alone are inspected by `look`."""
        frame = native_frame(table)
        plain = not has_text(table) if frame is None else all(dtype.is_numeric() for dtype in frame.schema.dtypes())
        if plain and not (kinds or missing):
            return cls.plain(np.shape(table)[1] if frame is None else frame.columns)
        return cls(
            look(
                table if frame is not None else np.asarray(table, object),
                kinds=kinds,
                options=ReadOptions(missing=tuple(missing)),
            )
        )

    @classmethod
    def plain(cls, names: Sequence[str] | int) -> "Reader":
        """A reader for columns of numbers with these names, or x0, x1, ..."""
        names = [f"x{j}" for j in range(names)] if isinstance(names, int) else names
        return cls(Schema(tuple(Column(name, "number", source="number") for name in names)), is_plain=True)

    def for_file(self, file: TableFile, *, by_place: bool = False) -> "Reader":
        """The reader for a file with these columns, by name, or by place if names are unknown or it is an array."""
        by_place = by_place or file.shape is not None
        if by_place and len(file.names) != len(self.columns):
            width = f"{len(file.names)} numbers a row"
            raise UserError(f"{file.path}: {width}, but the detector was fitted to {len(self.columns)} columns")
        absent = [name for name in self.columns if not by_place and name not in file.names]
        if absent:
            raise UserError(f"{file.path}: has no column {listed(absent)}; it has {listed(list(file.names))}")
        reader = self.renamed(file.names) if by_place else self
        first = next(file.blocks(columns=reader.columns)) if file.is_large else file.frame()[reader.columns]
        return reader.adapted(first, file.options)

    def renamed(self, names: Sequence[str]) -> "Reader":
        """A reader for a table with other names of the columns that the model sees, in the same order."""
        new = iter(names)
        columns = [replace(column, name=next(new)) if column.is_learnt else column for column in self.schema.columns]
        return replace(self, schema=replace(self.schema, columns=tuple(columns)))

    def adapted(self, frame: Any, options: ReadOptions | None = None) -> "Reader":
        """A reader for another file, of which `frame` is a block; what `options` leave open is inferred from it."""
        if not self.is_plain:
            return replace(self, schema=adapted(frame, self.schema, options))
        table = native_frame(frame)
        if table is None or all(dtype.is_numeric() for dtype in table.schema.dtypes()):
            return self
        return Reader(look(frame, kinds=dict.fromkeys(table.columns, "number"), options=options))

    @property
    def columns(self) -> list[str]:
        """Names of the columns that the model sees."""
        return [column.name for column in self.schema.learnt()]

    @property
    def n_columns(self) -> int:
        """Columns of a table, d."""
        return len(self.schema.columns)

    @cached_property
    def _rare_codes(self) -> Tensor:
        """For each part the code that all rare values share, `(D,)`; -1: none. To the model they are missing."""
        columns, parts = self.schema.columns, self.schema.parts
        return torch.tensor([part.n_levels - 1 if columns[part.source].others else -1 for part in parts])

    @cached_property
    def levels(self) -> Tensor:
        """For each column of the rows the number of its categories, 0 for a number: `(D,)`."""
        return torch.tensor(self.schema.n_levels, dtype=torch.long) - (self._rare_codes >= 0).long()

    @cached_property
    def sources(self) -> Tensor:
        """The column of the table that each column of the rows is part of, `(D,)`."""
        return torch.tensor(self.schema.sources, dtype=torch.long)

    @cached_property
    def is_learnt(self) -> Tensor:
        """Which columns of the table the model sees, `(d,)`."""
        return torch.tensor([column.is_learnt for column in self.schema.columns])

    @cached_property
    def is_ordered(self) -> Tensor:
        """Which columns of the rows are numbers, or the days of dates, and have intervals: `(D,)`."""
        return torch.tensor([part.n_levels == 0 and part.role in ("value", "days") for part in self.schema.parts])

    @cached_property
    def plain_numbers(self) -> Tensor:
        """Which columns of the rows are columns of numbers in the table, and not parts of a date: `(D,)`."""
        return torch.tensor([part.n_levels == 0 and part.role == "value" for part in self.schema.parts])

    def read(self, table: Any, numbers: NDArray[np.float64] | None = None) -> EncodedRows:
        """Encode a table with the columns of the schema; `numbers` is a plain one as an array."""
        if self.is_plain:
            if numbers is None and is_pandas_dataframe(table) and table.shape[1] > self.n_columns:
                table = table[list(self.schema.names)]
            array = np.asarray(table if numbers is None else numbers, dtype=np.float64)
            x = torch.from_numpy(np.require(array, requirements="W"))  # a frame may lend its memory for reading only
            infinite = x.abs() >= LARGEST
            x = x.masked_fill(infinite, torch.nan) if infinite.any() else x
            return EncodedRows(x, infinite, x.isnan() & ~infinite, table, self)
        encoded = encode(table if native_frame(table) is not None else np.asarray(table, dtype=object), self.schema)
        x, missing = torch.from_numpy(encoded.x), torch.from_numpy(encoded.missing) & self.is_learnt
        return EncodedRows(
            x.masked_fill(x == self._rare_codes, torch.nan), torch.from_numpy(encoded.invalid), missing, table, self
        )

    def names(self, table: Any) -> list[str]:
        """Names of the table's columns: of plain numbers its own, which may be unknown to the detector."""
        frame = native_frame(table) if self.is_plain else None
        return list(self.schema.names) if frame is None else list(frame.columns)

    def by_column(self, values: Tensor) -> Tensor:
        """The largest of the values `(n, D)` of the parts of each column of the table, `(n, d)`; at least 0."""
        result = values.new_zeros(len(values), self.n_columns)
        return result.scatter_reduce_(1, self.sources.expand(len(values), -1), values, "amax")

    def labelled(self, rows: EncodedRows, values: NDArray[Any]) -> Any:
        """Values for each cell of the table, `(n, d)`, as a frame if the table is one."""
        if native_frame(rows.table) is None:
            return values
        return framed({name: values[:, j] for j, name in enumerate(self.names(rows.table))}, rows.table)

    def cells(self, rows: EncodedRows, i: NDArray[np.int_], j: NDArray[np.int_]) -> list[Any]:
        """The cells of rows i and columns j as they stand in the table."""
        frame, names = native_frame(rows.table), self.names(rows.table)
        array = np.asarray(rows.table) if frame is None else np.empty(0)
        result = np.empty(len(i), dtype=object)
        for c in np.unique(j).tolist():
            at = np.flatnonzero(j == c)
            values = frame[names[c]][i[at].tolist()].to_list() if frame is not None else array[i[at], c]
            result[at] = np.fromiter(values, dtype=object, count=len(at))
        return result.tolist()

    def correct_spelling(self, rows: EncodedRows, suggested: Tensor) -> None:
        """Suggest for misspelt categories the likeliest of those that may have been meant, in place."""
        for part, size in enumerate(self.levels.tolist()):
            source = int(self.sources[part])
            at = rows.impossible[:, source].nonzero().flatten().numpy() if size else np.empty(0, int)
            levels = self.schema.columns[source].levels[:size]
            for i, text in zip(at, self.cells(rows, at, np.full(len(at), source)), strict=True):
                near = meant(str(text).strip(), levels)
                if near and levels[int(suggested[i, part])] not in near:
                    suggested[i, part] = float(levels.index(near[0]))

    def values(self, x: Tensor) -> list[list[Any]]:
        """Rows `(n, D)` as values of the table's columns, d lists; None for NaN, and for columns that are left out."""
        typed = decode(x.numpy(), self.schema)
        lists = {name: values.astype(object).where(values.notna(), None).tolist() for name, values in typed.items()}
        return [lists.get(name, [None] * len(x)) for name in self.schema.names]

    def spelled(self, table: Any, x: Tensor) -> list[list[Any]]:
        """Rows `(n, D)` as cells of a table, d lists: text in the format of the table where it has text."""
        frame, values = native_frame(table), self.values(x)
        if frame is None or self.is_plain:
            return values
        typed = decode(x.numpy(), self.schema)
        texts = [name for name in typed if name in frame.columns and frame[name].dtype == nw.String]
        words = spell(typed[texts], self.schema)
        for j, name in enumerate(self.schema.names):
            if name in texts:
                values[j] = words[name].astype(object).where(typed[name].notna(), None).tolist()
            elif name in typed and typed[name].dtype.kind == "M" and frame[name].dtype == nw.Datetime:
                dates = in_zone(typed[name], getattr(frame[name].dtype, "time_zone", None))
                values[j] = dates.astype(object).where(dates.notna(), None).tolist()
        return values

    def replaced(self, rows: EncodedRows, x: Tensor, where: Tensor) -> Any:
        """The table with the cells `where`, `(n, d)`, taken from new rows `(n, D)`; all others as they were."""
        frame = native_frame(rows.table)
        if frame is None and self.is_plain:
            return np.where(where.numpy(), x.numpy(), rows.x.numpy())
        some = where.any(1).nonzero().flatten()
        changed, new = where[some].numpy(), self.spelled(rows.table, x[some])
        if frame is None:
            result = np.array(rows.table, dtype=object)
            for j, values in enumerate(new):
                at = changed[:, j].nonzero()[0]
                result[some.numpy()[at], j] = np.array([*values, None], dtype=object)[at]
            return result
        columns = []
        for j, name in enumerate(self.names(rows.table)):
            at = changed[:, j].nonzero()[0]
            if len(at):
                values = [new[j][i] for i in at]
                old = frame[name]
                if old.dtype.is_integer() and any(value != int(value) for value in values):
                    old = old.cast(nw.Float64)
                columns.append(old.scatter(some.numpy()[at].tolist(), values))
        made = frame.with_columns(*columns).to_native()
        return made.set_axis(rows.table.columns, axis=1) if is_pandas_dataframe(made) else made
