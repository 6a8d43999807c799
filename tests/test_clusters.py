"""Real clusters on this machine: Dask with two worker processes, and Ray. `make test-scale` installs both."""

import importlib.util
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from pscd.clusters import _within
from pscd.errors import UserError
from pscd.files import read_tensors, tensors_digest
from pscd.parallel import KILLED, Cells, Engine, compute_missing
from pscd.sweep import grid, sweep

ROOT = Path(__file__).parents[1]
LONGEST = 300  # seconds to wait for anything
pytestmark = [
    pytest.mark.scale,
    pytest.mark.filterwarnings("ignore"),  # of libraries that are not ours to mend
]


def without(module):
    return pytest.mark.skipif(importlib.util.find_spec(module) is None, reason=f"{module} is not installed")


def note(marks, settings):
    """A square, slowly, that leaves a mark of who computed it."""
    with (marks / f"{settings['x']}").open("a") as file:
        file.write(f"{os.getpid()}\n")
    time.sleep(0.5)
    return {"square": settings["x"] ** 2}


def deadly(settings):
    """A square, but for one cell, whose process is killed every time."""
    if settings["x"] == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"square": settings["x"] ** 2}


def wait_for(condition, what):
    end = time.monotonic() + LONGEST
    while not condition():
        assert time.monotonic() < end, f"waited too long for {what}"
        time.sleep(0.02)


@pytest.fixture
def dask():
    distributed = pytest.importorskip("distributed", reason="distributed is not installed; make test-scale installs it")
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(ROOT)  # the workers are to find this package, and these tests
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address=None
    )
    yield cluster.scheduler_address
    cluster.close(timeout=LONGEST)
    os.environ.pop("PYTHONPATH") if before is None else os.environ.update(PYTHONPATH=before)


@pytest.fixture
def marks(tmp_path):
    (tmp_path / "marks").mkdir()
    return tmp_path / "marks"


@pytest.fixture
def kept(tmp_path):
    (tmp_path / "cells").mkdir()
    return Cells(tmp_path / "cells", "squares")


def kill_in_the_middle(marks, after):
    """Kill a worker, in the background, once so many cells have begun."""

    def work():
        wait_for(lambda: len(list(marks.iterdir())) >= after, "cells to begin")
        newest = max(marks.iterdir(), key=lambda path: path.stat().st_mtime)
        wait_for(newest.read_text, "a process to sign")
        os.kill(int(newest.read_text().split()[-1]), signal.SIGKILL)

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_dask_with_a_worker_killed_in_the_middle(dask, kept, marks):
    cells = [{"x": x} for x in range(8)]
    killer = kill_in_the_middle(marks, 3)
    assert compute_missing(kept, cells, partial(note, marks), Engine("dask", dask), show=False) == 8
    killer.join(LONGEST)
    assert [kept.found(s)["square"] for s in cells] == [x * x for x in range(8)]
    signed = [path.read_text().split() for path in marks.iterdir()]
    assert sum(map(len, signed)) > 8  # what the killed worker was at, another has computed
    assert str(os.getpid()) not in {name for names in signed for name in names}


def test_a_cell_that_kills_every_worker_of_dask_is_kept_as_failed(dask, kept):
    cells = [{"x": x} for x in range(4)]
    assert compute_missing(kept, cells, deadly, Engine("dask", dask), show=False, keep_failures=True) == 4
    assert [kept.found(s).get("square") for s in cells] == [0, None, 4, 9]
    assert kept.found(cells[1])["failed"] == KILLED


def test_a_sweep_on_dask_is_that_of_one_process_with_a_worker_killed(dask, small, tmp_path):
    config = replace(small, steps=120, n_data=200, checkpoint_every=20, sample_steps=2)
    runs = grid(config, {"objective.gamma": [0.0, 1.0]}, seeds=range(2))
    out = tmp_path / "dask"

    def kill_the_first():
        logs = lambda: [p for p in out.glob("runs/*/metrics.jsonl") if p.read_text().count("\n") >= 5]  # noqa: E731
        wait_for(logs, "a run to be under way")
        import distributed

        with distributed.Client(dask) as client:
            pids = client.run(os.getpid)
        os.kill(next(iter(pids.values())), signal.SIGKILL)

    killer = threading.Thread(target=kill_the_first)
    killer.start()
    sweep(runs, out, engine=Engine("dask", dask), n=50, show=False)
    killer.join(LONGEST)
    sweep(runs, tmp_path / "here", engine=Engine(n_jobs=1), n=50, show=False)

    def bits(folder):
        found = {}
        for run in (folder / "runs").iterdir():
            found[run.name] = tensors_digest(read_tensors(run / "model.safetensors")[0])
        return found

    assert bits(out) == bits(tmp_path / "here")
    assert len(bits(out)) == 4


def test_a_dask_scheduler_without_workers(kept):
    distributed = pytest.importorskip("distributed", reason="distributed is not installed; make test-scale installs it")
    with distributed.LocalCluster(n_workers=0, host="127.0.0.1", dashboard_address=None) as cluster:
        engine = Engine("dask", cluster.scheduler_address, patience=0.5)
        with pytest.raises(UserError, match=r"has no workers: dask worker tcp://127\.0\.0\.1"):
            compute_missing(kept, [{"x": 1}], partial(note, None), engine, show=False)


HEAD = """
import sys, time, ray
ray.init(num_cpus=2, include_dashboard=False, _node_ip_address="127.0.0.1", logging_level="ERROR")
print(ray.get_runtime_context().gcs_address, flush=True)
sys.stdin.read()
ray.shutdown()
"""


@pytest.fixture
def ray():
    pytest.importorskip("ray", reason="ray is not installed; make test-scale installs it")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    head = subprocess.Popen(
        [sys.executable, "-c", HEAD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    yield head.stdout.readline().strip()
    head.communicate("", timeout=LONGEST)


def test_ray_computes_the_same_and_hands_results_over_one_by_one(ray, kept, marks):
    cells = [{"x": x} for x in range(6)]
    seen = []

    def count():
        while len(seen) < 3:
            seen.append(len(list(kept.folder.iterdir()))) if any(kept.folder.iterdir()) else None
            time.sleep(0.3)

    counter = threading.Thread(target=count, daemon=True)
    counter.start()
    assert compute_missing(kept, cells, partial(note, marks), Engine("ray", ray, patience=LONGEST), show=False) == 6
    counter.join(10)
    assert [kept.found(s)["square"] for s in cells] == [x * x for x in range(6)]
    assert seen[0] < 6  # kept before all were done
    signed = {name for path in marks.iterdir() for name in path.read_text().split()}
    assert str(os.getpid()) not in signed


def test_a_cell_that_kills_every_worker_of_ray_is_kept_as_failed(ray, kept):
    cells = [{"x": x} for x in range(4)]
    assert (
        compute_missing(kept, cells, deadly, Engine("ray", ray, patience=LONGEST), show=False, keep_failures=True) == 4
    )
    assert [kept.found(s).get("square") for s in cells] == [0, None, 4, 9]
    assert kept.found(cells[1])["failed"] == KILLED


def test_a_cluster_that_asks_for_a_token_is_told():
    def connect():
        raise ConnectionError("no cluster") from RuntimeError("RPC error: InvalidAuthToken: it is missing")

    with pytest.raises(UserError, match="within 3 s; the cluster asks for a token: set RAY_AUTH_MODE=token"):
        _within(3, connect, "no Ray answers within 3 s; is it running?")


@without("ray")
def test_a_ray_that_does_not_answer(kept):
    engine = Engine("ray", "127.0.0.1:1", patience=3)
    with pytest.raises(UserError, match=r"no Ray answers at 127\.0\.0\.1:1 within 3 s"):
        compute_missing(kept, [{"x": 1}], partial(note, None), engine, show=False)
