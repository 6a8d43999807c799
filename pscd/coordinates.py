"""The coordinates that a network sees: columns shifted and scaled, skew and long tails taken out where asked for."""

import math
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from torch import Tensor

GROSS = 10.0  # interquartile ranges outside the quartiles beyond which a value does not count
QUANTILE_ROWS = 100_000  # the most rows to compute quartiles from
GAUSSIAN_IQR = 1.349  # interquartile range of a standard Gaussian
LINEAR = 3.0  # deviations up to which a column with compressed tails is nearly linear
SPIKED_LINEAR = 1.0  # the same where most rows share one value
STRAIGHT = 1e6  # the same where a column is to be linear as far as values go
BELOW = 0.02  # of the way from the median of a skewed column to its end, near which the logarithm becomes linear
NO_SKEW = 8.5  # over sqrt(n): a skew smaller than this, two standard errors for a Gaussian, is taken for 0


@dataclass(frozen=True)
class Coordinates:
    """z = (x - shift) / scale, column by column; then, where asked for, without skew and long tails.

    With `skew` = s, u = (x - shift) / scale becomes log(1 + s u) / s; s < 0 is for a long tail below the median. Near
    the end of the logarithm's range asinh takes over, so that every number has a place. With `linear` = a, u then
    becomes a asinh(u / a). Shift and scale are float64, so that columns far from 0, such as time stamps, lose no
    precision.

    Args:
        shift: of the shape of a row as the network sees it.
        scale: of the same shape, positive.
        linear: deviations up to which a column is nearly linear, `(k,)`; None: throughout.
        kept: `(d,)`, which columns of the data the network sees; None: all.
        constants: `(d,)`, values of the columns that it does not see.
        skew: `(k,)`, 0 for a column that is not bent; None: no column is.

    >>> coordinates = Coordinates(torch.tensor([1.0]).double(), torch.tensor([2.0]).double())
    >>> coordinates.forward(torch.tensor([[5.0]]))
    tensor([[2.]])
    >>> coordinates.inverse(torch.tensor([[2.0]]))
    tensor([[5.]], dtype=torch.float64)
    """

    shift: Tensor
    scale: Tensor
    linear: Tensor | None = None
    kept: Tensor | None = None
    constants: Tensor | None = None
    skew: Tensor | None = None

    @classmethod
    def identity(cls, shape: tuple[int, ...]) -> "Coordinates":
        """Coordinates that leave rows of a given shape as they are."""
        return cls(torch.zeros(shape).double(), torch.ones(shape).double())

    @classmethod
    def standard(cls, x: Tensor) -> "Coordinates":
        """Mean 0 and standard deviation 1 for each column, gross outliers excluded.

        A value further than `GROSS` interquartile ranges outside the quartiles does not count: a single typing error
        would otherwise squeeze all other rows into a point. Clean data have no such values.
        """
        rows = spaced_rows(x).double().flatten(1)
        low, high = (torch.quantile(rows, q, dim=0).view(x.shape[1:]) for q in (0.25, 0.75))
        reach = GROSS * (high - low)
        x = x.double()
        kept = ((x >= low - reach) & (x <= high + reach)) | (reach == 0)
        count = kept.sum(0)
        mean = (x * kept).sum(0) / count
        variance = ((x - mean).square() * kept).sum(0) / (count - 1)
        return cls(mean, variance.sqrt())

    @classmethod
    def robust(cls, x: Tensor, *, tails: bool = True) -> "Coordinates":
        """Median 0 and the interquartile range of a standard Gaussian for each column, with heavy tails compressed.

        Up to a quarter of junk on either side moves median and quartiles little, and a value a thousand deviations out
        ends up at 20. Constant columns are left out. Missing values, NaN, do not count.
        """
        there = ~x.isnan()
        low, high = (torch.where(there, x, end).aminmax(dim=0)[i] for i, end in enumerate((torch.inf, -torch.inf)))
        kept = high > low
        if not kept.any():
            raise ValueError("all columns are constant; there is nothing to learn from them")
        # A column may be all but missing: quantiles are those of the rows that have it.
        constants = spaced_rows(x).nanmedian(0).values
        x, there = x[:, kept], there[:, kept]
        quantile = np.quantile if there.all() else np.nanquantile
        low, centre, high = torch.from_numpy(quantile(_telling_rows(x).numpy(), [0.25, 0.5, 0.75], axis=0))
        scale = (high - low) / GAUSSIAN_IQR
        spiked = (x == centre).sum(0) >= 0.5 * there.sum(0)
        for j in (spiked | (scale == 0)).nonzero().flatten().tolist():
            scale[j] = _spread_of_the_rest(x[there[:, j], j], centre[j])
        linear = torch.where(spiked, SPIKED_LINEAR, LINEAR).double() if tails else None
        return cls(centre, scale, linear, kept, constants)

    def bent(self, x: Tensor) -> "Coordinates":
        """The same coordinates with the skew that makes the quartiles of each column symmetric.

        A log-normal column, whatever its shift and scale, becomes Gaussian.
        """
        rows = _telling_rows(x if self.kept is None else x[:, self.kept])
        quartiles = torch.from_numpy(np.nanquantile(rows.numpy(), [0.25, 0.75], axis=0))
        below, above = (quartiles - self.shift) / self.scale
        skew = -(1 / below + 1 / above)  # log(1 + s below) = -log(1 + s above)
        count = (~rows.isnan()).sum(0)
        is_bent = (below < 0) & (above > 0) & (skew.abs() > NO_SKEW / count.sqrt())
        return replace(self, skew=torch.where(is_bent, skew, 0.0)) if is_bent.any() else self

    def straightened(self, x: Tensor) -> "Coordinates":
        """The same coordinates with columns of two values left linear: they have no tails.

        The rarer of two values would seem to be a tail, since it lies some deviations out, and the cell around it would
        be drawn together.
        """
        if self.linear is None:
            return self
        seen = x if self.kept is None else x[:, self.kept]
        has_two = ((seen == seen.amin(0)) | (seen == seen.amax(0))).all(0)
        return replace(self, linear=torch.where(has_two, STRAIGHT, self.linear))

    @property
    def spiked(self) -> Tensor:
        """Which columns mostly have one value, `(k,)`."""
        assert self.linear is not None
        return self.linear == SPIKED_LINEAR

    @property
    def is_linear(self) -> bool:
        """Whether columns are shifted and scaled, and no more."""
        return self.linear is None and self.skew is None

    @property
    def _is_identity(self) -> bool:
        """Whether rows stay as they are; images then need no copy in float64."""
        return self.is_linear and self.kept is None and not self.shift.any() and bool((self.scale == 1).all())

    def to(self, device: torch.device) -> "Coordinates":
        """The same coordinates on a device."""
        return replace(self, **{name: t.to(device) for name, t in self.tensors().items()})

    def forward(self, x: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Rows as the network sees them."""
        if self._is_identity:
            return x.to(dtype)
        if self.kept is not None:
            x = x[:, self.kept]
        if self.skew is not None:
            u = _bend((x - self.shift) / self.scale, self.skew)
            return (u if self.linear is None else self.linear * torch.asinh(u / self.linear)).to(dtype)
        if self.linear is None:
            return ((x - self.shift) / self.scale).to(dtype)
        return (self.linear * torch.asinh((x - self.shift) / (self.linear * self.scale))).to(dtype)

    def inverse(self, z: Tensor) -> Tensor:
        """Back to the units of the data, in float64; columns that the network does not see have their constants."""
        if self.linear is not None:
            z = torch.sinh(z / self.linear) * self.linear
        if self.skew is not None:
            z = _unbend(z, self.skew)
        x = z * self.scale + self.shift
        if self.kept is None or self.constants is None:
            return x
        whole = self.constants.expand(len(x), -1).clone()
        whole[:, self.kept] = x
        return whole

    def log_slope(self, x: Tensor) -> Tensor:
        """Log determinant of dz/dx at rows, `(n, *shape)` to `(n,)`: it turns a density of z into one of x.

        Missing values, NaN, are left out.
        """
        seen = x if self.kept is None else x[:, self.kept]
        known = torch.where(seen.isnan(), 0.0, -self.scale.log()).flatten(1).sum(1)
        return known if self.is_linear else known + self.log_bend(x)

    def log_bend(self, x: Tensor) -> Tensor:
        """Log determinant of dz/dx at rows, beyond that of the scale: 0 at the centre, and everywhere if linear.

        Missing values, NaN, are left out.
        """
        u = ((x if self.kept is None else x[:, self.kept]) - self.shift) / self.scale
        found = torch.zeros_like(u)
        if self.skew is not None:
            found = -0.5 * (((1 + self.skew * u).square() + BELOW**2) / (1 + BELOW**2)).log()
            u = _bend(u, self.skew)
        if self.linear is not None:
            found = found - 0.5 * torch.log1p((u / self.linear).square())
        return found.nan_to_num(nan=0.0).flatten(1).sum(1)

    def tensors(self) -> dict[str, Tensor]:
        """The arguments of `Coordinates(**tensors)`, for saving."""
        return {f.name: value for f in fields(self) if (value := getattr(self, f.name)) is not None}


def spaced_rows(x: Tensor, most: int = QUANTILE_ROWS) -> Tensor:
    """Rows of `(n, ...)` at equal distances, `most` of them or all: by default as many as quantiles need."""
    return x[torch.linspace(0, len(x) - 1, min(len(x), most), dtype=torch.float64).long()]


def _telling_rows(x: Tensor) -> Tensor:
    """Spaced rows, or all of them where some column would be left without a value."""
    some = spaced_rows(x)
    return x if some.isnan().all(0).any() else some


def _spread_of_the_rest(x: Tensor, centre: Tensor) -> Tensor:
    """Scale of a column that mostly has one value: median distance of the others times the root of their share."""
    # For a column with two values this is the standard deviation; unlike it, gross outliers do not move it.
    away = (x[~x.isnan()] - centre).abs()
    others = away[away > 0]
    return others.median() * (len(others) / len(away)) ** 0.5


def _bend(u: Tensor, skew: Tensor) -> Tensor:
    """log(1 + s u) / s, continued by asinh where 1 + s u is small or negative; the slope at 0 is 1."""
    safe = torch.where(skew == 0, 1.0, skew)
    bent = (torch.asinh((1 + safe * u) / BELOW) - math.asinh(1 / BELOW)) * math.hypot(1, BELOW) / safe
    return torch.where(skew == 0, u, bent)


def _unbend(v: Tensor, skew: Tensor) -> Tensor:
    """The inverse of `_bend`."""
    safe = torch.where(skew == 0, 1.0, skew)
    u = (BELOW * torch.sinh(safe * v / math.hypot(1, BELOW) + math.asinh(1 / BELOW)) - 1) / safe
    return torch.where(skew == 0, v, u)
