"""The user's own data: `.csv`, `.parquet`, `.npy` and `.npz` files as rows of finite numbers."""

import csv
import math
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from pscd.errors import UserError
from pscd.files import check_fits, needs, reading

if TYPE_CHECKING:
    import pandas as pd

SUFFIXES = (".csv", ".parquet", ".npy", ".npz")
LARGEST = 1e30


@dataclass(frozen=True)
class Table:
    """The rows of a file.

    Args:
        x: `(n, *shape)` in float64: a time stamp or a coordinate needs all its digits until it is standardised.
        columns: the columns' names, if the file has any.
        ids: columns that go along with the rows, text or numbers, and are not learnt from.
    """

    x: Tensor
    columns: tuple[str, ...] | None = None
    ids: dict[str, list[Any]] = field(default_factory=dict)


def read_table(path: Path | str, columns: Sequence[str] | None = None, ids: Sequence[str] | None = None) -> Table:
    """Read the rows of a file.

    Args:
        path: `.csv` (with or without a header), `.parquet`, `.npy` or `.npz`.
        columns: columns to take, in this order; by default all but the `ids`.
        ids: columns to carry along that the model does not learn from.

    Returns:
        The rows in float64, their column names and the `ids`.

    Raises:
        UserError: the file cannot be used; the message names the file, the place and what to do.

    >>> import pandas, pscd, tempfile
    >>> rooms = pandas.DataFrame({"room": ["a", "b"], "width": [3.5, 4.0], "height": [2.4, 2.5]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rooms.to_csv(f"{folder}/rooms.csv", index=False)
    ...     table = pscd.read_table(f"{folder}/rooms.csv", ids=["room"])
    >>> table.columns, table.x.tolist(), table.ids
    (('width', 'height'), [[3.5, 2.4], [4.0, 2.5]], {'room': ['a', 'b']})
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise UserError(f"{path}: cannot read {suffix or 'a file without ending'}; use {', '.join(SUFFIXES)}")
    if not path.is_file():
        raise UserError(f"{path}: {'a folder, not a file' if path.is_dir() else 'no such file'}")
    if path.stat().st_size == 0:
        raise UserError(f"{path}: the file is empty")
    named = suffix not in (".npy", ".npz")
    if ids and not named:
        raise UserError(f"{path}: has no column names, so none can be an id; leave --id out")
    values, names, kept = _read_frame(path, columns, ids) if named else (_read_array(path), None, {})
    if columns is not None and names is None:
        raise UserError(f"{path}: has no column names, so columns cannot be chosen; leave --columns out")
    if values.ndim == 1:
        values = values[:, None]
    if values.ndim == 0 or len(values) == 0 or values[0].size == 0:
        raise UserError(f"{path}: there are no rows in it")
    _check_finite(path, values, names)
    return Table(torch.from_numpy(np.array(values, np.float64, order="C")), names, kept)


def count_columns(path: Path) -> int | None:
    """How many columns a file has, from its first bytes; None if it is no table that can be read.

    Args:
        path: a file of any kind, or none at all.

    Returns:
        The number of columns, text columns included.
    """
    suffix = path.suffix.lower()
    try:
        if suffix == ".npy":
            shape = np.load(path, mmap_mode="r", allow_pickle=False).shape
            return shape[1] if len(shape) == 2 else 1
        if suffix == ".csv":
            with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
                return len(next(csv.reader(file)))
        if suffix == ".parquet":
            import pyarrow.parquet as pq

            return len(pq.read_schema(path))
    except Exception:  # whatever is wrong with it is told when it is read
        return None
    return None


def _read_array(path: Path) -> np.ndarray:
    with reading(path, f"not a readable {path.suffix} file"):
        if path.suffix.lower() == ".npz":
            loaded = _read_npz(path)
        else:
            with path.open("rb") as file:
                _check_declared(path, file, path.stat().st_size)
            loaded = np.load(path, allow_pickle=False)
    if not (np.issubdtype(loaded.dtype, np.number) or loaded.dtype == bool):
        raise UserError(f"{path}: holds {loaded.dtype}, not numbers")
    if np.issubdtype(loaded.dtype, np.complexfloating):
        raise UserError(f"{path}: holds complex numbers; give real ones")
    return loaded


def _read_npz(path: Path) -> np.ndarray:
    with zipfile.ZipFile(path) as archive:
        names = {name.removesuffix(".npy"): name for name in archive.namelist()}
        key = next((k for k in ("X", "x") if k in names), None)
        if key is None and len(names) != 1:
            raise UserError(f"{path}: holds {', '.join(names)}; name the array of rows X")
        member = names[key] if key is not None else next(iter(names.values()))
        check_fits(path, archive.getinfo(member).file_size)
        with archive.open(member) as file:
            _check_declared(path, file, archive.getinfo(member).file_size)
        with archive.open(member) as file:
            return np.lib.format.read_array(file, allow_pickle=False)


def _check_declared(path: Path, file: IO[bytes], n_bytes: int) -> None:
    """Refuse an array whose header promises more than is there; numpy would take the memory first."""
    version = np.lib.format.read_magic(file)
    read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read_header(file)
    size = math.prod(shape) * dtype.itemsize
    if not dtype.hasobject and size > n_bytes:
        raise UserError(f"{path}: {n_bytes} bytes where its header promises {size}")


def _read_frame(
    path: Path, columns: Sequence[str] | None, ids: Sequence[str] | None
) -> tuple[np.ndarray, tuple[str, ...], dict[str, list[Any]]]:
    import pandas as pd

    if path.suffix.lower() == ".parquet":
        needs("pyarrow", "parquet", f"{path}: reading parquet")
    with reading(path, f"not a readable {path.suffix} file"):
        frame = _read_parquet(path) if path.suffix.lower() == ".parquet" else _read_csv(path, ids or ())
    frame.columns = [str(name).strip() for name in frame.columns]
    missing = [name for name in (*(columns or ()), *(ids or ())) if name not in frame.columns]
    if missing:
        raise UserError(f"{path}: has no column {_listed(missing)}; it has {_listed(list(frame.columns))}")
    both = [name for name in columns or () if name in (ids or ())]
    if both:
        raise UserError(f"{path}: column {_listed(both)} cannot be an id and be learnt from")
    kept = {name: frame[name].fillna("").tolist() for name in ids or ()}
    frame = frame[list(columns)] if columns is not None else frame.drop(columns=list(kept))
    if frame.shape[1] == 0:
        raise UserError(f"{path}: no columns are left beside the id")
    if len(frame) == 0:
        raise UserError(f"{path}: there are no rows in it")
    text = [name for name in frame.columns if not pd.api.types.is_numeric_dtype(frame[name])]
    if text:
        raise UserError(f"{path}: {_about_text(frame, text, may_be_id=ids is not None)}")
    return frame.to_numpy(dtype=np.float64, na_value=np.nan), tuple(frame.columns), kept


def _read_parquet(path: Path) -> "pd.DataFrame":
    import pandas as pd
    import pyarrow.parquet as pq

    about = pq.read_metadata(path)
    groups = [about.row_group(i) for i in range(about.num_row_groups)]
    check_fits(path, max(8 * about.num_rows * about.num_columns, *(g.total_byte_size for g in groups), 0))
    return pd.read_parquet(path)


def _read_csv(path: Path, ids: Sequence[str]) -> "pd.DataFrame":
    """A csv with or without a header; what pandas would guess silently is an error here. Ids stay text: 007."""
    import pandas as pd

    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        first = [field.strip() for field in next(csv.reader(file), [])]
    separators = [s for s in (";", "\t", "|") if s in " ".join(first)]
    if separators and len(first) <= 2:
        name = {"\t": "tabs", ";": "semicolons", "|": "bars"}[separators[0]]
        raise UserError(f"{path}: its fields seem to be separated by {name}; save it with commas")
    if all(_is_number(name) for name in first):  # the first row is data, not a header
        frame = pd.read_csv(path, header=None, skipinitialspace=True)
        frame.columns = [f"x{i}" for i in range(frame.shape[1])]
        return frame
    twice = sorted({name for name in first if first.count(name) > 1})
    if twice:
        raise UserError(f"{path}: column {_listed(twice)} is there twice; give every column a name of its own")
    frame = pd.read_csv(path, skipinitialspace=True, dtype=dict.fromkeys(ids, str))
    if not frame.index.equals(pd.RangeIndex(len(frame))):  # pandas takes surplus fields for row labels
        raise UserError(f"{path}: its rows have more fields than the header has names")
    return frame


def _about_text(frame: "pd.DataFrame", text: list[str], *, may_be_id: bool) -> str:
    """Which columns are not numeric, and what to do: a stray cell is pointed at, a real one left out."""
    import pandas as pd

    if len(text) == 1:
        values = frame[text[0]]
        stray = np.flatnonzero(pd.to_numeric(values, errors="coerce").isna() & values.notna())
        if 0 < len(stray) <= len(frame) / 2:
            cell = values.iloc[stray[0]]
            return f"column {text[0]!r} is not numeric: {cell!r} in row {stray[0] + 1}; correct or remove it"
    keep = [name for name in frame.columns if name not in text and frame[name].nunique() > 1]
    if not keep:
        return f"column {_listed(text)} is not numeric; encode it as numbers"
    if may_be_id:
        return (
            f"column {_listed(text)} is not numeric; carry it along unlearnt with --id '{','.join(text)}', "
            "or encode it as numbers"
        )
    return f"column {_listed(text)} is not numeric; choose others with --columns {','.join(keep)}"


def _check_finite(path: Path, values: np.ndarray, names: tuple[str, ...] | None) -> None:
    # Squares of columns are summed on the way, in float64.
    with np.errstate(invalid="ignore"):
        bad = ~(np.abs(values.astype(np.float64)) < LARGEST)
    if not bad.any():
        return
    rows = np.flatnonzero(bad.reshape(len(bad), -1).any(1))
    where = f"row {rows[0] + 1}"
    if names is not None:
        where += f", column {names[int(np.flatnonzero(bad[rows[0]])[0])]}"
    count = "1 row is" if len(rows) == 1 else f"{len(rows)} rows are"
    raise UserError(f"{path}: {count} missing, infinite or over 1e30 (first: {where}); fill or remove them")


def _is_number(name: object) -> bool:
    try:
        float(str(name))
    except ValueError:
        return False
    return True


def _listed(names: list[str], most: int = 8) -> str:
    shown = ", ".join(repr(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
