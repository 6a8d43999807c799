"""Rows with gaps: how far they lie from the rows that were learnt from, beside their energy.

The energy of a row lives on how its cells go together. Where cells are missing fewer pairs of them are there, and it
tells strange rows from others less well than distances to other rows do. So the less there is of a row, the more these
count. A row without gaps has its energy, to the last digit.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from pscd.detector.cells import CellModel
from pscd.rng import Stream, generator

N_ROWS = 250  # that distances are measured to
NEAREST = 0.2  # share of them, the nearest ones, that count: more than a small group of strange rows
N_PAIRS = 4  # pairs of draws of the missing cells, mirror images of each other
REACH = 6.0  # deviations to which cells are drawn in: one cell far out is seen by the energy
N_YARDSTICK = 5_000  # rows that distances and energies are measured by, at most
UPPER = 0.9  # quantile that is one unit above the median


@dataclass(frozen=True)
class Neighbours:
    """Some of the rows that were learnt from, and what distances and energies are usual among all of them.

    Args:
        rows: numbers in robust coordinates, `(m, k)`, missing cells drawn.
        yardstick: median of the energies and how far their quantile `UPPER` lies above it, the same of the distances,
            `(4,)`.
    """

    rows: Tensor
    yardstick: Tensor

    @classmethod
    def of(cls, cells: CellModel, z: Tensor, whole: Tensor, energy: Tensor, *, seed: int) -> "Neighbours":
        """Choose the rows and measure by them.

        Args:
            cells: the mixture that draws missing cells.
            z: rows as the mixture sees them, `(n, V)`.
            whole: the same with missing cells drawn, `(n, V)`.
            energy: of the numbers of the rows, `(n,)`.
            seed: the same number chooses the same rows.

        Returns:
            The neighbours.
        """
        order = torch.randperm(len(z), generator=generator(seed, Stream.NEIGHBOURS))
        rows = whole[order[:N_ROWS]][:, cells.numbers].clamp(-REACH, REACH)
        some = order[:N_YARDSTICK]
        found = []
        for values in (energy[some], cls(rows, rows.new_empty(0)).distance(cells, z[some])):
            middle, upper = values.median(), values.quantile(UPPER)
            found += [middle, (upper - middle).clamp(min=1e-9)]
        return cls(rows, torch.stack(found))

    def distance(self, cells: CellModel, z: Tensor) -> Tensor:
        """Mean distance to the nearest rows, `(n,)`, in the mean over draws of the missing cells.

        Args:
            cells: the mixture that draws them.
            z: rows as the mixture sees them, `(n, V)`.

        Returns:
            Distances in robust deviations.
        """
        gap = z[:, cells.numbers].isnan().any(1)
        result = self.rows.new_empty(len(z))
        result[~gap] = self._nearest(z[~gap][:, cells.numbers])
        if gap.any():
            # The same noise for every row: what a row's distance is must not depend on the rows beside it.
            draw = generator(0, Stream.NEIGHBOURS)
            total = self.rows.new_zeros(int(gap.sum()))
            for _ in range(N_PAIRS):
                noise = torch.randn(self.rows.shape[1], generator=draw, dtype=z.dtype)
                level = float(torch.rand(1, generator=draw, dtype=z.dtype))
                for drawn in (
                    cells.mixture.drawn(z[gap], level, noise),
                    cells.mixture.drawn(z[gap], 1 - level, -noise),
                ):
                    total += self._nearest(drawn)
            result[gap] = total / (2 * N_PAIRS)
        return result

    def _nearest(self, z: Tensor) -> Tensor:
        k = max(1, round(NEAREST * len(self.rows)))
        return torch.cdist(z.clamp(-REACH, REACH), self.rows).topk(k, 1, largest=False, sorted=False).values.mean(1)

    def blended(self, energy: Tensor, cells: CellModel, z: Tensor) -> Tensor:
        """The energies of rows, those of rows with gaps blended with distances.

        Both are measured from the median in units of the upper tenth, and their tails compressed by an asinh. The
        energy has the weight (1 - r)^2 for a share r of missing numbers: so many pairs of cells are there.

        Args:
            energy: of the numbers, `(n,)`.
            cells: the mixture that draws missing cells.
            z: rows as the mixture sees them, `(n, V)`.

        Returns:
            Energies in nats, `(n,)`.
        """
        missing = z[:, cells.numbers].isnan().double().mean(1)
        gap = missing > 0
        if not gap.any():
            return energy
        middle, width, usual, far = self.yardstick
        weight = (1 - missing[gap]).square()
        by_energy = ((energy[gap] - middle) / width).asinh()
        by_distance = ((self.distance(cells, z[gap]) - usual) / far).asinh()
        result = energy.clone()
        result[gap] = middle + width * (weight * by_energy + (1 - weight) * by_distance).sinh()
        return result
