"""Dequantisation: spread tied values over cells, so that every column has a density.

A column of integers, of rounded numbers or with a spike has none: a model can raise the likelihood of tied values
without limit by narrowing down on them.
"""

import torch
from torch import Tensor

from pscd.coordinates import GAUSSIAN_IQR, spaced_rows

OFTEN = 0.01  # share of the rows that must be tied for a column to count as rounded


def dequantise(x: Tensor, generator: torch.Generator) -> Tensor:
    """Add uniform noise to tied values, each within a cell around the value.

    A cell is as wide as the gap to the nearer of the two neighbouring values, but at least the value's share of the
    rows times the column's deviation. So a spike gets a finite density, no higher than that of the bulk.

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
        spaced_rows(x),
        torch.tensor([0.25, 0.75], dtype=x.dtype),
    )
    deviation = float(quartiles[1] - quartiles[0]) / GAUSSIAN_IQR
    if deviation > 0:
        return deviation
    away = (x - commonest).abs()
    return float(away[away > 0].median())
