"""Check a built site: every link inside it leads somewhere, and no page needs the network to be shown.

`python scripts/check_site.py build/site` lists what is wrong and exits with 1 if anything is. Links that readers may
follow to other sites are not visited.
"""

import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {"img": "src", "script": "src", "iframe": "src", "source": "src", "link": "href"}  # fetched with the page
NOT_FETCHED = {"canonical", "search", "index", "next", "prev", "author"}  # kinds of <link> that only point


@dataclass
class Page(HTMLParser):
    """What one page offers and wants.

    Args:
        anchors: ids on the page.
        links: where readers are led.
        resources: what a browser fetches.
    """

    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    resources: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the ids and addresses of a tag."""
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if LOADED.get(tag) in values and values.get("rel") not in NOT_FETCHED:
            self.resources.append(values[LOADED[tag]])


def read(path: Path) -> Page:
    """Parse a page."""
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def problems(root: Path) -> list[str]:
    """What is wrong with a site.

    Args:
        root: its folder.

    Returns:
        A sentence for each broken link, and for each file that a page would fetch from elsewhere.
    """
    root = root.resolve()
    pages = {path.resolve(): read(path) for path in sorted(root.rglob("*.html"))}
    found = [] if pages else [f"{root} holds no pages"]
    for path, page in pages.items():
        name = path.relative_to(root)
        for address in page.resources:
            if urlsplit(address).scheme in ("http", "https") or address.startswith("//"):
                found.append(f"{name} fetches {address}")
        for address in [*page.links, *page.resources]:
            url = urlsplit(address)
            if url.scheme or url.netloc:
                continue
            target = (path.parent / unquote(url.path)).resolve() if url.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file():
                found.append(f"{name} links to {address}, which is not there")
            elif url.fragment and target in pages and unquote(url.fragment) not in pages[target].anchors:
                found.append(f"{name} links to {address}, where nothing has that name")
    return found


def main(root: str) -> int:
    """Print what is wrong.

    Args:
        root: folder of the site.

    Returns:
        The exit code: 0 if all is well.
    """
    found = problems(Path(root))
    print("\n".join(found) or f"{root}: all links lead somewhere, and nothing is fetched from elsewhere")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
