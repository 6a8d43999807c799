"""`pscd sample`: rows of a detector or a model, as many as one likes, drawn and written in parts, resumable."""

import argparse
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pscd.cli.common import write
from pscd.cli.streams import Part, in_parts, job_of
from pscd.errors import UserError

if TYPE_CHECKING:
    import numpy as np

    from pscd.detector.estimator import EnergyDetector
    from pscd.model import Model

SAMPLE_BLOCK = 131_072  # rows that are drawn at a time
FLAGS = ("n", "seed", "label", "steps")

Drawn = tuple["np.ndarray", dict[str, Any]]


def is_large(args: argparse.Namespace, n: int) -> bool:
    """Whether samples are drawn in parts.

    Args:
        args: the flags of `pscd sample`.
        n: how many samples.

    Returns:
        True if there are many, or if they go to a folder.
    """
    return n > SAMPLE_BLOCK or not args.out.suffix


def part_seed(seed: int, i: int) -> int:
    """The seed of a part: that of the command for the first, so that it has the rows that a small sample has.

    Args:
        seed: of the command.
        i: number of the part.

    Returns:
        A seed of its own for every other part.

    >>> part_seed(3, 0), part_seed(3, 1) == part_seed(3, 2)
    (3, False)
    """
    from pscd.rng import Stream, generator, integer_seed

    return seed if i == 0 else integer_seed(generator(seed, Stream.SAMPLE_PART, i))


def rows_of_detector(detector: "EnergyDetector", n: int, seed: int) -> Drawn:
    """Rows drawn from a detector.

    Args:
        detector: the fitted detector.
        n: how many.
        seed: of the draws.

    Returns:
        An array, and columns by name.
    """
    import numpy as np

    rows = detector.sample(n, random_state=seed)
    if isinstance(rows, np.ndarray):
        names = getattr(detector, "feature_names_in_", [f"x{j}" for j in range(rows.shape[1])])
        return rows, dict(zip(names, rows.T, strict=True))
    return rows.to_numpy(), {name: rows[name] for name in rows.columns}


def sample_detector(args: argparse.Namespace) -> None:
    """Draw rows from a detector, for `pscd sample`.

    Args:
        args: the flags.

    Raises:
        UserError: the detector is damaged, or the file cannot be written.
    """
    from pscd.detector.estimator import EnergyDetector

    detector = EnergyDetector.load(args.run)
    if args.out.suffix == ".npy" and (schema := detector.reader_.schema) is not None:
        others = [column.name for column in schema.learnt() if column.kind not in ("number", "integer")]
        if others:
            raise UserError(f"{args.out}: the rows are not all numbers; let the name end in .csv or .parquet")
    if is_large(args, args.n):
        sample_in_parts(args, args.n, lambda n, seed: rows_of_detector(detector, n, seed))
        return
    write(args.out, *rows_of_detector(detector, args.n, args.seed))
    print(f"{args.n} samples: {args.out}")


def rows_of_model(model: "Model", args: argparse.Namespace, n: int, seed: int, *, progress: bool = False) -> Drawn:
    """Rows drawn from a model.

    Args:
        model: of the run.
        args: the flags of `pscd sample`.
        n: how many.
        seed: of the chains.
        progress: whether to show a line with the time left.

    Returns:
        An array, and columns by name.
    """
    samples = model.sample(n, seed=seed, n_steps=args.steps, label=args.label, progress=progress)
    flat = samples.flatten(1).numpy()
    names = model.columns or [f"x{i}" for i in range(flat.shape[1])]
    return samples.numpy(), dict(zip(names, flat.T, strict=True))


def sample_in_parts(args: argparse.Namespace, n: int, draw: Callable[[int, int], Drawn]) -> None:
    """Draw many rows and write them, a part at a time.

    Args:
        args: the flags of `pscd sample`.
        n: how many rows.
        draw: gives so many rows for a seed.

    Raises:
        UserError: the file cannot be written.
    """
    if n < 1:
        raise UserError(f"the number of samples must be at least 1, got {n}")

    def sizes(first: int) -> Iterator[int]:
        return (min(SAMPLE_BLOCK, n - start) for start in range(first * SAMPLE_BLOCK, n, SAMPLE_BLOCK))

    def work(i: int, size: int) -> Part:
        array, columns = draw(size, part_seed(args.seed, i))
        return Part(columns, array, {"rows": size})

    job = job_of("sample", args, args.run, FLAGS, []) | {"n": n}
    in_parts(args.out, job, sizes, work, total=n, one_by_one=True)
    print(f"{n} samples: {args.out}")
