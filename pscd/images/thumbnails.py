"""Pictures as rows of a table: brightness, contrast, detail, colours and layout of each, and which of them are alike.

A detector of tables then finds strange pictures in seconds, where a network on pixels takes minutes to train. It is not
one-sided, as the energy of such a network may be: a black frame has far too little contrast, and so is strange.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from pscd.data.looks import COLUMNS, GROUPS, close_miniatures, miniatures_of, numbers_of
from pscd.data.pictures import decode_picture
from pscd.files import one_line
from pscd.progress import progress_bar

SIDE = 32  # pixels of a thumbnail
FEWEST_COLUMNS, PICTURES_PER_COLUMN = 5, 6  # few pictures are described by the first columns only
ALIKE = 0.01  # root mean square difference of grey and colour, of 1, below which pictures count as near-duplicates
LONG_LIST = 300  # pictures that take seconds to read


@dataclass(frozen=True)
class Described:
    """Pictures in numbers.

    Args:
        paths: those that could be read.
        x: `(n, columns)`, the `COLUMNS` of each.
        miniatures: `(n, numbers)`, what `near_duplicates` compares.
        unreadable: the others, each with the reason.
    """

    paths: tuple[Path, ...]
    x: np.ndarray
    miniatures: np.ndarray
    unreadable: tuple[tuple[Path, str], ...]


def describe(paths: Sequence[Path]) -> Described:
    """Read pictures of any size and kind, and describe them; those that cannot be read are left out.

    Args:
        paths: the files.

    Returns:
        The descriptions, and what could not be read.
    """
    found, rows, miniatures, unreadable = [], [], [], []
    with progress_bar(len(paths), show=len(paths) >= LONG_LIST, unit="picture") as bar:
        for path in paths:
            try:
                thumbnail = torch.from_numpy(decode_picture(path, 3, SIDE))[None]
                rows.append(numbers_of(thumbnail)[0])
                miniatures.append(miniatures_of(thumbnail)[0])
                found.append(path)
            except Exception as error:  # Pillow raises a dozen kinds for a damaged file
                unreadable.append((path, one_line(error)))
            bar.update()
    x, small = (torch.stack(parts).numpy() if parts else np.empty((0, 0)) for parts in (rows, miniatures))
    return Described(tuple(found), x, small, tuple(unreadable))


def columns_for(n: int) -> tuple[str, ...]:
    """The columns that so many pictures are enough to judge by.

    Args:
        n: number of pictures.

    Returns:
        The first of `COLUMNS`, and all of them from 78 pictures on.

    >>> len(columns_for(20)), columns_for(50)[5:], columns_for(100) == COLUMNS
    (5, ('layout 1', 'layout 2', 'layout 3'), True)
    """
    return COLUMNS[: max(FEWEST_COLUMNS, n // PICTURES_PER_COLUMN)]


def reason(x: np.ndarray, typical: np.ndarray, cost: np.ndarray) -> str:
    """What is strange about a picture, in a word or two.

    Args:
        x: its columns.
        typical: their medians over all pictures.
        cost: what each of them costs.

    Returns:
        For example `too dark`, or `layout`; nothing if no column costs anything.
    """
    j = int(np.argmax(cost))
    if cost[j] <= 0:
        return ""
    words = {
        "brightness": ("too dark", "too bright"),
        "contrast": ("too flat", "too much contrast"),
        "detail": ("too smooth", "too busy"),
    }
    group = next(group for group in GROUPS if COLUMNS[j].startswith(group))
    return words[group][int(x[j] > typical[j])] if group in words else group


def near_duplicates(miniatures: np.ndarray) -> list[list[int]]:
    """Groups of pictures that hardly differ: copies, other sizes and other compressions of one picture.

    Args:
        miniatures: of pictures, `(n, numbers)`.

    Returns:
        Indices of the pictures of each group, the largest group first; pictures unlike all others are in none.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    pairs = []
    for some, others, close in close_miniatures(torch.from_numpy(miniatures), ALIKE):
        row, column = close.nonzero().T
        pairs.append(torch.stack([some[row], others[column]]))
    first, second = torch.cat(pairs, 1).numpy()
    graph = coo_array((np.ones(len(first), bool), (first, second)), shape=(len(miniatures), len(miniatures)))
    group = connected_components(graph, directed=False)[1]
    found = [np.flatnonzero(group == i).tolist() for i in np.flatnonzero(np.bincount(group) > 1)]
    return sorted(found, key=lambda members: (-len(members), members))
