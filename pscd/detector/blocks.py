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
    from pscd.detector.estimator import EnergyDetector
    from pscd.tables.blocks import BlockSource


def reader_for(detector: "EnergyDetector", file: TableFile) -> Reader:
    """A reader of a file as the detector needs it; what is not stated about text is inferred from the first block."""
    reader, wanted = detector.reader_, detector.columns
    goes_by_place = file.shape is not None or not hasattr(detector, "feature_names_in_")
    _check_columns(wanted, file.names, len(file.names) if goes_by_place else None, file.path)
    reader = reader.renamed(file.names) if goes_by_place else reader
    names = [column.name for column in reader.schema.learnt()]
    first = next(file.blocks(columns=names)) if file.is_large else file.frame()[names]
    return reader.adapted(first, file.options)


def fitting_blocks(
    detector: "EnergyDetector", source: "BlockSource", options: dict[str, Any] | None = None
) -> Callable[[Any], Rows]:
    """A function from blocks of a table to rows; what is not stated is inferred from the first block for all."""
    width = None if source.names is not None else source.n_columns
    _check_columns(detector.columns, source.names or (), width, source.path)
    wanted = detector.columns

    def framed(block: Any) -> pd.DataFrame:
        if isinstance(block, np.ndarray):
            return pd.DataFrame(block.reshape(len(block), -1), columns=wanted)
        return block[wanted]

    reader = detector.reader_.adapted(framed(next(source.blocks(0))), _options(options))
    return lambda block: reader.read(framed(block))


def read_file(detector: "EnergyDetector", path: Path, options: dict[str, Any]) -> pd.DataFrame:
    """All columns of a file as a frame that the methods of the detector take."""
    if suffix_of(path) in (".npy", ".npz"):
        x = read_array(path)
        frame = as_frame(x.reshape(len(x), -1)).to_native()
        _check_columns(detector.columns, (), frame.shape[1], path)
        return frame.set_axis(detector.columns, axis=1)
    frame = read_frame(path, **options)
    _check_columns(detector.columns, list(frame.columns), None, path)
    part = frame[detector.columns]
    reader = detector.reader_.adapted(part, _options(options))
    if reader.is_plain or not detector.reader_.is_plain:
        return frame
    return frame.assign(**decode(reader.read(part).x.numpy(), reader.schema))  # text, where the detector knows numbers


def _options(stated: dict[str, Any] | None) -> ReadOptions:
    return ReadOptions(**{name: value for name, value in (stated or {}).items() if value is not None})


def _check_columns(wanted: Sequence[str], names: Sequence[str], width: int | None, path: Path) -> None:
    """Refuse a table without the columns that a detector needs; `width` is that of a table without names."""
    if width not in (None, len(wanted)):
        raise UserError(f"{path}: {width} numbers a row, but the detector was fitted to {len(wanted)} columns")
    absent = [name for name in wanted if width is None and name not in names]
    if absent:
        raise UserError(f"{path}: has no column {listed(absent)}; it has {listed(list(names))}")
