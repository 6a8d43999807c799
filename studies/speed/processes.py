"""Two processes (f), one thread each, beside one process with one thread, on the same global batch.

One and two take turns, each started anew; the clock runs from after the first updates to the last. A third takes turns
with them, as what the machine allows: two processes that train half of the batch each and know nothing of each other.
They are started as `torchrun` would, but without it: it looks at its processes ten times a second, and where every core
is busy each look holds up all of them.

    python -m studies speed.processes 20     # one turn: prints seconds of an update
"""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import torch

from pscd import distributed
from studies.timing import CASES, Training, ratio

CASE, WARM_UP = "conv", 2
APART = "apart"
ROUNDS, UPDATES = 15, 30
QUICK_ROUNDS, QUICK_UPDATES = 1, 2


def measure(rounds: int, updates: int) -> dict[str, Any]:
    kinds = {"1": partial(launch, 1), "2": partial(launch, 2), APART: launch_apart}
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    for turn in range(rounds):
        for kind in kinds if turn % 2 == 0 else reversed(kinds):
            times[kind].append(kinds[kind](updates))
    return {
        "title": CASES[CASE].title,
        "rounds": rounds,
        "updates": updates,
        "milliseconds": {kind: [round(1e3 * t, 2) for t in values] for kind, values in times.items()},
        "speed_up": asdict(ratio(times["1"], times["2"])),
        "allowed": asdict(ratio(times["1"], times[APART])),
    }


def launch(n: int, updates: int) -> float:
    """Seconds of an update with `n` processes, by the last of them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    group = {"WORLD_SIZE": str(n), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    processes = [_start(updates, **group, RANK=str(rank), LOCAL_RANK=str(rank)) for rank in range(n)]
    return max(map(_seconds, processes))


def launch_apart(updates: int) -> float:
    """Seconds of an update of half of the batch, while another process does the same; the slower one's."""
    return max(map(_seconds, [_start(updates, APART) for _ in range(2)]))


def _start(updates: int, *arguments: str, **environment: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "studies.speed.processes", str(updates), *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def _seconds(process: "subprocess.Popen[str]") -> float:
    printed, _ = process.communicate()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, process.args)
    return float(printed.split()[-1])


def turn(updates: int, parts: int = 1) -> float:
    """Seconds of an update of one part of the batch, of this process or of all that were started together."""
    torch.set_num_threads(1)
    started = distributed.start(torch.device("cpu"))
    case = CASES[CASE]
    training = Training(replace(case, batch_size=case.batch_size // parts), 1.0)
    for _ in range(WARM_UP):
        training.update()
    distributed.barrier()
    start = time.perf_counter()
    for _ in range(updates):
        training.update()
    distributed.barrier()
    seconds = (time.perf_counter() - start) / updates
    print(seconds)
    if started:
        distributed.stop()
    return seconds


def runs(quick: bool) -> dict[str, Callable[[], dict[str, Any]]]:
    rounds, updates = (QUICK_ROUNDS, QUICK_UPDATES) if quick else (ROUNDS, UPDATES)
    return {CASE: lambda: measure(rounds, updates)}


if __name__ == "__main__":
    turn(int(sys.argv[1]), parts=2 if APART in sys.argv else 1)
