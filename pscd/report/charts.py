"""Charts of a report: values in, a Vega-Lite specification out, made by altair.

Colours are CSS variables, which the page defines for light, dark and print. Fields never carry the user's column names,
which Vega would read as paths.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pscd.files import needs

Floats = NDArray[np.float64]
Spec = dict[str, Any]
Window = tuple[float, float, float, float]  # low and high of two columns

COLOURS = {
    name: f"var(--{name})" for name in ("ink", "data", "samples", "third", "fourth", "fifth", "sixth")
}  # of the style sheet
DASHES = [[1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [4, 4], [1, 3]]  # tell curves apart in print, too


def _altair() -> Any:
    return needs("altair", "report", "a report")


def _spec(chart: Any, height: int, **datasets: Sequence[Any]) -> Spec:
    """A specification as wide as its place in the page; the page sets the look."""
    # Values are added by name at the end: altair would check each of them against its schema, which takes seconds.
    spec = chart.properties(width="container", height=height).to_dict()
    return {**{name: value for name, value in spec.items() if name not in ("$schema", "config")}, "datasets": datasets}


def _data(name: str) -> Any:
    alt = _altair()
    return alt.Chart(alt.NamedData(name))


def _colours(names: Sequence[str], colours: Sequence[str], *, legend: bool = True, **encoding: Any) -> Any:
    alt = _altair()
    scale = alt.Scale(domain=list(names), range=[COLOURS[colour] for colour in colours])
    return alt.Color("of:N", title=None, scale=scale, legend=alt.Legend(orient="top") if legend else None, **encoding)


def rounded(values: "Floats | Sequence[float]", digits: int = 4) -> list[float | None]:
    """Numbers for JSON with some significant digits; None for what is not finite.

    >>> rounded([1.23456, float("nan")])
    [1.235, None]
    """
    return [float(f"{v:.{digits}g}") if np.isfinite(v) else None for v in np.asarray(values, dtype=np.float64).tolist()]


def is_far(values: Floats, *, factor: float = 8.0) -> bool:
    """Whether all values span `factor` times what 90 % of them do, which a linear axis would squeeze into a dot."""
    low, high = np.quantile(values, [0.05, 0.95])
    return bool(np.ptp(values) > factor * max(float(high - low), 1e-300))


def bulk(values: Floats, margin: float = 0.1) -> tuple[float, float]:
    """Low and high of 99 % of the values, with a margin as a part of the range; they differ for equal values, too."""
    low, high = (float(v) for v in np.quantile(values, [0.005, 0.995]))
    if not high > low:
        wide = 0.5 + 1e-6 * abs(low)
        return low - wide, high + wide
    return low - margin * (high - low), high + margin * (high - low)


def curves(
    series: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    *,
    rolled_back: Sequence[float] = (),
    log: bool = False,
) -> Spec:
    """Curves over updates by name, with a rule that follows the pointer and marks where the run was rolled back."""
    alt = _altair()
    names = list(series)
    values = [
        {"update": step, "key": f"s{i}", "of": name, "value": value}
        for i, (name, (steps, numbers)) in enumerate(series.items())
        for step, value in zip(steps, rounded(numbers, 5), strict=True)
        if value is not None
    ]
    has_legend = len(names) > 1
    colour = _colours(names, list(COLOURS)[1 : len(names) + 1], legend=has_legend)
    dash = alt.StrokeDash(
        "of:N",
        title=None,
        scale=alt.Scale(domain=names, range=DASHES[: len(names)]),
        legend=alt.Legend(orient="top") if has_legend else None,
    )
    base = _data("rows")
    scale = alt.Scale(type="log") if log else alt.Scale(zero=False)
    x = alt.X("update:Q", title="updates", scale=alt.Scale(nice=False, zero=False), axis=alt.Axis(tickCount=5))
    y = alt.Y("value:Q", title=None, scale=scale, axis=alt.Axis(tickCount=5, format=".6~g"))
    is_line = len({v["update"] for v in values}) > 1  # a line of one point is invisible
    mark = base.mark_line(strokeWidth=1.8, aria=False) if is_line else base.mark_point(filled=True, aria=False)
    line = mark.encode(x=x, y=y, color=colour, **({"strokeDash": dash} if is_line else {}))
    near = alt.selection_point(
        name="near", nearest=True, on="pointermove", clear="pointerout", fields=["update"], empty=False
    )
    tips = [alt.Tooltip("update:Q", title="update", format=",d")]
    tips += [alt.Tooltip(f"s{i}:Q", title=name, format=".4~g") for i, name in enumerate(names)]
    opacity = alt.when(near).then(alt.value(0.5)).otherwise(alt.value(0))
    rule = base.transform_pivot("key", value="value", groupby=["update"]).mark_rule(color=COLOURS["ink"], aria=False)
    layers = [line, rule.encode(x="update:Q", opacity=opacity, tooltip=tips).add_params(near)]
    if rolled_back:
        tip = alt.Tooltip("update:Q", title="rolled back before update")
        marks = _data("marks").mark_rule(color=COLOURS["ink"], strokeDash=[3, 3], aria=False)
        layers.append(marks.encode(x="update:Q", tooltip=[tip]))
    return _spec(alt.layer(*layers), 120, rows=values, marks=[{"update": step} for step in rolled_back])


def energies(data: Floats, samples: Floats, threshold: float | None = None) -> Spec:
    """Histograms of energies, with the threshold above which rows are outliers; a few far out compress the axis."""
    alt = _altair()
    both = np.concatenate([data, samples])
    low, high = float(both.min()), float(both.max())
    edges = _edges(low, high)
    scale: dict[str, Any] = {"zero": False, "nice": False}
    if is_far(both):
        constant = float(max(abs(np.median(both)), np.ptp(np.quantile(both, [0.05, 0.95]))))
        ends = np.sign([low, high]) * np.log1p(np.abs([low, high]) / constant)
        even = _edges(*ends)
        edges = np.sign(even) * constant * np.expm1(np.abs(even))
        edges[0], edges[-1] = low, high
        scale = {"type": "symlog", "constant": constant, "nice": False, "domain": [low, high]}
    axis = alt.Axis(tickCount=8, labelOverlap="greedy", labelSeparation=6, labelBound=True)
    x = alt.X("low:Q", title="energy", scale=alt.Scale(**scale), axis=axis)
    # A square root makes bins of few rows visible.
    layers = _histograms(x, title="share of rows", scale=alt.Scale(type="sqrt", domainMin=0))
    if threshold is not None:
        at, ink = _data("threshold").encode(x="low:Q"), COLOURS["ink"]
        layers.append(at.mark_rule(color=ink, strokeDash=[4, 3], aria=False))
        text = at.mark_text(color=ink, align="left", baseline="top", dx=4, y=2, aria=False)
        layers.append(text.encode(text=alt.value("threshold")))
    return _spec(alt.layer(*layers), 230, bins=_bins(data, samples, edges), threshold=[{"low": threshold}])


def column(data: Floats, samples: Floats, *, is_date: bool = False) -> Spec:
    """Histograms of a column where most of its finite values lie; dates are years."""
    return {**_column_layout(is_date), "datasets": {"bins": _bins(data, samples, _edges(*bulk(data)))}}


@functools.cache
def _column_layout(is_date: bool) -> Spec:
    alt = _altair()
    axis = alt.Axis(tickCount=3, format=".2~f") if is_date else alt.Axis(tickCount=4)  # 2020, not 2,020
    x = alt.X("low:Q", title=None, scale=alt.Scale(zero=False, nice=False), axis=axis)
    return _spec(alt.layer(*_histograms(x, title=None, scale=alt.Scale(domainMin=0), legend=False)), 120)


def _edges(low: float, high: float, n_bins: int = 40) -> Floats:
    return np.linspace(low, high if high > low else low + 1, n_bins + 1)


def _bins(data: Floats, samples: Floats, edges: Floats) -> list[dict[str, float | None]]:
    """Shares of data and samples in each bin."""
    ends = zip(rounded(edges[:-1], 6), rounded(edges[1:], 6), strict=True)
    shares = zip(*(rounded(np.histogram(v, edges)[0] / len(v), 3) for v in (data, samples)), strict=True)
    return [
        {"low": low, "high": high, "data": a, "samples": b} for (low, high), (a, b) in zip(ends, shares, strict=True)
    ]


def _histograms(x: Any, *, title: str | None, scale: Any, legend: bool = True) -> list[Any]:
    """Bars of data and a stepped line of samples over the same bins."""
    alt = _altair()
    kinds = ("data", "samples")
    base = _data("bins").encode(x=x, color=_colours(kinds, kinds, legend=legend))
    y = [alt.Y(f"{kind}:Q", title=title, scale=scale, axis=alt.Axis(format="~%", tickCount=4)) for kind in kinds]
    tips = [alt.Tooltip("low:Q", title="from", format=".4~g"), alt.Tooltip("high:Q", title="to", format=".4~g")]
    tips += [alt.Tooltip(f"{kind}:Q", format=".2~%") for kind in kinds]
    bars = base.transform_calculate(of="'data'").mark_bar(opacity=0.55, binSpacing=0, aria=False)
    line = base.transform_calculate(of="'samples'").mark_line(interpolate="step-after", strokeWidth=1.8, aria=False)
    return [bars.encode(x2="high:Q", y=y[0], y2=alt.datum(0), tooltip=tips), line.encode(y=y[1])]


def words(shares: Sequence[tuple[str, float, float]]) -> Spec:
    """Bars of how often words occur in data and samples: word, share of the data, share of the samples."""
    values = [
        {"i": i, "word": word, "of": kind, "share": share}
        for i, (word, *both) in enumerate(shares)
        for kind, share in zip(("data", "samples"), rounded(both, 3), strict=True)
    ]
    return {**_words_layout(), "height": max(120, 22 * len(shares)), "datasets": {"words": values}}


@functools.cache
def _words_layout() -> Spec:
    alt = _altair()
    order = alt.EncodingSortField("i", op="min", order="ascending")
    kinds = ("data", "samples")
    chart = _data("words").mark_bar(opacity=0.7, aria=False)
    return _spec(
        chart.encode(
            y=alt.Y("word:N", title=None, sort=order, axis=alt.Axis(labelLimit=110)),
            yOffset=alt.YOffset("of:N"),
            x=alt.X("share:Q", title=None, axis=alt.Axis(format="~%", tickCount=4)),
            color=_colours(kinds, kinds, legend=False),
            tooltip=["word:N", alt.Tooltip("of:N", title="of"), alt.Tooltip("share:Q", format=".2~%")],
        ),
        120,
    )


def _plane(chart: Any, window: Window, names: tuple[str, str]) -> Any:
    """With the axes of a plane."""
    alt = _altair()
    x, y = (
        axis(f"{field}:Q", title=name, scale=alt.Scale(domain=list(ends), nice=False))
        for axis, field, name, ends in ((alt.X, "x", names[0], window[:2]), (alt.Y, "y", names[1], window[2:]))
    )
    return chart.encode(x=x, y=y)


def landscape(energy: Floats, window: Window, names: tuple[str, str]) -> Spec:
    """An energy `(n, n)` over a plane, the first column of the data along the first axis."""
    alt = _altair()
    n = len(energy)
    x_low, x_high, y_low, y_high = window
    wide, tall = (x_high - x_low) / n, (y_high - y_low) / n
    colour = alt.Scale(scheme="viridis")
    chart = (
        _data("cells")
        .transform_window(i="row_number()", sort=[])
        .transform_calculate(
            x=f"{x_low!r} + floor((datum.i - 1) / {n}) * {wide!r}", y=f"{y_low!r} + ((datum.i - 1) % {n}) * {tall!r}"
        )
        .transform_calculate(x2=f"datum.x + {wide!r}", y2=f"datum.y + {tall!r}")
        .mark_rect(strokeWidth=1, aria=False)
        .encode(
            x2="x2:Q",
            y2="y2:Q",
            color=alt.Color("energy:Q", title="energy", scale=colour),
            stroke=alt.Stroke("energy:Q", legend=None, scale=colour),  # hides the seams between cells
            tooltip=[alt.Tooltip("energy:Q", format=".3~g")],
        )
    )
    return _spec(_plane(chart, window, names), 240, cells=[{"energy": v} for v in rounded(energy.ravel(), 3)])


def cloud(points: Floats, window: Window, names: tuple[str, str], colour: str) -> Spec:
    """Points `(n, 2)` of a plane, in one of the `COLOURS`."""
    values = [{"x": x, "y": y} for x, y in zip(rounded(points[:, 0]), rounded(points[:, 1]), strict=True)]
    chart = _data("points").mark_circle(size=8, opacity=0.5, color=COLOURS[colour], clip=True, aria=False)
    return _spec(_plane(chart, window, names), 240, points=values)
