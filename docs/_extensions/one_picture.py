"""The directive `one-picture`: the exact optimum in one dimension as an interactive chart, drawn by Vega.

The chart is described with altair; the optima were computed beforehand by `scripts/compute_one_picture.py`. Vega comes
from the bundle inside vl-convert and is written beside the other scripts of the site, so that nothing is fetched.
"""

import json
from typing import ClassVar

import altair as alt
import vl_convert
from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx

BUNDLE = "vega.js"
COLOURS = {"data": "#9a9a9a", "CD": "#0072B2", "PS-CD": "#D55E00"}  # Okabe and Ito (2008)
LEGEND = alt.Legend(orient="top", symbolType="stroke", symbolOpacity=1, symbolStrokeWidth=3, symbolSize=300)
HTML = """\
<div class="one-picture" role="group" aria-label="The exact optimum, with sliders over gamma and contamination">
<div class="one-picture-sliders"></div>
<div class="one-picture-chart"></div>
<noscript>This picture needs JavaScript. <a href="{root}gallery/understanding/one_gaussian.html">One of its settings
as a plain picture</a>.</noscript>
</div>
<script type="application/json" id="one-picture-chart">{chart}</script>
<script src="{root}_static/{bundle}"></script>
<script src="{root}_static/one-picture.js"></script>
"""


def normal(mean: str, variance: str) -> str:
    """A Gaussian density at `datum.x`, as an expression of Vega."""
    return f"exp(-pow(datum.x - ({mean}), 2) / (2 * {variance})) / sqrt(2 * PI * {variance})"


def chart(rows: list[dict[str, float]]) -> alt.VConcatChart:
    """Densities, weights of the rows and KL over the contamination, moved by two sliders.

    Args:
        rows: for each ratio and gamma the mean, deviation and KL of the optimum.

    Returns:
        The chart; its widths are set by the page.
    """
    gammas, ratios = (sorted({row[name] for row in rows}) for name in ("gamma", "ratio"))

    def slider(name: str, title: str, places: list[float], value: float) -> alt.Parameter:
        step = round(places[1] - places[0], 6)
        return alt.param(
            name, value=value, bind=alt.binding_range(min=places[0], max=places[-1], step=step, name=title)
        )

    gamma = slider("gamma", "gamma", gammas, 1)
    ratio = slider("ratio", "share of junk", ratios, 0.1)
    colour = alt.Color("model:N", title=None, legend=LEGEND).scale(domain=list(COLOURS), range=list(COLOURS.values()))
    optima = alt.Chart(alt.NamedData("optima"))
    # At gamma 0 PS-CD is CD; each row of that gamma is there for both.
    named = (
        optima.transform_calculate(models="datum.gamma == 0 ? (gamma == 0 ? ['CD', 'PS-CD'] : ['CD']) : ['PS-CD']")
        .transform_flatten(["models"], as_=["model"])
        .transform_filter("datum.model == 'CD' || abs(datum.gamma - gamma) < 0.01")
    )
    here = named.transform_filter("abs(datum.ratio - ratio) < 0.001")
    curves = here.transform_calculate(xs="sequence(-4, 4.01, 0.05)").transform_flatten(["xs"], as_=["x"])
    x = alt.X("x:Q", title=None).scale(domain=[-4, 4], nice=False)
    data = (
        alt.Chart(alt.sequence(-4, 4.01, 0.05, as_="x"))
        .transform_calculate(
            density=f"(1 - ratio) * {normal('-1', '0.5')} + ratio * {normal('2', '0.05')}", model="'data'"
        )
        .mark_area(opacity=0.35)
        .encode(x=x, y=alt.Y("density:Q", title="density").scale(domain=[0, 0.75]), color=colour)
    )
    models = (
        curves.transform_calculate(density=normal("datum.mean", "(datum.sd * datum.sd)"))
        .mark_line(strokeWidth=2.5, clip=True)
        .encode(x=x, y="density:Q", color=colour, strokeDash=dash())
    )
    weights = (
        curves.transform_calculate(
            weight="datum.model == 'CD' ? 1 : exp(-gamma * pow(datum.x - datum.mean, 2) / (2 * datum.sd * datum.sd))"
        )
        .mark_line(strokeWidth=2.5, clip=True)
        .encode(
            x=alt.X("x:Q", title="x").scale(domain=[-4, 4], nice=False),
            y=alt.Y("weight:Q", title=["how much", "a row counts"]).scale(domain=[0, 1.05]).axis(values=[0, 0.5, 1]),
            color=colour,
            strokeDash=dash(),
        )
    )
    share = alt.X("ratio:Q", title="share of junk").axis(format="%")
    kl = alt.Y("kl:Q", title=["KL from the", "clean density,", "cut off at 0.9"]).scale(domain=[0, 0.9], clamp=True)
    over_ratio = named.mark_line(strokeWidth=2).encode(x=share, y=kl, color=colour, strokeDash=dash())
    point = here.mark_point(size=90, filled=True, opacity=1).encode(
        x=share,
        y=kl,
        color=colour,
        tooltip=["model:N", *(alt.Tooltip(f"{name}:Q", format=".3~g") for name in ("mean", "sd", "kl"))],
    )
    parts = [
        (data + models).properties(height=220),
        weights.properties(height=90),
        (over_ratio + point).properties(height=130),
    ]
    whole = alt.vconcat(*parts, spacing=18).add_params(gamma, ratio)
    description = "Data with junk, and the best Gaussian by CD and by PS-CD, for a gamma and a share of junk."
    return whole.properties(datasets={"optima": rows}, description=description)


def dash() -> alt.StrokeDash:
    """CD dashed: not by the colour alone."""
    return alt.StrokeDash("model:N", title=None, legend=LEGEND).scale(
        domain=list(COLOURS), range=[[1, 0], [6, 3], [1, 0]]
    )


class OnePicture(Directive):
    """Put the chart on a page; its argument is the file of the optima, below docs/."""

    required_arguments = 1
    option_spec: ClassVar[dict[str, object]] = {}

    def run(self) -> list[nodes.Node]:
        """The chart and its scripts as HTML."""
        env = self.state.document.settings.env
        _, path = env.relfn2path(self.arguments[0])
        env.note_dependency(path)
        env.note_dependency(__file__)
        with open(path, encoding="utf-8") as file:
            rows = json.load(file)
        text = json.dumps(chart(rows).to_dict(), separators=(",", ":")).replace("</", "<\\/")
        root = "../" * env.docname.count("/")
        return [nodes.raw("", HTML.format(root=root, chart=text, bundle=BUNDLE), format="html")]


def write_bundle(app: Sphinx, exception: Exception | None) -> None:
    """Write Vega beside the other scripts, in a scope of its own: some of its names are also names of Sphinx."""
    if exception is None and app.builder.format == "html":
        bundle = f"(() => {{{vl_convert.javascript_bundle()}}})();"
        (app.outdir / "_static" / BUNDLE).write_text(bundle, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the directive."""
    app.add_directive("one-picture", OnePicture)
    app.connect("build-finished", write_bundle)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
