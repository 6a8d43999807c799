"""A progress line with the time left: on standard error, or as a notebook shows it."""

import sys
import time
from collections.abc import Callable

from tqdm.auto import tqdm

IN_NOTEBOOK = any(kind.__module__ == "tqdm.notebook" for kind in tqdm.__mro__)
TIMED = 2.0  # seconds of steps, after the first, that a forecast is made from

Foretell = Callable[[float], str | None]


class _Bar(tqdm):  # type: ignore[misc]  # of which mypy knows nothing
    """A bar that says after its first steps how long all of them may take."""

    foretell: Foretell | None = None
    _timed_from: tuple[float, float] | None = None  # clock and number of steps after the first one

    def update(self, n: float | None = 1) -> bool | None:
        """Count steps.

        Args:
            n: how many.

        Returns:
            Whether the line was drawn.
        """
        drawn = super().update(n)
        if self.foretell is not None and not self.disable:
            self._foretell()
        return drawn

    def _foretell(self) -> None:
        now = time.monotonic()
        if self._timed_from is None:  # what is done only once, such as compiling, is over now
            self._timed_from = now, self.n
            return
        start, done = self._timed_from
        if now - start >= TIMED and self.n > done and self.foretell is not None:
            sentence = self.foretell((now - start) / (self.n - done))
            self.foretell = None
            if sentence:
                self.write(sentence, file=sys.stderr)


def progress_bar(
    total: int,
    *,
    done: int = 0,
    show: bool = True,
    unit: str = "step",
    in_thousands: bool = False,
    about: str | None = None,
    foretell: Foretell | None = None,
) -> "tqdm[None]":
    """A progress bar that a terminal or a notebook redraws often and a log file receives a line of every ten seconds.

    Args:
        total: steps in all.
        done: steps done before.
        show: False for a silent bar.
        unit: what a step is called.
        in_thousands: whether to write 1.2M for 1,200,000.
        about: what is going on, at the start of the line.
        foretell: called once with the seconds that a step takes, after the first few; what it returns is written above
            the bar.

    Returns:
        The bar, to be used as a context manager.
    """
    interval = 0.2 if IN_NOTEBOOK or sys.stderr.isatty() else 10.0
    bar = _Bar(
        total=total,
        initial=done,
        disable=not show,
        unit=unit,
        unit_scale=in_thousands,
        desc=about,
        mininterval=interval,
        dynamic_ncols=True,
    )
    bar.foretell = foretell
    return bar


def duration(seconds: float) -> str:
    """A duration as a person would say it.

    Args:
        seconds: how long.

    Returns:
        In seconds, minutes or hours.

    >>> duration(4.2), duration(600), duration(10_000)
    ('4 s', '10 min', '2.8 hours')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
