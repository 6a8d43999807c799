"""Toy distributions: the six 2-D sets and the 1-D mixtures of the paper, with densities where known.

Definitions follow the code of the works that the paper compares with (f-WGAN: cosine, funnel, mog,
rings; FFJORD: swiss_roll, moon); the paper itself gives none.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from pscd.errors import UserError
from pscd.exact import Box
from pscd.extensions import is_path, loaded
from pscd.rng import generator as seeded
from pscd.rng import integer_seed

RING_RADII = (1.0, 3.0, 5.0)
RING_NOISE = 0.2
CURVE_NOISE = 0.2  # of swiss_roll and moon, after their scaling


@dataclass(frozen=True)
class GaussianMixture1d:
    """A mixture of Gaussians on the line.

    >>> GaussianMixture1d((0.5, 0.5), (-1.0, 1.0), (0.1, 0.1)).sample(3).shape
    torch.Size([3, 1])
    """

    weights: tuple[float, ...]  # sum to 1
    means: tuple[float, ...]
    variances: tuple[float, ...]  # not standard deviations

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
    """Log density `(n,)` of `curve(t)`, t uniform on (low, high), plus noise: Gauss-Legendre over t."""
    # With four nodes per width of the noise along the curve, it is exact to ten digits.
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


@dataclass(frozen=True)
class Toy:
    """A distribution to learn on, with what is known of it; `toy(n, generator)` gives `(n, d)` rows.

    Args:
        draw: rows from a count and a generator.
        log_density: log p of rows `(n, d)`, normalised; needed for KL and exact MMD.
        mode: which of its modes each row belongs to, 0, 1, ...; needed to watch that none is lost.
        box: where to integrate the density and that of models trained on it. By default it is read off a draw: per
            axis the range of 10,000 points, as much again on either side.
        window: the interval, of both axes, that a figure shows. By default the whole numbers around all but the
            outermost 0.1 % of a draw at each end.

    >>> square = Toy(lambda n, generator=None: torch.rand(n, 2, generator=generator))
    >>> square(3).shape, square.figure_window
    (torch.Size([3, 2]), (0.0, 1.0))
    """

    draw: Draw
    log_density: Callable[[Tensor], Tensor] | None = None
    mode: Callable[[Tensor], Tensor] | None = None
    box: Box | None = None
    window: tuple[float, float] | None = None

    def __call__(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """`n` rows, `(n, d)`."""
        return self.draw(n, generator)

    @cached_property
    def quadrature_box(self) -> Box:
        """The box of quadrature: the toy's own, or one read off a draw."""
        if self.box is not None:
            return self.box
        low, high = self._look.min(0).values, self._look.max(0).values
        width = high - low
        return Box(tuple((low - width).tolist()), tuple((high + width).tolist()))

    @cached_property
    def figure_window(self) -> tuple[float, float]:
        """The window of figures: the toy's own, or one read off a draw."""
        if self.window is not None:
            return self.window
        low, high = (torch.quantile(self._look, q, dim=0) for q in (0.001, 0.999))
        return float(low.min().floor()), float(high.max().ceil())

    @cached_property
    def _look(self) -> Tensor:
        return self.draw(10_000, seeded(0)).double()


def _line(p: GaussianMixture1d) -> Toy:
    return Toy(p.sample, p.log_prob)


# A toy is one entry. The order is that of the paper's table; boxes are wide enough for the data and for networks that
# were trained on them, untrained ones may need more.
TOYS_2D: dict[str, Toy] = {
    "cosine": Toy(
        cosine, cosine_log_density, box=Box((-16.0, -16.0), (16.0, 16.0), jumps=((-4.0, 4.0), ())), window=(-7.0, 7.0)
    ),
    "swiss_roll": Toy(swiss_roll, swiss_roll_log_density, box=Box((-10.0, -10.0), (10.0, 10.0)), window=(-4.0, 4.0)),
    "moon": Toy(moon, moon_log_density, moon_mode, Box((-12.0, -10.0), (12.0, 10.0)), (-4.0, 4.0)),
    "mog": Toy(mog, mog_log_density, mog_mode, Box((-20.0, -8.0), (20.0, 8.0)), (-7.0, 7.0)),
    # The variance of x1 stops growing at x0 = -log 10; its deviation is 3 at one end and 0.01 at the other.
    "funnel": Toy(
        funnel,
        funnel_log_density,
        box=Box(
            (-16.0 - math.log(10), -24.0), (16.0 - math.log(10), 24.0), core=(None, 0.05), jumps=((-math.log(10),), ())
        ),
        window=(-7.0, 7.0),
    ),
    "rings": Toy(rings, rings_log_density, rings_mode, Box((-16.0, -16.0), (16.0, 16.0)), (-7.0, 7.0)),
}
TOYS_1D: dict[str, Toy] = {
    "mixture_1d": _line(MIXTURE_1D),
    "gaussian_1d": _line(CLEAN_1D),
    **{f"contaminated_1d_{percent:02d}": _line(contaminated_1d(percent / 100)) for percent in (1, 5, 10, 20, 30)},
}
TOYS: dict[str, Toy] = TOYS_2D | TOYS_1D


def find_toy(name: str) -> Toy | None:
    """The toy that a name stands for: a key of `TOYS`, or the import path `package.module:toy` of one's own.

    Returns:
        None if the name is that of something else, such as a file.

    Raises:
        UserError: the import path names no toy, or its module is not imported: a name never is a reason to import code.
    """
    if name in TOYS or not is_path(name):
        return TOYS.get(name)
    toy = loaded(name)
    if not isinstance(toy, Toy):
        raise UserError(f"{name} is of the type {type(toy).__name__}, not a pscd.data.Toy")
    return toy
