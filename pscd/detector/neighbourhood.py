"""How far rows lie from their neighbours among the rows that a detector was fitted to."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from pscd.mixtures.neighbours import NEIGHBOUR_ROWS, isolation
from pscd.model import SCORE_BLOCK

KEPT = 0.9  # share of the rows, the least isolated, that count as neighbours
MOST_ROWS = 1_000  # that distances are measured to
FARTHER = 2  # times sqrt(n): the number of nearest rows that count
FEWEST = 3  # of them, at least
NEAREST = 1e-6  # distance in whitened units below which rows are the same


@dataclass(frozen=True)
class Neighbourhood:
    """The energy k log r of rows with k columns, r being the root mean square distance to the nearest rows.

    1 / r^k is the density of points in a ball of radius r, so that this is minus a log density but for a constant. It
    is the distance to a measure of Gu, Akoglu and Rinaldo (2019), who show why many neighbours find anomalies better
    than a few: a small group of junk must not be its own neighbourhood.

    Args:
        rows: whitened rows with close neighbours, `(m, k)` in float64.
        count: number of nearest ones among them that count.
    """

    rows: Tensor
    count: int

    @classmethod
    def of(cls, u: Tensor) -> "Neighbourhood":
        """Keep some of the rows; isolated ones are no neighbours of anybody.

        Args:
            u: whitened rows, `(n, k)`, in random order; the first `NEIGHBOUR_ROWS` are looked at.

        Returns:
            The neighbourhood, with as many neighbours as make up 2 sqrt(n) of n rows.
        """
        u = u[:NEIGHBOUR_ROWS]
        away = isolation(u)
        rows = u[away <= away.quantile(KEPT)]
        share = FARTHER * math.sqrt(len(u)) / len(rows)
        rows = rows[:MOST_ROWS]
        return cls(rows, min(len(rows), max(FEWEST, round(share * len(rows)))))

    def energy(self, u: Tensor) -> Tensor:
        """The energy of whitened rows `(n, k)`, `(n,)`."""
        squares, parts = self.rows.square().sum(1), []
        for part in u.split(SCORE_BLOCK):
            apart = torch.addmm(squares, part, self.rows.T, alpha=-2) + part.square().sum(1, keepdim=True)
            parts.append(apart.topk(self.count, 1, largest=False, sorted=False).values.mean(1))
        return 0.5 * u.shape[1] * torch.cat(parts).clamp(min=NEAREST**2).log()
