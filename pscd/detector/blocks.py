"""Tables in files as a fitted detector takes them: at once, or in blocks that are all read alike."""

from collections.abc import Sequence
from pathlib import Path

from pscd.detector.reading import Reader
from pscd.errors import UserError
from pscd.tables import TableFile
from pscd.tables.levels import listed


def reader_for(reader: Reader, file: TableFile, *, by_place: bool = False) -> Reader:
    """The reader of a detector for a file; what is not stated about text is inferred from the first block.

    Columns are matched by name; by place if the detector knows no names, or the file is an array.
    """
    by_place = by_place or file.shape is not None
    _check_columns(reader.columns, file.names, len(file.names) if by_place else None, file.path)
    reader = reader.renamed(file.names) if by_place else reader
    names = reader.columns
    first = next(file.blocks(columns=names)) if file.is_large else file.frame()[names]
    return reader.adapted(first, file.options)


def _check_columns(wanted: Sequence[str], names: Sequence[str], width: int | None, path: Path) -> None:
    """Refuse a table without the columns that a detector needs; `width` is that of a table without names."""
    if width not in (None, len(wanted)):
        raise UserError(f"{path}: {width} numbers a row, but the detector was fitted to {len(wanted)} columns")
    absent = [name for name in wanted if width is None and name not in names]
    if absent:
        raise UserError(f"{path}: has no column {listed(absent)}; it has {listed(list(names))}")
