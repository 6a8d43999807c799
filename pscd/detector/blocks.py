"""Tables in files as a fitted detector takes them: at once, or in blocks that are all read alike."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pscd.detector.reading import Reader, Rows
from pscd.errors import UserError
from pscd.files import suffix_of
from pscd.tables import ReadOptions, TableFile, as_frame, decode, read_array, read_frame
from pscd.tables.levels import listed

if TYPE_CHECKING:
    from pscd.tables.blocks import BlockSource


def reader_for(reader: Reader, file: TableFile, *, by_place: bool = False) -> Reader:
    """The reader of a detector for a file; what is not stated about text is inferred from the first block.

    Columns are found by name; by place if the detector knows no names, or the file is an array.
    """
    by_place = by_place or file.shape is not None
    _check_columns(reader.columns, file.names, len(file.names) if by_place else None, file.path)
    reader = reader.renamed(file.names) if by_place else reader
    names = reader.columns
    first = next(file.blocks(columns=names)) if file.is_large else file.frame()[names]
    return reader.adapted(first, file.options)


def fitting_blocks(
    reader: Reader, source: "BlockSource", options: dict[str, Any] | None = None
) -> Callable[[Any], Rows]:
    """A function from blocks of a table to rows; what is not stated is inferred from the first block for all."""
    width = None if source.names is not None else source.n_columns
    wanted = reader.columns
    _check_columns(wanted, source.names or (), width, source.path)

    def framed(block: Any) -> pd.DataFrame:
        if isinstance(block, np.ndarray):
            return pd.DataFrame(block.reshape(len(block), -1), columns=wanted)
        return block[wanted]

    adapted = reader.adapted(framed(next(source.blocks(0))), _options(options))
    return lambda block: adapted.read(framed(block))


def read_file(reader: Reader, path: Path, options: dict[str, Any]) -> pd.DataFrame:
    """All columns of a file as a frame that the methods of the detector take."""
    if suffix_of(path) in (".npy", ".npz"):
        x = read_array(path)
        frame = as_frame(x.reshape(len(x), -1)).to_native()
        _check_columns(reader.columns, (), frame.shape[1], path)
        return frame.set_axis(reader.columns, axis=1)
    frame = read_frame(path, **options)
    _check_columns(reader.columns, list(frame.columns), None, path)
    part = frame[reader.columns]
    adapted = reader.adapted(part, _options(options))
    if adapted.is_plain or not reader.is_plain:
        return frame
    return frame.assign(
        **decode(adapted.read(part).x.numpy(), adapted.schema)
    )  # text, where the detector knows numbers


def _options(stated: dict[str, Any] | None) -> ReadOptions:
    return ReadOptions(**{name: value for name, value in (stated or {}).items() if value is not None})


def _check_columns(wanted: Sequence[str], names: Sequence[str], width: int | None, path: Path) -> None:
    """Refuse a table without the columns that a detector needs; `width` is that of a table without names."""
    if width not in (None, len(wanted)):
        raise UserError(f"{path}: {width} numbers a row, but the detector was fitted to {len(wanted)} columns")
    absent = [name for name in wanted if width is None and name not in names]
    if absent:
        raise UserError(f"{path}: has no column {listed(absent)}; it has {listed(list(names))}")
