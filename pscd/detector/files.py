"""Files of rows for a detector: read as they come, and brought into the form that it was fitted to."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pscd.data.tables import ARRAYS, read_array
from pscd.errors import UserError
from pscd.files import suffix_of
from pscd.frames import Schema, as_frame, decode, encode, look, read_frame
from pscd.frames.levels import listed

if TYPE_CHECKING:
    from pscd.detector.estimator import EnergyDetector


def read_rows(path: Path, options: Mapping[str, Any] | None = None) -> Any:
    """The table of a file.

    Args:
        path: a text file, a workbook, a parquet file or an array.
        options: how to read a text file or a workbook, by the names of the parameters of `read_frame`.

    Returns:
        A data frame; columns of arrays are called x0, x1, ...

    Raises:
        UserError: the file cannot be read as a table.
    """
    if suffix_of(path) not in ARRAYS:
        return read_frame(path, **options or {})
    x = read_array(path)
    if x.ndim > 2:
        raise UserError(f"{path}: rows of {' x '.join(map(str, x.shape[1:]))} numbers are no table; use pscd train")
    return as_frame(x if x.ndim == 2 else x[:, None]).to_native()


def fitting_frame(
    detector: "EnergyDetector",
    frame: Any,
    path: Path,
    run: Path,
    *,
    ids: Sequence[str] = (),
    missing: Sequence[str] = (),
) -> Any:
    """A table as the detector wants it: arrays get the names of its columns, and text its numbers.

    Args:
        detector: the fitted detector.
        frame: the table, as it was read.
        path: the file that it was read from.
        run: the folder of the detector, for messages.
        ids: columns that must be there too.
        missing: spellings of a missing value beside the usual ones.

    Returns:
        The table.

    Raises:
        UserError: it has other columns.
    """
    schema: Schema | None = detector.reader_.schema
    names = [str(name) for name in getattr(detector, "feature_names_in_", [])] or [
        f"x{j}" for j in range(detector.n_features_in_)
    ]
    wanted = names if schema is None else [column.name for column in schema.learnt()]
    if suffix_of(path) in ARRAYS:
        if frame.shape[1] != len(wanted):
            raise UserError(f"{path}: {frame.shape[1]} numbers a row, but {run} was trained on {len(wanted)} columns")
        frame = frame.set_axis(wanted, axis=1)
    gone = [name for name in (*wanted, *ids) if name not in frame.columns]
    if gone:
        raise UserError(f"{path}: has no column {listed(gone)}; it has {listed(list(frame.columns))}")
    if schema is not None:
        return frame
    numbers = look(frame[names], kinds=dict.fromkeys(names, "number"), missing=missing)
    return frame.assign(**decode(encode(frame[names], numbers).x, numbers))
