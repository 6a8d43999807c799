"""How isolated rows are: the distance to a neighbour of some rank."""

import math

import torch
from torch import Tensor

LEAST_NEIGHBOURS = 5
NEIGHBOUR_ROWS = 5_000  # rows whose neighbours are looked for, at most, and among which
NEIGHBOUR_BLOCK = 500  # rows at a time, which bounds the memory


def isolation(u: Tensor) -> Tensor:
    """How far each of n rows `(n, k)` is from its neighbour number sqrt(n), `(n,)`."""
    neighbour = min(max(LEAST_NEIGHBOURS, math.isqrt(len(u))), len(u) - 1)
    # Each row is the nearest to itself.
    blocks = (torch.cdist(part, u).kthvalue(neighbour + 1, 1).values for part in u.split(NEIGHBOUR_BLOCK))
    return torch.cat(list(blocks))
