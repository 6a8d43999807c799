"""Which cells of a row are to blame for its energy, and what the other columns would have suggested.

The rest of the report sees blame and expectations through this module alone.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

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
    expected: NDArray[Any]


def blame_by_detector(detector: "EnergyDetector", table: Any, columns: Sequence[int]) -> Blame:
    """Blame as `explain` has it: against what the trusted other cells of a row suggest.

    Args:
        detector: fitted.
        table: rows as the detector takes them.
        columns: numbers of the columns wanted.

    Returns:
        Nats and expected values.
    """
    wanted = list(columns)
    nats, expected = np.asarray(detector.explain(table)), np.asarray(detector.expected(table))
    return Blame(nats[:, wanted].astype(np.float64), expected[:, wanted])


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
