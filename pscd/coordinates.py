"""The coordinates that a network sees: columns shifted and scaled, optionally with skew and long tails compressed."""

import math
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from torch import Tensor

GAUSSIAN_IQR = 1.349  # interquartile range of a standard Gaussian
LINEAR = 3.0  # deviations up to which a column with compressed tails is nearly linear
SPIKED_LINEAR = 1.0  # the same where most rows share one value
SOFTENING = 0.02  # asinh replaces the logarithm where its argument, 1 at the median, is of this size


@dataclass(frozen=True)
class Coordinates:
    """z = (x - shift) / scale for each column, optionally log-transformed and with compressed tails.

    With `skew` = s, u = (x - shift) / scale becomes log(1 + s u) / s; s < 0 is for a long tail below the median. Near
    the end of the logarithm's range asinh replaces it, so that the transform is defined for every number. With
    `linear` = a, u then becomes a asinh(u / a). Shift and scale are float64, so that columns far from 0, such as time
    stamps, lose no precision.

    Args:
        shift: of the shape of a row as the network sees it.
        scale: of the same shape, positive.
        linear: deviations up to which a column is nearly linear, `(k,)`; None: throughout.
        used: `(d,)`, which columns of the data the network sees; None: all.
        constants: `(d,)`, values of the columns that it does not see.
        skew: `(k,)`, 0 for a column without log transform; None: no column has one.

    >>> coordinates = Coordinates(torch.tensor([1.0]).double(), torch.tensor([2.0]).double())
    >>> coordinates.forward(torch.tensor([[5.0]]))
    tensor([[2.]])
    >>> coordinates.inverse(torch.tensor([[2.0]]))
    tensor([[5.]], dtype=torch.float64)
    """

    shift: Tensor
    scale: Tensor
    linear: Tensor | None = None
    used: Tensor | None = None
    constants: Tensor | None = None
    skew: Tensor | None = None

    @classmethod
    def identity(cls, shape: tuple[int, ...]) -> "Coordinates":
        """Coordinates that leave rows of a given shape as they are."""
        return cls(torch.zeros(shape).double(), torch.ones(shape).double())

    @classmethod
    def standard(cls, x: Tensor, *, max_distance: float = 10.0) -> "Coordinates":
        """Mean 0 and standard deviation 1 for each column of `(n, *shape)`; the scale of a constant column is 0.

        Values further than `max_distance` interquartile ranges outside the quartiles are ignored: a single typing error
        would otherwise squeeze all other rows into a point. Clean data have no values beyond 10.
        """
        rows = spaced_rows(x).double().flatten(1)
        low, high = (torch.quantile(rows, q, dim=0).view(x.shape[1:]) for q in (0.25, 0.75))
        reach = max_distance * (high - low)
        x = x.double()
        inside = ((x >= low - reach) & (x <= high + reach)) | (reach == 0)
        count = inside.sum(0)
        mean = (x * inside).sum(0) / count
        variance = ((x - mean).square() * inside).sum(0) / (count - 1)
        return cls(mean, variance.sqrt())

    @classmethod
    def robust(cls, x: Tensor, *, tails: bool = True) -> "Coordinates":
        """Median 0 and the interquartile range of a standard Gaussian for each column, with heavy tails compressed.

        Up to 25 % of outliers on either side move median and quartiles little, and a value a thousand deviations out
        ends up at 20. Constant columns are left out. Missing values, NaN, are ignored and stay NaN.
        """
        observed = ~x.isnan()
        low, high = (torch.where(observed, x, end).aminmax(dim=0)[i] for i, end in enumerate((torch.inf, -torch.inf)))
        used = high > low
        if not used.any():
            raise ValueError("all columns are constant; there is nothing to learn from them")
        # Most values of a column may be missing: quantiles are those of the observed ones.
        constants = spaced_rows(x).nanmedian(0).values
        x, observed = x[:, used], observed[:, used]
        quantile = np.quantile if observed.all() else np.nanquantile
        low, centre, high = torch.from_numpy(quantile(_quantile_rows(x).numpy(), [0.25, 0.5, 0.75], axis=0))
        scale = (high - low) / GAUSSIAN_IQR
        spiked = (x == centre).sum(0) >= 0.5 * observed.sum(0)
        for j in (spiked | (scale == 0)).nonzero().flatten().tolist():
            scale[j] = _scale_of_spiked(x[observed[:, j], j], centre[j])
        linear = torch.where(spiked, SPIKED_LINEAR, LINEAR).double() if tails else None
        return cls(centre, scale, linear, used, constants)

    def unskewed(self, x: Tensor, *, min_skew: float = 8.5) -> "Coordinates":
        """The same coordinates with the skew that makes the quartiles of each column of `(n, d)` symmetric.

        A log-normal column, whatever its shift and scale, becomes Gaussian. A skew below `min_skew` / sqrt(n), two
        standard errors for a Gaussian, is ignored, as is that of a column with a quartile at the median.
        """
        rows = _quantile_rows(x if self.used is None else x[:, self.used])
        quartiles = torch.from_numpy(np.nanquantile(rows.numpy(), [0.25, 0.75], axis=0))
        below, above = (quartiles - self.shift) / self.scale
        skew = -(1 / below + 1 / above)  # log(1 + s below) = -log(1 + s above)
        count = (~rows.isnan()).sum(0)
        is_skewed = (below < 0) & (above > 0) & (skew.abs() > min_skew / count.sqrt())
        return replace(self, skew=torch.where(is_skewed, skew, 0.0)) if is_skewed.any() else self

    def linear_if_binary(self, x: Tensor, *, linear: float = 1e6) -> "Coordinates":
        """The same coordinates without compressed tails in columns that have two values.

        The rarer of two values lies some deviations out and would be compressed like a tail. `linear` deviations are
        more than any value has.
        """
        if self.linear is None:
            return self
        x = x if self.used is None else x[:, self.used]
        is_binary = ((x == x.amin(0)) | (x == x.amax(0))).all(0)
        return replace(self, linear=torch.where(is_binary, linear, self.linear))

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
        return self.is_linear and self.used is None and not self.shift.any() and bool((self.scale == 1).all())

    def to(self, device: torch.device) -> "Coordinates":
        """The same coordinates on a device."""
        return replace(self, **{name: t.to(device) for name, t in self.tensors().items()})

    def forward(self, x: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Rows as the network sees them."""
        if self._is_identity:
            return x.to(dtype)
        if self.used is not None:
            x = x[:, self.used]
        if self.skew is not None:
            u = _log_transform((x - self.shift) / self.scale, self.skew)
            return (u if self.linear is None else self.linear * torch.asinh(u / self.linear)).to(dtype)
        if self.linear is None:
            return ((x - self.shift) / self.scale).to(dtype)
        return (self.linear * torch.asinh((x - self.shift) / (self.linear * self.scale))).to(dtype)

    def inverse(self, z: Tensor) -> Tensor:
        """Back to the units of the data, in float64; columns that the network does not see have their constants."""
        if self.linear is not None:
            z = torch.sinh(z / self.linear) * self.linear
        if self.skew is not None:
            z = _inverse_log_transform(z, self.skew)
        x = z * self.scale + self.shift
        if self.used is None or self.constants is None:
            return x
        rows = self.constants.expand(len(x), -1).clone()
        rows[:, self.used] = x
        return rows

    def log_slope(self, x: Tensor) -> Tensor:
        """Log determinant of dz/dx at rows, `(n, *shape)` to `(n,)`: it turns a density of z into one of x.

        Missing values, NaN, are left out.
        """
        used = x if self.used is None else x[:, self.used]
        linear = torch.where(used.isnan(), 0.0, -self.scale.log()).flatten(1).sum(1)
        return linear if self.is_linear else linear + self.log_nonlinear_slope(x)

    def log_nonlinear_slope(self, x: Tensor) -> Tensor:
        """Log determinant of dz/dx at rows, beyond that of the scale: 0 at the centre, and everywhere if linear.

        Missing values, NaN, are left out.
        """
        u = ((x if self.used is None else x[:, self.used]) - self.shift) / self.scale
        log_slope = torch.zeros_like(u)
        if self.skew is not None:
            log_slope = -0.5 * (((1 + self.skew * u).square() + SOFTENING**2) / (1 + SOFTENING**2)).log()
            u = _log_transform(u, self.skew)
        if self.linear is not None:
            log_slope = log_slope - 0.5 * torch.log1p((u / self.linear).square())
        return log_slope.nan_to_num(nan=0.0).flatten(1).sum(1)

    def tensors(self) -> dict[str, Tensor]:
        """The arguments of `Coordinates(**tensors)`, for saving."""
        return {f.name: value for f in fields(self) if (value := getattr(self, f.name)) is not None}


def spaced_rows(x: Tensor, most: int = 100_000) -> Tensor:
    """Rows of `(n, ...)` at equal distances, at most as many as accurate quantiles need."""
    return x[torch.linspace(0, len(x) - 1, min(len(x), most), dtype=torch.float64).long()]


def _quantile_rows(x: Tensor) -> Tensor:
    """Spaced rows, or all of them where a column would be left without a value."""
    rows = spaced_rows(x)
    return x if rows.isnan().all(0).any() else rows


def _scale_of_spiked(x: Tensor, centre: Tensor) -> Tensor:
    """Scale of a column that mostly has one value: median distance of the others times the root of their share."""
    # For a column with two values this is the standard deviation; unlike it, gross outliers do not move it.
    away = (x[~x.isnan()] - centre).abs()
    others = away[away > 0]
    return others.median() * (len(others) / len(away)) ** 0.5


def _log_transform(u: Tensor, skew: Tensor) -> Tensor:
    """log(1 + s u) / s, continued by asinh where 1 + s u is small or negative; the slope at 0 is 1."""
    safe = torch.where(skew == 0, 1.0, skew)
    transformed = (
        (torch.asinh((1 + safe * u) / SOFTENING) - math.asinh(1 / SOFTENING)) * math.hypot(1, SOFTENING) / safe
    )
    return torch.where(skew == 0, u, transformed)


def _inverse_log_transform(v: Tensor, skew: Tensor) -> Tensor:
    """The inverse of `_log_transform`."""
    safe = torch.where(skew == 0, 1.0, skew)
    u = (SOFTENING * torch.sinh(safe * v / math.hypot(1, SOFTENING) + math.asinh(1 / SOFTENING)) - 1) / safe
    return torch.where(skew == 0, v, u)
