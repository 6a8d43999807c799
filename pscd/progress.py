"""A progress line with the time left, on standard error."""

import sys

from tqdm import tqdm


def progress_bar(total: int, *, done: int = 0, show: bool = True, unit: str = "step") -> "tqdm[None]":
    """A progress bar that a terminal redraws often and a log file receives a line of every ten seconds.

    Args:
        total: steps in all.
        done: steps done before.
        show: False for a silent bar.
        unit: what a step is called.

    Returns:
        The bar, to be used as a context manager.
    """
    interval = 0.2 if sys.stderr.isatty() else 10.0
    return tqdm(total=total, initial=done, disable=not show, unit=unit, mininterval=interval, dynamic_ncols=True)
