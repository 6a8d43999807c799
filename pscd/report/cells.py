"""What each cell of some rows costs, in nats, and what should stand there."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from pscd.model import Model
from pscd.progress import progress_bar

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]


class CellCosts(NamedTuple):
    """Cells of rows, `(n, d)` each: their content, their cost in nats, and the suggested content or None."""

    value: NDArray[np.object_]
    cost: Floats
    suggestion: NDArray[np.object_]


def costs_by_detector(costs: "pd.DataFrame", frame: "pd.DataFrame", cells: "pd.DataFrame") -> CellCosts:
    """Costs as `detector.explain` has them for the rows of a frame, with the suggestions of `detector.cells`."""
    suggestion: NDArray[Any] = np.full(costs.shape, None, dtype=object)
    columns = {name: j for j, name in enumerate(costs.columns)}
    for cell in cells[cells["row"] < len(costs)].to_dict("records"):
        suggestion[cell["row"], columns[cell["column"]]] = cell["suggestion"]
    return CellCosts(frame[list(costs.columns)].to_numpy(object), costs.to_numpy(np.float64), suggestion)


def costs_by_model(model: Model, x: Floats, samples: Floats, *, most_energies: int = 1_000_000) -> CellCosts:
    """The fall in energy if a cell of `x` `(n, d)` is set to the best of up to 48 quantiles of the model's samples."""
    # Wide tables have fewer quantiles, so that at most about `most_energies` energies are computed.
    rows = torch.from_numpy(x)
    energy = model.energy(rows).double()
    cost, best = torch.zeros_like(rows), rows.clone()
    n_quantiles = min(48, max(12, most_energies // x.size))
    levels = np.linspace(0.005, 0.995, n_quantiles)
    with progress_bar(x.shape[1], show=n_quantiles * x.size > 300_000, unit="column") as bar:
        for j in range(x.shape[1]):
            tried = np.unique(np.quantile(samples[:, j], levels))
            changed = rows.repeat(len(tried), 1)
            changed[:, j] = torch.from_numpy(tried).repeat_interleave(len(rows))
            lowest, at = model.energy(changed).double().view(len(tried), -1).min(0)
            better = lowest < energy
            cost[better, j] = (energy - lowest)[better]
            best[better, j] = torch.from_numpy(tried)[at[better]]
            bar.update()
    suggestion = best.numpy().astype(object)
    suggestion[cost.numpy() <= 0] = None
    return CellCosts(x.astype(object), cost.numpy(), suggestion)
