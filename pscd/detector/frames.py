"""Data frames of any library: pandas, polars and pyarrow in, the same library out."""

from collections.abc import Mapping, Sequence
from typing import Any

import narwhals.stable.v1 as nw
import numpy as np
import pandas as pd
from narwhals.stable.v1.dependencies import is_pandas_dataframe
from numpy.typing import NDArray

from pscd.tables.cells import is_frame, with_text_names


def native_frame(table: Any) -> "nw.DataFrame[Any] | None":
    """A data frame in narwhals' common form with text names; None for anything else."""
    if not is_frame(table):
        return None
    return nw.from_native(with_text_names(table) if is_pandas_dataframe(table) else table, eager_only=True)


def has_text(table: Any) -> bool:
    """Whether a two-dimensional array, or lists of lists, hold words besides numbers."""
    cells = np.asarray(table)
    if cells.ndim != 2 or cells.dtype.kind not in "OUS":
        return False
    return any(isinstance(cell, str) and not _is_number(cell) for cell in cells.ravel().tolist())


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def labels(table: Any, names: Sequence[str]) -> list[Any]:
    """The columns with these names as the table has them: names of a pandas frame may be numbers."""
    own = {str(name): name for name in table.columns} if is_pandas_dataframe(table) else {}
    return [own.get(name, name) for name in names]


def framed(columns: Mapping[str, Any], like: Any) -> Any:
    """Columns by name as a frame of the same library as `like`, with its index if it is one of pandas."""
    frame = nw.from_native(like, eager_only=True)
    made = nw.from_dict(dict(columns), backend=nw.get_native_namespace(frame)).to_native()
    if not is_pandas_dataframe(made):
        return made
    return made.set_axis(like.index, axis=0).set_axis(labels(like, list(columns)), axis=1)


def empty_like(table: Any) -> Any:
    """A frame without rows, of the same library and columns as a table; None for an array."""
    if is_pandas_dataframe(table):
        return type(table)(columns=table.columns)
    frame = native_frame(table)
    if frame is None:
        return None
    return nw.from_dict({name: [] for name in frame.columns}, backend=nw.get_native_namespace(frame)).to_native()


def frame_like(values: NDArray[np.float64], like: Any) -> Any:
    """Numbers `(n, d)` as a frame with the library and names of `like`; the array itself if that is None."""
    if like is None:
        return values
    if is_pandas_dataframe(like):
        return type(like)(values, columns=like.columns)
    frame = nw.from_native(like, eager_only=True)
    columns = dict(zip(frame.columns, values.T, strict=True))
    return nw.from_dict(columns, backend=nw.get_native_namespace(frame)).to_native()


def row_labels(table: Any, n: int, column: str | None = None) -> list[Any]:
    """What users call the n rows: the values of a column, the index of a pandas frame, otherwise 0, 1, ..."""
    frame = native_frame(table)
    if column is not None:
        if frame is None or column not in frame.columns:
            raise ValueError(f"there is no column {column!r} to name the rows")
        return list(frame[column].to_list())
    return list(table.index) if is_pandas_dataframe(table) else list(range(n))


def empty_frame(names: Sequence[str] | None) -> pd.DataFrame | None:
    """A pandas frame with these columns and without rows; None without names."""
    return None if names is None else pd.DataFrame(columns=list(names))
