"""Single wrong cells: which cells a fit may rely on, and how far unseen cells lie from its predictions."""

import math

import torch
from torch import Tensor

from pscd.mixtures.cells import Cells, trusted_cells
from pscd.mixtures.table_mixture import TableMixture


def only(x: Tensor, trusted: Tensor) -> Tensor:
    """Rows with the other cells missing."""
    return torch.where(trusted, x, torch.nan)


def likely_cells(
    model: TableMixture,
    x: Tensor,
    false_alarms: float,
    *,
    gross: float = 4.5,
    max_wrong: float = 0.3,
    max_of_level: float = 0.2,
) -> Tensor:
    """Cells that a fit relies on, `(n, D)`; never one beyond `gross`, at least 1 - `max_wrong` of each column."""
    # The background, or other components, may have taken all rows of a category away from the model. So a category of
    # which more than `max_of_level` look wrong is trusted.
    there = ~x.isnan()
    is_gross = (x.abs() > gross) & (model.levels == 0)
    trusted = trusted_cells(model, x.masked_fill(is_gross, torch.nan), false_alarms)
    for column, size in zip(model.categorical.tolist(), model.levels[model.categorical].tolist(), strict=True):
        for code in range(size):
            own = x[:, column] == code
            if (own & ~trusted[:, column]).sum() > max_of_level * own.sum():
                trusted[own, column] = True
    distrusted = there & ~trusted
    over = (distrusted.sum(0) > max_wrong * there.sum(0)).nonzero().flatten()
    if len(over):
        surprise = Cells.of(model, x, trusted).surprise
        for j in over.tolist():
            rows = there[:, j].nonzero().flatten()
            order = (surprise[rows, j] * distrusted[rows, j]).argsort()
            trusted[rows[order[: math.ceil((1 - max_wrong) * len(rows))]], j] = True
    return trusted


def calibrated(model: TableMixture, before: TableMixture, held: Tensor, x: Tensor) -> TableMixture:
    """The model with the spread of cells held out from an earlier fit, and predictions within the range of the rows."""
    spread = model.spread
    if len(held):
        spread = spread_of(Cells.of(before, held, trusted_cells(before, held, 1e-4)))
    z = only(x, trusted_cells(model, x, 1e-4))[:, model.numeric]
    return TableMixture(**{**model.tensors(), "spread": spread, "bounds": bounds_of(z)})


def bounds_of(z: Tensor, outermost: float = 0.005) -> Tensor:
    """Lowest and highest prediction of each column, `(2, d)`: all values of `(n, d)` but a share on either side."""
    if z.shape[1] == 0:
        return z.new_empty(2, 0)
    low, high = torch.nanquantile(z, z.new_tensor([outermost, 1 - outermost]), 0)
    return torch.stack([low.nan_to_num(nan=-math.inf), high.nan_to_num(nan=math.inf)])


def spread_of(
    cells: Cells, *, level: float = 0.9, prior_rows: float = 30.0, limits: tuple[float, float] = (0.8, 2.0)
) -> Tensor:
    """The factor by which held-out residuals exceed the model's, `(d,)`, at one level; wrong cells are left out."""
    # Each column is shrunk towards all of them by `prior_rows`.
    numeric = cells.model.numeric
    surprise, there = cells.surprise[:, numeric], (cells.trusted & ~cells.x.isnan())[:, numeric]
    # The deviations of a Gaussian whose two-sided tail is as improbable.
    away = (math.sqrt(2) * torch.special.erfinv(1 - (-surprise).exp())).masked_fill(~there, torch.nan)
    if not there.any():
        return surprise.new_ones(len(numeric))
    usual = math.sqrt(2) * torch.special.erfinv(surprise.new_tensor(level))
    overall = torch.nanquantile(away.flatten()[: 2**23], level) / usual
    own = (torch.nanquantile(away, level, 0) / usual).nan_to_num(nan=1.0)
    count = there.sum(0).to(own.dtype)
    return ((count * own + prior_rows * overall) / (count + prior_rows)).clamp(*limits)
