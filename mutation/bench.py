"""A copy of the project in which one file at a time is wrong, and processes that are ready to test it.

Importing everything and collecting the tests takes far longer than the few tests that a mistake has to meet. So there
is a warm process that has done both and forks for each mistake, whose child exchanges the code of the functions in
question (`live.py`). Where that is not possible, a child of this process, which has imported everything but the package
itself, starts pytest anew.
"""

import contextlib
import gc
import json
import math
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO

import pytest
from _pytest.main import pytest_runtestloop

from mutation.changes import Mutant
from mutation.files import NOT_ASKED
from mutation.live import Live
from mutation.selection import Chosen, Map, Recorder, Tracer

ROOT = Path(__file__).resolve().parents[1]
COPIED = ("pscd", "tests", "scripts", "examples", "benchmarks", "docs", "pyproject.toml", "README.md", "CHANGELOG.md")
PRELOADED = ("torch", "numpy", "pandas", "polars", "scipy.stats", "sklearn.mixture", "sklearn.metrics",
             "hypothesis.strategies", "torch._dynamo", "safetensors.torch", "pooch", "PIL.Image")  # fmt: skip
# Of what is preloaded, pytest complains that it cannot rewrite it; nobody needs that.
PYTEST = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:random_order", "--assert=plain", "--tb=short",
          "-W", "ignore::pytest.PytestAssertRewriteWarning")  # fmt: skip
PATIENCE = (8.0, 4.0)  # a mistake that takes longer than so many seconds, plus so many times the usual, was noticed
IMPORTING = 30.0  # seconds more for a process that has to import everything, or to compile
STILL = 120.0  # seconds without any progress, after which a process is stopped
CANNOT = 99  # exit code of a child that could not exchange the code
FAILED, SLOW = "failed", "too slow"  # what stops the tests, other than the exit code of a crash


def preload() -> None:
    """Import what takes long once, for all children; the package itself is imported by each."""
    for name in PRELOADED:
        __import__(name)
    import torch

    weight = torch.zeros(1)
    weight.grad = torch.zeros(1)
    torch.optim.Adam([weight]).step()  # imports half of torch on first use; a backward pass would forbid to fork


class Bench:
    """A copy of the project; use it as a context, which stops its processes at the end.

    Args:
        folder: where to put the copy.
        known: which test calls what.
        asked: test files, the only ones that are asked.
    """

    def __init__(self, folder: Path, known: Map, asked: list[str]) -> None:
        self.map, self.asked = known, asked
        self.root = folder / "project"
        self.root.mkdir()
        for name in COPIED:  # with the times of all files, so that what was compiled before is still valid
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, self.root / name, ignore=shutil.ignore_patterns("*.png"))
            elif (ROOT / name).exists():
                shutil.copy2(ROOT / name, self.root / name)
        self.output, self.stopped = folder / "output.txt", folder / "stopped.txt"
        # Compiled kernels of mistakes must not stay in the user's cache, nor temporary files in everybody's.
        for variable, name in (("XDG_CACHE_HOME", "cache"), ("TMPDIR", "temporary")):
            (folder / name).mkdir()
            os.environ[variable] = str(folder / name)
        tempfile.tempdir = None
        os.environ |= {"PYTHONPATH": str(self.root), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
                       "PYTHONDONTWRITEBYTECODE": "1"}  # fmt: skip
        sys.dont_write_bytecode = True
        self.options = [*PYTEST, f"--basetemp={folder / 'pytest'}"]
        self.warm: Warm | None = None

    def __enter__(self) -> "Bench":
        """Nothing is started before it is needed."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the warm process."""
        if self.warm:
            self.warm.stop()

    def start(self) -> "Warm":
        """The warm process, which takes a while to warm up."""
        if not self.warm:
            self.warm = Warm(self.root, [*self.options, *self.asked], self.output)
        return self.warm

    def record(self, file: str) -> list[str]:
        """Find out which test of a file calls what; returns those that fail without any mistake, and are left out."""
        found = self.output.with_name("record.json")
        found.unlink(missing_ok=True)
        self.start().ask(record=file, found=str(found), patience=900)
        if not found.exists():
            raise RuntimeError(f"{file} cannot be run:\n{self.output.read_text()[-3000:]}")
        record = json.loads(found.read_text())
        self.map.keep(self.root, file, record["tests"])
        return record["failed"]

    def judge(self, mutant: Mutant, own: list[str]) -> dict:
        """Run the tests that may notice a mistake.

        A test may fail for other reasons: what ran before it, a timer, a busy machine. So one that seems to notice is
        asked again without the mistake, where it must pass, and with it, where it must fail again. If it does not, the
        tests that come after it are asked.

        Returns:
            A row of the results; `doubted` names the tests that failed, but not because of the mistake.
        """
        self.map.read()  # other processes may have added to it
        tests, usual = self.map.choose_for(mutant, own)
        tests = left = [name for name in tests if name.split("::")[0] in self.asked]
        start, patience = time.monotonic(), PATIENCE[0] + PATIENCE[1] * usual
        doubted: list[str] = []
        while True:
            run = partial(self._run, mutant, own=own, patience=patience)
            how, test = run(left)
            if not how or _confirmed(run, left, how, test):
                break
            doubted.append(test or how)
            left = left[left.index(test) + 1 :] if test else []
        return {
            **mutant.row,
            "status": "noticed" if how else "unnoticed",
            "noticed_by": test if how == FAILED else how,
            "doubted": doubted,
            "tests": len(tests),
            "seconds": round(time.monotonic() - start, 1),
        }

    def _run(
        self, mutant: Mutant, tests: list[str], *, own: list[str], patience: float, planted: bool = True
    ) -> tuple[str, str]:
        """Run tests with or without the mistake, until one fails.

        Returns:
            What stopped them, empty if nothing did; and the test that did it, empty if it was none of them.
        """
        path = self.root / mutant.file
        sound = path.read_text()
        self.stopped.write_text("")
        if mutant.function:
            self.start()  # now: it would import the mistake, and keep it for all that come after
        try:
            path.write_text(mutant.source if planted else sound)
            code = CANNOT
            if mutant.function:
                files = {"file": str(path), "before": sound, "after": mutant.source, "planted": planted}
                code = self.start().ask(tests=tests, patience=patience, stopped=str(self.stopped), **files)
            if code == CANNOT:
                work = partial(_try, self.root, self.options, tests, own, self.stopped)
                code = forked(work, patience + IMPORTING, self.output)
        finally:
            path.write_text(sound)
        test = self.stopped.read_text()
        if code is None:
            return SLOW, test
        return (FAILED if code == 1 and test else f"exit code {code}") if code else "", test if code else ""


def _confirmed(run: Callable[..., tuple[str, str]], tests: list[str], how: str, test: str) -> bool:
    """Whether it was the mistake that stopped the tests: without it they pass, with it they stop again."""
    one_of_each_file = {name.split("::")[0]: name for name in tests}
    so_far = tests[: tests.index(test) + 1] if test else list(one_of_each_file.values())
    if how == SLOW:  # processor time is no matter of chance, and would be spent again
        return not run(so_far, planted=False)[0]
    alone = [test] if test else so_far
    for again in [alone, so_far] if alone != so_far else [alone]:  # alone is quicker, if it fails alone
        if run(again)[0]:
            return not run(again, planted=False)[0]
    return False


def test_files(root: Path) -> list[str]:
    """Test files, and files of the package with examples that are tests."""
    files = [*sorted(root.glob("tests/**/test_*.py"))]
    files += [p for p in sorted(root.glob("pscd/**/*.py")) if ">>>" in p.read_text()]
    names = [str(path.relative_to(root)) for path in files]
    return [name for name in names if not name.startswith(NOT_ASKED)]


def forked(work: Callable[[], int], patience: float, output: Path | None = None) -> int | None:
    """Do work in a forked process; returns its exit code, or None if it takes too long."""
    process = os.fork()
    if process == 0:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(patience), math.ceil(patience) + 1))
        code = 70
        try:
            if output:
                _redirect(output)
            code = work()
        except BaseException:  # a fork must never return into its parent's code
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    last, since = -1.0, time.monotonic()
    while time.monotonic() - since < STILL:
        done, status = os.waitpid(process, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            return None if code in (-signal.SIGXCPU, -signal.SIGKILL) else code
        time.sleep(0.02)
        if time.monotonic() - since < STILL / 2:
            continue
        used = _used(process)
        if used > last:  # on a busy machine it may take long to get there
            last, since = used, time.monotonic()
    os.killpg(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return None


def _used(group: int) -> float:
    """Seconds of processor time of the processes of a group, to tell one that waits for its turn from a deadlock."""
    total = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[2]) == group:
                total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def _redirect(output: Path) -> None:
    with open(output, "wb") as sink:
        os.dup2(sink.fileno(), 1)
        os.dup2(sink.fileno(), 2)


def _enter(root: Path) -> None:
    os.chdir(root)
    sys.path[:] = [str(root), *(p for p in sys.path if p not in ("", str(ROOT)))]  # the copy, not the project itself


def _try(root: Path, options: list[str], tests: list[str], own: list[str], stopped: Path) -> int:
    """The module's own tests, then its neighbours', whose files need not be imported if that was enough."""
    _enter(root)
    own_files = {name.split("::")[0] for name in own}
    for near in (True, False):
        part = [name for name in tests if (name.split("::")[0] in own_files) == near]
        files = list(dict.fromkeys(name.split("::")[0] for name in part))
        if not part:
            continue
        code = pytest.main([*options, "-x", *files], plugins=[Chosen(part, stopped)])
        if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            return int(code)
    return 0


class Warm:
    """A process with all tests collected that waits for requests.

    Args:
        root: of the project's copy.
        arguments: of pytest.
        output: file for everything that is printed.
    """

    def __init__(self, root: Path, arguments: list[str], output: Path) -> None:
        asking, answering = os.pipe(), os.pipe()
        self.output = output
        self.process = os.fork()
        if self.process == 0:
            try:
                _redirect(output)
                os.close(asking[1])
                os.close(answering[0])
                _enter(root)
                plugin = _Waiting(root, os.fdopen(asking[0]), os.fdopen(answering[1], "w"))
                pytest.main(arguments, plugins=[plugin])
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(0)
        os.close(asking[0])
        os.close(answering[1])
        self.requests, self.answers = os.fdopen(asking[1], "w"), os.fdopen(answering[0])
        if not self.answers.readline():  # it says when it has imported everything, so that no mistake is among it
            raise RuntimeError(f"the tests cannot be collected:\n{output.read_text()[-3000:]}")

    def ask(self, **request: object) -> int | None:
        """Send a request; returns the exit code of the child that did it, or None if it took too long."""
        print(json.dumps(request), file=self.requests, flush=True)
        answer = self.answers.readline()
        if not answer:
            raise RuntimeError(f"the tests cannot be collected:\n{self.output.read_text()[-3000:]}")
        return json.loads(answer)

    def stop(self) -> None:
        """No more requests."""
        self.requests.close()
        os.waitpid(self.process, 0)


class _Waiting:
    """The pytest plugin of the warm process: instead of running tests, it forks for each request."""

    def __init__(self, root: Path, requests: IO[str], answers: IO[str]) -> None:
        self.root, self.requests, self.answers = root, requests, answers
        self.tracer = Tracer(root)
        self.tracer.start()  # what is called from now on is called while things are imported

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Answer requests until there are no more."""
        self.tracer.stop()
        if session.testsfailed:  # nothing could be collected, and everything would seem to be noticed
            raise session.Interrupted("the tests cannot be collected")
        called = {f"{self.root}/{name}" for name in self.tracer.seen}
        live = Live(f"{self.root / 'pscd'}/", called)
        items = {item.nodeid: item for item in session.items}
        gc.collect()
        gc.freeze()  # children leave what is there alone, so that it stays shared
        print("null", file=self.answers, flush=True)
        for line in self.requests:
            request = json.loads(line)
            work = self._record if "record" in request else self._meet
            code = forked(lambda work=work, request=request: work(session, items, live, request), request["patience"])
            print(json.dumps(code), file=self.answers, flush=True)
        return True

    def _record(self, session: pytest.Session, items: dict[str, pytest.Item], live: Live, request: dict) -> int:
        recorder = Recorder(self.root)
        _run(session, [i for n, i in items.items() if n.split("::")[0] == request["record"]], recorder, most=0)
        failed = [name for name in recorder.tests if name in recorder.failed]
        tests = {name: value for name, value in recorder.tests.items() if name not in recorder.failed}
        Path(request["found"]).write_text(json.dumps({"tests": tests, "failed": failed}))
        return 0

    def _meet(self, session: pytest.Session, items: dict[str, pytest.Item], live: Live, request: dict) -> int:
        if not live.exchange(request["file"], request["before"], request["after"]):
            return CANNOT
        if not request["planted"]:  # a child of the same kind as that with the mistake
            live.exchange(request["file"], request["after"], request["before"])
        chosen = Chosen(request["tests"], Path(request["stopped"]))
        return _run(session, [items[name] for name in request["tests"] if name in items], chosen, most=1)


def _run(session: pytest.Session, items: list[pytest.Item], plugin: object, most: int) -> int:
    """Run tests that were collected before; returns 1 if one fails."""
    session.items, session.testscollected = items, len(items)
    session.config.option.maxfail = most
    session.config.pluginmanager.register(plugin)
    with contextlib.suppress(session.Failed):
        pytest_runtestloop(session)
    return int(session.testsfailed > 0)
