"""The user's own data: `.csv`, `.parquet`, `.npy` and `.npz` files as rows of finite numbers."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pscd.errors import UserError

SUFFIXES = (".csv", ".parquet", ".npy", ".npz")


@dataclass(frozen=True)
class Table:
    """Rows `(n, *shape)` in float32, and the names of the columns if the file has any."""

    x: Tensor
    columns: tuple[str, ...] | None = None


def read_table(path: Path, columns: Sequence[str] | None = None) -> Table:
    """Read a file; `columns` picks and orders columns by name.

    Every fault of the file is a `UserError` of one line that names the file, the place and what to do.
    """
    if path.suffix not in SUFFIXES:
        raise UserError(f"{path}: cannot read {path.suffix or 'a file without ending'}; use {', '.join(SUFFIXES)}")
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    if path.stat().st_size == 0:
        raise UserError(f"{path}: the file is empty")
    values, names = _read_array(path) if path.suffix in (".npy", ".npz") else _read_frame(path, columns)
    if columns is not None and names is None:
        raise UserError(f"{path}: has no column names, so columns cannot be chosen; leave --columns out")
    if values.ndim == 1:
        values = values[:, None]
    if values.ndim == 0 or len(values) == 0 or values[0].size == 0:
        raise UserError(f"{path}: there are no rows in it")
    _check_finite(path, values, names)
    return Table(torch.from_numpy(np.ascontiguousarray(values, np.float32)), names)


def _read_array(path: Path) -> tuple[np.ndarray, None]:
    try:
        loaded = np.load(path, allow_pickle=False)
        if path.suffix == ".npz":
            key = next((k for k in ("X", "x") if k in loaded), None)
            if key is None and len(loaded.files) != 1:
                raise UserError(f"{path}: holds {', '.join(loaded.files)}; name the array of rows X")
            loaded = loaded[key or loaded.files[0]]
    except UserError:
        raise
    except Exception as error:  # numpy raises half a dozen kinds for a damaged file
        raise UserError(f"{path}: not a readable {path.suffix} file ({error})") from None
    if not (np.issubdtype(loaded.dtype, np.number) or loaded.dtype == bool):
        raise UserError(f"{path}: holds {loaded.dtype}, not numbers")
    if np.issubdtype(loaded.dtype, np.complexfloating):
        raise UserError(f"{path}: holds complex numbers; give real ones")
    return loaded, None


def _read_frame(path: Path, columns: Sequence[str] | None) -> tuple[np.ndarray, tuple[str, ...]]:
    import pandas as pd

    try:
        if path.suffix == ".parquet":
            frame = pd.read_parquet(path)
        else:
            frame = pd.read_csv(path, skipinitialspace=True)
            if all(_is_number(name) for name in frame.columns):  # the first row is data, not a header
                frame = pd.read_csv(path, header=None, skipinitialspace=True)
                frame.columns = [f"x{i}" for i in range(frame.shape[1])]
    except ImportError:
        raise UserError(f"{path}: reading parquet needs pyarrow; pip install 'pscd[parquet]'") from None
    except Exception as error:  # parser errors of pandas and pyarrow have no common base
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"{path}: not a readable {path.suffix} file ({reason})") from None
    frame.columns = [str(name).strip() for name in frame.columns]
    if columns is not None:
        missing = [name for name in columns if name not in frame.columns]
        if missing:
            raise UserError(f"{path}: has no column {_listed(missing)}; it has {_listed(list(frame.columns))}")
        frame = frame[list(columns)]
    if len(frame) == 0:
        raise UserError(f"{path}: there are no rows in it")
    text = [name for name in frame.columns if not pd.api.types.is_numeric_dtype(frame[name])]
    if text:
        keep = [name for name in frame.columns if name not in text]
        hint = f"choose numeric ones with --columns {','.join(keep[:8])}" if keep else "encode them as numbers"
        raise UserError(f"{path}: column {_listed(text)} is not numeric; {hint}")
    return frame.to_numpy(dtype=np.float64, na_value=np.nan), tuple(frame.columns)


def _check_finite(path: Path, values: np.ndarray, names: tuple[str, ...] | None) -> None:
    # Checked in float32, the precision of the model: 1e39 is finite in the file and infinite there.
    with np.errstate(over="ignore"):
        bad = ~np.isfinite(values.astype(np.float32))
    if not bad.any():
        return
    rows = np.flatnonzero(bad.reshape(len(bad), -1).any(1))
    where = f"row {rows[0] + 1}"
    if names is not None:
        where += f", column {names[int(np.flatnonzero(bad[rows[0]])[0])]}"
    count = "1 row is" if len(rows) == 1 else f"{len(rows)} rows are"
    raise UserError(f"{path}: {count} missing or infinite (first: {where}); fill or remove them")


def _is_number(name: object) -> bool:
    try:
        float(str(name))
    except ValueError:
        return False
    return True


def _listed(names: list[str], most: int = 8) -> str:
    shown = ", ".join(repr(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
