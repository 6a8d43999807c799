"""A model on a bounded space for which every constant of the paper's theorems is known.

E(x) = theta . phi(x) on [-3, 3] with bounded features phi: |grad E| <= L = max |phi|, |E| <= K =
|theta|_max L, and the loss is M-smooth with M = (1 + gamma) L^2, because its Hessian is
(gamma + 1) Cov_r(phi) - gamma Cov_a(phi), with a proportional to p q^gamma and r to q^(gamma + 1).
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from pscd import exact

GRID = exact.grid(exact.Box((-3.0,), (3.0,), cut=math.inf), 600)
GAMMAS = (-0.5, 0.1, 0.5, 1.0, 2.0)
RADIUS = 0.5  # of the ball that theta stays in
FEATURE_BOUND = 2.0  # L


class Linear(nn.Module):
    """theta . phi(x), phi = sqrt(2) (sin x, cos 2x), so that |phi| <= 2."""

    def __init__(self, theta: Sequence[float] | Tensor = (0.0, 0.0)) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.as_tensor(theta, dtype=torch.float64).clone())

    def forward(self, x: Tensor) -> Tensor:
        """`(B, 1)` to `(B,)`."""
        return features(x) @ self.theta


def features(x: Tensor) -> Tensor:
    """`(B, 1)` to `(B, 2)`, of norm at most `FEATURE_BOUND`."""
    return torch.cat([x.sin(), (2 * x).cos()], 1) * FEATURE_BOUND / math.sqrt(2)


def data_density() -> Tensor:
    """A log density that the model does not contain: two bumps on a floor."""
    x = GRID.points[:, 0]
    unnormalised = 0.2 + torch.exp(-((x + 1.2) ** 2)) + 0.7 * torch.exp(-((x - 1.5) ** 2) / 0.5)
    return (unnormalised / (unnormalised * GRID.h).sum()).log()


def smoothness(gamma: float) -> float:
    """M: the largest curvature that the loss can have."""
    return (1 + max(gamma, 0.0)) * FEATURE_BOUND**2


def draw(log_p: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """Draw from a density on the grid."""
    return exact.draw(lambda x: -log_p, GRID, n, generator)


def gradient(log_p: Tensor, theta: Tensor, gamma: float) -> Tensor:
    """The exact gradient of the loss, E_a[phi] - E_r[phi] (Theorem 2)."""
    phi = features(GRID.points)
    e = phi @ theta
    attract = (log_p - gamma * e + GRID.h.log()).softmax(0)
    repel = (GRID.h.log() - (gamma + 1) * e).softmax(0)
    return (attract - repel) @ phi


def optimum(log_p: Tensor, gamma: float) -> Tensor:
    """The minimum of the exact loss, by gradient descent without noise; it lies inside the ball."""
    theta = torch.zeros(2, dtype=torch.float64)
    for _ in range(5000):
        step = gradient(log_p, theta, gamma) / smoothness(gamma)
        theta = theta - step
        if step.norm() < 1e-12:
            break
    assert theta.norm() < RADIUS, "the ball must hold the minimum"
    return theta
