"""Plant mistakes and count those that the tests notice: `python -m mutation --help`."""

import argparse
import json
import math
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import tomllib
import traceback
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path

from tqdm import tqdm

from mutation.changes import Mutant, mutants_of
from mutation.selection import Chosen, Map, Recorder

ROOT = Path(__file__).resolve().parents[1]
HERE = ROOT / "mutation"
MAP = ROOT / ".mutants" / "tests.json"
RESULTS = ROOT / "docs" / "results" / "mutants.json"
COPIED = ("pscd", "tests", "scripts", "examples", "benchmarks", "docs", "pyproject.toml", "README.md", "CHANGELOG.md")
PRELOADED = ("torch", "pytest", "numpy", "pandas", "scipy.stats", "sklearn.mixture", "sklearn.metrics",
             "hypothesis.strategies", "torch._dynamo", "safetensors.torch", "tqdm", "pooch", "PIL.Image")  # fmt: skip
# Of what is preloaded, pytest complains that it cannot rewrite it; nobody needs that.
PYTEST = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-W", "ignore::pytest.PytestAssertRewriteWarning")
BUDGET = 10.0  # seconds of tests for each mistake, after which no neighbour is asked any more
PATIENCE = (20.0, 6.0)  # a mistake that takes longer than so many seconds, plus so many times the usual, was noticed
BUSY = 10.0  # by how much a busy machine may stretch the processor's seconds

# Each file with the test files that are its own; others are found by what they call.
FILES = {
    "pscd/losses.py": ["tests/test_losses.py"],
    "pscd/sampling/buffer.py": ["tests/sampling/test_buffer.py"],
    "pscd/sampling/jumps.py": ["tests/sampling/test_jumps.py", "tests/sampling/test_exactness.py"],
    "pscd/sampling/langevin.py": ["tests/sampling/test_sampling.py", "tests/sampling/test_exactness.py"],
    "pscd/sampling/mala.py": ["tests/sampling/test_sampling.py", "tests/sampling/test_exactness.py"],
    "pscd/sampling/proposals.py": ["tests/sampling/test_sampling.py"],
    "pscd/sampling/protocol.py": ["tests/sampling/test_sampling.py", "tests/sampling/test_exactness.py"],
    "pscd/sampling/starts.py": ["tests/sampling/test_starts.py"],
    "pscd/mixtures/background.py": ["tests/mixtures/test_background.py"],
    "pscd/mixtures/groups.py": ["tests/mixtures/test_groups.py"],
    "pscd/mixtures/mixture.py": ["tests/mixtures/test_mixture.py"],
    "pscd/mixtures/neighbours.py": ["tests/mixtures/test_neighbours.py"],
    "pscd/mixtures/robust.py": ["tests/mixtures/test_robust.py"],
    "pscd/mixtures/ties.py": ["tests/mixtures/test_ties.py"],
    "pscd/objectives/f_ebm.py": ["tests/objectives/test_objectives.py", "tests/training/test_one_update.py"],
    "pscd/objectives/flow_noise.py": ["tests/objectives/test_flow_noise.py"],
    "pscd/objectives/gamma.py": ["tests/objectives/test_objectives.py", "tests/training/test_one_update.py"],
    "pscd/objectives/nce.py": ["tests/objectives/test_objectives.py", "tests/training/test_one_update.py"],
    "pscd/objectives/protocol.py": ["tests/objectives/test_objectives.py", "tests/training/test_one_update.py"],
    "pscd/objectives/score_matching.py": ["tests/objectives/test_objectives.py", "tests/training/test_one_update.py"],
    "pscd/objectives/trimmed.py": ["tests/objectives/test_objectives.py", "tests/training/test_one_update.py"],
    "pscd/training/checkpoint.py": ["tests/training/test_checkpoint.py"],
    "pscd/training/guard.py": ["tests/training/test_guard.py"],
    "pscd/training/held_out.py": ["tests/training/test_held_out.py"],
    "pscd/training/initial.py": ["tests/training/test_initial.py"],
    "pscd/training/interrupt.py": ["tests/training/test_interrupt.py"],
    "pscd/training/loop.py": ["tests/training/test_loop.py", "tests/training/test_one_update.py"],
    "pscd/training/prepare.py": ["tests/training/test_prepare.py"],
    "pscd/model.py": ["tests/test_model.py"],
    "pscd/distributed.py": ["tests/test_distributed.py"],
    "pscd/exact.py": ["tests/test_exact.py"],
    "pscd/discrete.py": ["tests/test_discrete.py"],
    "pscd/metrics.py": ["tests/test_metrics.py"],
    "pscd/theory.py": ["tests/test_theory.py"],
    "pscd/normalise.py": ["tests/test_normalise.py"],
    "pscd/coordinates.py": ["tests/test_coordinates.py"],
    "pscd/config.py": ["tests/test_config.py"],
    "pscd/presets.py": ["tests/test_presets.py"],
    "pscd/rng.py": ["tests/test_rng.py"],
    "pscd/detector/gaussian.py": ["tests/detector/test_gaussian.py"],
    "pscd/detector/numbers.py": ["tests/detector/test_numbers.py", "tests/detector/test_estimator.py"],
    "pscd/detector/estimator.py": ["tests/detector/test_estimator.py"],
    "pscd/data/__init__.py": ["tests/data/test_rows.py"],
    "pscd/data/image_formats.py": ["tests/data/test_image_formats.py"],
    "pscd/data/noise.py": ["tests/data/test_noise.py"],
    "pscd/data/pixels.py": ["tests/data/test_pixels.py"],
    "pscd/data/tables.py": ["tests/data/test_tables.py"],
    "pscd/data/toys.py": ["tests/data/test_toys.py"],
    "pscd/fast/kernels.cpp": [
        "tests/fast/test_cpp.py",
        "tests/fast/test_gradients.py",
        "tests/fast/test_sequence.py",
        "tests/properties/test_losses.py",
    ],
}
# Tests of whole programs, which take long and say little about one line.
NOT_ASKED = ("tests/paper/", "tests/benchmarks/", "tests/baselines/", "tests/examples/", "tests/mutation/",
             "tests/test_packaging.py", "tests/test_architecture.py", "tests/test_docstrings.py")  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    """Run the command; the exit code is 1 if a mistake with a name went unnoticed."""
    args = _arguments(argv)
    os.environ.update(OMP_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1")
    if args.report:
        return _write(json.loads(RESULTS.read_text())["mutants"], args)
    _preload()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        bench = Bench(Path(folder))
        bench.record(Map(MAP), args.files, everything=args.record)
        return _named(bench, args) if args.named else _sampled(bench, args)


def _preload() -> None:
    """Import what takes long once, for all children; the package itself is imported by each."""
    for name in PRELOADED:
        __import__(name)
    import torch

    weight = torch.zeros(1)
    weight.grad = torch.zeros(1)
    torch.optim.Adam([weight]).step()  # imports half of torch on first use; a backward pass would forbid to fork


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("mutation", description=__doc__)
    parser.add_argument("files", nargs="*", help="parts of file names, such as sampling/ ; all of the list by default")
    parser.add_argument("--sample", type=int, default=20, metavar="N", help="mistakes a file, chosen at random (20)")
    parser.add_argument("--seed", type=int, default=0, help="of the choice (0)")
    parser.add_argument("--named", action="store_true", help="the mistakes of mutation/named.toml instead")
    parser.add_argument("--fresh", action="store_true", help="try again what was noticed before, too")
    parser.add_argument("--record", action="store_true", help="find out anew what every changed test file calls")
    parser.add_argument("--report", action="store_true", help="only write the table anew")
    return parser.parse_args(argv)


class Bench:
    """A copy of the project in which one file at a time is wrong.

    Args:
        folder: where to put the copy.
    """

    def __init__(self, folder: Path) -> None:
        self.root = folder / "project"
        self.root.mkdir()
        ignore = shutil.ignore_patterns("__pycache__", "*.png")
        for name in COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, self.root / name, ignore=ignore)
            elif (ROOT / name).exists():
                shutil.copy(ROOT / name, self.root / name)
        self.output = folder / "output.txt"
        # Compiled kernels of mistakes must not stay in the user's cache.
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
        os.environ["PYTHONPATH"] = str(self.root)

    def record(self, known: Map, wanted: list[str], *, everything: bool) -> None:
        """Find out which test calls what: in all files at first or on demand, then in those that are asked first."""
        self.map = known
        files = [str(p.relative_to(self.root)) for p in sorted(self.root.glob("tests/**/test_*.py"))]
        files = [f for f in files if not f.startswith(NOT_ASKED)]
        known.files = {name: value for name, value in known.files.items() if name in files}
        first = {own for file in _chosen(wanted) for own in FILES[file]}
        stale = [f for f in known.stale(self.root, files) if f in first or everything or not known.files]
        for file in (bar := tqdm(stale, desc="recording tests", leave=False)):
            bar.set_postfix_str(file)
            found = self.output.with_name("record.json")
            found.unlink(missing_ok=True)
            code = self.child(lambda file=file, found=found: _record(self.root, file, found), patience=900)
            if code != 0:
                raise SystemExit(f"{file} cannot be run:\n{self.output.read_text()[-3000:]}")
            record = json.loads(found.read_text())
            for name in record["failed"]:  # it depends on where it is run, and would notice anything
                bar.write(f"left out, since it fails without any mistake: {name}", file=sys.stderr)
            known.keep(self.root, file, record["tests"])

    def child(self, work: Callable[[], int], patience: float) -> int | None:
        """Do work in a forked process, which starts with everything imported; None if it takes too long."""
        process = os.fork()
        if process == 0:
            os.setsid()
            resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(patience), math.ceil(patience) + 1))
            with open(self.output, "wb") as sink:
                os.dup2(sink.fileno(), 1)
                os.dup2(sink.fileno(), 2)
            code = 70
            try:
                os.chdir(self.root)
                sys.path.insert(0, str(self.root))
                code = work()
            except BaseException:  # a fork must never return into its parent's code
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        start = time.monotonic()
        while time.monotonic() - start < BUSY * patience:
            done, status = os.waitpid(process, os.WNOHANG)
            if done:
                code = os.waitstatus_to_exitcode(status)
                return None if code in (-signal.SIGXCPU, -signal.SIGKILL) else code
            time.sleep(0.02)
        os.killpg(process, signal.SIGKILL)
        os.waitpid(process, 0)
        return None

    def judge(self, mutant: Mutant, own: list[str]) -> dict:
        """Run the tests that may notice a mistake; returns a row of the results."""
        tests, usual = self.map.choose(mutant.file, mutant.function, own, BUDGET)
        path = self.root / mutant.file
        sound = path.read_text()
        failed = self.output.with_name("failed.txt")
        failed.write_text("")
        start = time.monotonic()
        try:
            path.write_text(mutant.source)
            code = self.child(lambda: _try(tests, own, failed), PATIENCE[0] + PATIENCE[1] * usual)
        finally:
            path.write_text(sound)
        noticed = "too slow" if code is None else failed.read_text() or (f"exit code {code}" if code else "")
        return {
            **{name: getattr(mutant, name) for name in ("file", "function", "line", "kind", "before", "after")},
            "status": "noticed" if noticed else "unnoticed",
            "noticed_by": noticed,
            "tests": len(tests),
            "seconds": round(time.monotonic() - start, 1),
        }


def _record(root: Path, file: str, found: Path) -> int:
    import pytest

    recorder = Recorder(root)
    code = pytest.main([*PYTEST, file], plugins=[recorder])
    failed = [name for name in recorder.tests if name in recorder.failed]
    tests = {name: value for name, value in recorder.tests.items() if name not in recorder.failed}
    found.write_text(json.dumps({"tests": tests, "failed": failed}))
    return 0 if code in (pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED) else int(code)


def _try(tests: list[str], own: list[str], failed: Path) -> int:
    """The module's own tests, then its neighbours', whose files need not be imported if that was enough."""
    import pytest

    for near in (True, False):
        part = [name for name in tests if (name.split("::")[0] in own) == near]
        files = list(dict.fromkeys(name.split("::")[0] for name in part))
        if not part:
            continue
        chosen = Chosen(part)
        code = pytest.main([*PYTEST, "-x", "--tb=no", *files], plugins=[chosen])
        failed.write_text(chosen.failed)
        if code != 0:
            return int(code)
    return 0


def equivalents() -> list[dict[str, str]]:
    """Mistakes that change nothing anybody could notice, each with its reason."""
    return tomllib.loads((HERE / "equivalent.toml").read_text()).get("mutant", [])


def reason(row: dict, known: list[dict[str, str]]) -> str:
    """Why a mistake is equivalent; empty if it is not known to be. `*` in the list stands for any text."""
    for entry in known:
        names = ("file", "function", "before", "after")
        if all(fnmatchcase(row[n], _pattern(entry.get(n, "*"))) for n in names):
            return entry["reason"]
    return ""


def _pattern(text: str) -> str:
    return text.replace("[", "[[]")  # brackets are code, not a choice of characters


def _sampled(bench: Bench, args: argparse.Namespace) -> int:
    chosen = {file: FILES[file] for file in _chosen(args.files)}
    rows = json.loads(RESULTS.read_text())["mutants"] if RESULTS.exists() else []
    known = {_key(row): row for row in rows}
    plan = []
    for file, own in chosen.items():
        source = (ROOT / file).read_text()
        everything = mutants_of(file, source)
        shuffled = random.Random(f"{args.seed} {file}").sample(everything, len(everything))  # a larger sample goes on
        plan += [(mutant, own) for mutant in sorted(shuffled[: args.sample], key=lambda m: m.line)]
        for row in rows:  # what is no longer in the code is forgotten
            if row["file"] == file and row["before"] not in {m.before for m in everything}:
                known.pop(_key(row), None)
    left = [(m, own) for m, own in plan if args.fresh or known.get(m.key, {}).get("status") != "noticed"]
    skip = equivalents()
    for mutant, own in (bar := tqdm(left, desc="mistakes")):
        bar.set_postfix_str(mutant.file)
        row = {n: getattr(mutant, n) for n in ("file", "function", "line", "kind", "before", "after")}
        found = {**row, "status": "equivalent"} if reason(row, skip) else bench.judge(mutant, own)
        known[mutant.key] = found
        if found["status"] == "unnoticed":
            bar.write(f"{mutant.file}:{mutant.line} {mutant.function}\n  - {mutant.before}\n  + {mutant.after}")
        _keep(list(known.values()))
    return _write(list(known.values()), args)


def _chosen(parts: list[str]) -> list[str]:
    return [file for file in FILES if not parts or any(part in file for part in parts)]


def _key(row: dict) -> tuple[str, str, str, str]:
    return row["file"], row["function"], row["before"], row["after"]


def _keep(rows: list[dict]) -> None:
    rows = sorted(rows, key=lambda row: (row["file"], row["line"], row["after"]))
    temporary = RESULTS.with_suffix(".tmp")
    temporary.write_text(json.dumps({"command": "python -m mutation", "mutants": rows}, indent=1) + "\n")
    temporary.replace(RESULTS)


def _named(bench: Bench, args: argparse.Namespace) -> int:
    """The mistakes that somebody once made or feared: all of them must be noticed."""
    unnoticed = 0
    for entry in tomllib.loads((HERE / "named.toml").read_text())["mutant"]:
        if args.files and not any(part in entry["file"] for part in args.files):
            continue
        mutant = named_mutant(entry, (ROOT / entry["file"]).read_text())
        row = bench.judge(mutant, entry.get("tests", FILES[entry["file"]]))
        unnoticed += row["status"] != "noticed"
        print(f"{row['status']:10} {entry['name']}  ({row['seconds']} s) {row['noticed_by']}", flush=True)
    print(f"{unnoticed} mistakes with a name went unnoticed")
    return int(unnoticed > 0)


def named_mutant(entry: dict[str, str], source: str) -> Mutant:
    """The mistake of an entry of named.toml; its text must occur in the source exactly once."""
    if source.count(entry["before"]) != 1:
        raise SystemExit(f"named.toml, {entry['name']}: the text must occur once in {entry['file']}")
    mutated = source.replace(entry["before"], entry["after"])
    line = source[: source.index(entry["before"])].count("\n") + 1
    return Mutant(entry["file"], entry.get("function", ""), line, "named", entry["before"], entry["after"], mutated)


def _write(rows: list[dict], args: argparse.Namespace) -> int:
    skip = equivalents()
    for row in rows:
        if row["status"] != "noticed":
            row["reason"] = reason(row, skip)
            row["status"] = "equivalent" if row["reason"] else "unnoticed"
    _keep(rows)
    reading = RESULTS.with_suffix(".reading.md")
    RESULTS.with_suffix(".md").write_text(table(rows) + ("\n" + reading.read_text() if reading.exists() else ""))
    return 0


def table(rows: list[dict]) -> str:
    """The score of each file, and what is left, in Markdown."""
    lines = [
        "# Mistakes that the tests notice", "",
        "`make mutants` plants mistakes in the code, one at a time: an operator, a constant, a condition, an argument,",
        "a statement. A mistake is noticed if one of the tests that call the function fails. Mistakes that change",
        "nothing anybody could notice are listed with their reasons in `mutation/equivalent.toml`; the score is of",
        "all others. Each file has a random sample of them.", "",
        "| file | mistakes | equivalent | noticed | score |", "|---|--:|--:|--:|--:|",
    ]  # fmt: skip

    def line(name: str, part: list[dict]) -> str:
        equal, noticed = (sum(row["status"] == s for row in part) for s in ("equivalent", "noticed"))
        real = len(part) - equal
        return f"| {name} | {len(part)} | {equal} | {noticed} | {noticed / real:.0%} |" if real else ""

    for file in sorted({row["file"] for row in rows}, key=list(FILES).index):
        lines.append(line(f"`{file}`", [row for row in rows if row["file"] == file]))
    lines.append(line("**all**", rows))
    left = [row for row in rows if row["status"] == "unnoticed"]
    if left:
        lines += ["", "## Unnoticed", ""]
        lines += [f"- `{r['file']}`, {r['function'] or 'module'}: `{r['before']}` became `{r['after']}`" for r in left]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
