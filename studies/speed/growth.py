"""Growth (e): time and peak memory of an update over batch, steps, dimension, buffer and data, as exponents.

Times: the sizes take turns, as everywhere here. Memory: each size in a process of its own, by how much its peak lies
above what it held before, as Linux counts it. The same way the MMD of many points is measured.

    python -m studies speed.growth CASE.json     # one of these processes: prints seconds and MiB
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from pscd.metrics import mmd
from pscd.rng import generator
from studies.engine.streams import StudyStream
from studies.timing import Case, Training, mlp, slope, take_turns

BASE = Case("MLP 20-128-128-1, batch 256, 20 steps", (20,), mlp(128), 256, 20, rows=2_000)
MEMORY_BATCH = 32  # times the batch, where memory is measured: it then stands out against what libraries load
AXES: dict[str, tuple[int, ...]] = {
    "batch": (256, 512, 1024, 2048, 4096),
    "steps": (10, 20, 40, 80, 160),
    "dimension": (16, 64, 256, 1024),
    "buffer": (1_000, 10_000, 100_000, 1_000_000),
    "data": (1_000, 10_000, 100_000, 1_000_000),
}
QUICK_AXES = {"batch": (64, 128)}
ROUNDS, QUICK_ROUNDS = 15, 2
MMD_POINTS, QUICK_MMD_POINTS = 100_000, 2_000
MIB = 1024  # kibibytes, in which the system counts
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def case_of(axis: str, size: int) -> Case:
    if axis == "dimension":
        return replace(BASE, shape=(size,))
    field = {"batch": "batch_size", "steps": "n_steps", "buffer": "buffer_size", "data": "rows"}[axis]
    return replace(BASE, **{field: size})


def measure_axis(axis: str, sizes: tuple[int, ...], rounds: int) -> dict[str, Any]:
    runs = {str(size): Training(case_of(axis, size), 1.0) for size in sizes}
    times = take_turns({name: run.update for name, run in runs.items()}, rounds, show=True)
    seconds = [statistics.median(times[str(size)]) for size in sizes]
    memory = [in_process({"axis": axis, "size": size})["mib"] for size in sizes]
    return {
        "axis": axis,
        "sizes": list(sizes),
        "rounds": rounds,
        "milliseconds": [round(1e3 * s, 3) for s in seconds],
        "time_slope": slope(sizes, seconds),
        "mib": memory,
        "memory_slope": slope(sizes, [max(m, 0.1) for m in memory]),
    }


def in_process(task: dict[str, Any]) -> dict[str, float]:
    """What the task needs in a process of its own: seconds, and MiB above what was there before."""
    command = [sys.executable, "-m", "studies.speed.growth", json.dumps(task)]
    # Tensors go back to the system when they are freed: memory is then what is used, not how malloc arranges it.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return json.loads(done.stdout.splitlines()[-1])


def do(task: dict[str, Any]) -> dict[str, float]:
    """The task itself, in the new process."""
    if "mmd" in task:
        _mmd(1000)  # loads what is loaded on first use
        return _cost(lambda: _mmd(task["mmd"]))
    torch.set_num_threads(1)
    case = case_of(task["axis"], task["size"])
    case = replace(case, batch_size=MEMORY_BATCH * case.batch_size)
    Training(replace(BASE, batch_size=8, n_steps=1, buffer_size=8, rows=100), 1.0).update()

    def some_updates() -> None:
        training = Training(case, 1.0)
        _forget_peak()  # what is held counts: data, buffer, network; what it took to make them does not
        for _ in range(3):  # Adam has its moments from the first one on
            training.update()

    return _cost(some_updates)


def _cost(task: Callable[[], object]) -> dict[str, float]:
    _forget_peak()
    before, start = _peak(), time.perf_counter()
    task()
    return {"seconds": round(time.perf_counter() - start, 2), "mib": round((_peak() - before) / MIB, 1)}


def _forget_peak() -> None:
    """Lower the peak to what is held now; loading libraries needs more for a moment than is held afterwards."""
    CLEAR.write_text("5")


def _peak() -> int:
    """Kibibytes. (That of `getrusage` is no use: a new process inherits the peak of the one that started it.)"""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1])


def _mmd(n: int) -> float:
    x = torch.randn(2, n, 2, generator=generator(0, StudyStream.GROWTH_ROWS))
    return mmd(x[0], x[1])


def measure_mmd(points: int) -> dict[str, Any]:
    return {"points": points, **in_process({"mmd": points})}


def runs(quick: bool) -> dict[str, Callable[[], dict[str, Any]]]:
    axes, rounds = (QUICK_AXES, QUICK_ROUNDS) if quick else (AXES, ROUNDS)
    found: dict[str, Callable[[], dict[str, Any]]] = {
        axis: (lambda axis=axis, sizes=sizes: measure_axis(axis, sizes, rounds)) for axis, sizes in axes.items()
    }
    found["mmd"] = lambda: measure_mmd(QUICK_MMD_POINTS if quick else MMD_POINTS)
    return found


if __name__ == "__main__":
    print(json.dumps(do(json.loads(sys.argv[1]))))
