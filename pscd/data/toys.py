"""Toy distributions: the six 2-D sets and the 1-D mixtures of the paper, with densities where known.

Definitions follow the code of the works that the paper compares with (f-WGAN: cosine, funnel, mog,
rings; FFJORD: swiss_roll, moon); the paper itself gives none.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pscd.rng import integer_seed

RING_RADII = (1.0, 3.0, 5.0)
RING_NOISE = 0.2
CURVE_NOISE = 0.2  # of swiss_roll and moon, after their scaling


@dataclass(frozen=True)
class GaussianMixture1d:
    """A mixture of Gaussians on the line, given by weights, means and **variances**."""

    weights: tuple[float, ...]
    means: tuple[float, ...]
    variances: tuple[float, ...]

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """`(n, 1)` draws."""
        k = torch.multinomial(torch.tensor(self.weights), n, replacement=True, generator=generator)
        z = torch.randn(n, generator=generator)
        return (torch.tensor(self.means)[k] + torch.tensor(self.variances).sqrt()[k] * z)[:, None]

    def log_prob(self, x: Tensor) -> Tensor:
        """Log density of `(n, 1)` points."""
        var = torch.tensor(self.variances, dtype=x.dtype, device=x.device)
        mean = torch.tensor(self.means, dtype=x.dtype, device=x.device)
        log_weight = torch.tensor(self.weights, dtype=x.dtype, device=x.device).log()
        return torch.logsumexp(log_weight - 0.5 * (2 * math.pi * var).log() - (x - mean).square() / (2 * var), 1)


# The mixture that f-EBM (Yu et al. 2020) fits with one Gaussian, used again for the paper's Figure 1.
MIXTURE_1D = GaussianMixture1d((0.33, 0.67), (-1.0, 2.0), (0.0625, 2.0))
# Clean data and contamination of the paper's Table 2; its second parameters are variances.
CLEAN_1D = GaussianMixture1d((1.0,), (-1.0,), (0.5,))
CONTAMINATION_1D = GaussianMixture1d((1.0,), (2.0,), (0.05,))


def contaminated_1d(ratio: float) -> GaussianMixture1d:
    """Table 2's training distribution: N(-1, 0.5) with a fraction `ratio` from N(2, 0.05)."""
    return GaussianMixture1d((1 - ratio, ratio), (-1.0, 2.0), (0.5, 0.05))


def cosine(n: int, generator: torch.Generator | None = None) -> Tensor:
    """x0 ~ U(-4, 4); x1 = 3 cos(2 x0) + N(0, 1)."""
    x0 = torch.rand(n, generator=generator) * 8 - 4
    return torch.stack([x0, 3 * torch.cos(2 * x0) + torch.randn(n, generator=generator)], 1)


def funnel(n: int, generator: torch.Generator | None = None) -> Tensor:
    """x0 = 2 N(0, 1); x1 = N(0, 1) sqrt(clip(exp(-x0), 0, 10))."""
    x0, z = 2 * torch.randn(n, generator=generator), torch.randn(n, generator=generator)
    return torch.stack([x0, z * torch.exp(-x0).clamp(0, 10).sqrt()], 1)


def mog(n: int, generator: torch.Generator | None = None) -> Tensor:
    """Two equal Gaussians at (+-4, 0) with standard deviation 0.5."""
    side = torch.randint(2, (n,), generator=generator) * 8.0 - 4
    x = 0.5 * torch.randn(n, 2, generator=generator)
    x[:, 0] += side
    return x


def rings(n: int, generator: torch.Generator | None = None) -> Tensor:
    """Circles of radius 1, 3, 5, each as likely as it is long, plus noise of standard deviation 0.2."""
    radii = torch.tensor(RING_RADII)
    radius = radii[torch.multinomial(radii, n, replacement=True, generator=generator)]
    angle = 2 * math.pi * torch.rand(n, generator=generator)
    circle = radius[:, None] * torch.stack([angle.cos(), angle.sin()], 1)
    return circle + RING_NOISE * torch.randn(n, 2, generator=generator)


def swiss_roll(n: int, generator: torch.Generator | None = None) -> Tensor:
    """scikit-learn's swiss roll, noise 1, columns 0 and 2, divided by 5."""
    from sklearn.datasets import make_swiss_roll

    x, _ = make_swiss_roll(n, noise=1.0, random_state=_seed(generator))
    return torch.from_numpy(x[:, [0, 2]] / 5).float()


def moon(n: int, generator: torch.Generator | None = None) -> Tensor:
    """scikit-learn's two moons, noise 0.1, times 2 plus (-1, -0.2)."""
    from sklearn.datasets import make_moons

    x, _ = make_moons(n, noise=0.1, random_state=_seed(generator))
    return torch.from_numpy(x).float() * 2 + torch.tensor([-1.0, -0.2])


def cosine_log_density(x: Tensor) -> Tensor:
    """Log density of `cosine`; -inf outside |x0| < 4."""
    inside = (x[:, 0].abs() < 4).to(x.dtype)
    return inside.log() - math.log(8) + _log_normal(x[:, 1] - 3 * torch.cos(2 * x[:, 0]), torch.ones_like(x[:, 0]))


def funnel_log_density(x: Tensor) -> Tensor:
    """Log density of `funnel`."""
    variance = torch.exp(-x[:, 0]).clamp(0, 10)
    return _log_normal(x[:, 0], torch.full_like(variance, 4.0)) + _log_normal(x[:, 1], variance)


def mog_log_density(x: Tensor) -> Tensor:
    """Log density of `mog`."""
    variance = torch.full_like(x[:, 0], 0.25)
    sides = [_log_normal(x[:, 0] - side, variance) for side in (-4, 4)]
    return torch.logaddexp(*sides) - math.log(2) + _log_normal(x[:, 1], variance)


def rings_log_density(x: Tensor) -> Tensor:
    """Log density of `rings`: a circle with Gaussian noise has a Bessel function in it."""
    radius, var = x.norm(dim=1), RING_NOISE**2
    terms = []
    for r in RING_RADII:
        # i0e(z) = exp(-z) I0(z), so the exponent left is that of the distance to the circle.
        bessel = torch.special.i0e(radius * r / var).log()
        terms.append(math.log(r / sum(RING_RADII)) - (radius - r).square() / (2 * var) + bessel)
    return torch.logsumexp(torch.stack(terms), 0) - math.log(2 * math.pi * var)


def _log_normal(x: Tensor, variance: Tensor) -> Tensor:
    return -0.5 * (x.square() / variance + (2 * math.pi * variance).log())


def _seed(generator: torch.Generator | None) -> int:
    return integer_seed(generator or torch.default_generator)


def moon_log_density(x: Tensor) -> Tensor:
    """Log density of `moon`: two half circles of radius 2 with noise of standard deviation 0.2."""
    upper = _log_curve(x, lambda t: torch.stack([2 * t.cos() - 1, 2 * t.sin() - 0.2], 1), 0, math.pi, 128)
    lower = _log_curve(x, lambda t: torch.stack([1 - 2 * t.cos(), 0.8 - 2 * t.sin()], 1), 0, math.pi, 128)
    return torch.logaddexp(upper, lower) - math.log(2)


def swiss_roll_log_density(x: Tensor) -> Tensor:
    """Log density of `swiss_roll`: a spiral with noise of standard deviation 0.2."""
    return _log_curve(x, lambda t: torch.stack([t * t.cos(), t * t.sin()], 1) / 5, 1.5 * math.pi, 4.5 * math.pi, 400)


def _log_curve(x: Tensor, curve: Callable[[Tensor], Tensor], low: float, high: float, n: int) -> Tensor:
    """Log density of `curve(t)`, t uniform on (low, high), plus noise: Gauss-Legendre over t.

    With four nodes per width of the noise along the curve, it is exact to ten digits.
    """
    nodes, weights = (torch.from_numpy(v).to(x) for v in np.polynomial.legendre.leggauss(n))
    centres = curve(low + (high - low) * (nodes + 1) / 2)

    def values(part: Tensor) -> Tensor:
        squared = torch.cdist(part, centres, compute_mode="donot_use_mm_for_euclid_dist").square()
        return torch.logsumexp((weights / 2).log() - squared / (2 * CURVE_NOISE**2), 1)

    return torch.cat([values(part) for part in x.split(4096)]) - math.log(2 * math.pi * CURVE_NOISE**2)


def mog_mode(x: Tensor) -> Tensor:
    """Left or right."""
    return (x[:, 0] > 0).long()


def rings_mode(x: Tensor) -> Tensor:
    """The nearest circle."""
    radii = torch.tensor(RING_RADII, device=x.device)
    return (x.norm(dim=1, keepdim=True) - radii).abs().argmin(1)


def moon_mode(x: Tensor) -> Tensor:
    """The nearest arc: both have radius 2, around (-1, -0.2) and (1, 0.8)."""
    centres = torch.tensor([[-1.0, -0.2], [1.0, 0.8]], device=x.device)
    return (torch.cdist(x, centres) - 2).abs().argmin(1)


Draw = Callable[[int, torch.Generator | None], Tensor]

# The order is that of the paper's table.
TOYS_2D: dict[str, Draw] = {
    "cosine": cosine,
    "swiss_roll": swiss_roll,
    "moon": moon,
    "mog": mog,
    "funnel": funnel,
    "rings": rings,
}
TOYS_1D: dict[str, Draw] = {
    "mixture_1d": MIXTURE_1D.sample,
    "gaussian_1d": CLEAN_1D.sample,
    **{f"contaminated_1d_{percent:02d}": contaminated_1d(percent / 100).sample for percent in (1, 5, 10, 20, 30)},
}
TOYS: dict[str, Draw] = TOYS_2D | TOYS_1D

LOG_DENSITIES: dict[str, Callable[[Tensor], Tensor]] = {
    "cosine": cosine_log_density,
    "swiss_roll": swiss_roll_log_density,
    "moon": moon_log_density,
    "mog": mog_log_density,
    "funnel": funnel_log_density,
    "rings": rings_log_density,
    "mixture_1d": MIXTURE_1D.log_prob,
    "gaussian_1d": CLEAN_1D.log_prob,
}

# Where modes are known: which one a row belongs to.
MODES: dict[str, Callable[[Tensor], Tensor]] = {"mog": mog_mode, "rings": rings_mode, "moon": moon_mode}
