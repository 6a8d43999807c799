"""Figures of the paper's experiments, readable when printed small."""

import math
from pathlib import Path
from typing import Any

import torch
from matplotlib import pyplot as plt
from matplotlib.lines import Line2D

from pscd.data.toys import GaussianMixture1d
from pscd.images import grids
from pscd.plots import save
from studies.engine import Row

CYCLE = ["#1b6ca8", "#d1603d", "#3a7d44", "#7b4ea3", "#b8860b", "#444444", "#c2185b", "#00838f"]


def gaussians(p: GaussianMixture1d, fits: dict[str, tuple[float, float, float, float]], path: Path) -> Path:
    """The data density and, for each fit, the exact Gaussian (line) and the trained one (dots)."""
    figure, axis = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    x = torch.linspace(-6, 8, 700, dtype=torch.float64)
    axis.fill_between(x.numpy(), p.log_prob(x[:, None]).exp().numpy(), color="0.85", label="data")
    for colour, (name, (mean, sd, trained_mean, trained_sd)) in zip(CYCLE, fits.items(), strict=False):
        axis.plot(x.numpy(), _normal(x, mean, sd), color=colour, label=name, linewidth=1.2)
        axis.plot(x[::25].numpy(), _normal(x[::25], trained_mean, trained_sd), ".", color=colour, markersize=3)
    axis.set(xlabel="x", ylabel="density", ylim=(0, 0.62), title="lines: exact optimum; dots: trained from samples")
    axis.title.set_fontsize(9)
    axis.legend(loc="best", frameon=False, fontsize=8)
    return save(figure, path)


def landscapes(panels: dict[str, dict[str, Any]], means: torch.Tensor, sds: torch.Tensor, path: Path) -> Path:
    """Contours of log10(D - min D) over mean and deviation, with the optimum marked."""
    figure, axes = plt.subplots(2, 3, figsize=(8.4, 5.2), layout="constrained", sharex=True, sharey=True)
    for axis, (name, result) in zip(axes.flat, panels.items(), strict=True):
        # What is infinite (none) lies above every level.
        values = [[1e9 if v is None else v for v in row] for row in result["surface"]]
        surface = torch.tensor(values)
        surface = (surface - surface.min()).clamp(min=1e-4).log10()
        levels = torch.linspace(-3, 1, 17).tolist()
        image = axis.contourf(means.numpy(), sds.numpy(), surface.T.numpy(), levels, cmap="viridis_r", extend="both")
        axis.plot(result["exact_mean"], result["exact_sd"], "*", color="white", markeredgecolor="black", markersize=11)
        axis.set_title(name, fontsize=9)
    for axis in axes[1]:
        axis.set_xlabel("mean")
    for axis in axes[:, 0]:
        axis.set_ylabel("standard deviation")
    bar = figure.colorbar(image, ax=list(axes.flat), shrink=0.8, ticks=[-3, -2, -1, 0, 1])
    bar.set_label("log10 of (divergence - lowest)")
    return save(figure, path)


def contamination(rows: list[Row], path: Path) -> Path:
    """KL against the contamination ratio: exact lines, measured dots, published crosses."""
    figure, axis = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
    for colour, column in zip(CYCLE, dict.fromkeys(row.column for row in rows), strict=False):
        mine = [row for row in rows if row.column == column]
        ratios = [float(row.row.removeprefix("ratio ")) for row in mine]
        axis.plot(ratios, [row.exact or math.nan for row in mine], color=colour, label=column, linewidth=1.2)
        axis.plot(ratios, [row.measured or math.nan for row in mine], "o", color=colour, markersize=4)
        axis.plot(ratios, [row.published or math.nan for row in mine], "x", color=colour, markersize=6)
    axis.set(xlabel="contamination ratio", ylabel="KL(p || q)", yscale="log", xscale="log", ylim=(1e-8, 2))
    axis.set_xticks(ratios, [f"{r:g}" for r in ratios])
    axis.minorticks_off()
    axis.set_title("lines: exact optimum; dots: trained; crosses: published", fontsize=9)
    axis.legend(loc="best", frameon=False, fontsize=8)
    return save(figure, path)


def _normal(x: torch.Tensor, mean: float, sd: float) -> Any:
    return (torch.exp(-((x - mean) ** 2) / (2 * sd**2)) / (sd * math.sqrt(2 * math.pi))).numpy()


Series = dict[str, list[tuple[float, float]]]


def rates(panels: list[tuple[str, str, Series, Series]], path: Path) -> Path:
    """Measured errors (dots and lines) below their bounds (dashes), on logarithmic axes."""
    figure, axes = plt.subplots(1, len(panels), figsize=(3.5 * len(panels), 3.3), layout="constrained")
    for axis, (x_label, y_label, measured, bounds) in zip(axes, panels, strict=True):
        for colour, (name, points) in zip(CYCLE, measured.items(), strict=False):
            axis.plot(*zip(*points, strict=True), "o-", color=colour, markersize=3, linewidth=1.2, label=name)
            axis.plot(*zip(*bounds[name], strict=True), "--", color=colour, linewidth=1)
        axis.set(xlabel=x_label, ylabel=y_label, xscale="log", yscale="log")
        axis.legend(loc="best", frameon=False, fontsize=7)
    figure.suptitle("measured: lines; bounds of the theorems: dashes", fontsize=9)
    return save(figure, path)


def histograms(
    rows: dict[str, dict[str, list[list[int]]]], windows: dict[str, tuple[float, float]], path: Path
) -> Path:
    """One row of histograms for the data and for each model, one column for each set."""
    names = list(next(iter(rows.values())))
    figure, axes = plt.subplots(
        len(rows), len(names), figsize=(1.6 * len(names), 1.7 * len(rows)), layout="constrained", squeeze=False
    )
    for line, (title, counts) in zip(axes, rows.items(), strict=True):
        for axis, name in zip(line, names, strict=True):
            low, high = windows[name]
            brightest = max(map(max, rows["data"][name]))
            # One scale per set, that of the data, so that rows can be compared.
            image = torch.tensor(counts[name]).T.numpy()
            axis.imshow(image, origin="lower", extent=(low, high, low, high), cmap="viridis", vmax=brightest)
            axis.set(xticks=[], yticks=[])
        line[0].set_ylabel(title, fontsize=9)
    for axis, name in zip(axes[0], names, strict=True):
        axis.set_title(name.replace("_", " "), fontsize=9)
    return save(figure, path)


def bars(
    rows: list[Row], path: Path, *, quantity: str = "MMD x 1e4", floor: float | None = 0.02, missing: str = ""
) -> Path:
    """One group of bars for each row's name, one colour for each column."""
    names, columns = list(dict.fromkeys(r.row for r in rows)), list(dict.fromkeys(r.column for r in rows))
    figure, axis = plt.subplots(figsize=(6.6, max(0.34, 0.11 * len(columns)) * len(names) + 1), layout="constrained")
    height = 0.8 / len(columns)
    for i, (colour, column) in enumerate(zip(CYCLE, columns, strict=False)):
        value = {r.row: max(r.measured, floor or 0.0) for r in rows if r.column == column and r.measured is not None}
        place = {name: names.index(name) + (i - (len(columns) - 1) / 2) * height for name in names}
        axis.barh([place[name] for name in value], list(value.values()), height, color=colour, label=column)
        for name in names:
            if name not in value:
                axis.text(floor or 0.0, place[name], f" {missing}", color=colour, fontsize=6, va="center")
    if floor is not None:
        axis.set(xscale="log", xlim=(floor / 2, None))
        quantity = f"{quantity} (below {floor:g}: at {floor:g})"
    axis.set(yticks=range(len(names)), yticklabels=names, xlabel=quantity)
    axis.tick_params(axis="y", labelsize=8)
    axis.invert_yaxis()
    figure.legend(loc="outside upper center", ncols=min(len(columns), 3), frameon=False, fontsize=8)
    return save(figure, path)


def image_grids(images_by_name: dict[str, torch.Tensor], path: Path) -> Path:
    """Grids of images `(n, channels, height, width)`, each under its name."""
    figure, axes = plt.subplots(
        1, len(images_by_name), figsize=(2.3 * len(images_by_name), 2.6), layout="constrained", squeeze=False
    )
    for axis, (name, images) in zip(axes[0], images_by_name.items(), strict=True):
        side = math.isqrt(len(images))
        axis.imshow(grids.grid(images[: side**2], side, enlarge=False))
        axis.set_title(name, fontsize=8)
        axis.set_axis_off()
    return save(figure, path)


def over_gamma(panels: dict[str, Series], path: Path) -> Path:
    """A panel for each quantity: its values over gamma, a dot for each seed and a line through the means."""
    n_columns = 3
    n_rows = -(-len(panels) // n_columns)
    figure, axes = plt.subplots(n_rows, n_columns, figsize=(7.5, 2.3 * n_rows), layout="constrained", squeeze=False)
    for axis, (name, lines) in zip(axes.flat, panels.items(), strict=False):
        for colour, (unit, points) in zip(CYCLE, lines.items(), strict=False):
            groups: dict[float, list[float]] = {}
            for gamma, value in sorted(points):
                groups.setdefault(gamma, []).append(value)
            means = [sum(group) / len(group) for group in groups.values()]
            axis.plot(list(groups), means, color=colour, linewidth=1, label=unit)
            axis.plot(*zip(*points, strict=True), ".", color=colour)
        axis.set(xlabel="gamma", title=name)
        axis.title.set_fontsize(9)
    if len(next(iter(panels.values()))) > 1:
        axes[0, 0].legend(loc="best", frameon=False, fontsize=8)
    for axis in list(axes.flat)[len(panels) :]:
        axis.set_visible(False)
    return save(figure, path)


def robustness(found: dict[str, list[tuple[float, dict[str, Any]]]], before: float, path: Path) -> Path:
    """FID, share of the weight on noise, and ESS over gamma, for both units; CD stands at the left edge."""
    panels = {"fid": "FID after contaminated training", "weight_of_noise": "share of the weight on noise", "ess": "ESS"}
    figure, axes = plt.subplots(1, 3, figsize=(9.5, 2.9), layout="constrained")
    for axis, (name, title) in zip(axes, panels.items(), strict=True):
        for colour, (unit, points) in zip(CYCLE, found.items(), strict=False):
            kept = sorted((gamma, result[name]) for gamma, result in points)
            axis.plot(*zip(*kept, strict=True), ".-", color=colour, label=f"per {unit}".removesuffix("s"))
        axis.set_xscale("symlog", linthresh=0.003)
        axis.set(xlabel="gamma", title=title)
        axis.title.set_fontsize(9)
    axes[0].axhline(before, color="0.6", linewidth=0.8, linestyle=":")
    axes[0].annotate("before", (0.02, before), xycoords=("axes fraction", "data"), fontsize=7, va="bottom")
    axes[0].set_yscale("log")
    axes[0].legend(loc="best", frameon=False, fontsize=8)
    return save(figure, path)


def against_ratio(panels: dict[str, Series], limits: dict[str, float], path: Path, *, quantity: str) -> Path:
    """A panel for each set and kind of junk: a quantity against the share of junk, one line for each method."""
    n_columns = min(6, len(panels))
    n_rows = -(-len(panels) // n_columns)
    figure, axes = plt.subplots(
        n_rows,
        n_columns,
        figsize=(1.9 * n_columns + 1, 1.9 * n_rows + 0.6),
        layout="constrained",
        squeeze=False,
        sharey=True,
    )
    names = list(dict.fromkeys(name for lines in panels.values() for name in lines))
    colours = dict(zip(names, CYCLE, strict=False))
    for axis, (title, lines) in zip(axes.flat, panels.items(), strict=False):
        for name, points in lines.items():
            axis.plot(*zip(*points, strict=True), "o-", color=colours[name], markersize=3, linewidth=1.1)
        axis.axhline(limits[title], color="0.4", linewidth=0.8, linestyle=":")
        axis.set_yscale("log")
        axis.set_title(title, fontsize=8)
        axis.tick_params(which="both", labelsize=7)
    for axis in list(axes.flat)[len(panels) :]:
        axis.set_visible(False)
    handles = [Line2D([], [], color=colours[name], marker="o", markersize=3, label=name) for name in names]
    handles.append(Line2D([], [], color="0.4", linestyle=":", linewidth=0.8, label="aimed at"))
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), frameon=False, fontsize=8)
    figure.supxlabel("share of junk", fontsize=9)
    figure.supylabel(quantity, fontsize=9)
    return save(figure, path)


def paths(
    panels: dict[str, dict[str, dict[str, Any]]],
    x: list[float],
    truth: dict[str, list[float]],
    path: Path,
    *,
    ratio: float,
    time: float,
) -> Path:
    """Weight of the junk over time from each start, one line for each gamma; below, the densities at one time."""
    figure, axes = plt.subplots(2, len(panels), figsize=(9.5, 4.8), layout="constrained", sharey="row", squeeze=False)
    for (above, below), (start, lines) in zip(axes.T, panels.items(), strict=True):
        below.fill_between(x, truth["all rows"], color="0.88", label="all rows")
        for colour, style, (name, result) in zip(CYCLE, ("-", "--", "-."), lines.items(), strict=False):
            above.plot(result["times"], result["weights"], style, color=colour, linewidth=1.4, label=name)
            below.plot(x, result["density"], style, color=colour, linewidth=1.1, label=name)
        above.axhline(ratio, color="0.4", linewidth=0.8, linestyle=":")
        above.set(xscale="log", xlabel="time", title=f"start: {start}")
        above.title.set_fontsize(10)
        below.set(xlim=(-4, 7), xlabel="x")
    axes[0, 0].set_ylabel("weight of the junk")
    axes[0, 0].annotate("share in the data", (0.03, ratio), xycoords=("axes fraction", "data"), fontsize=7, va="bottom")
    axes[1, 0].set_ylabel(f"density at time {time:g}")
    axes[1, 0].set_ylim(bottom=0)  # of the whole row, after everything is drawn
    axes[0, -1].legend(loc="best", frameon=False, fontsize=8)
    axes[1, -1].legend(loc="best", frameon=False, fontsize=8)
    return save(figure, path)


def ahead(gaps: dict[str, dict[str, list[float]]], path: Path) -> Path:
    """By how many nats one method is ahead of others: a dot for each table, a panel for each kind of junk."""
    figure, axes = plt.subplots(
        1, len(gaps), figsize=(2.1 * len(gaps) + 1.4, 3.0), layout="constrained", sharey=True, squeeze=False
    )
    names = list(dict.fromkeys(name for panel in gaps.values() for name in panel))
    for axis, (title, panel) in zip(axes[0], gaps.items(), strict=True):
        for i, (colour, name) in enumerate(zip(CYCLE, names, strict=False)):
            values = sorted(panel.get(name, []))
            # Spread sideways by rank, so that dots do not hide each other.
            places = [i - 0.25 + 0.5 * k / max(1, len(values) - 1) for k in range(len(values))]
            axis.plot(places, values, "o", color=colour, markersize=3)
        axis.axhline(0, color="0.4", linewidth=0.8)
        axis.set_yscale("symlog", linthresh=1)
        axis.set_xticks(range(len(names)), names, rotation=45, ha="right", fontsize=7)
        axis.set_title(title, fontsize=9)
    axes[0, 0].set_ylabel("nats that auto is ahead of it", fontsize=9)
    return save(figure, path)
