"""RunStore in parallel: on cores here; on real clusters of Dask and Ray where those are installed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from joblib.externals.loky.process_executor import BrokenProcessPool

from pscd.errors import Diverged, UserError
from studies.engine.parallel import KILLED, RunStore, compute_missing

ROOT = Path(__file__).parents[1]


def square(settings):
    return {"square": settings["x"] ** 2, "process": os.getpid()}


def fragile(settings):
    """Squares, but for some: a mistake, a run that diverged, a mistake of ours, a process that is killed."""
    x = settings["x"]
    if x == 1:
        raise UserError("no such file")
    if x == 2:
        raise Diverged("loss is nan")
    if x == 3:
        raise KeyError("oh")
    if x == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return square(settings)


@pytest.fixture
def kept(tmp_path):
    (tmp_path / "runs").mkdir()
    return RunStore(tmp_path / "runs", "squares")


def test_cells_are_kept_by_their_settings(kept):
    runs = [{"x": x} for x in range(3)]
    assert compute_missing(kept, runs, square, 1, show=False) == 3
    assert [kept.read(s)["square"] for s in runs] == [0, 1, 4]
    assert kept.read(runs[0])["process"] == os.getpid()
    assert compute_missing(kept, [*runs, {"x": 3}], square, 1, show=False) == 1
    assert RunStore(kept.folder, "others").read(runs[0]) is None
    kept.path(runs[1]).write_text("{")
    assert compute_missing(kept, runs, square, 1, show=False) == 1


@pytest.mark.parametrize(
    "content", ["", "5", "[]", "{}", '{"result": 5}', '{"result": "failed"}', "[" * 10**5, "digit"]
)
def test_a_damaged_cell_is_computed_again(kept, content):
    run = {"x": 3}
    kept.write(run, {"square": 9})
    text = kept.path(run).read_text()
    kept.path(run).write_text(text.replace("9", "8", 1) if content == "digit" else content)
    assert kept.is_missing(run)
    assert compute_missing(kept, [run], square, 1, show=False) == 1
    assert kept.read(run)["square"] == 9


@pytest.mark.slow
def test_failures_are_kept_and_a_killed_process_takes_no_other_cell_with_it(kept):
    runs = [{"x": x} for x in range(9)]
    assert compute_missing(kept, runs, fragile, 2, show=False, keep_failures=True) == 9
    found = {s["x"]: kept.read(s) for s in runs}
    assert {x: r["failed"] for x, r in found.items() if "failed" in r} == {
        1: "no such file",
        2: "loss is nan",
        3: "KeyError: 'oh'",
        5: KILLED,
    }
    assert {x: r["square"] for x, r in found.items() if "square" in r} == {x: x * x for x in (0, 4, 6, 7, 8)}
    assert os.getpid() not in {r.get("process") for r in found.values()}
    # The same command tries again what may go well now; that a run diverges is its result.
    assert [s["x"] for s in runs if kept.is_missing(s)] == [1, 3, 5]


def test_without_keeping_failures_they_end_the_work_and_what_is_done_stays(kept, monkeypatch):
    with pytest.raises(UserError, match="no such file"):
        compute_missing(kept, [{"x": 0}, {"x": 1}], fragile, 1, show=False)
    assert kept.read({"x": 0})["square"] == 0

    def broken(**settings):
        def compute(tasks):
            list(tasks)
            raise BrokenProcessPool

        return compute

    monkeypatch.setattr("studies.engine.parallel.joblib.Parallel", broken)
    with pytest.raises(UserError, match=f"{KILLED}; the same command continues"):
        compute_missing(kept, [{"x": 6}, {"x": 7}], fragile, 2, show=False)


def test_the_first_cell_tells_how_long_all_may_take(kept, capsys):
    compute_missing(kept, [{"x": x} for x in range(3)], square, 1, unit="run")
    assert "the first run took 0 s; the other 2 may take 0 s, 1 at a time" in capsys.readouterr().err


ORPHANS = """
import os, sys, time
from pathlib import Path
from studies.engine import RunStore, compute_missing

def slow(settings):
    (Path(sys.argv[1]) / str(settings["x"])).write_text(str(os.getpid()))
    time.sleep(60)
    return {"x": 1}

if __name__ == "__main__":
    compute_missing(RunStore(Path(sys.argv[1]), "slow"), [{"x": 0}, {"x": 1}], slow, 2, show=False)
"""


def wait_for(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.05)


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes in /proc")
def test_processes_end_with_a_parent_that_is_killed(tmp_path):
    (tmp_path / "orphans.py").write_text(ORPHANS)
    parent = subprocess.Popen(
        [sys.executable, str(tmp_path / "orphans.py"), str(tmp_path)], env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    try:
        wait_for(lambda: all((tmp_path / x).is_file() and (tmp_path / x).read_text() for x in "01"))
        children = [int((tmp_path / x).read_text()) for x in "01"]
        assert all(map(is_running, children))
    finally:
        parent.kill()
        parent.wait(10)
    wait_for(lambda: not any(map(is_running, children)), 10)
