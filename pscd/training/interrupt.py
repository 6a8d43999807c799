"""Ctrl-C, deferred to a convenient moment."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def deferred_interrupt(*, enabled: bool = True) -> Iterator[Callable[[], bool]]:
    """Defer Ctrl-C and SIGTERM; yields a function: whether one has arrived. A second Ctrl-C acts at once."""
    # Outside the main thread signals cannot be caught.
    if not enabled or threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    received = False
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal received
        received = True
        restore()

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    for number in before:
        signal.signal(number, note)
    try:
        yield lambda: received
    finally:
        restore()
