"""Pixels: bytes to floats and back, and images in the shape that a model takes.

Images are kept as bytes, 0 to 255, and computed with as floats in [0, 1].
"""

import torch
from torch import Tensor
from torch.nn.functional import interpolate

BLOCK = 1024  # images that are floating-point numbers at one time
LUMA = (0.299, 0.587, 0.114)  # shares of red, green and blue in grey (ITU-R 601)


def to_unit(x: Tensor) -> Tensor:
    """Bytes as float32 in [0, 1].

    Returns:
        Float32 of the same shape.

    >>> to_unit(torch.tensor([0, 51, 255], dtype=torch.uint8))
    tensor([0.0000, 0.2000, 1.0000])
    """
    return x.float() / 255


def to_bytes(x: Tensor) -> Tensor:
    """Floats in [0, 1] as the nearest bytes; what lies outside is clipped.

    Returns:
        Bytes of the same shape.

    >>> to_bytes(torch.tensor([-0.1, 0.2, 1.5]))
    tensor([  0,  51, 255], dtype=torch.uint8)
    """
    return nearest_bytes(x * 255)


def nearest_bytes(x: Tensor) -> Tensor:
    """Floats in [0, 255] as the nearest bytes, halves to even; what lies outside is clipped."""
    return x.round().clamp(0, 255).to(torch.uint8)


def as_shape(x: Tensor, channels: int, size: int) -> Tensor:
    """Images made grey or coloured and scaled, so that a model of other images can judge them.

    Colour becomes grey by its luma; scaling is bilinear and antialiased.

    Args:
        x: bytes `(n, 1 or 3, height, width)`.
        channels: 1 (grey) or 3 (colour).
        size: side of the square result.

    Returns:
        Bytes `(n, channels, size, size)`.

    Raises:
        ValueError: `x` is something else, or `channels` is neither 1 nor 3.

    >>> as_shape(torch.zeros(2, 3, 32, 32, dtype=torch.uint8), 1, 28).shape
    torch.Size([2, 1, 28, 28])
    """
    if x.ndim != 4 or x.dtype != torch.uint8 or x.shape[1] not in (1, 3) or channels not in (1, 3):
        raise ValueError(f"give uint8 images of 1 or 3 channels, not {x.dtype} {tuple(x.shape)} for {channels}")
    if x.shape[2:] != (size, size):
        x = torch.cat([_scaled(part, size) for part in x.split(BLOCK)])
    if x.shape[1] == 3 and channels == 1:
        luma = torch.tensor(LUMA)
        grey = (torch.einsum("nchw,c->nhw", part.float(), luma) for part in x.split(BLOCK))
        x = torch.cat([nearest_bytes(part)[:, None] for part in grey])
    return x.repeat(1, 3, 1, 1) if x.shape[1] < channels else x


def _scaled(x: Tensor, size: int) -> Tensor:
    return nearest_bytes(interpolate(x.float(), (size, size), mode="bilinear", antialias=True, align_corners=False))
