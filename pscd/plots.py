"""Pictures of runs. Only this module and `studies.paper.figures` import matplotlib."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

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

GRID = 200
SHOWN = 10_000
COLOURS = {"data": "#1b6ca8", "samples": "#d1603d", "strange": "#d1603d", "energy": "viridis"}


def plot_run(model: Model, data: Tensor, samples: Tensor, path: Path) -> Path:
    """Data, samples and energy side by side: on a line, in a plane, or a histogram for each column.

    Args:
        model: whose energy is drawn.
        data: rows `(n, *shape)`.
        samples: of the model, `(m, *shape)`.
        path: where to write the picture.

    Returns:
        The path.
    """
    dim = data[0].numel()
    data, samples = data[:SHOWN].flatten(1), samples[:SHOWN].flatten(1)
    if dim == 1:
        figure = _plot_line(model, data, samples)
    elif dim == 2:
        figure = _plot_plane(model, data, samples)
    else:
        figure = _plot_columns(model, data, samples)
    return save(figure, path)


def save(figure: Figure, path: Path) -> Path:
    """Write a figure and let go of it."""
    try:
        with replacing(path) as temporary:
            figure.savefig(temporary, dpi=120, bbox_inches="tight", format=path.suffix[1:])
    finally:
        plt.close(figure)
    return path


def _plot_line(model: Model, data: Tensor, samples: Tensor) -> Figure:
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
    low, high = _window(data)[0]
    bins = torch.linspace(low, high, 80, dtype=torch.float64).tolist()
    left.hist(data[:, 0].tolist(), bins, density=True, alpha=0.5, color=COLOURS["data"], label="data")
    left.hist(samples[:, 0].tolist(), bins, density=True, histtype="step", color=COLOURS["samples"], label="samples")
    left.set(xlabel=_names(model, 1)[0], ylabel="density")
    left.legend(loc="best", frameon=False)
    x = torch.linspace(low, high, 400, dtype=torch.float64)
    right.plot(x.numpy(), model.energies(x[:, None]).numpy(), color=COLOURS["data"])
    right.set(xlabel=_names(model, 1)[0], ylabel="energy")
    return figure


def _plot_plane(model: Model, data: Tensor, samples: Tensor) -> Figure:
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
    (x_low, x_high), (y_low, y_high) = _window(data)
    for axis, title, points in zip(axes, ("data", "samples"), (data, samples), strict=False):
        _histogram(axis, points, (x_low, x_high, y_low, y_high))
        axis.set_title(title)
    x, y = torch.linspace(x_low, x_high, GRID), torch.linspace(y_low, y_high, GRID)
    points = torch.cartesian_prod(x, y).view(-1, *model.shape)
    energy = model.energies(points).view(GRID, GRID)
    # Energies far out are huge and say nothing; the colours end where the data do.
    lowest = float(energy.min())
    highest = float(torch.quantile(model.energies(data.view(-1, *model.shape)), 0.999)) + 2
    image = axes[2].imshow(
        (energy.T.clamp(max=highest) - lowest).numpy(),
        origin="lower",
        extent=(x_low, x_high, y_low, y_high),
        aspect="auto",
        cmap=COLOURS["energy"] + "_r",
    )
    axes[2].set_title("energy above its minimum")
    figure.colorbar(image, ax=axes[2], shrink=0.9)
    names = _names(model, 2)
    for axis in axes:
        axis.set(xlabel=names[0], ylabel=names[1])
    return figure


def plot_scores(
    energy: np.ndarray, threshold: float, x: np.ndarray, names: Sequence[str], columns: Sequence[int], path: Path
) -> Path:
    """The energies of a table's rows, and the rows in the columns that outliers are most to blame for.

    Args:
        energy: `(n,)`.
        threshold: energy above which a row is an outlier.
        x: the rows, `(n, d)`; NaN where a cell is missing.
        names: of the columns, d of them.
        columns: numbers of the one or two columns to draw.
        path: where to write the picture.

    Returns:
        The path.
    """
    strange = energy > threshold
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    low, high = float(energy.min()), float(max(np.quantile(energy, 0.995), threshold)) * 1.05 + 0.1
    bins = list(np.linspace(low, high, 60))
    for rows, colour, label in ((~strange, "data", "the others"), (strange, "strange", f"outliers ({strange.sum()})")):
        axes[0].hist(energy[rows].clip(max=high), bins, color=COLOURS[colour], label=label)
    axes[0].axvline(threshold, color="black", linewidth=0.8, linestyle=":")
    axes[0].set(xlabel="energy (rows beyond are drawn at the right end)", ylabel="rows", yscale="log")
    axes[0].legend(loc="best", frameon=False)
    first, second = columns[0], columns[-1]
    for rows, colour, size in ((~strange, "data", 6), (strange, "strange", 16)):
        axes[1].scatter(x[rows, first], x[rows, second], size, color=COLOURS[colour], alpha=0.6, linewidths=0)
    axes[1].set(xlabel=names[first], ylabel=names[second])
    for column, scale in ((first, axes[1].set_xscale), (second, axes[1].set_yscale)):
        if _spreads_far(x[:, column]):
            scale("symlog", linthresh=float(np.nanquantile(np.abs(x[:, column]), 0.9)) or 1.0)
    return save(figure, path)


def _numeric_setting(settings: Sequence[dict[str, Any]], most_curves: int = 8) -> str | None:
    """The varied setting to draw along: numbers, with the most values, if the others make few enough curves."""
    values = {name: {s["varied"][name] for s in settings} for name in settings[0]["varied"]}
    numeric = [name for name, texts in values.items() if all(map(_is_number, texts)) and len(texts) > 1]
    if not numeric:
        return None
    along = max(numeric, key=lambda name: len(values[name]))
    curves = {tuple((n, v) for n, v in s["varied"].items() if n != along) for s in settings}
    return along if len(curves) <= most_curves else None


def _is_number(text: str) -> bool:
    try:
        return np.isfinite(float(text))
    except ValueError:
        return False


def _axis_scale(values: Sequence[float]) -> str:
    return "log" if min(values) > 0 and max(values) / min(values) >= 30 else "linear"


def _spreads_far(values: np.ndarray) -> bool:
    """Whether a few values are so far out that the others would be a dot on a linear axis."""
    low, high = np.nanquantile(values, [0.05, 0.95])
    return bool(np.nanmax(values) - np.nanmin(values) > 20 * max(high - low, 1e-300))


def _histogram(axis: Axes, points: Tensor, window: tuple[float, float, float, float]) -> None:
    x_low, x_high, y_low, y_high = window
    axis.hist2d(
        points[:, 0].numpy(),
        points[:, 1].numpy(),
        bins=120,
        range=[[x_low, x_high], [y_low, y_high]],
        cmap=COLOURS["energy"],
    )


def _plot_columns(model: Model, data: Tensor, samples: Tensor, most: int = 12) -> Figure:
    """Histograms of the first columns, and of the energies of data and samples."""
    shown = min(data.shape[1], most)
    n_columns = min(4, shown + 1)
    n_rows = -(-(shown + 1) // n_columns)
    figure, axes = plt.subplots(n_rows, n_columns, figsize=(2.7 * n_columns, 2.2 * n_rows), layout="constrained")
    panels = list(axes.flat)
    names = _names(model, data.shape[1])
    for i, axis in enumerate(panels[:shown]):
        low, high = _window(data[:, i : i + 1])[0]
        _overlay(axis, data[:, i], samples[:, i], low, high)
        axis.set_xlabel(names[i])
    e_data, e_samples = (model.energies(x.view(-1, *model.shape)) for x in (data, samples))
    both = torch.cat([e_data, e_samples])
    _overlay(panels[shown], e_data, e_samples, float(both.min()), float(torch.quantile(both, 0.995)))
    panels[shown].set_xlabel("energy")
    panels[0].legend(loc="best", frameon=False)
    for axis in panels[shown + 1 :]:
        axis.set_visible(False)
    return figure


def _overlay(axis: Axes, data: Tensor, samples: Tensor, low: float, high: float) -> None:
    bins = torch.linspace(low, high if high > low else low + 1, 50, dtype=torch.float64).tolist()
    axis.hist(data.tolist(), bins, density=True, alpha=0.5, color=COLOURS["data"], label="data")
    axis.hist(samples.tolist(), bins, density=True, histtype="step", color=COLOURS["samples"], label="samples")
    axis.set_yticks([])


def _window(x: Tensor) -> list[tuple[float, float]]:
    """Where the bulk of each column lies, with a margin; a stray outlier does not stretch the picture."""
    low, high = torch.quantile(x, 0.001, dim=0), torch.quantile(x, 0.999, dim=0)
    # A constant column gets a window in which its value can be told from the edges.
    margin = torch.where(high > low, 0.15 * (high - low), 0.5 + 1e-6 * low.abs())
    return list(zip((low - margin).tolist(), (high + margin).tolist(), strict=True))


def _names(model: Model, n: int) -> tuple[str, ...]:
    return model.columns or (("x",) if n == 1 else tuple(f"x{i}" for i in range(n)))
