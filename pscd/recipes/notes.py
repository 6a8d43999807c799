"""What preparation tells a person: how many rows look like junk, and which groups may have been taken wrongly."""

import torch
from torch import Tensor

from pscd.coordinates import Coordinates, spaced_rows
from pscd.mixtures.groups import FAR_ROWS, dense_groups, far_groups
from pscd.mixtures.neighbours import NEIGHBOUR_ROWS

IGNORED = 0.5  # a row that is less likely than this to belong to the majority counts as ignored
FEW_VALUES = 10  # a column with no more different values than this tells kinds apart, and no distances


def notes_of(
    x: Tensor,
    z: Tensor,
    clean: Tensor | None,
    coordinates: Coordinates,
    *,
    junk: float = 0.0,
    gamma: float = 0.0,
    columns: tuple[str, ...] | None = None,
    beyond: Tensor | None = None,
) -> tuple[str, ...]:
    """Sentences about a table, its junk, and groups of rows that a person may see differently.

    Args:
        x: rows `(n, d)` in the units of the data.
        z: the same in the network's coordinates.
        clean: the probability of each row that it belongs to the majority, `(n,)`; None if all rows count alike.
        coordinates: the map from `x` to `z`.
        junk: the estimated share of junk.
        gamma: of the objective.
        columns: names of the columns; by default x0, x1 and so on.
        beyond: rows that are left out, since they lie where no chain comes, `(n,)`; None: there are none.

    Returns:
        The sentences.
    """
    names = columns or tuple(f"x{j}" for j in range(x.shape[1]))
    if coordinates.used is not None:
        names = tuple(name for name, seen in zip(names, coordinates.used.tolist(), strict=True) if seen)
        x = x[:, coordinates.used]
    if clean is None:
        counts = torch.ones(len(x), dtype=torch.bool) if beyond is None else ~beyond
        return f"gamma {gamma:g}: {_counting(x, z, counts, names)}", *_far(x[counts], z[counts], names)
    ignored = clean < IGNORED
    share = float(ignored.double().mean())
    first = f"gamma {gamma:g}: about {junk:.1%} of the rows look like junk, and {share:.1%} are ignored"
    return first, *_ignored(x, z, ignored, names), *_far(x[~ignored], z[~ignored], names)


def _counting(x: Tensor, z: Tensor, counts: Tensor, names: tuple[str, ...]) -> str:
    """Which rows count where nothing looks like junk."""
    if counts.all():
        return "every row counts"
    beyond = (~counts).nonzero().flatten()
    farthest = beyond[(z[beyond] - z[counts].median(0).values).norm(dim=1).argmax()]
    place, one = _place(x, z, farthest[None], z[counts], names), len(beyond) == 1
    many = f"{len(beyond):,} ({len(beyond) / len(x):.1%})"
    which = f"1, which lies too far from the others to be learnt from, at {place}"
    if not one:
        which = f"{many}, which lie too far from the others to be learnt from, the farthest at {place}"
    return f"every row counts but {which}"


def _ignored(x: Tensor, z: Tensor, ignored: Tensor, names: tuple[str, ...]) -> list[str]:
    """Dense groups among the ignored rows, which may be data after all."""
    x, z, ignored = (spaced_rows(rows, NEIGHBOUR_ROWS) for rows in (x, z, ignored))
    return [
        f"a group of {len(group) / len(x):.1%} of the rows, around {_place(x, z, group, z[~ignored], names)}, "
        "was ignored; gamma 0 keeps it"
        for group in dense_groups(z, ignored)
    ]


def _far(x: Tensor, z: Tensor, names: tuple[str, ...]) -> list[str]:
    """Groups that count as data and lie far from everything else."""
    x, z = (spaced_rows(rows, FAR_ROWS) for rows in (x, z))
    telling = torch.tensor([len(column.unique()) > FEW_VALUES for column in x.T])
    if not telling.any():
        return []
    return [
        f"a group of {len(group) / len(x):.1%} of the rows, around {_place(x, z, group, z, names)}, "
        "lies far from all others and counts as data; leave it out if it is junk"
        for group in far_groups(z[:, telling])
    ]


def _place(x: Tensor, z: Tensor, group: Tensor, others: Tensor, names: tuple[str, ...]) -> str:
    """Where a group lies, by the two columns in which it is farthest from the middle of others: "a = 3, b = 7"."""
    apart = (z[group].median(0).values - others.median(0).values).abs().argsort(descending=True)[:2]
    centre = x[group].double().median(0).values
    return ", ".join(f"{names[j]} = {float(centre[j]):.3g}" for j in apart.tolist())
