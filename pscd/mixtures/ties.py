"""Dequantisation: spread tied values over cells, so that every column has a density.

A column of integers, of rounded numbers or with a spike has none: a model can raise the likelihood of tied values
without limit by narrowing down on them.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import max_pool1d

from pscd.coordinates import GAUSSIAN_IQR, spaced_rows


@dataclass(frozen=True)
class Ties:
    """The values of each column that has ties, and the cell around each.

    A cell is as wide as the gap to the nearer of the two neighbouring values, but at least the value's share of the
    rows times the column's deviation. So a spike gets a finite density, no higher than that of the bulk. Neighbours are
    tied values, since junk between the marks of a grid would narrow its cells; where many values that occur once lie
    between, as beside a spike in a continuous column, these are neighbours too.

    Args:
        values: of each column, ascending, in float64; None for a column with hardly any ties.
        widths: of the cells, 0 for values that are not tied.
    """

    values: tuple[Tensor | None, ...]
    widths: tuple[Tensor | None, ...]

    @classmethod
    def of(cls, x: Tensor) -> "Ties":
        """Find tied values."""
        cells = [_cells(column) or (None, None) for column in x.T]
        return cls(tuple(values for values, _ in cells), tuple(widths for _, widths in cells))

    def spread(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Add uniform noise to tied values, each within its cell."""
        columns = []
        for column, values, widths in zip(x.T, self.values, self.widths, strict=True):
            if values is None or widths is None:
                columns.append(column)
            else:
                noise = torch.rand(len(column), generator=generator, dtype=x.dtype) - 0.5
                columns.append(column + widths[_nearest(values, column)] * noise)
        return torch.stack(columns, 1)


def dequantise(x: Tensor, generator: torch.Generator) -> Tensor:
    """Add uniform noise to tied values, each within a cell around the value.

    Args:
        x: the rows, `(n, d)` in float64.
        generator: of the noise.

    Returns:
        Rows of the same shape; columns with hardly any ties are unchanged.

    >>> x = torch.tensor([[0.0], [0.0], [1.0], [1.0]]).double()
    >>> spread = dequantise(x, torch.Generator().manual_seed(0))
    >>> torch.equal(spread.round(), x), len(spread.unique())
    (True, 4)
    """
    return Ties.of(x).spread(x, generator)


def _cells(x: Tensor, *, min_tied: float = 0.01, max_single: float = 0.25) -> tuple[Tensor, Tensor] | None:
    """Different values of a column and the widths of their cells; None if less than `min_tied` of them are tied."""
    # Up to `max_single` of the rows, values that occur once may be contamination between the marks of a grid.
    x = x[~x.isnan()]
    values, count = torch.unique(x, return_counts=True)
    tied = count > 1
    if len(values) < 2 or count[tied].sum() < min_tied * len(x):
        return None
    cell = _to_the_nearer(values)
    if tied.sum() > 1 and (~tied).sum() <= max_single * len(x):
        wide, loose = _to_the_nearer(values[tied]), values[~tied]
        left, right = (torch.searchsorted(loose, values[tied] + side * wide / 2) for side in (-1, 1))
        # A grid has more rows on its marks than between them: on each mark, lest a spike make one of what is beside it.
        fewest = -max_pool1d(-count[tied][None].double(), 3, stride=1, padding=1)[0]
        cell[tied] = torch.where(right - left <= fewest, wide, cell[tied])
    at_least = count / len(x) * _deviation(x, values[count.argmax()])
    return values, torch.where(tied, torch.maximum(cell, at_least), 0.0)


def _to_the_nearer(values: Tensor) -> Tensor:
    """The gap between each of several ascending values and the nearer of its neighbours."""
    gap = values.diff()
    return torch.minimum(torch.cat([gap[:1], gap]), torch.cat([gap, gap[-1:]]))


def _nearest(values: Tensor, x: Tensor) -> Tensor:
    """The number of the value nearest to each x."""
    right = torch.searchsorted(values, x.contiguous()).clamp(max=len(values) - 1)
    left = (right - 1).clamp(min=0)
    return torch.where(x - values[left] < values[right] - x, left, right)


def _deviation(x: Tensor, commonest: Tensor) -> float:
    """A robust deviation; where most rows share one value, the median distance of the others from it."""
    quartiles = torch.quantile(
        spaced_rows(x),
        torch.tensor([0.25, 0.75], dtype=x.dtype),
    )
    deviation = float(quartiles[1] - quartiles[0]) / GAUSSIAN_IQR
    if deviation > 0:
        return deviation
    away = (x - commonest).abs()
    return float(away[away > 0].median())
