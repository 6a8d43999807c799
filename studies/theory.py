"""The paper's bounds as functions: samples for a gradient, step sizes, when to stop, how far off.

Theorem and equation numbers are those of Yu, Song, Song, Ermon (2021). Common assumptions: |E| <= K (`energy_bound`)
and |grad E| <= L (`gradient_bound`) everywhere. Neither the gradient nor its estimator depends on a constant added to
E, so K may be half the range of E. The paper derives its bounds for gamma > 0; the weights exp(-gamma E) lie in
[exp(-|gamma| K), exp(|gamma| K)] for either sign, so |gamma| stands here wherever gamma does there.
"""

import math

import torch
from torch import Tensor


def required_samples(epsilon: float, delta: float, gamma: float, energy_bound: float, gradient_bound: float) -> int:
    """Theorem 4 (Eq. 32): samples of p, and of q, for a gradient error of at most `epsilon`.

    N >= 32 L^2 exp(8 gamma K) (1 + 4 log(2 / delta)) / epsilon^2. The error is at most 4 L for any N.

    Args:
        epsilon: the error allowed.
        delta: the probability of a larger one.
        gamma: of the score.
        energy_bound: K, a bound on |E|.
        gradient_bound: L, a bound on |grad E|.

    Returns:
        N.

    Raises:
        ValueError: an argument is out of range, or gamma K is so large that the bound is void.

    >>> required_samples(0.1, 0.05, gamma=1.0, energy_bound=0.5, gradient_bound=1.0)
    2752711
    """
    _check_positive(epsilon=epsilon)
    return math.ceil(_variance(delta, gamma, energy_bound, gradient_bound) / epsilon**2)


def error_bound(n: int, delta: float, gamma: float, energy_bound: float, gradient_bound: float) -> float:
    """Theorem 4 solved for epsilon: the gradient error that `n` samples guarantee.

    Args:
        n: samples of p, and of q.
        delta: the probability of a larger error.
        gamma: of the score.
        energy_bound: K, a bound on |E|.
        gradient_bound: L, a bound on |grad E|.

    Returns:
        Epsilon.
    """
    _check_positive(n=n)
    return math.sqrt(_variance(delta, gamma, energy_bound, gradient_bound) / n)


def samples_per_step(
    gradient_norm: float,
    n_steps: int,
    alpha: float,
    delta: float,
    gamma: float,
    energy_bound: float,
    gradient_bound: float,
) -> int:
    """Condition of Theorem 5 (Eq. 36): samples for a relative gradient error `alpha` at each of `n_steps` steps.

    N_t >= 32 L^2 exp(8 gamma K) (1 + 4 log(2 T / delta)) / (alpha |g_t|)^2, Theorem 4 with epsilon = alpha |g_t| and
    delta / T. It grows without limit towards a stationary point. The convex theorems need it with alpha = 1 / sqrt(T),
    the strongly convex one with alpha = J / (2 T).

    Args:
        gradient_norm: |g_t|, the norm of the exact gradient.
        n_steps: T.
        alpha: relative error, between 0 and 1.
        delta: the probability that any of the steps misses it.
        gamma: of the score.
        energy_bound: K, a bound on |E|.
        gradient_bound: L, a bound on |grad E|.

    Returns:
        N_t.
    """
    _check_alpha(alpha)
    _check_steps(n_steps)
    _check_probability(delta)
    _check_positive(gradient_norm=gradient_norm)
    return required_samples(alpha * gradient_norm, delta / n_steps, gamma, energy_bound, gradient_bound)


def constant_steps(n_steps: int, alpha: float, smoothness: float) -> Tensor:
    """Corollary 1 (Eq. 40): eta_t = min{(1 - alpha) / M, 1 / sqrt(T)}.

    Args:
        n_steps: T.
        alpha: relative error of the gradient, between 0 and 1.
        smoothness: M, the Lipschitz constant of the loss's gradient.

    Returns:
        Step sizes, `(T,)`.
    """
    t = _times(n_steps)
    return _capped(torch.full_like(t, 1 / math.sqrt(n_steps)), alpha, smoothness)


def increasing_steps(n_steps: int, alpha: float, smoothness: float) -> Tensor:
    """After Theorem 6: eta_t = min{(1 - alpha) / M, sqrt(t) / T}, with the same rate O(1 / sqrt(T)).

    Args:
        n_steps: T.
        alpha: relative error of the gradient, between 0 and 1.
        smoothness: M, the Lipschitz constant of the loss's gradient.

    Returns:
        Step sizes, `(T,)`.
    """
    return _capped(_times(n_steps).sqrt() / n_steps, alpha, smoothness)


def decreasing_steps(n_steps: int, alpha: float, smoothness: float) -> Tensor:
    """After Theorem 6: eta_t = min{(1 - alpha) / M, (t T)^(-1/4)}, with the same rate O(1 / sqrt(T)).

    Args:
        n_steps: T.
        alpha: relative error of the gradient, between 0 and 1.
        smoothness: M, the Lipschitz constant of the loss's gradient.

    Returns:
        Step sizes, `(T,)`.
    """
    return _capped((_times(n_steps) * n_steps) ** -0.25, alpha, smoothness)


def strongly_convex_steps(n_steps: int, convexity: float) -> Tensor:
    """Theorem 7 (Eq. 43): eta_t = 1 / ((J - J / (2 T)) t).

    Args:
        n_steps: T.
        convexity: J, the constant of strong convexity.

    Returns:
        Step sizes, `(T,)`.
    """
    _check_positive(convexity=convexity)
    times = _times(n_steps)  # refuses 0, by which the next line would divide
    return 1 / (convexity * (1 - 1 / (2 * n_steps)) * times)


def convex_steps(n_steps: int) -> Tensor:
    """Theorem 8: eta_t = 1 / sqrt(t) for t = 1 ... `n_steps`."""
    return _times(n_steps).rsqrt()


def stopping_distribution(steps: Tensor, alpha: float, smoothness: float) -> Tensor:
    """Theorem 5 (Eq. 35): p_Z(t) proportional to 2 (1 - alpha) eta_t - M eta_t^2.

    Args:
        steps: step sizes eta, `(T,)`, below 2 (1 - alpha) / M.
        alpha: relative error of the gradient, between 0 and 1.
        smoothness: M, the Lipschitz constant of the loss's gradient.

    Returns:
        Probabilities, `(T,)`.

    Raises:
        ValueError: a step size is out of range.
    """
    weights = _progress(steps, alpha, smoothness)
    return weights / weights.sum()


def randomised_stop(steps: Tensor, alpha: float, smoothness: float, generator: torch.Generator | None = None) -> int:
    """Algorithm 2: draw the iteration Z whose parameters are the result.

    theta_1 is the start, so theta_Z has seen Z - 1 updates.

    Args:
        steps: step sizes eta, `(T,)`, below 2 (1 - alpha) / M.
        alpha: relative error of the gradient, between 0 and 1.
        smoothness: M, the Lipschitz constant of the loss's gradient.
        generator: source of randomness; torch's global one by default.

    Returns:
        Z, counted from 1.
    """
    p = stopping_distribution(steps, alpha, smoothness)
    return int(torch.multinomial(p, 1, generator=generator)) + 1


def nonconvex_bound(
    steps: Tensor,
    alpha: float,
    smoothness: float,
    initial_gap: float,
    energy_bound: float,
    gradient_bound: float,
    gamma: float,
) -> float:
    """Theorem 5 (Eq. 37): bound on E|grad L(theta_Z)|^2, Z drawn from `stopping_distribution`.

    (2 gap + 12 alpha M L^2 exp(4 gamma K) sum eta^2) / sum(2 (1 - alpha) eta - M eta^2), gap = L(theta_1) - L*.

    Args:
        steps: step sizes eta, `(T,)`, below 2 (1 - alpha) / M.
        alpha: relative error of the gradient, between 0 and 1.
        smoothness: M, the Lipschitz constant of the loss's gradient.
        initial_gap: L(theta_1) - L*, not negative.
        energy_bound: K, a bound on |E|.
        gradient_bound: L, a bound on |grad E|.
        gamma: of the score.

    Returns:
        The bound.
    """
    _check_gap(initial_gap)
    noise = 12 * alpha * smoothness * _squared_bound(energy_bound, gradient_bound, gamma) / 4
    total = float(_progress(steps, alpha, smoothness).sum())
    return (2 * initial_gap + noise * float(steps.double().square().sum())) / total


def strongly_convex_bound(
    n_steps: int, convexity: float, energy_bound: float, gradient_bound: float, gamma: float
) -> float:
    """Theorem 7 (Eq. 45): bound on |theta_T - theta*|^2 for `strongly_convex_steps`.

    (4 L^2 exp(4 gamma K) / T) ((2 + J/T)^2 + J^2 (2 - 1/T)) / (J^2 (2 - 1/T)^2). The paper omits the square of the
    distance; without it the claim fails at T = 1, for a start close to the optimum.

    Args:
        n_steps: T.
        convexity: J, the constant of strong convexity.
        energy_bound: K, a bound on |E|.
        gradient_bound: L, a bound on |grad E|.
        gamma: of the score.

    Returns:
        The bound.
    """
    _check_steps(n_steps)
    _check_positive(convexity=convexity)
    j, shrink = convexity, 2 - 1 / n_steps
    factor = ((2 + j / n_steps) ** 2 + j**2 * shrink) / (j * shrink) ** 2
    return _squared_bound(energy_bound, gradient_bound, gamma) / n_steps * factor


def convex_bound(n_steps: int, diameter: float, energy_bound: float, gradient_bound: float, gamma: float) -> float:
    """Theorem 8: bound on L(mean of theta_t) - L* for `convex_steps`.

    (D^2 + 2 L^2 exp(4 gamma K) (1 + (1 + 1/sqrt(T))^2 sqrt(1 + 1/T))) / sqrt(T).

    Args:
        n_steps: T.
        diameter: D, of the set of parameters.
        energy_bound: K, a bound on |E|.
        gradient_bound: L, a bound on |grad E|.
        gamma: of the score.

    Returns:
        The bound.
    """
    _check_steps(n_steps)
    _check_positive(diameter=diameter)
    root = math.sqrt(n_steps)
    spread = 1 + (1 + 1 / root) ** 2 * math.sqrt(1 + 1 / n_steps)
    return (diameter**2 + _squared_bound(energy_bound, gradient_bound, gamma) / 2 * spread) / root


def variational_norm(log_q_bar: Tensor, log_r: Tensor, gamma: float, cell: float | Tensor) -> Tensor:
    """Second proof of Theorem 2 (Eq. 21): 1/(gamma+1) (E_r[log q̄^(gamma+1)] - E_r[log r]) <= log ||q̄||_(gamma+1).

    With equality only at r proportional to q̄^(gamma+1).

    Args:
        log_q_bar: -E at the points of a grid, `(M,)`.
        log_r: log of any normalised density there, `(M,)`.
        gamma: above -1.
        cell: volume of a cell, or of each (`Grid.h`).

    Returns:
        The left-hand side, a scalar.
    """
    _check_above_minus_one(gamma)
    mass = log_r.exp() * cell
    inside = mass > 0  # 0 log 0 = 0
    return (mass[inside] * ((gamma + 1) * log_q_bar - log_r)[inside]).sum() / (gamma + 1)


def lemma2_bound(expected_log_q: float, entropy: float, gamma: float) -> float:
    """Lemma 2: E_p[log q] + gamma / (gamma+1) H_(gamma+1)(q), H the Rényi entropy of order gamma + 1.

    The gamma-score is at most this for -1 < gamma < 0 and, by the same inequality, at least this for gamma > 0. So a
    negative gamma penalises entropy of the model, and a positive one rewards it.

    Args:
        expected_log_q: E_p[log q].
        entropy: the Rényi entropy of q.
        gamma: above -1.

    Returns:
        The bound.
    """
    _check_above_minus_one(gamma)
    return expected_log_q + gamma / (gamma + 1) * entropy


def _variance(delta: float, gamma: float, energy_bound: float, gradient_bound: float) -> float:
    """32 L^2 exp(8 gamma K) (1 + 4 log(2 / delta)): N epsilon^2 of Theorem 4."""
    _check_probability(delta)
    _check_positive(gradient_bound=gradient_bound)
    return 32 * gradient_bound**2 * _growth(8, gamma, energy_bound) * (1 + 4 * math.log(2 / delta))


def _squared_bound(energy_bound: float, gradient_bound: float, gamma: float) -> float:
    """The square of the paper's |grad L| <= 2 L exp(2 gamma K); loose, since both terms of Theorem 2 average grad E."""
    _check_positive(gradient_bound=gradient_bound)
    return 4 * gradient_bound**2 * _growth(4, gamma, energy_bound)


def _growth(factor: float, gamma: float, energy_bound: float) -> float:
    if not (math.isfinite(gamma) and math.isfinite(energy_bound) and energy_bound >= 0):
        raise ValueError(f"gamma must be finite and energy_bound not negative, got {gamma} and {energy_bound}")
    exponent = factor * abs(gamma) * energy_bound
    if exponent > 600:
        raise ValueError(
            f"gamma K = {abs(gamma) * energy_bound:g} puts exp({exponent:g}) in the bound: it says nothing"
        )
    return math.exp(exponent)


def _progress(steps: Tensor, alpha: float, smoothness: float) -> Tensor:
    _check_alpha(alpha)
    _check_positive(smoothness=smoothness)
    if steps.ndim != 1 or len(steps) == 0:
        raise ValueError(f"steps must be one step size per iteration, shape (T,), got {tuple(steps.shape)}")
    steps, limit = steps.double(), 2 * (1 - alpha) / smoothness
    if not bool(((steps > 0) & (steps < limit)).all()):
        raise ValueError(f"Theorem 5 needs every step size in (0, {limit:g}), that is below 2 (1 - alpha) / M")
    return 2 * (1 - alpha) * steps - smoothness * steps.square()


def _capped(steps: Tensor, alpha: float, smoothness: float) -> Tensor:
    _check_alpha(alpha)
    _check_positive(smoothness=smoothness)
    return steps.clamp(max=(1 - alpha) / smoothness)


def _times(n_steps: int) -> Tensor:
    _check_steps(n_steps)
    return torch.arange(1, n_steps + 1, dtype=torch.float64)


def _check_steps(n_steps: int) -> None:
    if n_steps < 1:
        raise ValueError(f"the number of steps must be at least 1, got {n_steps}")


def _check_alpha(alpha: float) -> None:
    if not 0 < alpha < 1:
        raise ValueError(f"alpha, the relative error of the gradient, must lie between 0 and 1, got {alpha}")


def _check_probability(delta: float) -> None:
    if not 0 < delta < 1:
        raise ValueError(f"delta, the probability of failure, must lie between 0 and 1, got {delta}")


def _check_positive(**values: float) -> None:
    for name, value in values.items():
        if not 0 < value < math.inf:
            raise ValueError(f"{name} must be positive and finite, got {value}")


def _check_gap(initial_gap: float) -> None:
    if not initial_gap >= 0:
        raise ValueError(f"initial_gap = L(theta_1) - L* cannot be negative, got {initial_gap}")


def _check_above_minus_one(gamma: float) -> None:
    if not -1 < gamma < math.inf:
        raise ValueError(f"gamma must be a finite number > -1, got {gamma}")
