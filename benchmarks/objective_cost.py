"""What an update costs under each objective, relative to contrastive divergence.

    python -m benchmarks.objective_cost

Objectives take turns in short blocks, so that whatever else the machine does meets all of them alike; the
figure is the median over blocks of a block's time divided by that of `cd` in the same round.
"""

import statistics
import time
from dataclasses import replace

import torch

from pscd.config import TrainConfig
from pscd.data.toys import TOYS
from pscd.initial import init_state
from pscd.objectives import OBJECTIVES
from pscd.rng import generator
from pscd.trainer import train_step

ROUNDS, BLOCK = 15, 10


def seconds(state, x, config) -> float:
    start = time.perf_counter()
    for _ in range(BLOCK):
        train_step(state, x, config)
    return time.perf_counter() - start


def main() -> None:
    torch.set_num_threads(1)
    x = TOYS["moon"](10_000, generator(0))
    x = (x - x.mean(0)) / x.std(0)
    configs = {name: replace(TrainConfig(), objective=objective) for name, objective in OBJECTIVES.items()}
    states = {name: init_state(x, config, None, torch.device("cpu")) for name, config in configs.items()}
    for name, config in configs.items():
        seconds(states[name], x, config)
    rounds = [{name: seconds(states[name], x, configs[name]) for name in configs} for _ in range(ROUNDS)]
    print(f"cd: {1e3 * statistics.median(r['cd'] for r in rounds) / BLOCK:.1f} ms an update, one thread, defaults, 2-D")
    for name in configs:
        ratios = sorted(r[name] / r["cd"] for r in rounds)
        low, high = ratios[ROUNDS // 4], ratios[-ROUNDS // 4]
        print(f"{name:<16}{statistics.median(ratios):.2f}  (middle half {low:.2f} to {high:.2f})")


if __name__ == "__main__":
    main()
