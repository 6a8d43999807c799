"""The tool that plants mistakes: what it plants, which tests it asks, and that it can tell noticed from unnoticed."""

import ast
import json
import os
import subprocess
import sys
import tomllib
from collections import Counter

import pytest

from mutation.__main__ import _arguments, _unnoticed, in_turn, named_mutant, sample
from mutation.bench import ROOT
from mutation.changes import mutants_of
from mutation.files import FILES
from mutation.live import Live, changed_functions
from mutation.results import Results, by_room, equivalents, page, reason, table
from mutation.selection import Map, Recorder, digest

SOURCE = '''"""Text - with + signs."""

LIMIT = 3


def clipped(x: int = 1, *, low: float = 0.0) -> float:
    """Between 0 < x."""
    if x > LIMIT and not low:
        raise ValueError(f"{x + 1} is too large")
    y = [v for v in range(x, 9)]
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
        ("y = [v for v in range(x, 9)]", "y = [v for v in range(9, x)]"),
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
    assert not any("max(low, -x)" in after for _, after in changes(SOURCE))  # it would be the same


def test_a_dropped_call_leaves_the_brackets_before_it():
    found = changes("def f(x):\n    return 3 * (x < 0).float().mean() - (x.log() + 1)\n")
    assert ("return 3 * (x < 0).float().mean() - (x.log() + 1)", "return 3 * (x < 0).mean() - (x.log() + 1)") in found
    assert ("return 3 * (x < 0).float().mean() - (x.log() + 1)", "return 3 * (x < 0).float().mean() - (x + 1)") in found


@pytest.mark.parametrize("file", FILES)
def test_every_file_of_the_list_can_be_changed_in_many_ways(file):
    source = (ROOT / file).read_text()
    found = mutants_of(file, source)
    assert len(found) >= 5
    assert len({m.key for m in found}) == len(found)
    assert all(m.source != source for m in found)
    assert all((ROOT / own.split("::")[0]).is_file() for own in FILES[file])
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
    assert known.choose("pscd/a.py", "f", ["own.py"], 60, 60) == (["own.py::slow", "far.py::quick"], 51)
    assert known.choose("pscd/a.py", "f", ["own.py"], 40, 60) == (["far.py::quick"], 1)
    assert known.choose("pscd/a.py", "f", ["own.py", "own.py::other"], 60, 0)[0] == ["own.py::other", "own.py::slow"]
    assert known.choose("pscd/a.py", "", ["own.py"], 60, 0)[0] == ["own.py::other", "own.py::slow"]
    assert known.choose("pscd/a.py", "unknown", ["own.py"], 60, 60)[0] == ["own.py::other", "own.py::slow"]
    again = Map(tmp_path / "map.json")
    assert again.stale(tmp_path, ["own.py"]) == []
    (tmp_path / "own.py").write_text("2")
    assert again.stale(tmp_path, ["own.py"]) == ["own.py"]
    assert digest(tmp_path / "own.py") != known.files["own.py"]["digest"]


def test_a_fixture_of_a_whole_file_counts_for_each_of_its_tests_and_is_paid_for_once(tmp_path):
    known = Map(tmp_path / "map.json")
    test = {"seconds": 1, "calls": ["pscd/a.py::f"], "fixtures": {"own.py::fitted": 8}}
    known.files["own.py"] = {"tests": {"own.py::one": test, "own.py::two": test, "own.py::three": test}}
    assert known.choose("pscd/a.py", "f", ["own.py"], 10, 0) == (["own.py::one", "own.py::three"], 10)


RECORDED = """
import pytest
from pscd.rng import generator

@pytest.fixture(scope="module")
def rng():
    return generator(0)

def test_one(rng):
    pass

def test_two(rng):
    pass

def test_three():
    pass
"""


def test_the_recorder_notes_what_fixtures_call(tmp_path):
    (tmp_path / "test_it.py").write_text(RECORDED)
    recorder = Recorder(ROOT)
    pytest.main(["-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)], plugins=[recorder])
    called = {name.split("::")[1]: "pscd/rng.py::generator" in test["calls"] for name, test in recorder.tests.items()}
    assert called == {"test_one": True, "test_two": True, "test_three": False}
    assert not recorder.failed


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


def rows(seed, statuses, file="pscd/losses.py"):
    return [
        {"file": file, "function": "f", "before": "a", "after": f"b{i}", "line": i, "seed": seed, "status": status}
        for i, status in enumerate(statuses)
    ]


def test_the_table_counts_equivalent_mistakes_apart():
    found = rows(3, ["noticed", "noticed", "noticed", "unnoticed", "equivalent"])
    found += rows(3, ["noticed"], "pscd/fast/cpp.py")
    lines = table(found)
    assert "| `pscd/losses.py` | 3 | 5 | 1 | 3 | 75% | 1 |" in lines
    assert "| **what the numbers rest on** | | 5 | 1 | 3 | 75% | 1 |" in lines
    assert lines[-1] == "| **all** | | 6 | 1 | 4 | 80% | 1 |"


def test_folders_have_a_score_of_their_own():
    found = rows(3, ["noticed", "unnoticed"], "pscd/fast/cpp.py") + rows(
        3, ["noticed", "noticed"], "pscd/fast/threads.py"
    )
    assert by_room(found + rows(3, ["noticed"]))[2:] == [
        "| `pscd` | 1 | 0 | 1 | 100% | 0 |",
        "| `pscd/fast` | 4 | 0 | 3 | 75% | 1 |",
        "| **what the numbers rest on** | 1 | 0 | 1 | 100% | 0 |",
        "| **what is built around it** | 4 | 0 | 3 | 75% | 1 |",
        "| **all** | 5 | 0 | 4 | 80% | 1 |",
    ]


def test_the_score_is_that_of_the_first_time(tmp_path):
    """A test that was written for a mistake notices it, of course; and one that changes nothing counts for nobody."""
    results = Results(tmp_path / "mutants.json")
    for row in rows(3, ["noticed", "unnoticed", "unnoticed", "unnoticed"]):
        results.put(row)
    _, closed, equal, _ = rows(3, ["noticed"] * 2 + ["equivalent"] * 2)
    results.put(closed)
    results.put(closed)  # however often
    results.put(equal)
    assert table(Results(tmp_path / "mutants.json").mutants)[2] == "| `pscd/losses.py` | 3 | 4 | 1 | 1 | 33% | 1 |"


def test_the_page_shows_the_newest_sample_of_each_file_and_the_scores_of_all():
    found = rows(0, ["noticed", "noticed"]) + rows(7, ["noticed", "unnoticed"])
    found += rows(0, ["noticed"], "pscd/theory.py")
    text = page(found, [{"name": "a wrong sign", "noticed_by": "tests/test_a.py::test_it"}])
    assert "- `pscd/losses.py`, f: `a` became `b1`" in text
    assert "| `pscd/theory.py` | 0 | 1 | 0 | 1 | 100% | 0 |" in text
    assert "| 0, 2 files | 3 | 0 | 3 | 100% | 0 |\n| 7, 1 files | 2 | 0 | 1 | 50% | 1 |" in text
    assert "| a wrong sign | `test_a.py::test_it` |" in text


def test_results_of_one_sample_leave_others_alone(tmp_path):
    results = Results(tmp_path / "mutants.json")
    for row in rows(0, ["noticed"]) + rows(1, ["unnoticed"]) + rows(1, ["noticed"]):
        results.put(row)
    again = Results(tmp_path / "mutants.json")
    assert [row["status"] for row in again.mutants] == ["noticed", "noticed"]
    assert set(again.of(1)) == {("pscd/losses.py", "f", "a", "b0")}


def test_a_larger_sample_contains_the_smaller_one_and_another_seed_chooses_others():
    source = (ROOT / "pscd/losses.py").read_text()
    small, large, other = (
        {m.key for m in sample("pscd/losses.py", source, seed, n, 0.0)} for seed, n in ((1, 8), (1, 20), (2, 20))
    )
    assert (len(small), len(large)) == (8, 20)
    assert small < large
    assert len(large & other) < 10
    assert len(sample("pscd/losses.py", source, 1, 0, 0.5)) > 100


def test_what_went_unnoticed_is_tried_again_in_the_sample_that_it_is_of(tmp_path):
    results = Results(tmp_path / "mutants.json")
    first, second, third, *_ = mutants_of("pscd/losses.py", (ROOT / "pscd/losses.py").read_text())
    for mutant, seed, status in ((first, 3, "noticed"), (second, 5, "unnoticed"), (third, 6, "equivalent")):
        results.put({**mutant.row, "seed": seed, "status": status})
    results.put({**first.row, "before": "no longer there", "seed": 3, "status": "unnoticed"})
    found = list(_unnoticed(results, _arguments(["--again"])))
    assert found == [(5, second)]
    assert list(_unnoticed(results, _arguments(["--again", "theory"]))) == []


def test_files_have_their_turns():
    losses, rng = (mutants_of(file, (ROOT / file).read_text())[:4] for file in ("pscd/losses.py", "pscd/rng.py"))
    plan = [(3, mutant) for mutant in (*losses, *rng)]
    files = [mutant.file for _, mutant in in_turn(plan, 0, Counter({"pscd/losses.py": 2}))]
    assert files[:2] == ["pscd/rng.py"] * 2
    assert all(set(files[i : i + 2]) == {"pscd/rng.py", "pscd/losses.py"} for i in (2, 4))
    assert files[6:] == ["pscd/losses.py"] * 2
    assert sorted(m.line for _, m in in_turn(plan, 0, Counter())) == sorted(m.line for _, m in plan)


def compiled(text):
    return compile(text, "some.py", "exec")


FUNCTIONS = """
LIMIT = [v + 1 for v in range(3)]

class Box:
    side = 1
    def area(self, power=2):
        return (lambda: self.side ** power)()

def twice(x):
    return 2 * x
"""


@pytest.mark.parametrize(
    ("before", "after", "names"),
    [
        ("2 * x", "3 * x", ["twice"]),
        ("side ** power", "side * power", ["Box.area"]),
        ("return (lambda: self.side ** power)()", "pass", ["Box.area"]),
        ("2 * x", "2  *  x", []),
        ("power=2", "power=3", None),  # defaults, attributes and constants are there once the file is imported
        ("side = 1", "side = True", None),
        ("v + 1", "v - 1", None),
    ],
)
def test_code_can_be_exchanged_within_functions_only(before, after, names):
    found = changed_functions(compiled(FUNCTIONS), compiled(FUNCTIONS.replace(before, after)))
    assert found is None if names is None else list(found) == names


def test_live_functions_take_on_the_code_of_a_mistake(tmp_path):
    """Wherever they are: behind a decorator, in a class, bound to another name."""
    file = str(tmp_path / "some.py")
    source = (
        "import functools\n\n@functools.cache\ndef early(x):\n    return x + 1\n\nONE = early(0)\n\n"
        "@functools.cache\ndef late(x):\n    return x * 3\n\nclass A:\n    @property\n    def b(self):\n"
        "        return 5\n"
    )
    scope = {}
    exec(compile(source, file, "exec"), scope)
    live = Live(str(tmp_path), {f"{file}::early"})
    assert live.exchange(file, source, source.replace("x * 3", "x - 3"))
    assert scope["late"](10) == 7
    assert live.exchange(file, source, source.replace("5", "6"))
    assert scope["A"]().b == 6
    assert not live.exchange(file, source, source.replace("x + 1", "x + 2"))  # called while it was imported
    assert not live.exchange(file, source, source.replace("early(0)", "early(1)"))


PLANT = """
import json, sys
from pathlib import Path
import pytest, torch
from mutation import bench as tool
from mutation.changes import Mutant
from mutation.selection import Map

folder = Path(sys.argv[1])
ran, slow = folder / "ran.txt", folder / "slow.txt"
FILE, TEST = "pscd/version.py", "tests/test_planted.py"
bench = tool.Bench(folder, Map(folder / "map.json"), [TEST])
sound = "__version__ = 'right'\\n\\ndef answer():\\n    return 42\\n\\ndef other():\\n    return 1\\n"
(bench.root / FILE).write_text(sound)
(bench.root / TEST).write_text(f'''
from pathlib import Path
import pscd.version

state = []

def test_a_quiet_one():
    state.append(1)

def test_b_after_others():  # fails because of what ran before it
    assert not state

def test_c_at_first():  # fails once
    with open("{ran}", "a+") as file:
        file.write("x")
        file.seek(0)
        assert file.read() != "x"

def test_d_slow():
    while Path("{slow}").exists():
        pass

def test_e_it():
    assert pscd.version.__version__ != "wrong"
    assert pscd.version.answer() == 42
    assert pscd.version.other() == 1
''')
names = [f"{TEST}::test_{name}" for name in ("a_quiet_one", "b_after_others", "c_at_first", "d_slow", "e_it")]
calls = [f"{FILE}::answer", f"{FILE}::other"]
bench.map.keep(bench.root, TEST, {name: {"seconds": 0.1, "calls": calls} for name in names})
for function, text, is_slow in json.loads(sys.argv[2]):
    tool.PATIENCE = (2.0 if "while" in text or is_slow else 60.0, 1.0)
    tool.IMPORTING = 10.0
    ran.write_text("")
    slow.touch() if is_slow else slow.unlink(missing_ok=True)
    row = bench.judge(Mutant(FILE, function, 1, "kind", "a", "b", text or sound), [TEST])
    print(json.dumps([row["noticed_by"], [name.split("_")[2] for name in row["doubted"]]]))
print(json.dumps((bench.root / FILE).read_text() == sound))
"""
OTHER = "\n\ndef other():\n    return 1\n"
WRONG_ANSWER = "__version__ = 'right'\n\ndef answer():\n    return 43" + OTHER
NO_ANSWER = "__version__ = 'right'\n\ndef answer():\n    while True: pass" + OTHER
WRONG_OTHER = "__version__ = 'right'\n\ndef answer():\n    return 42\n\ndef other():\n    return 2\n"


@pytest.mark.slow
def test_a_planted_mistake_is_noticed_and_nothing_is_left_behind(tmp_path):
    """By nobody but a test that passes without it, fails each time and is not merely slow."""
    it = "tests/test_planted.py::test_e_it"
    planted = {
        ("", "", False): ["", "bc"],
        ("", "__version__ = 'wrong'\n", False): [it, "bc"],
        ("", "1 +\n", False): ["exit code 4", ""],
        ("", "while True: pass\n", False): ["too slow", ""],
        ("other", WRONG_OTHER, False): [it, "bc"],
        ("answer", "", False): ["", "bc"],  # the mistake before is gone
        ("answer", WRONG_ANSWER, False): [it, "bc"],
        ("answer", NO_ANSWER, False): ["too slow", "bc"],
        ("answer", WRONG_ANSWER, True): [it, "bcd"],
    }
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PLANT, str(tmp_path), json.dumps(list(planted))],
        env=environment,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    *found, unchanged = [json.loads(line) for line in done.stdout.splitlines()]
    assert [[by, "".join(doubted)] for by, doubted in found] == list(planted.values())
    assert unchanged
