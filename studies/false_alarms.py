"""How often a table of one or two columns is taken for a dirty one: `python -m studies false-alarms`.

Writes a page: of so many tables of each kind, each with its own seed, those for which the recipe estimates at least 5 %
contamination, as they are and with 10 % contamination. Nothing is trained; it takes a few minutes of one core.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from tqdm import tqdm

from pscd.files import write_text_atomic
from pscd.recipes.tables import prepare
from pscd.rng import generator
from pscd.version import machine
from studies.engine import with_reading
from studies.engine.markdown import markdown_table
from studies.presets import PRESETS

Draw = Callable[[int, int, torch.Generator], Tensor]


def normal(n: int, d: int, rng: torch.Generator) -> Tensor:
    """One mode."""
    return torch.randn(n, d, generator=rng, dtype=torch.float64)


def two_modes(n: int, d: int, rng: torch.Generator) -> Tensor:
    """Two modes, six deviations apart in every column."""
    return normal(n, d, rng) + 6.0 * (torch.arange(n) % 2)[:, None]


def even(n: int, d: int, rng: torch.Generator) -> Tensor:
    """Evenly spread."""
    return torch.rand(n, d, generator=rng, dtype=torch.float64)


def exponential(n: int, d: int, rng: torch.Generator) -> Tensor:
    """A long tail on one side."""
    return -even(n, d, rng).log()


KINDS: dict[str, Draw] = {"normal": normal, "two modes": two_modes, "even": even, "exponential": exponential}


def with_junk(x: Tensor, share: float, rng: torch.Generator) -> Tensor:
    """A share of the rows replaced by ones that are spread evenly over twice the range of each column."""
    k = round(share * len(x))
    low, high = x.amin(0), x.amax(0)
    x[:k] = low + (high - low) * (2 * torch.rand(k, x.shape[1], generator=rng, dtype=torch.float64) - 0.5)
    return x


def is_taken_for_dirty(kind: str, n: int, d: int, share: float, seed: int, least: float = 0.05) -> bool:
    """Whether the contamination estimated for one table, which is its gamma auto, is at least `least`."""
    rng = generator(seed, n, d)
    x = with_junk(KINDS[kind](n, d, rng), share, rng)
    _, config = prepare(x, PRESETS["plane"].changed({"seed": seed}))
    gamma = config.objective.gamma
    return bool(gamma >= least)


PAGE = """\
# How often a small table is taken for a dirty one

Made by `python -m studies false-alarms --seeds {seeds} --rows {rows}`. {machine}.

For how many of {seeds} tables, each drawn with its own seed, the recipe estimates at least 5 % contamination: as they
are, and with 10 % of the rows replaced by ones spread evenly over twice the range of each column. Nothing is trained.

{table}
"""


def flags(parser: argparse.ArgumentParser) -> None:
    """The flags of this study."""
    parser.add_argument("--rows", type=int, nargs="*", help="rows of a table (default: 200 500 2000; 200 with --quick)")


def run(args: argparse.Namespace) -> Path:
    """Count the tables of each kind; returns the page."""
    torch.set_num_threads(1)
    seeds = args.seeds or (1 if args.quick else 12)
    sizes = args.rows or ([200] if args.quick else [200, 500, 2000])
    cases = [(kind, d, n) for kind in KINDS for d in (1, 2) for n in sizes]
    lines = [
        [
            kind,
            str(d),
            f"{n:,}",
            *(f"{_count(kind, n, d, share, seeds)} of {seeds}" for share in (0.0, 0.1)),
        ]
        for kind, d, n in tqdm(cases)
    ]
    table = markdown_table(["rows are", "columns", "rows", "clean, taken for dirty", "with junk, seen"], lines)
    path = args.out / "false-alarms.md"
    text = PAGE.format(seeds=seeds, rows=" ".join(map(str, sizes)), machine=machine(), table=table)
    args.out.mkdir(parents=True, exist_ok=True)
    write_text_atomic(path, with_reading(text, path))
    return path


def _count(kind: str, n: int, d: int, share: float, seeds: int) -> int:
    """Tables that are taken for dirty."""
    return sum(is_taken_for_dirty(kind, n, d, share, seed) for seed in range(seeds))
