from collections.abc import Iterator
from contextlib import contextmanager

from pscd.fast import sequence


@contextmanager
def limited(to: sequence.Limits) -> Iterator[None]:
    """Use other limits in the block."""
    token = sequence.limits.set(to)
    try:
        yield
    finally:
        sequence.limits.reset(token)
