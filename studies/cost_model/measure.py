"""What the model needs to know about this machine, measured; and updates of 1, 2 and 4 processes to compare with.

python -m studies cost_model.measure network 2          # a process of a group: prints seconds of collectives
python -m studies cost_model.measure update conv 4 10   # seconds of an update, a quarter of the batch each
"""

import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist

from pscd import distributed
from pscd.objectives import PseudoSpherical
from pscd.rng import generator
from studies.cost_model.model import FLOAT, PHASES, Network, Work
from studies.timing import CASES, Training

SIZES = (1, 1_000, 10_000, 100_000, 1_000_000, 4_000_000)  # floats in a message
REPEATS = 200
WARM_UP = 2
LONGEST = 900  # seconds for one measurement, on a busy machine


def launch(n: int, *arguments: str, apart: bool = False) -> list[Any]:
    """What `n` processes print; each is one of a group, or on its own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = [sys.executable, "-m", "studies.cost_model.measure", *arguments]
    alone = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    group = {"WORLD_SIZE": str(n), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    ranks = ({} if apart else {**group, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(n))
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**alone, **rank}) for rank in ranks]
    try:
        printed = [process.communicate(timeout=LONGEST)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    if any(process.returncode for process in processes):
        raise RuntimeError(f"{' '.join(command)} failed")
    return [json.loads(text.splitlines()[-1]) for text in printed]


@contextmanager
def counted() -> Any:
    """All collective calls inside, as (name, bytes that this process gives)."""
    calls: list[tuple[str, int]] = []
    names = {"all_gather": 1, "all_reduce": 0, "broadcast": 0}
    real = {name: getattr(dist, name) for name in names}

    def noted(name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **settings: Any) -> Any:
            given = arguments[names[name]]
            calls.append((name, given.numel() * given.element_size()))
            return real[name](*arguments, **settings)

        return call

    for name in names:
        setattr(dist, name, noted(name))
    try:
        yield calls
    finally:
        for name, function in real.items():
            setattr(dist, name, function)


def fastest(work: Callable[[], object], repeats: int, clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds of the quickest of many calls: what else the machine does only ever adds to it."""
    found = []
    for _ in range(repeats):
        start = clock()
        work()
        found.append(clock() - start)
    return min(found)


def collectives(repeats: int = REPEATS) -> dict[str, list[tuple[int, float]]]:
    """Seconds of summing and gathering tensors of several sizes, in this process of a group."""
    found: dict[str, list[tuple[int, float]]] = {"sum": [], "gather": []}
    for size in SIZES:
        x = torch.ones(size)
        parts = [torch.empty_like(x) for _ in range(distributed.world_size())]
        count = max(3, min(repeats, 20_000_000 // size))
        found["sum"].append((FLOAT * size, fastest(lambda x=x: dist.all_reduce(x.clone()), count)))
        found["gather"].append((FLOAT * size, fastest(lambda x=x, parts=parts: dist.all_gather(parts, x), count)))
    return found


def network_here(repeats: int = REPEATS) -> tuple[Network, dict[str, Any]]:
    """Latency and bandwidth between two processes of this machine, and what they were read from."""
    found = launch(2, "network", str(repeats))
    # The slower of both processes; with two of them a sum is two messages of half of the bytes, each way.
    points = [(size, max(process["sum"][i][1] for process in found)) for i, (size, _) in enumerate(found[0]["sum"])]
    latency = min(seconds for _, seconds in points[:2]) / 2
    slope = statistics.median((t - 2 * latency) / n for n, t in points[-3:])
    return Network("loopback, gloo", latency, max(slope, 1e-12)), {"sum": points, "gather": found[0]["gather"]}


def work_here(name: str, repeats: int) -> Work:
    """What an update of a case costs one core, whatever else runs, from updates of its batch and of a quarter of it."""
    case = CASES[name]
    counts = (case.batch_size, case.batch_size // 4)
    trainings = [Training(replace(case, batch_size=n), 1.0) for n in counts]
    for training in trainings:
        training.update()
    per_energy = energy_cost(repeats)
    times = [fastest(training.update, repeats, time.process_time) for training in trainings]
    per_row = max(0.0, (times[0] - times[1]) / (counts[0] - counts[1]) - PHASES * per_energy)
    fixed = max(0.0, times[0] - counts[0] * (per_row + PHASES * per_energy))
    energy = trainings[0].state.energy
    return Work(sum(p.numel() for p in energy.parameters()), statistics_of(trainings[0]), fixed, per_row, per_energy)


def statistics_of(training: Training) -> int:
    """How many numbers of the sampler are averaged with the gradients."""
    found: list[int] = []
    real = distributed.sum_gradients

    def noted(parameters: Any, stats: dict[str, Any]) -> dict[str, Any]:
        found.append(len(stats))
        return real(parameters, stats)

    distributed.sum_gradients = noted  # type: ignore[assignment]
    try:
        training.update()
    finally:
        distributed.sum_gradients = real
    return found[0]


def energy_cost(repeats: int, sizes: Sequence[int] = (2_000, 200_000)) -> float:
    """Seconds of loss, its gradient and its statistics for one more energy of the gathered batch."""
    objective = PseudoSpherical(gamma=1.0)
    times = []
    for size in sizes:
        x = torch.randn(size, 1, generator=generator(0)).requires_grad_()

        def loss(x: torch.Tensor = x) -> None:
            value, _ = objective(lambda rows: rows[:, 0], None, x[: len(x) // 2], x[len(x) // 2 :], generator(0))
            value.backward()

        times.append(fastest(loss, max(3, repeats), time.process_time))
    return max(1e-12, (times[1] - times[0]) / (sizes[1] - sizes[0]))


def update_seconds(name: str, parts: int, updates: int) -> tuple[float, float]:
    """Seconds of an update of one part of the batch, by the clock and of the processor; alone or of a group."""
    case = CASES[name]
    rows = case.batch_size if distributed.is_on() else case.batch_size // parts
    training = Training(replace(case, batch_size=rows), 1.0)
    for _ in range(WARM_UP):
        training.update()
    distributed.barrier()
    start, busy = time.perf_counter(), time.process_time()
    for _ in range(updates):
        training.update()
    busy = time.process_time() - busy
    distributed.barrier()
    return (time.perf_counter() - start) / updates, busy / updates


def main(words: Sequence[str]) -> None:
    torch.set_num_threads(1)
    with distributed.group(torch.device("cpu")):
        if words[0] == "network":
            print(json.dumps(collectives(int(words[1]))))
        else:
            print(json.dumps(update_seconds(words[1], int(words[2]), int(words[3]))))


if __name__ == "__main__":
    main(sys.argv[1:])
