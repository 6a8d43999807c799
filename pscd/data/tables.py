"""The user's own data as rows of finite numbers; `pscd.tables` reads tables with more in them."""

import csv
import math
import shlex
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from pscd.errors import UserError
from pscd.files import check_fits, reading, suffix_of

if TYPE_CHECKING:
    import pandas as pd

    from pscd.tables.cells import Cells

SUFFIXES = (".csv", ".tsv", ".txt", ".parquet", ".xlsx", ".npy", ".npz")
ARRAYS = (".npy", ".npz")
LARGEST = 1e30  # squares of columns are summed on the way
BLOCK = 2**16  # rows that are checked at a time
ELSE = "use pscd detect, which takes tables as they come (pscd look shows how)"


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
        path: `.csv`, `.tsv` or `.txt` (gzipped or not, with or without a header), `.parquet`, `.xlsx`, `.npy` or
            `.npz`.
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
    suffix = suffix_of(path)
    if suffix not in SUFFIXES:
        raise UserError(f"{path}: cannot read {suffix or 'a file without ending'}; use {', '.join(SUFFIXES)}")
    if not path.is_file():
        raise UserError(f"{path}: {'a folder, not a file' if path.is_dir() else 'no such file'}")
    if path.stat().st_size == 0:
        raise UserError(f"{path}: the file is empty")
    named = suffix not in ARRAYS
    if ids and not named:
        raise UserError(f"{path}: has no column names, so none can be an id; leave --id out")
    values, names, kept = _read_frame(path, columns, ids) if named else (read_array(path), None, {})
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
        path: a file of any kind, a folder of Parquet files, or none at all.

    Returns:
        The number of columns, text columns included.
    """
    suffix = suffix_of(path)
    try:
        if path.is_dir():
            path = next(iter(path.rglob("*.parquet")))
            suffix = ".parquet"
        if suffix == ".npy":
            shape = np.load(path, mmap_mode="r", allow_pickle=False).shape
            return shape[1] if len(shape) == 2 else 1
        if suffix in (".csv", ".tsv", ".txt"):
            from pscd.tables.read import open_table

            return len(open_table(path).names)
        if suffix == ".parquet":
            import pyarrow.parquet as pq

            return len(pq.read_schema(path))
    except Exception:  # whatever is wrong with it is told when it is read
        return None
    return None


def read_array(path: Path) -> np.ndarray:
    """The array of a `.npy` or `.npz` file.

    Args:
        path: the file.

    Returns:
        Numbers of any shape.

    Raises:
        UserError: it cannot be read, or holds no real numbers.
    """
    with reading(path, f"not a readable {path.suffix} file"):
        if path.suffix.lower() == ".npz":
            return check_array(path, _read_npz(path))
        with path.open("rb") as file:
            _check_declared(path, file, path.stat().st_size)
        return check_array(path, np.load(path, allow_pickle=False))


def open_array(path: Path) -> np.ndarray:
    """The array of a `.npy` file as a memory map, of which nothing is read yet.

    Args:
        path: the file.

    Returns:
        The memory map.

    Raises:
        UserError: it cannot be opened, or is shorter than its header promises.
    """
    with reading(path, "not a readable .npy file"):
        with path.open("rb") as file:
            _check_declared(path, file, path.stat().st_size)
        return np.load(path, mmap_mode="r", allow_pickle=False)


def check_array(path: Path, found: np.ndarray) -> np.ndarray:
    """Refuse an array of anything but real numbers.

    Args:
        path: its file, for the message.
        found: the array.

    Returns:
        The array.

    Raises:
        UserError: it holds something else.
    """
    if not (np.issubdtype(found.dtype, np.number) or found.dtype == bool):
        raise UserError(f"{path}: holds {found.dtype}, not numbers")
    if np.issubdtype(found.dtype, np.complexfloating):
        raise UserError(f"{path}: holds complex numbers; give real ones")
    return found


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
    from pscd.tables import read_frame
    from pscd.tables.cells import as_frame, cells_of
    from pscd.tables.infer import common_decimal

    frame = _read_plain(path, ids or ())
    if frame is None:
        frame = read_frame(path)
    frame.columns = [str(name).strip() for name in frame.columns]
    missing = [name for name in (*(columns or ()), *(ids or ())) if name not in frame.columns]
    if missing:
        raise UserError(f"{path}: has no column {_listed(missing)}; it has {_listed(list(frame.columns))}")
    both = [name for name in columns or () if name in (ids or ())]
    if both:
        raise UserError(f"{path}: column {_listed(both)} cannot be an id and be learnt from")
    kept = {name: frame[name].fillna("").tolist() for name in ids or ()}
    chosen = list(columns) if columns is not None else [name for name in frame.columns if name not in kept]
    if not chosen:
        raise UserError(f"{path}: no columns are left beside the id")
    columns_of = as_frame(frame)
    cells = {name: cells_of(columns_of[name]) for name in chosen}
    decimal = common_decimal(cells, frame.attrs.get("pscd", {}).get("delimiter", ","))
    values = {name: _numbers(found, decimal) for name, found in cells.items()}
    text = [name for name, (_, stray) in values.items() if stray.any()]
    if text:
        raise UserError(f"{path}: {_about_text(frame, values, text, may_be_id=ids is not None)}")
    return np.stack([numbers for numbers, _ in values.values()], 1), tuple(chosen), kept


def _read_plain(path: Path, ids: Sequence[str]) -> "pd.DataFrame | None":
    """A csv of numbers alone, which pandas reads fastest; None if there is more to it. Ids stay text: 007."""
    import pandas as pd

    if suffix_of(path) != ".csv":
        return None
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            first = [field.strip() for field in next(csv.reader(file), [])]
        if len(set(first)) < len(first) or all(map(_is_number, first)) or not all(first):
            return None
        frame = pd.read_csv(path, skipinitialspace=True, dtype=dict.fromkeys(ids, str))
    except (ValueError, OSError, csv.Error):  # pandas' own errors are ValueErrors
        return None
    plain = frame.index.equals(pd.RangeIndex(len(frame))) and len(frame) > 0
    numeric = all(pd.api.types.is_numeric_dtype(frame[name]) for name in frame.columns if name not in ids)
    return frame if plain and numeric else None


def _numbers(cells: "Cells", decimal: str) -> tuple[np.ndarray, np.ndarray]:
    """The number in each cell, NaN where there is none, and whether something else is there."""
    from pscd.tables.numbers import guess_format

    if cells.kind in ("number", "boolean"):
        found = cells.values
        return cells.spread(found), np.zeros(len(cells.codes), bool)
    texts = cells.texts()
    flags = {"true": 1.0, "false": 0.0}
    if len(texts) and all(text.casefold() in flags for text in texts):
        found = np.array([flags[text.casefold()] for text in texts])
    else:
        found = guess_format(texts, cells.counts, decimal).parse(texts)
        infinite = [i for i in np.flatnonzero(np.isnan(found)) if _is_number(texts[i])]
        found[infinite] = np.inf  # of these `_check_finite` speaks
    return cells.spread(found), cells.spread(np.isnan(found), False)


def _about_text(
    frame: "pd.DataFrame", values: "Mapping[str, tuple[np.ndarray, np.ndarray]]", text: list[str], *, may_be_id: bool
) -> str:
    """Which columns are not numeric, and what to do: a stray cell is pointed at, a real one left out."""
    if len(text) == 1:
        stray = np.flatnonzero(values[text[0]][1])
        if len(stray) <= len(frame) / 2:
            cell = str(frame[text[0]].iloc[stray[0]])
            return f"column {text[0]!r} is not numeric: {cell!r} in row {stray[0] + 1}; correct or remove it, or {ELSE}"
    keep = [name for name in values if name not in text and frame[name].nunique() > 1]
    one = len(text) == 1
    what = f"column {_listed(text)} is not numeric" if one else f"columns {_listed(text)} are not numeric"
    if not keep:
        return f"{what}; {ELSE}"
    if may_be_id:
        return (
            f"{what}; carry {'it' if one else 'them'} along unlearnt with --id {shlex.quote(','.join(text))}, or {ELSE}"
        )
    return f"{what}; choose others with --columns {shlex.quote(','.join(keep))}, or {ELSE}"


def _check_finite(path: Path, values: np.ndarray, names: tuple[str, ...] | None) -> None:
    # Squares of columns are summed on the way, in float64.
    def is_bad(part: np.ndarray) -> np.ndarray:
        with np.errstate(invalid="ignore"):
            return ~(np.abs(part.astype(np.float64)) < LARGEST)

    blocks = (values[i : i + BLOCK] for i in range(0, len(values), BLOCK))
    rows = np.flatnonzero(np.concatenate([is_bad(part).reshape(len(part), -1).any(1) for part in blocks]))
    if not len(rows):
        return
    where = f"row {rows[0] + 1}"
    if names is not None:
        name = names[int(np.flatnonzero(is_bad(values[rows[0]]))[0])]
        where += f", column {' '.join(name.split())}"  # names of a spreadsheet may have lines of their own
    count = "1 row is" if len(rows) == 1 else f"{len(rows)} rows are"
    raise UserError(f"{path}: {count} missing, infinite or over 1e30 (first: {where}); fill or remove them, or {ELSE}")


def _is_number(name: object) -> bool:
    try:
        float(str(name))
    except ValueError:
        return False
    return True


def _listed(names: list[str], most: int = 8) -> str:
    shown = ", ".join(repr(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
