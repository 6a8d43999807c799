"""Rows that are read while they are trained on, because there are too many of them to hold.

A *source* is read in *chunks*: a row group of a Parquet file, some kilobytes of a `.npy` file. An epoch is a random
order of the chunks, cut into *groups* of consecutive ones, and each group into *windows*. A window fits into memory and
its rows are shuffled; it holds whole chunks, or, where chunks are large, an equal share of each chunk of its group,
so that it always mixes many places of the data. Every row comes once in an epoch.

Everything is a function of the seed, the epoch and the window, so a run goes on at any row without saved state: one
window is read, no more. Processes take turns with the windows.

Rows are not read one by one at random places, as they are in memory: on a table of 2 GB that took 20 times as long for
a row, and 450 times where the file was not in the system's cache (docs/results/large.md).
"""

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from math import gcd
from typing import TYPE_CHECKING, Protocol, Self

import numpy as np
import torch
from torch import Tensor

from pscd.errors import UserError
from pscd.rng import Stream, generator

if TYPE_CHECKING:
    from pscd.tables import Schema

SAMPLE_ROWS = 200_000  # that a large table is prepared from: coordinates, mixture, gamma
WINDOW_NUMBERS = 2**23  # of a window


@dataclass(frozen=True)
class Batch:
    """Rows and their labels, if there are any."""

    x: Tensor  # `(n, *shape)`
    label: Tensor | None = None  # `(n,)`, or None


@dataclass(frozen=True)
class Window:
    """Consecutive rows of what one process reads, in a random order."""

    start: int  # how many rows the process has read before
    x: Tensor  # `(n, *shape)`
    label: Tensor | None = None  # `(n,)`, or None


@dataclass(frozen=True)
class Sample:
    """Random rows of a source, for what has to be known before the first update."""

    x: Tensor  # `(n, *shape)`, in a random order; all rows of a source stay in theirs
    position: np.ndarray  # `(n,)`, where they are in the source
    label: Tensor | None = None  # `(n,)`, or None


class Source(Protocol):
    """Rows that are read piece by piece."""

    shape: tuple[int, ...]
    columns: tuple[str, ...] | None
    reads_ahead: bool  # whether windows may be read by a thread of their own

    @property
    def n_rows(self) -> int | None:
        """Number of rows, None if it is unknown before the end."""

    @property
    def about(self) -> str:
        """What tells these data from others, beside the values of a sample: columns, and rows of each piece."""

    def leaving_out(self, position: np.ndarray) -> "Source":
        """The source without the rows at these positions."""

    def sample(self, n: int, seed: int, stream: Stream = Stream.STREAM_SAMPLE) -> Sample:
        """At most `n` random rows; all of them, if there are no more."""

    def windows(self, seed: int, position: int, rank: int = 0, world: int = 1) -> Iterator[Window]:
        """All windows of a process, epoch after epoch without end, from the one that holds its row `position`."""


def sample_size(shape: tuple[int, ...], most_numbers: int = 2**24) -> int:
    """How many rows the sample has that a source is prepared from."""
    return min(SAMPLE_ROWS, max(1000, most_numbers // int(np.prod(shape))))


def fingerprint(source: Source, *samples: Sample) -> str:
    """A checksum of what a source says about itself and of sampled rows: of a large file, not all of it is read."""
    total = zlib.crc32(source.about.encode())
    for sample in samples:
        for part in (sample.x, sample.label):
            if part is not None:
                total = zlib.crc32(np.ascontiguousarray(part.numpy()).data, total)
    return f"{total:08x}"


def shuffled(sample: Sample, rng: torch.Generator, *, whole: bool) -> Sample:
    """A sample in a random order, since its first rows may stand for all of them."""
    if whole:
        return sample
    order = torch.randperm(len(sample.x), generator=rng)
    label = None if sample.label is None else sample.label[order]
    return Sample(sample.x[order], sample.position[order.numpy()], label)


class Chunks(Protocol):
    """Data in chunks of known sizes."""

    shape: tuple[int, ...]
    columns: tuple[str, ...] | None
    sizes: np.ndarray  # rows of each chunk
    sampled: int  # chunks that a sample is taken from, at most
    mixed: int  # chunks that take part in a window, at least
    window: int  # rows of a window
    notes: tuple[str, ...]  # on a file

    @property
    def schema(self) -> "Schema | None":
        """What the columns of a table are."""

    def read(self, chunk: int, rows: np.ndarray | None) -> Batch:
        """These rows of a chunk, or all of them."""

    def where(self, chunk: int, row: int) -> str:
        """A row in words, for messages: the file and its number in it."""


@dataclass(frozen=True)
class Epoch:
    """The order of an epoch: its groups, and its windows as (group, share, shares)."""

    groups: list[np.ndarray]  # chunks of each group
    windows: list[tuple[int, int, int]]  # which share of which group, of how many
    rows: np.ndarray  # of each window


class ChunkedSource:
    """A source whose chunks have known sizes, so that the place of every row of every epoch is known, too."""

    reads_ahead = True

    def __init__(self, chunks: Chunks, left_out: np.ndarray | None = None) -> None:
        self.chunks, self.shape, self.columns = chunks, chunks.shape, chunks.columns
        self.left_out = np.empty(0, np.int64) if left_out is None else np.unique(left_out)
        self.first = np.concatenate([[0], np.cumsum(chunks.sizes)])  # position of the first row of each chunk
        self.sizes = chunks.sizes - np.diff(np.searchsorted(self.left_out, self.first))
        self._samples: dict[tuple[int, ...], Sample] = {}

    @property
    def n_rows(self) -> int:
        """Number of rows, without those left out."""
        return int(self.sizes.sum())

    @cached_property
    def about(self) -> str:
        """Shape, columns, and the rows of each chunk."""
        sizes = zlib.crc32(np.ascontiguousarray(self.chunks.sizes, np.int64).data)
        return f"{self.shape} {self.columns} {len(self.chunks.sizes)} {sizes}"

    def leaving_out(self, position: np.ndarray) -> Self:
        """The source without the rows at these positions."""
        return type(self)(self.chunks, np.concatenate([self.left_out, position]))

    def sample(self, n: int, seed: int, stream: Stream = Stream.STREAM_SAMPLE) -> Sample:
        """Random rows, from at most `chunks.sampled` chunks spread over the source; the same for the same seed."""
        key = (n, seed, stream)
        if key not in self._samples:
            self._samples[key] = self._sample(n, generator(seed, stream))
        return self._samples[key]

    def _sample(self, n: int, rng: torch.Generator) -> Sample:
        chosen = np.arange(len(self.sizes))
        if self.n_rows > n and len(chosen) > self.chunks.sampled:
            # One of each of so many equal parts of the source, so that no part goes unseen.
            edges = np.linspace(0, len(chosen), self.chunks.sampled + 1).astype(np.int64)
            within = torch.rand(self.chunks.sampled, generator=rng, dtype=torch.float64).numpy()
            chosen = edges[:-1] + (within * np.diff(edges)).astype(np.int64)
        ends = np.concatenate([[0], np.cumsum(self.sizes[chosen])])
        n = min(n, int(ends[-1]))
        drawn = distinct(int(ends[-1]), n, rng).sort().values.numpy()
        parts, positions = [], []
        cuts = np.searchsorted(drawn, ends)
        for i in np.flatnonzero(np.diff(cuts)):
            part, rows = self._read(int(chosen[i]), drawn[cuts[i] : cuts[i + 1]] - ends[i])
            parts.append(part)
            positions.append(rows + self.first[chosen[i]])
        labels = [part.label for part in parts if part.label is not None]
        x, label = torch.cat([part.x for part in parts]), torch.cat(labels) if labels else None
        return shuffled(Sample(x, np.concatenate(positions), label), rng, whole=n == self.n_rows)

    def windows(self, seed: int, position: int, rank: int = 0, world: int = 1) -> Iterator[Window]:
        """All windows of a process, epoch after epoch without end, from the one that holds its row `position`."""
        start, number = 0, 0
        if world == 1:  # every epoch has all rows; others have to be counted
            number = position // self.n_rows
            start = number * self.n_rows
        while True:
            epoch = plan(self.sizes, self.chunks.window, self.chunks.mixed, seed, number, world)
            for w in range(rank, len(epoch.windows), world):
                n = int(epoch.rows[w])
                if start + n > position:
                    yield self._window(epoch, w, start, seed, number)
                start += n
            number += 1

    def _window(self, epoch: Epoch, w: int, start: int, seed: int, number: int) -> Window:
        group, share, shares = epoch.windows[w]
        order = torch.randperm(int(epoch.rows[w]), generator=generator(seed, Stream.STREAM_WINDOW, number, w))
        x: Tensor | None = None
        label: Tensor | None = None
        at = 0
        for chunk in epoch.groups[group].tolist():
            rows = _dealt(int(self.sizes[chunk]), share, shares, seed, number, chunk)
            if rows is not None and not len(rows):
                continue
            part, _ = self._read(chunk, rows)
            if x is None:
                x = torch.empty(len(order), *self.shape, dtype=part.x.dtype)
                label = torch.empty(len(order), dtype=torch.long) if part.label is not None else None
            places = order[at : at + len(part.x)]
            x[places] = part.x
            if label is not None and part.label is not None:
                label[places] = part.label
            at += len(part.x)
        assert x is not None
        return Window(start, x, label)

    def _read(self, chunk: int, rows: np.ndarray | None) -> tuple[Batch, np.ndarray]:
        """Rows of a chunk, of those that are not left out, and their numbers in the whole chunk."""
        n = int(self.chunks.sizes[chunk])
        if self.sizes[chunk] < n:
            low, high = np.searchsorted(self.left_out, self.first[chunk : chunk + 2])
            used = np.delete(np.arange(n), self.left_out[low:high] - self.first[chunk])
            rows = used if rows is None else used[rows]
        part = self.chunks.read(chunk, rows)
        rows = np.arange(n) if rows is None else rows
        check_finite(part.x, lambda bad: self.chunks.where(chunk, int(rows[bad])))
        return part, rows


def check_finite(x: Tensor, where: Callable[[int], str], largest: float = 1e30) -> None:
    """Refuse rows with missing, infinite or huge values."""
    good = x.abs().amax(tuple(range(1, x.ndim))) < largest  # NaN compares false
    if not good.all():
        bad = int((~good).nonzero()[0])
        raise UserError(f"{where(bad)} is missing, infinite or over 1e30; fill or remove it")


def plan(sizes: np.ndarray, window: int, mixed: int, seed: int, number: int, world: int = 1) -> Epoch:
    """The order of an epoch."""
    window = max(1, min(window, int(sizes.sum()) // world))
    order = torch.randperm(len(sizes), generator=generator(seed, Stream.STREAM_CHUNKS, number)).numpy()
    ends = np.cumsum(sizes[order])
    groups, at = [], 0
    while at < len(order):
        before = int(ends[at - 1]) if at else 0
        full = int(np.searchsorted(ends, before + window)) + 1
        end = min(max(full, at + mixed), len(order))
        if len(order) - end < mixed or ends[-1] - ends[end - 1] < window / 2:
            end = len(order)  # what is left would be no group of its own
        groups.append(order[at:end])
        at = end
    shares = [max(1, round(int(sizes[group].sum()) / window)) for group in groups]
    while sum(shares) < world:
        shares = [2 * share for share in shares]
    # First one window of every group, then the next: an early end has seen something of all of them.
    windows = [(q, s, shares[q]) for s in range(max(shares)) for q in range(len(groups)) if s < shares[q]]
    rows = [int(np.sum((s + 1) * sizes[groups[q]] // k - s * sizes[groups[q]] // k)) for q, s, k in windows]
    return Epoch(groups, windows, np.array(rows))


def _dealt(size: int, share: int, shares: int, seed: int, number: int, chunk: int) -> np.ndarray | None:
    """The rows of a chunk that belong to one of the windows of its group; None: all of them."""
    if shares == 1:
        return None
    low, high = share * size // shares, (share + 1) * size // shares
    rng = generator(seed, Stream.STREAM_DEAL, number, chunk)
    # Rows by a random stride around the chunk: each once, without a list of all of them.
    stride, offset = 1, int(torch.randint(max(1, size), (), generator=rng))
    while size > 2 and (stride == 1 or gcd(stride, size) > 1):
        stride = int(torch.randint(2, size, (), generator=rng)) if size > 3 else 2
    return np.sort((stride * np.arange(low, high, dtype=np.int64) + offset) % max(1, size))


def distinct(n: int, k: int, rng: torch.Generator) -> Tensor:
    """Different random numbers below `n`, without a list of all of them where there are many."""
    if n <= 4 * k:
        return torch.randperm(n, generator=rng)[:k]
    drawn = torch.randint(n, (k + k // 2 + 10,), generator=rng).unique()
    drawn = drawn[torch.randperm(len(drawn), generator=rng)]
    return drawn[:k] if len(drawn) >= k else distinct(n, k, rng)
