"""How isolated rows are: the distance to their k-th nearest neighbour."""

import math

import torch
from torch import Tensor

LEAST_NEIGHBOURS = 5
NEIGHBOUR_ROWS = 5_000  # the most rows to search for neighbours: the cost is quadratic
NEIGHBOUR_BLOCK = 500  # rows at a time, to bound the memory


def isolation(u: Tensor) -> Tensor:
    """Distance of each of n rows `(n, d)` to its nearest neighbour of rank sqrt(n), but at least 5: `(n,)`."""
    neighbour = min(max(LEAST_NEIGHBOURS, math.isqrt(len(u))), len(u) - 1)
    # Rank + 1, because each row is its own nearest neighbour.
    blocks = (torch.cdist(part, u).kthvalue(neighbour + 1, 1).values for part in u.split(NEIGHBOUR_BLOCK))
    return torch.cat(list(blocks))
