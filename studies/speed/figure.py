"""One picture: ratios of updates, MMD over seconds of training, growth."""

from pathlib import Path
from typing import Any

from studies.speed.quality import THRESHOLD
from studies.speed.report import best
from studies.speed.rivals import PEERS
from studies.speed.updates import OURS


def draw(results: dict[str, dict[str, Any]], path: Path) -> Path:
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
    return path


def _ratios(axes: Any, runs: dict[str, Any]) -> None:
    rivals = list(dict.fromkeys(name for run in runs.values() for name in run["times_ours"]))
    for i, rival in enumerate(rivals):
        there = [(row, run["times_ours"][rival]) for row, run in enumerate(runs.values()) if rival in run["times_ours"]]
        at = [row + 0.8 * (i - (len(rivals) - 1) / 2) / len(rivals) for row, _ in there]
        middle = [value["median"] for _, value in there]
        spread = [[v["median"] - v["low"] for _, v in there], [v["high"] - v["median"] for _, v in there]]
        axes.barh(at, middle, 0.75 / len(rivals), xerr=spread, label=rival)
    if rivals:
        axes.axvline(1, color="black", linewidth=0.8)
        axes.set_yticks(range(len(runs)), list(runs))
        axes.invert_yaxis()
        axes.set(xlabel=f"time of an update, times that of {OURS}")
        axes.legend(loc="best", fontsize=7)


def _quality(axes: Any, runs: dict[str, Any]) -> None:
    for data, style in zip(dict.fromkeys(run["data"] for run in runs.values()), ("-", "--", ":"), strict=False):
        for i, who in enumerate((OURS, *PEERS)):
            run = best(runs, who, data)
            if run is not None and run["looks"]:
                seconds, values = zip(*run["looks"], strict=True)
                floor = [max(value, 1e-5) for value in values]  # the U-statistic may be negative
                axes.loglog(seconds, floor, style, marker=".", color=f"C{i}", label=f"{who}, {data}")
    if runs:
        axes.axhline(THRESHOLD, color="black", linewidth=0.8)
        axes.set(xlabel="seconds of training", ylabel="MMD$^2$")
        axes.legend(loc="best", fontsize=7)


def _growth(axes: Any, runs: dict[str, Any]) -> None:
    for name, run in runs.items():
        if name != "mmd":
            sizes = [size / run["sizes"][0] for size in run["sizes"]]
            times = [t / run["milliseconds"][0] for t in run["milliseconds"]]
            axes.loglog(sizes, times, marker=".", label=f"{name}, exponent {run['time_slope']:.2f}")
    if axes.has_data():
        axes.set(xlabel="size, times the smallest", ylabel="time of an update, times the smallest")
        axes.legend(loc="best", fontsize=7)
