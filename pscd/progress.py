"""A progress line with the time left: on standard error, or as a notebook shows it."""

import sys
import time
from collections.abc import Callable

from tqdm.auto import tqdm

Forecast = Callable[[float], str | None]


class _Bar(tqdm):  # type: ignore[misc]  # mypy has no types of tqdm
    """A bar that calls `forecast` once with the seconds of a step, and prints what it returns."""

    forecast: Forecast | None = None
    timed: float = 2.0  # seconds of steps, after the first, to average over
    _timed_from: tuple[float, float] | None = None  # clock and number of steps after the first one

    def update(self, n: float | None = 1) -> bool | None:
        """Count steps; returns whether the line was drawn."""
        drawn = super().update(n)
        if self.forecast is not None and not self.disable:
            now = time.monotonic()
            if self._timed_from is None:  # what is done only once, such as compiling, is over now
                self._timed_from = now, self.n
                return drawn
            start, done = self._timed_from
            if now - start >= self.timed and self.n > done:
                sentence = self.forecast((now - start) / (self.n - done))
                self.forecast = None
                if sentence:
                    self.write(sentence, file=sys.stderr)
        return drawn


def progress_bar(
    total: int,
    *,
    done: int = 0,
    show: bool = True,
    unit: str = "step",
    in_thousands: bool = False,
    about: str | None = None,
    forecast: Forecast | None = None,
) -> "tqdm[None]":
    """A progress bar that terminals and notebooks redraw often, and a log file receives a line of every ten seconds."""
    in_notebook = any(kind.__module__ == "tqdm.notebook" for kind in tqdm.__mro__)
    bar = _Bar(
        total=total,
        initial=done,
        disable=not show,
        unit=unit,
        unit_scale=in_thousands,
        desc=about,
        mininterval=0.2 if in_notebook or sys.stderr.isatty() else 10.0,
        dynamic_ncols=True,
    )
    bar.forecast = forecast
    return bar


def duration(seconds: float) -> str:
    """A duration in seconds, minutes or hours.

    >>> duration(4.2), duration(600), duration(10_000)
    ('4 s', '10 min', '2.8 hours')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
