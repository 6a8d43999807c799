"""Imports go one way, so that any module can be read without those above it."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "pscd"

# A module may import from layers below its own, and from its own.
LAYERS = [
    {"errors", "version", "options", "progress", "threads", "interrupt", "native"},
    {"rng", "losses", "distributed", "layers", "sequences", "gradients"},
    {
        "samplers",
        "buffer",
        "energies",
        "networks",
        "pictures",
        "proposal",
        "columns",
        "gaussian",
        "data",
        "metrics",
        "exact",
        "discrete",
        "theory",
        "objectives",
        "diagnostics",
    },
    {"config"},
    {"checkpoint", "model", "features"},
    {"initial", "presets"},
    {"trainer"},
    {"runs", "estimator", "restoration", "baselines", "bench"},
    {"evaluation"},
    {"plots"},
    {"paper"},
    {"cli", "cli_parts", "cli_tables", "cli_data", "cli_images", "cli_bench"},
    {"__main__"},
]
ONLY_IN = {
    "matplotlib": {"plots.py", "paper/figures.py"},
    "argparse": {"cli.py", "cli_parts.py", "cli_tables.py", "cli_data.py", "cli_images.py", "cli_bench.py"},
}


def modules():
    return sorted(p for p in PACKAGE.rglob("*.py") if p != PACKAGE / "__init__.py")


def owner(path):
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


def layer(name):
    found = [i for i, names in enumerate(LAYERS) if name in names]
    assert len(found) == 1, f"{name} belongs to one layer of this test"
    return found[0]


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_down(path):
    for name in imported(path):
        root, *rest = name.split(".")
        if root == "pscd" and rest and rest[0] != "__version__":
            assert layer(rest[0]) <= layer(owner(path)), f"{path.name} imports {name}"
        if root in ONLY_IN:
            assert str(path.relative_to(PACKAGE)) in ONLY_IN[root], f"{path.name} imports {root}"


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_files_fit_one_sitting(path):
    assert len(path.read_text().splitlines()) <= 400


def test_every_module_has_a_test_file():
    tests = {p.stem.removeprefix("test_") for p in Path(__file__).parent.glob("test_*.py")}
    without = {"errors", "version", "options", "progress", "__main__", "data", "cli_parts"}
    names = {owner(p) for p in modules()} | {p.stem for p in (PACKAGE / "data").glob("[a-z]*.py")}
    assert names - without <= tests


def test_importing_the_library_is_light():
    """matplotlib, pandas, scikit-learn and the like cost seconds and are loaded where they are used."""
    code = (
        "import sys, pscd; print([m for m in ('matplotlib', 'pandas', 'sklearn', 'PIL', 'pooch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
