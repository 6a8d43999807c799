"""Distances between two sets of points, `f(real, fake)`."""

import torch
from torch import Tensor


def mmd(real: Tensor, fake: Tensor, *, bandwidth: float = 2**0.5, unbiased: bool = True, block: int = 4096) -> float:
    """Squared maximum mean discrepancy with k(x, y) = exp(-|x - y|^2 / (2 bandwidth^2)).

    The default kernel is exp(-|x - y|^2 / 4). Unbiased, the U-statistic: its mean is 0 for equal
    distributions, so it may be negative. Biased, the V-statistic: never negative, but above 0 by about
    (2 - mean k - mean k') / n even for equal distributions. Memory grows with `block`, not with the
    number of points.

    >>> x = torch.tensor([[0.0], [1.0]])
    >>> round(mmd(x, x, unbiased=False), 6)
    0.0
    """
    if real.shape[1:] != fake.shape[1:]:
        raise ValueError(f"real has rows of shape {tuple(real.shape[1:])}, fake {tuple(fake.shape[1:])}")
    if min(len(real), len(fake)) < 2:
        raise ValueError("MMD needs at least two points on each side")
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
