"""Pictures of runs and detectors with matplotlib."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np
import torch
from torch import Tensor

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pscd.files import replacing
from pscd.model import Model

COLOURS = {"data": "#1b6ca8", "samples": "#d1603d", "outliers": "#d1603d", "energy": "viridis"}
Window = tuple[float, float]


def plot_run(model: Model, data: Tensor, samples: Tensor, path: Path, *, most: int = 10_000) -> Path:
    """Write a picture of data, samples and energy: of a line, of a plane, or a histogram for each column.

    Args:
        model: whose energy is drawn.
        data: rows `(n, *shape)`.
        samples: of the model, `(m, *shape)`.
        path: of the picture.
        most: rows of data and of samples that are drawn, at most.

    Returns:
        The path.
    """
    data, samples = data[:most].flatten(1), samples[:most].flatten(1)
    draw = {1: _plot_line, 2: _plot_plane}.get(data.shape[1], _plot_columns)
    return save(draw(model, data, samples), path)


def plot_scores(
    energy: np.ndarray, threshold: float, x: np.ndarray, names: Sequence[str], columns: Sequence[int], path: Path
) -> Path:
    """Write a picture of the energies of a table's rows, and of the rows in one or two columns.

    Args:
        energy: `(n,)`.
        threshold: energy above which a row is an outlier.
        x: the rows, `(n, d)`; NaN where a cell is missing.
        names: of the columns, d of them.
        columns: indices of the one or two columns to draw.
        path: of the picture.

    Returns:
        The path.
    """
    outlier = energy > threshold
    figure, (left, right) = _panels(2)
    low, high = float(energy.min()), float(max(np.quantile(energy, 0.995), threshold)) * 1.05 + 0.1
    bins = list(np.linspace(low, high, 60))
    first, second = columns[0], columns[-1]
    for rows, colour, size, label in (
        (~outlier, COLOURS["data"], 6, "other rows"),
        (outlier, COLOURS["outliers"], 16, f"outliers ({outlier.sum()})"),
    ):
        left.hist(energy[rows].clip(max=high), bins, color=colour, label=label)
        right.scatter(x[rows, first], x[rows, second], size, color=colour, alpha=0.6, linewidths=0)
    left.axvline(threshold, color="black", linewidth=0.8, linestyle=":")
    left.set(xlabel="energy (larger ones are drawn at the right end)", ylabel="rows", yscale="log")
    left.legend(loc="best", frameon=False)
    right.set(xlabel=names[first], ylabel=names[second])
    for column, scale in ((first, right.set_xscale), (second, right.set_yscale)):
        near, far = (np.ptp(np.nanquantile(x[:, column], ends)) for ends in ([0.05, 0.95], [0, 1]))
        if far > 20 * max(near, 1e-300):  # most rows would be a dot on a linear axis
            scale("symlog", linthresh=float(np.nanquantile(np.abs(x[:, column]), 0.9)) or 1.0)
    return save(figure, path)


def save(figure: Figure, path: Path) -> Path:
    """Write a figure and close it."""
    try:
        with replacing(path) as temporary:
            figure.savefig(temporary, dpi=120, bbox_inches="tight", format=path.suffix[1:])
    finally:
        plt.close(figure)
    return path


def _panels(n: int, columns: int = 4) -> tuple[Figure, list[Axes]]:
    """A figure with n panels of equal size."""
    columns = min(columns, n)
    rows = -(-n // columns)
    width = 3.6 if n <= 3 else 2.7
    figure, axes = plt.subplots(rows, columns, figsize=(width * columns, 0.85 * width * rows), layout="constrained")
    panels = list(np.ravel(axes))
    for panel in panels[n:]:
        panel.set_visible(False)
    return figure, panels[:n]


def _plot_line(model: Model, data: Tensor, samples: Tensor) -> Figure:
    figure, (left, right) = _panels(2)
    (window,) = _windows(data)
    _histograms(left, data[:, 0], samples[:, 0], window)
    left.legend(loc="best", frameon=False)
    x = torch.linspace(*window, 400, dtype=torch.float64)
    right.plot(x.numpy(), model.energy(x[:, None]).numpy(), color=COLOURS["data"])
    right.set(ylabel="energy")
    for panel in (left, right):
        panel.set(xlabel=_names(model, 1)[0])
    return figure


def _plot_plane(model: Model, data: Tensor, samples: Tensor, *, n_cells: int = 200) -> Figure:
    figure, (*clouds, right) = _panels(3)
    x_window, y_window = _windows(data)
    for panel, title, points in zip(clouds, ("data", "samples"), (data, samples), strict=True):
        window = [x_window, y_window]
        panel.hist2d(points[:, 0].numpy(), points[:, 1].numpy(), bins=120, range=window, cmap=COLOURS["energy"])
        panel.set_title(title)
    x, y = (torch.linspace(*window, n_cells) for window in (x_window, y_window))
    energy = model.energy(torch.cartesian_prod(x, y).view(-1, *model.shape)).view(n_cells, n_cells)
    # Far from the data energies are huge; the colours end at the energies of the data.
    lowest = float(energy.min())
    highest = float(torch.quantile(model.energy(data.view(-1, *model.shape)), 0.999)) + 2
    shown = (energy.T.clamp(max=highest) - lowest).numpy()
    image = right.imshow(
        shown, origin="lower", extent=(*x_window, *y_window), aspect="auto", cmap=f"{COLOURS['energy']}_r"
    )
    right.set_title("energy above its minimum")
    figure.colorbar(image, ax=right, shrink=0.9)
    first, second = _names(model, 2)
    for panel in (*clouds, right):
        panel.set(xlabel=first, ylabel=second)
    return figure


def _plot_columns(model: Model, data: Tensor, samples: Tensor, *, most: int = 12) -> Figure:
    """Histograms of the first columns, and of the energies."""
    names = _names(model, data.shape[1])[:most]
    figure, panels = _panels(len(names) + 1)
    for i, (panel, name) in enumerate(zip(panels, names, strict=False)):
        _histograms(panel, data[:, i], samples[:, i], _windows(data[:, i : i + 1])[0])
        panel.set(xlabel=name, yticks=[])
    e_data, e_samples = (model.energy(x.view(-1, *model.shape)) for x in (data, samples))
    both = torch.cat([e_data, e_samples])
    _histograms(panels[-1], e_data, e_samples, (float(both.min()), float(torch.quantile(both, 0.995))))
    panels[-1].set(xlabel="energy", yticks=[])
    panels[0].legend(loc="best", frameon=False)
    return figure


def _histograms(panel: Axes, data: Tensor, samples: Tensor, window: Window) -> None:
    low, high = window
    bins = torch.linspace(low, high if high > low else low + 1, 60, dtype=torch.float64).tolist()
    panel.hist(data.tolist(), bins, density=True, alpha=0.5, color=COLOURS["data"], label="data")
    panel.hist(samples.tolist(), bins, density=True, histtype="step", color=COLOURS["samples"], label="samples")
    panel.set(ylabel="density")


def _windows(x: Tensor) -> list[Window]:
    """Low and high of the bulk of each column, with a margin, which a single outlier does not widen."""
    low, high = torch.quantile(x, 0.001, dim=0), torch.quantile(x, 0.999, dim=0)
    margin = torch.where(high > low, 0.15 * (high - low), 0.5 + 1e-6 * low.abs())
    return list(zip((low - margin).tolist(), (high + margin).tolist(), strict=True))


def _names(model: Model, n: int) -> tuple[str, ...]:
    return model.columns or (("x",) if n == 1 else tuple(f"x{i}" for i in range(n)))
