"""Images that a model of images should find anomalous: noise and blends, as bytes."""

from collections.abc import Sequence

import torch
from torch import Tensor

from pscd.data.pixels import BLOCK, nearest_bytes, to_bytes


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
