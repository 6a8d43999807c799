"""Data by name or by file: toys to learn on, contamination to test with, and the user's own tables."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pscd.data.contaminate import Contaminated, contaminate
from pscd.data.tables import SUFFIXES, Table, read_table
from pscd.data.toys import LOG_DENSITIES, TOYS, TOYS_2D
from pscd.errors import UserError
from pscd.rng import generator

__all__ = [
    "LOG_DENSITIES",
    "TOYS",
    "TOYS_2D",
    "Contaminated",
    "Dataset",
    "Rows",
    "Table",
    "as_rows",
    "check_enough",
    "contaminate",
    "load_dataset",
    "read_table",
]

Rows = Tensor | np.ndarray | Sequence[Any]  # or a DataFrame, which numpy takes for an array
N_HELD_OUT = 10_000
FEWEST_ROWS = 20


def as_rows(x: Rows) -> Tensor:
    """Rows `(n, *shape)` as a float tensor; a `UserError` if they are none, or not finite numbers."""
    try:
        if isinstance(x, np.ndarray) and x.dtype == np.uint8:
            x = torch.from_numpy(x)
        x = x.detach() if isinstance(x, Tensor) else torch.from_numpy(np.array(x, dtype=np.float64))
    except (TypeError, ValueError):
        raise UserError("the rows must be numbers, as a tensor, an array or a DataFrame") from None
    if x.dtype == torch.uint8 and x.ndim == 4:  # images, a byte for each number
        x = x.float() / 255
    x = x if x.is_floating_point() else x.float()
    if x.ndim < 2 or x.numel() == 0:
        raise UserError(f"give rows, shape (n, columns), not {tuple(x.shape)}; one column is x[:, None]")
    if not torch.isfinite(x).all():
        bad = int((~torch.isfinite(x)).flatten(1).any(1).sum())
        raise UserError(f"{bad} of {len(x)} rows are missing or infinite; fill or remove them")
    return x


def check_enough(path: Path, n: int) -> None:
    """A `UserError` if a file's rows are too few to learn from."""
    if n < FEWEST_ROWS:
        raise UserError(f"{path}: {n} rows are too few to learn from; at least {FEWEST_ROWS} are needed")


@dataclass(frozen=True)
class Dataset:
    """Rows to train on, rows kept apart for measuring, and the columns' names if the file has any."""

    train: Tensor
    held_out: Tensor
    columns: tuple[str, ...] | None = None

    @property
    def fingerprint(self) -> str:
        """A checksum of all rows, to notice that a file has changed under a run."""
        return f"{zlib.crc32(self.held_out.numpy().tobytes(), zlib.crc32(self.train.numpy().tobytes())):08x}"


def load_dataset(name: str, *, seed: int, n: int = 50_000, columns: Sequence[str] | None = None) -> Dataset:
    """A toy by name (`n` training rows, 10,000 fresh ones held out) or a file of the user's own.

    A tenth of a file's rows, at most 10,000, chosen by `seed`, are held out.
    """
    if name in TOYS:
        if columns is not None:
            raise UserError(f"{name} is a toy without column names; leave --columns out")
        return Dataset(TOYS[name](n, generator(seed, 0)), TOYS[name](N_HELD_OUT, generator(seed, 1)))
    path = Path(name)
    if path.suffix.lower() not in SUFFIXES and not path.exists():
        raise UserError(
            f"unknown data {name!r}; give a file ({', '.join(SUFFIXES)}) or one of: {', '.join(sorted(TOYS))}"
        )
    table = read_table(path, columns)
    check_enough(path, len(table.x))
    order = torch.randperm(len(table.x), generator=generator(seed, 2))
    n_held_out = min(len(order) // 10, N_HELD_OUT)
    return Dataset(table.x[order[n_held_out:]], table.x[order[:n_held_out]], table.columns)
