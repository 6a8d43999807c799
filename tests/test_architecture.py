"""The layers of the package, its budgets and its boundaries: rules that keep every part readable without the others."""

import ast
import graphlib
import json
import os
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "pscd"

# A layer is a sub-package, or a module beside them. It may import from the layers above it in this list, and from
# itself; layers on one line do not import each other.
LAYERS = [
    {"errors", "version"},
    {"types"},
    {"coordinates", "distributed", "extensions", "files", "html", "progress", "rng"},
    {"parts", "run_folder", "tables"},
    {"losses", "metrics"},
    {"discrete", "exact"},  # pure, as those before: neither samplers nor C++
    {"fast"},
    {"mixtures"},
    {"data", "energies"},
    {"sampling"},
    {"objectives"},
    {"config"},
    {"chains", "model_file"},
    {"model"},
    {"recipes"},
    {"training"},
    {"images", "runs"},
    {"detector", "evaluation"},
    {"engines", "loading", "plots", "report"},
    {"cli"},
    {"__main__"},
]
ONLY_IN = {"matplotlib": {"plots.py"}, "argparse": {"cli"}, "altair": {"report/charts.py"}}

# Budgets. Where a package has a number of its own, it is that of today, and may only fall to that of most.
LINES = 24_000
CONSTANTS = 131  # the number only falls
PACKAGE_LINES = {"(most)": 2_500, "tables": 2_930}
FILE_LINES = 350  # losses.py and exact.py are one idea each and exempt
LONG_DOCSTRINGS = 0  # of names that are not exported


def modules():
    return sorted(p for p in PACKAGE.rglob("*.py") if p != PACKAGE / "__init__.py")


def layer(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def name_of(path):
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@cache
def tree(path):
    return ast.parse(path.read_text())


def imported(path):
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module
            if node.module.startswith("pscd"):
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


def height(name):
    lines = [i for i, names in enumerate(LAYERS) if name in names]
    assert len(lines) == 1, f"{name} belongs to one line of LAYERS"
    return lines[0]


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_one_way(path):
    for name in imported(path):
        root, *rest = name.split(".")
        if root == "pscd" and rest and rest[0] not in ("__version__", layer(path)):
            assert height(rest[0]) < height(layer(path)), f"{path.relative_to(PACKAGE)} imports {name}"
        if root in ONLY_IN:
            places = {str(path.relative_to(PACKAGE)), layer(path)}
            assert places & ONLY_IN[root], f"{path.relative_to(PACKAGE)} imports {root}"


def test_no_modules_import_each_other_in_a_cycle():
    """Imports inside functions included: they hide a cycle, and do not remove it."""
    names = {name_of(path): path for path in modules()}
    graph = {name: {other for other in imported(path) if other in names} - {name} for name, path in names.items()}
    for others in graph.values():  # `from pscd.tables import layout` imports the module alone
        others -= {other for other in others if any(o.startswith(f"{other}.") for o in others)}
    cycles = []
    while True:
        try:
            graphlib.TopologicalSorter(graph).prepare()
            break
        except graphlib.CycleError as error:
            cycles.append(" <- ".join(error.args[1]))
            graph[error.args[1][1]].discard(error.args[1][0])
    assert not cycles, "\n".join(cycles)


def test_only_the_package_fast_itself_is_imported():
    """Its modules can be rewritten without a look at anything else."""
    for path in modules():
        if layer(path) != "fast":
            inside = [n for n in imported(path) if (PACKAGE / "fast" / f"{n.partition('pscd.fast.')[2]}.py").is_file()]
            assert not inside, f"{path.relative_to(PACKAGE)} imports {inside}"


def lines(path):
    return len(path.read_text().splitlines())


def test_the_package_stays_within_its_budget():
    assert sum(map(lines, PACKAGE.rglob("*.py"))) <= LINES


def test_sub_packages_stay_within_their_budget():
    for folder in (path for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()):
        most = PACKAGE_LINES.get(folder.name, PACKAGE_LINES["(most)"])
        assert sum(map(lines, folder.rglob("*.py"))) <= most, folder.name


def test_files_fit_one_sitting():
    longer = [path for path in modules() if path.name not in ("losses.py", "exact.py") and lines(path) > FILE_LINES]
    assert not longer


def constants(path):
    """Names in capitals that are assigned at the top level of a module, those of a tuple singly."""
    for node in tree(path).body:
        targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", ())
        for target in targets:
            names = target.elts if isinstance(target, ast.Tuple) else [target]
            yield from (name.id for name in names if isinstance(name, ast.Name) and name.id.isupper())


def test_settings_are_fields_and_not_module_constants():
    assert sum(len(list(constants(path))) for path in PACKAGE.rglob("*.py")) <= CONSTANTS


FOREIGN = re.compile(
    r"mnist|cifar|celeba|svhn|quickdraw|adbench|pendigits|keel|pyod|torchebm|ebmkit|miceforest|robpy|cellmcd|\blemma",
    re.IGNORECASE,
)
FLAG = re.compile(r"(?<![\w(-])(?<!torchrun )--[a-z][a-z-]+")  # not `var(--data)` of a style sheet


def matches(pattern, paths):
    return [f"{p.relative_to(ROOT)}: {m[0]}" for p in paths for m in pattern.finditer(p.read_text())]


def test_the_package_names_no_benchmark_data_set_other_library_or_lemma():
    found = matches(FOREIGN, modules())
    assert not found


def test_flags_are_named_by_the_command_line_alone():
    """Errors of the library speak of parameters: who calls it from Python has no flags."""
    found = matches(FLAG, (p for p in modules() if layer(p) not in ("cli", "__main__")))
    assert not found


def test_only_objectives_know_concrete_objectives():
    """Elsewhere their attributes decide (`accepts_labels`, `uses_levels`), so that custom objectives work alike."""
    from pscd.objectives import OBJECTIVES

    concrete = {type(objective).__name__ for objective in OBJECTIVES.values()}
    found = []
    for path in (p for p in modules() if layer(p) != "objectives"):
        for node in ast.walk(tree(path)):
            is_test = isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("isinstance", "issubclass")
            asked = node.args[1] if is_test else node.cls if isinstance(node, ast.MatchClass) else None
            if asked is not None and concrete & {getattr(n, "id", getattr(n, "attr", "")) for n in ast.walk(asked)}:
                found.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not found


def test_studies_are_neither_imported_nor_packaged():
    assert not [path for path in modules() if any(name.split(".")[0] == "studies" for name in imported(path))]
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert setuptools["packages"]["find"]["include"] == ["pscd", "pscd.*"]


def exported_names():
    """Names in `__all__` of pscd and of its sub-packages, public names of modules beside them, and bases of all these.

    The methods of a base are those of the exported class.
    """
    names = set(names_in_all())
    bases = {node.name: node.bases for path in modules() for node in tree(path).body if isinstance(node, ast.ClassDef)}
    while more := {getattr(base, "id", "") for name in names for base in bases.get(name, ())} & set(bases) - names:
        names |= more
    return names


def names_in_all():
    for path in PACKAGE.rglob("__init__.py"):
        for node in tree(path).body:
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
                yield from ast.literal_eval(node.value)
    for path in PACKAGE.glob("*.py"):
        yield from (n.name for n in tree(path).body if getattr(n, "name", "_")[0] != "_")


def definitions(path):
    """Functions, classes and methods of a module: the name of the outermost one and the node."""
    for node in tree(path).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            for inner in ast.walk(node):
                if isinstance(inner, ast.ClassDef | ast.FunctionDef):
                    yield node.name, inner


def test_docstrings_of_names_that_are_not_exported_are_one_line():
    """An example may follow it."""
    exported = exported_names()
    long = []
    for path in modules():
        for outer, node in definitions(path):
            is_exported = outer in exported and not node.name.startswith("_")
            prose = (ast.get_docstring(node) or "").split(">>>")[0].strip()
            if not is_exported and "\n" in prose:
                long.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}")
    assert len(long) <= LONG_DOCSTRINGS, "\n".join(long)


READ_AND_ENCODE = """
import contextlib, io, json, tempfile
from pathlib import Path
from scripts import trace_walk
counts = {}
with tempfile.TemporaryDirectory() as folder:
    for name, call, table in trace_walk.walks(Path(folder)):
        if table is not None:
            with contextlib.redirect_stdout(io.StringIO()):
                walk = trace_walk.trace(call, table)
            counts[name] = [walk.count("tables.text", "TextSource.blocks"), walk.count("tables.encode", "encode")]
print(json.dumps(counts))
"""


def test_a_command_reads_and_encodes_its_file_once():
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", READ_AND_ENCODE]
    done = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True)
    assert json.loads(done.stdout) == {"train": [1, 1], "detect": [1, 1]}


# Modules that hold nothing to test, or whose words the tests of their neighbours check.
WITHOUT_TESTS = {
    *("__main__", "errors", "types", "version", "cli/common", "objectives/protocol"),
    *("sampling/protocol", "sampling/starts", "training/state"),
}


def test_every_module_has_a_test_file():
    tests = Path(__file__).parent
    missing = []
    for path in modules():
        name = path.relative_to(PACKAGE).with_suffix("")
        if name.stem != "__init__" and str(name) not in WITHOUT_TESTS:
            own = tests / name.parent / f"test_{name.stem}.py"
            of_its_package = tests / name.parent / f"test_{name.parent.name}.py"
            if not own.is_file() and not of_its_package.is_file():
                missing.append(str(name))
    assert not missing


def test_importing_the_library_is_light():
    """What costs seconds to load is loaded where it is used; a version number needs none of it."""
    heavy = ("matplotlib", "pandas", "sklearn", "PIL", "pooch", "altair", "jinja2")
    code = (
        "import sys, pscd, pscd.__main__; print('torch' in sys.modules); "
        f"pscd.fit, pscd.evaluate, pscd.train; print([m for m in {heavy} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["False", "[]"]


def test_every_public_name_can_be_loaded():
    import pscd

    assert set(pscd._HOME_OF) == set(pscd.__all__) - {"__version__"}
    for name in pscd.__all__:
        assert getattr(pscd, name) is not None
    assert sorted(pscd.__all__) == dir(pscd)
    assert pscd.exact.grid is not None  # a module
    with pytest.raises(AttributeError, match="no attribute 'nothing_of_the_kind'"):
        _ = pscd.nothing_of_the_kind
