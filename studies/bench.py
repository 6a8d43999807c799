"""`python -m studies bench`: how fast updates are on this machine."""

import argparse
from typing import TYPE_CHECKING

from pscd.errors import UserError

if TYPE_CHECKING:
    from studies.timing import Estimate, Task

ROUNDS, QUICK_ROUNDS = 15, 3
HEAD = f"{'':<40}{'CD, ms':>10}{'PS-CD, ms':>11}   {'PS-CD / CD':<19}{'sampler / bound':<19}gradients"


def flags(parser: argparse.ArgumentParser) -> None:
    """The flags of this study."""
    from studies.timing import CASES

    parser.add_argument("--only", help=f"cases, with commas between them, of: {', '.join(CASES)} (default: all)")
    parser.add_argument("--rounds", type=int, help=f"rounds of each (default: {ROUNDS}; {QUICK_ROUNDS} with --quick)")


def run(args: argparse.Namespace) -> None:
    """Time the cases and print a row for each."""
    from studies.timing import CASES

    names = [name.strip() for name in args.only.split(",")] if args.only else list(CASES)
    unknown = [name for name in names if name not in CASES]
    if unknown:
        raise UserError(f"unknown case {unknown[0]!r}; there are: {', '.join(CASES)}")
    rounds = (QUICK_ROUNDS if args.quick else ROUNDS) if args.rounds is None else args.rounds
    if rounds < 1:
        raise UserError(f"--rounds must be at least 1, got {rounds}")
    print(HEAD)
    for name in names:
        print(_row(name, rounds), flush=True)
    print(
        f"Medians of {rounds} rounds, in brackets their 95 % intervals. The bound is the time of the sampler's matrix"
    )
    print("products alone. The comparison with other libraries is `make bench` in the repository.")


def _row(name: str, rounds: int) -> str:
    from studies.timing import CASES, OBJECTIVES, Training, estimate, ratio, take_turns

    runs = {objective: Training(CASES[name], gamma) for objective, gamma in OBJECTIVES.items()}
    tasks: dict[str, Task] = {objective: run.update for objective, run in runs.items()}
    tasks |= {"sampler": runs["CD"].sample, "bound": runs["CD"].bound()}
    times = take_turns(tasks, rounds, show=True)
    cd, pscd = (1e3 * estimate(times[objective]).median for objective in OBJECTIVES)
    relative, excess = ratio(times["PS-CD"], times["CD"]), ratio(times["sampler"], times["bound"])
    times_of_updates = f"{CASES[name].title:<40}{cd:>10.1f}{pscd:>11.1f}"
    return f"{times_of_updates}   {_show(relative):<19}{_show(excess):<19}{runs['CD'].gradients}"


def _show(value: "Estimate") -> str:
    return f"{value.median:.2f} ({value.low:.2f}, {value.high:.2f})"
