"""A progress line with the time left: on standard error, or as a notebook shows it."""

import sys

from tqdm.auto import tqdm

IN_NOTEBOOK = any(kind.__module__ == "tqdm.notebook" for kind in tqdm.__mro__)


def progress_bar(
    total: int,
    *,
    done: int = 0,
    show: bool = True,
    unit: str = "step",
    in_thousands: bool = False,
    about: str | None = None,
) -> "tqdm[None]":
    """A progress bar that a terminal or a notebook redraws often and a log file receives a line of every ten seconds.

    Args:
        total: steps in all.
        done: steps done before.
        show: False for a silent bar.
        unit: what a step is called.
        in_thousands: whether to write 1.2M for 1,200,000.
        about: what is going on, at the start of the line.

    Returns:
        The bar, to be used as a context manager.
    """
    interval = 0.2 if IN_NOTEBOOK or sys.stderr.isatty() else 10.0
    return tqdm(
        total=total,
        initial=done,
        disable=not show,
        unit=unit,
        unit_scale=in_thousands,
        desc=about,
        mininterval=interval,
        dynamic_ncols=True,
    )
