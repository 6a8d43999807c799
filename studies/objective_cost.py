"""What an update costs under each objective, relative to contrastive divergence: time, parameters, memory.

    python -m studies objective-cost            # time of all objectives
    python -m studies objective-cost --memory   # f-EBM beside CD: parameters and peak memory of an update

Time: objectives take turns in short blocks, so that whatever else the machine does meets all of them alike; the
figure is the median over blocks of a block's time divided by that of `cd` in the same round.

Memory: each update in a process of its own, whose peak is read from the system before and after, with networks and
batches so large that what an update needs stands out against the library itself.
"""

import argparse
import resource
import statistics
import subprocess
import sys

import torch

from pscd.config import ChainSettings, TrainConfig
from pscd.data.toys import TOYS
from pscd.energies import Architecture
from pscd.objectives import OBJECTIVES
from pscd.rng import generator
from pscd.training.loop import train_step
from pscd.training.state import init_state
from studies.paper.objectives_2d import BLOCK, ROUNDS, relative_costs

# (hidden units, rows per batch): the default, many rows for the network, and a large network for the rows.
SIZES = ((128, 256), (512, 16384), (2048, 256))
COMPARED = ("cd", "f-ebm")
MIB = 1024  # of the kibibytes that the system counts in


def time_table() -> None:
    torch.set_num_threads(1)
    configs = {name: TrainConfig(objective=objective) for name, objective in OBJECTIVES.items()}
    costs = relative_costs(configs, TOYS["moon"](10_000, generator(0)))
    update = 1e3 * statistics.median(costs["cd"])
    print(f"cd: {update:.1f} ms an update, one thread, defaults, 2-D; medians of {ROUNDS} blocks of {BLOCK} updates")
    for name, ratios in costs.items():
        if name != "cd":
            low, high = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
            print(f"{name:<16}{statistics.median(ratios):.2f}  (middle half {low:.2f} to {high:.2f})")


def memory_of(name: str, width: int, rows: int) -> None:
    """Print the parameters and the kibibytes by which two updates raise this process's peak."""
    torch.set_num_threads(1)
    small = Architecture(width=width)
    config = TrainConfig(
        objective=OBJECTIVES[name],
        energy=small,
        batch_size=rows,
        chains=ChainSettings(buffer_size=rows, jump_components=4),
    )
    x = TOYS["moon"](10_000, generator(0))
    # Whatever is loaded on first use is loaded before.
    warm = TrainConfig(
        objective=OBJECTIVES[name], energy=Architecture(width=8), batch_size=8, chains=ChainSettings(buffer_size=8)
    )
    train_step(init_state(x, warm, None, torch.device("cpu")), x.float(), warm)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    state = init_state(x, config, None, torch.device("cpu"))
    for _ in range(2):  # Adam has its moments from the first update on
        train_step(state, x.float(), config)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    count = sum(p.numel() for group in state.optimizer.param_groups for p in group["params"])
    print(count, after - before)


def memory_table() -> None:
    print("hidden units  rows   objective  parameters  memory of an update, MiB")
    for width, rows in SIZES:
        figures = {}
        for name in COMPARED:
            command = [sys.executable, "-m", "studies", "objective-cost", "--one", name, str(width), str(rows)]
            out = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
            figures[name] = int(out[0]), int(out[1]) / MIB
            print(f"{width:<14}{rows:<7}{name:<11}{figures[name][0]:<12}{figures[name][1]:.1f}")
        ratios = [ours / theirs for theirs, ours in zip(*(figures[name] for name in COMPARED), strict=True)]
        print(f"{'':<21}ratio      {ratios[0]:<12.2f}{ratios[1]:.2f}")


def flags(parser: argparse.ArgumentParser) -> None:
    """The flags of this study."""
    parser.add_argument("--memory", action="store_true", help="parameters and memory instead of time")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)  # what a process of the memory table does


def run(args: argparse.Namespace) -> None:
    """Print the table that is asked for."""
    if args.one:
        memory_of(args.one[0], int(args.one[1]), int(args.one[2]))
    elif args.memory:
        memory_table()
    else:
        time_table()
