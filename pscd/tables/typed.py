"""Tables with types: Parquet files and folders, workbooks, and arrays, read in blocks."""

import math
import re
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd

from pscd.errors import UserError
from pscd.files import check_fits, needs, parquet_files, reading
from pscd.tables.layout import column_names
from pscd.tables.levels import listed


@dataclass(frozen=True)
class FrameSource:
    """A table that is in memory already: a workbook."""

    frame: pd.DataFrame
    notes: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Of the columns."""
        return tuple(self.frame.columns)

    @property
    def n_rows(self) -> int:
        """Of the sheet."""
        return len(self.frame)

    def blocks(
        self, size: int | None, start: int, columns: Sequence[str] | None, notes: list[str]
    ) -> Iterator[pd.DataFrame]:
        """Consecutive rows."""
        frame = self.frame if columns is None else self.frame[[name for name in self.names if name in columns]]
        for i in range(start, len(frame), size or len(frame)):
            yield frame[i : i + (size or len(frame))].reset_index(drop=True)


def open_workbook(path: Path, sheet: str | None) -> FrameSource:
    """One sheet of an `.xlsx` file."""
    needs("openpyxl", "excel", f"{path}: reading xlsx")
    with reading(path, "not a readable .xlsx file"):
        _check_workbook(path)
        frame = pd.read_excel(path, sheet_name=sheet or 0, dtype=object, na_filter=False, engine="openpyxl")
    names, odd = column_names([str(name) for name in frame.columns], frame.shape[1], header=True)
    frame.columns = pd.Index(names)
    if len(frame) == 0:
        raise UserError(f"{path}: there are no rows in it")
    return FrameSource(frame, tuple(odd))


def _check_workbook(path: Path, most_empty: int = 100) -> None:
    """Refuse a workbook that unpacks to too much, or whose rows have numbers far apart: the reader fills the gaps."""
    with zipfile.ZipFile(path) as archive:
        check_fits(path, sum(member.file_size for member in archive.infolist()))
        for name in archive.namelist():
            if name.startswith("xl/worksheets/"):
                rows = [int(number) for number in re.findall(rb"<row\b[^>]*?\br=\"(\d{1,30})\"", archive.read(name))]
                if rows and max(rows) > most_empty * (len(rows) + 1000):
                    raise UserError(f"{path}: a row is numbered {max(rows)}, and {len(rows)} are there")


@dataclass(frozen=True)
class ArraySource:
    """The array of a `.npy` or `.npz` file; the rows of the frames are flat."""

    path: Path  # the file
    shape: tuple[int, ...]  # of one row
    n_rows: int  # how many there are
    array: np.ndarray  # a memory map, or the array itself if it was packed
    notes: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of an array are x0, x1, ..."""
        return tuple(f"x{j}" for j in range(math.prod(self.shape)))

    def blocks(
        self, size: int | None, start: int, columns: Sequence[str] | None, notes: list[str]
    ) -> Iterator[pd.DataFrame]:
        """Frames of numbers of the array's type."""
        for x in self._arrays(size or self.n_rows, start):
            frame = pd.DataFrame(x.reshape(len(x), -1), columns=list(self.names), copy=False)
            yield frame if columns is None else frame[[name for name in self.names if name in columns]]

    def _arrays(self, size: int, start: int) -> Iterator[np.ndarray]:
        array = self.array
        if not isinstance(array, np.memmap):
            yield from (array[i : i + size] for i in range(start, self.n_rows, size))
            return
        # Not through the memory map: its pages would count as memory of this process while the file is open.
        width, kind, columnwise = math.prod(self.shape), array.dtype, not array.flags.c_contiguous
        with self.path.open("rb") as file:
            for i in range(start, self.n_rows, size):
                n = min(size, self.n_rows - i)
                if columnwise:
                    at = (array.offset + (j * self.n_rows + i) * kind.itemsize for j in range(width))
                    parts = [np.fromfile(file, kind, n, offset=place - file.tell()) for place in at]
                    yield np.stack(parts, 1).reshape(n, *self.shape, order="F")
                else:
                    file.seek(array.offset + i * width * kind.itemsize)
                    yield np.fromfile(file, kind, n * width).reshape(n, *self.shape)


def open_array(path: Path) -> ArraySource:
    """The array of rows in a `.npy` or `.npz` file, of which nothing is read yet if it is not packed."""
    with reading(path, f"not a readable {path.suffix} file"):
        if path.suffix.lower() == ".npz":
            array = _read_npz(path)
        else:
            with path.open("rb") as file:
                _check_declared(path, file, path.stat().st_size)
            array = np.load(path, mmap_mode="r", allow_pickle=False)
    if not (np.issubdtype(array.dtype, np.number) or array.dtype == bool):
        raise UserError(f"{path}: holds {array.dtype}, not numbers")
    if np.issubdtype(array.dtype, np.complexfloating):
        raise UserError(f"{path}: holds complex numbers; give real ones")
    if array.ndim == 0 or array.size == 0:
        raise UserError(f"{path}: there are no rows in it")
    return ArraySource(path, array.shape[1:] or (1,), len(array), array)


def read_array(path: Path) -> np.ndarray:
    """The array of a `.npy` or `.npz` file in memory, of its own type and shape."""
    return np.array(open_array(path).array)


def _read_npz(path: Path) -> np.ndarray:
    with zipfile.ZipFile(path) as archive:
        names = {name.removesuffix(".npy"): name for name in archive.namelist()}
        key = next((k for k in ("X", "x") if k in names), None)
        if key is None and len(names) != 1:
            raise UserError(f"{path}: holds {', '.join(names)}; name the array of rows X")
        member = names[key] if key is not None else next(iter(names.values()))
        check_fits(path, archive.getinfo(member).file_size)
        with archive.open(member) as file:
            _check_declared(path, file, archive.getinfo(member).file_size)
        with archive.open(member) as file:
            return np.lib.format.read_array(file, allow_pickle=False)


def _check_declared(path: Path, file: IO[bytes], n_bytes: int) -> None:
    """Refuse an array whose header promises more than is there; numpy would take the memory first."""
    version = np.lib.format.read_magic(file)
    read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read_header(file)
    size = math.prod(shape) * dtype.itemsize
    if not dtype.hasobject and size > n_bytes:
        raise UserError(f"{path}: {n_bytes} bytes where its header promises {size}")


@dataclass(frozen=True)
class ParquetSource:
    """A Parquet file, or the files of a folder with the same columns."""

    path: Path  # the file or folder
    files: tuple[Path, ...]  # in the order of their names
    counts: tuple[int, ...]  # rows of each file
    stored: tuple[str, ...]  # names of the columns in the files
    names: tuple[str, ...]  # distinct and not empty
    notes: tuple[str, ...]  # what is odd about it
    n_bytes: int  # that it unpacks to

    @property
    def n_rows(self) -> int:
        """Of all files."""
        return sum(self.counts)

    def blocks(
        self, size: int | None, start: int, columns: Sequence[str] | None, notes: list[str]
    ) -> Iterator[pd.DataFrame]:
        """Frames with the types of the file."""
        if size is None:
            check_fits(self.path, max(8 * self.n_rows * len(self.names), self.n_bytes))
        pairs = zip(self.stored, self.names, strict=True)
        chosen = [(old, new) for old, new in pairs if columns is None or new in columns]
        for table in self._tables([old for old, _ in chosen], start, size or self.n_rows):
            for column in table.columns:
                column.validate(full=True)  # bytes that are no text would fail later
            yield table.rename_columns([new for _, new in chosen]).to_pandas()

    def _tables(self, names: list[str], start: int, size: int) -> Iterator[Any]:
        """Arrow tables of `size` rows, from row `start` on, across files and row groups."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        held: list[Any] = []
        for file, count in zip(self.files, self.counts, strict=True):
            if start >= count:
                start -= count
                continue
            with reading(file, "damaged"):
                # Without the buffer a whole column of a row group would be in memory.
                content = pq.ParquetFile(file, buffer_size=1 << 20, pre_buffer=False)
                groups = list(range(content.metadata.num_row_groups))
                while groups and start >= content.metadata.row_group(groups[0]).num_rows:
                    start -= content.metadata.row_group(groups.pop(0)).num_rows
                for batch in content.iter_batches(min(size, 1 << 20), row_groups=groups, columns=names):
                    table = pa.Table.from_batches([batch.slice(min(start, batch.num_rows))])
                    start -= min(start, batch.num_rows)
                    held.append(table.replace_schema_metadata(None))
                    while sum(len(part) for part in held) >= size:
                        joined = pa.concat_tables(held, promote_options="permissive")
                        yield joined.slice(0, size)
                        held = [joined.slice(size)]
                content.close()
        if sum(len(part) for part in held):
            yield pa.concat_tables(held, promote_options="permissive")


def open_parquet(path: Path) -> ParquetSource:
    """A Parquet file or folder; only the footers are read."""
    needs("pyarrow", "parquet", f"{path}: reading parquet")
    import pyarrow.parquet as pq

    files = parquet_files(path) if path.is_dir() else [path]
    if not files:
        raise UserError(f"{path}: there are no .parquet files in it")
    counts, notes, schema, n_bytes = [], [], None, 0
    for file in files:
        if file.stat().st_size == 0:
            raise UserError(f"{file}: the file is empty; remove it, or write it again")
        with reading(file, "not a readable .parquet file"):
            about = pq.ParquetFile(file)
            arrow = about.schema_arrow
        counts.append(about.metadata.num_rows)
        n_bytes += sum(about.metadata.row_group(i).total_byte_size for i in range(about.metadata.num_row_groups))
        if about.metadata.num_rows == 0 and path.is_dir():
            notes.append(f"{file.name} has no rows")
            continue
        if schema is None:
            schema, first = arrow, file
        _check_alike(file, arrow, first, schema)
    if schema is None or sum(counts) == 0:
        raise UserError(f"{path}: there are no rows in it")
    stored = [name for name in schema.names if not re.fullmatch(r"__index_level_\d+__", name)]
    names, odd = column_names(stored, len(stored), header=True)
    return ParquetSource(path, tuple(files), tuple(counts), tuple(stored), tuple(names), (*notes, *odd), n_bytes)


def _check_alike(file: Path, schema: Any, first: Path, wanted: Any) -> None:
    """Refuse a file with two columns of one name, or with other columns or a column of another kind than the first."""
    twice = sorted({name for name in schema.names if schema.names.count(name) > 1})
    if twice:
        raise UserError(f"{file}: has two columns {listed(twice)}; rename one of them")
    missing = [name for name in wanted.names if name not in schema.names]
    new = [name for name in schema.names if name not in wanted.names]
    if missing or new:
        what = " and ".join([f"no column {listed(missing)}"] * bool(missing) + [f"a column {listed(new)}"] * bool(new))
        raise UserError(f"{file}: has {what}, unlike {first.name}; all files of a folder need the same columns")
    for name in wanted.names:
        kinds = [_kind(each.field(name).type) for each in (schema, wanted)]
        if kinds[0] != kinds[1]:
            types = [each.field(name).type for each in (schema, wanted)]
            raise UserError(f"{file}: column {name!r} is {types[0]}, in {first.name} it is {types[1]}; make them alike")


def _kind(kind: Any) -> str:
    """Types that go together: numbers of any size, text of any encoding."""
    import pyarrow.types as t

    if t.is_integer(kind) or t.is_floating(kind) or t.is_decimal(kind) or t.is_null(kind):
        return "number"
    if t.is_dictionary(kind):
        return _kind(kind.value_type)
    if t.is_string(kind) or t.is_large_string(kind) or t.is_string_view(kind):
        return "text"
    return "date" if t.is_temporal(kind) else str(kind)
