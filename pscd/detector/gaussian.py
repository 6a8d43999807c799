"""The Gaussian of largest gamma-score: robust mean and covariance, by a fixed-point iteration."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from pscd.losses import effective_sample_fraction, importance_weights
from pscd.metrics import auroc
from pscd.mixtures.neighbours import NEIGHBOUR_ROWS, isolation
from pscd.rng import Stream, generator

RIDGE = 0.05  # added to every variance: directions in which the data hardly vary are not blown up without end
FLOOR = 0.2  # least variance of a column, whatever the weights do to it
# The same for a column in which most rows share one value. A value that a share p of the rows has stands at
# asinh(1 / sqrt(p)) there, and with variance 1 costs about -log p nats, as it should: 4.3 for one in a hundred.
SPIKED_FLOOR = 1.0
SHRINK = 0.5  # how far the precision is drawn towards that of independent columns, with many rows
ROUNDS = 60  # at most; fewer where the weights have settled
SETTLED = 1e-10  # total change of the weights, which sum to 1, in the last round
N_CALIBRATION = 20_000  # draws for the energies that Gaussian rows would have
MAX_GAMMA = 1.0
ISOLATED = 0.1  # share of the rows, those farthest from their neighbours, that count as odd
DENSE = 0.75  # rows beyond the majority count as a group if they are closer together than one in four of it


@dataclass(frozen=True)
class Gaussian:
    """A Gaussian in k dimensions, with the gamma it was fitted with.

    Args:
        mean: `(k,)`.
        covariance: `(k, k)`, ridge and shrinkage included.
        gamma: of the score that it maximises.
        scatter: `(k, k)`, covariance of the weighted rows, with the ridge but without shrinkage.
    """

    mean: Tensor
    covariance: Tensor
    gamma: float
    scatter: Tensor

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

    def outside(self, z: Tensor, inside: float) -> Tensor:
        """Which rows lie outside the ellipsoid that would hold a share `inside` of Gaussian rows.

        For Gaussian rows with covariance `scatter`, 2 E is distributed as sum_i w_i chi^2_1, where w_i are the
        eigenvalues of `scatter` in whitened coordinates; its quantiles are taken from draws. The ellipsoid is scaled so
        that the median energies agree, since the ridge makes this Gaussian wider than the data.

        Args:
            z: `(n, k)`.
            inside: share in (0, 1).

        Returns:
            `(n,)`, true outside.
        """
        half = torch.linalg.solve_triangular(self.factor, self.scatter, upper=False)
        weights = torch.linalg.eigvalsh(torch.linalg.solve_triangular(self.factor, half.T, upper=False))
        draws = (
            torch.randn(
                N_CALIBRATION, len(weights), generator=generator(0, Stream.GAUSSIAN_CALIBRATION), dtype=z.dtype
            ).square()
            @ weights
        )
        energy = self.energy(z)
        return energy > energy.median() * draws.quantile(inside) / draws.median()

    def without_column(self, z: Tensor, j: int) -> Tensor:
        """Rows with column j replaced by its conditional mean given the other columns."""
        pull = (z - self.mean) @ self.precision[j] / self.precision[j, j]
        replaced = z.clone()
        replaced[:, j] -= pull
        return replaced


def fit_gaussian(
    z: Tensor,
    *,
    gamma: float | None = None,
    share: float = 1.0,
    ridge: float = RIDGE,
    floor: float | Tensor = FLOOR,
    shrink: float | None = None,
) -> Gaussian:
    """The Gaussian at a stationary point of the gamma-score, by fixed-point iteration (Fujisawa and Eguchi 2008).

        w_i proportional to exp(-gamma E(z_i)),  mean = sum w_i z_i,
        covariance = (1 + gamma) sum w_i (z_i - mean)(z_i - mean)^T.

    Every tight cluster has such a point, so the start matters: the half of the rows nearest to the median, most of
    which belong to the majority.

    Args:
        z: rows `(n, k)`.
        gamma: of the score; by default the one, at most 1, at which the weights have the effective `share`.
        share: effective sample fraction of the weights, in (0, 1]; 1 is gamma = 0.
        ridge: added to every variance.
        floor: least variance of the columns, one number or `(k,)`.
        shrink: weight of the diagonal precision in the shrunk one, (1 - shrink) S^-1 + shrink diag(S)^-1; the mean
            energy of Gaussian rows is k / 2 for any weight. By default a half with many rows, and more the fewer rows
            there are for each column.

    Returns:
        The Gaussian, with the gamma that it was fitted by.
    """
    n, k = z.shape
    drawn = 1 - (1 - SHRINK) * n / (n + k) if shrink is None else shrink

    def regular(covariance: Tensor) -> tuple[Tensor, Tensor]:
        """The scatter and the precision that such a covariance gives."""
        scatter = covariance + torch.diag(ridge + (floor - covariance.diagonal()).clamp_min(0))
        return scatter, (1 - drawn) * torch.linalg.inv(scatter) + drawn * torch.diag(1 / scatter.diagonal())

    def gaussian(mean: Tensor, covariance: Tensor, gamma: float) -> Gaussian:
        scatter, precision = regular(covariance)
        shrunk = torch.linalg.inv(precision)
        return Gaussian(mean, 0.5 * (shrunk + shrunk.T), gamma, scatter)

    if (gamma if gamma is not None else 1 - share) == 0:
        return gaussian(z.mean(0), torch.cov(z.T).reshape(k, k), 0.0)
    distance = (z - z.median(0).values).square().sum(1)
    middle = z[distance <= distance.median()]
    mean, covariance = middle.mean(0), torch.cov(middle.T, correction=0).reshape(k, k)
    current, weights = 0.0 if gamma is None else gamma, z.new_zeros(n)
    centred = z - mean
    for _ in range(ROUNDS):
        energy = 0.5 * ((centred @ regular(covariance)[1]) * centred).sum(1)
        current = gamma_for_share(energy, share) if gamma is None else gamma
        last, weights = weights, importance_weights(energy, current)
        mean = weights @ z
        centred = z - mean
        covariance = (1 + current) * (centred * weights[:, None]).T @ centred
        if (weights - last).abs().sum() < SETTLED:
            break
    return gaussian(mean, covariance, current)


def floors(spiked: Tensor) -> Tensor:
    """Least variance of each column, `(k,)`; larger for `spiked` columns, in which half the rows share one value."""
    return torch.where(spiked, SPIKED_FLOOR, FLOOR).double()


def majority(z: Tensor, share: float, *, inside: float, clean: float, floor: float | Tensor = FLOOR) -> Gaussian:
    """The robust Gaussian of the majority or the plain one, gamma = 0, whichever suits the rows.

    - Few rows outside the robust ellipsoid: the plain one, the better estimate where there is nothing to resist.
    - Otherwise, a dense group outside: the robust one, since the plain one would lean towards the group.
    - Otherwise, the one whose energy has the larger AUROC for odd rows, isolated ones and small groups. Where the
      majority itself has long tails, a robust Gaussian fits its core, and finds good rows as strange as bad ones.

    Args:
        z: rows `(n, k)`.
        share: effective sample fraction that fixes gamma of the robust one.
        inside: share of Gaussian rows that the ellipsoid holds.
        clean: share of rows outside it, or in a dense group there, that counts as few.
        floor: least variance of the columns, one number or `(k,)`.

    Returns:
        The Gaussian that was chosen.
    """
    robust, plain = fit_gaussian(z, share=share, floor=floor), fit_gaussian(z, gamma=0.0, floor=floor)
    beyond = robust.outside(z, inside)
    if beyond.double().mean() < clean:
        return plain
    some, beyond = z[:NEIGHBOUR_ROWS], beyond[:NEIGHBOUR_ROWS]
    away = isolation(robust.whiten(some))
    dense = beyond & (away < away[~beyond].quantile(DENSE))
    if dense.double().mean() >= clean:
        return robust
    odd = dense.clone()
    odd[away.topk(max(1, int(ISOLATED * len(some)))).indices] = True
    robust_tells, plain_tells = (auroc(e[~odd], e[odd]) for e in (robust.energy(some), plain.energy(some)))
    return robust if robust_tells >= plain_tells else plain


def silverman(n: int, k: int) -> float:
    """Width of a Gaussian kernel for n rows of k columns, in standard deviations (Silverman 1986, Eq. 4.14)."""
    return (4 / ((k + 2) * n)) ** (1 / (k + 4))


def gamma_for_share(energy: Tensor, share: float, most: float = MAX_GAMMA) -> float:
    """The gamma in [0, most] at which weights proportional to exp(-gamma E) have this effective sample fraction.

    The fraction, (sum w)^2 / (n sum w^2), falls from 1 as gamma rises.

    Args:
        energy: `(n,)`.
        share: effective sample fraction to reach, in (0, 1].
        most: largest gamma, which is also the answer where the fraction stays above `share`.

    Returns:
        Gamma; 0 if the share is 1.
    """
    from scipy.optimize import brentq

    def excess(gamma: float) -> float:
        return float(effective_sample_fraction(importance_weights(energy, gamma))) - share

    if excess(most) >= 0:
        return most
    return float(brentq(excess, 0.0, most)) if share < 1 else 0.0
