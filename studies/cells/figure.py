"""The figure of the page; matplotlib is imported only when it is drawn."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from studies.cells.ours import NAME
from studies.cells.tables import LABELLED, MIXED, NUMERIC
from studies.cells.work import FILL, FIND, METHODS, RANK

OURS_COLOUR = "#d1603d"
COLOURS = ("#7a7a7a", "#1b6ca8", "#4a9d6e", "#8d6bb0", "#c79a2b", "#2b9aa8", "#a0522d", "#5b7a99", "#b05a7a")
PANELS = (
    (FIND, NUMERIC, "wrong", "ap", "Wrong cells, numbers: mean AP"),
    (FIND, MIXED, "wrong", "ap", "Wrong cells, mixed: mean AP"),
    (FIND, NUMERIC, "wrong", "nrmse", "Suggested values, numbers: NRMSE"),
    (FILL, NUMERIC, "missing", "nrmse", "Missing values, numbers: NRMSE"),
    (FILL, MIXED, "missing", "right", "Missing values, mixed: categories right"),
    (RANK, LABELLED, "missing", "auroc", "Strange rows: mean AUROC"),
)


def draw(numbers: dict[str, Any], path: Path) -> Path:
    """Six panels: each measure against the share of cells that are wrong or missing at random."""
    from matplotlib import pyplot as plt

    from pscd.plots import save

    figure, axes = plt.subplots(2, 3, figsize=(12, 7), layout="constrained")
    rivals = [name for name in METHODS if name != NAME]
    handles: dict[str, Any] = {}
    for axis, (task, group, share, measure, title) in zip(axes.flat, PANELS, strict=True):
        of_panel = curves(numbers["cases"], task, group, share, measure)
        for method, points in of_panel.items():
            ours = method == NAME
            (line,) = axis.plot(
                *zip(*points, strict=True),
                "o-",
                color=OURS_COLOUR if ours else COLOURS[rivals.index(method) % len(COLOURS)],
                linewidth=2.6 if ours else 1.4,
                markersize=6 if ours else 4,
                zorder=3 if ours else 2,
                label=method,
            )
            handles.setdefault(method, line)
        shares = sorted({point[0] for points in of_panel.values() for point in points})
        axis.set_xticks(shares, [f"{value:g}" for value in shares])
        axis.set_title(title, fontsize=10)
        axis.set_xlabel(f"% of cells {share}", fontsize=9)
        axis.grid(axis="y", color="0.92")
        axis.spines[["top", "right"]].set_visible(False)
    names = [name for name in METHODS if name in handles]
    figure.legend(
        [handles[name] for name in names], names, loc="outside lower center", ncols=5, frameon=False, fontsize=9
    )
    return save(figure, path)


def curves(
    cases: Sequence[dict[str, Any]], task: str, group: str, share: str, measure: str
) -> dict[str, list[tuple[float, float]]]:
    """By method the points of a panel: cases in which nothing else is wrong, missing only at random."""
    other = "missing" if share == "wrong" else "wrong"
    found: dict[str, list[tuple[float, float]]] = {}
    for case in cases:
        if (case["task"], case["group"], case[other], case["mechanism"]) != (task, group, 0.0, "at random"):
            continue
        for line in case["methods"]:
            if measure in line:
                found.setdefault(line["method"], []).append((100 * case[share], line[measure]["mean"]))
    return {method: sorted(points) for method, points in found.items()}
