"""A source that is an iterable of batches: it is read from its beginning, epoch after epoch."""

import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from pscd.data.chunks import as_batch
from pscd.data.streams import WINDOW_NUMBERS, Batch, Sample, Window, check_finite, shuffled
from pscd.errors import UserError
from pscd.files import one_line
from pscd.rng import Stream, generator, integer_seed


class BatchSource:
    """Batches of an iterable, a `DataLoader` or a function that returns one, shuffled within windows."""

    # A run that resumes reads the rows before its place again and drops them. Randomness of the iterable itself, such
    # as that of a `DataLoader` that shuffles, is seeded by the epoch.

    columns: tuple[str, ...] | None = None
    n_rows: int | None = None
    reads_ahead = False  # it may use torch's global random numbers, and a DataLoader reads ahead by itself

    def __init__(
        self,
        batches: Iterable[Any] | Callable[[], Iterable[Any]],
        *,
        labelled: bool = False,
        left_out: np.ndarray | None = None,
        shape: tuple[int, ...] | None = None,
    ) -> None:
        self.batches, self.labelled = batches, labelled
        self.left_out = np.empty(0, np.int64) if left_out is None else np.unique(left_out)
        if isinstance(batches, Iterator):
            kind = type(batches).__name__
            raise UserError(f"a {kind} can be read once only; give what makes it: a list, a DataLoader or a function")
        self.shape = shape if shape is not None else self._shape()
        self.window = max(1, WINDOW_NUMBERS // int(np.prod(self.shape)))
        self._samples: dict[tuple[int, ...], Sample] = {}

    def _shape(self) -> tuple[int, ...]:
        for _, part in self._epoch(0, 0, 1, 0):
            return tuple(part.x.shape[1:])
        raise UserError("the iterable gives no batches")

    @property
    def about(self) -> str:
        """Shape of the rows, and what holds them."""
        return f"{self.shape} {zlib.crc32(type(self.batches).__name__.encode())}"

    def leaving_out(self, position: np.ndarray) -> Self:
        """The source without the rows at these positions."""
        out = np.concatenate([self.left_out, position])
        return type(self)(self.batches, labelled=self.labelled, left_out=out, shape=self.shape)

    def _epoch(self, seed: int, number: int, world: int, rank: int) -> Iterator[tuple[np.ndarray, Batch]]:
        """The batches of a process in an epoch, with the positions of their rows, those left out removed."""
        at, iterator = 0, None
        shape = getattr(self, "shape", None)
        for i in count():
            # Samplers and workers take their seeds from torch's generator when the first batch is asked for.
            with torch.random.fork_rng(devices=[], enabled=i == 0):
                if iterator is None:
                    torch.manual_seed(integer_seed(generator(seed, Stream.STREAM_CHUNKS, number)))
                    iterator = iter(self.batches() if callable(self.batches) else self.batches)
                batch = next(iterator, None)
            if batch is None:
                return
            part = _part(batch, self.labelled, shape)
            shape = tuple(part.x.shape[1:])
            position = np.arange(at, at + len(part.x))
            at += len(part.x)
            if i % world != rank:
                continue
            is_used = ~np.isin(position, self.left_out)
            if is_used.all():
                yield position, part
            else:
                index = torch.from_numpy(is_used)
                yield position[is_used], Batch(part.x[index], None if part.label is None else part.label[index])

    def sample(self, n: int, seed: int, stream: Stream = Stream.STREAM_SAMPLE) -> Sample:
        """Random rows of the first ones: ten times as many as asked for are read, or all."""
        key = (n, seed, stream)
        if key not in self._samples:
            self._samples[key] = self._sample(n, seed, generator(seed, stream))
        return self._samples[key]

    def _sample(self, n: int, seed: int, rng: torch.Generator) -> Sample:
        # A reservoir: row i replaces a random one of the n kept with probability n / i.
        x: Tensor | None = None
        label: Tensor | None = None
        position, n_read = np.empty(n, np.int64), 0
        for places, part in self._epoch(seed, 0, 1, 0):
            if x is None:
                x = torch.empty(n, *self.shape, dtype=part.x.dtype)
                label = torch.empty(n, dtype=torch.long) if part.label is not None else None
            self._check(places, part)
            number = torch.arange(n_read, n_read + len(part.x))
            drawn = (torch.rand(len(number), generator=rng, dtype=torch.float64) * (number + 1)).long()
            to = torch.where(number < n, number, drawn)
            # The last of those that go to one place.
            slot, last = np.unique(to.flip(0).numpy(), return_index=True)
            rows = len(to) - 1 - last[slot < n]
            slot = slot[slot < n]
            x[slot], position[slot] = part.x[rows], places[rows]
            if label is not None and part.label is not None:
                label[slot] = part.label[rows]
            n_read += len(number)
            if n_read >= 10 * n:  # as the docstring says
                break
        if x is None:
            raise UserError("the iterable gives no rows")
        sample = Sample(x[:n_read], position[:n_read], None if label is None else label[:n_read])
        return shuffled(sample, rng, whole=n_read <= n)

    def windows(self, seed: int, position: int, rank: int = 0, world: int = 1) -> Iterator[Window]:
        """All windows of a process, epoch after epoch without end, from the one that holds its row `position`."""
        start = 0
        for number in count():
            before, n_rows, batches = start, 0, list[tuple[np.ndarray, Batch]]()
            for w, batch in enumerate(_with_end(self._epoch(seed, number, world, rank))):
                if batch is not None:
                    batches.append(batch)
                    n_rows += len(batch[1].x)
                if n_rows and (batch is None or n_rows >= self.window):
                    if start + n_rows > position:
                        yield self._window(batches, start, generator(seed, Stream.STREAM_WINDOW, number, w, rank))
                    start, n_rows, batches = start + n_rows, 0, []
            if start == before:
                raise UserError("the iterable gives no rows; it must give the same number of batches each time")

    def _window(self, batches: list[tuple[np.ndarray, Batch]], start: int, rng: torch.Generator) -> Window:
        for places, part in batches:
            self._check(places, part)
        x = torch.cat([part.x for _, part in batches])
        labels = [part.label for _, part in batches if part.label is not None]
        order = torch.randperm(len(x), generator=rng)
        return Window(start, x[order], torch.cat(labels)[order] if labels else None)

    def _check(self, places: np.ndarray, part: Batch) -> None:
        check_finite(part.x, lambda bad: f"row {places[bad] + 1} of the batches")


def _with_end(batches: Iterator[tuple[np.ndarray, Batch]]) -> Iterator[tuple[np.ndarray, Batch] | None]:
    yield from batches
    yield None


def _part(batch: Any, labelled: bool, shape: tuple[int, ...] | None) -> Batch:
    rows = batch[0] if isinstance(batch, tuple | list) else batch
    label = batch[1] if labelled and isinstance(batch, tuple | list) and len(batch) > 1 else None
    try:
        return as_batch(torch.as_tensor(rows), None if label is None else torch.as_tensor(label).long(), shape)
    except (TypeError, ValueError, RuntimeError) as error:
        raise UserError(f"a batch must be rows of numbers, or begin with them ({one_line(error)})") from None
