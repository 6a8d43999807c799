"""Time to quality (d): seconds of training until samples stay as close to fresh data as asked for.

The measure is the U-statistic of MMD^2 with the kernel exp(-|x-y|^2 / 4) between 5,000 samples and 5,000 fresh rows.
It is looked at after growing stretches of training; what counts is the first of three looks in a row below the
threshold. Only training is timed, preparations included (coordinates and proposal here, a warm-up of the buffer
there); sampling and measuring are not. Everybody has the number of threads, one or all, that is faster in a trial, and
the median of three seeds; what does not arrive with the first of them is not tried again.

This library runs with its defaults (PS-CD, gamma 1). The others take the better of a few settings: those of their
documentation and a smaller learning rate. Their samples may be the chains of their buffer or fresh chains, 500 steps
from a Gaussian as ebmkit's documentation does it: whichever passes. (Fresh ones take their time, and are not made while
those of the buffer are off by twenty times the threshold.)
"""

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from pscd.config import RowSettings, TrainConfig
from pscd.data.toys import TOYS
from pscd.errors import Diverged
from pscd.fast import enough_threads, threads_set
from pscd.metrics import mmd
from pscd.model import Model
from pscd.rng import generator
from pscd.training.loop import train_step
from pscd.training.state import init_state
from studies.engine.streams import StudyStream
from studies.speed import rivals
from studies.speed.updates import OURS
from studies.timing import Case, best_threads, mlp

SETS = ("moon", "rings")
THRESHOLD, CAP, IN_A_ROW = 5e-4, 30.0, 3
FAR_OFF = 20  # times the threshold
FIRST_LOOK, GROWTH = 0.5, 1.2  # seconds of training, and by how much they grow
SEEDS = (0, 1, 2)
N, N_DATA, FRESH_STEPS = 5_000, 50_000, 500
Way = Callable[[int], Tensor]  # samples for a seed


@dataclass(frozen=True)
class Setting:
    """A peer's settings: Langevin step, how many of them, and learning rate."""

    step_size: float
    n_steps: int
    lr: float

    def __str__(self) -> str:
        return f"step {self.step_size:g} x {self.n_steps}, lr {self.lr:g}"


# ebmkit's documentation, torchebm's, and more patience.
GRID = (Setting(0.01, 60, 1e-3), Setting(0.1, 10, 1e-3), Setting(0.01, 60, 3e-4))


@dataclass
class Learner:
    """Something that trains: an update, ways to draw samples, and whether it has come to its end."""

    update: Callable[[], object]
    ways: list[Way]
    ended: Callable[[], bool] = lambda: False


def time_to_quality(
    make: Callable[[], Learner],
    fresh: Callable[[int], Tensor],
    *,
    threshold: float = THRESHOLD,
    cap: float = CAP,
    first_look: float = FIRST_LOOK,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Any]:
    """Seconds until the samples stay good (None if they never do), and what every look saw."""
    start = clock()
    learner = make()
    seconds = clock() - start
    looks: list[tuple[float, float]] = []
    good: list[float] = []
    due = first_look
    while True:
        while seconds < due and not learner.ended():
            start = clock()
            try:
                learner.update()
            except Diverged:
                return {"seconds": None, "looks": looks, "trained": round(seconds, 2), "diverged": True}
            seconds += clock() - start
        value = distance(learner.ways, fresh(len(looks)), len(looks), threshold)
        looks.append((round(seconds, 2), value))
        good = [*good, seconds] if value < threshold else []
        over = seconds >= cap or learner.ended()
        if len(good) == IN_A_ROW or (over and not good):
            reached = round(good[0], 2) if good else None
            return {"seconds": reached, "looks": looks, "trained": round(seconds, 2), "diverged": False}
        due = seconds * GROWTH


def distance(ways: list[Way], fresh: Tensor, seed: int, threshold: float) -> float:
    """MMD^2 of the first way of sampling that passes, or else of the best."""
    best = math.inf
    for way in ways:
        value = mmd(fresh, way(seed))
        if value < threshold:
            return value
        best = min(best, value) if math.isfinite(value) else best
        if value > FAR_OFF * threshold:
            break
    return best


def rows(name: str, n: int, seed: int) -> Tensor:
    return TOYS[name](n, generator(seed, StudyStream.QUALITY_ROWS)).float()


def ours(name: str, seed: int, *, n: int = N, n_data: int = N_DATA) -> Learner:
    """This library with its defaults."""
    config = TrainConfig(seed=seed, rows=RowSettings(data=name))
    x = rows(name, n_data, seed)
    state = init_state(x, config, None, torch.device("cpu"))
    z = state.coordinates.forward(x)

    def update() -> None:
        with enough_threads(state.energy, config.batch_size):
            train_step(state, z, config)

    def samples(look: int) -> Tensor:
        model = Model(
            state.averaged,
            config,
            coordinates=state.coordinates,
            step_size=state.step_size,
            proposal=state.proposal,
        )
        return model.sample(n, seed=look)

    return Learner(update, [samples], lambda: state.step >= config.updates)


def peer(name: str, data: str, setting: Setting, seed: int) -> Learner:
    """Another library, on the network of its documentation, 2-128-128-1."""
    torch.manual_seed(seed)
    case = Case(name, (2,), mlp(128), 256, setting.n_steps, step_size=setting.step_size)
    energy = case.energy.build(case.shape)
    x = rows(data, N_DATA, seed)
    if name == "torchebm":
        update, loss = rivals.torchebm_update(energy, x, case, lr=setting.lr, init_steps=100)
        held, run = (lambda: loss.replay_buffer), (lambda z: loss.sampler.sample(x=z, n_steps=FRESH_STEPS))
    else:
        update, loss = rivals.ebmkit_trainer(energy, x, case, lr=setting.lr)
        held, run = (lambda: loss.buffer.data), (lambda z: loss.sampler.sample(energy, z, steps=FRESH_STEPS))

    def from_buffer(look: int) -> Tensor:
        chains = held()
        return chains[torch.randperm(len(chains), generator=generator(look, StudyStream.QUALITY_LOOKS))[:N]].clone()

    def from_noise(look: int) -> Tensor:
        return run(torch.randn(N, 2, generator=generator(look, StudyStream.QUALITY_CHAINS)))

    return Learner(update, [from_buffer, from_noise])


def measure_ours(data: str, seeds: Sequence[int], cap: float) -> dict[str, Any]:
    return _over_seeds(OURS, data, "defaults", lambda seed: ours(data, seed), seeds, cap)


def measure_peer(name: str, data: str, setting: Setting, seeds: Sequence[int], cap: float) -> dict[str, Any]:
    return _over_seeds(name, data, str(setting), lambda seed: peer(name, data, setting, seed), seeds, cap)


def _over_seeds(
    who: str, data: str, setting: str, make: Callable[[int], Learner], seeds: Sequence[int], cap: float
) -> dict[str, Any]:
    """The median of the seconds, None if that many did not arrive, those of each seed, and what the first one saw."""
    threads = best_threads(make(seeds[0]).update)
    runs: list[dict[str, Any]] = []
    with threads_set(threads):
        for seed in seeds:
            learner = partial(make, seed)
            runs.append(time_to_quality(learner, lambda look: rows(data, N, 1_000_000 + look), cap=cap))
            if runs[0]["seconds"] is None:
                break
    each = [run["seconds"] for run in runs]
    middle = statistics.median(math.inf if seconds is None else seconds for seconds in each)
    return {
        "who": who,
        "data": data,
        "setting": setting,
        "threads": threads,
        **runs[0],
        "seconds": None if middle == math.inf else middle,
        "each": each,
    }


def runs(quick: bool) -> dict[str, Callable[[], dict[str, Any]]]:
    cap, grid, sets, seeds = (2.0, GRID[:1], SETS[:1], SEEDS[:1]) if quick else (CAP, GRID, SETS, SEEDS)
    found: dict[str, Callable[[], dict[str, Any]]] = {}
    absent = rivals.missing_peers()
    for data in sets:
        found[f"{data} {OURS}"] = partial(measure_ours, data, seeds, cap)
        for name in rivals.PEERS:
            for setting in grid if name not in absent else ():
                found[f"{data} {name} {setting}"] = partial(measure_peer, name, data, setting, seeds, cap)
    return found
