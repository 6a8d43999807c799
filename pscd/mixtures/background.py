"""What junk may look like: densities spread thinly over the ranges of the columns."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pscd.coordinates import GAUSSIAN_IQR, Coordinates
from pscd.mixtures.mixture import Mixture

PLANE = 2  # columns; with more, a finer background would pass for the majority
BOXES, BOXES_IN_THE_PLANE = (0.0, 0.01, 0.03), (0.0, 0.003, 0.01, 0.03)  # share of values that a box leaves out, a side
BROAD, BROAD_IN_THE_PLANE = (3.0,), (1.5, 2.0, 3.0)  # widths of the Gaussians, in robust deviations of each column
THINNEST = 1e-3  # least half-width of a box, so that a column that hardly varies has a density too
OUTSIDE = -300.0  # log density of a box outside itself
LOG_2PI = math.log(2 * math.pi)


@dataclass(frozen=True)
class Background:
    """Uniform densities on nested boxes, and broad Gaussians with independent columns.

    Where coordinates bend the columns, junk that is spread evenly over the data's own units crowds at one end of the
    network's. So the boxes are there twice then: even in the network's coordinates, and even in the units of the data.

    Args:
        low: lower corners of the boxes, `(boxes, d)`.
        high: upper corners, `(boxes, d)`.
        centre: mean of the Gaussians, `(d,)`.
        deviation: their standard deviations, `(Gaussians, d)`.
        coordinates: the map from the units of the data, if it is not linear.
    """

    low: Tensor
    high: Tensor
    centre: Tensor
    deviation: Tensor
    coordinates: Coordinates | None = None

    @classmethod
    def of(cls, z: Tensor, coordinates: Coordinates | None = None, *, widths: Sequence[float] = ()) -> "Background":
        """Boxes and Gaussians from the quantiles of rows.

        Args:
            z: rows, `(n, d)` in float64.
            coordinates: that they are in; None: a linear map of the data's.
            widths: of further Gaussians, in standard deviations of each column, to which junk has widened it.

        Returns:
            The densities.
        """
        in_the_plane = z.shape[1] <= PLANE
        shares = z.new_tensor(BOXES_IN_THE_PLANE if in_the_plane else BOXES)
        low, high = torch.quantile(z, shares, 0), torch.quantile(z, 1 - shares, 0)
        quartiles = torch.quantile(z, torch.tensor([0.25, 0.5, 0.75], dtype=z.dtype), 0)
        broad = z.new_tensor(BROAD_IN_THE_PLANE if in_the_plane else BROAD)
        deviation = broad[:, None] * ((quartiles[2] - quartiles[0]) / GAUSSIAN_IQR).clamp(min=THINNEST)
        if widths:
            widened = z.new_tensor(widths)[:, None] * z.std(0).clamp(min=THINNEST)
            deviation = torch.cat([deviation, widened])
        middle = (low + high) / 2
        # Not middle and reach: rounding would put the outermost rows outside of their own box.
        low, high = torch.minimum(low, middle - THINNEST), torch.maximum(high, middle + THINNEST)
        bent = coordinates if coordinates is not None and not coordinates.is_linear else None
        return cls(low, high, quartiles[1], deviation, bent)

    @property
    def _times(self) -> int:
        """How often the boxes are there."""
        return 1 if self.coordinates is None else 2

    @property
    def kinds(self) -> int:
        """Number of densities: the boxes, once or twice, and the Gaussians."""
        return self._times * len(self.low) + len(self.deviation)

    def gaussians(self, weights: Tensor) -> Mixture:
        """The nearest that Gaussians come: each box by one of the same centre and deviation.

        Args:
            weights: of the densities, `(kinds,)`, summing to one.

        Returns:
            A mixture of as many Gaussians with independent columns.
        """
        means = [*self._times * [(self.low + self.high) / 2], self.centre.expand_as(self.deviation)]
        deviations = [*self._times * [(self.high - self.low) / math.sqrt(12)], self.deviation]
        return Mixture(weights, torch.cat(means), torch.diag_embed(torch.cat(deviations)))

    def log_prob(self, z: Tensor) -> Tensor:
        """Log of each density at rows `(n, d)`: `(n, kinds)`."""
        inside = torch.stack([((z >= a) & (z <= b)).all(1) for a, b in zip(self.low, self.high, strict=True)], 1)
        even = torch.where(inside, -(self.high - self.low).log().sum(1), OUTSIDE)
        standard = (z - self.centre)[:, None] / self.deviation
        broad = (-0.5 * standard.square() - self.deviation.log() - 0.5 * LOG_2PI).sum(2)
        if self.coordinates is None:
            return torch.cat([even, broad], 1)
        return torch.cat([even, torch.where(inside, self._even_in_data(z, self.coordinates), OUTSIDE), broad], 1)

    def _even_in_data(self, z: Tensor, coordinates: Coordinates) -> Tensor:
        """Log density, in the network's coordinates, of boxes that are even in the units of the data: `(n, boxes)`."""
        corners = coordinates.inverse(torch.cat([self.low, self.high]))
        low, high = (corners if coordinates.used is None else corners[:, coordinates.used]).split(len(self.low))
        return -(high - low).log().sum(1) - coordinates.log_slope(coordinates.inverse(z))[:, None]
