"""Pictures as rows of a table: brightness, contrast, detail, colours and layout of each, and which of them are alike.

A detector of tables then finds strange pictures in seconds, where a network on pixels takes minutes to train. It is not
one-sided, as the energy of such a network may be: a black frame has far too little contrast, and so is strange.

Layout is a few slow waves over the whole picture. Greys of many small squares are no good to a detector: a square that
is empty in most pictures has hardly any spread, so that whatever reaches into it looks strange, and dozens of them
drown the few numbers that tell a black frame or noise.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from pscd.data.image_formats import decode_picture
from pscd.data.pixels import LUMA, to_unit
from pscd.files import one_line
from pscd.progress import progress_bar

SIDE = 32  # pixels of a thumbnail
WAVES = 3  # slow waves along a side that layout is made of, the constant one included
SQUARES, PATCHES = 8, 2  # along a side, whose greys and whose colours tell pictures apart
DARKEST = 1 / 255  # below one step of a byte, contrast and detail are those of the rounding
COLUMNS = (
    "brightness",
    "contrast",
    "detail",
    "colour 1",
    "colour 2",
    *(f"layout {i + 1}" for i in range(WAVES**2 - 1)),
)
FEWEST_COLUMNS, PICTURES_PER_COLUMN = 5, 6  # few pictures are described by the first columns only
GROUPS = ("brightness", "contrast", "detail", "colour", "layout")  # what a column is about: the start of its name
ALIKE = 0.01  # root mean square difference of grey and colour, of 1, below which pictures count as near-duplicates
LONG_LIST = 300  # pictures that take seconds to read
BLOCK = 1024  # pictures that are compared with all others at a time


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


def numbers_of(x: Tensor) -> Tensor:
    """The `COLUMNS` of pictures.

    Args:
        x: bytes `(n, 3, side, side)`.

    Returns:
        `(n, columns)` in float64.

    >>> black = torch.zeros(1, 3, 32, 32, dtype=torch.uint8)
    >>> numbers_of(black)[0, :3].exp().mul(255).round()  # no light, less contrast and detail than a step of a byte
    tensor([255.,   1.,   1.], dtype=torch.float64)
    """
    grey, opposites = _grey_and_opposites(x)
    contrast = (grey.std((1, 2), correction=0) + DARKEST).log()
    steps = grey.diff(dim=1).abs().mean((1, 2)) + grey.diff(dim=2).abs().mean((1, 2))
    parts = (
        torch.stack([grey.mean((1, 2)), contrast, (steps + DARKEST).log()], 1),
        opposites.mean((2, 3)),
        _layout(grey),
    )
    return torch.cat(parts, 1)


def miniatures_of(x: Tensor) -> Tensor:
    """Pictures in so few numbers that copies in other sizes and compressions have nearly the same.

    Args:
        x: bytes `(n, 3, side, side)`.

    Returns:
        `(n, numbers)` in float64, colours of patches and greys of squares.
    """
    grey, opposites = _grey_and_opposites(x)
    parts = (adaptive_avg_pool2d(opposites, PATCHES), adaptive_avg_pool2d(grey[:, None], SQUARES))
    return torch.cat([part.flatten(1) for part in parts], 1)


def _grey_and_opposites(x: Tensor) -> tuple[Tensor, Tensor]:
    """Greys `(n, side, side)` of pictures, and red less green and yellow less blue, `(n, 2, side, side)`."""
    colour = to_unit(x).double()
    grey = torch.einsum("nchw,c->nhw", colour, torch.tensor(LUMA, dtype=torch.float64))
    red, green, blue = colour.unbind(1)
    return grey, torch.stack([red - green, (red + green) / 2 - blue], 1)  # both 0 for grey


def _layout(grey: Tensor) -> Tensor:
    """How much of each slow wave there is in pictures `(n, side, side)`, the slowest first: `(n, WAVES^2 - 1)`."""
    side = grey.shape[-1]
    number = torch.arange(WAVES, dtype=torch.float64)
    waves = torch.cos(torch.pi * number[:, None] * (torch.arange(side) + 0.5) / side) / side
    parts = torch.einsum("ui,nij,vj->nuv", waves, grey, waves).flatten(1)
    frequency = (number[:, None].square() + number.square()).flatten()
    return parts[:, frequency.argsort(stable=True)[1:]]  # the first is brightness


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

    rows = torch.from_numpy(miniatures).float()
    limit = ALIKE * rows.shape[1] ** 0.5
    pairs = []
    for start in range(0, len(rows), BLOCK):
        close = (torch.cdist(rows[start : start + BLOCK], rows) < limit).nonzero()
        pairs.append(close + torch.tensor([start, 0]))
    first, second = torch.cat(pairs).T.numpy()
    graph = coo_array((np.ones(len(first), bool), (first, second)), shape=(len(rows), len(rows)))
    group = connected_components(graph, directed=False)[1]
    found = [np.flatnonzero(group == i).tolist() for i in np.flatnonzero(np.bincount(group) > 1)]
    return sorted(found, key=lambda members: (-len(members), members))
