"""`python -m studies bench`: how fast updates are on this machine."""

from typing import TYPE_CHECKING

from pscd.cli.flags import Parser, parse_names
from pscd.errors import UserError

if TYPE_CHECKING:
    from studies.timing import Estimate, Task

ROUNDS, QUICK_ROUNDS = 15, 3
HEAD = f"{'':<40}{'CD, ms':>10}{'PS-CD, ms':>11}   {'PS-CD / CD':<19}{'sampler / bound':<19}gradients"


def main() -> None:
    """Time the cases and print a row for each."""
    from studies.timing import CASES

    parser = Parser("python -m studies bench", description=__doc__)
    parser.add_argument("--only", help=f"cases, with commas between them, of: {', '.join(CASES)} (default: all)")
    parser.add_argument("--rounds", type=int, help=f"rounds of each (default: {ROUNDS}; {QUICK_ROUNDS} with --quick)")
    parser.add_argument("--quick", action="store_true", help="few rounds, to see that it works")
    args = parser.parse_args()
    from pscd import fast

    names = parse_names(args.only) if args.only else tuple(CASES)
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
    if fast.compiled_in() is not None:
        print(f"The C++ was compiled just now in {fast.compiled_in():.1f} s, and kept for later.")


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
