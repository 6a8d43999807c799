"""From blocks to one HTML file that needs nothing else: the styles, the script and the charts' library are inside."""

import functools
import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

from pscd.files import needs, write_text_atomic, writing_to
from pscd.report.blocks import Charts, Page, Pairs, StrangeRows
from pscd.version import __version__

BLAMED = 3  # cells that a row shows before it is opened
LONG = 60  # characters that a row shows of a text before it is opened


def write_page(page: Page, path: Path) -> Path:
    """Write a report, atomically.

    Args:
        page: what it shows.
        path: the `.html` file.

    Returns:
        The path.

    Raises:
        UserError: it cannot be written, or the extra `report` is not installed.
    """
    text = render(page)
    with writing_to(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        # Half a surrogate pair, from a file in a broken encoding, cannot be written as UTF-8.
        write_text_atomic(path, text.encode("utf-8", "replace").decode())
    return path


def render(page: Page) -> str:
    """The HTML of a report.

    Args:
        page: what it shows.

    Returns:
        A whole document. Every text in it is escaped by the template.

    Raises:
        UserError: the extra `report` is not installed.
    """
    jinja2 = needs("jinja2", "report", "a report")
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["long"] = lambda text: text if len(text) <= LONG else f"{text[:LONG]}..."
    environment.filters["nats"] = lambda cost: f"{cost:.1f}" if cost < 100 else f"{cost:,.0f}"
    charts = [chart for section in page.sections for block in section.blocks for chart in _charts(block)]
    tables = [block for section in page.sections for block in section.blocks if isinstance(block, StrangeRows)]
    number = {id(chart): i for i, chart in enumerate(charts)}
    data = {
        "charts": [{"spec": chart.spec, "options": chart.options, "about": chart.about} for chart in charts],
        "tables": [_cells(table) for table in tables],
        "running": page.running,
    }
    return str(
        environment.from_string(_asset("page.html")).render(
            page=page,
            version=__version__,
            style=_asset("report.css"),
            library=_library() if charts else "",
            script=_asset("report.js"),
            data=as_script(data),
            number=lambda chart: number[id(chart)],
            table_number=lambda table: next(i for i, other in enumerate(tables) if other is table),
            blamed=BLAMED,
        )
    )


def _charts(block: Any) -> tuple[Any, ...]:
    return block.charts if isinstance(block, Charts) else (block.chart,) if isinstance(block, Pairs) else ()


def _cells(table: StrangeRows) -> list[dict[str, Any]]:
    """What opening a row shows."""
    names = list(dict.fromkeys(cell.column for row in table.rows for cell in row.cells))
    at = {name: i for i, name in enumerate(names)}
    rows = [
        {"ids": row.ids, "cells": [[at[c.column], c.value, c.expected, c.blame, c.mistake] for c in row.cells]}
        for row in table.rows
    ]
    return [{"names": names, "ids": table.id_names}, *rows]


def as_script(value: Any) -> str:
    r"""JSON that may stand inside a `<script>`.

    Args:
        value: anything that JSON can hold, without NaN.

    Returns:
        Text in which no value can end the script or open a comment.

    >>> as_script({"a": "</script><!--"})
    '{"a":"\\u003c/script\\u003e\\u003c!--"}'
    """
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    escapes = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
    return re.sub("[<>&\u2028\u2029]", lambda found: escapes[found[0]], text)


def _asset(name: str) -> str:
    return (files("pscd.report") / "assets" / name).read_text(encoding="utf-8")


@functools.cache
def _library() -> str:
    """Vega, Vega-Lite and vega-embed of the version that altair writes for, as one script."""
    altair = needs("altair", "report", "a report")
    convert = needs("vl_convert", "report", "a report")
    version = ".".join(altair.SCHEMA_VERSION.lstrip("v").split(".")[:2])
    return str(convert.javascript_bundle(vl_version=version))
