"""Densities of tables that are not energy-based, to be compared with: Gaussian mixture, kernels, spline flow.

Each is `Rival().fit(x, seed=...)`, then `log_prob(x)` in the units of the data. Ties are spread over cells as in
`pscd.fit`, and columns have mean 0 and deviation 1 inside. Gaussian mixture and kernels are scikit-learn's, the flow is
zuko's (`pip install '.[flow]'`).
"""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
import torch
from torch import Tensor, nn

from pscd.coordinates import Coordinates
from pscd.data import Rows, as_rows
from pscd.errors import UserError
from pscd.files import needs
from pscd.mixtures import dequantise
from pscd.rng import Stream, generator, integer_seed, seeded
from studies.engine.streams import StudyStream

COMPONENTS = (1, 2, 4, 8, 16, 32)
ROWS_PER_COMPONENT = 10  # at least, and at least one for each column
RIDGES = (1e-6, 1e-3, 1e-2)  # added to the covariances of standardised columns
BANDWIDTHS = tuple(float(h) for h in np.geomspace(0.02, 2.0, 16))  # in deviations
HELD_OUT = 0.2  # share of the rows that choose a bandwidth, and when to stop a flow
BATCH, RATE, LOOK_EVERY = 256, 2e-3, 50
TRANSFORMS, WIDTH = 3, 64
BLOCK = 16_384  # rows at a time


class Density(Protocol):
    """What every rival can do."""

    def fit(self, x: Rows, *, seed: int = 0) -> Self:
        """Fit to rows `(n, d)`."""
        ...

    def log_prob(self, x: Rows) -> Tensor:
        """Log density of rows `(n, d)` in the units of the data, `(n,)` in float64."""
        ...


class _Standardised:
    """Rows on their way to a density of standardised columns, and log densities on their way back."""

    coordinates: Coordinates
    _log_prob: Callable[[Tensor], Tensor]

    def _enter(self, x: Rows, seed: int) -> Tensor:
        """Rows in float64, ties spread, columns standardised, in random order."""
        rows = dequantise(as_rows(x).double(), generator(seed, Stream.DEQUANTISE))
        self.coordinates = Coordinates.standard(rows)
        if (self.coordinates.scale == 0).any():
            raise UserError("a column is constant and has no density; leave it out")
        order = torch.randperm(len(rows), generator=generator(seed, StudyStream.BASELINE_ROWS))
        return self.coordinates.forward(rows[order], torch.float64)

    @torch.no_grad()
    def log_prob(self, x: Rows) -> Tensor:
        """Log density of rows `(n, d)` in the units of the data, `(n,)` in float64."""
        x = as_rows(x).double()
        z = self.coordinates.forward(x, torch.float64)
        inside = torch.cat([self._log_prob(part).double() for part in z.split(BLOCK)])
        return inside + self.coordinates.log_slope(x)


class GaussianMixtureDensity(_Standardised):
    """Gaussians with full covariances, their number chosen by the Bayesian information criterion (Schwarz 1978).

    On small tables a Gaussian may shrink onto a few rows, which the criterion likes and new rows do not; so what is
    added to the covariances is chosen too, by held-out rows.
    """

    components: int

    def fit(self, x: Rows, *, seed: int = 0) -> Self:
        """Fit to rows `(n, d)`, junk included; the same seed gives the same mixture."""
        z = self._enter(x, seed).numpy()
        n_held = max(1, int(HELD_OUT * len(z)))
        state = integer_seed(generator(seed, StudyStream.BASELINE_ROWS, 1))
        fits = [(ridge, _best_mixture(z[n_held:], ridge, state)) for ridge in RIDGES]
        ridge, found = max(fits, key=lambda pair: pair[1].score(z[:n_held]))
        best = _mixture(found.n_components, ridge, state).fit(z)
        self.components = best.n_components
        self._log_prob = lambda part: torch.from_numpy(best.score_samples(part.numpy()))
        return self


def _mixture(k: int, ridge: float, state: int) -> Any:
    from sklearn.mixture import GaussianMixture

    return GaussianMixture(k, reg_covar=ridge, random_state=state, max_iter=200)


def _best_mixture(z: np.ndarray, ridge: float, state: int) -> Any:
    """The mixture with the best criterion among numbers of components, until two in a row are no better."""
    best, best_score, worse = None, math.inf, 0
    for k in (k for k in COMPONENTS if k == 1 or len(z) >= k * max(ROWS_PER_COMPONENT, z.shape[1])):
        found = _mixture(k, ridge, state).fit(z)
        score = found.bic(z)
        if score < best_score:
            best, best_score, worse = found, score, 0
        elif (worse := worse + 1) == 2:
            break
    return best


class KernelDensity(_Standardised):
    """A Gaussian kernel around every row, one bandwidth for all, which held-out rows choose."""

    bandwidth: float

    def fit(self, x: Rows, *, seed: int = 0) -> Self:
        """Fit to rows `(n, d)`, junk included; the same seed gives the same bandwidth."""
        from sklearn.neighbors import KernelDensity as Kernels

        z = self._enter(x, seed).numpy()
        n_held = max(1, int(HELD_OUT * len(z)))
        held, train = z[:n_held], z[n_held:]
        self.bandwidth = max(BANDWIDTHS, key=lambda h: Kernels(bandwidth=h).fit(train).score(held))
        best = Kernels(bandwidth=self.bandwidth).fit(z)
        self._log_prob = lambda part: torch.from_numpy(best.score_samples(part.numpy()))
        return self


@dataclass
class FlowDensity(_Standardised):
    """A neural spline flow (Durkan et al. 2019) by maximum likelihood, or by a trimmed one (RobustRealNVP, 2022).

    It stops at the update that held-out rows like best, trimmed in the same way.

    Args:
        alpha: share of each batch, of the lowest densities, that does not count; 0 is maximum likelihood.
        steps: updates at most.
    """

    alpha: float = 0.0
    steps: int = 1000

    def __post_init__(self) -> None:
        if not 0 <= self.alpha < 1:
            raise UserError(f"alpha is a share between 0 and 1, got {self.alpha}")

    def fit(self, x: Rows, *, seed: int = 0) -> Self:
        """Fit to rows `(n, d)`; the same seed gives the same flow.

        Returns:
            Itself, fitted.

        Raises:
            UserError: zuko is not installed.
        """
        z = self._enter(x, seed).float()
        n_held = max(1, int(HELD_OUT * len(z)))
        held, train = z[:n_held], z[n_held:]
        flow = seeded(lambda: _spline_flow(z.shape[1]), seed)
        optimiser = torch.optim.Adam(flow.parameters(), lr=RATE)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, self.steps)
        rng = generator(seed, StudyStream.BASELINE_FLOW)
        best, best_score = copy.deepcopy(flow.state_dict()), -math.inf
        for step in range(self.steps):
            rows = train[torch.randint(len(train), (min(BATCH, len(train)),), generator=rng)]
            loss = -trimmed_mean(flow().log_prob(rows), self.alpha)
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(flow.parameters(), 5.0)
            optimiser.step()
            schedule.step()
            if (step + 1) % LOOK_EVERY == 0 or step + 1 == self.steps:
                with torch.no_grad():
                    score = float(trimmed_mean(flow().log_prob(held), self.alpha))
                if score > best_score:
                    best, best_score = copy.deepcopy(flow.state_dict()), score
        flow.load_state_dict(best)
        flow.requires_grad_(False).eval()
        self._log_prob = lambda part: flow().log_prob(part.float())
        return self


def trimmed_mean(log_prob: Tensor, alpha: float) -> Tensor:
    """Mean of log densities `(n,)` without the share `alpha` of the lowest.

    Returns:
        The mean, differentiable.

    >>> trimmed_mean(torch.tensor([1.0, -9.0, 3.0, 2.0]), alpha=0.25).item()
    2.0
    """
    left_out = math.floor(alpha * len(log_prob) + 1e-9)
    return log_prob.topk(len(log_prob) - left_out).values.mean()


def _spline_flow(columns: int) -> Any:
    """Couplings where there are two columns or more: both directions in one pass, whatever the dimension."""
    flows = needs("zuko", "flow", "FlowDensity").flows
    coupling = {"passes": 2} if columns > 1 else {}
    return flows.NSF(columns, transforms=TRANSFORMS, hidden_features=[WIDTH, WIDTH], **coupling)
