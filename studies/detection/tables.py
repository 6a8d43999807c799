"""Labelled tables: reading them, drawing rows of the large ones, and adding contamination.

What is random here depends on the seed alone, so every detector meets the same rows.
"""

import re
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pscd.data import rows_of
from pscd.errors import UserError
from pscd.tables import open_table

FEWEST_ANOMALIES = 3
CLUSTER_RADIUS = 4.0
CLUSTER_SPREAD = 0.3
# Generators of the drawn rows and of the contamination, told apart by a number that is not zero:
# numpy fills up seeds with zeros, so `[seed, 0]` is the stream of `seed`.
DRAW, INJECT = 1, 2


@dataclass(frozen=True)
class Facts:
    """What is known of a table before anything is fitted, and the checksum of its file."""

    name: str
    n: int
    d: int
    anomalies: int
    checksum: str

    @property
    def share(self) -> float:
        """Share of anomalies among all rows."""
        return self.anomalies / self.n

    def to_dict(self) -> dict[str, Any]:
        """For the JSON file."""
        return asdict(self)


def read(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Rows `(n, d)` in float64 and labels `(n,)`, 1 for an anomaly, of an `.npz` file with arrays X and y."""
    try:
        with np.load(path, allow_pickle=False) as file:
            missing = [name for name in ("X", "y") if name not in file.files]
            y = None if missing else file["y"]
    except Exception as error:  # numpy raises half a dozen kinds for a damaged file
        raise UserError(f"{path}: not a readable .npz file ({error})") from None
    if y is None:
        raise UserError(f"{path}: has no array {' and no array '.join(missing)}; X holds the rows, y the labels")
    x = rows_of(open_table(path)).numpy()
    if not np.isfinite(x).all():
        raise UserError(f"{path}: X has missing, infinite or other values that are no numbers")
    if x.ndim != 2:
        raise UserError(f"{path}: X has shape {x.shape}; rows and columns are needed")
    if y.shape != (len(x),) or not np.isin(y, (0, 1)).all():
        raise UserError(f"{path}: y must hold 0 or 1 for each of the {len(x)} rows of X")
    y = y.astype(np.int64)
    if y.min() == y.max():
        raise UserError(f"{path}: y is {y[0]} everywhere; both normal rows and anomalies are needed to score")
    return x, y


def list_tables(folder: Path, only: Sequence[str] | None = None) -> list[Path]:
    """The `.npz` files of a folder, numbers in their names sorted by value; `only` those names."""
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder")
    paths = {path.stem: path for path in sorted(folder.glob("*.npz"), key=lambda path: natural(path.stem))}
    if not paths:
        raise UserError(f"{folder}: no .npz file in it")
    unknown = [name for name in only or () if name not in paths]
    if unknown:
        raise UserError(f"{folder}: no table {', '.join(unknown)}; there are {', '.join(paths)}")
    return [path for name, path in paths.items() if only is None or name in only]


def natural(name: str) -> list[tuple[int, str]]:
    """A key that sorts `2_b` before `10_a`."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name) if part]


def look(path: Path, max_rows: int, seeds: int) -> Facts:
    """The facts of one file, after making sure that rows can be drawn for every seed."""
    x, y = read(path)
    for seed in range(seeds):
        try:
            draw(y, max_rows, seed)
        except UserError as error:
            raise UserError(f"{path}: {error}") from None
    return Facts(path.stem, x.shape[0], x.shape[1], int(y.sum()), f"{zlib.crc32(path.read_bytes()):08x}")


def draw(y: np.ndarray, max_rows: int, seed: int, most_draws: int = 100_000) -> np.ndarray:
    """Indices of at most `max_rows` rows, in their order, with three anomalies among them (or all there are).

    A draw with fewer is thrown away and the seed's next stream is taken.
    """
    if len(y) <= max_rows:
        return np.arange(len(y))
    wanted = min(FEWEST_ANOMALIES, int(y.sum()))
    for stream in range(most_draws):
        rows = np.random.default_rng([seed, DRAW, stream]).choice(len(y), max_rows, replace=False)
        if wanted <= y[rows].sum() < max_rows:
            return np.sort(rows)
    raise UserError(f"no {wanted} of {y.sum()} anomalies among {max_rows} of {len(y)} rows; take a larger --max-rows")


def standardise(x: np.ndarray) -> np.ndarray:
    """Columns with mean 0 and deviation 1; constant ones are dropped."""
    # Choosing columns turns the order in memory round, for which numba would compile once more.
    x = np.ascontiguousarray(x[:, _varies(x)])
    return (x - x.mean(0)) / x.std(0)


def contamination(x: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Rows to add to `x`, so that they make up `share` of all rows together.

    Half of them are a tight cluster, N(c, 0.3^2 I) in standardised columns, where c lies on the sphere of
    radius 4 sqrt(d), four deviations in a column's root mean square; its direction is uniform and the same
    for every share. The others are uniform over the bounding box of the rows. Constant columns stay so.
    """
    n_extra = round(share * len(x) / (1 - share))
    rng = np.random.default_rng([seed, INJECT])
    varies = _varies(x)
    z, d = standardise(x), int(varies.sum())
    direction = rng.normal(size=d)
    centre = CLUSTER_RADIUS * np.sqrt(d) * direction / np.linalg.norm(direction)
    cluster = centre + CLUSTER_SPREAD * rng.normal(size=(n_extra // 2, d))
    box = rng.uniform(z.min(0), z.max(0), size=(n_extra - n_extra // 2, d))
    rows = np.repeat(x[:1], n_extra, 0)
    rows[:, varies] = x[:, varies].mean(0) + x[:, varies].std(0) * np.concatenate([cluster, box])
    return rows


def _varies(x: np.ndarray) -> np.ndarray:
    # Not by the deviation, which rounding keeps from being exactly 0.
    return x.max(0) > x.min(0)
