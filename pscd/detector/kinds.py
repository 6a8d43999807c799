"""Frames of the library that a user came with: what went in as one of polars comes out as one of polars."""

from collections.abc import Sequence
from typing import Any

import narwhals.stable.v1 as nw
import numpy as np
import pandas as pd
from narwhals.stable.v1.dependencies import is_pandas_dataframe
from numpy.typing import NDArray

from pscd.detector.reading import native_frame


def empty_like(table: Any) -> Any:
    """A data frame without rows, of the same library and with the same columns as a table.

    Args:
        table: an array, or a data frame.

    Returns:
        The frame, which does not keep the table in memory; None for an array.
    """
    if is_pandas_dataframe(table):
        return type(table)(columns=table.columns)  # its names need not be texts
    frame = native_frame(table)
    if frame is None:
        return None
    return nw.from_dict({name: [] for name in frame.columns}, backend=nw.get_native_namespace(frame)).to_native()


def named(names: Sequence[str] | None) -> pd.DataFrame | None:
    """A data frame of pandas with these columns and without rows; None without names."""
    return None if names is None else pd.DataFrame(columns=list(names))


def frame_like(values: NDArray[np.float64], like: Any) -> Any:
    """Numbers as a data frame like another one.

    Args:
        values: `(n, d)`.
        like: a data frame of d columns, or None.

    Returns:
        A frame of the same library and with the same names; the values themselves if there is none.
    """
    if like is None:
        return values
    if is_pandas_dataframe(like):
        return type(like)(values, columns=like.columns)
    frame = nw.from_native(like, eager_only=True)
    columns = dict(zip(frame.columns, values.T, strict=True))
    return nw.from_dict(columns, backend=nw.get_native_namespace(frame)).to_native()
