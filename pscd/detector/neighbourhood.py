"""How far rows lie from their neighbours among the rows that a detector was fitted to."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from pscd.mixtures.neighbours import NEIGHBOUR_ROWS, isolation
from pscd.model import SCORE_BLOCK


@dataclass(frozen=True)
class NeighbourSettings:
    """Which rows distances are measured to."""

    share: float = 0.9  # of the rows, the least isolated: the others are neighbours of no row
    max_rows: int = 1_000  # random ones of them, that distances are measured to
    factor: float = 2.0  # times sqrt(n): the number of nearest rows of n
    least: int = 3  # of them
    nearest: float = 1e-6  # distance in whitened units below which rows are the same


SETTINGS = NeighbourSettings()


@dataclass(frozen=True)
class Neighbourhood:
    """The energy k log r of rows with k columns, r being the root mean square distance to the nearest rows."""

    # 1 / r^k is the density of points in a ball of radius r, so this is minus a log density up to a constant. It is the
    # distance to a measure of Gu, Akoglu and Rinaldo (2019), who show why many neighbours detect anomalies better than
    # a few: a small group of outliers must not be its own neighbourhood.

    rows: Tensor  # whitened rows with close neighbours, `(m, k)` in float64
    count: int  # number of nearest ones among them

    @classmethod
    def of(cls, u: Tensor) -> "Neighbourhood":
        """The least isolated of whitened rows `(n, k)` in random order; 2 sqrt(n) of n rows are neighbours."""
        u = u[:NEIGHBOUR_ROWS]
        away = isolation(u)
        rows = u[away <= away.quantile(SETTINGS.share)]
        share = SETTINGS.factor * math.sqrt(len(u)) / len(rows)
        rows = rows[: SETTINGS.max_rows]
        return cls(rows, min(len(rows), max(SETTINGS.least, round(share * len(rows)))))

    def energy(self, u: Tensor) -> Tensor:
        """The energy of whitened rows `(n, k)`, `(n,)`."""
        squares, parts = self.rows.square().sum(1), []
        for part in u.split(SCORE_BLOCK):
            apart = torch.addmm(squares, part, self.rows.T, alpha=-2) + part.square().sum(1, keepdim=True)
            parts.append(apart.topk(self.count, 1, largest=False, sorted=False).values.mean(1))
        return 0.5 * u.shape[1] * torch.cat(parts).clamp(min=SETTINGS.nearest**2).log()
