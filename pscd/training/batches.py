"""Batches of streamed rows, prepared on the way; rows are kept with their probability of being clean, as in memory."""

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import torch
from torch import Tensor

from pscd import distributed
from pscd.config import TrainConfig
from pscd.data.streams import Source, Window
from pscd.errors import UserError
from pscd.recipes.tables import Prepared
from pscd.rng import Stream, generator

BLOCK = 16  # updates whose rows are prepared together: many small calls would take longer than the rest of an update


class Batches:
    """Batches of a source, each a function of the number of the update."""

    # In memory a row is drawn with probability proportional to that of being clean. Here each streamed row is kept with
    # that probability, which gives the same batches on average and needs no number for each row. A block of updates
    # reads a fixed number of rows, so that the place of every update in the stream is known.

    def __init__(self, source: Source, prepared: Prepared, config: TrainConfig, device: torch.device) -> None:
        self.source, self.prepared, self.config, self.device = source, prepared, config, device
        self.n = config.batch_size // distributed.world_size()
        share = 1.0 if prepared.clean is None else float(prepared.clean.double().mean())
        wanted = BLOCK * self.n
        # More candidates than are needed on average, by six standard deviations.
        self.n_read = math.ceil(wanted / share + 6 * math.sqrt(wanted * (1 - share)) / share)
        self._block = -1
        self._z, self._label = torch.empty(0), None if not config.energy.classes else torch.empty(0)
        self._windows: Iterator[Window] | None = None
        self._window: Window | None = None
        self._next: Callable[[], Window] | None = None
        self._thread = ThreadPoolExecutor(1, "pscd-rows")

    def close(self) -> None:
        """Stop reading ahead."""
        self._thread.shutdown(wait=True, cancel_futures=True)

    def __enter__(self) -> "Batches":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def batch(self, step: int) -> tuple[Tensor, Tensor | None]:
        """This process's rows of an update in the network's coordinates, and labels if the energy has classes."""
        block, i = divmod(step, BLOCK)
        if block != self._block:
            distributed.on_all(lambda: self._load(block))
        part = slice(i * self.n, (i + 1) * self.n)
        return self._z[part], None if self._label is None else self._label[part]

    def _load(self, block: int) -> None:
        """Read and prepare the rows of a block of updates."""
        rng = generator(self.config.seed, Stream.STREAM_ROWS, block, distributed.rank())
        x, label = self._rows(block * self.n_read, self.n_read)
        z, clean = self.prepared.transform(x, rng)
        wanted = BLOCK * self.n
        if clean is not None:
            kept = (torch.rand(len(z), generator=rng, dtype=clean.dtype) < clean).nonzero().flatten()
            kept = kept if len(kept) else clean.argmax()[None]
            index = kept[torch.arange(wanted) % len(kept)]  # too few in one block of a billion
            z, label = z[index], None if label is None else label[index]
        self._z = z[:wanted].to(self.device)
        self._label = None if label is None else self._check_label(label[:wanted]).to(self.device)
        self._block = block

    def _check_label(self, label: Tensor) -> Tensor:
        classes = self.config.energy.classes
        if label.min() < 0 or label.max() >= classes:
            raise UserError(
                f"labels must lie between 0 and {classes - 1}; one is {int(label.max())}; change energy.classes"
            )
        return label

    def _rows(self, start: int, n: int) -> tuple[Tensor, Tensor | None]:
        """The next n rows that this process reads, from a position."""
        parts: list[Tensor] = []
        labels: list[Tensor] = []
        while n > 0:
            window = self._window_at(start)
            part = slice(start - window.start, start - window.start + n)
            parts.append(window.x[part])
            if self._label is not None:
                if window.label is None:
                    raise UserError(
                        "an energy with classes needs a label for each row; without labels, set energy.classes to 0"
                    )
                labels.append(window.label[part])
            start, n = start + len(parts[-1]), n - len(parts[-1])
        return torch.cat(parts), torch.cat(labels) if labels else None

    def _window_at(self, position: int) -> Window:
        """The window that holds a row; the one after it is read meanwhile."""
        window = self._window
        if window is not None and window.start <= position < window.start + len(window.x):
            return window
        end = -1 if window is None else window.start + len(window.x)
        if self._next is None or position != end:  # the first one, or back after a divergence
            self._restart(position)
        assert self._next is not None
        assert self._windows is not None
        try:
            self._window = None  # its memory goes before the next one after it is read
            self._window = self._next()
        except BaseException:
            self._next = None
            raise
        self._next = self._ahead()
        return self._window

    def _restart(self, position: int) -> None:
        world, rank = distributed.world_size(), distributed.rank()
        self._windows = self.source.windows(self.config.seed, position, rank, world)
        self._next = self._ahead()

    def _ahead(self) -> Callable[[], Window]:
        """What returns the next window, which a thread begins to read now if the source allows it."""
        assert self._windows is not None
        if not self.source.reads_ahead:
            return partial(next, self._windows)
        return self._thread.submit(next, self._windows).result
