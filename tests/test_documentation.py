"""Documentation that reads well without the site, too: links between its files lead somewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]*))?\)")
CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
# docs/index.md is the front page of the site; the folders and the file are written when the site is built.
OF_THE_SITE = {"docs/index.md", "docs/api", "docs/gallery"}


def pages():
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    names = {str(path.relative_to(ROOT)): path for path in found}
    return [path for name, path in sorted(names.items()) if not any(name.startswith(site) for site in OF_THE_SITE)]


def anchors(path):
    """Names of the headings, as GitHub and the site make them."""
    headings = re.findall(r"^#+ (.*)$", CODE.sub("", path.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for path, anchor in LINK.findall(CODE.sub("", page.read_text())):
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name} links to {path}"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{page.name} links to {path}#{anchor}"


def test_there_are_pages():
    assert len(pages()) > 40
