"""Tables that need not fit into memory, read a block of rows at a time: `.npy`, Parquet files and folders, text files.

Blocks are the same whenever a file is read, so that what was computed of some of them need not be computed again.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd

from pscd.errors import UserError
from pscd.files import needs, parquet_files, reading, suffix_of
from pscd.tables.layout import Layout, column_names, find_footer, table_records
from pscd.tables.levels import listed
from pscd.tables.reading import TEXT_SUFFIXES, columns_of
from pscd.tables.text_files import open_text, text_table

BLOCK_ROWS = 131_072
LARGE_TEXT = 32_000_000  # bytes of a text file from which on it is read in blocks
LARGE_ROW = 2_500  # numbers: wider rows come in blocks of fewer


@dataclass(frozen=True)
class BlockSource:
    """A table that is read in blocks.

    Args:
        path: the file or folder.
        names: of the columns; None for an array, which has none.
        n_rows: of the table; of a text file, the number of its lines.
        size: rows of a block.
        n_columns: of the table.
        notes: what is odd about it.
        read: gives the blocks from a given one on, with only some columns if they are named.
    """

    path: Path
    names: tuple[str, ...] | None
    n_rows: int
    size: int
    n_columns: int
    notes: tuple[str, ...]
    read: Callable[[int, Sequence[str] | None], Iterator[Any]]

    def blocks(self, first: int = 0, columns: Sequence[str] | None = None) -> Iterator[Any]:
        """The blocks from number `first` on.

        Args:
            first: number of the first block.
            columns: names of the columns to read; None: all.

        Yields:
            Data frames with all but the last of `size` rows; arrays where there are no names.

        Raises:
            UserError: the file is damaged further on.
        """
        with reading(self.path, f"not a readable {suffix_of(self.path) or 'folder'}"):
            yield from self.read(first, columns)

    @property
    def files(self) -> list[Path]:
        """The files that it consists of."""
        return parquet_files(self.path) if self.path.is_dir() else [self.path]


def open_blocks(
    path: Path | str,
    *,
    size: int | None = None,
    most: int = BLOCK_ROWS,
    delimiter: str | None = None,
    encoding: str | None = None,
    header: bool | None = None,
) -> BlockSource | None:
    """A table to be read in blocks.

    Args:
        path: an `.npy` file, a Parquet file, a folder of Parquet files, or a text file.
        size: rows of a block; None: what suits the width of the table.
        most: rows of a block, for work that takes much memory for each.
        delimiter: between fields of a text file.
        encoding: of a text file.
        header: whether the first record of a text file has the names.

    Returns:
        The source; None if the file is of another kind, or so small that it is better read at once.

    Raises:
        UserError: it cannot be read so; the message says what to do.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/x.npy", np.zeros((5, 3)))
    ...     [len(block) for block in open_blocks(f"{folder}/x.npy", size=2).blocks()]
    [2, 2, 1]
    """
    path = Path(path)
    suffix = suffix_of(path)
    source = None
    if path.is_dir():
        source = _open_parquet(path, parquet_files(path), size, most)
    elif not path.is_file() or path.stat().st_size == 0:
        return None
    elif suffix == ".npy":
        source = _open_npy(path, size, most)
    elif suffix == ".parquet":
        source = _open_parquet(path, [path], size, most)
    elif suffix in TEXT_SUFFIXES and (size is not None or path.stat().st_size > LARGE_TEXT):
        source = _open_text(path, size, most, delimiter, encoding, header)
    if source is not None and size is None and not path.is_dir():
        is_small = source.n_rows <= _block_rows(None, source.n_columns, BLOCK_ROWS)
        return None if is_small else source
    return source


def _block_rows(size: int | None, width: int, most: int) -> int:
    return size or min(most, max(1, BLOCK_ROWS // max(1, width // LARGE_ROW)))


def _open_npy(path: Path, size: int | None, most: int) -> BlockSource | None:
    with reading(path, "not a readable .npy file"):
        whole = np.load(path, mmap_mode="r", allow_pickle=False)
    if whole.ndim == 0 or whole.size == 0 or whole.dtype.kind not in "fiub":
        return None  # whoever reads it at once says what is wrong
    shape, kind, offset, columnwise = whole.shape, whole.dtype, whole.offset, not whole.flags.c_contiguous
    width = int(np.prod(shape[1:]))
    size = _block_rows(size, width, most)

    def read(first: int, columns: Sequence[str] | None) -> Iterator[np.ndarray]:
        # Not through a memory map: its pages would count as ours for as long as the file is open.
        with path.open("rb") as file:
            for start in range(first * size, shape[0], size):
                n = min(size, shape[0] - start)
                if columnwise:
                    at = (offset + (j * shape[0] + start) * kind.itemsize for j in range(width))
                    parts = [np.fromfile(file, kind, n, offset=place - file.tell()) for place in at]
                    yield np.stack(parts, 1).reshape(n, *shape[1:], order="F")
                else:
                    file.seek(offset + start * width * kind.itemsize)
                    yield np.fromfile(file, kind, n * width).reshape(n, *shape[1:])

    return BlockSource(path, None, shape[0], size, width, (), read)


def _open_parquet(path: Path, files: Sequence[Path], size: int | None, most: int) -> BlockSource | None:
    needs("pyarrow", "parquet", f"{path}: reading parquet")
    import pyarrow.parquet as pq

    if not files:
        raise UserError(f"{path}: there are no .parquet files in it")
    counts, notes, schema = [], [], None
    for file in files:
        if file.stat().st_size == 0:
            raise UserError(f"{file}: the file is empty; remove it, or write it again")
        with reading(file, "not a readable .parquet file"):
            about = pq.ParquetFile(file)
            found = about.schema_arrow
        counts.append(about.metadata.num_rows)
        if about.metadata.num_rows == 0 and path.is_dir():
            notes.append(f"{file.name} has no rows")
            continue
        if schema is None:
            schema, first = found, file
        _check_alike(file, found, first, schema)
    n_rows = sum(counts)
    if schema is None or n_rows == 0:
        if path.is_dir():
            raise UserError(f"{path}: there are no rows in it")
        return None
    names, odd = column_names(list(schema.names), len(schema.names), header=True)
    size = _block_rows(size, len(names), most)

    def read(first: int, columns: Sequence[str] | None) -> Iterator[pd.DataFrame]:
        chosen = [(old, new) for old, new in zip(schema.names, names, strict=True) if columns is None or new in columns]
        tables = _parquet_tables(files, counts, [old for old, _ in chosen], first * size, size)
        for table in tables:
            yield table.rename_columns([new for _, new in chosen]).to_pandas()

    return BlockSource(path, tuple(names), n_rows, size, len(names), (*notes, *odd), read)


def _parquet_tables(
    files: Sequence[Path], counts: Sequence[int], names: Sequence[str], start: int, size: int
) -> Iterator[Any]:
    """Tables of `size` rows, from row number `start` on, across files and row groups."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    kept: list[Any] = []
    for file, count in zip(files, counts, strict=True):
        if start >= count:
            start -= count
            continue
        with reading(file, "damaged"):
            # Without the buffer a whole column of a row group would be in memory.
            content = pq.ParquetFile(file, buffer_size=1 << 20, pre_buffer=False)
            groups = list(range(content.metadata.num_row_groups))
            while groups and start >= content.metadata.row_group(groups[0]).num_rows:
                start -= content.metadata.row_group(groups.pop(0)).num_rows
            for batch in content.iter_batches(size, row_groups=groups, columns=list(names)):
                table = pa.Table.from_batches([batch.slice(min(start, batch.num_rows))])
                start -= min(start, batch.num_rows)
                kept.append(table.replace_schema_metadata(None))
                while sum(len(part) for part in kept) >= size:
                    whole = pa.concat_tables(kept, promote_options="permissive")
                    yield whole.slice(0, size)
                    kept = [whole.slice(size)]
            content.close()
    if sum(len(part) for part in kept):
        yield pa.concat_tables(kept, promote_options="permissive")


def _check_alike(file: Path, found: Any, first: Path, wanted: Any) -> None:
    """Refuse a file with two columns of one name, or with other columns or a column of another kind than the first."""
    twice = sorted({name for name in found.names if found.names.count(name) > 1})
    if twice:
        raise UserError(f"{file}: has two columns {listed(twice)}; rename one of them")
    gone = [name for name in wanted.names if name not in found.names]
    new = [name for name in found.names if name not in wanted.names]
    if gone or new:
        what = " and ".join([f"no column {listed(gone)}"] * bool(gone) + [f"a column {listed(new)}"] * bool(new))
        raise UserError(f"{file}: has {what}, unlike {first.name}; all files of a folder need the same columns")
    for name in wanted.names:
        kinds = [_kind(schema.field(name).type) for schema in (found, wanted)]
        if kinds[0] != kinds[1]:
            types = [schema.field(name).type for schema in (found, wanted)]
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


def _open_text(
    path: Path, size: int | None, most: int, delimiter: str | None, encoding: str | None, header: bool | None
) -> BlockSource:
    table = text_table(path, delimiter=delimiter, encoding=encoding, header=header)
    layout, names = table.layout, table.names
    size = _block_rows(size, layout.width, most)
    about = {"delimiter": layout.delimiter, "encoding": layout.encoding, "header": layout.header}

    def read(begin: int, columns: Sequence[str] | None) -> Iterator[pd.DataFrame]:
        with open_text(path, layout.encoding) as file:
            rows = _rows(file, layout)
            for _ in islice(rows, begin * size):
                pass
            while (record := next(rows, None)) is not None:
                found, _, _ = columns_of(islice(chain([record], rows), size), layout.width)
                frame = pd.DataFrame(dict(zip(names, found, strict=True)))
                frame = frame if columns is None else frame[[name for name in names if name in columns]]
                frame.attrs["pscd"] = dict(about)
                yield frame

    return BlockSource(path, names, table.n_lines, size, layout.width, table.notes, read)


def _rows(file: IO[str], layout: Layout) -> Iterator[list[str]]:
    """The records that are rows: without header, lines before it, and a footer."""
    found = (record for record, _, _ in table_records(file, layout))
    last: deque[list[str]] = deque()
    for record in islice(found, int(layout.header), None):
        last.append(record)
        if len(last) > 3:
            yield last.popleft()
    footer = find_footer(list(last), layout.width)
    yield from list(last)[: len(last) - footer]
