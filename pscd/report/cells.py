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
    import pandas as pd

    from pscd.detector.estimator import EnergyDetector

Floats = NDArray[np.float64]

CANDIDATES, FEWEST = 48, 12  # values that are tried for a cell, quantiles of the model's samples
MOST_ROWS = 1_000_000  # whose energies are computed; wide tables try fewer values
SLOW = 300_000  # rows from which on a progress line is worth its place


class Blame(NamedTuple):
    """Cells of rows, `(n, d)`.

    Args:
        nats: what a cell costs, given the others of its row.
        found: what stands there.
        expected: what the other columns of the row suggest.
        said: the mistake that explains a cell, or None.
    """

    nats: Floats
    found: NDArray[np.object_]
    expected: NDArray[np.object_]
    said: NDArray[np.object_]


def blame_by_detector(detector: "EnergyDetector", frame: "pd.DataFrame", names: Sequence[str]) -> Blame:
    """Blame as `explain` has it: what each cell costs given the trusted others of its row.

    Args:
        detector: fitted.
        frame: rows, as the detector takes them.
        names: the columns to look at.

    Returns:
        Costs, cells, expected values and common mistakes.
    """
    columns = list(names)
    nats = detector.explain(frame)[columns].to_numpy(np.float64)
    expected = detector.expected(frame)[columns].to_numpy(object).copy()
    said = np.full(nats.shape, None, dtype=object)
    at = {name: j for j, name in enumerate(columns)}
    for cell in detector.suspects(frame).to_dict("records"):
        if isinstance(cell["mistake"], str) and cell["column"] in at:
            place = cell["row"], at[cell["column"]]
            said[place], expected[place] = cell["mistake"], cell["suggested"]  # what undoes it, not the mean
    return Blame(nats, frame[columns].to_numpy(object), expected, said)


def blame_by_model(model: Model, x: Floats, samples: Floats) -> Blame:
    """Blame against the likeliest value of each column given the others, among values that samples of the model have.

    Args:
        model: of a table.
        x: rows `(n, d)`.
        samples: draws of the model, `(m, d)`.

    Returns:
        Nats that a row would lose with the expected value, not below 0, and the expected values.
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
    nothing: NDArray[Any] = np.full(x.shape, None, dtype=object)
    return Blame(nats.numpy(), x.astype(object), expected.numpy().astype(object), nothing)
