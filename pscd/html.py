"""HTML for notebooks: what `_repr_html_` of models, detectors and measurements returns."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape


def facts_html(title: str, facts: Mapping[str, object], notes: Iterable[str] = ()) -> str:
    """A heading, facts by name and sentences below them; every text is escaped.

    >>> facts_html("Model", {"rows": "<b>"})
    '<div><strong>Model</strong><table><tr><th>rows</th><td>&lt;b&gt;</td></tr></table></div>'
    """
    rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(str(value))}</td></tr>" for name, value in facts.items())
    below = "".join(f"<p>{escape(note)}</p>" for note in notes)
    return f"<div><strong>{escape(title)}</strong><table>{rows}</table>{below}</div>"


def table_html(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table with the names of its columns; every text is escaped.

    >>> table_html(["a"], [[1]])
    '<table><tr><th>a</th></tr><tr><td>1</td></tr></table>'
    """

    def line(tag: str, cells: Iterable[object]) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(str(cell))}</{tag}>" for cell in cells) + "</tr>"

    return f"<table>{line('th', head)}{''.join(line('td', row) for row in rows)}</table>"
