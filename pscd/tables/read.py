"""The reader of tables: text, Parquet, workbooks and arrays, at once or in blocks of constant memory."""

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from pscd.errors import UserError
from pscd.files import parquet_files, reading, suffix_of
from pscd.rng import Stream, generator
from pscd.tables.notes import copied_rows
from pscd.tables.text import TextSource, open_text_source
from pscd.tables.typed import ArraySource, FrameSource, ParquetSource, open_array, open_parquet, open_workbook
from pscd.types import documented, option

TEXT_SUFFIXES = (".csv", ".tsv", ".txt", ".tab", ".dat")
ARRAY_SUFFIXES = (".npy", ".npz")
SUFFIXES = (*TEXT_SUFFIXES, ".parquet", ".xlsx", *ARRAY_SUFFIXES)


@documented
@dataclass(frozen=True)
class ReadOptions:
    """How a table is read. What is None is inferred."""

    delimiter: str | None = option(None, "between fields: one character, or tab, comma, semicolon, space, bar")
    decimal: Literal[".", ","] | None = option(None, "the decimal sign")
    thousands: str | None = option(None, "what separates thousands")
    encoding: str | None = option(None, "of a text file: utf-8, utf-16, cp1252, latin-1, ...")
    missing: tuple[str, ...] = option((), "more spellings of a missing value, for all columns or for one (age=999)")
    sheet: str | None = option(None, "of a workbook; None: the first")
    header: bool | None = option(None, "whether the first line has the names of the columns")
    day_first: bool | None = option(None, "whether 1/2/2020 is in February")


Source = TextSource | ParquetSource | FrameSource | ArraySource


class TableFile:
    """A table in a file or a folder of Parquet files, which can be read several times.

    Attributes:
        names: of the columns; those of arrays are x0, x1, ...
        n_rows: None if only reading tells.
        n_rows_estimate: of a text file the number of its lines.
        shape: of one row of an array; None for tables with names.
        options: with the delimiter, encoding and header that were inferred.
    """

    def __init__(self, path: Path, options: ReadOptions, source: Source) -> None:
        self.path, self.options = path, options
        self.names: tuple[str, ...] = tuple(source.names)
        self.n_rows: int | None = source.n_rows
        self.n_rows_estimate: int = source.n_lines if isinstance(source, TextSource) else source.n_rows
        self.shape: tuple[int, ...] | None = getattr(source, "shape", None)
        self._source = source
        stored = source.stored if isinstance(source, ParquetSource) else self.names
        self.stored_names = dict(zip(stored, self.names, strict=True))  # names in a Parquet file, and the distinct ones
        self._frame: pd.DataFrame | None = None
        self._unused = _about_unused(path, options)
        self._noticed: tuple[str, ...] = ()
        if isinstance(source, TextSource):
            layout = source.layout
            self.options = replace(options, delimiter=layout.delimiter, encoding=layout.encoding, header=layout.header)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was assumed about the file, and, once it was read to its end, what is odd about its rows."""
        return (*self._unused, *self._source.notes, *self._noticed)

    @property
    def is_large(self) -> bool:
        """Whether the table has more rows than one block."""
        return self.n_rows_estimate > block_size(len(self.names))

    @property
    def files(self) -> list[Path]:
        """The files that it consists of."""
        return parquet_files(self.path) if self.path.is_dir() else [self.path]

    def fingerprint(self) -> str:
        """A checksum of places, sizes and times of the files and of the options: equal for an unchanged table."""
        files = [(str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in self.files]
        return hashlib.sha256(json.dumps([files, asdict(self.options)]).encode()).hexdigest()[:16]

    def frame(self) -> pd.DataFrame:
        """The whole table, read once; text cells of a text file are as they stand."""
        if self._frame is None:
            with reading(self.path, "it holds fewer rows than it declares"):
                (self._frame,) = self.blocks(size=0)
            if self.shape is None:
                self._noticed += copied_rows(self._frame)
        return self._frame

    def blocks(
        self, size: int | None = None, start: int = 0, columns: Sequence[str] | None = None
    ) -> Iterator[pd.DataFrame]:
        """The table in blocks of `size` rows (None: what suits its width; 0: all) from row `start` on."""
        size = block_size(len(self.names)) if size is None else size
        noticed: list[str] = []
        with reading(self.path, f"not a readable {'folder' if self.path.is_dir() else f'{suffix_of(self.path)} file'}"):
            yield from self._source.blocks(size or None, start, columns, noticed)
        if start == 0 and not self._noticed:
            self._noticed = tuple(noticed)

    def excerpt(self, n: int = 100_000, pieces: int = 16) -> pd.DataFrame:
        """About n rows from evenly spaced places, to infer what the columns are; all rows of a smaller table."""
        if self.n_rows_estimate <= n:
            return self.frame()
        if isinstance(self._source, TextSource):  # lines before a place have to be read anyway
            with reading(self.path, f"not a readable {suffix_of(self.path)} file"):
                return next(self._source.blocks(n, 0, None, [], -(-self.n_rows_estimate // n)))
        starts = np.linspace(0, self.n_rows_estimate - n // pieces, pieces).astype(int).tolist()
        with reading(self.path, "it holds fewer rows than it declares"):
            return pd.concat([next(self.blocks(n // pieces, start)) for start in starts], ignore_index=True)

    def sample(self, n: int, *, seed: int) -> pd.DataFrame:
        """Random rows in their order, from one pass over the table; all of them, if there are no more than `n`."""
        if self._frame is not None and len(self._frame) <= n:
            return self._frame
        rng = np.random.default_rng(int(generator(seed, Stream.SAMPLE_ROWS).initial_seed()))
        parts: list[pd.DataFrame] = []
        keys: list[np.ndarray] = []
        edge = np.inf
        for block in self.blocks():
            drawn = rng.random(len(block))
            chosen = np.flatnonzero(drawn < edge)
            parts.append(block.iloc[chosen])
            keys.append(drawn[chosen])
            if sum(map(len, keys)) > 2 * n:
                parts, keys, edge = _smallest(parts, keys, n)
        parts, keys, _ = _smallest(parts, keys, n)
        return parts[0]


def open_table(path: Path | str, options: ReadOptions | None = None) -> TableFile:
    r"""Open a table; how it is laid out is inferred once, and nothing else is read yet.

    Args:
        path: `.csv`, `.tsv` or `.txt` (gzipped or not), `.parquet`, `.xlsx`, `.npy` or `.npz`, or a folder of
            Parquet files.
        options: how to read it; None: all is inferred.

    Returns:
        The table, to be read at once or in blocks.

    Raises:
        UserError: the file cannot be read as a table; the message says what to do.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "a.csv"
    ...     _ = path.write_text("name;size\nx;1,5\ny;n/a\n")
    ...     table = open_table(path)
    ...     print(table.names, table.options.delimiter, [len(block) for block in table.blocks(size=1)])
    ...     table.frame()
    ('name', 'size') ; [1, 1]
      name size
    0    x  1,5
    1    y  n/a
    """
    path, options = Path(path), options or ReadOptions()
    return TableFile(path, options, _open_source(path, options))


def _open_source(path: Path, options: ReadOptions) -> Source:
    suffix = suffix_of(path)
    if path.is_dir() and suffix not in SUFFIXES:
        return open_parquet(path)
    if suffix not in SUFFIXES:
        raise UserError(f"{path}: cannot read {suffix or 'a file without ending'}; use {', '.join(SUFFIXES)}")
    if not path.is_file():
        raise UserError(f"{path}: {'a folder, not a file' if path.is_dir() else 'no such file'}")
    if path.stat().st_size == 0:
        raise UserError(f"{path}: the file is empty")
    if suffix in TEXT_SUFFIXES:
        return open_text_source(path, delimiter=options.delimiter, encoding=options.encoding, header=options.header)
    if suffix in ARRAY_SUFFIXES:
        return open_array(path)
    return open_parquet(path) if suffix == ".parquet" else open_workbook(path, options.sheet)


def block_size(width: int, most: int = 131_072, usual_width: int = 2_500) -> int:
    """Rows of a block: enough to keep all cores busy; of wide tables fewer, so that a block fits into memory."""
    return min(most, max(1, most // max(1, width // usual_width)))


def _about_unused(path: Path, options: ReadOptions) -> tuple[str, ...]:
    """A note on options that mean nothing for this kind of file."""
    suffix = ".parquet" if path.is_dir() else suffix_of(path)
    names = ("delimiter", "encoding", "header") * (suffix not in TEXT_SUFFIXES) + ("sheet",) * (suffix != ".xlsx")
    unused = [name for name in names if getattr(options, name) is not None]
    return (f"{' and '.join(unused)} ignored: of no use for a {suffix} file",) if unused else ()


def _smallest(
    parts: list[pd.DataFrame], keys: list[np.ndarray], n: int
) -> tuple[list[pd.DataFrame], list[np.ndarray], float]:
    """The rows with the n smallest keys, and the largest of these."""
    every = np.concatenate(keys)
    edge = float(np.partition(every, n - 1)[n - 1]) if len(every) > n else math.inf
    chosen = np.flatnonzero(every <= edge)
    return [pd.concat(parts, ignore_index=True).iloc[chosen].reset_index(drop=True)], [every[chosen]], edge
