"""How isolated rows are: the distance to their k-th nearest neighbour."""

import math

import torch
from torch import Tensor

NEIGHBOUR_ROWS = 5_000  # the most rows to search for neighbours: the cost is quadratic


def isolation(u: Tensor, *, least: int = 5, block: int = 500) -> Tensor:
    """Distance of each of n rows `(n, d)` to its neighbour number sqrt(n), but at least `least`: `(n,)`."""
    neighbour = min(max(least, math.isqrt(len(u))), len(u) - 1)
    u = u - u.mean(0)
    squares = u.square().sum(1)
    found = []
    for part, own in zip(u.split(block), squares.split(block), strict=True):
        # |x - y|^2 less |x|^2, which is the same for all y: the order is that of the distances.
        apart = torch.addmm(squares, part, u.T, alpha=-2)
        # Rank + 1, because each row is its own nearest neighbour. `topk` takes half the time of `kthvalue`.
        farthest = apart.topk(neighbour + 1, 1, largest=False, sorted=False).values.amax(1)
        found.append((farthest + own).clamp(min=0).sqrt())
    return torch.cat(found)
