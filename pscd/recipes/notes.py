"""Notes on a table for its user: how many rows are ignored, and far groups of rows that count as data."""

import torch
from torch import Tensor

from pscd.coordinates import Coordinates, spaced_rows


def notes_of(
    x: Tensor,
    z: Tensor,
    clean: Tensor | None,
    coordinates: Coordinates,
    *,
    contamination: float = 0.0,
    gamma: float = 0.0,
    columns: tuple[str, ...] | None = None,
) -> tuple[str, ...]:
    """Sentences about a table."""
    names = columns or tuple(f"x{j}" for j in range(x.shape[1]))
    if coordinates.used is not None:
        names = tuple(name for name, used in zip(names, coordinates.used.tolist(), strict=True) if used)
        x = x[:, coordinates.used]
    counts = torch.ones(len(x), dtype=torch.bool) if clean is None else clean >= 0.5
    share = float((~counts).double().mean())
    if contamination >= 0.0005:
        first = f"about {contamination:.1%} of the rows look like contamination, and {share:.1%} are ignored"
    elif share:
        first = f"{int((~counts).sum()):,} of the rows lie too far from the others and are ignored"
    else:
        first = "every row counts"
    return f"gamma {gamma:g}: {first}", *_far_notes(x[counts], z[counts], names)


def _far_notes(x: Tensor, z: Tensor, names: tuple[str, ...]) -> list[str]:
    """Groups that count as data and lie far from everything else: nothing in the rows tells which they are."""
    x, z = (spaced_rows(rows, 2_000) for rows in (x, z))  # the cost is quadratic
    # A column of few values tells kinds apart, and no distances.
    has_distances = torch.tensor([len(column.unique()) > 10 for column in x.T])
    if not has_distances.any():
        return []
    notes = []
    for group in far_groups(z[:, has_distances]):
        apart = (z[group].median(0).values - z.median(0).values).abs().argsort(descending=True)[:2]
        centre = x[group].double().nanmedian(0).values
        place = ", ".join(f"{names[j]} = {float(centre[j]):.3g}" for j in apart.tolist())
        notes.append(
            f"a group of {len(group) / len(x):.1%} of the rows, around {place}, "
            "lies far from all others and counts as data; leave it out if it is contamination"
        )
    return notes


def far_groups(z: Tensor, shares: tuple[float, float] = (0.02, 0.35), most: int = 3) -> list[Tensor]:
    """Groups of rows `(n, d)` that are farther from all others than typical rows are from the middle, largest first."""
    from scipy.sparse.csgraph import connected_components

    reach = (z - z.median(0).values).norm(dim=1).median()
    label = torch.from_numpy(connected_components((torch.cdist(z, z) < reach).numpy(), directed=False)[1])
    groups = [(label == j).nonzero().flatten() for j in label.unique()]
    low, high = max(10, int(shares[0] * len(z))), shares[1] * len(z)
    return sorted((group for group in groups if low <= len(group) <= high), key=len, reverse=True)[:most]
