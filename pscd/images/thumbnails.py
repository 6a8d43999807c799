"""Pictures as rows of a table: brightness, contrast, detail, colours and layout of each, and which of them are alike.

A detector of tables then finds strange pictures in seconds, where a network on pixels takes minutes to train. It is not
one-sided, as the energy of such a network may be: a black frame has far too little contrast, and so is strange.
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
LAYOUT, PATCHES = 8, 2  # squares along a side whose greys and whose colours are columns
DARKEST = 1 / 255  # below one step of a byte, contrast and detail are those of the rounding
COLUMNS = (
    "brightness",
    "contrast",
    "detail",
    *(f"colour {i + 1}" for i in range(2 * PATCHES**2)),
    *(f"layout {i + 1}" for i in range(LAYOUT**2)),
)
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
        unreadable: the others, each with the reason.
    """

    paths: tuple[Path, ...]
    x: np.ndarray
    unreadable: tuple[tuple[Path, str], ...]


def describe(paths: Sequence[Path]) -> Described:
    """Read pictures of any size and kind, and describe them; those that cannot be read are left out.

    Args:
        paths: the files.

    Returns:
        The descriptions, and what could not be read.
    """
    found, rows, unreadable = [], [], []
    with progress_bar(len(paths), show=len(paths) >= LONG_LIST, unit="picture") as bar:
        for path in paths:
            try:
                rows.append(numbers_of(torch.from_numpy(decode_picture(path, 3, SIDE))[None])[0])
                found.append(path)
            except Exception as error:  # Pillow raises a dozen kinds for a damaged file
                unreadable.append((path, one_line(error)))
            bar.update()
    x = torch.stack(rows).numpy() if rows else np.empty((0, len(COLUMNS)))
    return Described(tuple(found), x, tuple(unreadable))


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
    colour = to_unit(x).double()
    grey = torch.einsum("nchw,c->nhw", colour, torch.tensor(LUMA, dtype=torch.float64))[:, None]
    brightness = grey.mean((1, 2, 3))
    contrast = (grey.std((1, 2, 3), correction=0) + DARKEST).log()
    steps = grey.diff(dim=2).abs().mean((1, 2, 3)) + grey.diff(dim=3).abs().mean((1, 2, 3))
    red, green, blue = colour.unbind(1)
    opposites = torch.stack([red - green, (red + green) / 2 - blue], 1)  # both 0 for grey
    parts = (
        torch.stack([brightness, contrast, (steps + DARKEST).log()], 1),
        adaptive_avg_pool2d(opposites, PATCHES).flatten(1),
        adaptive_avg_pool2d(grey, LAYOUT).flatten(1) - brightness[:, None],
    )
    return torch.cat(parts, 1)


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


def near_duplicates(x: np.ndarray) -> list[list[int]]:
    """Groups of pictures that hardly differ: copies, other sizes and other compressions of one picture.

    Args:
        x: the `COLUMNS` of pictures, `(n, columns)`.

    Returns:
        Indices of the pictures of each group, the largest group first; pictures unlike all others are in none.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    # Brightness is as many numbers here as there are squares that it was taken out of.
    rows = torch.from_numpy(x[:, 3:]).float()
    rows[:, -(LAYOUT**2) :] += torch.from_numpy(x[:, :1]).float()
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
