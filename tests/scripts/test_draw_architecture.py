"""The picture in docs/ shows the imports of the code as it is."""

import importlib.util
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("draw_architecture", ROOT / "scripts" / "draw_architecture.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_committed_picture_is_up_to_date(script):
    """Only the imports are compared, so that another layout of the same graph is no failure."""
    drawn = script.edges_in((ROOT / "docs" / "architecture.svg").read_text())
    assert drawn == script.edges_of(script.import_graph(ROOT / "pscd")), "run python scripts/draw_architecture.py"


def package(tmp_path, **files):
    folder = tmp_path / "pscd"
    for name, text in files.items():
        path = folder / f"{name.replace('__of__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.fixture
def four_parts(tmp_path):
    return package(
        tmp_path,
        low="import math\n",
        middle__of__one="from pscd.low import x\nfrom pscd.middle.two import y\n",
        middle__of__two="def f():\n    from pscd import low\n",
        alone="",
        top="import pscd.middle.one\nfrom pscd import __version__, low\n",
    )


def test_every_kind_of_import_is_seen_and_nothing_else(script, four_parts):
    graph = script.import_graph(four_parts)
    assert graph == {"low": set(), "middle": {"low"}, "alone": set(), "top": {"middle", "low"}}
    assert script.reduced(graph)["top"] == {"middle"}
    assert script.layers_of(graph) == {"low": 0, "alone": 0, "middle": 1, "top": 2}


def test_a_cycle_is_named(script):
    with pytest.raises(ValueError, match="a -> b -> a"):
        script.layers_of({"a": {"b"}, "b": {"a"}})


def test_the_picture_is_the_same_every_time_and_holds_every_part_and_import(script, four_parts):
    graph = script.import_graph(four_parts)
    picture = script.draw(graph, four_parts)
    assert picture == script.draw(dict(reversed(graph.items())), four_parts)
    texts = {t.text for t in ElementTree.fromstring(picture).iter("{http://www.w3.org/2000/svg}text")}
    assert {"low", "middle/", "alone", "top"} <= texts
    assert script.edges_in(picture) == [["middle", "low"], ["top", "low"], ["top", "middle"]]


def test_boxes_of_the_real_picture_do_not_overlap_and_arrows_point_down(script):
    rows, paths = script.arranged(script.reduced(script.import_graph(ROOT / "pscd")))
    at = script.positions(rows)
    for row in rows:
        for left, right in pairwise(row):
            assert at[left] + script.width_of(left) / 2 < at[right] - script.width_of(right) / 2
    height = {place: i for i, row in enumerate(rows) for place in row}
    for path in paths:
        assert [height[place] for place in path] == list(range(height[path[0]], height[path[-1]] + 1))
