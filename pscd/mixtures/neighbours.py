"""How isolated rows are: the distance to their k-th nearest neighbour."""

import math

import torch
from torch import Tensor

LEAST_NEIGHBOURS = 5
NEIGHBOUR_ROWS = 5_000  # the most rows to search for neighbours: the cost is quadratic
BLOCK = 500  # rows at a time, to bound the memory


def isolation(u: Tensor) -> Tensor:
    """Distance of each of n rows `(n, d)` to its nearest neighbour of rank sqrt(n), but at least 5: `(n,)`."""
    neighbour = min(max(LEAST_NEIGHBOURS, math.isqrt(len(u))), len(u) - 1)
    u = u - u.mean(0)
    squares = u.square().sum(1)
    found = []
    for part, own in zip(u.split(BLOCK), squares.split(BLOCK), strict=True):
        # |x - y|^2 less |x|^2, which is the same for all y: the order is that of the distances.
        apart = torch.addmm(squares, part, u.T, alpha=-2)
        # Rank + 1, because each row is its own nearest neighbour. `topk` takes half the time of `kthvalue`.
        farthest = apart.topk(neighbour + 1, 1, largest=False, sorted=False).values.amax(1)
        found.append((farthest + own).clamp(min=0).sqrt())
    return torch.cat(found)
