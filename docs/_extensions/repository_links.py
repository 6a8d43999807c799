"""Pages that live elsewhere in the repository, and links that lead there, as pages of the site.

Sources stay as GitHub shows them: a link to `../CONTRIBUTING.md` leads to the page that includes that file, and the
list of results gets its table of contents here, so that no page needs a directive that GitHub would print.
"""

import os
import re
from pathlib import Path

from sphinx.application import Sphinx

# Files outside docs/, by the page of the site that shows them.
PAGES = {
    "README.md": "docs/index.md",
    "examples/gallery": "docs/gallery/index.rst",
    "CONTRIBUTING.md": "docs/contributing.md",
    "studies/README.md": "docs/studies.md",
    "CHANGELOG.md": "docs/changelog.md",
    "SECURITY.md": "docs/security.md",
    "examples/dirty_table/README.md": "docs/examples/dirty-table.md",
    "examples/own_parts.py": "docs/examples/own-parts.md",
    "examples/plain_pytorch.py": "docs/examples/plain-pytorch.md",
}
LINK = re.compile(r"\]\((?!\w+:|#|/|<)([^)#\s]+)(#[^)\s]*)?\)")
GALLERY = re.compile(r"examples/gallery/(\w+/\w+)\.py")
SOURCE = re.compile(r"pscd/(\w+)(/\w+)*\.py")
CONTENTS = "\n```{toctree}\n:hidden:\n:glob:\n\n*\ndetection-classes/*\ndetection-keel/*\n```\n"


def rewritten(text: str, file: str, page: str) -> str:
    """The Markdown of a file with its relative links as they are to be on a page.

    Args:
        text: of the file.
        file: its path in the repository.
        page: path in the repository of the page that shows it.

    Returns:
        The text.

    >>> rewritten("[how](CONTRIBUTING.md#a-toy)", "README.md", "docs/how-to/own-parts.md")
    '[how](../contributing.md#a-toy)'
    """

    def link(match: re.Match[str]) -> str:
        target = os.path.normpath(os.path.join(os.path.dirname(file), match[1]))
        path = os.path.relpath(page_of(target), os.path.dirname(page))
        return f"]({path}{match[2] or ''})"

    return LINK.sub(link, text)


def page_of(path: str) -> str:
    """The page that shows a file of the repository: an example of the gallery, the API of a module, or another.

    Args:
        path: in the repository.

    Returns:
        The path of the page's source, or the same path if there is none.

    >>> page_of("examples/gallery/tables/blame.py"), page_of("pscd/sampling/mala.py")
    ('docs/gallery/tables/blame.rst', 'docs/api/generated/package.pscd.sampling.rst')
    """
    if example := GALLERY.fullmatch(path):
        return f"docs/gallery/{example[1]}.rst"
    if source := SOURCE.fullmatch(path):
        return f"docs/api/generated/package.pscd.{source[1]}.rst"
    return PAGES.get(path, path)


def read_page(app: Sphinx, docname: str, source: list[str]) -> None:
    """Links of a page of docs/."""
    page = f"docs/{docname}.md"
    if (app.srcdir / f"{docname}.md").is_file():
        source[0] = rewritten(source[0], page, page)
    if docname == "results/README":
        source[0] += CONTENTS


def read_included(app: Sphinx, path: Path, parent: str, content: list[str]) -> None:
    """Links of a file that a page includes."""
    file = os.path.normpath(Path("docs") / path)
    content[0] = rewritten(content[0], file, f"docs/{app.env.docname}.md")


def setup(app: Sphinx) -> dict[str, bool]:
    """Listen to pages as they are read."""
    app.connect("source-read", read_page)
    app.connect("include-read", read_included)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
