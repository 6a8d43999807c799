"""What sources are read from, in chunks: arrays and memory maps, Parquet files, torch datasets."""

import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from pscd.data.pixels import to_unit
from pscd.data.streams import WINDOW_NUMBERS, Batch
from pscd.errors import UserError
from pscd.files import one_line, reading

if TYPE_CHECKING:
    from pscd.tables import Schema, TableFile


class ArrayChunks:
    """An array in memory, a memory map, or the array of a `.npy` file, which is read and not mapped."""

    chunk_bytes = 2**16  # that are read together
    sampled, mixed = 1024, 1  # places that a sample is taken from
    released = 64  # chunks of a memory map after which its pages are given back

    def __init__(
        self,
        array: np.ndarray | Tensor,
        label: Tensor | None = None,
        path: Path | None = None,
        name: str = "the data",
        schema: "Schema | None" = None,
        notes: tuple[str, ...] = (),
    ) -> None:
        self.array, self.label, self.schema, self.notes = array, label, schema, notes
        self.columns = None if schema is None else schema.names_out
        self.path = path if path is not None and isinstance(array, np.ndarray) and array.flags.c_contiguous else None
        self.shape = tuple(array.shape[1:]) or (1,)
        numbers = int(np.prod(self.shape))
        self.rows = max(1, self.chunk_bytes // (numbers * int(array.itemsize)))
        n = len(array)
        self.sizes = np.full(-(-n // self.rows), self.rows, np.int64)
        self.sizes[-1] -= len(self.sizes) * self.rows - n
        self.window = max(1, WINDOW_NUMBERS // numbers)
        self._name = name
        self._reads = 0

    def read(self, chunk: int, rows: np.ndarray | None) -> Batch:
        """These rows of a chunk, or all of them."""
        start, n = chunk * self.rows, int(self.sizes[chunk])
        values = self._read_file(start, n) if self.path is not None else self.array[start : start + n]
        if isinstance(values, np.ndarray):
            values = values if rows is None else values[rows]
            dtype = values.dtype if values.dtype in (np.float32, np.float64, np.uint8) else np.float64
            x = torch.from_numpy(np.array(values, dtype, order="C"))
        else:
            x = (values if rows is None else values[torch.from_numpy(rows)]).detach().cpu().clone()
        self._give_back()
        label = None if self.label is None else self.label[start : start + n]
        label = label if rows is None or label is None else label[torch.from_numpy(rows)]
        x = to_unit(x) if x.dtype == torch.uint8 and len(self.shape) == 3 else x
        return Batch((x if x.is_floating_point() else x.double()).view(len(x), *self.shape), label)

    def where(self, chunk: int, row: int) -> str:
        """A row in words."""
        return f"{self._name}: row {chunk * self.rows + row + 1}"

    def _read_file(self, start: int, n: int) -> np.ndarray:
        assert self.path is not None
        assert isinstance(self.array, np.memmap)
        shape, dtype = (n, *self.array.shape[1:]), self.array.dtype
        offset = self.array.offset + start * dtype.itemsize * int(np.prod(shape[1:], dtype=np.int64))
        with reading(self.path, "cannot be read any more"):
            return np.fromfile(self.path, dtype, int(np.prod(shape)), offset=offset).reshape(shape)

    def _give_back(self) -> None:
        """Let the system take back pages of a memory map, which otherwise count as memory of this process."""
        self._reads += 1
        if self._reads % self.released or not isinstance(self.array, np.memmap) or self.array.mode == "c":
            return
        base: Any = self.array
        while base is not None and not isinstance(base, mmap.mmap):
            base = base.base if isinstance(base, np.ndarray) else getattr(base, "obj", None)
        if base is not None and hasattr(mmap, "MADV_DONTNEED"):
            base.madvise(mmap.MADV_DONTNEED)


@dataclass(frozen=True)
class _Group:
    path: Path
    number: int  # of the row group in its file
    first: int  # row of the file


class ParquetChunks:
    """The row groups of a Parquet file or of a folder of them."""

    sampled, mixed = 64, 32  # row groups that a sample is taken from, and that take part in a window

    def __init__(self, table: "TableFile", schema: "Schema", notes: tuple[str, ...] = ()) -> None:
        import pyarrow.dataset as ds

        self.path, self.schema, self.notes = table.path, schema, notes
        self.columns: tuple[str, ...] | None = schema.names_out
        self._stored = {new: old for old, new in table.stored_names.items()}
        self._fragments: dict[Path, Any] = {}
        self.groups: list[_Group] = []
        sizes: list[int] = []
        for file in table.files:
            with reading(file, "damaged, or not a Parquet file"):
                (fragment,) = ds.dataset(file, format="parquet").get_fragments()
                about = fragment.metadata
            self._fragments[file] = fragment
            first = 0
            for i in range(about.num_row_groups):
                rows = about.row_group(i).num_rows
                if rows:
                    self.groups.append(_Group(file, i, first))
                    sizes.append(rows)
                first += rows
        self.sizes = np.array(sizes, np.int64)
        self.shape: tuple[int, ...] = (len(schema.parts),)
        self.window = max(1, WINDOW_NUMBERS // len(schema.parts))

    def is_readable(self, most: int = 2**26) -> bool:
        """Whether every row group has few enough numbers to be read at once."""
        return int(self.sizes.max()) * self.shape[0] <= most

    def read(self, chunk: int, rows: np.ndarray | None) -> Batch:
        """These rows of a row group, or all of them: in float32 if all columns are, otherwise in float64."""
        from pscd.tables import encode

        group, names = self.groups[chunk], [column.name for column in self.schema.learnt()]
        with reading(group.path, "damaged, or changed since it was opened"):
            piece = self._fragments[group.path].subset(row_group_ids=[group.number])
            # One thread: training has the other cores.
            arrow = piece.to_table(columns=[self._stored[name] for name in names], use_threads=False)
            if arrow.num_rows != self.sizes[chunk]:
                raise UserError(f"{arrow.num_rows} rows where there were {self.sizes[chunk]}")
            frame = arrow.rename_columns(names).replace_schema_metadata(None).to_pandas()
        x = encode(frame if rows is None else frame.iloc[rows], self.schema).x
        is_single = all(str(kind) == "float32" for kind in frame.dtypes)
        return Batch(torch.from_numpy(x.astype(np.float32) if is_single else x))

    def where(self, chunk: int, row: int) -> str:
        """A row in words."""
        group = self.groups[chunk]
        return f"{group.path}: row {group.first + row + 1}"


class DatasetChunks:
    """A map-style torch dataset, whose items are rows, or tuples that begin with a row and its label."""

    columns: tuple[str, ...] | None = None
    schema: "Schema | None" = None
    notes: tuple[str, ...] = ()
    mixed, sampled = 1, 2**20  # single items anywhere cost what neighbours cost
    window = 2048  # items that are read ahead

    def __init__(self, data: Any, *, labelled: bool) -> None:
        self.data, self.labelled = data, labelled
        n = len(data)
        if n == 0:
            raise UserError(f"the {type(data).__name__} is empty")
        self.rows = -(-n // self.sampled)
        self.sizes = np.full(-(-n // self.rows), self.rows, np.int64)
        self.sizes[-1] -= len(self.sizes) * self.rows - n
        self.shape = tuple(as_part([data[0]], labelled=labelled).x.shape[1:])

    def read(self, chunk: int, rows: np.ndarray | None) -> Batch:
        """These items of a chunk, or all of them."""
        numbers = np.arange(self.sizes[chunk]) if rows is None else rows
        at = [chunk * self.rows + int(i) for i in numbers]
        items = self.data.__getitems__(at) if hasattr(self.data, "__getitems__") else [self.data[i] for i in at]
        return as_part(items, labelled=self.labelled, shape=self.shape)

    def where(self, chunk: int, row: int) -> str:
        """An item in words."""
        return f"item {chunk * self.rows + row} of the {type(self.data).__name__}"


def as_part(items: Sequence[Any], *, labelled: bool, shape: tuple[int, ...] | None = None) -> Batch:
    """Rows of items, each a row or a tuple that begins with one."""
    try:
        rows = [item[0] if isinstance(item, tuple | list) and not _is_row(item) else item for item in items]
        x = torch.stack([torch.as_tensor(row) for row in rows])
        label = torch.as_tensor([int(item[1]) for item in items]) if labelled else None
    except (TypeError, ValueError, RuntimeError, IndexError) as error:
        raise UserError(f"an item must be a row of numbers, or begin with one ({one_line(error)})") from None
    return as_batch(x, label, shape)


def as_batch(x: Tensor, label: Tensor | None, shape: tuple[int, ...] | None = None) -> Batch:
    """Rows of a batch as floats; images of bytes become floats in [0, 1]."""
    if x.ndim < 2 or (shape is not None and tuple(x.shape[1:]) != shape):
        wanted = "" if shape is None else f", and the first rows {shape}"
        raise UserError(f"rows have the shape {tuple(x.shape[1:])}{wanted}; a row of one number has the shape (1,)")
    x = to_unit(x) if x.dtype == torch.uint8 and x.ndim == 4 else x
    return Batch((x if x.is_floating_point() else x.double()).detach().cpu(), label)


def _is_row(item: Sequence[Any]) -> bool:
    """Whether a tuple or list is a row itself: plain numbers."""
    return all(isinstance(value, int | float) for value in item)
