"""Which cells of a row are to blame for its energy, and what the other columns would have suggested.

The rest of the report sees blame and expectations through this module alone.
"""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from pscd.model import Model
from pscd.progress import progress_bar

if TYPE_CHECKING:
    from pscd.detector.estimator import EnergyDetector

Floats = NDArray[np.float64]

CANDIDATES, FEWEST = 48, 12  # values that are tried for a cell, quantiles of the model's samples
MOST_ROWS = 1_000_000  # whose energies are computed; wide tables try fewer values
SLOW = 300_000  # rows from which on a progress line is worth its place


class Blame(NamedTuple):
    """Cells of rows `(n, d)`.

    Args:
        nats: energy that a row would lose with the expected value in place of its own.
        expected: what the other columns of the row suggest.
    """

    nats: Floats
    expected: Floats


@torch.no_grad()
def blame_by_detector(detector: "EnergyDetector", x: Floats) -> Blame:
    """Blame as `explain` has it: against each column's conditional mean in the detector's Gaussian.

    Args:
        detector: fitted.
        x: rows `(n, d)`.

    Returns:
        Nats and expected values.
    """
    import pandas as pd

    names = getattr(detector, "feature_names_in_", None)
    nats = detector.explain(x if names is None else pd.DataFrame(x, columns=list(names)))
    columns, gaussian = detector.columns_, detector.gaussian_
    rows = torch.from_numpy(x)
    z = columns.forward(rows, torch.float64)
    kept = columns.kept.nonzero().flatten().tolist() if columns.kept is not None else list(range(x.shape[1]))
    expected = rows.clone() if columns.constants is None else columns.constants.expand_as(rows).clone()
    for j, column in enumerate(kept):
        expected[:, column] = columns.inverse(gaussian.without_column(z, j))[:, column]
    return Blame(nats.astype(np.float64), expected.numpy())


def blame_by_model(model: Model, x: Floats, samples: Floats) -> Blame:
    """Blame against the likeliest value of each column given the others, among values that samples of the model have.

    Args:
        model: of a table.
        x: rows `(n, d)`.
        samples: draws of the model, `(m, d)`.

    Returns:
        Nats, not below 0, and expected values.
    """
    rows = torch.from_numpy(x)
    full = model.energies(rows).double()
    nats, expected = torch.zeros_like(rows), rows.clone()
    n_tried = min(CANDIDATES, max(FEWEST, MOST_ROWS // x.size))
    with progress_bar(x.shape[1], show=n_tried * x.size > SLOW, unit="column") as bar:
        for j in range(x.shape[1]):
            tried = np.unique(np.quantile(samples[:, j], np.linspace(0.005, 0.995, n_tried)))
            changed = rows.repeat(len(tried), 1)
            changed[:, j] = torch.from_numpy(tried).repeat_interleave(len(rows))
            lowest, at = model.energies(changed).double().view(len(tried), -1).min(0)
            better = lowest < full
            nats[better, j] = (full - lowest)[better]
            expected[better, j] = torch.from_numpy(tried)[at[better]]
            bar.update()
    return Blame(nats.numpy(), expected.numpy())
