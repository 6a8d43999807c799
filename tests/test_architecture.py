"""The rooms of the house: imports between them go one way, so that any room can be read without those above it."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "pscd"

# A room is a sub-package, or a module beside them. It may import from the rooms above it in this list, and from itself;
# rooms on one line do not import each other.
ROOMS = [
    {"errors", "version"},
    {"types"},
    {"coordinates", "distributed", "extensions", "files", "html", "progress", "rng"},
    {"parts", "run_folder", "tables"},
    {"losses", "metrics"},
    {"discrete", "exact"},  # pure, as those before: neither samplers nor C++
    {"fast"},
    {"mixtures"},
    {"normalise"},
    {"data", "energies"},
    {"sampling"},
    {"objectives"},
    {"config"},
    {"model", "presets"},
    {"recipes"},
    {"training"},
    {"images", "runs"},
    {"detector", "evaluation"},
    {"engines", "plots", "report"},
    {"cli"},
    {"__main__"},
]
ONLY_IN = {"matplotlib": {"plots.py"}, "argparse": {"cli"}, "altair": {"report/charts.py"}}


def modules():
    return sorted(p for p in PACKAGE.rglob("*.py") if p != PACKAGE / "__init__.py")


def room(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "pscd":
            yield from (f"pscd.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names if node.module == "pscd.fast")


def height(name):
    found = [i for i, names in enumerate(ROOMS) if name in names]
    assert len(found) == 1, f"{name} belongs to one line of ROOMS"
    return found[0]


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_one_way(path):
    for name in imported(path):
        root, *rest = name.split(".")
        if root == "pscd" and rest and rest[0] not in ("__version__", room(path)):
            assert height(rest[0]) < height(room(path)), f"{path.relative_to(PACKAGE)} imports {name}"
        if root in ONLY_IN:
            places = {str(path.relative_to(PACKAGE)), room(path)}
            assert places & ONLY_IN[root], f"{path.relative_to(PACKAGE)} imports {root}"


def test_only_the_door_of_the_fast_room_is_used():
    """What is behind it can be rewritten without a look at anything else."""
    for path in modules():
        if room(path) != "fast":
            behind = [name for name in imported(path) if (PACKAGE / "fast" / f"{name.split('.')[-1]}.py").is_file()]
            assert not behind, f"{path.relative_to(PACKAGE)} imports {behind}"


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_files_fit_one_sitting(path):
    """Documentation does not count: nobody should leave out an `Args` to keep a file short."""
    source = path.read_text()
    nodes = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Module | ast.ClassDef | ast.FunctionDef)]
    docstrings = [node.body[0] for node in nodes if ast.get_docstring(node) is not None]
    documentation = sum(d.end_lineno - d.lineno + 1 for d in docstrings)
    assert len(source.splitlines()) - documentation <= 350


# Cycles that are about to be broken; the set only shrinks.
KNOWN_CYCLES = {
    frozenset({"pscd.mixtures.mixed", "pscd.mixtures.cells"}),
    frozenset({"pscd.detector.saving", "pscd.detector.estimator"}),
    frozenset({"pscd.cli.scoring", "pscd.cli.detect"}),
    frozenset({"pscd.cli.cleaning", "pscd.cli.clean"}),
}


def imported_modules(path, known):
    """The modules that a file imports; for `from package import module` that is not the package itself."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from (name if name in known else node.module for name in names)


def test_no_import_cycles():
    """Imports inside functions and for type checkers count: they hide a cycle, they do not remove it."""
    known = {".".join(p.relative_to(PACKAGE.parent).with_suffix("").parts): p for p in modules()}
    known = {name.removesuffix(".__init__"): path for name, path in known.items()}
    reachable = {name: set(imported_modules(path, known)) & known.keys() - {name} for name, path in known.items()}
    for middle in known:  # the transitive closure
        for name in known:
            if middle in reachable[name]:
                reachable[name] |= reachable[middle]
    cycles = {frozenset(n for n in reachable[m] if m in reachable[n]) for m in known if m in reachable[m]}
    assert cycles <= KNOWN_CYCLES


def test_only_objectives_know_concrete_objectives():
    """Elsewhere their attributes decide (`accepts_labels`, `uses_levels`), so that custom objectives work alike."""
    from pscd.objectives import OBJECTIVES

    kinds = {type(objective).__name__ for objective in OBJECTIVES.values()}
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and getattr(node.func, "id", "") == "isinstance"
                and room(path) != "objectives"
            ):
                names = {name.id for name in ast.walk(node.args[1]) if isinstance(name, ast.Name)}
                assert not names & kinds, f"{path.relative_to(PACKAGE)}:{node.lineno}"


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
            of_its_room = tests / name.parent / f"test_{name.parent.name}.py"
            if not own.is_file() and not of_its_room.is_file():
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


def test_every_public_name_has_a_home():
    import pscd

    assert set(pscd._HOME_OF) == set(pscd.__all__) - {"__version__"}
    for name in pscd.__all__:
        assert getattr(pscd, name) is not None
    assert set(pscd.__all__) <= set(dir(pscd))
    assert pscd.exact.grid is not None  # a room
    with pytest.raises(AttributeError, match="no attribute 'nothing_of_the_kind'"):
        _ = pscd.nothing_of_the_kind
