"""Scoring rules as pure functions of energies.

`e_pos` are the energies of data, `e_neg` those of samples of the model, both of shape `(B,)`. Every
loss here has the gradient of its scoring rule; its value is a surrogate, because the logarithm of the
partition function is not available. Equation numbers are those of Yu, Song, Song, Ermon (2021),
"Pseudo-Spherical Contrastive Divergence", https://arxiv.org/abs/2111.00780.
"""

import math

import torch
from torch import Tensor

from pscd.errors import NotFinite


def contrastive_divergence(e_pos: Tensor, e_neg: Tensor) -> Tensor:
    """Maximum likelihood: E_p[E] - E_q[E].

    >>> contrastive_divergence(torch.tensor([0.0, 2.0]), torch.tensor([3.0])).item()
    -2.0
    """
    _check(e_pos=e_pos, e_neg=e_neg)
    # Both means are taken around one point, so that a common offset of 1e4 costs no precision.
    centre = e_pos.detach().mean()
    return (e_pos - centre).mean() - (e_neg - centre).mean()


def pseudo_spherical(e_pos: Tensor, e_neg: Tensor, gamma: float, *, drawn_from_r: bool = False) -> Tensor:
    """Negative gamma-score: -1/gamma log E_p[exp(-gamma E)] - E_r[E], r proportional to q^(gamma+1).

    The second expectation is the self-normalised importance estimate of Theorem 3: samples of q
    weighted by exp(-gamma E), the weights held constant; or, for samples `drawn_from_r`, their mean.
    `gamma = 0` is exactly `contrastive_divergence`, `gamma = 1` the spherical score, and
    `-1 <= gamma < 0` a bound on the likelihood with an entropy term (Lemma 2).

    >>> e_pos, e_neg = torch.tensor([0.0, 2.0]), torch.tensor([3.0, 3.0])
    >>> round(pseudo_spherical(e_pos, e_neg, gamma=1.0).item(), 4)
    -2.4338
    """
    check_gamma(gamma)
    _check(e_pos=e_pos, e_neg=e_neg)
    if gamma == 0:
        return contrastive_divergence(e_pos, e_neg)
    centre = e_pos.detach().mean()
    weights = importance_weights(e_neg.detach(), 0.0 if drawn_from_r else gamma)
    return free_energy(e_pos - centre, gamma) - (weights * (e_neg - centre)).sum()


def free_energy(e: Tensor, gamma: float) -> Tensor:
    """-1/gamma log mean exp(-gamma e): a soft minimum of the energies, their mean at gamma = 0.

    Its gradient is softmax(-gamma e): rows of high energy, the outliers, count little.
    """
    if gamma == 0:
        return e.mean()
    # With the largest exponent at 0, `expm1` keeps the digits that dividing by a tiny gamma needs, but
    # loses them where the mean is close to -1 (few rows carry all the weight); there `logsumexp` is exact.
    base = (e.min() if gamma > 0 else e.max()).detach()
    exponent = -gamma * (e - base)
    mean = torch.expm1(exponent).mean()
    small = torch.log1p(mean.clamp(min=-0.5))
    large = torch.logsumexp(exponent, 0) - math.log(len(e))
    return base - torch.where(mean > -0.5, small, large) / gamma


def importance_weights(e: Tensor, gamma: float) -> Tensor:
    """Self-normalised weights exp(-gamma e) / sum exp(-gamma e); they sum to one.

    >>> importance_weights(torch.zeros(4), gamma=1.0)
    tensor([0.2500, 0.2500, 0.2500, 0.2500])
    """
    check_gamma(gamma)
    return torch.softmax(-gamma * e, dim=0)


def effective_sample_fraction(weights: Tensor) -> Tensor:
    """(sum w)^2 / (N sum w^2): 1 when all rows count alike, 1/N when one row carries everything.

    >>> effective_sample_fraction(torch.tensor([0.5, 0.5, 0.0, 0.0])).item()
    0.5
    """
    return weights.sum() ** 2 / (len(weights) * weights.square().sum())


def check_gamma(gamma: float) -> None:
    """Refuse a gamma for which the score is not defined."""
    if not (math.isfinite(gamma) and gamma >= -1):
        raise ValueError(f"gamma must be a finite number >= -1, got {gamma}")


def _check(**energies: Tensor) -> None:
    for name, e in energies.items():
        if e.ndim != 1 or len(e) == 0:
            raise ValueError(f"{name} must hold one energy per row, shape (B,), got {tuple(e.shape)}")
        if torch.isnan(e.detach()).any():
            raise NotFinite(f"{name} contains NaN: the network or its input has overflowed")
