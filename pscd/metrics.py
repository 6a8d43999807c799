"""How far two sets of points, `f(real, fake)`, or of energies, `f(inside, outside)`, are apart."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from pscd.progress import progress_bar

# --- kernel distance ---


def mmd(real: Tensor, fake: Tensor, *, bandwidth: float = 2**0.5, unbiased: bool = True, block: int = 4096) -> float:
    """Squared maximum mean discrepancy with k(x, y) = exp(-|x - y|^2 / (2 bandwidth^2)).

    Memory grows with `block`, not with the number of points.

    Args:
        real: `(n, *shape)`, at least two points.
        fake: `(m, *shape)`, at least two points.
        bandwidth: of the kernel; the default makes it exp(-|x - y|^2 / 4).
        unbiased: the U-statistic, which has mean 0 for equal distributions and so may be negative. Otherwise the
            V-statistic: never negative, but about (2 - mean k - mean k') / n above 0 even for equal distributions.
        block: points at a time.

    Returns:
        MMD^2.

    Raises:
        ValueError: the points have different shapes, or one side has fewer than two.

    >>> x = torch.tensor([[0.0], [1.0]])
    >>> round(mmd(x, x, unbiased=False), 6)
    0.0
    """
    _check_rows(real, fake, "MMD", least=2)
    # Centring, in float64, keeps |x|^2 + |y|^2 - 2 x.y from losing digits to a common offset.
    centre = real.flatten(1).double().mean(0)
    real, fake = ((x.flatten(1) - centre).float() for x in (real, fake))
    within = sum(_mean_kernel_within(x, bandwidth, unbiased, block) for x in (real, fake))
    across = _kernel_sum(real, fake, bandwidth, block) / (len(real) * len(fake))
    return within - 2 * across


def _mean_kernel_within(x: Tensor, bandwidth: float, unbiased: bool, block: int) -> float:
    total = _kernel_sum(x, x, bandwidth, block)
    n = len(x)
    # k(x, x) = 1: the U-statistic leaves the diagonal out.
    return (total - n) / (n * (n - 1)) if unbiased else total / n**2


def _kernel_sum(x: Tensor, y: Tensor, bandwidth: float, block: int) -> float:
    factor = -1 / (2 * bandwidth**2)
    y_norm = y.square().sum(1)
    total = torch.zeros((), dtype=torch.float64, device=x.device)
    for part in x.split(block):
        for other, other_norm in zip(y.split(block), y_norm.split(block), strict=True):
            squared = torch.addmm(other_norm[None, :], part, other.T, alpha=-2).add_(part.square().sum(1)[:, None])
            total += squared.clamp_(min=0).mul_(factor).exp_().sum(dtype=torch.float64)
    return float(total)


def _check_rows(real: Tensor, fake: Tensor, what: str, *, least: int) -> None:
    if real.shape[1:] != fake.shape[1:]:
        raise ValueError(f"real has rows of shape {tuple(real.shape[1:])}, fake {tuple(fake.shape[1:])}")
    if min(len(real), len(fake)) < least:
        number = {2: "two"}.get(least, str(least))
        raise ValueError(f"{what} needs at least {number} points on each side")


# --- Fréchet distance ---


def frechet_distance(real: Tensor, fake: Tensor) -> float:
    """Squared Fréchet (Wasserstein-2) distance between Gaussians fitted to the two sets.

    |m1 - m2|^2 + tr(C1) + tr(C2) - 2 tr((C1 C2)^(1/2)); on Inception features it is the FID. With roots C = R^T R the
    last trace is the sum of the singular values of R1 R2^T, which is accurate even for covariances without full rank.
    In float64, covariances with n - 1.

    Args:
        real: `(n, *shape)`, at least two points.
        fake: `(m, *shape)`, at least two points.

    Returns:
        The distance, not negative.

    >>> x = torch.tensor([[0.0], [2.0]])
    >>> round(frechet_distance(x, 3 * x + 1), 6)  # means 1 and 4, deviations sqrt(2) and 3 sqrt(2)
    17.0
    """
    _check_rows(real, fake, "a Frechet distance", least=2)
    real, fake = real.flatten(1), fake.flatten(1)
    # Centred, or far from the origin the squared mean would swamp the variances.
    centre = _finite_mean(real)
    (mean_1, root_1, trace_1), (mean_2, root_2, trace_2) = (_moments(x, centre) for x in (real, fake))
    both = float(torch.linalg.svdvals(root_1 @ root_2.T).sum())
    return max(float((mean_1 - mean_2).square().sum()) + trace_1 + trace_2 - 2 * both, 0.0)


def _finite_mean(x: Tensor, block: int = 4096) -> Tensor:
    """The mean in float64, without a copy of all rows; a `ValueError` if it does not exist."""
    mean = torch.stack([part.double().sum(0) for part in x.split(block)]).sum(0) / len(x)
    if not torch.isfinite(mean).all():
        raise ValueError("the points are not all finite")
    return mean


def _moments(x: Tensor, centre: Tensor, block: int = 4096) -> tuple[Tensor, Tensor, float]:
    """The mean (less `centre`), a root R of the covariance R^T R, and the covariance's trace."""
    n, d = x.shape
    mean = _finite_mean(x) - centre
    if n <= d:  # the centred rows are a root themselves, with fewer rows than columns
        root = (x.double() - centre - mean) / (n - 1) ** 0.5
        return mean, root, float(root.square().sum())
    covariance = torch.zeros(d, d, dtype=torch.float64, device=x.device)
    for part in x.split(block):
        rows = part.double() - centre - mean
        covariance.addmm_(rows.T, rows, alpha=1 / (n - 1))
    values, vectors = torch.linalg.eigh(covariance)
    return mean, values.clamp(min=0).sqrt()[:, None] * vectors.T, float(covariance.trace())


# --- precision, recall, density, coverage ---


class PRDC(NamedTuple):
    """How many fakes look real, and how much of the real data they cover; each is 1 for a set against itself.

    Args:
        precision: share of fakes inside a ball around a real point.
        recall: share of real points inside a ball around a fake.
        density: mean number of real balls that contain a fake, divided by k; robust to a few outliers.
        coverage: share of real points whose ball contains a fake.
    """

    precision: float
    recall: float
    density: float
    coverage: float


def prdc(real: Tensor, fake: Tensor, k: int = 5, *, block: int = 2048, progress: bool = False) -> PRDC:
    """Precision and recall (Kynkäänniemi et al. 2019), density and coverage (Naeem et al. 2020).

    Open balls; the radius is the distance to the k-th nearest other point of the same set; duplicates are inside
    even at radius 0. Memory beyond the points themselves grows with `block`, not with their number.

    Squared distances come from a matrix product in float64. Where rounding could decide on which side of a radius a
    point lies, they are recomputed by subtraction, so that a set without duplicates has density 1 against itself.

    Args:
        real: `(n, *shape)`, more than `k` points.
        fake: `(m, *shape)`, more than `k` points.
        k: number of neighbours.
        block: points at a time.
        progress: show a progress line.

    Returns:
        The four shares.

    Raises:
        ValueError: `k` is below 1, there are too few points, or they are not finite.
    """
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    _check_rows(real, fake, f"k = {k}", least=k + 1)
    real, fake = real.flatten(1), fake.flatten(1)
    centre = (_finite_mean(real) + _finite_mean(fake)) / 2
    n_real, n_fake = (math.ceil(len(x) / block) for x in (real, fake))
    total = n_real * (n_real + 1) // 2 + n_fake * (n_fake + 1) // 2 + n_real * n_fake
    with progress_bar(total, show=progress, unit="block") as bar:
        radius_real, radius_fake = (_radii(x, centre, k, block, bar) for x in (real, fake))
        is_real = torch.zeros(len(fake), dtype=torch.bool, device=real.device)
        is_shown, is_covered = (torch.zeros(len(real), dtype=torch.bool, device=real.device) for _ in range(2))
        n_balls = 0
        for i, rows in _blocks(real, centre, block):
            for j, columns in _blocks(fake, centre, block):
                squared, error = _squared_distances(rows, columns)
                in_real = _inside(squared, error, radius_real[i, None], real[i], fake[j])
                is_shown[i] |= _inside(squared, error, radius_fake[None, j], real[i], fake[j]).any(1)
                is_covered[i] |= in_real.any(1)
                is_real[j] |= in_real.any(0)
                n_balls += int(in_real.sum())
                bar.update()
    shares = (float(flags.double().mean()) for flags in (is_real, is_shown, is_covered))
    precision, recall, coverage = shares
    return PRDC(precision, recall, n_balls / (k * len(fake)), coverage)


def _blocks(x: Tensor, centre: Tensor, block: int) -> Iterator[tuple[slice, Tensor]]:
    """Slices, and the rows in them in float64 about the centre."""
    for start in range(0, len(x), block):
        part = slice(start, min(start + block, len(x)))
        yield part, x[part].double() - centre


def _squared_distances(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """All |x - y|^2, and a bound on their rounding error, which grows with the number of columns."""
    x_norm, y_norm = x.square().sum(1)[:, None], y.square().sum(1)[None, :]
    squared = torch.addmm(x_norm + y_norm, x, y.T, alpha=-2)
    error = (x.shape[1] + 8) * torch.finfo(torch.float64).eps * (x_norm.sqrt() + y_norm.sqrt()).square_()
    return squared, error


def _by_subtraction(x: Tensor, i: Tensor, y: Tensor, j: Tensor, pairs: int = 1024) -> Tensor:
    """|x[i] - y[j]|^2, `pairs` of rows at a time, to full precision: exactly 0 for duplicates."""
    # Filled in place: small results between large temporaries would fragment the memory.
    squared = torch.empty(len(i), dtype=torch.float64, device=x.device)
    for part, a, b in zip(squared.split(pairs), i.split(pairs), j.split(pairs), strict=True):
        torch.sum((x[a].double() - y[b].double()).square_(), 1, out=part)
    return squared


def _radii(x: Tensor, centre: Tensor, k: int, block: int, bar: "tqdm[None]") -> Tensor:
    """Squared distance of every row to its k-th nearest other row."""
    n = len(x)
    near = torch.full((n, k), math.inf, dtype=torch.float64, device=x.device)
    index = torch.zeros(n, k, dtype=torch.int64, device=x.device)

    def merge(rows: slice, columns: slice, squared: Tensor) -> None:
        values, at = squared.topk(min(k, squared.shape[1]), dim=1, largest=False)
        values, at = torch.cat([near[rows], values], 1), torch.cat([index[rows], at + columns.start], 1)
        near[rows], order = values.topk(k, dim=1, largest=False)
        index[rows] = at.gather(1, order)

    for i, rows in _blocks(x, centre, block):
        for j, columns in _blocks(x[: i.stop], centre, block):  # half of the symmetric matrix
            squared, _ = _squared_distances(rows, columns)
            if i == j:
                squared.fill_diagonal_(math.inf)
            merge(i, j, squared)
            if i != j:
                merge(j, i, squared.T)
            bar.update()
    itself = torch.arange(n, device=x.device)
    exact = [_by_subtraction(x, itself, x, index[:, column]) for column in range(k)]
    return torch.stack(exact, 1).amax(1)


def _inside(squared: Tensor, error: Tensor, radius: Tensor, x: Tensor, y: Tensor, tie: float = 1e-10) -> Tensor:
    """Which pairs of rows of x and y are closer than a radius (all squared); `tie` is a relative rounding error."""
    inside = squared < radius
    in_doubt = (squared - radius).abs_() <= error + tie * radius
    row, column = in_doubt.nonzero(as_tuple=True)
    if len(row) > 0:
        exact = _by_subtraction(x, row, y, column)
        limit = radius.expand_as(squared)[row, column]
        inside[row, column] = (exact < (1 - tie) * limit) | (exact == 0)
    return inside


# --- separating inside from outside by the energy ---


class AUPR(NamedTuple):
    """Average precision, and its value for a random ranking.

    Args:
        value: average precision.
        share: share of positives, which a random ranking reaches.
    """

    value: float
    share: float


def auroc(inside: Tensor, outside: Tensor) -> float:
    """Area under the ROC curve: the probability that a row from outside has more energy than one from inside.

    >>> auroc(torch.tensor([0.0, 1.0]), torch.tensor([1.0, 2.0]))  # a tie has weight 1/2
    0.875
    """
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(*_labelled(inside, outside)))


def aupr(inside: Tensor, outside: Tensor) -> AUPR:
    """Average precision with the outside as the positive class.

    Unlike the AUROC it depends on the share of positives, so compare values at equal shares only.
    """
    from sklearn.metrics import average_precision_score

    label, score = _labelled(inside, outside)
    return AUPR(float(average_precision_score(label, score)), outside.numel() / len(label))


def fpr_at_95(inside: Tensor, outside: Tensor) -> float:
    """False positive rate at the highest threshold that detects 95 % of the outside.

    >>> fpr_at_95(torch.arange(100.0), torch.arange(100.0) + 50)
    0.45
    """
    _labelled(inside, outside)
    n_detected = -(-95 * outside.numel() // 100)  # rounded up, in integers
    threshold = outside.flatten().sort(descending=True).values[n_detected - 1]
    return float((inside >= threshold).double().mean())


def _labelled(inside: Tensor, outside: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Labels, 1 for the outside, and the ranks of the energies, which infinite ones have too."""
    from scipy.stats import rankdata

    score = torch.cat([inside.flatten(), outside.flatten()]).detach().cpu()
    if inside.numel() == 0 or outside.numel() == 0:
        raise ValueError("scores are needed on both sides")
    if score.isnan().any():
        raise ValueError(f"{int(score.isnan().sum())} of {len(score)} scores are not numbers (NaN)")
    label = np.repeat([0, 1], [inside.numel(), outside.numel()])
    return label, rankdata(score.numpy(), method="dense")
