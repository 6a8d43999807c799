"""The report of a reproduced artefact: its page with the figures inside, and its numbers as a chart."""

import itertools
import re
from pathlib import Path
from typing import Any

from pscd.errors import UserError
from pscd.files import needs, read_json
from pscd.report import charts
from pscd.report.blocks import Block, Chart, Charts, Facts, Page, Picture, Prose, Section, Text
from pscd.report.pictures import file_address

SCROLLS = '<div class="scroll" tabindex="0" role="region" aria-label="table {}"><table>'


def artefact_files(path: Path) -> tuple[Path, Path] | None:
    """The page and the numbers of an artefact.

    Args:
        path: `NAME.json`, `NAME.md` or `NAME` without an ending.

    Returns:
        `NAME.md` and `NAME.json`, one of which may not exist; None if neither does.
    """
    stem = path.with_suffix("") if path.suffix in (".json", ".md", ".png") else path
    page, numbers = stem.with_name(f"{stem.name}.md"), stem.with_name(f"{stem.name}.json")
    return (page, numbers) if page.is_file() or numbers.is_file() else None


def artefact_page(page: Path, numbers: Path) -> Page:
    """The report of an artefact.

    Args:
        page: its text in Markdown, if there is one.
        numbers: its JSON file, if there is one.

    Returns:
        The report.

    Raises:
        UserError: the JSON file is damaged, or no artefact's.
    """
    found: Any = read_json(numbers) if numbers.is_file() else {}
    text = page.read_text(encoding="utf-8") if page.is_file() else ""
    if not isinstance(found, dict) or not (text or "rows" in found):
        raise UserError(f"{numbers}: neither a run folder nor the numbers of pscd reproduce")
    heading = re.match(r"# +(.+)\n", text)
    title = str(found.get("title") or (heading[1] if heading else page.stem))
    sections = []
    facts = _facts(found)
    chart = _chart(found)
    if facts or chart:
        sections.append(Section("Numbers", tuple(block for block in (facts, chart) if block is not None)))
    pictures = tuple(_pictures(found, text, page.parent))
    if pictures:
        sections.append(Section("Figures", pictures))
    if text:
        sections.append(Section("In full", (Prose(as_html(text.removeprefix(heading[0] if heading else ""))),)))
    return Page(title, "Reproduced artefact", tuple(sections))


def _facts(found: dict[str, Any]) -> Facts | None:
    kept = found.get("versions", {})
    versions = kept if isinstance(kept, dict) else {}
    entries = [
        ("seeds", found.get("seeds")),
        ("computed cells", len(found["cells"]) if isinstance(found.get("cells"), list) else None),
        ("not run", found.get("cells_not_run")),
        ("quick", "yes, small and rough" if found.get("quick") else None),
        ("machine", found.get("machine")),
        ("torch", str(versions["torch"]).removeprefix("torch ") if versions.get("torch") else None),
    ]
    known = tuple((name, str(value)) for name, value in entries if value is not None)
    return Facts(known) if known else None


def _chart(found: dict[str, Any]) -> Charts | None:
    rows = found.get("rows")
    if not isinstance(rows, list):
        return None
    rows = [r for r in rows if isinstance(r, dict) and {"row", "column", "measured", "std", "published"} <= set(r)]
    rows = [row for row in rows if row["measured"] is not None]
    if not rows:
        return None
    about = "Means over the seeds, with a standard deviation to each side where there are several."
    return Charts((Chart("Measured", charts.measured(rows), about),))


def _pictures(found: dict[str, Any], text: str, folder: Path) -> list[Block]:
    """The figures that the numbers or the page name, those in their own folder alone."""
    said = {Path(name).name: about for about, name in re.findall(r"!\[([^\]]*)\]\(([^)\s]+\.png)\)", text)}
    blocks: list[Block] = []
    for name in dict.fromkeys([*(Path(str(name)).name for name in found.get("figures", [])), *said]):
        address, about = file_address(folder / name), said.get(name) or name
        blocks.append(Picture(address, about, about) if address else Text((f"{name} is not there.",), "warning"))
    return blocks


def as_html(markdown: str) -> str:
    """Markdown as HTML: HTML inside it is shown as text, links to other files and pictures stay words.

    Args:
        markdown: the text.

    Returns:
        HTML that is safe to put into a page. Headings start at the third level.
    """
    needs("markdown_it", "report", "a report")
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = parser.parse(markdown)
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(6, max(3, int(token.tag[1]) + 1))}"  # below the section's own, which is an h2
        for child in token.children or []:
            outward = str(child.attrGet("href") or "").startswith(("http://", "https://"))
            if child.type == "image" or (child.type == "link_open" and not outward):
                child.attrs = {}
        if token.children:
            token.children = [child for child in token.children if child.type != "image"]
    html = str(parser.renderer.render(tokens, parser.options, {}))
    # A wide table scrolls by itself, also with the keyboard.
    numbers = itertools.count(1)
    html = re.sub("<table>", lambda _: SCROLLS.format(next(numbers)), html).replace("</table>", "</table></div>")
    return re.sub(r"<th( [^>]*)?></th>", "<td></td>", html)  # a corner is no heading
