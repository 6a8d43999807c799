"""The paper's identities and inequalities, over random densities, by quadrature."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from pscd import exact
from pscd.data import TOYS_2D
from pscd.rng import generator
from studies import theory
from studies.engine import Result, Settings
from studies.engine.streams import StudyStream
from studies.paper.bounded_model import GAMMAS, GRID, Linear, data_density, optimum


def lemma_runs(quick: bool, seeds: int) -> list[Settings]:
    """Each lemma over many random densities."""
    tries = 5 if quick else 500
    return [{"check": name, "tries": tries} for name in LEMMAS]


def _random_log_density(generator: torch.Generator) -> Tensor:
    """A smooth random density on the box."""
    x = GRID.points[:, 0]
    waves = torch.arange(1, 6, dtype=torch.float64)
    amplitude = torch.randn(5, 2, generator=generator, dtype=torch.float64) / waves[:, None].sqrt()
    phase = waves[:, None] * x * math.pi / 3
    log_f = (amplitude[:, :1] * phase.sin() + amplitude[:, 1:] * phase.cos()).sum(0)
    return log_f - exact.log_integral(log_f, GRID)


def _variational(settings: Settings) -> Result:
    """Second proof of Theorem 2: the bound at r* is the norm, and no other r exceeds it."""
    gap_at_optimum, smallest_gap = 0.0, math.inf
    for i in range(settings["tries"]):
        rng = generator(i, StudyStream.LEMMA_DENSITIES)
        log_q, log_r = _random_log_density(rng) + 1.7, _random_log_density(rng)
        for gamma in GAMMAS:
            norm = float(exact.log_integral((gamma + 1) * log_q, GRID)) / (gamma + 1)
            log_best = (gamma + 1) * (log_q - norm)
            at_best = float(theory.variational_norm(log_q, log_best, gamma, GRID.h))
            gap_at_optimum = max(gap_at_optimum, abs(norm - at_best))
            smallest_gap = min(smallest_gap, norm - float(theory.variational_norm(log_q, log_r, gamma, GRID.h)))
    return {"gap_at_optimum": gap_at_optimum, "smallest_gap": smallest_gap, "holds": smallest_gap > gap_at_optimum}


def _limit(settings: Settings) -> Result:
    """Lemma 1: D_gamma tends to KL, and its gradient to that of the likelihood, linearly in gamma."""
    log_p, model = data_density(), Linear((0.4, -0.3))
    kl = float(exact.kl(log_p, exact.log_density(model, GRID).detach(), GRID))
    likelihood = exact.gamma_gradient(log_p, model, 0.0, GRID)["theta"]
    ratios = []
    for gamma in (-1e-2, -1e-4, 1e-4, 1e-2):
        value = float(exact.gamma_divergence(log_p, model, gamma, GRID).detach())
        gradient = exact.gamma_gradient(log_p, model, gamma, GRID)["theta"]
        ratios.append(max(abs(value - kl), float((gradient - likelihood).norm())) / abs(gamma))
    return {"largest_slope": max(ratios), "holds": max(ratios) < 10 * min(ratios) and max(ratios) < 1}


def _lemma2(settings: Settings) -> Result:
    """Lemma 2: S_gamma(p, q) <= E_p[log q] + gamma / (gamma + 1) H_(gamma+1)(q) for -1 < gamma < 0."""
    smallest = math.inf
    for i in range(settings["tries"]):
        rng = generator(i, StudyStream.LEMMA_SCORES)
        log_p, log_q = _random_log_density(rng), _random_log_density(rng)
        expected = float(((log_p.exp() * log_q) * GRID.h).sum())
        for gamma in (-0.99, -0.75, -0.5, -0.25, -0.01):
            score = float(exact.gamma_score(log_p, _negative(log_q), gamma, GRID))
            entropy = float(exact.renyi_entropy(log_q, gamma + 1, GRID))
            smallest = min(smallest, theory.lemma2_bound(expected, entropy, gamma) - score)
    return {"smallest_gap": smallest, "holds": smallest >= -1e-12}


def _proper(settings: Settings) -> Result:
    """Propriety: within a family that contains p, the exact minimum is at p."""
    truth = torch.tensor([0.3, -0.2], dtype=torch.float64)
    log_p = exact.log_density(Linear(truth), GRID).detach()
    farthest = max(float((optimum(log_p, gamma) - truth).norm()) for gamma in GAMMAS)
    smallest = min(
        float(
            exact.gamma_divergence(
                log_p, _negative(_random_log_density(generator(i, StudyStream.LEMMA_DIVERGENCES))), gamma, GRID
            )
        )
        for i in range(settings["tries"])
        for gamma in GAMMAS
    )
    return {"distance": farthest, "smallest_divergence": smallest, "holds": farthest < 1e-6 and smallest > 0}


def grid_runs(quick: bool = False) -> list[Settings]:
    """The measuring instrument itself, on every toy of the plane whose density is known; on the first if `quick`."""
    known = [name for name, toy in TOYS_2D.items() if toy.log_density is not None]
    return [{"check": "quadrature", "set": name} for name in (known[:1] if quick else known)]


def check_grid(settings: Settings) -> Result:
    """The grid on which doubling the cells of an axis changes log Z and the entropy by less than 1e-6."""
    toy = TOYS_2D[settings["set"]]
    log_p = toy.log_density
    assert log_p is not None
    _, report = exact.converged_grid(lambda x: -log_p(x), toy.quadrature_box)
    return {
        "cells": " x ".join(map(str, report.shape)),
        "change": report.change,
        "log_partition": report.log_partition,
        "holds": report.change < 1e-6 and abs(report.log_partition) < 1e-6,
    }


def _negative(log_q: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda x: -log_q


LEMMAS: dict[str, Callable[[Settings], Result]] = {
    "variational form (Theorem 2)": _variational,
    "limit gamma to 0 (Lemma 1)": _limit,
    "entropy bound (Lemma 2)": _lemma2,
    "propriety (Theorem 1)": _proper,
}
