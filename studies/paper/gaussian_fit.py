"""One Gaussian on the line, fitted exactly and from samples: what the experiments on the line share."""

import math
from collections.abc import Callable

import torch
from scipy.optimize import minimize
from torch import Tensor

from pscd import exact
from pscd.config import ChainSettings, OptimizerSettings, RowSettings, TrainConfig
from pscd.data.toys import GaussianMixture1d
from pscd.energies import Quadratic
from pscd.objectives import Objective, PseudoSpherical
from pscd.sampling import Mala
from pscd.training.fit import fit
from studies.engine import Settings

GAMMAS = (-0.5, 0.0, 0.1, 0.5, 1.0, 2.0)
HALF_WIDTH = 60.0  # below gamma = 0 the integrands have long tails
GRID = exact.grid(exact.Box((-HALF_WIDTH,), (HALF_WIDTH,)), 8000)


def exact_optimum(p: GaussianMixture1d, gamma: float, start: tuple[float, float]) -> tuple[float, float]:
    """(mean, sd) of the Gaussian that minimises D_gamma(p, q), by descent from `start` on exact integrals."""
    log_p = p.log_prob(GRID.points)
    # Below gamma = 0, E_p[q^gamma] is infinite for Gaussians that are too narrow.
    narrowest = max(0.05, 1.2 * math.sqrt(max(0.0, -gamma) * max(p.variances)))
    return best_gaussian(lambda energy, _: -exact.gamma_score(log_p, energy, gamma, GRID), start, narrowest)


def best_gaussian(
    loss: Callable[[Quadratic, Tensor], Tensor], start: tuple[float, float], narrowest: float = 0.05
) -> tuple[float, float]:
    """(mean, sd) of the Gaussian with the lowest loss, by L-BFGS from `start`."""

    def loss_and_gradient(theta: list[float]) -> tuple[float, list[float]]:
        energy = Quadratic(theta[0], math.exp(theta[1])).double()
        other = torch.tensor(theta[2], dtype=torch.float64, requires_grad=True)
        value = loss(energy, other)
        gradient = torch.autograd.grad(value, [energy.mu, energy.log_sigma, other], allow_unused=True)
        return float(value.detach()), [0.0 if g is None else float(g) for g in gradient]

    first = [start[0], math.log(start[1]), 0.0]
    # Bounds keep a line search away from Gaussians that the box would cut off.
    bounds = [(-4.0, 4.0), (math.log(narrowest), math.log(4.0)), (-10.0, 10.0)]
    found = minimize(loss_and_gradient, first, jac=True, method="L-BFGS-B", bounds=bounds, tol=1e-14)
    return float(found.x[0]), math.exp(float(found.x[1]))


def training_settings(quick: bool) -> Settings:
    """What all trained Gaussians share, as plain values.

    A constant rate with a long average of the weights averages the noise over many batches; under a falling rate the
    last hundred batches would decide. No restarts: a chain has not forgotten its broad start after a few steps, and 5 %
    of them make the fitted deviations up to 1 % too small.
    """
    if quick:
        size = {"n_data": 5_000, "steps": 40, "batch_size": 128, "lr": 0.03, "ema": 0.9}
    else:
        size = {"n_data": 2_000_000, "steps": 2500, "batch_size": 4096, "lr": 0.01, "ema": 0.998}
    return {**size, "schedule": "constant", "restart": 0.0}


def train_gaussian(
    x: Tensor, objective: Objective, start: tuple[float, float], settings: Settings
) -> tuple[float, float]:
    """Train a Gaussian on samples with an objective, as any other energy: chains, weights, Adam."""
    energy = fit(x, config=gaussian_config(objective, settings), energy=Quadratic(*start)).network
    assert isinstance(energy, Quadratic)
    return float(energy.mu), float(energy.sigma)


def at_once(gamma: float) -> PseudoSpherical:
    """PS-CD without warm-up: where the start is among the data already, there is nothing to warm up to."""
    return PseudoSpherical(gamma=gamma, warmup=0.0)


def gaussian_config(objective: Objective, settings: Settings) -> TrainConfig:
    """How a Gaussian is trained, whatever the objective."""
    return TrainConfig(
        objective=objective,
        sampler=Mala(n_steps=4),
        updates=settings["steps"],
        batch_size=settings["batch_size"],
        seed=settings["seed"],
        chains=ChainSettings(restart=settings["restart"], jump_components=4),
        optimizer=OptimizerSettings(lr=settings["lr"], schedule=settings["schedule"], ema=settings["ema"]),
        rows=RowSettings(standardise="none"),
    )


def in_column(row: Callable[[Settings], str], column: str) -> Callable[[Settings], tuple[str, str]]:
    """A key for `mean_rows`: the row that the settings name, in this column."""
    return lambda settings: (row(settings), column)
