"""Images that a model of others should find strange, and others' images in its shape; all are bytes."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import interpolate

BLOCK = 1024  # images that are floating-point numbers at one time


def uniform_noise(n: int, shape: Sequence[int], generator: torch.Generator | None = None) -> Tensor:
    """`(n, *shape)` bytes, each value equally likely."""
    return torch.randint(256, (n, *shape), dtype=torch.uint8, generator=generator)


def gaussian_noise(
    n: int, shape: Sequence[int], generator: torch.Generator | None = None, *, mean: float = 0.5, sd: float = 0.25
) -> Tensor:
    """`(n, *shape)` bytes from a Gaussian, in units of the range of bytes, clipped to it.

    The default is that of Hendrycks, Mazeika and Dietterich (Deep Anomaly Detection with Outlier Exposure,
    2019): deviation 0.5 on [-1, 1]. With sd = 1, as of Liang, Li and Srikant (ODIN, 2018), most values
    are clipped to black or white.
    """
    z = torch.randn((n, *shape), generator=generator)
    return _to_bytes(255 * (mean + sd * z))


def interpolations(x: Tensor, n: int, generator: torch.Generator | None = None, *, weight: float = 0.5) -> Tensor:
    """`n` images `weight * a + (1 - weight) * b` of pairs of different rows of `x`: by default their means."""
    if len(x) < 2:
        raise ValueError("interpolation needs two images")
    first = torch.randint(len(x), (n,), generator=generator)
    # The second is one of the others: an offset that is not 0.
    second = (first + torch.randint(1, len(x), (n,), generator=generator)) % len(x)
    return torch.cat(
        [
            _to_bytes(weight * x[a].float() + (1 - weight) * x[b].float())
            for a, b in zip(first.split(BLOCK), second.split(BLOCK), strict=True)
        ]
    )


def as_shape(x: Tensor, channels: int, size: int) -> Tensor:
    """Images made grey or coloured and scaled, so that a model of other images can score them.

    Colour becomes grey by its luma (ITU-R 601); scaling is bilinear, over all pixels that shrink into one.
    """
    if x.ndim != 4 or x.dtype != torch.uint8 or x.shape[1] not in (1, 3) or channels not in (1, 3):
        raise ValueError(f"give uint8 images of 1 or 3 channels, not {x.dtype} {tuple(x.shape)} for {channels}")
    if x.shape[2:] != (size, size):
        x = torch.cat([_scaled(part, size) for part in x.split(BLOCK)])
    if x.shape[1] == 3 and channels == 1:
        luma = torch.tensor([0.299, 0.587, 0.114])
        x = torch.cat([_to_bytes(torch.einsum("nchw,c->nhw", part.float(), luma))[:, None] for part in x.split(BLOCK)])
    return x.repeat(1, 3, 1, 1) if x.shape[1] < channels else x


def _scaled(x: Tensor, size: int) -> Tensor:
    return _to_bytes(interpolate(x.float(), (size, size), mode="bilinear", antialias=True, align_corners=False))


def _to_bytes(x: Tensor) -> Tensor:
    return x.round_().clamp_(0, 255).to(torch.uint8)
