"""Plant mistakes in the package, one at a time, and count how many of them the tests notice.

    python scripts/planted_mistakes.py --n 40 --seed 1 --only pscd/tables

A mistake is a changed operator, a negated condition, a lost statement, a lost keyword or two swapped arguments, never a
changed constant. Each is planted in a copy of the repository. The tests of the module and those that import it run
first; `--all` runs the whole suite for the mistakes that they miss. Every run with the same seed plants the same.
"""

import argparse
import ast
import copy
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
COPIED = ("pscd", "studies", "tests", "examples", "scripts", "docs", "pyproject.toml", "README.md", "CHANGELOG.md")
OPPOSITE: dict[type[ast.AST], type[ast.AST]] = {
    **{ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq},
    **{ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In},
    **{ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.And: ast.Or, ast.Or: ast.And},
}


def mistakes(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Positions (in the order of `ast.walk`) and kinds of all mistakes that can be planted in a module."""
    skipped = {id(child) for node in ast.walk(tree) if _is_skipped(node) for child in ast.walk(node)}
    for i, node in enumerate(ast.walk(tree)):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Compare | ast.BinOp | ast.BoolOp):
            op = node.ops[0] if isinstance(node, ast.Compare) else node.op
            if type(op) in OPPOSITE and not _is_text(node):
                yield i, "operator"
        elif isinstance(node, ast.If | ast.IfExp | ast.While):
            yield i, "condition"
        elif isinstance(node, ast.AugAssign) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
            yield i, "statement"
        elif isinstance(node, ast.Call) and len(node.args) >= 2 and not any(map(_is_star, node.args[:2])):
            yield i, "arguments"
        elif isinstance(node, ast.Call) and node.keywords and node.keywords[-1].arg:
            yield i, "keyword"


def _is_skipped(node: ast.AST) -> bool:
    """Annotations, error messages and blocks for the type checker change no behaviour that a test should notice."""
    if isinstance(node, ast.If):
        return "TYPE_CHECKING" in ast.unparse(node.test)
    return isinstance(node, ast.Raise | ast.Assert) or (isinstance(node, ast.AnnAssign) and node.value is None)


def _is_text(node: ast.AST) -> bool:
    return any(
        isinstance(n, ast.JoinedStr) or (isinstance(n, ast.Constant) and isinstance(n.value, str))
        for n in ast.walk(node)
    )


def _is_star(node: ast.AST) -> bool:
    return isinstance(node, ast.Starred)


def planted(tree: ast.Module, position: int, kind: str) -> tuple[ast.Module, str]:
    """A copy of a module with one mistake, and the mistake in words."""
    tree = copy.deepcopy(tree)
    node: ast.AST = list(ast.walk(tree))[position]
    before = ast.unparse(node).splitlines()[0]
    if isinstance(node, ast.Compare):
        node.ops[0] = OPPOSITE[type(node.ops[0])]()  # type: ignore[assignment]
    elif isinstance(node, ast.BinOp | ast.BoolOp):
        node.op = OPPOSITE[type(node.op)]()  # type: ignore[assignment]
    elif isinstance(node, ast.If | ast.IfExp | ast.While):
        node.test = ast.UnaryOp(ast.Not(), node.test)
    elif kind == "arguments" and isinstance(node, ast.Call):
        node.args[0], node.args[1] = node.args[1], node.args[0]
    elif kind == "keyword" and isinstance(node, ast.Call):
        del node.keywords[-1]
    else:
        for parent in ast.walk(tree):
            for body in (getattr(parent, name, None) for name in ("body", "orelse", "finalbody")):
                if isinstance(body, list) and node in body:
                    body[body.index(node)] = ast.Pass()
        return ast.fix_missing_locations(tree), f"line {node.lineno}: lost {before}"  # type: ignore[attr-defined]
    after = ast.unparse(node).splitlines()[0]
    return ast.fix_missing_locations(tree), f"line {node.lineno}: {before}  ->  {after}"  # type: ignore[attr-defined]


def tests_of(module: Path, root: Path) -> list[str]:
    """Test files of a module: those named like it or its package, then the shortest ones that import it."""
    relative = module.relative_to(root / "pscd").with_suffix("")
    tests = root / "tests" / relative.parent
    near = [tests / f"test_{relative.name}.py", tests / f"test_{relative.parent.name}.py"]
    dotted = ".".join(("pscd", *relative.parts)).removesuffix(".__init__")
    users = [path for path in (root / "tests").rglob("test_*.py") if dotted in path.read_text()]
    users.sort(key=lambda path: path.stat().st_size)
    files = [*(path for path in near if path.is_file()), *users[:6]]
    return [str(path) for path in dict.fromkeys(files)] or [str(tests)]


def noticed(root: Path, tests: list[str], *more: str) -> bool:
    """Whether tests fail, or do not end in five minutes."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *more, *tests]
    environment = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(command, cwd=root, env=environment, capture_output=True, timeout=300, check=False)
        return done.returncode == 1
    except subprocess.TimeoutExpired:
        return True


def main() -> None:
    """Plant, test, and print a line for each mistake."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=40, help="mistakes to plant (default: 40)")
    parser.add_argument("--seed", type=int, default=0, help="of the sample (default: 0)")
    parser.add_argument("--only", default="pscd", help="folder or file to plant in (default: pscd)")
    parser.add_argument("--all", action="store_true", help="run all tests for what the nearest ones miss")
    args = parser.parse_args()
    files = sorted(p for p in ((ROOT / args.only).rglob("*.py") if (ROOT / args.only).is_dir() else [ROOT / args.only]))
    places = [(path, *place) for path in files for place in mistakes(ast.parse(path.read_text()))]
    sample = random.Random(args.seed).sample(places, min(args.n, len(places)))
    n_noticed = 0
    with TemporaryDirectory() as folder:
        root = Path(folder)
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, root / name, ignore=shutil.ignore_patterns("__pycache__", "results"))
            else:
                shutil.copy(source, root / name)
        for i, (path, position, kind) in enumerate(sample, 1):
            name = path.relative_to(ROOT)
            tree, words = planted(ast.parse(path.read_text()), position, kind)
            (root / name).write_text(ast.unparse(tree))
            is_noticed = noticed(root, tests_of(root / name, root)) or (
                args.all and noticed(root, ["tests"], "-n", "2")
            )
            shutil.copy(path, root / name)
            n_noticed += is_noticed
            print(f"{i:3} {'noticed' if is_noticed else 'MISSED '}  {name} {words}", flush=True)
    print(f"{n_noticed} of {len(sample)} noticed")


if __name__ == "__main__":
    main()
