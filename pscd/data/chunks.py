"""What sources are read from, in chunks: arrays and memory maps, Parquet files, torch datasets."""

import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pscd.data.pixels import to_unit
from pscd.data.streams import WINDOW_NUMBERS, Part
from pscd.data.tables import ELSE
from pscd.errors import UserError
from pscd.files import needs, one_line, parquet_files, reading

CHUNK_BYTES = 2**16  # of an array, that are read together
ARRAY_SAMPLED = 1024  # places of an array that a sample is taken from
GROUPS_SAMPLED = 64  # row groups of Parquet files that a sample is taken from
GROUPS_MIXED = 32  # that take part in a window
LARGEST_GROUP = 2**26  # numbers of a row group that can be read at once
DATASET_CHUNKS, DATASET_WINDOW = 2**20, 2048  # chunks of a dataset, at most; items that are read ahead
RELEASED = 64  # chunks of a memory map after which its pages are given back


class ArrayChunks:
    """An array in memory, a memory map, or the array of a `.npy` file, which is read and not mapped.

    Args:
        array: rows `(n, *shape)` of any real numbers.
        label: `(n,)`, or None.
        path: the `.npy` file whose memory map `array` is; None: it is read through `array`.
        columns: their names, if they have any.
        name: of the data, for messages.
    """

    sampled, mixed = ARRAY_SAMPLED, 1

    def __init__(
        self,
        array: np.ndarray | Tensor,
        label: Tensor | None = None,
        path: Path | None = None,
        columns: tuple[str, ...] | None = None,
        name: str = "the data",
    ) -> None:
        self.array, self.label, self.columns = array, label, columns
        self.path = path if path is not None and isinstance(array, np.ndarray) and array.flags.c_contiguous else None
        self.shape = tuple(array.shape[1:]) or (1,)
        numbers = int(np.prod(self.shape))
        self.rows = max(1, CHUNK_BYTES // (numbers * int(array.itemsize)))
        n = len(array)
        self.sizes = np.full(-(-n // self.rows), self.rows, np.int64)
        self.sizes[-1] -= len(self.sizes) * self.rows - n
        self.window = max(1, WINDOW_NUMBERS // numbers)
        self._name = name
        self._reads = 0

    def read(self, chunk: int, rows: np.ndarray | None) -> Part:
        """These rows of a chunk, or all of them.

        Args:
            chunk: its number.
            rows: numbers within the chunk.

        Returns:
            A copy of the rows; bytes of images become floats in [0, 1].

        Raises:
            UserError: the file cannot be read any more.
        """
        start, n = chunk * self.rows, int(self.sizes[chunk])
        found = self._read_file(start, n) if self.path is not None else self.array[start : start + n]
        if isinstance(found, np.ndarray):
            found = found if rows is None else found[rows]
            x = torch.from_numpy(np.array(found, found.dtype if found.dtype in _KEPT else np.float64, order="C"))
        else:
            x = (found if rows is None else found[torch.from_numpy(rows)]).detach().cpu().clone()
        self._give_back()
        label = None if self.label is None else self.label[start : start + n]
        label = label if rows is None or label is None else label[torch.from_numpy(rows)]
        x = to_unit(x) if x.dtype == torch.uint8 and len(self.shape) == 3 else x
        return Part((x if x.is_floating_point() else x.double()).view(len(x), *self.shape), label)

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
        if self._reads % RELEASED or not isinstance(self.array, np.memmap) or self.array.mode == "c":
            return
        base: Any = self.array
        while base is not None and not isinstance(base, mmap.mmap):
            base = base.base if isinstance(base, np.ndarray) else getattr(base, "obj", None)
        if base is not None and hasattr(mmap, "MADV_DONTNEED"):
            base.madvise(mmap.MADV_DONTNEED)


_KEPT = (np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.uint8))


@dataclass(frozen=True)
class _Group:
    path: Path
    number: int  # of the row group in its file
    first: int  # row of the file


class ParquetChunks:
    """The row groups of one Parquet file or of a folder of them, with the same columns in all.

    Args:
        path: a file, or a folder, whose `.parquet` files are read, those of folders in it too.
        columns: to take, by name, in this order; None: all.

    Raises:
        UserError: a file is empty, damaged, or has other columns than the first, or a column holds no numbers.
    """

    sampled, mixed = GROUPS_SAMPLED, GROUPS_MIXED

    def __init__(self, path: Path, columns: Sequence[str] | None = None) -> None:
        needs("pyarrow", "parquet", f"{path}: reading parquet")
        self.path = path
        self.files = parquet_files(path) if path.is_dir() else [path]
        if not self.files:
            raise UserError(f"{path}: there are no .parquet files in it")
        self._fragments: dict[Path, Any] = {}
        self.columns: tuple[str, ...] | None = tuple(columns) if columns is not None else None
        groups, sizes = [], []
        for file in self.files:
            names, rows = self._open(file, self.columns, chosen=columns is not None)
            self.columns = names
            starts = np.concatenate([[0], np.cumsum(rows)])
            groups += [_Group(file, i, int(starts[i])) for i in range(len(rows))]
            sizes += rows
        self.groups, self.sizes = groups, np.array(sizes, np.int64)
        self.shape: tuple[int, ...] = (len(names),)
        self.window = max(1, WINDOW_NUMBERS // len(names))

    @property
    def is_readable(self) -> bool:
        """Whether every row group is small enough to be read at once."""
        return int(self.sizes.max()) * self.shape[0] <= LARGEST_GROUP

    def _open(self, file: Path, names: Sequence[str] | None, *, chosen: bool) -> tuple[tuple[str, ...], list[int]]:
        """Columns and rows of each row group of a file, which is checked as far as its footer tells."""
        import pyarrow.dataset as ds

        if file.stat().st_size == 0:
            raise UserError(f"{file}: the file is empty")
        with reading(file, "damaged, or not a Parquet file"):
            (fragment,) = ds.dataset(file, format="parquet").get_fragments()
            schema, about = fragment.physical_schema, fragment.metadata
        there = tuple(schema.names)
        names = there if names is None else tuple(names)
        missing = [name for name in names if name not in there]
        if not chosen and set(there) != set(names):
            first = f"those of {self.files[0].name} {_listed(names)}"
            raise UserError(f"{file}: its columns are {_listed(there)}, {first}; make all files alike")
        if missing:
            raise UserError(f"{file}: has no column {_listed(missing)}; it has {_listed(there)}")
        if len(set(there)) < len(there):
            raise UserError(f"{file}: a column is there twice; give every column a name of its own")
        _check_numeric(file, schema, names)
        if about.num_rows == 0:
            raise UserError(f"{file}: there are no rows in it; remove the file")
        _check_whole(file, about, names)
        self._fragments[file] = fragment
        return names, [about.row_group(i).num_rows for i in range(about.num_row_groups)]

    def read(self, chunk: int, rows: np.ndarray | None) -> Part:
        """These rows of a row group, or all of them.

        Args:
            chunk: its number, over all files.
            rows: numbers within the row group.

        Returns:
            The rows: in float32 if all columns are, otherwise in float64.

        Raises:
            UserError: the file is damaged or gone.
        """
        group = self.groups[chunk]
        with reading(group.path, "damaged, or changed since it was opened"):
            piece = self._fragments[group.path].subset(row_group_ids=[group.number])
            # One thread: training has the other cores.
            table = piece.to_table(columns=list(self.columns or ()), use_threads=False)
            found = [column.to_numpy() for column in table.columns]
            np.broadcast_to(found[0], self.sizes[chunk])  # as many rows as there were
        dtype = np.result_type(*found)
        n = len(found[0]) if rows is None else len(rows)
        x = np.empty((n, len(found)), np.float32 if dtype == np.float32 else np.float64)
        for j, values in enumerate(found):
            x[:, j] = values if rows is None else values[rows]
        return Part(torch.from_numpy(x))

    def where(self, chunk: int, row: int) -> str:
        """A row in words."""
        group = self.groups[chunk]
        return f"{group.path}: row {group.first + row + 1}"


def _check_numeric(file: Path, schema: Any, names: Sequence[str]) -> None:
    import pyarrow.types as kinds

    for name in names:
        kind = schema.field(name).type
        if not (kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_boolean(kind)):
            do = f"choose others with --columns, or {ELSE}"
            raise UserError(f"{file}: column {name!r} is not numeric but of type {kind}; {do}")


def _check_whole(file: Path, about: Any, names: Sequence[str]) -> None:
    """Refuse missing values as far as the statistics in the footer count them."""
    for i in range(about.num_row_groups):
        group = about.row_group(i)
        for j in range(group.num_columns):
            column = group.column(j)
            count = column.statistics.null_count if column.is_stats_set else 0
            if count and column.path_in_schema in names:
                where = f"of column {column.path_in_schema!r} in row group {i + 1}"
                raise UserError(f"{file}: {count} values {where} are missing; fill or remove them, or {ELSE}")


def _listed(names: Sequence[str], most: int = 8) -> str:
    shown = ", ".join(map(repr, names[:most]))
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


class DatasetChunks:
    """A map-style torch dataset, whose items are rows, or tuples that begin with a row and its label.

    Args:
        data: has a length, and items by their number.
        labelled: whether the second part of an item is its label.

    Raises:
        UserError: an item is no row of numbers.
    """

    columns: tuple[str, ...] | None = None
    mixed, sampled = 1, DATASET_CHUNKS  # single items anywhere cost what neighbours cost

    def __init__(self, data: Any, *, labelled: bool) -> None:
        self.data, self.labelled = data, labelled
        n = len(data)
        if n == 0:
            raise UserError(f"the {type(data).__name__} is empty")
        self.rows = -(-n // DATASET_CHUNKS)
        self.sizes = np.full(-(-n // self.rows), self.rows, np.int64)
        self.sizes[-1] -= len(self.sizes) * self.rows - n
        self.shape = tuple(as_part([data[0]], labelled=labelled).x.shape[1:])
        self.window = DATASET_WINDOW

    def read(self, chunk: int, rows: np.ndarray | None) -> Part:
        """These items of a chunk, or all of them.

        Args:
            chunk: its number.
            rows: numbers within the chunk.

        Returns:
            The rows.

        Raises:
            UserError: items differ in shape, or are no numbers.
        """
        numbers = np.arange(self.sizes[chunk]) if rows is None else rows
        at = [chunk * self.rows + int(i) for i in numbers]
        items = self.data.__getitems__(at) if hasattr(self.data, "__getitems__") else [self.data[i] for i in at]
        return as_part(items, labelled=self.labelled, shape=self.shape)

    def where(self, chunk: int, row: int) -> str:
        """An item in words."""
        return f"item {chunk * self.rows + row} of the {type(self.data).__name__}"


def as_part(items: Sequence[Any], *, labelled: bool, shape: tuple[int, ...] | None = None) -> Part:
    """Rows of items, each a row or a tuple that begins with one.

    Args:
        items: at least one.
        labelled: whether the second part of an item is its label.
        shape: of a row, where it is known.

    Returns:
        Rows, and labels if there are any.

    Raises:
        UserError: they are no rows of numbers of one shape.
    """
    try:
        rows = [item[0] if isinstance(item, tuple | list) and not _is_row(item) else item for item in items]
        x = torch.stack([torch.as_tensor(row) for row in rows])
        label = torch.as_tensor([int(item[1]) for item in items]) if labelled else None
    except (TypeError, ValueError, RuntimeError, IndexError) as error:
        raise UserError(f"an item must be a row of numbers, or begin with one ({one_line(error)})") from None
    return as_batch(x, label, shape)


def as_batch(x: Tensor, label: Tensor | None, shape: tuple[int, ...] | None = None) -> Part:
    """Rows of a batch as floats; images of bytes become floats in [0, 1].

    Args:
        x: `(n, *shape)`.
        label: `(n,)`, or None.
        shape: that rows must have, where it is known.

    Returns:
        The rows.

    Raises:
        UserError: rows have another shape.
    """
    if x.ndim < 2 or (shape is not None and tuple(x.shape[1:]) != shape):
        wanted = "" if shape is None else f", and the first rows {shape}"
        raise UserError(f"rows have the shape {tuple(x.shape[1:])}{wanted}; a row of one number has the shape (1,)")
    x = to_unit(x) if x.dtype == torch.uint8 and x.ndim == 4 else x
    return Part((x if x.is_floating_point() else x.double()).detach().cpu(), label)


def _is_row(item: Sequence[Any]) -> bool:
    """Whether a tuple or list is a row itself: plain numbers."""
    return all(isinstance(value, int | float) for value in item)
