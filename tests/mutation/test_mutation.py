"""The tool that plants mistakes: what it plants, which tests it asks, and that it can tell noticed from unnoticed."""

import ast
import json
import os
import subprocess
import sys
import tomllib

import pytest

from mutation.__main__ import FILES, ROOT, equivalents, named_mutant, reason, table
from mutation.changes import mutants_of
from mutation.selection import Map, digest

SOURCE = '''"""Text - with + signs."""

LIMIT = 3


def clipped(x: int = 1, *, low: float = 0.0) -> float:
    """Between 0 < x."""
    if x > LIMIT and not low:
        raise ValueError(f"{x + 1} is too large")
    y = [v for v in range(x)]
    y.sort()
    return max(-x, low) + len(y)
'''


def changes(source, file="pscd/some.py"):
    return {(m.before, m.after) for m in mutants_of(file, source)}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("LIMIT = 3", "LIMIT = 4"),
        ("if x > LIMIT and not low:", "if x >= LIMIT and not low:"),
        ("if x > LIMIT and not low:", "if x <= LIMIT and not low:"),
        ("if x > LIMIT and not low:", "if x > LIMIT or not low:"),
        ("if x > LIMIT and not low:", "if x > LIMIT and low:"),
        ("if x > LIMIT and not low:", "if True:"),
        ("if x > LIMIT and not low:", "if False:"),
        ('raise ValueError(f"{x + 1} is too large")', "pass"),
        ("y.sort()", "pass"),
        ("return max(-x, low) + len(y)", "return max(x, low) + len(y)"),
        ("return max(-x, low) + len(y)", "return max(low, -x) + len(y)"),
        ("return max(-x, low) + len(y)", "return min(-x, low) + len(y)"),
        ("return max(-x, low) + len(y)", "return max(-x, low) - len(y)"),
        (
            "def clipped(x: int = 1, *, low: float = 0.0) -> float:",
            "def clipped(x: int = 2, *, low: float = 0.0) -> float:",
        ),
    ],
)
def test_mistakes_of_every_kind(before, after):
    assert (before, after) in changes(SOURCE)


def test_texts_are_left_alone_and_every_mistake_is_python():
    for mutant in mutants_of("pscd/some.py", SOURCE):
        ast.parse(mutant.source)
        assert '"""' not in mutant.before
        assert mutant.function == ("" if mutant.before.startswith("LIMIT") else "clipped")
        assert mutant.source.count("\n") == SOURCE.count("\n")
    assert not any("x - 1" in after or "x + 2" in after for _, after in changes(SOURCE))


@pytest.mark.parametrize("file", FILES)
def test_every_file_of_the_list_can_be_changed_in_many_ways(file):
    source = (ROOT / file).read_text()
    found = mutants_of(file, source)
    assert len(found) >= 5
    assert len({m.key for m in found}) == len(found)
    assert all(m.source != source for m in found)
    assert all((ROOT / own).is_file() for own in FILES[file])
    if file.endswith(".py"):
        for mutant in found[:: max(1, len(found) // 5)]:
            compile(mutant.source, file, "exec")


def test_cpp_is_changed_outside_of_comments_only():
    source = (
        "#define N 3\n// x + 1\nstatic float f(float x) {\n    y += x * 2;  // 4 - 3\n    return y < x ? 1.5f : x;\n}\n"
    )
    found = changes(source, "a.cpp")
    assert ("y += x * 2; // 4 - 3", "y -= x * 2; // 4 - 3") in found
    assert ("y += x * 2; // 4 - 3", "y += x / 2; // 4 - 3") in found
    assert ("return y < x ? 1.5f : x;", "return y < x ? 3.0f : x;") in found
    assert not any("4 + 3" in after or "x - 1" in after or "N 4" in after for _, after in found)


def test_tests_that_call_the_function_are_asked_own_ones_first(tmp_path):
    (tmp_path / "own.py").write_text("1")
    known = Map(tmp_path / "map.json")
    a, b = "pscd/a.py::f", "pscd/a.py::g"
    known.keep(
        tmp_path,
        "own.py",
        {"own.py::slow": {"seconds": 50, "calls": [a]}, "own.py::other": {"seconds": 1, "calls": [b]}},
    )
    known.files["far.py"] = {
        "tests": {"far.py::quick": {"seconds": 1, "calls": [a]}, "far.py::long": {"seconds": 90, "calls": [a]}}
    }
    assert known.choose("pscd/a.py", "f", ["own.py"], 60) == (["own.py::slow", "far.py::quick"], 51)
    assert known.choose("pscd/a.py", "", ["own.py"], 10)[0] == ["own.py::other", "own.py::slow"]
    assert known.choose("pscd/a.py", "unknown", ["own.py"], 60)[0] == ["own.py::other", "own.py::slow"]
    again = Map(tmp_path / "map.json")
    assert again.stale(tmp_path, ["own.py"]) == []
    (tmp_path / "own.py").write_text("2")
    assert again.stale(tmp_path, ["own.py"]) == ["own.py"]
    assert digest(tmp_path / "own.py") != known.files["own.py"]["digest"]


def test_a_reason_is_found_by_its_text_with_stars():
    row = {"file": "pscd/a.py", "function": "f", "before": "x[0] = 3", "after": "x[0] = 4"}
    known = [{"file": "pscd/a.py", "before": "x[0] = *", "reason": "speed alone"}]
    assert reason(row, known) == "speed alone"
    assert reason({**row, "file": "pscd/b.py"}, known) == ""
    assert reason({**row, "before": "x0 = 3"}, known) == ""


def test_the_lists_fit_the_code():
    """A mistake with a name must be there to be made, and an equivalent one must say where and why."""
    for entry in tomllib.loads((ROOT / "mutation" / "named.toml").read_text())["mutant"]:
        mutant = named_mutant(entry, (ROOT / entry["file"]).read_text())
        if entry["file"].endswith(".py"):
            ast.parse(mutant.source)
    for entry in equivalents():
        assert entry["reason"]
        if entry["file"] == "*":
            continue
        assert entry["file"] in FILES
        text = " ".join((ROOT / entry["file"]).read_text().split())
        assert entry.get("before", "").split("*")[0] in text, entry


def test_the_table_counts_equivalent_mistakes_apart():
    rows = [
        {"file": "pscd/losses.py", "function": "f", "before": "a", "after": "b", "status": status}
        for status in ("noticed", "noticed", "noticed", "unnoticed", "equivalent")
    ]
    text = table(rows)
    assert "| `pscd/losses.py` | 5 | 1 | 3 | 75% |" in text
    assert "- `pscd/losses.py`, f: `a` became `b`" in text


PLANT = """
import json, sys
from pathlib import Path
import pytest, torch
from mutation import __main__ as tool
from mutation.changes import Mutant
from mutation.selection import Map

folder = Path(sys.argv[1])
bench = tool.Bench(folder)
bench.map = Map(folder / "map.json")
bench.map.keep(tool.ROOT, "tests/test_rng.py", {})
source = (tool.ROOT / "pscd/version.py").read_text()
tests = bench.root / "tests" / "test_planted.py"
tests.write_text("import pscd.version\\ndef test_it():\\n    assert pscd.version.__version__ != 'wrong'\\n")
bench.map.files["tests/test_planted.py"] = {"tests": {"tests/test_planted.py::test_it": {"seconds": 0.1, "calls": []}}}
for text in (source, "__version__ = 'wrong'\\n", "1 +\\n", "while True: pass\\n"):
    tool.PATIENCE = (3.0 if "while" in text else 60.0, 1.0)
    mutant = Mutant("pscd/version.py", "", 1, "kind", "a", "b", text)
    row = bench.judge(mutant, ["tests/test_planted.py"])
    print(json.dumps([row["status"], row["noticed_by"]]))
print(json.dumps((bench.root / "pscd/version.py").read_text() == source))
"""


@pytest.mark.slow
def test_a_planted_mistake_is_noticed_and_nothing_is_left_behind(tmp_path):
    """No mistake, one that a test sees, one that is no Python, and one that never ends."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PLANT, str(tmp_path)], env=environment, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert found[:2] == [["unnoticed", ""], ["noticed", "tests/test_planted.py::test_it"]]
    assert found[2][0] == "noticed"
    assert found[3:] == [["noticed", "too slow"], True]
