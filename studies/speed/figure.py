"""One picture: ratios of updates, MMD over seconds of training, growth."""

from pathlib import Path
from typing import Any

from studies.speed.quality import THRESHOLD
from studies.speed.report import best
from studies.speed.rivals import PEERS
from studies.speed.updates import OURS


def draw(results: dict[str, dict[str, Any]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 3.8), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    _ratios(left, results.get("updates", {}))
    _quality(middle, results.get("quality", {}))
    _growth(right, results.get("growth", {}))
    for axes in (left, middle, right):
        if not axes.has_data():
            axes.set_axis_off()
    figure.savefig(path, dpi=120)


def _ratios(axes: Any, cells: dict[str, Any]) -> None:
    rivals = list(dict.fromkeys(name for cell in cells.values() for name in cell["times_ours"]))
    for i, rival in enumerate(rivals):
        there = [
            (row, cell["times_ours"][rival]) for row, cell in enumerate(cells.values()) if rival in cell["times_ours"]
        ]
        at = [row + 0.8 * (i - (len(rivals) - 1) / 2) / len(rivals) for row, _ in there]
        middle = [value["median"] for _, value in there]
        spread = [[v["median"] - v["low"] for _, v in there], [v["high"] - v["median"] for _, v in there]]
        axes.barh(at, middle, 0.75 / len(rivals), xerr=spread, label=rival)
    if rivals:
        axes.axvline(1, color="black", linewidth=0.8)
        axes.set_yticks(range(len(cells)), list(cells))
        axes.invert_yaxis()
        axes.set(xlabel=f"time of an update, times that of {OURS}")
        axes.legend(loc="best", fontsize=7)


def _quality(axes: Any, cells: dict[str, Any]) -> None:
    for data, style in zip(dict.fromkeys(cell["data"] for cell in cells.values()), ("-", "--", ":"), strict=False):
        for i, who in enumerate((OURS, *PEERS)):
            cell = best(cells, who, data)
            if cell is not None and cell["looks"]:
                seconds, values = zip(*cell["looks"], strict=True)
                floor = [max(value, 1e-5) for value in values]  # the U-statistic may be negative
                axes.loglog(seconds, floor, style, marker=".", color=f"C{i}", label=f"{who}, {data}")
    if cells:
        axes.axhline(THRESHOLD, color="black", linewidth=0.8)
        axes.set(xlabel="seconds of training", ylabel="MMD$^2$")
        axes.legend(loc="best", fontsize=7)


def _growth(axes: Any, cells: dict[str, Any]) -> None:
    for name, cell in cells.items():
        if name != "mmd":
            sizes = [size / cell["sizes"][0] for size in cell["sizes"]]
            times = [t / cell["milliseconds"][0] for t in cell["milliseconds"]]
            axes.loglog(sizes, times, marker=".", label=f"{name}, exponent {cell['time_slope']:.2f}")
    if axes.has_data():
        axes.set(xlabel="size, times the smallest", ylabel="time of an update, times the smallest")
        axes.legend(loc="best", fontsize=7)
