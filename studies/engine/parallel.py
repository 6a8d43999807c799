"""Many pieces of work, computed in parallel on the cores of this machine, and their results stored.

A run is a dictionary of plain settings, all that decides its result, seed included. Its result is kept in a file named
after a digest of those settings: a killed command goes on where it was, and a change of settings never meets old
results.
"""

import hashlib
import json
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import joblib
from joblib.externals.loky.process_executor import BrokenProcessPool

from pscd.errors import Diverged, UserError
from pscd.fast import threads_set
from pscd.files import one_line, read_json, sealed, unsealed, write_json
from pscd.progress import duration, progress_bar
from pscd.version import __version__

Settings = dict[str, Any]
Result = dict[str, Any]

KILLED = "its process was killed, perhaps for lack of memory"
LOOK_EVERY = 0.5  # seconds between two looks for a parent that is gone


@dataclass(frozen=True)
class RunStore:
    """Results in a folder, each in a file named after a digest of its settings.

    Args:
        folder: where the files are.
        family: a name that goes into the digest: families do not share results.
    """

    folder: Path
    family: str

    def path(self, settings: Settings) -> Path:
        """The file of a run."""
        return self.folder / f"{digest(self.family, __version__, settings)}.json"

    def write(self, settings: Settings, result: Result) -> None:
        """Write the result of a run."""
        write_json(self.path(settings), sealed({"settings": settings, "result": result}), indent=None)

    def read(self, settings: Settings) -> Result | None:
        """The result of a run; None if there is none, or its file is damaged."""
        try:
            result = unsealed(read_json(self.path(settings)))["result"]
        except (UserError, ValueError, KeyError, AttributeError):
            return None
        return result if result and isinstance(result, dict) else None

    def is_missing(self, settings: Settings) -> bool:
        """Whether a run has to be computed: it never was, or it failed in a way that may not happen again."""
        result = self.read(settings)
        return result is None or ("failed" in result and result.get("kind") != Diverged.__name__)


def compute_missing(
    store: RunStore,
    runs: Sequence[Settings],
    compute: Callable[[Settings], Result],
    jobs: int = -1,
    *,
    show: bool = True,
    hours: float | None = None,
    unit: str = "run",
    keep_failures: bool = False,
    n_threads: int | None = 1,
) -> int:
    """Compute the runs that have no result yet, in their order, and keep each as soon as it is there.

    A process that is killed takes no other run with it: the runs that were under way are computed again, each alone
    in a process, so that the one to blame is known.

    Args:
        store: where results are, and go.
        runs: the settings of all runs.
        compute: turns settings into a result; called in another process, on one thread.
        jobs: runs at a time; -1 for one per core.
        show: whether to show a progress bar, and after the first run how long all may take.
        hours: after which no run is begun any more; None: all are.
        unit: what a run is called.
        keep_failures: whether an error is a result, `{"failed": reason, "kind": class}`; otherwise it ends the work.
        n_threads: threads of each run; None: as many as torch takes.

    Returns:
        How many were computed.

    Raises:
        UserError: `jobs` is 0; or, unless failures are kept, the process of a run was killed.
    """
    if jobs == 0:
        raise UserError("--jobs must not be 0; -1 means one per core")
    missing = [s for s in runs if store.is_missing(s)]
    if not missing:
        return 0
    end = time.monotonic() + 3600 * (math.inf if hours is None else hours)
    in_time = takewhile(lambda _: time.monotonic() < end, missing)
    count, n_done = 0, len(runs) - len(missing)
    with progress_bar(len(runs), done=n_done, show=show, unit=unit) as bar:
        start = time.monotonic()
        for settings, result in _computed(_Work(compute, keep_failures, n_threads), in_time, len(missing), jobs):
            store.write(settings, result)
            bar.update()
            count += 1
            if count == 1 and show and len(missing) > 1:
                bar.write(estimate(time.monotonic() - start, len(missing) - 1, _at_a_time(jobs), unit), sys.stderr)
    return count


def estimate(first: float, left: int, at_a_time: int, unit: str) -> str:
    """How long the rest may take, from the time of the first.

    Args:
        first: seconds that the first run took.
        left: runs that are not done.
        at_a_time: runs that are computed at the same time.
        unit: what a run is called.

    Returns:
        A sentence.

    >>> estimate(90, 11, 2, "run")
    'the first run took 2 min; the other 11 may take 8 min, 2 at a time'
    """
    # While the first was computed, the others that began with it were too.
    rest = (math.ceil((left + 1) / at_a_time) - 1) * first
    return f"the first {unit} took {duration(first)}; the other {left} may take {duration(rest)}, {at_a_time} at a time"


def _at_a_time(jobs: int) -> int:
    return max(1, joblib.Parallel(n_jobs=jobs)._effective_n_jobs())  # as joblib will decide


@dataclass(frozen=True)
class _Work:
    """One run, in the process that computes it.

    Args:
        compute: turns settings into a result.
        keep_failures: whether an error is a result.
        n_threads: threads of the run; None: as many as torch takes.
        parent: the process that wants it.
    """

    compute: Callable[[Settings], Result]
    keep_failures: bool
    n_threads: int | None = 1
    parent: int = 0

    def __call__(self, settings: Settings) -> tuple[Settings, Result]:
        if os.getppid() == self.parent:
            _leave_with_parent(self.parent)
        return timed(self._result, settings, self.n_threads)

    def _result(self, settings: Settings) -> Result:
        try:
            return self.compute(settings)
        except Exception as error:
            if not self.keep_failures:
                raise
            expected = isinstance(error, UserError | Diverged)
            words = one_line(error) if expected else f"{type(error).__name__}: {one_line(error)}"
            return {"failed": words, "kind": type(error).__name__}


def timed(
    compute: Callable[[Settings], Result], settings: Settings, n_threads: int | None = 1
) -> tuple[Settings, Result]:
    """A run's result with the processor's seconds it took; on one thread by default, as runs share the cores."""
    with nullcontext() if n_threads is None else threads_set(n_threads):
        start = time.process_time()
        result = compute(settings)
        return settings, {**result, "seconds": round(time.process_time() - start, 2)}


def _computed(work: _Work, runs: Iterable[Settings], n: int, jobs: int) -> Iterator[tuple[Settings, Result]]:
    """The runs with their results, as they are finished."""
    if jobs == 1 or n < 2:
        yield from map(work, runs)
        return
    work = replace(work, parent=os.getpid())
    waiting = iter(runs)
    under_way: dict[str, Settings] = {}

    def begun() -> Iterator[Any]:
        for settings in waiting:
            under_way[digest(settings)] = settings
            yield joblib.delayed(work)(settings)

    while True:
        # One run for each process: whatever is killed, this command or one of them, takes no more with it.
        parallel = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1, pre_dispatch="n_jobs")
        try:
            for settings, result in parallel(begun()):
                del under_way[digest(settings)]
                yield settings, result
        except BrokenProcessPool:
            for settings in [under_way.pop(name) for name in list(under_way)]:
                yield _alone(work, settings, jobs)
        else:
            return


def _alone(work: _Work, settings: Settings, jobs: int) -> tuple[Settings, Result]:
    """Compute one run in a process of its own, after some process was killed."""
    try:
        return joblib.Parallel(n_jobs=2)([joblib.delayed(work)(settings)])[0]  # 2: with 1 it would be this process
    except BrokenProcessPool:
        if not work.keep_failures:
            raise UserError(f"a run was not computed: {KILLED}; the same command continues") from None
        return settings, {"failed": KILLED, "kind": "Killed", "seconds": 0.0}


_watching = threading.Event()


def _leave_with_parent(parent: int) -> None:
    """End this process when its parent is gone, killed perhaps: nobody would take the result, or know of the work."""
    if _watching.is_set():
        return
    _watching.set()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(LOOK_EVERY)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def digest(*parts: Any) -> str:
    """A short name for settings."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
