"""What junk may look like: densities that spread thinly over the ranges of the columns."""

import math
from dataclasses import dataclass, fields

import torch
from torch import Tensor

BOXES = (0.0, 0.01, 0.03)  # the boxes leave out this share of each column on either side
BROAD = 3.0  # robust deviations of each column, for the broad Gaussian
GAUSSIAN_IQR = 1.349  # interquartile range of a standard Gaussian
THINNEST = 1e-3  # half the width of a box in a column that hardly varies, which would have no density otherwise
OUTSIDE = -300.0  # log density of a box outside of it
LOG_2PI = math.log(2 * math.pi)


@dataclass(frozen=True)
class Background:
    """Nested boxes, each filled evenly, and a broad Gaussian with independent columns.

    Args:
        low: `(boxes, d)`, where each box begins.
        high: `(boxes, d)`, where it ends.
        centre: `(d,)`, of the Gaussian.
        deviation: `(d,)`.
    """

    low: Tensor
    high: Tensor
    centre: Tensor
    deviation: Tensor

    @classmethod
    def of(cls, z: Tensor) -> "Background":
        """Read boxes and Gaussian off rows `(n, d)` in float64."""
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
        """How many densities there are."""
        return len(self.low) + 1

    def log_prob(self, z: Tensor) -> Tensor:
        """Log densities of rows `(n, d)`, `(n, kinds)`."""
        inside = torch.stack([((z >= a) & (z <= b)).all(1) for a, b in zip(self.low, self.high, strict=True)], 1)
        even = torch.where(inside, -(self.high - self.low).log().sum(1), OUTSIDE)
        standard = (z - self.centre) / self.deviation
        broad = (-0.5 * standard.square() - self.deviation.log() - 0.5 * LOG_2PI).sum(1)
        return torch.cat([even, broad[:, None]], 1)

    def tensors(self) -> dict[str, Tensor]:
        """What `Background(**tensors)` needs, for saving."""
        return {f.name: getattr(self, f.name) for f in fields(self)}
