"""A replay buffer: chains that persist from one update to the next."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from pscd.data.pixels import to_bytes, to_unit

Draw = Callable[[int, torch.Generator | None], Tensor]


@dataclass(frozen=True)
class BufferedRows:
    """Rows drawn from a `ReplayBuffer`: their places in it, `(n,)`, the points, and labels of conditional models."""

    index: Tensor
    x: Tensor
    label: Tensor | None


class ReplayBuffer:
    """Holds `size` chains; drawn rows are written back to where they were.

    Args:
        size: number of chains.
        fresh: draws `n` fresh points, to fill the buffer and to restart chains.
        draw_label: draws `n` labels, for conditional models; a chain keeps its label until it restarts.
        uint8: store points in [0, 1] as bytes, a quarter of the memory of float32, for images.
        generator: of the first points.
    """

    def __init__(
        self,
        size: int,
        fresh: Draw,
        *,
        draw_label: Draw | None = None,
        uint8: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        self.fresh = fresh
        self.draw_label = draw_label
        self.uint8 = uint8
        self.x = self._encode(fresh(size, generator))
        self.label = draw_label(size, generator) if draw_label is not None else None

    def __len__(self) -> int:
        return len(self.x)

    def draw(self, n: int, restart: float, generator: torch.Generator | None = None) -> BufferedRows:
        """Draw different rows, all equally likely; each is replaced by a fresh point with probability `restart`.

        If `n` exceeds the size of the buffer, rows occur more than once, and the last one written stays.
        """
        device = self.x.device
        size = len(self.x)
        if n <= size:
            index = _different(n, size, generator, device)
        else:
            index = torch.randint(size, (n,), generator=generator, device=device)
        x = self._decode(self.x[index])
        label = self.label[index] if self.label is not None else None
        if restart > 0:
            restarted = torch.rand(n, generator=generator, device=device) < restart
            x = torch.where(restarted.view(-1, *[1] * (x.ndim - 1)), self.fresh(n, generator), x)
            if label is not None and self.draw_label is not None:
                label = torch.where(restarted, self.draw_label(n, generator), label)
        return BufferedRows(index, x, label)

    def write(self, rows: BufferedRows, x: Tensor) -> None:
        """Write moved points `(n, *shape)` back to where `rows` were drawn, with their labels."""
        self.x[rows.index] = self._encode(x)
        if self.label is not None and rows.label is not None:
            self.label[rows.index] = rows.label

    def _encode(self, x: Tensor) -> Tensor:
        return to_bytes(x.detach()) if self.uint8 else x.detach()

    def _decode(self, x: Tensor) -> Tensor:
        return to_unit(x) if self.uint8 else x


def _different(n: int, size: int, generator: torch.Generator | None, device: torch.device) -> Tensor:
    """`n` different numbers below `size`, equally likely: one from each of `n` arcs of a randomly rotated circle."""
    # Unlike that of a permutation, the cost does not grow with `size`.
    edges = torch.arange(n + 1, device=device) * size // n
    width = edges.diff()
    within = torch.rand(n, generator=generator, device=device, dtype=torch.float64)
    shift = torch.randint(size, (1,), generator=generator, device=device)
    # Rounding may take the product to the end of its arc, which belongs to the next one.
    return (edges[:-1] + torch.minimum((within * width).long(), width - 1) + shift) % size
