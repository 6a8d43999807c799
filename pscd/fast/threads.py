"""How many processor threads to use for a network, and for a piece of work."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

import torch
from torch import Tensor, nn

Item = TypeVar("Item")
Result = TypeVar("Result")

_allowed: ContextVar[int | None] = ContextVar("allowed", default=None)


@contextmanager
def threads_set(n: int | None) -> Iterator[None]:
    """Set the number of torch threads for the block; the number from before is restored afterwards.

    >>> with threads_set(1):
    ...     torch.get_num_threads()
    1
    """
    before = torch.get_num_threads()
    if n is not None:
        torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def enough_threads(
    energy: nn.Module, batch_size: int, shape: tuple[int, ...] = (), small_work: float = 1e8
) -> Iterator[None]:
    """Let torch use one thread while a small network trains; the number from before is restored afterwards.

    Below 1e8 multiply-adds per pass, a second thread gains less than a sixth on an idle machine. On a busy one, where
    threads wait for each other at every small operation, it slows training down many times.
    """
    is_small = batch_size * _multiply_adds(energy, shape) < small_work
    token = _allowed.set(allowed_threads())
    try:
        with threads_set(1 if is_small else None):
            yield
    finally:
        _allowed.reset(token)


def _multiply_adds(energy: nn.Module, shape: tuple[int, ...]) -> float:
    """Per row: every weight once, those of a convolution once for each position of its output."""
    convolutions = [m for m in energy.modules() if isinstance(m, nn.modules.conv._ConvNd)]
    if convolutions and not shape:
        return float("inf")
    positions: dict[nn.Module, int] = {}

    def count(module: nn.Module, inputs: object, output: Tensor) -> None:
        positions[module] = output[0, 0].numel()

    hooks = [m.register_forward_hook(count) for m in convolutions]
    parameter = next(energy.parameters(), torch.empty(0))
    training = energy.training
    try:
        if convolutions:
            with torch.no_grad():
                energy.eval()(torch.zeros(1, *shape, device=parameter.device, dtype=parameter.dtype))
    finally:
        energy.train(training)
        for hook in hooks:
            hook.remove()
    total = sum(p.numel() for p in energy.parameters())
    return total + sum((n - 1) * sum(p.numel() for p in m.parameters()) for m, n in positions.items())


def allowed_threads() -> int:
    """The most threads that C++ may use: torch's setting outside of `enough_threads`."""
    return _allowed.get() or torch.get_num_threads()


def in_order(work: Callable[[Item], Result], items: Iterable[Item], *, threads: int | None = None) -> Iterator[Result]:
    """Results of independent pieces of work, in the order of the pieces, with as many at a time as there are threads.

    Each piece has one thread of torch, so that no thread waits for another: on blocks of rows that is faster than all
    threads on one block after the other. Only a few pieces are taken in advance, so a stream of any length takes
    constant memory.

    >>> list(in_order(lambda x: x * x, [1, 2, 3], threads=2))
    [1, 4, 9]
    """
    n = allowed_threads() if threads is None else threads
    waiting: deque[Future[Result]] = deque()
    with threads_set(1), ThreadPoolExecutor(n) as pool:
        try:
            for item in items:
                waiting.append(pool.submit(_without_gradients, work, item))
                if len(waiting) > n + 1:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def _without_gradients(work: Callable[[Item], Result], item: Item) -> Result:
    with torch.no_grad():
        return work(item)


class Threads:
    """Chooses between one thread and all that are allowed, by timing repeated work."""

    # How much a second thread gains depends on the load of the machine: nearly a factor of two on an idle one, while on
    # a busy one threads wait for each other. So both are timed again from time to time, ever more rarely while the
    # choice remains the same. The result of the work must not depend on the choice.

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        *,
        first_pause: float = 0.25,  # seconds between two comparisons after a change
        longest_pause: float = 60.0,  # and in the long run
        clear_ratio: float = 0.9,  # of times, below which to change
    ) -> None:
        self._clock = clock
        self._many = False
        self._first_pause, self._longest_pause, self._clear_ratio = first_pause, longest_pause, clear_ratio
        self._pause, self._next_look = first_pause, -torch.inf

    def run(self, work: Callable[[int], None], most: int) -> None:
        """Do the work with 1 or `most` threads; at times repeat it to compare them."""
        if most == 1:
            work(1)
        elif self._clock() < self._next_look:
            work(self.favoured(most))
        else:
            self._look(work, most)

    def favoured(self, most: int) -> int:
        """The number of threads, 1 or `most`, that has been faster lately; for work that cannot be repeated."""
        return most if self._many else 1

    def _look(self, work: Callable[[int], None], most: int) -> None:
        ours, other = (most, 1) if self._many else (1, most)
        seconds = {}
        # Twice each, since the first run with another number wakes threads up; the last time is used.
        for threads in (ours, other, ours, other):
            start = self._clock()
            work(threads)
            seconds[threads] = self._clock() - start
        if seconds[other] < self._clear_ratio * seconds[ours]:
            self._many, self._pause = not self._many, self._first_pause
        else:
            self._pause = min(2 * self._pause, self._longest_pause)
        self._next_look = self._clock() + self._pause
