"""Draw which parts of `pscd/` import which, as docs/architecture.svg: `python scripts/draw_architecture.py`.

A part is a sub-package or a module beside them. All imports are read from the code with `ast` and kept in the picture's
`<metadata>` (a test compares them with the code). The picture itself shows the transitive reduction: an arrow that
others imply is left out. Layers are longest paths to the bottom, so every arrow points down; long arrows pass between
boxes, and the order within a layer is the mean position of the neighbours. Nothing is random: same code, same picture.
"""

import argparse
import ast
import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[1]
PACKAGE, PICTURE = ROOT / "pscd", ROOT / "docs" / "architecture.svg"
ABOUT = "The parts of pscd. An arrow means “imports”; arrows that follow from others are left out."
HEIGHT, GAP_X, GAP_Y, MARGIN, LETTER = 34, 18, 46, 24, 8.2
SWEEPS = 24

Graph = dict[str, set[str]]


def import_graph(package: Path) -> Graph:
    """Each part with the parts that it imports, wherever in its files the import stands."""
    name = package.name
    files = [path for path in sorted(package.rglob("*.py")) if path != package / "__init__.py"]
    graph: Graph = {part_of(path, package): set() for path in files}
    for path in files:
        part = part_of(path, package)
        for module in imported_modules(path, name):
            if module in graph and module != part:
                graph[part].add(module)
    return graph


def part_of(path: Path, package: Path) -> str:
    """`pscd/data/toys.py` is in the part `data`, `pscd/exact.py` is the part `exact`."""
    return path.relative_to(package).parts[0].removesuffix(".py")


def imported_modules(path: Path, package: str) -> Iterator[str]:
    """The first name after `pscd.` in every import of a file."""
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == package:
            names = [f"{package}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        for name in names:
            first, _, rest = name.partition(".")
            if first == package and rest:
                yield rest.partition(".")[0]


def edges_of(graph: Graph) -> list[list[str]]:
    """All imports as sorted pairs."""
    return sorted([part, other] for part, others in graph.items() for other in others)


def layers_of(graph: Graph) -> dict[str, int]:
    """The longest path from each part to one that imports nothing. Raises `ValueError` on a cycle."""
    found: dict[str, int] = {}

    def visit(part: str, way: tuple[str, ...]) -> int:
        if part in way:
            raise ValueError(f"parts import each other: {' -> '.join((*way[way.index(part) :], part))}")
        if part not in found:
            found[part] = max((visit(other, (*way, part)) + 1 for other in sorted(graph[part])), default=0)
        return found[part]

    for part in sorted(graph):
        visit(part, ())
    return found


def reduced(graph: Graph) -> Graph:
    """Without the edges that a longer path implies."""
    layer = layers_of(graph)
    below: Graph = {}
    for part in sorted(graph, key=lambda r: layer[r]):
        below[part] = graph[part].union(*(below[other] for other in graph[part]))
    return {part: {o for o in others if not any(o in below[p] for p in others)} for part, others in graph.items()}


def arranged(graph: Graph) -> tuple[list[list[str]], list[list[str]]]:
    """Rows of parts from top to bottom, and each edge as a path through them.

    An edge that skips rows gets a narrow place of its own, `part>other>row`, in each of them.

    Returns:
        The rows, and the paths.
    """
    layer = layers_of(graph)
    top = max(layer.values(), default=0)
    rows: list[list[str]] = [sorted(r for r in graph if layer[r] == top - i) for i in range(top + 1)]
    paths = []
    for part, other in edges_of(graph):
        between = range(top - layer[part] + 1, top - layer[other])
        path = [part, *(f"{part}>{other}>{i}" for i in between), other]
        for i, place in zip(between, path[1:-1], strict=True):
            rows[i].append(place)
        paths.append(path)
    neighbours: dict[str, list[str]] = {place: [] for row in rows for place in row}
    for path in paths:
        for upper, lower in pairwise(path):
            neighbours[upper].append(lower)
            neighbours[lower].append(upper)
    row_of = {place: i for i, row in enumerate(rows) for place in row}
    at = positions(rows)
    for sweep in range(SWEEPS):
        # Down, then up: each row is sorted by its neighbours in the row that was sorted before it.
        down = sweep % 2 == 0
        for i in range(len(rows)) if down else reversed(range(len(rows))):
            before = i - 1 if down else i + 1
            middle = {}
            for place in rows[i]:
                seen = [at[n] for n in neighbours[place] if row_of[n] == before]
                middle[place] = sum(seen) / len(seen) if seen else at[place]
            rows[i].sort(key=lambda place, middle=middle: (middle[place], place))  # type: ignore[misc]
            at |= positions([rows[i]])
    return rows, paths


def width_of(place: str) -> float:
    """Of a box; a place where only an arrow passes needs little."""
    return 6.0 if ">" in place else max(64.0, LETTER * len(place) + 24)


def positions(rows: list[list[str]]) -> dict[str, float]:
    """The middle of every place, each row being centred around 0."""
    found = {}
    for row in rows:
        x = -(sum(map(width_of, row)) + GAP_X * (len(row) - 1)) / 2
        for place in row:
            found[place] = x + width_of(place) / 2
            x += width_of(place) + GAP_X
    return found


def draw(graph: Graph, package: Path) -> str:
    """The picture as text."""
    rows, paths = arranged(reduced(graph))
    x = positions(rows)
    shift = MARGIN - min(x[p] - width_of(p) / 2 for p in x)
    at = {
        place: (round(x[place] + shift, 1), MARGIN + 40 + i * (HEIGHT + GAP_Y))
        for i, row in enumerate(rows)
        for place in row
    }
    width = max(a + width_of(p) / 2 for p, (a, _) in at.items()) + MARGIN
    height = MARGIN * 2 + 40 + len(rows) * (HEIGHT + GAP_Y) - GAP_Y
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" font-family="sans-serif">',
        f"<title>{escape(ABOUT)}</title>",
        f'<metadata id="imports">{escape(json.dumps(edges_of(graph)))}</metadata>',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#667"/></marker></defs>',
        f'<rect width="{width:.0f}" height="{height}" fill="#fff"/>',
        f'<text x="{MARGIN}" y="{MARGIN + 8}" font-size="14" fill="#333">{escape(ABOUT)}</text>',
        '<g fill="none" stroke="#889" stroke-width="1.2">',
    ]
    lines += [f'<path d="{curve(path, at)}" marker-end="url(#tip)"/>' for path in paths]
    lines += ["</g>", '<g font-size="14" text-anchor="middle">']
    for place, (a, b) in sorted((p, q) for p, q in at.items() if ">" not in p):
        is_folder = (package / place).is_dir()
        fill, stroke = ("#e3edf9", "#4a78b0") if is_folder else ("#f6f2e7", "#a08c4e")
        w = width_of(place)
        lines.append(
            f'<rect x="{a - w / 2:.1f}" y="{b}" width="{w:.1f}" height="{HEIGHT}" rx="6" fill="{fill}" '
            f'stroke="{stroke}"/>'
        )
        lines.append(f'<text x="{a:.1f}" y="{b + 22}">{escape(place + "/" * is_folder)}</text>')
    return "\n".join([*lines, "</g>", "</svg>", ""])


def curve(path: list[str], at: dict[str, tuple[float, float]]) -> str:
    """From the lower edge of the first box, straight through the places between, to the upper edge of the last."""
    x, y = at[path[0]][0], at[path[0]][1] + HEIGHT
    words = [f"M{x} {y}"]
    for i, place in enumerate(path[1:], 1):
        new_x, new_y = at[place]
        half = (y + new_y) / 2
        words.append(f"C{x} {half} {new_x} {half} {new_x} {new_y}")
        x, y = new_x, new_y
        if i < len(path) - 1:
            y += HEIGHT
            words.append(f"L{x} {y}")
    return "".join(words)


def edges_in(picture: str) -> list[list[str]]:
    """The imports that a picture was drawn from."""
    start, end = '<metadata id="imports">', "</metadata>"
    found: list[list[str]] = json.loads(picture.partition(start)[2].partition(end)[0].replace("&gt;", ">"))
    return found


def main() -> None:
    """Write the picture, or only say whether the one there is up to date."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if the picture is out of date")
    graph = import_graph(PACKAGE)
    if parser.parse_args().check:
        up_to_date = PICTURE.is_file() and edges_in(PICTURE.read_text()) == edges_of(graph)
        raise SystemExit(0 if up_to_date else f"{PICTURE} is out of date; run python scripts/draw_architecture.py")
    PICTURE.write_text(draw(graph, PACKAGE))
    print(f"{len(graph)} parts, {len(edges_of(graph))} imports: {PICTURE}")


if __name__ == "__main__":
    main()
