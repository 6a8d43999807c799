"""Unnormalised models on finite sample spaces: exact by enumeration, and localised to the states in the data.

On a finite space q(x) = exp(-E(x)) / Z is a softmax over all states, so everything in the paper has an exact value as
long as the states can be enumerated. For larger spaces Takenouchi and Kanamori have scores that need only the states
that occur in the data: no Z, and no samples of the model. See `localised_divergence`.

Functions take energies `e` at states, shape `(M,)`, and probabilities `p` of the same states, which sum to 1; gradients
with respect to a model's parameters are left to autograd.

- T. Takenouchi, T. Kanamori (2015), "Empirical Localization of Homogeneous Divergences on Discrete Sample
  Spaces", NeurIPS 28.
- T. Takenouchi, T. Kanamori (2017), "Statistical Inference with Unnormalized Discrete Models and Localized
  Homogeneous Divergences", Journal of Machine Learning Research 18 (56).
- H. Fujisawa, S. Eguchi (2008), "Robust parameter estimation with a small bias against heavy contamination",
  Journal of Multivariate Analysis 99: the gamma-divergence.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from pscd.errors import NotFinite
from pscd.losses import check_gamma
from pscd.types import Energy

BITS = (0.0, 1.0)
SPINS = (-1.0, 1.0)


# --- the space ---


def states(d: int, values: tuple[float, ...] = BITS, max_states: int = 2**22) -> Tensor:
    """All states of `d` variables, `(len(values)^d, d)` in float64, the last variable varying fastest.

    `max_states` limits the memory: 22 variables of two values need 0.7 GB.

    >>> states(2).tolist()
    [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]
    """
    if d < 1 or len(set(values)) < 2 or len(set(values)) != len(values):
        raise ValueError(f"a space needs at least one variable and two distinct values, got d = {d}, values {values}")
    if len(values) ** d > max_states:
        raise ValueError(f"{len(values)}^{d} states are too many to list (at most {max_states})")
    axis = torch.tensor(values, dtype=torch.float64)
    return torch.cartesian_prod(*[axis] * d).reshape(-1, d)


def empirical(x: Tensor) -> tuple[Tensor, Tensor]:
    """The distinct rows of data, `(m, d)`, and their frequencies, `(m,)` in float64.

    >>> empirical(torch.tensor([[1.0], [0.0], [1.0], [1.0]]))
    (tensor([[0.],
            [1.]]), tensor([0.2500, 0.7500], dtype=torch.float64))
    """
    if x.ndim != 2 or len(x) == 0:
        raise ValueError(f"data are rows of variables, (n, d), got shape {tuple(x.shape)}")
    distinct, counts = torch.unique(x, dim=0, return_counts=True)
    return distinct, counts.double() / len(x)


# --- exact quantities ---


def log_partition(e: Tensor) -> Tensor:
    """Log Z, the logarithm of the sum of exp(-E) over all states; `e` are their energies, `(M,)`."""
    return torch.logsumexp(-_energies(e), 0)


def log_probability(e: Tensor) -> Tensor:
    """Log q = -E - log Z at all states, `(M,)`; `e` are their energies."""
    return torch.log_softmax(-_energies(e), 0)


def kl(p: Tensor, e: Tensor) -> Tensor:
    """KL(p || q), with 0 log 0 = 0.

    >>> p = torch.tensor([0.75, 0.25], dtype=torch.float64)
    >>> round(kl(p, torch.zeros(2)).item(), 4)  # from uniform: log 2 less the entropy
    0.1308
    """
    p, log_q = _probabilities(p, e), log_probability(e)
    return (torch.xlogy(p, p) - torch.where(p > 0, p * log_q, 0.0)).sum()


def gamma_score(p: Tensor, e: Tensor, gamma: float) -> Tensor:
    """Expected gamma-score (Eq. 15): 1/gamma log E_p[q̄^gamma] - log ||q̄||_(gamma+1), q̄ = exp(-E); E_p[log q] at 0."""
    _check_score_gamma(gamma)
    p, e = _probabilities(p, e), _energies(e)
    log_norm = torch.logsumexp(-(gamma + 1) * e, 0) / (gamma + 1)
    observed = p > 0
    if gamma == 0:
        return -(p[observed] * e[observed]).sum() - log_norm
    return torch.logsumexp(p[observed].log() - gamma * e[observed], 0) / gamma - log_norm


def gamma_divergence(p: Tensor, e: Tensor, gamma: float) -> Tensor:
    """D(p, q) = S(p, p) - S(p, q) of the gamma-score (Eq. 9): at least 0, and 0 only at p = q.

    KL(p || q) at gamma = 0. `homogeneous_divergence` of log p and -E is the same where p > 0 everywhere.
    """
    _check_score_gamma(gamma)
    p = _probabilities(p, e)
    observed = p > 0
    own = gamma_score(p[observed], -p[observed].log(), gamma)
    return own - gamma_score(p, e, gamma)


def gamma_gradient(p: Tensor, e: Tensor, gamma: float) -> Tensor:
    """Gradient of the negative gamma-score with respect to the energies: a - r, a ∝ p q̄^gamma, r ∝ q̄^(gamma+1).

    With respect to a model's parameters it is E_a[grad E] - E_r[grad E] (Theorem 2): `e.backward(gradient)`.
    """
    check_gamma(gamma)
    p, e = _probabilities(p, e), _energies(e.detach())
    return (p.log() - gamma * e).softmax(0) - (-(gamma + 1) * e).softmax(0)


# --- the localised score ---


def homogeneous_divergence(log_f: Tensor, log_g: Tensor, gamma: float) -> Tensor:
    """The gamma-divergence of unnormalised f and g on the same states; scaling either of them changes nothing.

    1/gamma [1/(1+gamma) log sum f^(1+gamma) + gamma/(1+gamma) log sum g^(1+gamma) - log sum f g^gamma]

    It is 0 only if f and g are proportional. At gamma = 0 it is KL(f || g) of the normalised functions. Takenouchi and
    Kanamori leave the factor 1/gamma out.
    """
    if not 0 <= gamma < math.inf:
        raise ValueError(f"a homogeneous divergence needs a finite gamma >= 0, got {gamma}")
    # With a and b proportional to f^(1+gamma) and g^(1+gamma), it is -1/gamma log E_a[(b/a)^(gamma/(1+gamma))].
    log_a, log_b = (torch.log_softmax((1 + gamma) * v, 0) for v in (log_f, log_g))
    if gamma == 0:
        return (log_a.exp() * (log_a - log_b)).sum()
    return -torch.logsumexp((log_a + gamma * log_b) / (1 + gamma), 0) / gamma


def localised_divergence(
    e: Tensor, p: Tensor, gamma: float, *, alpha: float, alpha_prime: float, power: float | None = None
) -> Tensor:
    """Localised homogeneous divergence: a loss that needs the energies of the states in the data only.

    The divergence of f = (p^alpha q̄^(1-alpha))^power and g = (p^alpha' q̄^(1-alpha'))^power. At states that do not occur
    in the data p = 0, so f and g are 0 and the state drops out of all three sums: log Z is never needed. The loss is 0
    only if q̄ is proportional to p on the observed states, whatever q̄ is elsewhere.

    - `power = 1/(1+gamma)`, the default, is the family of Takenouchi and Kanamori: sums of p^a q̄^(1-a) with
      a = alpha, alpha' and (alpha + gamma alpha') / (1+gamma), as in alpha-divergences. Near its minimum it is a
      regression of log p on -E with weights p, as the likelihood is: equally efficient, and to first order equally
      sensitive to contamination.
    - `power = 1` with alpha = 1 and alpha' towards 0 is the gamma-divergence itself, with the norm summed over the
      observed states alone. The weights are p^(1+gamma): less efficient, and robust.

    For an energy linear in its parameters the loss is convex if alpha + gamma alpha' = 1 + gamma, since the sum that
    is subtracted is then free of q̄. `convex_exponents` gives such a pair.

    Args:
        e: energies of the distinct states in the data, `(m,)`.
        p: their frequencies, positive, with sum 1; see `empirical`.
        gamma: at least 0; 0 is the limit, KL(f || g) with f and g normalised.
        alpha: above 0. At 0 the sum would run over all states, and need the partition function again.
        alpha_prime: above 0 for the same reason, and different from alpha, for which f = g and the loss is always 0.
        power: above 0; 1/(1+gamma) by default.

    Returns:
        A scalar.

    Raises:
        ValueError: an exponent is out of range, or a frequency is 0.
    """
    if not (0 < alpha < math.inf and 0 < alpha_prime < math.inf):
        raise ValueError(
            f"alpha and alpha_prime must be positive, got {alpha} and {alpha_prime}: only then do states that are "
            "not in the data drop out of every sum"
        )
    if alpha == alpha_prime:
        raise ValueError(f"alpha and alpha_prime must differ: at {alpha} twice the divergence is 0 for every model")
    if power is not None and not 0 < power < math.inf:
        raise ValueError(f"power must be positive, got {power}")
    p, e = _probabilities(p, e), _energies(e)
    if not (p > 0).all():
        raise ValueError("give the states that occur in the data only: a frequency is 0")
    scale = 1 / (1 + gamma) if power is None else power
    log_p = p.log()
    log_f, log_g = (scale * (a * log_p - (1 - a) * e) for a in (alpha, alpha_prime))
    return homogeneous_divergence(log_f, log_g, gamma)


def convex_exponents(gamma: float) -> tuple[float, float]:
    """(alpha, alpha') = (1 + gamma/2, 1/2): positive, and alpha + gamma alpha' = 1 + gamma, so the loss is convex."""
    return 1 + gamma / 2, 0.5


# --- the model ---


class BoltzmannMachine(nn.Module):
    """E(x) = -b . x - x' W x / 2 with W symmetric and zero on its diagonal, all variables visible.

    W has a parameter for each pair i < j, `couplings`, in the order of `torch.triu_indices`. On {0, 1}^d and on
    {-1, 1}^d it is the same family of distributions, with other parameters. In float64, like the rest of this module.
    """

    pairs: Tensor

    def __init__(self, d: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(d, dtype=torch.float64))
        self.couplings = nn.Parameter(torch.zeros(d * (d - 1) // 2, dtype=torch.float64))
        self.register_buffer("pairs", torch.triu_indices(d, d, 1))

    @property
    def weights(self) -> Tensor:
        """The coupling matrix W, `(d, d)`."""
        d = len(self.bias)
        upper = self.couplings.new_zeros(d, d).index_put((self.pairs[0], self.pairs[1]), self.couplings)
        return upper + upper.T

    def forward(self, x: Tensor) -> Tensor:
        """Energies of states, `(B, d)` to `(B,)`."""
        x = x.to(self.bias)
        return -x @ self.bias - 0.5 * ((x @ self.weights) * x).sum(1)


def draw(e: Tensor, n: int, generator: torch.Generator | None = None) -> Tensor:
    """Exact draws of q among all states."""
    return torch.multinomial(log_probability(e.detach()).exp(), n, replacement=True, generator=generator)


def conditional(energy: Energy, x: Tensor, i: int, values: tuple[float, float] = BITS) -> Tensor:
    """q(x_i = values[1] | the other variables), for each row."""
    low, high = x.clone(), x.clone()
    low[:, i], high[:, i] = values
    return torch.sigmoid(energy(low) - energy(high))


@torch.no_grad()
def gibbs(
    energy: Energy,
    x: Tensor,
    n_sweeps: int,
    values: tuple[float, float] = BITS,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Gibbs sampling: in each sweep every variable in turn is drawn given the others."""
    x = x.clone()
    for _ in range(n_sweeps):
        for i in range(x.shape[1]):
            probability = conditional(energy, x, i, values)
            up = torch.rand(len(x), generator=generator, dtype=probability.dtype) < probability
            x[:, i] = torch.where(up, values[1], values[0]).to(x)
    return x


# --- fits ---


def minimise(
    energy: nn.Module, x: Tensor, loss: Callable[[Tensor], Tensor], *, max_steps: int = 1000, tolerance: float = 1e-8
) -> float:
    """Minimise `loss(energy(x))` over the parameters in place, by L-BFGS.

    Not every loss in this module is convex or has a minimum, so check the returned slope.
    """
    parameters = [p for p in energy.parameters() if p.requires_grad]
    optimiser = torch.optim.LBFGS(
        parameters,
        max_iter=max_steps,
        tolerance_grad=tolerance,
        tolerance_change=1e-14,
        history_size=30,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        optimiser.zero_grad()
        value = loss(energy(x))
        value.backward()
        return value

    optimiser.step(closure)
    closure()
    slopes = [p.grad.abs().max().item() for p in parameters if p.grad is not None]
    optimiser.zero_grad()
    return max(slopes)


def fit_exact(energy: nn.Module, x: Tensor, p: Tensor, gamma: float = 0.0, *, tolerance: float = 1e-8) -> float:
    """Maximise the exact gamma-score over the parameters in place.

    gamma = 0 is maximum likelihood, which is concave for a Boltzmann machine. Above 0 the score can have several
    maxima, and the result depends on the initial parameters of the model.
    """
    return minimise(energy, x, lambda e: -gamma_score(p, e, gamma), tolerance=tolerance)


def _energies(e: Tensor) -> Tensor:
    if e.ndim != 1 or len(e) == 0:
        raise ValueError(f"energies must be one number per state, shape (M,), got {tuple(e.shape)}")
    if not torch.isfinite(e.detach()).all():
        raise NotFinite("an energy is not finite")
    return e.double()


def _probabilities(p: Tensor, e: Tensor) -> Tensor:
    if p.shape != e.shape:
        raise ValueError(f"probabilities of shape {tuple(p.shape)} do not belong to energies of {tuple(e.shape)}")
    if not ((p >= 0).all() and abs(p.sum().item() - 1) <= 1e-6):
        raise ValueError(f"probabilities must not be negative and must sum to 1; their sum is {p.sum().item():.6g}")
    return p.double()


def _check_score_gamma(gamma: float) -> None:
    if not -1 < gamma < math.inf:
        raise ValueError(f"the gamma-score has a value for a finite gamma > -1 only, got {gamma}")
