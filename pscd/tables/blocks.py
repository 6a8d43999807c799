"""Tables in blocks, for callers that do not use `open_table` yet."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pscd.files import suffix_of
from pscd.tables.read import TEXT_SUFFIXES, ReadOptions, TableFile, open_table

BLOCK_ROWS = 131_072
LARGE_TEXT = 32_000_000  # bytes of a text file from which on it is read in blocks
LARGE_ROW = 2_500  # numbers: wider rows come in blocks of fewer


@dataclass(frozen=True)
class BlockSource:
    """A table that is read in blocks of `size` rows."""

    path: Path
    names: tuple[str, ...] | None
    n_rows: int
    size: int
    n_columns: int
    notes: tuple[str, ...]
    read: Callable[[int, Sequence[str] | None], Iterator[Any]]
    files: list[Path]

    def blocks(self, first: int = 0, columns: Sequence[str] | None = None) -> Iterator[Any]:
        """The blocks from number `first` on."""
        yield from self.read(first, columns)


def open_blocks(
    path: Path | str,
    *,
    size: int | None = None,
    most: int = BLOCK_ROWS,
    delimiter: str | None = None,
    encoding: str | None = None,
    header: bool | None = None,
) -> BlockSource | None:
    """A table to be read in blocks; None if it is small, or of a kind that is read at once."""
    path = Path(path)
    suffix = suffix_of(path)
    if not path.is_dir():
        if suffix not in (".npy", ".parquet", *TEXT_SUFFIXES) or not path.is_file() or path.stat().st_size == 0:
            return None
        if suffix in TEXT_SUFFIXES and size is None and path.stat().st_size <= LARGE_TEXT:
            return None
    table = open_table(path, ReadOptions(delimiter=delimiter, encoding=encoding, header=header))
    width, n_rows = len(table.names), table.n_rows_estimate
    if size is None and not path.is_dir() and n_rows <= max(1, BLOCK_ROWS // max(1, width // LARGE_ROW)):
        return None
    rows = size or min(most, max(1, BLOCK_ROWS // max(1, width // LARGE_ROW)))
    about = {"delimiter": table.options.delimiter, "encoding": table.options.encoding, "header": table.options.header}

    def read(first: int, columns: Sequence[str] | None) -> Iterator[Any]:
        for block in table.blocks(rows, first * rows, columns):
            if table.shape is not None:
                yield block.to_numpy().reshape(len(block), *table.shape)
            else:
                if suffix in TEXT_SUFFIXES:
                    block.attrs["pscd"] = dict(about)
                yield block

    names = None if table.shape is not None else table.names
    return BlockSource(path, names, n_rows, rows, width, _layout_notes(table), read, table.files)


def _layout_notes(table: TableFile) -> tuple[str, ...]:
    return tuple(note for note in table.notes if "ignored: of no use" not in note)
