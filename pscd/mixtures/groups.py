"""Groups of ignored rows that lie as close together as the majority, so that they may be data after all."""

import torch
from torch import Tensor

from pscd.mixtures.neighbours import NEIGHBOUR_ROWS, isolation
from pscd.mixtures.robust import k_means

DENSE = 0.75  # quantile of the majority's distances to neighbours; ignored rows with smaller ones are dense
SMALLEST_GROUP = 0.02  # share of the rows below which a group is not reported
FEWEST = 10  # rows in a group
MOST_GROUPS = 3


def dense_groups(z: Tensor, ignored: Tensor) -> list[Tensor]:
    """The dense groups among ignored rows, largest first.

    Args:
        z: all rows, `(n, d)`; only the first `NEIGHBOUR_ROWS` are searched.
        ignored: true for rows that were ignored, `(n,)`.

    Returns:
        Indices of the rows of each group, for at most three groups.
    """
    some, left_out = z[:NEIGHBOUR_ROWS], ignored[:NEIGHBOUR_ROWS]
    fewest = max(FEWEST, int(SMALLEST_GROUP * len(some)))
    if int(left_out.sum()) < fewest or bool(left_out.all()):
        return []
    away = isolation(some / (some.std(0) + 1e-12))
    dense = (left_out & (away < away[~left_out].quantile(DENSE))).nonzero().flatten()
    if len(dense) < fewest:
        return []
    rows = some[dense]
    cluster = k_means(rows / (rows.std(0) + 1e-12), min(MOST_GROUPS, len(rows)), torch.Generator().manual_seed(0))
    found = [dense[cluster == j] for j in range(MOST_GROUPS)]
    return sorted((group for group in found if len(group) >= fewest), key=len, reverse=True)
