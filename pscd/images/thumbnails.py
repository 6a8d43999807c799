"""Pictures as rows of a table: brightness, contrast, detail, colours and layout of each, and near-duplicates.

A detector of tables finds outliers among these rows in seconds; a network on pixels takes minutes to train. It is not
one-sided, as the energy of such a network may be: the far too low contrast of a black frame makes it an outlier.
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


@dataclass(frozen=True)
class Described:
    """Descriptions of the pictures that could be read."""

    paths: tuple[Path, ...]  # of these pictures
    x: np.ndarray  # `(n, columns)`, the `COLUMNS` of each
    miniatures: np.ndarray  # `(n, numbers)`, what `near_duplicates` compares
    unreadable: tuple[tuple[Path, str], ...]  # the other pictures, each with the reason


def describe(paths: Sequence[Path], *, side: int = 32) -> Described:
    """Read pictures of any size and format and describe thumbnails of them.

    Args:
        paths: the files.
        side: pixels of a thumbnail.

    Returns:
        The descriptions, and the pictures that cannot be read.
    """
    readable, rows, miniatures, unreadable = [], [], [], []
    with progress_bar(len(paths), show=len(paths) >= 300, unit="picture") as bar:
        for path in paths:
            try:
                thumbnail = torch.from_numpy(decode_picture(path, 3, side))[None]
                rows.append(numbers_of(thumbnail)[0])
                miniatures.append(miniatures_of(thumbnail)[0])
                readable.append(path)
            except Exception as error:  # Pillow raises a dozen kinds for a damaged file
                unreadable.append((path, one_line(error)))
            bar.update()
    x, small = (torch.stack(parts).numpy() if parts else np.empty((0, 0)) for parts in (rows, miniatures))
    return Described(tuple(readable), x, small, tuple(unreadable))


def columns_for(n: int) -> tuple[str, ...]:
    """The first `COLUMNS`, one for every six of n pictures and at least five.

    >>> len(columns_for(20)), columns_for(50)[5:], columns_for(100) == COLUMNS
    (5, ('layout 1', 'layout 2', 'layout 3'), True)
    """
    return COLUMNS[: max(5, n // 6)]


def reason(x: np.ndarray, typical: np.ndarray, cost: np.ndarray) -> str:
    """Why a picture is an outlier, such as `too dark`: the column of highest cost, compared with its typical value."""
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


def near_duplicates(miniatures: np.ndarray, *, tolerance: float = 0.01) -> list[list[int]]:
    """Groups of pictures that hardly differ: copies, other sizes and other compressions of one picture.

    Args:
        miniatures: of pictures, `(n, numbers)`, from `describe`.
        tolerance: root mean square difference of grey and colour, of 1, below which two pictures are near-duplicates.

    Returns:
        Indices of the pictures of each group, the largest group first; most pictures are in none.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    pairs = []
    for first_index, second_index, close in close_miniatures(torch.from_numpy(miniatures), tolerance):
        row, column = close.nonzero().T
        pairs.append(torch.stack([first_index[row], second_index[column]]))
    first, second = torch.cat(pairs, 1).numpy()
    graph = coo_array((np.ones(len(first), bool), (first, second)), shape=(len(miniatures), len(miniatures)))
    group = connected_components(graph, directed=False)[1]
    members = [np.flatnonzero(group == i).tolist() for i in np.flatnonzero(np.bincount(group) > 1)]
    return sorted(members, key=lambda indices: (-len(indices), indices))
