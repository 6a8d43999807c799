"""From blocks to one HTML file with the styles, the script and the chart library inside."""

import functools
import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

from pscd.files import needs, write_text_atomic, writing_to
from pscd.report.blocks import Chart, Page, RankedRows
from pscd.version import __version__


def write_page(page: Page, path: Path) -> Path:
    """Write a report atomically and return its path."""
    text = render(page)
    with writing_to(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        # Half a surrogate pair, from a file in a broken encoding, cannot be written as UTF-8.
        write_text_atomic(path, text.encode("utf-8", "replace").decode())
    return path


def render(page: Page, *, longest: int = 60) -> str:
    """The HTML of a report, in which the template escapes every text and cuts cells to `longest` characters."""
    jinja2 = needs("jinja2", "report", "a report")
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["cut"] = lambda text: text if len(text) <= longest else f"{text[:longest]}..."
    environment.filters["nats"] = lambda cost: f"{cost:.1f}" if cost < 100 else f"{cost:,.0f}"
    environment.filters["kind"] = lambda block: type(block).__name__
    blocks = [block for section in page.sections for block in section.blocks]
    charts = [block for block in blocks if isinstance(block, Chart)]
    tables = [block for block in blocks if isinstance(block, RankedRows)]
    data = {
        "charts": [{**chart.spec, "description": chart.about or chart.title} for chart in charts],
        "tables": [_cells(table) for table in tables],
    }
    return str(
        environment.from_string(_asset("page.html")).render(
            page=page,
            version=__version__,
            style=_asset("report.css"),
            library=_library() if charts else "",
            script=_asset("report.js"),
            data=as_script(data),
            number={id(block): i for part in (charts, tables) for i, block in enumerate(part)},
            id=id,
        )
    )


def _cells(table: RankedRows) -> list[dict[str, Any]]:
    """What opening a row shows."""
    names = list(dict.fromkeys(cell.column for row in table.rows for cell in row.cells))
    at = {name: i for i, name in enumerate(names)}
    rows = [
        {"ids": row.ids, "cells": [[at[c.column], c.value, c.suggestion, c.cost] for c in row.cells]}
        for row in table.rows
    ]
    return [{"names": names, "ids": table.id_names}, *rows]


def as_script(value: Any) -> str:
    r"""JSON for a `<script>`, in which no value can end the script or open a comment.

    >>> as_script({"a": "</script><!--"})
    '{"a":"\\u003c/script\\u003e\\u003c!--"}'
    """
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    escapes = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
    return re.sub("[<>&\u2028\u2029]", lambda match: escapes[match[0]], text)


def _asset(name: str) -> str:
    return (files("pscd.report") / "assets" / name).read_text(encoding="utf-8")


@functools.cache
def _library() -> str:
    """Vega, Vega-Lite and vega-embed of the version that altair writes for, as one script."""
    altair = needs("altair", "report", "a report")
    convert = needs("vl_convert", "report", "a report")
    version = ".".join(altair.SCHEMA_VERSION.lstrip("v").split(".")[:2])
    return str(convert.javascript_bundle(vl_version=version))
