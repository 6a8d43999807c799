"""Values that occur more than once, spread over a cell of their own, so that they have a density.

A column of integers, of rounded numbers or with a spike has no density: where values are tied, a model of one can raise
its likelihood without limit by sinking into them.
"""

import torch
from torch import Tensor

from pscd.mixtures.background import GAUSSIAN_IQR

OFTEN = 0.01  # share of the rows that must be tied for a column to count as rounded


def dequantise(x: Tensor, generator: torch.Generator) -> Tensor:
    """Rows `(n, d)` whose tied values are spread evenly over cells.

    The cell of a value reaches half-way to the nearer neighbour among the column's values, and is at least as wide as
    the value's share of the rows times the column's deviation: a spike gets a density, and no more of it than the bulk.

    Args:
        x: the rows, in float64.
        generator: of the noise.

    Returns:
        Rows of the same shape; columns without ties are as they were.

    >>> x = torch.tensor([[0.0], [0.0], [1.0], [1.0]]).double()
    >>> spread = dequantise(x, torch.Generator().manual_seed(0))
    >>> torch.equal(spread.round(), x), len(spread.unique())
    (True, 4)
    """
    return torch.stack([_spread_out(column, generator) for column in x.T], 1)


def _spread_out(x: Tensor, generator: torch.Generator) -> Tensor:
    values, which, count = torch.unique(x, return_inverse=True, return_counts=True)
    tied = count > 1
    if len(values) < 2 or count[tied].sum() < OFTEN * len(x):
        return x
    gap = values.diff()
    cell = torch.minimum(torch.cat([gap[:1], gap]), torch.cat([gap, gap[-1:]]))
    width = torch.where(tied, torch.maximum(cell, count / len(x) * _deviation(x, values[count.argmax()])), 0.0)
    return x + width[which] * (torch.rand(len(x), generator=generator, dtype=x.dtype) - 0.5)


def _deviation(x: Tensor, commonest: Tensor) -> float:
    """A robust deviation; where most rows share one value, the median distance of the others from it."""
    quartiles = torch.quantile(
        x[torch.linspace(0, len(x) - 1, min(len(x), 100_000), dtype=torch.float64).long()],
        torch.tensor([0.25, 0.75], dtype=x.dtype),
    )
    deviation = float(quartiles[1] - quartiles[0]) / GAUSSIAN_IQR
    if deviation > 0:
        return deviation
    away = (x - commonest).abs()
    return float(away[away > 0].median())
