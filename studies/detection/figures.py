"""The two figures of the page; matplotlib is imported only when one is drawn."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from studies.detection.detectors import AUTO, DETECTORS, NEIGHBOURS, NOT_ROBUST

COLOURS = {AUTO: "#d1603d", NEIGHBOURS: "#3a7d44", NOT_ROBUST: "#1b6ca8"}
RIVAL = "#7a7a7a"


def detectors(rows: Sequence[dict[str, Any]], sets: Sequence[dict[str, Any]], path: Path) -> Path:
    """AUROC of every detector on every set as dots, their mean as a bar, and the mean rank beside it."""
    from matplotlib import pyplot as plt

    from pscd.plots import save

    height = 1.3 + 0.36 * len(rows)
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(9.2, height), width_ratios=(3, 1.15), sharey=True, layout="constrained"
    )
    # Dots that would lie on each other are moved apart, always in the same way.
    jitter = np.random.default_rng(0).uniform(-0.17, 0.17, len(sets))
    for y, row in enumerate(rows):
        name = row["detector"]
        colour = COLOURS.get(name, RIVAL)
        values = [table["auroc"][name] for table in sets]
        left.scatter(values, y + jitter, s=15, color=colour, alpha=0.55 if name in COLOURS else 0.45, linewidths=0)
        left.plot([row["mean_auroc"]] * 2, [y - 0.31, y + 0.31], color=colour, linewidth=3, solid_capstyle="butt")
        right.plot([1, row["mean_rank"]], [y, y], color=colour, linewidth=1.2, alpha=0.5)
        right.plot(row["mean_rank"], y, "o", color=colour, markersize=6)
        right.annotate(
            f"{row['mean_rank']:.1f}",
            (row["mean_rank"], y),
            (7, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
        )
    left.axvline(0.5, color="0.75", linewidth=0.8, linestyle="--", zorder=0)
    left.set_yticks(range(len(rows)), [f"{row['detector']}   {row['mean_auroc']:.3f}" for row in rows])
    for label, row in zip(left.get_yticklabels(), rows, strict=True):
        label.set_color(COLOURS.get(row["detector"], "black"))
        label.set_fontweight("bold" if DETECTORS[row["detector"]].own else "normal")
    left.set_ylim(len(rows) - 0.4, -0.6)
    lowest = min(min(table["auroc"].values()) for table in sets)
    left.set_xlim(min(0.4, lowest - 0.02), 1.01)
    left.set_xlabel("AUROC: a dot for each set, a bar for the mean")
    right.set_xlim(0.8, max(row["mean_rank"] for row in rows) + 1.5)
    right.xaxis.get_major_locator().set_params(integer=True)
    right.set_xlabel("mean rank (1 is best)")
    for axis in (left, right):
        axis.tick_params(axis="y", length=0)
        axis.spines[["top", "right", "left"]].set_visible(False)
    return save(figure, path)


def contamination(curves: dict[str, Any], path: Path) -> Path:
    """Mean AUROC against the contamination added, a line for each detector, with the deviation over seeds."""
    from matplotlib import pyplot as plt

    from pscd.plots import save

    figure, axis = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
    levels = 100 * np.array(curves["levels"])
    for curve in curves["curves"]:
        name = curve["detector"]
        colour = COLOURS.get(name, RIVAL)
        mean = np.array(curve["mean_auroc"])
        sd = np.array([value or 0.0 for value in curve["sd_over_seeds"]])
        axis.fill_between(levels, mean - sd, mean + sd, color=colour, alpha=0.15, linewidth=0)
        axis.plot(levels, mean, "o-", color=colour, linewidth=1.6, markersize=4.5, label=name)
    axis.set_xticks(levels, [f"{level:g} %" for level in levels])
    axis.set(xlabel="share of the fitted rows that was added as contamination", ylabel="mean AUROC")
    n = len(curves["sets"])
    axis.set_title(f"mean over {n} set{'s' if n > 1 else ''}; band: deviation over seeds", fontsize=9)
    axis.grid(axis="y", color="0.92")
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(loc="best", frameon=False, fontsize=9)
    return save(figure, path)
