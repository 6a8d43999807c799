"""Charts of a report: values in, a Vega-Lite specification out, made by altair.

Colours are names of CSS variables (`var(--data)`), which the page defines for light, dark and print: the SVG that Vega
draws follows them by itself. Fields never carry the user's column names, which Vega would read as paths.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pscd.files import needs

if TYPE_CHECKING:
    import altair as alt

Floats = NDArray[np.float64]
Spec = dict[str, Any]
Window = tuple[float, float, float, float]  # low and high of two columns

INK, DATA, SAMPLES = "var(--ink)", "var(--data)", "var(--samples)"
PALETTE = [DATA, SAMPLES, "var(--third)", "var(--fourth)", "var(--fifth)", "var(--sixth)"]
DASHES = [[1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [4, 4], [1, 3]]  # so that curves differ in print, too
BINS = 40
FAR = 8  # an axis is compressed if all values span so many times what nine tenths of them do
HEIGHT, SMALL_HEIGHT = 230, 120


def _altair() -> Any:
    return needs("altair", "report", "a report")


def _spec(chart: "alt.TopLevelMixin", height: int = HEIGHT, **datasets: Sequence[Any]) -> Spec:
    """A specification as wide as its place in the page, without altair's own look, which the page sets."""
    # Values are added by name at the end: altair would check each of them against its schema, which takes seconds.
    spec = chart.properties(width="container", height=height).to_dict()
    kept = {name: value for name, value in spec.items() if name not in ("$schema", "config")}
    return {**kept, "datasets": datasets}


def short(values: "Floats | Sequence[float]", digits: int = 4) -> list[float | None]:
    """Numbers for JSON.

    Args:
        values: `(n,)`.
        digits: significant ones that are kept.

    Returns:
        The numbers; None for what is not finite.

    >>> short([1.23456, float("nan")])
    [1.235, None]
    """
    return [float(f"{v:.{digits}g}") if np.isfinite(v) else None for v in np.asarray(values, dtype=np.float64).tolist()]


def curves(
    series: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    *,
    rolled_back: Sequence[float] = (),
    log: bool = False,
) -> Spec:
    """Curves over updates, with a rule that follows the pointer and marks where the run was rolled back.

    The parameters `first` and `last` say which updates are shown; `brush` is what the reader draws over.

    Args:
        series: updates and values by the name of the curve.
        rolled_back: updates after which the run went back.
        log: whether the axis of values is logarithmic.

    Returns:
        The specification.
    """
    alt = _altair()
    names = list(series)
    values = [
        {"update": step, "key": f"s{i}", "name": name, "value": value}
        for i, (name, (steps, found)) in enumerate(series.items())
        for step, value in zip(steps, short(found, 5), strict=True)
        if value is not None
    ]
    legend = alt.Legend(orient="top") if len(names) > 1 else None
    colours, dashes = (alt.Scale(domain=names, range=kinds[: len(names)]) for kinds in (PALETTE, DASHES))
    colour = alt.Color("name:N", title=None, scale=colours, legend=legend)
    dash = alt.StrokeDash("name:N", title=None, scale=dashes, legend=legend)
    scale = alt.Scale(type="log") if log else alt.Scale(zero=False)
    base = alt.Chart(alt.NamedData("rows")).transform_filter("datum.update >= first && datum.update <= last")
    across = alt.X("update:Q", title="updates", scale=alt.Scale(nice=False, zero=False), axis=alt.Axis(tickCount=5))
    up = alt.Y("value:Q", title=None, scale=scale, axis=alt.Axis(tickCount=5, format=".6~g"))
    line = base.mark_line(strokeWidth=1.8, aria=False).encode(x=across, y=up, color=colour, strokeDash=dash)
    if len({v["update"] for v in values}) == 1:  # a line of one point would not be seen
        line = base.mark_point(filled=True, aria=False).encode(x=across, y=up, color=colour)
    near = alt.selection_point(
        name="near", nearest=True, on="pointermove", clear="pointerout", fields=["update"], empty=False
    )
    tips = [alt.Tooltip("update:Q", title="update", format=",d")]
    tips += [alt.Tooltip(f"s{i}:Q", title=name, format=".4~g") for i, name in enumerate(names)]
    rule = (
        base.transform_pivot("key", value="value", groupby=["update"])
        .mark_rule(color=INK, aria=False)
        .encode(x="update:Q", opacity=alt.when(near).then(alt.value(0.5)).otherwise(alt.value(0)), tooltip=tips)
        .add_params(near)
    )
    brush = alt.selection_interval(name="brush", encodings=["x"])
    layers = [line.add_params(brush), rule]
    if rolled_back:
        marks = alt.Chart(alt.NamedData("marks"))
        layers.append(
            marks.transform_filter("datum.update >= first && datum.update <= last")
            .mark_rule(color=INK, strokeDash=[3, 3], strokeWidth=1.5, aria=False)
            .encode(x="update:Q", tooltip=[alt.Tooltip("update:Q", title="rolled back before update")])
        )
    steps = [step for found, _ in series.values() for step in found] or [0]
    first, last = alt.param(name="first", value=min(steps)), alt.param(name="last", value=max(steps))
    chart = alt.layer(*layers).add_params(first, last)
    return _spec(chart, SMALL_HEIGHT, rows=values, marks=[{"update": step} for step in rolled_back])


def is_far(values: Floats) -> bool:
    """Whether a few values are so far out that the others would be a dot on a linear axis."""
    low, high = np.quantile(values, [0.05, 0.95])
    return bool(np.ptp(values) > FAR * max(float(high - low), 1e-300))


def bulk(values: Floats, margin: float = 0.1) -> tuple[float, float]:
    """Where nearly all values lie, with a margin: a few far out do not stretch it.

    Args:
        values: finite numbers.
        margin: as a part of the range.

    Returns:
        Low and high, which differ even if all values are equal.
    """
    low, high = (float(v) for v in np.quantile(values, [0.005, 0.995]))
    if not high > low:
        wide = 0.5 + 1e-6 * abs(low)
        return low - wide, high + wide
    return low - margin * (high - low), high + margin * (high - low)


def energies(data: Floats, samples: Floats | None, threshold: float | None = None) -> Spec:
    """How the energies of data and samples are distributed, with the threshold above which rows are outliers.

    Args:
        data: energies of rows, `(n,)`.
        samples: energies of samples, `(m,)`, or None.
        threshold: an energy, or None.

    Returns:
        The specification. Axes are compressed where a few energies are far out.
    """
    alt = _altair()
    both = data if samples is None else np.concatenate([data, samples])
    low, high = float(both.min()), float(both.max())
    edges, scale = np.linspace(low, high if high > low else low + 1, BINS + 1), alt.Scale(zero=False, nice=False)
    if is_far(both):
        near_low, near_high = np.quantile(both, [0.05, 0.95])
        constant = float(max(abs(np.median(both)), near_high - near_low))

        def log(v: Floats) -> Floats:
            return np.sign(v) * np.log1p(np.abs(v) / constant)

        ends = log(np.array([low, high]))
        even = np.linspace(ends[0], ends[1], BINS + 1)
        edges = np.sign(even) * constant * np.expm1(np.abs(even))
        edges[0], edges[-1] = low, high
        scale = alt.Scale(type="symlog", constant=constant, nice=False, domain=[low, high])
    axis = alt.Axis(tickCount=8, labelOverlap="greedy", labelSeparation=6)
    across = alt.X("low:Q", title="energy", scale=scale, axis=axis)
    layers = _overlay(samples is not None, across, alt.Scale(type="sqrt", domainMin=0), share="share of rows")
    if threshold is not None:
        mark = alt.Chart(alt.NamedData("threshold"))
        layers.append(
            mark.mark_rule(color=INK, strokeDash=[4, 3], strokeWidth=1.5, aria=False).encode(
                x="low:Q", tooltip=[alt.Tooltip("low:Q", title="threshold", format=".4~g")]
            )
        )
        layers.append(
            mark.mark_text(color=INK, align="left", baseline="top", dx=4, y=2, aria=False).encode(
                x="low:Q", text=alt.value("threshold")
            )
        )
    return _spec(alt.layer(*layers), HEIGHT, bins=_bins(data, samples, edges), threshold=[{"low": threshold}])


def column(data: Floats, samples: Floats | None, *, years: bool = False) -> Spec:
    """How a column's values are distributed in data and samples, where most of them lie.

    Args:
        data: finite values, `(n,)`.
        samples: the same of samples, or None.
        years: whether the values are years, which are written without a thousands separator.

    Returns:
        The specification.
    """
    edges = np.linspace(*bulk(data), BINS + 1)
    return {**_column_layout(samples is not None, years), "datasets": {"bins": _bins(data, samples, edges)}}


@functools.cache
def _column_layout(has_samples: bool, years: bool) -> Spec:
    alt = _altair()
    axis = alt.Axis(tickCount=3, format=".2~f") if years else alt.Axis(tickCount=4)
    across = alt.X("low:Q", title=None, scale=alt.Scale(zero=False, nice=False), axis=axis)
    return _spec(alt.layer(*_overlay(has_samples, across, alt.Scale(domainMin=0), legend=False)), SMALL_HEIGHT)


def _bins(data: Floats, samples: Floats | None, edges: Floats) -> list[dict[str, float | None]]:
    """Shares of data and samples in each bin."""
    columns = {"data": data} | ({} if samples is None else {"samples": samples})
    found = {name: short(np.histogram(v, edges)[0] / len(v), 3) for name, v in columns.items()}
    return [
        {"low": low, "high": high, **{name: share[i] for name, share in found.items()}}
        for i, (low, high) in enumerate(zip(short(edges[:-1], 6), short(edges[1:], 6), strict=True))
    ]


def _overlay(
    has_samples: bool, across: Any, shares: Any, *, legend: bool = True, share: str | None = None
) -> list[Any]:
    """Bars of data and a stepped line of samples over the same bins."""
    alt = _altair()
    names = ["data", "samples"] if has_samples else ["data"]
    scale = alt.Scale(domain=names, range=[DATA, SAMPLES][: len(names)])
    colour = alt.Color("of:N", title=None, scale=scale, legend=alt.Legend(orient="top") if legend else None)
    tips = [alt.Tooltip("low:Q", title="from", format=".4~g"), alt.Tooltip("high:Q", title="to", format=".4~g")]
    tips += [alt.Tooltip(f"{name}:Q", format=".2~%") for name in names]
    up = {"title": share, "scale": shares, "axis": alt.Axis(format="~%", tickCount=4)}
    base = alt.Chart(alt.NamedData("bins"))
    layers = [
        base.transform_calculate(of="'data'")
        .mark_bar(opacity=0.55, binSpacing=0, aria=False)
        .encode(x=across, x2="high:Q", y=alt.Y("data:Q", **up), y2=alt.datum(0), color=colour, tooltip=tips)
    ]
    if has_samples:
        layers.append(
            base.transform_calculate(of="'samples'")
            .mark_line(interpolate="step-after", strokeWidth=1.8, aria=False)
            .encode(x=across, y=alt.Y("samples:Q", **up), color=colour)
        )
    return layers


def words(shares: Sequence[tuple[str, float, float]]) -> Spec:
    """How often words occur in data and samples.

    Args:
        shares: word, share of the data, share of the samples.

    Returns:
        The specification.
    """
    values = [
        {"i": i, "word": word, "of": kind, "share": share}
        for i, (word, *both) in enumerate(shares)
        for kind, share in zip(("data", "samples"), short(both, 3), strict=True)
    ]
    return {**_words_layout(), "height": max(SMALL_HEIGHT, 22 * len(shares)), "datasets": {"words": values}}


@functools.cache
def _words_layout() -> Spec:
    alt = _altair()
    order = alt.EncodingSortField("i", op="min", order="ascending")
    kinds = alt.Scale(domain=["data", "samples"], range=[DATA, SAMPLES])
    chart = alt.Chart(alt.NamedData("words")).mark_bar(opacity=0.7, aria=False)
    return _spec(
        chart.encode(
            y=alt.Y("word:N", title=None, sort=order, axis=alt.Axis(labelLimit=110)),
            yOffset=alt.YOffset("of:N"),
            x=alt.X("share:Q", title=None, axis=alt.Axis(format="~%", tickCount=4)),
            color=alt.Color("of:N", title=None, scale=kinds, legend=None),
            tooltip=["word:N", alt.Tooltip("of:N", title="of"), alt.Tooltip("share:Q", format=".2~%")],
        ),
        SMALL_HEIGHT,
    )


ACROSS, UP = "§across", "§up"  # stand for names of columns, which the page fills in


def pairs(points: Sequence[Mapping[str, Any]]) -> Spec:
    """Rows and samples in two columns, those of the parameters `across` and `up`.

    Args:
        points: `of` (data, outliers or samples), `v` (the values of all columns), `name` and `energy`.

    Returns:
        The specification. `bulk_only` hides what lies outside the windows `across_low` ... `up_high`;
        `across_dates` and `up_dates` say whether a column holds dates, as years.
    """
    alt = _altair()
    kinds = [kind for kind in ("samples", "data", "outliers") if any(p["of"] == kind for p in points)]
    looks = {"samples": (SAMPLES, "square"), "data": (DATA, "circle"), "outliers": (INK, "cross")}
    colours, shapes = zip(*(looks[kind] for kind in kinds), strict=True)

    def axis(side: str) -> dict[str, Any]:
        # Dates are years, which are written without a thousands separator.
        label = f"{side}_dates ? format(datum.value, '.2~f') : datum.label"
        return {"scale": alt.Scale(zero=False), "axis": alt.Axis(tickCount=6, labelExpr=label)}

    tips = [
        alt.Tooltip("name:N", title="row"),
        alt.Tooltip("energy:Q", format=".4~g"),
        alt.Tooltip("a_text:N", title=ACROSS),
        alt.Tooltip("b_text:N", title=UP),
    ]
    names = ("across", "up", "bulk_only", "across_low", "across_high", "up_low", "up_high", "across_dates", "up_dates")
    written = {
        f"{name}_text": f"format(datum.{name}, {side}_dates ? '.2f' : '.5~g')"
        for name, side in (("a", "across"), ("b", "up"))
    }
    inside = "datum.a >= across_low && datum.a <= across_high && datum.b >= up_low && datum.b <= up_high"
    chart = (
        alt.Chart(alt.NamedData("points"))
        .transform_calculate(a="datum.v[across]", b="datum.v[up]")
        .transform_filter(f"isValid(datum.a) && isValid(datum.b) && (!bulk_only || ({inside}))")
        .transform_calculate(**written)
        .mark_point(filled=True, size=30, opacity=0.65, aria=False)
        .encode(
            x=alt.X("a:Q", title=ACROSS, **axis("across")),
            y=alt.Y("b:Q", title=UP, **axis("up")),
            color=alt.Color("of:N", title=None, scale=alt.Scale(domain=kinds, range=colours)).legend(orient="top"),
            shape=alt.Shape("of:N", title=None, scale=alt.Scale(domain=kinds, range=shapes)),
            tooltip=tips,
        )
        .add_params(*(alt.param(name=name, value=0) for name in names))
    )
    return _spec(chart, 380, points=[dict(p) for p in points])


def landscape(energy: Floats, window: Window, names: tuple[str, str]) -> Spec:
    """An energy `(n, n)` over a plane, the first column of the data along the first axis."""
    alt = _altair()
    n = len(energy)
    x_low, x_high, y_low, y_high = window
    wide, tall = (x_high - x_low) / n, (y_high - y_low) / n
    colour = alt.Scale(scheme="viridis")
    chart = (
        alt.Chart(alt.NamedData("cells"))
        .transform_window(i="row_number()", sort=[])
        .transform_calculate(
            x=f"{x_low!r} + floor((datum.i - 1) / {n}) * {wide!r}",
            y=f"{y_low!r} + ((datum.i - 1) % {n}) * {tall!r}",
            x2=f"datum.x + {wide!r}",
            y2=f"datum.y + {tall!r}",
        )
        .mark_rect(strokeWidth=1, aria=False)
        .encode(
            x=alt.X("x:Q", title=names[0], scale=alt.Scale(domain=[x_low, x_high], nice=False)),
            x2="x2:Q",
            y=alt.Y("y:Q", title=names[1], scale=alt.Scale(domain=[y_low, y_high], nice=False)),
            y2="y2:Q",
            color=alt.Color("energy:Q", title="energy", scale=colour),
            stroke=alt.Stroke("energy:Q", legend=None, scale=colour),
            tooltip=[alt.Tooltip("energy:Q", format=".3~g")],
        )
    )
    return _spec(chart, 300, cells=[{"energy": v} for v in short(energy.ravel(), 3)])


def cloud(points: Floats, window: Window, names: tuple[str, str], colour: str) -> Spec:
    """Points of a plane.

    Args:
        points: `(n, 2)`.
        window: low and high of both columns.
        names: of the columns.
        colour: a CSS colour.

    Returns:
        The specification.
    """
    alt = _altair()
    x_low, x_high, y_low, y_high = window
    values = [{"x": x, "y": y} for x, y in zip(short(points[:, 0]), short(points[:, 1]), strict=True)]
    chart = (
        alt.Chart(alt.NamedData("points"))
        .mark_circle(size=8, opacity=0.5, color=colour, clip=True, aria=False)
        .encode(
            x=alt.X("x:Q", title=names[0], scale=alt.Scale(domain=[x_low, x_high], nice=False)),
            y=alt.Y("y:Q", title=names[1], scale=alt.Scale(domain=[y_low, y_high], nice=False)),
        )
    )
    return _spec(chart, 300, points=values)
