"""Which tests call which functions, and how long they take, so that a mistake meets only tests that can notice it."""

import fcntl
import hashlib
import json
import os
import sys
from collections.abc import Generator
from pathlib import Path
from types import FrameType

import pytest

from mutation.changes import Mutant

MOST_FILES = 12  # to import for one mistake
BUDGET, MORE = 30.0, 6.0  # seconds of the file's own tests for each mistake, the quickest first, and of all others


class Tracer:
    """Notes the functions of the package that are called.

    Args:
        root: folder of the project.
    """

    def __init__(self, root: Path) -> None:
        self.inside = f"{root / 'pscd'}/"
        self.skip = len(f"{root}/")
        self.seen: set[str] = set()

    def start(self) -> None:
        """Begin anew."""
        self.seen = set()
        sys.settrace(self._on_call)

    def stop(self) -> None:
        """No more notes."""
        sys.settrace(None)

    def _on_call(self, frame: FrameType, event: str, arg: object) -> None:
        code = frame.f_code
        if code.co_filename.startswith(self.inside):
            self.seen.add(f"{code.co_filename[self.skip :]}::{code.co_qualname}")


class Recorder:
    """A pytest plugin that notes the functions of the package that each test calls, and how long it takes.

    What a fixture of a whole file calls counts for every test that uses it, not only for the first.

    Args:
        root: folder of the project.
    """

    def __init__(self, root: Path) -> None:
        self.tracer = Tracer(root)
        self.tests: dict[str, dict] = {}
        self.failed: set[str] = set()
        self.shared: dict[str, tuple[float, set[str]]] = {}  # of fixtures: seconds and calls
        self.within = 0.0  # seconds of fixtures within the current test

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember what fails."""
        if report.failed:
            self.failed.add(report.nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef) -> Generator[None, object, object]:
        """Around each fixture that others may share; those that it uses itself were made before."""
        before, start = self.tracer.seen, processor_time()
        self.tracer.seen = set()
        try:
            return (yield)
        finally:
            calls, seconds = self.tracer.seen, processor_time() - start
            self.tracer.seen = before | calls
            if fixturedef.scope != "function":
                known = self.shared.get(_fixture(fixturedef), (0.0, set()))
                self.shared[_fixture(fixturedef)] = (round(max(known[0], seconds), 3), known[1] | calls)
                self.within += seconds

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Around each test, its fixtures included."""
        start, self.within = processor_time(), 0.0
        self.tracer.start()
        try:
            return (yield)
        finally:
            self.tracer.stop()
            made = getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", {})
            used = {_fixture(one) for several in made.values() for one in several} & self.shared.keys()
            calls = self.tracer.seen.union(*(self.shared[name][1] for name in used))
            self.tests[item.nodeid] = {
                "seconds": round(processor_time() - start - self.within, 3),
                "fixtures": {name: self.shared[name][0] for name in sorted(used)},
                "calls": sorted(name for name in calls if "<lambda>" not in name),
            }


def _fixture(made: pytest.FixtureDef) -> str:
    return f"{made.baseid}::{made.argname}"


class Chosen:
    """A pytest plugin that runs the given tests only, in the given order, and notes the one that stops them.

    Args:
        names: of the tests, as pytest spells them.
        stopped: file for the name of the test that fails or, if the process ends in the middle of one, of that one.
    """

    def __init__(self, names: list[str], stopped: Path) -> None:
        self.place = {name: i for i, name in enumerate(names)}
        self.stopped = stopped
        self.failed = ""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Drop all others."""
        items[:] = sorted((i for i in items if i.nodeid in self.place), key=lambda item: self.place[item.nodeid])

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Note which test runs now."""
        self.stopped.write_text(nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember the first failure."""
        if report.failed and not self.failed:
            self.failed = report.nodeid

    def pytest_runtest_logfinish(self) -> None:
        """It is over, and did not stop anything unless it failed."""
        self.stopped.write_text(self.failed)


class Map:
    """The recorded tests of all test files, kept in a file; only files that have changed are recorded again.

    Args:
        path: of the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files: dict[str, dict] = {}
        self.as_of = 0
        self.read()

    def read(self) -> None:
        """Take what the file holds by now."""
        now = self.path.stat().st_mtime_ns if self.path.exists() else 0
        if now != self.as_of:
            self.files, self.as_of = json.loads(self.path.read_text()), now

    def stale(self, root: Path, files: list[str]) -> list[str]:
        """Test files that were not recorded as they are now."""
        return [f for f in files if self.files.get(f, {}).get("digest") != digest(root / f)]

    def keep(self, root: Path, file: str, tests: dict[str, dict]) -> None:
        """Keep what a `Recorder` found for one test file; other processes may do so at the same time."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.read()
            self.files[file] = {"digest": digest(root / file), "tests": tests}
            temporary = self.path.with_suffix(".tmp")
            temporary.write_text(json.dumps(self.files))
            temporary.replace(self.path)

    def choose_for(self, mutant: Mutant, own: list[str]) -> tuple[list[str], float]:
        """Tests for a mistake, and the seconds that they take."""
        return self.choose(mutant.file, mutant.function, own, BUDGET, MORE)

    def choose(self, file: str, function: str, first: list[str], budget: float, more: float) -> tuple[list[str], float]:
        """Tests that may notice a mistake: those of the module's own test files first, then the quickest.

        Args:
            file: where the mistake is.
            function: that it is in; empty: outside of any, so that every test of the file may notice.
            first: the module's own test files, and tests that are always asked, since they call it in other processes.
            budget: seconds of tests, at most, for the module's own.
            more: seconds for all others.

        Returns:
            Names of the tests, and the seconds that they take without the mistake.
        """
        wanted = f"{file}::{function}"
        found = []
        for test_file, record in self.files.items():
            own = test_file in first
            for name, test in record["tests"].items():
                calls = test["calls"]
                called = wanted in calls if function else any(call.startswith(f"{file}::") for call in calls)
                if name in first:
                    found.append((False, test["seconds"], name))
                elif called or (own and not function):
                    found.append((not own, test["seconds"], name))
        if not any(not other for other, *_ in found):  # called in another process only, or not at all
            found += [
                (False, t["seconds"], n) for f in first if f in self.files for n, t in self.files[f]["tests"].items()
            ]
        chosen: list[str] = []
        made: dict[str, float] = {}
        spent = {False: 0.0, True: 0.0}
        for other, seconds, name in sorted(found):
            fixtures = self.files[name.split("::")[0]]["tests"][name].get("fixtures", {})
            new = {key: value for key, value in fixtures.items() if key not in made}
            cost, limit = seconds + sum(new.values()), more if other else budget
            if spent[other] + cost <= limit and len({n.split("::")[0] for n in chosen}) <= MOST_FILES:
                chosen.append(name)
                spent[other] += cost
                made |= new
        return chosen, sum(spent.values())


def processor_time() -> float:
    """Seconds of this process and its children, which a busy machine does not stretch."""
    return sum(os.times()[:4])


def digest(path: Path) -> str:
    """Of a file's content."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
