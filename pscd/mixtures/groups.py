"""Groups that a person should hear of: ignored rows that may be data after all, and kept rows that may be junk."""

import torch
from torch import Tensor

from pscd.mixtures.neighbours import NEIGHBOUR_ROWS, isolation

DENSE = 0.75  # quantile of the majority's distances to neighbours; ignored rows with smaller ones are dense
SMALLEST_GROUP = 0.02  # share of the rows below which a group is not reported
FEWEST = 10  # rows in a group
MOST_GROUPS = 3
LARGEST_FAR = 0.35  # share of the rows above which a group that lies apart is no oddity
FAR_ROWS = 2_000  # as many rows as a search for far groups needs


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
    u = some / (some.std(0) + 1e-12)
    away = isolation(u)
    reach = away[~left_out].quantile(DENSE)
    core = (left_out & (away < reach)).nonzero().flatten()
    if len(core) < fewest:
        return []
    name = _linked(torch.cdist(u[core], u[core]) < reach)
    # Rows at the edge of a group have fewer neighbours than those inside, and belong to it all the same.
    rows = left_out.nonzero().flatten()
    distance, nearest = torch.cdist(u[rows], u[core]).min(1)
    rows, name = rows[distance < reach], name[nearest[distance < reach]]
    found = [rows[name == j] for j in name.unique()]
    return sorted((group for group in found if len(group) >= fewest), key=len, reverse=True)[:MOST_GROUPS]


def far_groups(z: Tensor) -> list[Tensor]:
    """Groups of rows that are farther from all others than typical rows are from the middle, largest first.

    Such a group may be a kind of data of its own, or junk that lies together: a stuck sensor, another unit. Nothing in
    the rows can tell.

    Args:
        z: the rows that count, `(n, d)`, in coordinates in which columns have comparable scales; no more than
            `FAR_ROWS`, since the cost is quadratic.

    Returns:
        Indices of the rows of each group, for at most three groups of 2 to 35 % of the rows.
    """
    gap = (z - z.median(0).values).norm(dim=1).median()
    name = _linked(torch.cdist(z, z) < gap)
    found = [(name == j).nonzero().flatten() for j in name.unique()]
    fewest, most = max(FEWEST, int(SMALLEST_GROUP * len(z))), LARGEST_FAR * len(z)
    return sorted((group for group in found if fewest <= len(group) <= most), key=len, reverse=True)[:MOST_GROUPS]


def _linked(near: Tensor) -> Tensor:
    """A name for each of n rows, the same for rows that a chain of near ones, `(n, n)`, leads between."""
    name = torch.arange(len(near))
    while True:
        smallest = torch.where(near, name, len(near)).amin(1)
        smallest = smallest[smallest]  # halves what is left of a long chain
        if torch.equal(smallest, name):
            return name
        name = smallest
