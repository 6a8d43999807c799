"""Densities of contamination: spread evenly or broadly over the ranges of the columns."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from pscd.coordinates import GAUSSIAN_IQR, Coordinates

LOG_2PI = math.log(2 * math.pi)
OUTSIDE = -300.0  # log density of a box outside itself; finite, so that no row has density 0
THINNEST = 1e-3  # least half-width of a box, so that a column that hardly varies has a density too


@dataclass(frozen=True)
class Background:
    """Uniform densities on nested boxes and broad Gaussians with independent columns; categories are independent."""

    # The boxes are uniform in the units of the data, where contamination by wrong entries usually is.

    low: Tensor  # lower corners of the boxes, `(boxes, d)`
    high: Tensor  # upper corners, `(boxes, d)`
    centre: Tensor  # mean of the Gaussians, `(d,)`
    deviation: Tensor  # their standard deviations, `(Gaussians, d)`
    log_tables: Tensor  # log probabilities of the categories, `(L_1 + ...,)`
    coordinates: Coordinates | None = None  # the map from the units of the data, if it is not linear

    @classmethod
    def of(
        cls,
        z: Tensor,
        *,
        boxes: tuple[float, ...],
        robust_widths: tuple[float, ...],
        widths: tuple[float, ...],
        log_tables: Tensor | None = None,
        coordinates: Coordinates | None = None,
    ) -> "Background":
        """Boxes and Gaussians from the quantiles of rows."""
        d, log_tables = z.shape[1], z.new_empty(0) if log_tables is None else log_tables
        if d == 0:
            return cls(z.new_empty(1, 0), z.new_empty(1, 0), z.new_empty(0), z.new_empty(0, 0), log_tables)
        shares = z.new_tensor(boxes)
        low, high = torch.nanquantile(z, shares, 0), torch.nanquantile(z, 1 - shares, 0)
        quartiles = torch.nanquantile(z, z.new_tensor([0.25, 0.5, 0.75]), 0)
        robust = ((quartiles[2] - quartiles[0]) / GAUSSIAN_IQR).clamp(min=THINNEST)
        there = ~z.isnan()
        centred = torch.where(there, z - z.nanmean(0), 0.0)
        standard = (centred.square().sum(0) / there.sum(0)).sqrt().clamp(min=THINNEST)
        deviation = torch.cat([z.new_tensor(robust_widths)[:, None] * robust, z.new_tensor(widths)[:, None] * standard])
        middle = (low + high) / 2
        # Not centre and half-width: rounding would put the outermost rows outside of their own box.
        low, high = torch.minimum(low, middle - THINNEST), torch.maximum(high, middle + THINNEST)
        is_bent = coordinates is not None and not coordinates.is_linear
        return cls(low, high, quartiles[1], deviation, log_tables, coordinates if is_bent else None)

    @property
    def kinds(self) -> int:
        """Number of densities: boxes and Gaussians."""
        return len(self.low) + len(self.deviation)

    def log_prob(self, z: Tensor) -> Tensor:
        """Log of each density at the observed cells of rows `(n, d)`: `(n, kinds)`; categories do not count."""
        missing = z.isnan()
        inside = [(missing | (z >= a) & (z <= b)).all(1) for a, b in zip(self.low, self.high, strict=True)]
        seen = (~missing).double()
        even = -seen @ self._log_widths().double().T - self._log_stretch(z)[:, None]
        standard = (z - self.centre)[:, None] / self.deviation
        broad = (-0.5 * standard.square() - self.deviation.log() - 0.5 * LOG_2PI).nan_to_num(nan=0.0).sum(2)
        return torch.cat([torch.where(torch.stack(inside, 1), even, OUTSIDE), broad], 1) if inside else broad

    def _log_widths(self) -> Tensor:
        """Log widths of the boxes in the units of the data, `(boxes, d)`."""
        if self.coordinates is None:
            return (self.high - self.low).log()
        corners = self.coordinates.inverse(torch.cat([self.low, self.high]))
        low, high = (corners if self.coordinates.used is None else corners[:, self.coordinates.used]).chunk(2)
        return (high - low).log()

    def _log_stretch(self, z: Tensor) -> Tensor:
        """Log determinant of dz/dx at rows `(n, d)`."""
        if self.coordinates is None:
            return z.new_zeros(len(z))
        return self.coordinates.log_slope(self.coordinates.inverse(z))
