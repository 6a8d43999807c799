"""Draw new rows or images from a run.

Examples:
  pscd sample runs/my --n 1000 --out new.csv
  pscd sample runs/digits --out digits.png
"""

import argparse
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pscd.cli.flags import Parser, add_machine, add_out, add_run, at_least
from pscd.cli.output import OUTPUTS, PICTURES, SHOWN_IMAGES, OutputBlock, check_out, in_parts, job_of, say
from pscd.cli.reading import load_detector, load_model
from pscd.errors import UserError

if TYPE_CHECKING:
    import numpy as np

    from pscd.detector.estimator import EnergyDetector
    from pscd.model import Model

BLOCK = 131_072  # rows drawn at a time: those of a part that a killed command resumes from

Drawn = tuple["np.ndarray", dict[str, Any]]


def add_flags(parser: Parser) -> None:
    """Add the flags of `pscd sample`."""
    add_run(parser)
    add_out(parser, ".npy, .csv or .parquet file, or a folder of Parquet files; of images also .png")
    parser.add_argument("--n", type=at_least(1), help=f"how many (default: 10000; of images {SHOWN_IMAGES})")
    parser.add_argument("--seed", type=at_least(0), default=0, help="the same seed gives the same samples (default: 0)")
    parser.add_argument("--label", type=int, help="class to draw, from a conditional model")
    parser.add_argument("--steps", type=at_least(1), help="sampler steps (default: the run's sample_steps)")
    add_machine(parser)


def run(args: argparse.Namespace) -> None:
    """Draw rows and write them, many of them in parts."""
    check_out(args.out, args.force, (*OUTPUTS, *PICTURES))
    detector = load_detector(args.run)
    if detector is not None:
        n, draw = args.n or 10_000, _from_detector(detector, args)
    else:
        model = load_model(args.run, args.device)
        n = args.n or (SHOWN_IMAGES if model.is_image else 10_000)
        if args.out.suffix in PICTURES:
            _draw_picture(model, n, args)
            return
        draw = _from_model(model, args)

    def sizes(first: int) -> Iterator[int]:
        return (min(BLOCK, n - start) for start in range(first * BLOCK, n, BLOCK))

    def work(i: int, size: int) -> OutputBlock:
        array, columns = draw(size, part_seed(args.seed, i))
        return OutputBlock(columns, array, {"rows": size})

    settings = {"n": n, "seed": args.seed, "label": args.label, "steps": args.steps}
    in_parts(args.out, job_of("sample", settings, args.run), sizes, work, total=n, threads=1)
    say(f"{n} samples: {args.out}")


def part_seed(seed: int, i: int) -> int:
    """The seed of a part: that of the command for the first, a different one for every other.

    >>> part_seed(3, 0), part_seed(3, 1) == part_seed(3, 2)
    (3, False)
    """
    from pscd.rng import Stream, generator, integer_seed

    return seed if i == 0 else integer_seed(generator(seed, Stream.SAMPLE_PART, i))


def _from_detector(detector: "EnergyDetector", args: argparse.Namespace) -> Callable[[int, int], Drawn]:
    import numpy as np

    schema = detector.reader_.schema
    others = [c.name for c in schema.learnt() if c.kind not in ("number", "integer")]
    if args.out.suffix == ".npy" and others:
        raise UserError(f"{args.out}: column {others[0]!r} is not numeric; let the name end in .csv or .parquet")

    def draw(n: int, seed: int) -> Drawn:
        rows = detector.sample(n, seed=seed)
        if isinstance(rows, np.ndarray):
            names = getattr(detector, "feature_names_in_", [f"x{j}" for j in range(rows.shape[1])])
            return rows, dict(zip(names, rows.T, strict=True))
        return rows.to_numpy(), {name: rows[name] for name in rows.columns}

    return draw


def _from_model(model: "Model", args: argparse.Namespace) -> Callable[[int, int], Drawn]:
    import numpy as np

    def draw(n: int, seed: int) -> Drawn:
        options: dict[str, Any] = {"n_steps": args.steps, "label": args.label, "progress": model.is_image}
        if args.out.suffix == ".npy":
            return model.sample(n, seed=seed, **options).numpy(), {}
        frame = model.sample_frame(n, seed=seed, **options)
        return np.empty(0), {name: frame[name] for name in frame.columns}

    return draw


def _draw_picture(model: "Model", n: int, args: argparse.Namespace) -> None:
    from pscd.images import grids

    if not model.is_image:
        raise UserError(f"{args.run}: its rows are not images; let the name of --out end in .csv, .parquet or .npy")
    samples = model.sample(n, seed=args.seed, n_steps=args.steps, label=args.label, progress=True)
    grids.save(grids.grid(samples), args.out)
    say(f"{n} samples: {args.out}")
