"""What a detector takes on large tables, and what it finds in wide ones: `python -m studies cells.speed`.

Two tables are made: one of 100,000 rows and 30 mixed columns with 3 % missing, and one of 20,000 rows and 300 columns
of numbers in which one cell in ten thousand is off by six deviations.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from studies.reading import mixed_table

ONE_IN = 10_000  # cells that are wrong in the wide table
OFF_BY = 6.0  # deviations
FACTORS = 10  # that the columns of the wide table have in common


def wide_table(n: int, d: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows `(n, d)` of ten common factors and as much noise, standardised, and which of their cells are wrong."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, FACTORS)) @ rng.normal(size=(FACTORS, d)) / np.sqrt(FACTORS) + rng.normal(size=(n, d))
    x = (x - x.mean(0)) / x.std(0)
    wrong = np.zeros(n * d, bool)
    wrong[rng.choice(n * d, max(1, n * d // ONE_IN), replace=False)] = True
    wrong = wrong.reshape(n, d)
    x[wrong] += OFF_BY * rng.choice([-1, 1], int(wrong.sum()))
    return x, wrong


def timed(name: str, work: Callable[[], Any]) -> Any:
    """Do something, and print what it took."""
    start, wall = time.process_time(), time.perf_counter()
    result = work()
    spent = time.process_time() - start, time.perf_counter() - wall
    print(f"{name:<8} {spent[0]:7.2f} s of the processor, {spent[1]:7.2f} s by the clock", flush=True)
    return result


def mixed(n: int) -> None:
    """Fit, score, and look at all cells of a mixed table."""
    from pscd import EnergyDetector

    frame = mixed_table(n)
    print(f"{n:,} rows, {frame.shape[1]} mixed columns")
    detector = timed("fit", lambda: EnergyDetector().fit(frame))
    timed("score", lambda: detector.score_samples(frame))
    timed("explain", lambda: detector.explain(frame))
    found = timed("cells", lambda: detector.cells(frame))
    print(f"{(found['problem'] == 'wrong').sum():,} of {frame.size:,} cells look wrong")


def wide(n: int, d: int) -> None:
    """Single wrong cells among hundreds of columns, by what cells cost and, for comparison, rows by energy."""
    from sklearn.metrics import average_precision_score

    from pscd import EnergyDetector

    x, wrong = wide_table(n, d)
    print(f"{n:,} rows, {d} columns, {wrong.sum():,} cells off by {OFF_BY:g} deviations")
    detector = timed("fit", lambda: EnergyDetector().fit(x))
    cost = timed("explain", lambda: detector.explain(x))
    energy = -timed("score", lambda: detector.score_samples(x))
    rows = wrong.any(1)
    print(f"average precision of cells by cost: {average_precision_score(wrong.ravel(), cost.ravel()):.3f}")
    print(f"average precision of rows by their worst cell: {average_precision_score(rows, cost.max(1)):.3f}")
    print(f"average precision of rows by energy: {average_precision_score(rows, energy):.3f}")


def main() -> None:
    """Measure both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000, help="of the mixed table; 0: without it")
    parser.add_argument("--wide-rows", type=int, default=20_000, help="of the wide table; 0: without it")
    parser.add_argument("--columns", type=int, default=300, help="of the wide table")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    if args.rows:
        mixed(args.rows)
    if args.wide_rows:
        wide(args.wide_rows, args.columns)


if __name__ == "__main__":
    main()
