"""What junk may look like: densities spread thinly over the ranges of the columns."""

import math
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from pscd.coordinates import GAUSSIAN_IQR

BOXES = (0.0, 0.01, 0.03)  # share of each column's values that a box leaves out on either side
BROAD = 3.0  # deviation of the broad Gaussian, in robust deviations of each column
THINNEST = 1e-3  # least half-width of a box, so that a column that hardly varies has a density too
OUTSIDE = -300.0  # log density of a box outside itself
LOG_2PI = math.log(2 * math.pi)


@dataclass(frozen=True)
class Background:
    """Uniform densities on nested boxes, and a broad Gaussian with independent columns.

    Args:
        low: lower corners of the boxes, `(boxes, d)`.
        high: upper corners, `(boxes, d)`.
        centre: mean of the Gaussian, `(d,)`.
        deviation: its standard deviations, `(d,)`.
    """

    low: Tensor
    high: Tensor
    centre: Tensor
    deviation: Tensor

    @classmethod
    def of(cls, z: Tensor) -> "Background":
        """Boxes and Gaussian from the quantiles of rows `(n, d)` in float64."""
        shares = torch.tensor(BOXES, dtype=z.dtype)
        low, high = torch.quantile(z, shares, 0), torch.quantile(z, 1 - shares, 0)
        quartiles = torch.quantile(z, torch.tensor([0.25, 0.5, 0.75], dtype=z.dtype), 0)
        deviation = BROAD * ((quartiles[2] - quartiles[0]) / GAUSSIAN_IQR).clamp(min=THINNEST)
        middle = (low + high) / 2
        # Not middle and reach: rounding would put the outermost rows outside of their own box.
        low, high = torch.minimum(low, middle - THINNEST), torch.maximum(high, middle + THINNEST)
        return cls(low, high, quartiles[1], deviation)

    @property
    def kinds(self) -> int:
        """Number of densities: the boxes and the Gaussian."""
        return len(self.low) + 1

    def log_prob(self, z: Tensor) -> Tensor:
        """Log of each density at rows `(n, d)`: `(n, kinds)`."""
        inside = torch.stack([((z >= a) & (z <= b)).all(1) for a, b in zip(self.low, self.high, strict=True)], 1)
        even = torch.where(inside, -(self.high - self.low).log().sum(1), OUTSIDE)
        standard = (z - self.centre) / self.deviation
        broad = (-0.5 * standard.square() - self.deviation.log() - 0.5 * LOG_2PI).sum(1)
        return torch.cat([even, broad[:, None]], 1)

    def tensors(self) -> dict[str, Tensor]:
        """What `Background(**tensors)` needs, for saving."""
        return {f.name: getattr(self, f.name) for f in fields(self)}
