"""How many processor threads a network deserves."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

# Multiply-adds per pass below which a second thread gains less than a sixth on an idle machine, and on a
# busy one, where threads wait for each other at every tiny operation, slows training many times over.
SMALL_WORK = 100_000_000


@contextmanager
def enough_threads(energy: nn.Module, batch_size: int) -> Iterator[None]:
    """One thread while a small fully connected network trains; what was set before, afterwards."""
    convolutional = any(isinstance(m, nn.modules.conv._ConvNd) for m in energy.modules())
    work = batch_size * sum(p.numel() for p in energy.parameters())
    before = torch.get_num_threads()
    if not convolutional and work < SMALL_WORK:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
