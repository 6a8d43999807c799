"""Scoring rules as pure functions of energies, of density ratios, or of the energy's gradient.

`e_pos` are the energies of data, `e_neg` those of samples of the model, both of shape `(B,)`. Every loss here has the
gradient of its scoring rule; its value is a surrogate, because the logarithm of the partition function is not
available. Equation numbers are those of Yu, Song, Song, Ermon (2021), "Pseudo-Spherical Contrastive Divergence",
https://arxiv.org/abs/2111.00780.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import softplus

from pscd.errors import NotFinite, UserError

MAX_LOG_RATIO = 5.0  # log density ratio up to which an f-divergence is exact, see `bounded`; slopes grow as its exp


def contrastive_divergence(e_pos: Tensor, e_neg: Tensor) -> Tensor:
    """Contrastive divergence, whose gradient is that of maximum likelihood (Eq. 4): E_p[E] - E_q[E].

    Args:
        e_pos: energies of data, `(B,)`.
        e_neg: energies of samples of the model, `(B',)`.

    Returns:
        A scalar, differentiable with respect to both.

    >>> contrastive_divergence(torch.tensor([0.0, 2.0]), torch.tensor([3.0])).item()
    -2.0
    """
    _check(e_pos=e_pos, e_neg=e_neg)
    # Subtract a common centre first: an offset of 1e4 would cost float32 its precision.
    centre = e_pos.detach().mean()
    return (e_pos - centre).mean() - (e_neg - centre).mean()


def pseudo_spherical(
    e_pos: Tensor, e_neg: Tensor, gamma: float, *, drawn_from_r: bool = False, log_ratio: Tensor | None = None
) -> Tensor:
    """Negative gamma-score (Eq. 17): -1/gamma log E_p[exp(-gamma E)] - E_r[E], r proportional to q^(gamma+1).

    The second term has the gradient of log ||exp(-E)||_(gamma+1). By default it is the self-normalised importance
    estimate of Theorem 3 (Eq. 19): samples of q, weighted by exp(-gamma E), with no gradient through the weights.
    `gamma = 0` is exactly `contrastive_divergence`, `gamma = 1` the logarithm of the spherical score, and
    `-1 <= gamma < 0` a bound on the likelihood with an entropy term.

    Args:
        e_pos: energies of data, `(B,)`.
        e_neg: energies of samples, `(B',)`.
        gamma: robustness, at least -1.
        drawn_from_r: the samples come from r instead of q and need no weights.
        log_ratio: they come from another density g, and this is log(q / g), see `importance_weights`.

    Returns:
        A scalar, differentiable with respect to both energies.

    Raises:
        ValueError: gamma is below -1 or not finite, or the energies are not `(B,)`.
        NotFinite: an energy is NaN.

    >>> e_pos, e_neg = torch.tensor([0.0, 2.0]), torch.tensor([3.0, 3.0])
    >>> round(pseudo_spherical(e_pos, e_neg, gamma=1.0).item(), 4)
    -2.4338
    """
    check_gamma(gamma)
    _check(e_pos=e_pos, e_neg=e_neg)
    if gamma == 0 and log_ratio is None:
        return contrastive_divergence(e_pos, e_neg)
    centre = e_pos.detach().mean()
    weights = importance_weights(e_neg.detach(), 0.0 if drawn_from_r else gamma, log_ratio)
    return free_energy(e_pos - centre, gamma) - (weights * (e_neg - centre)).sum()


def weighted_negatives(e_pos: Tensor, e_neg: Tensor, gamma: float) -> Tensor:
    """An ablation of PS-CD with weights on the samples alone: E_p[E] - E_r[E], r proportional to q^(gamma+1).

    >>> weighted_negatives(torch.tensor([0.0, 2.0]), torch.tensor([3.0, 3.0]), gamma=1.0).item()
    -2.0
    """
    _check(e_pos=e_pos, e_neg=e_neg)
    weights = importance_weights(e_neg.detach(), gamma)
    return e_pos.mean() - (weights * e_neg).sum()


def trimmed(e_pos: Tensor, e_neg: Tensor, alpha: float) -> Tensor:
    """Contrastive divergence that ignores the share `alpha` of the data with the highest energies.

    A trimmed likelihood, batch by batch. The number of ignored rows is rounded down.

    >>> trimmed(torch.tensor([0.0, 2.0, 9.0, 1.0]), torch.tensor([3.0]), alpha=0.25).item()
    -2.0
    """
    if not 0 <= alpha < 1:
        raise ValueError(f"alpha must lie in [0, 1), got {alpha}")
    _check(e_pos=e_pos, e_neg=e_neg)
    # In floating point, a product such as 0.3 * 10 may be slightly below the integer that it equals.
    n_ignored = math.floor(alpha * len(e_pos) + 1e-9)
    return contrastive_divergence(e_pos.topk(len(e_pos) - n_ignored, largest=False).values, e_neg)


def density_power(e_pos: Tensor, e_neg: Tensor, beta: float, *, log_z: float | None = None) -> Tensor:
    """Density power divergence, -1/beta E_p[q^beta] + 1/(1+beta) integral of q^(1+beta) (Basu et al. 1998).

    With w = q^beta held constant, its gradient is E_p[w grad E] - E_q[w grad E] + (E_q[w] - E_p[w]) E_q[grad E].
    The partition function enters only through w = exp(-beta (E + log Z)), as a factor Z^-beta of the entire gradient.
    Without `log_z` the factor is chosen such that w has mean 1 over the samples, which changes the length of the
    gradient but not its direction. `beta = 0` is `contrastive_divergence`.

    >>> density_power(torch.tensor([0.0, 2.0]), torch.tensor([3.0]), beta=0.0).item()
    -2.0
    """
    if not 0 <= beta < math.inf:
        raise ValueError(f"beta must be a finite number >= 0, got {beta}")
    _check(e_pos=e_pos, e_neg=e_neg)
    base = free_energy(e_neg.detach(), beta) if log_z is None else -log_z
    w_pos, w_neg = torch.exp(-beta * (e_pos.detach() - base)), torch.exp(-beta * (e_neg.detach() - base))
    # A constant added to all energies cancels; subtracting the samples' mean first saves precision.
    centre = e_neg.detach().mean()
    e_pos, e_neg = e_pos - centre, e_neg - centre
    return (w_pos * e_pos).mean() - (w_neg * e_neg).mean() + (w_neg.mean() - w_pos.mean()) * e_neg.mean()


@dataclass(frozen=True)
class Divergence:
    """An f-divergence D_f(p || q) = E_q[f(p / q)], given by two functions of the log density ratio t.

    f is convex with f(1) = 0.

    Args:
        slope: f'(exp t).
        conjugate: f*(f'(exp t)), which is exp(t) f'(exp t) - f(exp t).
    """

    slope: Callable[[Tensor], Tensor]
    conjugate: Callable[[Tensor], Tensor]


def bounded(
    slope: Callable[[Tensor], Tensor], conjugate: Callable[[Tensor], Tensor], *, low: float, high: float
) -> Divergence:
    """A divergence whose f is modified beyond log ratios of +-`MAX_LOG_RATIO`, so that its slopes do not explode.

    Beyond them, the faster-growing of the two functions continues as its tangent. The other follows from convexity
    (the derivative of `conjugate` is exp(t) times that of `slope`), so that the optimal critic is still p / q. A
    critic that is far off still has a gradient, which it would not have if the ratio were clamped. `low` is the
    derivative of `slope` at -MAX_LOG_RATIO, `high` that of `conjugate` at MAX_LOG_RATIO.
    """
    edge = math.exp(-MAX_LOG_RATIO)

    def new_slope(t: Tensor) -> Tensor:
        below, above = (t + MAX_LOG_RATIO).clamp(max=0), edge - torch.exp(-t.clamp(min=MAX_LOG_RATIO))
        return slope(t.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)) + low * below + high * above

    def new_conjugate(t: Tensor) -> Tensor:
        below, above = torch.exp(t.clamp(max=-MAX_LOG_RATIO)) - edge, (t - MAX_LOG_RATIO).clamp(min=0)
        return conjugate(t.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)) + low * below + high * above

    return Divergence(new_slope, new_conjugate)


# By the name that `FEBM` and `NoiseContrastive` take.
DIVERGENCES: dict[str, Divergence] = {
    "kl": bounded(lambda t: 1 + t, torch.exp, low=1.0, high=math.exp(MAX_LOG_RATIO)),
    "reverse-kl": bounded(lambda t: -torch.exp(-t), lambda t: t - 1, low=math.exp(MAX_LOG_RATIO), high=1.0),
    "hellinger": bounded(
        lambda t: 1 - torch.exp(-t / 2),
        lambda t: torch.exp(t / 2) - 1,
        low=0.5 * math.exp(MAX_LOG_RATIO / 2),
        high=0.5 * math.exp(MAX_LOG_RATIO / 2),
    ),
    "js": Divergence(lambda t: math.log(2) - softplus(-t), lambda t: softplus(t) - math.log(2)),
}


def mixed(f: Divergence, g: Divergence, share: float) -> Divergence:
    """The divergence of share f + (1 - share) g; slope and conjugate are linear in f."""
    if f is g or share == 1:
        return f
    return Divergence(
        lambda t: share * f.slope(t) + (1 - share) * g.slope(t),
        lambda t: share * f.conjugate(t) + (1 - share) * g.conjugate(t),
    )


def variational_bound(log_ratio_pos: Tensor, log_ratio_neg: Tensor, f: Divergence, *, weight: float = 1.0) -> Tensor:
    """E_p[f'(u)] - weight E_q[f*(f'(u))], u = exp(log_ratio): at most D_f(p || q), with equality at u = p / q."""
    _check(log_ratio_pos=log_ratio_pos, log_ratio_neg=log_ratio_neg)
    return f.slope(log_ratio_pos).mean() - weight * f.conjugate(log_ratio_neg).mean()


def f_ebm(e_pos: Tensor, e_neg: Tensor, c_pos: Tensor, c_neg: Tensor, f: Divergence) -> Tensor:
    """Both players of the f-EBM game in one loss (Yu, Song, Song, Ermon 2020, "Training Deep Energy-Based Models ...").

    `c_pos` and `c_neg` are the outputs of the critic.

    The value of the game is V = E_p[f'(u)] - E_q[f*(f'(u))] with log u = C - log q = E + log Z + C. The critic C
    maximises V and absorbs the constant log Z; at its optimum u = p / q and V = D_f(p || q). The energy minimises V. It
    enters both through u and through the distribution of the samples, so its gradient is that of V at fixed samples
    plus Cov_q(F, grad E), F = f*(f'(u)). With S' and F' the derivatives of f'(u) and F with respect to log u, this is

        E_p[S' grad E] - E_p[S'] E_q[grad E] + Cov_q(F - F', grad E).

    For KL, S' = 1 and F = F', which gives contrastive divergence whatever the critic. For the energy, log u is clamped
    to +-`MAX_LOG_RATIO`: beyond, the samples have left the region that the critic was trained on.

    The authors leave log Z out of u. Then a constant added to E, which q does not depend on, lowers V until the critic
    catches up, and the energy drifts along it; here the gradient of log Z, -E_q[grad E], prevents that.
    """
    _check(e_pos=e_pos, e_neg=e_neg, c_pos=c_pos, c_neg=c_neg)
    within = MAX_LOG_RATIO * (1 - 1e-6)  # between the kinks, where derivatives are unique
    t_pos, t_neg = ((e + c).detach().clamp(-within, within) for e, c in ((e_pos, c_pos), (e_neg, c_neg)))
    _, slopes = _with_derivative(f.slope, t_pos)
    value, derivative = _with_derivative(f.conjugate, t_neg)
    excess = value - derivative
    descending = (slopes * e_pos).mean() - slopes.mean() * e_neg.mean() + ((excess - excess.mean()) * e_neg).mean()
    return descending - variational_bound(e_pos.detach() + c_pos, e_neg.detach() + c_neg, f)


def _with_derivative(function: Callable[[Tensor], Tensor], t: Tensor) -> tuple[Tensor, Tensor]:
    """The function's values and its derivative, elementwise."""
    with torch.enable_grad():
        t = t.requires_grad_(True)
        value = function(t)
        (derivative,) = torch.autograd.grad(value.sum(), t)
    return value.detach(), derivative


def noise_contrastive(log_ratio_pos: Tensor, log_ratio_noise: Tensor, *, ratio: float, f: Divergence) -> Tensor:
    """Noise-contrastive estimation: classify data against noise by u = q / (ratio * noise), from log q - log noise.

    With the Jensen-Shannon f it is logistic regression (Gutmann and Hyvärinen 2010), E_p[log(1 + 1/u)] +
    ratio E_n[log(1 + u)] up to a constant; other f give other Bregman divergences (Gutmann and Hirayama 2011). The
    minimum is q = p whatever the noise, log Z included.
    """
    shift = math.log(ratio)
    return -variational_bound(log_ratio_pos - shift, log_ratio_noise - shift, f, weight=ratio)


def input_gradient(energy: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """`x` as a leaf of the graph, its energies `(B,)` and their gradient `(B, d)`, both differentiable."""
    with torch.enable_grad():
        x = x.detach().requires_grad_(True)
        e = energy(x)
        (gradient,) = torch.autograd.grad(e.sum(), x, create_graph=True)
    _check(e_pos=e)
    return x, e, gradient.flatten(1)


def score_matching(gradient: Tensor, x: Tensor) -> Tensor:
    """Score matching (Hyvärinen 2005): |grad E|^2 / 2 - trace of the Hessian of E, a loss `(B,)` for each row.

    `gradient` and `x` come from `input_gradient`. The mean over p is half the squared distance between the scores of p
    and q, up to a constant.
    """
    columns = range(gradient.shape[1])
    trace = sum((_derivative(gradient[:, i], x)[:, i] for i in columns), torch.zeros_like(gradient[:, 0]))
    return 0.5 * gradient.square().sum(1) - trace


def sliced_score_matching(gradient: Tensor, x: Tensor, directions: Tensor) -> Tensor:
    """Sliced score matching, variance-reduced (Song et al. 2019): |grad E|^2 / 2 - mean over v of v' Hessian v."""
    curvature = torch.stack([(_derivative(gradient * v, x) * v).sum(1) for v in directions])
    return 0.5 * gradient.square().sum(1) - curvature.mean(0)


def denoising_score_matching(gradient: Tensor, z: Tensor, sigma: float) -> Tensor:
    """Denoising score matching (Vincent 2011): |sigma grad E(x + sigma z) - z|^2 / 2.

    Its mean is sigma^2 / 2 times the squared distance between the scores of q and of the noisy data, up to a constant.
    """
    return 0.5 * (sigma * gradient - z.flatten(1)).square().sum(1)


def squares(
    e_pos: Tensor, e_neg: Tensor, gamma: float = 0.0, *, drawn_from_r: bool = False, log_ratio: Tensor | None = None
) -> Tensor:
    """Mean squared energies of both phases, each row weighted as in the gamma-score.

    With equal weights the term would pull the energy of rows that the score ignores down to that of the others, and
    undo its robustness.

    >>> squares(torch.tensor([1.0, 3.0]), torch.tensor([0.0, 2.0])).item()
    7.0
    """
    pos = importance_weights(e_pos.detach(), gamma)
    neg = importance_weights(e_neg.detach(), 0.0 if drawn_from_r else gamma, log_ratio)
    return (pos * e_pos.square()).sum() + (neg * e_neg.square()).sum()


def energy_spread(e: Tensor, target_ess: float = 0.75) -> Tensor:
    """The spread of energies: the temperature s at which the weights exp(-e / s) have an ESS of `target_ess`.

    At 3/4 it is 1 for the energies of a Gaussian in two dimensions under itself. It scales with the energies. High
    energies hardly affect it: up to a quarter of the rows may be arbitrary.

    >>> e = -torch.log1p(-torch.linspace(0, 0.99999, 10_001))  # quantiles of the exponential distribution
    >>> round(energy_spread(e).item(), 2), round(energy_spread(100 * e).item())
    (1.0, 100)
    """
    e = e.detach().sort().values
    e = e - e[0]
    # The ESS grows with the temperature, so one pass over a grid of temperatures brackets the root.
    unit = e[(3 * len(e)) // 4].clamp(min=torch.finfo(e.dtype).tiny)
    log_t = torch.linspace(-7.0, 7.0, 141, device=e.device, dtype=e.dtype)
    weights = torch.exp(-(e / unit) / log_t.exp()[:, None])
    ess = weights.sum(1).square() / (len(e) * weights.square().sum(1))
    upper = torch.searchsorted(ess, torch.full_like(ess[:1], target_ess)).clamp(1, len(ess) - 1)
    lower = upper - 1
    share = ((target_ess - ess[lower]) / (ess[upper] - ess[lower]).clamp(min=1e-9)).clamp(0, 1)
    return (unit * torch.lerp(log_t[lower], log_t[upper], share).exp()).squeeze()


def free_energy(e: Tensor, gamma: float) -> Tensor:
    """-1/gamma log mean exp(-gamma e): a soft minimum of the energies, their mean at gamma = 0.

    Its gradient is softmax(-gamma e), so that outliers, rows of high energy, have little weight.
    """
    if gamma == 0:
        return e.mean()
    # With the largest exponent at 0, `expm1` keeps the digits that division by a tiny gamma needs. Where its mean
    # is close to -1 (few rows carry all the weight) it loses them, and `logsumexp` is accurate.
    base = (e.min() if gamma > 0 else e.max()).detach()
    exponent = -gamma * (e - base)
    mean = torch.expm1(exponent).mean()
    # Compute one of the two only: a small operation costs as much as a row through the network.
    log_mean = torch.log1p(mean) if mean > -0.5 else torch.logsumexp(exponent, 0) - math.log(len(e))
    return base - log_mean / gamma


def importance_weights(e: Tensor, gamma: float, log_ratio: Tensor | None = None) -> Tensor:
    """Self-normalised weights exp(-gamma e) / sum exp(-gamma e), as in Eq. 19; they turn draws of q into draws of r.

    Args:
        e: energies, `(B,)`.
        gamma: at least -1.
        log_ratio: where the rows are draws of a density g instead of q, log(q / g) at each of them, `(B,)`, up to a
            constant: the weights are then exp(-gamma e) q / g.

    Returns:
        `(B,)`, summing to one.

    Raises:
        ValueError: gamma is below -1 or not finite.

    >>> importance_weights(torch.zeros(4), gamma=1.0)
    tensor([0.2500, 0.2500, 0.2500, 0.2500])
    """
    check_gamma(gamma)
    exponent = -gamma * e
    return torch.softmax(exponent if log_ratio is None else exponent + log_ratio, dim=0)


def effective_sample_fraction(weights: Tensor) -> Tensor:
    """Effective sample size as a fraction, (sum w)^2 / (N sum w^2).

    Args:
        weights: `(N,)`, non-negative; they need not sum to one.

    Returns:
        A scalar: 1 for equal weights, 1/N if one row has all the weight.

    >>> effective_sample_fraction(torch.tensor([0.5, 0.5, 0.0, 0.0])).item()
    0.5
    """
    return weights.sum() ** 2 / (len(weights) * weights.square().sum())


def check_gamma(gamma: float) -> None:
    """Refuse a gamma for which the score is not defined."""
    if not (math.isfinite(gamma) and gamma >= -1):
        raise ValueError(f"gamma must be a finite number >= -1, got {gamma}")


def _derivative(values: Tensor, x: Tensor) -> Tensor:
    """Gradient of the values' sum with respect to x, `(B, d)`."""
    (gradient,) = torch.autograd.grad(values.sum(), x, create_graph=True, allow_unused=True)
    if gradient is None:
        raise UserError("score matching needs an energy with second derivatives: SiLU or softplus, not ReLU")
    return gradient.flatten(1)


def _check(**energies: Tensor) -> None:
    for name, e in energies.items():
        if e.ndim != 1 or len(e) == 0:
            raise ValueError(f"{name} must hold one energy per row, shape (B,), got {tuple(e.shape)}")
        if torch.isnan(e.detach()).any():
            raise NotFinite(f"{name} contains NaN: the network or its input has overflowed")
