"""The spectrum of natural images, as a preconditioner: coarse structure moves far, fine structure a little.

In an image nearly all variance lies at coarse scales: its amplitude falls roughly as one over the frequency, and
brightness varies more than colour. A chain with equal noise and steps for all pixels turns the image into noise
long before it has moved the coarse parts. Here steps are equal in the coordinates c = T x / s instead, where T is the
orthogonal cosine transform of the opponent colours (Ohta, Kanade and Sakai 1980) and s the amplitude of natural images.
It is fixed, not fitted, so that outliers among the images do not affect it.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from pscd.errors import UserError


@dataclass(frozen=True, eq=False)
class Spectrum:
    """An orthogonal transform T of images, and the amplitude s of each of its coefficients.

    Args:
        rows: `(height, height)`, the cosine transform of columns of pixels.
        columns: `(width, width)`, that of rows of pixels.
        colours: `(channels, channels)`, a rotation of the colours.
        amplitude: s, `(channels, height, width)`.
    """

    rows: Tensor
    columns: Tensor
    colours: Tensor
    amplitude: Tensor

    def coefficients(self, x: Tensor) -> Tensor:
        """Multiply by s T: turns the gradient with respect to images into that with respect to c; `(n, *shape)`."""
        return self.amplitude * (self.rows @ _mixed(self.colours, x) @ self.columns.T)

    def images(self, c: Tensor) -> Tensor:
        """Multiply by s and the transpose of T: images `(n, *shape)` from c, which has unit variance."""
        return self.rows.T @ _mixed(self.colours.T, self.amplitude * c) @ self.columns

    def draw(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Gaussian images with this spectrum around grey, `(n, *shape)` in [0, 1]."""
        noise = torch.randn(n, *self.amplitude.shape, generator=generator, device=self.amplitude.device)
        return (0.5 + self.images(noise)).clamp(0, 1)


def _mixed(matrix: Tensor, x: Tensor) -> Tensor:
    """Each colour as a sum of all."""
    return x if len(matrix) == 1 else (matrix @ x.flatten(2)).view_as(x)


@lru_cache(maxsize=8)
def spectrum(shape: tuple[int, ...], slope: float, device: torch.device | None = None) -> Spectrum:
    """The spectrum of images whose amplitude falls as (1 + f)^-slope, f half waves across the image.

    The standard deviation of a pixel is 0.25, a quarter of the range from black to white. Photographs have a slope of
    about 1.3.

    >>> amplitude = spectrum((1, 8, 8), 1.3).amplitude
    >>> bool(amplitude[0, 0, 0] > 10 * amplitude[0, 7, 7])
    True
    """
    if len(shape) != 3:
        raise UserError("a slope is for images, channels x height x width; set the slope of the sampler to 0")
    channels, height, width = shape
    tall, wide = (torch.arange(n, dtype=torch.float64) for n in (height, width))
    falloff = (1 + torch.hypot(tall[:, None], wide)) ** -slope
    colours = torch.eye(channels, dtype=torch.float64)
    weights = torch.ones(channels, dtype=torch.float64)
    if channels == 3:
        opponents = torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.0, -1.0], [1.0, -2.0, 1.0]], dtype=torch.float64)
        colours = opponents / opponents.norm(dim=1, keepdim=True)
        # Amplitudes of brightness, red against blue, and green against both, in photographs.
        weights = torch.tensor([1.0, 0.25, 0.12], dtype=torch.float64)
    amplitude = weights[:, None, None] * falloff
    amplitude *= 0.25 / amplitude.square().mean().sqrt()
    parts = (_cosines(height), _cosines(width), colours, amplitude)
    return Spectrum(*(part.float().to(device) for part in parts))


def _cosines(n: int) -> Tensor:
    """The orthogonal cosine transform (DCT-II) of n numbers, `(n, n)`."""
    k = torch.arange(n, dtype=torch.float64)
    transform = torch.cos(math.pi * (k + 0.5) * k[:, None] / n) * math.sqrt(2 / n)
    transform[0] /= math.sqrt(2)
    return transform
