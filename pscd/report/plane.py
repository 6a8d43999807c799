"""The section about a model of two columns: data, samples, and the energy over the plane."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from pscd.model import Model
from pscd.report import charts
from pscd.report.blocks import Chart, Section

Floats = NDArray[np.float64]


def energy_grid(model: Model, window: charts.Window, *, n_cells: int = 48, most: float = 12.0) -> Floats:
    """Energies above the lowest at the centres of a grid, `(n_cells, n_cells)`, clipped at `most` nats."""
    sides = []
    for low, high in (window[:2], window[2:]):
        edges = torch.linspace(low, high, n_cells + 1, dtype=torch.float64)
        sides.append((edges[1:] + edges[:-1]) / 2)
    energy = model.energy(torch.cartesian_prod(*sides)).double().view(n_cells, n_cells).numpy()
    return np.minimum(energy - energy.min(), most)


def plane_section(
    model: Model, data: Floats | None, samples: Floats, names: Sequence[str], *, n_points: int = 1_200
) -> Section:
    """Data and samples `(n, 2)`, and the energy where nearly all of them lie."""
    bulk = samples if data is None else data
    window = (*charts.bulk(bulk[:, 0], 0.15), *charts.bulk(bulk[:, 1], 0.15))
    both = names[0], names[1]
    made = []
    for title, points, colour in (("Data", data, "data"), ("Samples", samples, "samples")):
        if points is not None:
            shown = points[np.linspace(0, len(points) - 1, min(n_points, len(points))).astype(int)]
            about = f"{len(shown):,} of {len(points):,} rows." if len(shown) < len(points) else f"{len(points):,} rows."
            made.append(Chart(title, charts.cloud(shown, window, both, colour), about))
    grid = energy_grid(model, window)
    about = "Energy above its lowest value, in nats. The model expects rows where it is low (dark)."
    made.append(Chart("Energy", charts.landscape(grid, window, both), about))
    return Section("Data, samples and energy", tuple(made))
