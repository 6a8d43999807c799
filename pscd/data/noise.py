"""Noise: contamination of clean data, and images that a model should find strange; images are bytes."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from pscd.data.pixels import BLOCK, nearest_bytes, to_bytes


class Contaminated(NamedTuple):
    """Rows `x`, `(n, *shape)`, of which those with `is_noise`, `(n,)`, have replaced clean ones."""

    x: Tensor
    is_noise: Tensor


def contaminate(
    x: Tensor,
    ratio: float,
    noise: Tensor | Callable[[int, torch.Generator | None], Tensor],
    generator: torch.Generator | None = None,
) -> Contaminated:
    """Replace a fraction `ratio` of the rows, chosen at random, by noise.

    Args:
        x: `(n, *shape)` clean rows; not changed.
        ratio: in [0, 1); `round(ratio * n)` rows are replaced, so the count is exact.
        noise: rows to draw from with replacement, or a function `(n, generator) -> rows`.
        generator: source of randomness; torch's global one by default.

    Returns:
        All rows, and which of them are noise.

    Raises:
        ValueError: the ratio is outside [0, 1), or rows of noise have another shape.

    >>> dirty = contaminate(torch.zeros(100, 2), 0.1, torch.ones(1, 2))
    >>> int(dirty.is_noise.sum()), float(dirty.x.sum())
    (10, 20.0)
    """
    if not 0 <= ratio < 1:
        raise ValueError(f"ratio must lie in [0, 1), got {ratio}")
    n_noise = round(ratio * len(x))
    index = torch.randperm(len(x), generator=generator)[:n_noise]
    if isinstance(noise, Tensor):
        rows = noise[torch.randint(len(noise), (n_noise,), generator=generator)]
    else:
        rows = noise(n_noise, generator)
    if rows.shape[1:] != x.shape[1:]:
        raise ValueError(f"noise has rows of shape {tuple(rows.shape[1:])}, the data {tuple(x.shape[1:])}")
    dirty = x.clone()
    dirty[index] = rows.to(x.dtype)
    is_noise = torch.zeros(len(x), dtype=torch.bool)
    is_noise[index] = True
    return Contaminated(dirty, is_noise)


def uniform_noise(n: int, shape: Sequence[int], generator: torch.Generator | None = None) -> Tensor:
    """Bytes, each value equally likely.

    Args:
        n: number of images.
        shape: of one image.
        generator: source of randomness; torch's global one by default.

    Returns:
        `(n, *shape)`.
    """
    return torch.randint(256, (n, *shape), dtype=torch.uint8, generator=generator)


def gaussian_noise(
    n: int, shape: Sequence[int], generator: torch.Generator | None = None, *, mean: float = 0.5, sd: float = 0.25
) -> Tensor:
    """Noise images: Gaussian pixels, clipped to the range of a byte.

    Args:
        n: number of images.
        shape: of one image.
        generator: source of randomness; torch's global one by default.
        mean: of the Gaussian, in units in which pixels lie in [0, 1].
        sd: its standard deviation. The default is that of Hendrycks, Mazeika and Dietterich (Deep Anomaly Detection
            with Outlier Exposure, 2019), 0.5 on [-1, 1]. At 1, as in Liang, Li and Srikant (ODIN, 2018), most values
            are clipped to black or white.

    Returns:
        Bytes `(n, *shape)`.
    """
    return to_bytes(mean + sd * torch.randn((n, *shape), generator=generator))


def interpolations(x: Tensor, n: int, generator: torch.Generator | None = None, *, weight: float = 0.5) -> Tensor:
    """Blends of two images, `weight * a + (1 - weight) * b`.

    Args:
        x: bytes `(m, *shape)`, at least two images; a and b are different rows of it.
        n: number of blends.
        generator: source of randomness; torch's global one by default.
        weight: of the first image.

    Returns:
        Bytes `(n, *shape)`.

    Raises:
        ValueError: there are fewer than two images.
    """
    if len(x) < 2:
        raise ValueError("interpolation needs two images")
    first = torch.randint(len(x), (n,), generator=generator)
    # The second is one of the others: an offset that is not 0.
    second = (first + torch.randint(1, len(x), (n,), generator=generator)) % len(x)
    return torch.cat(
        [
            nearest_bytes(weight * x[a].float() + (1 - weight) * x[b].float())
            for a, b in zip(first.split(BLOCK), second.split(BLOCK), strict=True)
        ]
    )
