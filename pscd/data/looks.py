"""How images look at a glance, in numbers: brightness, contrast, detail, colours and layout, and miniatures.

Layout is a few slow waves over the picture. Greys of many small squares would mislead a detector: a square that is
empty in most pictures has hardly any spread, so that any content of it is an outlier, and dozens of squares outweigh
the few numbers that distinguish a black frame or noise.
"""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from pscd.data.pixels import BLOCK, LUMA, to_unit

COLUMNS = (
    "brightness",
    "contrast",
    "detail",
    "colour 1",
    "colour 2",
    *(f"layout {i + 1}" for i in range(3**2 - 1)),
)
GROUPS = ("brightness", "contrast", "detail", "colour", "layout")  # what a column is about: the start of its name


def numbers_of(x: Tensor) -> Tensor:
    """The `COLUMNS` of pictures.

    >>> black = torch.zeros(1, 3, 32, 32, dtype=torch.uint8)
    >>> numbers_of(black)[0, :3].exp().mul(255).round()  # no light, less contrast and detail than a step of a byte
    tensor([255.,   1.,   1.], dtype=torch.float64)
    """
    grey, opposites = _grey_and_opposites(x)
    darkest = 1 / 255  # below one step of a byte, contrast and detail are those of the rounding
    contrast = (grey.std((1, 2), correction=0) + darkest).log()
    steps = grey.diff(dim=1).abs().mean((1, 2)) + grey.diff(dim=2).abs().mean((1, 2))
    parts = (
        torch.stack([grey.mean((1, 2)), contrast, (steps + darkest).log()], 1),
        opposites.mean((2, 3)),
        _layout(grey),
    )
    return torch.cat(parts, 1)


def miniatures_of(x: Tensor, squares: int = 8, patches: int = 2) -> Tensor:
    """Pictures in so few numbers that copies in other sizes and compressions have nearly the same."""
    grey, opposites = _grey_and_opposites(x)
    parts = (adaptive_avg_pool2d(opposites, patches), adaptive_avg_pool2d(grey[:, None], squares))
    return torch.cat([part.flatten(1) for part in parts], 1)


def close_miniatures(miniatures: Tensor, alike: float) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Which pictures hardly differ, for a block of pictures at a time.

    >>> ((some, others, close),) = close_miniatures(torch.tensor([[0.1], [0.5], [0.1]]), 0.01)
    >>> [others[row].sort().values.tolist() for row in close[some.argsort()]]
    [[0, 2], [1], [0, 2]]
    """
    limit = alike * miniatures.shape[1] ** 0.5
    m = (miniatures - miniatures.mean(0)).float()
    # Sorted along the axis on which they vary most, close ones lie together: most pairs are never compared.
    place, order = (m @ torch.linalg.eigh(m.T @ m).eigenvectors[:, -1]).sort(stable=True)
    m, squares = m[order], m[order].square().sum(1)
    for start in range(0, len(m), BLOCK):
        part = slice(start, min(start + BLOCK, len(m)))
        reach = torch.stack([place[part.start] - limit, place[part.stop - 1] + limit])
        low, high = torch.searchsorted(place, reach).tolist()
        apart = torch.addmm(squares[low:high], m[part], m[low:high].T, alpha=-2) + squares[part, None]
        yield order[part], order[low:high], apart < limit**2


def _grey_and_opposites(x: Tensor) -> tuple[Tensor, Tensor]:
    """Greys `(n, height, width)` of pictures, and red less green and yellow less blue, `(n, 2, height, width)`."""
    colour = (x if x.is_floating_point() else to_unit(x)).double()
    if colour.shape[1] != 3:
        colour = colour.mean(1, keepdim=True).expand(-1, 3, -1, -1)
    grey = torch.einsum("nchw,c->nhw", colour, torch.tensor(LUMA, dtype=torch.float64))
    red, green, blue = colour.unbind(1)
    return grey, torch.stack([red - green, (red + green) / 2 - blue], 1)  # both 0 for grey


def _layout(grey: Tensor, waves: int = 3) -> Tensor:
    """How much of each slow wave there is in pictures `(n, height, width)`, the slowest first: `(n, waves^2 - 1)`."""
    number = torch.arange(waves, dtype=torch.float64)
    down, across = (torch.cos(torch.pi * number[:, None] * (torch.arange(n) + 0.5) / n) / n for n in grey.shape[1:])
    parts = torch.einsum("ui,nij,vj->nuv", down, grey, across).flatten(1)
    frequency = (number[:, None].square() + number.square()).flatten()
    return parts[:, frequency.argsort(stable=True)[1:]]  # the first is brightness
