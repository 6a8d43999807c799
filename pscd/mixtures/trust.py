"""Single wrong cells: which cells a fit may rely on, and how far unseen cells lie from its predictions."""

import math

import torch
from torch import Tensor

from pscd.mixtures.cells import Cells
from pscd.mixtures.table_mixture import TableMixture

GROSS = 4.5  # distance from the median, tails compressed, beyond which the fit never trusts a cell
MOST_WRONG = 0.3  # share of a column's cells that the fit may distrust
MOST_OF_LEVEL = 0.2  # share of the cells with one category beyond which it is a category and no mistake
SPREAD_LEVEL = 0.9  # level of the intervals that held-out cells calibrate
SPREAD_ROWS = 30.0  # rows with the spread of all columns that are added to those of each column
NARROWEST, WIDEST = 0.8, 2.0  # spread of a column
OUTERMOST = 0.005  # share of a column's trusted cells on either side beyond which nothing is predicted


def only(x: Tensor, trusted: Tensor) -> Tensor:
    """Rows with the other cells missing."""
    return torch.where(trusted, x, torch.nan)


def likely_cells(model: TableMixture, x: Tensor, false_alarms: float) -> Tensor:
    """Trusted cells, at least a share of 1 - `MOST_WRONG` of each column, and of each common category."""
    there = ~x.isnan()
    gross = (x.abs() > GROSS) & (model.levels == 0)
    trusted = model.trusted(x.masked_fill(gross, torch.nan), false_alarms)
    for column, size in zip(model.categorical.tolist(), model.levels[model.categorical].tolist(), strict=True):
        for code in range(size):
            # The background, or the other components, may have taken all rows of a category away from it.
            own = x[:, column] == code
            if (own & ~trusted[:, column]).sum() > MOST_OF_LEVEL * own.sum():
                trusted[own, column] = True
    distrusted = there & ~trusted
    over = (distrusted.sum(0) > MOST_WRONG * there.sum(0)).nonzero().flatten()
    if len(over):
        surprise = model.cells(x, trusted).surprise
        for j in over.tolist():
            rows = there[:, j].nonzero().flatten()
            order = (surprise[rows, j] * distrusted[rows, j]).argsort()
            trusted[rows[order[: math.ceil((1 - MOST_WRONG) * len(rows))]], j] = True
    return trusted


def calibrated(model: TableMixture, before: TableMixture, held: Tensor, x: Tensor) -> TableMixture:
    """The model with the spread of cells held out from an earlier fit, and predictions within the range of the rows."""
    spread = model.spread
    if len(held):
        spread = spread_of(before.cells(held, before.trusted(held, 1e-4)))
    z = only(x, model.trusted(x, 1e-4))[:, model.numeric]
    return TableMixture(**{**model.tensors(), "spread": spread, "bounds": bounds_of(z)})


def bounds_of(z: Tensor) -> Tensor:
    """Between which values of each column predictions lie, `(2, d)`, from rows `(n, d)`."""
    if z.shape[1] == 0:
        return z.new_empty(2, 0)
    low, high = torch.nanquantile(z, z.new_tensor([OUTERMOST, 1 - OUTERMOST]), 0)
    return torch.stack([low.nan_to_num(nan=-math.inf), high.nan_to_num(nan=math.inf)])


def spread_of(cells: Cells) -> Tensor:
    """How much wider held-out cells lie than the model says, for each numeric column, `(d,)`; wrong ones left out."""
    numeric = cells.model.numeric
    surprise, there = cells.surprise[:, numeric], (cells.trusted & ~cells.x.isnan())[:, numeric]
    # The deviations of a Gaussian whose two-sided tail is as improbable.
    away = (math.sqrt(2) * torch.special.erfinv(1 - (-surprise).exp())).masked_fill(~there, torch.nan)
    if not there.any():
        return surprise.new_ones(len(numeric))
    usual = math.sqrt(2) * torch.special.erfinv(surprise.new_tensor(SPREAD_LEVEL))
    overall = torch.nanquantile(away.flatten()[: 2**23], SPREAD_LEVEL) / usual
    own = (torch.nanquantile(away, SPREAD_LEVEL, 0) / usual).nan_to_num(nan=1.0)
    count = there.sum(0).to(own.dtype)
    return ((count * own + SPREAD_ROWS * overall) / (count + SPREAD_ROWS)).clamp(NARROWEST, WIDEST)
