"""Two processes (f), one thread each, beside one process with one thread, on the same global batch.

One and two take turns, each started anew by `torchrun`; the clock runs from after the first updates to the last.

    torchrun --nproc-per-node 2 -m benchmarks.speed.processes 20     # one turn: prints seconds of an update
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch

from pscd import distributed
from pscd.bench import CASES, Training, ratio

CASE, WARM_UP = "conv", 2
ROUNDS, UPDATES = 15, 30
QUICK_ROUNDS, QUICK_UPDATES = 1, 2


def measure(rounds: int, updates: int) -> dict[str, Any]:
    times: dict[int, list[float]] = {1: [], 2: []}
    for turn in range(rounds):
        for n in (1, 2) if turn % 2 == 0 else (2, 1):
            times[n].append(launch(n, updates))
    return {
        "title": CASES[CASE].title,
        "rounds": rounds,
        "updates": updates,
        "milliseconds": {str(n): [round(1e3 * t, 2) for t in values] for n, values in times.items()},
        "speed_up": asdict(ratio(times[1], times[2])),
    }


def launch(n: int, updates: int) -> float:
    """Seconds of an update with `n` processes."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(n)]
    command += ["-m", "benchmarks.speed.processes", str(updates)]
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    return float(done.stdout.split()[-1])


def turn(updates: int) -> float:
    torch.set_num_threads(1)
    started = distributed.start(torch.device("cpu"))
    training = Training(CASES[CASE], 1.0)
    for _ in range(WARM_UP):
        training.update()
    distributed.barrier()
    start = time.perf_counter()
    for _ in range(updates):
        training.update()
    distributed.barrier()
    seconds = (time.perf_counter() - start) / updates
    if distributed.rank() == 0:
        print(seconds)
    if started:
        distributed.stop()
    return seconds


def cells(quick: bool) -> dict[str, Callable[[], dict[str, Any]]]:
    rounds, updates = (QUICK_ROUNDS, QUICK_UPDATES) if quick else (ROUNDS, UPDATES)
    return {CASE: lambda: measure(rounds, updates)}


if __name__ == "__main__":
    turn(int(sys.argv[1]))
