"""The Gaussian of the majority of the rows, fitted beside a background that takes the outliers."""

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from pscd.mixtures import MixtureSettings
from pscd.mixtures.robust import converged, first_component
from pscd.rng import Stream, generator


@dataclass(frozen=True)
class GaussianSettings:
    """How the covariance is regularised."""

    max_rows: int = 20_000  # random rows that it is fitted to: more change little
    ridge: float = 0.05  # added to every variance, so that directions without variation are not blown up
    floor: float = 0.2  # least variance of a column
    # The same for a column in which half of the rows share one value. A value that a share p of the rows has stands at
    # asinh(1 / sqrt(p)) there, and with variance 1 costs about -log p nats: 4.3 for one in a hundred.
    spiked_floor: float = 1.0
    # Weight of independent columns in the precision, with many rows; more with few rows for each column.
    shrink: float = 0.5


@dataclass(frozen=True)
class Gaussian:
    """A Gaussian in k dimensions: mean `(k,)`, covariance `(k, k)`."""

    mean: Tensor
    covariance: Tensor

    @cached_property
    def factor(self) -> Tensor:
        """Lower Cholesky factor of the covariance."""
        return torch.linalg.cholesky(self.covariance)

    @cached_property
    def precision(self) -> Tensor:
        """Inverse of the covariance."""
        return torch.cholesky_inverse(self.factor)

    def whiten(self, z: Tensor) -> Tensor:
        """Rows `(n, k)` in coordinates in which this Gaussian is standard: L^-1 (z - mean), with covariance = L L^T."""
        return torch.linalg.solve_triangular(self.factor, (z - self.mean).T, upper=False).T

    def colour(self, u: Tensor) -> Tensor:
        """The inverse of `whiten`: mean + L u."""
        return self.mean + u @ self.factor.T

    def energy(self, z: Tensor) -> Tensor:
        """Half the squared Mahalanobis distance of rows `(n, k)`, `(n,)`."""
        return 0.5 * self.whiten(z).square().sum(1)


def fit_gaussian(
    z: Tensor, *, robust: bool, spiked: Tensor, seed: int, settings: GaussianSettings | None = None
) -> Gaussian:
    """Fit the Gaussian to rows `(n, k)`, by EM beside a background of outliers if `robust`; `spiked` is `(k,)`."""
    settings = settings or GaussianSettings()
    rng = generator(seed, Stream.DETECTOR_ROWS)
    z = z[torch.randperm(len(z), generator=rng)[: settings.max_rows]]
    n, k = z.shape
    if robust:
        # EM finds the optimum nearest to its start: the half of the rows nearest to the median is mostly clean.
        distance = (z - z.median(0).values).square().sum(1)
        middle = z[distance.topk(max(2, (n + 1) // 2), largest=False).indices]
        levels = torch.zeros(k, dtype=torch.long)
        # Shrunk: a covariance that is too narrow calls ordinary rows outliers, since the background takes them.
        em = MixtureSettings(spiked_variance=0.0, pseudo_rows=4.0, ridge=1e-4)
        every, start = (first_component(rows, levels, em, None) for rows in (z, middle))
        frame = replace(start.frame, background=every.frame.background)
        component = converged(replace(start, frame=frame), z).components
        mean, covariance = component.means[0], component.covariances[0]
    else:
        mean, covariance = z.mean(0), torch.cov(z.T).reshape(k, k)
    floor = torch.where(spiked, settings.spiked_floor, settings.floor).double()
    return Gaussian(mean, regularised(covariance, n, floor, settings))


def regularised(covariance: Tensor, n: int, floor: Tensor, settings: GaussianSettings) -> Tensor:
    """The covariance of n rows with a ridge, variances above `floor`, and a precision shrunk to independent columns."""
    # (1 - s) S^-1 + s diag(S)^-1: the mean energy of Gaussian rows is k / 2 for any s.
    weight = 1 - (1 - settings.shrink) * n / (n + len(covariance))
    scatter = covariance + torch.diag(settings.ridge + (floor - covariance.diagonal()).clamp_min(0))
    precision = (1 - weight) * torch.linalg.inv(scatter) + weight * torch.diag(1 / scatter.diagonal())
    shrunk = torch.linalg.inv(precision)
    return 0.5 * (shrunk + shrunk.T)
