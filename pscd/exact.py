"""Exact quantities of energies in one and two dimensions, by quadrature in float64.

The midpoint rule on a product grid: for a smooth density that vanishes towards the edges of its box the error falls
faster than any power of the cell size, so a few hundred cells per axis give ten digits. A box can say where a density
is not smooth: `core` for a spike, `jumps` for discontinuities.

`log_p` and `log_q` are log densities on a grid: tensors `(M,)` of values at `grid.points`, normalised unless a function
says otherwise. `energy` is that of q and maps `(B, d)` to `(B,)`. Results are float64 scalars unless noted, and
differentiable where the energy is. A `UserError` is raised if the box cuts mass off. Theorem and equation numbers are
those of Yu, Song, Song, Ermon (2021).
"""

import copy
import math
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint

from pscd.errors import UserError
from pscd.losses import check_gamma
from pscd.types import Energy

EDGE = 64  # the edge of a box is its outermost 1/64 on each side, whatever the number of cells


@dataclass(frozen=True)
class Box:
    """The interval or rectangle from `low` to `high`; all fields but `cut` have an entry per axis.

    Args:
        low: lower ends.
        high: upper ends.
        core: None, or a > 0 for a density with a spike at 0: cells that are fine within about a of 0 and grow in
            proportion to |x| further out, x = a sinh(u) with u uniform.
        jumps: places where a density or its slope is discontinuous, preferably multiples of (high - low) / 64.
            Cells shrink towards them and towards the ends, which makes the error of order 6 in the cell size
            instead of 2.
        cut: the largest share of the mass that the edge of the box may hold on one side; more means that the box cuts
            mass off. `math.inf` for a sample space that ends where the box ends.
    """

    low: tuple[float, ...]
    high: tuple[float, ...]
    core: tuple[float | None, ...] = (None, None)
    jumps: tuple[tuple[float, ...], ...] = ((), ())
    cut: float = 1e-6

    def __post_init__(self) -> None:
        d = len(self.low)
        if d not in (1, 2) or len(self.high) != d or len(self.core) < d or len(self.jumps) < d:
            raise ValueError(f"a box has one or two axes, and fields with an entry for each: {self}")
        for low, high, core, jumps in zip(self.low, self.high, self.core, self.jumps, strict=False):
            ordered = all(a < b for a, b in pairwise((-math.inf, low, *jumps, high, math.inf)))
            if not ordered or (core is not None and (jumps or not core > 0)):
                raise ValueError(f"an axis needs finite low < jumps < high, and either jumps or a core > 0: {self}")


@dataclass(frozen=True, eq=False)
class Grid:
    """The cells of a box; built by `grid`.

    Args:
        box: the box.
        edges: per axis, the edges of the cells, one more than there are cells.
        axes: per axis, the centres of the cells.
        widths: per axis, the weights of the midpoint rule.
    """

    box: Box
    edges: tuple[Tensor, ...]
    axes: tuple[Tensor, ...]
    widths: tuple[Tensor, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Cells per axis."""
        return tuple(len(axis) for axis in self.axes)

    @cached_property
    def points(self) -> Tensor:
        """Centres of all cells, `(M, d)`, the last axis running fastest."""
        return torch.cartesian_prod(*self.axes).reshape(-1, len(self.axes))

    @cached_property
    def h(self) -> Tensor:
        """Volumes of all cells, `(M,)`."""
        return self.widths[0] if len(self.axes) == 1 else torch.outer(*self.widths).flatten()


def grid(box: Box, n: int | tuple[int, ...]) -> Grid:
    """Divide a box into cells.

    Args:
        box: an interval or a rectangle.
        n: cells per axis: one number for all axes, or one for each.

    Returns:
        The grid.

    >>> grid(Box((0.0,), (1.0,)), 4).points.flatten().tolist()
    [0.125, 0.375, 0.625, 0.875]
    """
    edges, axes, widths = zip(*(_axis(box, i, count) for i, count in enumerate(_cells(box, n))), strict=True)
    return Grid(box, edges, axes, widths)


@dataclass(frozen=True)
class Convergence:
    """How well a grid has converged.

    Args:
        shape: cells per axis.
        log_partition: log Z.
        mean_energy: E_q[E].
        change: the largest change of an integral when the cells of one axis are doubled.
    """

    shape: tuple[int, ...]
    log_partition: float
    mean_energy: float
    change: float


@torch.no_grad()
def converged_grid(
    energy: Energy,
    box: Box,
    *,
    tolerance: float = 1e-6,
    log_p: Energy | None = None,
    start: int | tuple[int, ...] = EDGE,
    max_points: int = 2**24,
) -> tuple[Grid, Convergence]:
    """A grid on which doubling the cells of any axis changes log Z and E_q[E] by less than `tolerance`.

    Each axis is doubled on its own until that holds, so a density that is rough along one axis needs no square grid.

    Args:
        energy: of q; for a log density instead, give `lambda x: -log_prob(x)`.
        box: where to integrate.
        tolerance: the largest change allowed.
        log_p: log density of the data; its mass, E_p[E] and E_p[log p], and with them KL(p || q), must converge too.
        start: cells per axis to begin with. They must resolve every mode: two grids that both miss one agree.
        max_points: cells of the largest grid to try; the default needs about 1.5 GB of memory.

    Returns:
        The grid, and how well it has converged.

    Raises:
        UserError: the integrals still change at `max_points`, or the box cuts mass off.
    """
    cells, changes = _cells(box, start), [math.inf]
    while math.prod(cells) * 2 <= max_points:
        mesh = grid(box, cells)
        here = _integrals(energy, log_p, mesh)
        doubled = [tuple(count * (1 + (i == j)) for j, count in enumerate(cells)) for i in range(len(cells))]
        finer = [_integrals(energy, log_p, grid(box, shape)) for shape in doubled]
        changes = [max(0.0 if a == b else abs(a - b) for a, b in zip(here, there, strict=True)) for there in finer]
        if max(changes) < tolerance:
            return mesh, Convergence(cells, here[0], -here[1], max(changes))
        cells = tuple(count * (1 + (change >= tolerance)) for count, change in zip(cells, changes, strict=True))
    limit = f"{max(changes):.1e} at {max_points} points, tolerance {tolerance:.0e}"
    raise UserError(f"the integrals still change by {limit}: fit the box, give it a core or jumps, or allow more")


def evaluate(function: Energy, x: Tensor, *, block: int = 65_536) -> Tensor:
    """Values of an energy or a log density at points, computed in blocks.

    A module runs in evaluation mode on a float64 copy of its weights, which keeps float32 rounding out of the
    integrals; gradients still reach its parameters. The backward pass recomputes each block, so memory does not grow
    with points times the size of the network.

    Args:
        function: maps `(B, d)` to `(B,)`.
        x: points `(n, d)`; they are converted to float64.
        block: points per call.

    Returns:
        `(n,)` in float64.

    Raises:
        ValueError: the function returns another shape, or NaN.
    """
    call = _in_float64(function, x.device) if isinstance(function, nn.Module) else function
    again = partial(checkpoint, call, use_reentrant=False, preserve_rng_state=False)
    run = again if torch.is_grad_enabled() else call
    out = torch.cat([run(part) for part in x.double().split(block)]).double()
    if out.shape != x.shape[:1]:
        raise ValueError(f"the energy maps {tuple(x.shape)} to {tuple(out.shape)}, not to {(len(x),)}")
    if torch.isnan(out.detach()).any():
        raise ValueError(f"the energy is NaN at {int(out.isnan().sum())} of {len(out)} points")
    return out


def log_integral(log_f: Tensor, grid: Grid) -> Tensor:
    """Logarithm of the integral of exp(log_f) over the box."""
    log_mass = _on(grid, log_f) + grid.h.log()
    total = torch.logsumexp(log_mass, 0)
    if not torch.isfinite(total.detach()):
        raise ValueError(f"the integral over the box is exp({total.item()}): the energy is infinite there")
    _uncut((log_mass - total).exp(), grid)
    return total


def log_partition(energy: Energy, grid: Grid) -> Tensor:
    """Log Z, Z being the integral of exp(-E) over the box.

    >>> normal = grid(Box((-8.0,), (8.0,)), 64)
    >>> with torch.no_grad():
    ...     round(log_partition(lambda x: x.square().sum(1) / 2, normal).item(), 6)  # log sqrt(2 pi)
    0.918939
    """
    return log_integral(-evaluate(energy, grid.points), grid)


def log_density(energy: Energy, grid: Grid) -> Tensor:
    """Log q = -E - log Z at the points of a grid."""
    e = evaluate(energy, grid.points)
    return -e - log_integral(-e, grid)


@torch.no_grad()
def draw(energy: Energy, grid: Grid, n: int, generator: torch.Generator | None = None) -> Tensor:
    """Draws of q: a cell by its probability, then a uniform point in it.

    The second step adds (cell size)^2 / 12 to the variance of each axis.
    """
    cumulative = (log_density(energy, grid) + grid.h.log()).exp().cumsum(0)
    u = torch.rand(n, len(grid.axes) + 1, generator=generator, dtype=torch.float64)
    # `right` takes the first cell above u, so that a cell without mass is never drawn.
    index = torch.searchsorted(cumulative / cumulative[-1], u[:, 0].contiguous(), right=True)
    cells = torch.unravel_index(index, grid.shape)
    sides = [(edges[i], edges[i + 1]) for edges, i in zip(grid.edges, cells, strict=True)]
    return torch.stack([a + (b - a) * u[:, i] for i, (a, b) in enumerate(sides, start=1)], 1)


def kl(log_p: Tensor, log_q: Tensor, grid: Grid) -> Tensor:
    """KL(p || q), with 0 log 0 = 0; infinite if q = 0 somewhere that p > 0."""
    log_mass, log_q = _log_masses(log_p, grid), _on(grid, log_q)
    support = log_mass > -math.inf
    excess = (_on(grid, log_p) - log_q)[support]
    # A mass that underflows to 0 times an infinity would be NaN.
    return excess.max() if excess.max() == math.inf else (log_mass[support].exp() * excess).sum()


def renyi_entropy(log_q: Tensor, alpha: float, grid: Grid) -> Tensor:
    """Rényi entropy, 1 / (1 - alpha) log of the integral of q^alpha.

    It is Shannon's at alpha = 1, and the logarithm of the volume of the support at 0.
    """
    if not 0 <= alpha < math.inf:
        raise ValueError(f"alpha must be a finite number >= 0, got {alpha}")
    # As a mean, E_q[q^(alpha - 1)], it is smooth through alpha = 1.
    return -_log_power_mean(_log_masses(log_q, grid), _on(grid, log_q), alpha - 1)


def gamma_score(log_p: Tensor, energy: Energy, gamma: float, grid: Grid) -> Tensor:
    """Expected gamma-score (Eq. 15): 1/gamma log E_p[q̄^gamma] - log ||q̄||_(gamma+1), q̄ = exp(-E); E_p[log q] at 0.

    Below gamma = 0, q̄^(gamma+1) and p q̄^gamma have longer tails than q and p, and the box must contain those.
    """
    return _score(log_p, -evaluate(energy, grid.points), gamma, grid)


def gamma_divergence(log_p: Tensor, energy: Energy, gamma: float, grid: Grid) -> Tensor:
    """D(p, q) = S(p, p) - S(p, q) of the gamma-score (Eq. 9): at least 0, and 0 only at p = q.

    At gamma = 0 it is KL(p || q).
    """
    return _score(log_p, log_p, gamma, grid) - gamma_score(log_p, energy, gamma, grid)


@torch.enable_grad()
def gamma_gradient(log_p: Tensor, module: nn.Module, gamma: float, grid: Grid) -> dict[str, Tensor]:
    """Exact gradient of the negative gamma-score, and of the gamma-divergence, by Theorem 2 (Eq. 18).

    E_a[grad E] - E_r[grad E] with a proportional to p q̄^gamma and r to q̄^(gamma+1); at gamma = 0 that of contrastive
    divergence.
    """
    check_gamma(gamma)
    twin = copy.deepcopy(module).double()
    leaves = {name: p for name, p in twin.named_parameters() if p.requires_grad}
    e = evaluate(twin, grid.points)
    if torch.isinf(e.detach()).any():
        raise ValueError("the gradient needs an energy that is finite on the whole box")
    attract = _uncut((_log_masses(log_p, grid) - gamma * e).softmax(0), grid)
    repel = _uncut((grid.h.log() - (gamma + 1) * e).softmax(0), grid)
    gradients = torch.autograd.grad(e @ (attract - repel).detach(), list(leaves.values()), materialize_grads=True)
    return dict(zip(leaves, gradients, strict=True))


def mmd_between(log_p: Tensor, log_q: Tensor, grid: Grid, bandwidth: float = 2**0.5) -> Tensor:
    """MMD^2 of two densities, with the kernel exp(-|x - y|^2 / (2 bandwidth^2)); see `pscd.metrics.mmd`."""
    excess = _log_masses(log_p, grid).exp() - _log_masses(log_q, grid).exp()
    return (excess * _smooth(excess, grid, bandwidth)).sum()


def mmd_to_density(real: Tensor, log_q: Tensor, grid: Grid, bandwidth: float = 2**0.5) -> Tensor:
    """Unbiased MMD^2 between points and a density: a U-statistic among the points, the other terms exact."""
    if len(real) < 2 or real.shape[1:] != (len(grid.axes),):
        raise ValueError(f"MMD needs at least two points (n, {len(grid.axes)}), got shape {tuple(real.shape)}")
    real = real.double()
    q = _log_masses(log_q, grid).exp()
    within = across = torch.zeros((), dtype=torch.float64)
    for part in real.split(1024):
        within = within + _kernel(part, real, bandwidth).sum()
        k = [_kernel(part[:, [i]], axis[:, None], bandwidth) for i, axis in enumerate(grid.axes)]
        across = across + ((k[0] @ q).sum() if len(k) == 1 else ((k[0] @ q.view(grid.shape)) * k[1]).sum())
    n = len(real)  # k(x, x) = 1, and the U-statistic leaves the diagonal out
    return (within - n) / (n * (n - 1)) - 2 * across / n + (q * _smooth(q, grid, bandwidth)).sum()


def _integrals(energy: Energy, log_p: Energy | None, grid: Grid) -> list[float]:
    """Log Z and -E_q[E]; with p, its log mass, -E_p[E] and E_p[log p]."""
    log_q = -evaluate(energy, grid.points)
    values = []
    for log_f in [log_q] if log_p is None else [log_q, evaluate(log_p, grid.points)]:
        total = log_integral(log_f, grid)
        log_mass = log_f + grid.h.log() - total
        values += [total, _log_power_mean(log_mass, log_q, 0), _log_power_mean(log_mass, log_f, 0)]
    return [value.item() for value in values]


def _score(log_p: Tensor, log_q: Tensor, gamma: float, grid: Grid) -> Tensor:
    if not -1 < gamma < math.inf:
        raise ValueError(f"the gamma-score has a value for a finite gamma > -1 only, got {gamma}")
    log_mass, log_q = _log_masses(log_p, grid), _on(grid, log_q)
    log_norm = log_integral((gamma + 1) * log_q, grid) / (gamma + 1)
    expected = _log_power_mean(log_mass, log_q, gamma)
    if gamma < 0 and torch.isfinite(expected.detach()):
        # For gamma >= 0 it is at most p times a constant, and p is checked already.
        _uncut(torch.where(log_mass > -math.inf, log_mass + gamma * log_q, -math.inf).softmax(0), grid)
    return expected - log_norm


def _log_power_mean(log_mass: Tensor, log_f: Tensor, gamma: float) -> Tensor:
    """1/gamma log E[f^gamma] under cell masses that sum to 1; E[log f] at 0. Compare `losses.free_energy`."""
    support = log_mass > -math.inf
    log_mass, log_f = log_mass[support], log_f[support]
    base = (log_f.max() if gamma > 0 else log_f.min()).detach()
    # Returned here: below, a mass that underflows to 0 times an infinity would be NaN.
    if base == -math.inf:
        return base
    if gamma == 0:
        return (log_mass.exp() * log_f).sum()
    exponent = gamma * (log_f - base)
    mean = (log_mass.exp() * exponent.expm1()).sum()
    small, large = mean.clamp(min=-0.5).log1p(), torch.logsumexp(log_mass + exponent, 0)
    return base + torch.where(mean > -0.5, small, large) / gamma


def _log_masses(log_p: Tensor, grid: Grid) -> Tensor:
    """Log probabilities of the cells, which sum to 1: the remaining quadrature error is divided out."""
    total = log_integral(log_p, grid)
    if abs((mass := total.exp().item()) - 1) > 1e-3:  # more than the quadrature error of a usable grid
        raise UserError(f"the density integrates to {mass:.4g} on its grid, not to 1: normalise it, or refine the grid")
    return _on(grid, log_p) + grid.h.log() - total


def _uncut(mass: Tensor, grid: Grid) -> Tensor:
    """The masses of the cells, unchanged; a `UserError` if the box cuts some off."""
    cells = mass.detach().view(grid.shape)
    for i, (axis, low, high) in enumerate(zip(grid.axes, grid.box.low, grid.box.high, strict=True)):
        profile, width = cells if cells.ndim == 1 else cells.sum(1 - i), (high - low) / EDGE
        first, last = axis <= axis[0].clamp(min=low + width), axis >= axis[-1].clamp(max=high - width)
        for side, bound, away, edge in (("low", low, "down", first), ("high", high, "up", last)):
            if (held := float(profile[edge].sum())) > grid.box.cut:
                what = f"{held:.1e} of it lies along {side}[{i}] = {bound:g}"
                raise UserError(f"the box cuts off mass: {what}; move that {away}, or set cut=math.inf if x ends there")
    return mass


def _smooth(mass: Tensor, grid: Grid, bandwidth: float) -> Tensor:
    # The kernel is a product over the axes: two matrix products instead of a sum over pairs of cells.
    k = [_kernel(axis[:, None], axis[:, None], bandwidth) for axis in grid.axes]
    return k[0] @ mass if len(k) == 1 else (k[0] @ mass.view(grid.shape) @ k[1]).flatten()


def _kernel(x: Tensor, y: Tensor, bandwidth: float) -> Tensor:
    distance = torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")
    return distance.square_().mul_(-1 / (2 * bandwidth**2)).exp_()


def _in_float64(module: nn.Module, device: torch.device) -> Energy:
    tensors = dict(module.named_parameters()) | dict(module.named_buffers())
    state = {name: t.to(device, torch.float64 if t.is_floating_point() else None) for name, t in tensors.items()}

    def call(x: Tensor) -> Tensor:
        was_training = module.training
        # Evaluation mode, or spectral normalisation would move between one block and the next.
        module.eval()
        try:
            return functional_call(module, state, (x,))
        finally:
            module.train(was_training)

    return call


def _on(grid: Grid, values: Tensor) -> Tensor:
    count = math.prod(grid.shape)
    if values.shape != (count,):
        raise ValueError(f"values on this grid have shape {(count,)}, got {tuple(values.shape)}")
    return values.double()


def _axis(box: Box, i: int, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Edges, centres and weights of the cells of one axis: the midpoint rule in u, with weights dx/du."""
    low, high, core, jumps = box.low[i], box.high[i], box.core[i], box.jumps[i]
    if core is not None:
        low, high = math.asinh(low / core), math.asinh(high / core)
    step = (high - low) / count
    u = low + step / 2 * torch.arange(2 * count + 1, dtype=torch.float64)  # an edge, a centre, an edge, ...
    x, slope = u, torch.ones_like(u)
    if core is not None:
        x, slope = core * u.sinh(), core * u.cosh()
    elif jumps:
        # dx/du = 1 - cos t vanishes at the ends of each piece, and the leading errors with it (Sidi 1993).
        ends = torch.tensor([low, *jumps, high], dtype=torch.float64)
        piece = torch.searchsorted(ends, u).clamp(1, len(ends) - 1)
        scale = (ends[piece] - ends[piece - 1]) / (2 * math.pi)
        t = (u - ends[piece - 1]) / scale
        x, slope = u - scale * t.sin(), 1 - t.cos()
    return x[::2], x[1::2].contiguous(), step * slope[1::2]


def _cells(box: Box, n: int | tuple[int, ...]) -> tuple[int, ...]:
    cells = (n,) * len(box.low) if isinstance(n, int) else n
    if len(cells) != len(box.low) or min(cells) < 1:
        raise ValueError(f"cells per axis must be positive, one number for each of {len(box.low)} axes, got {n}")
    return cells
