"""The paper's theorems, checked against exact quadrature: the gradient estimator, and SGD with it."""

import math
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from pscd import exact
from pscd.losses import pseudo_spherical
from pscd.rng import generator
from studies import theory
from studies.engine import Experiment, Result, Row, Run, Settings
from studies.engine.streams import StudyStream
from studies.paper.bounded_model import (
    FEATURE_BOUND,
    GAMMAS,
    GRID,
    RADIUS,
    Linear,
    data_density,
    draw,
    features,
    gradient,
    optimum,
    smoothness,
)
from studies.paper.lemma_checks import LEMMAS, check_grid, grid_runs, lemma_runs

ALPHA = 0.5  # relative gradient error that the convergence theorems allow
DELTA = 0.05  # probability with which their bounds may fail
SCHEDULES = {
    "constant": theory.constant_steps,
    "increasing": theory.increasing_steps,
    "decreasing": theory.decreasing_steps,
}


# --- Theorems 3 and 4: the estimator ---


def _estimator_runs(quick: bool, seeds: int) -> list[Settings]:
    exponents = (2, 3) if quick else (2, 2.5, 3, 3.5, 4, 4.5, 5, 5.5, 6)
    return [
        {"check": "estimator", "gamma": gamma, "n": round(10**k), "repeats": 10 if quick else (400 if k < 5 else 100)}
        for gamma in (0.5, 1.0)
        for k in exponents
    ]


def _estimator(settings: Settings) -> Result:
    gamma, n, theta = settings["gamma"], settings["n"], (0.4, -0.3)
    log_p, model = data_density(), Linear(theta)
    truth = exact.gamma_gradient(log_p, model, gamma, GRID)["theta"]
    errors = []
    for i in range(settings["repeats"]):
        rng = generator(i, StudyStream.THEOREM_SAMPLES, n)
        x_pos, x_neg = draw(log_p, n, rng), exact.draw(model, GRID, n, rng)
        loss = pseudo_spherical(model(x_pos), model(x_neg), gamma)
        (estimate,) = torch.autograd.grad(loss, model.theta)
        errors.append(float((estimate - truth).norm()))
    values = torch.tensor(errors, dtype=torch.float64)
    bound = theory.error_bound(n, DELTA, gamma, RADIUS * FEATURE_BOUND, FEATURE_BOUND)
    return {
        "rms_error": float(values.square().mean().sqrt()),
        "quantile_error": float(values.quantile(1 - DELTA)),
        "bound": bound,
        "holds": bool(values.quantile(1 - DELTA) <= bound),
    }


# --- Theorem 5 and Corollary 1: SGD ---


def _sgd_runs(quick: bool, seeds: int) -> list[Settings]:
    lengths = (16, 64) if quick else (16, 64, 256, 1024, 4096)
    runs = 2 if quick else 10
    return [
        {"check": "sgd", "schedule": name, "steps": steps, "gamma": 1.0, "runs": runs, "batch": 256}
        for name in SCHEDULES
        for steps in lengths
    ]


def _sgd(settings: Settings) -> Result:
    gamma, n_steps = settings["gamma"], settings["steps"]
    log_p, m = data_density(), smoothness(gamma)
    steps = SCHEDULES[settings["schedule"]](n_steps, ALPHA, m)
    weights = theory.stopping_distribution(steps, ALPHA, m)
    expected, stopped = [], []
    for i in range(settings["runs"]):
        rng = generator(i, StudyStream.THEOREM_STEPS, n_steps)
        path = descend(log_p, gamma, steps, settings["batch"], rng)
        squared = torch.stack([gradient(log_p, theta, gamma).square().sum() for theta in path])
        expected.append(float((weights * squared).sum()))
        stopped.append(float(squared[theory.randomised_stop(steps, ALPHA, m, rng) - 1]))
    gap = _loss(log_p, torch.tensor(START, dtype=torch.float64), gamma) - _loss(log_p, optimum(log_p, gamma), gamma)
    bound = theory.nonconvex_bound(steps, ALPHA, m, gap, RADIUS * FEATURE_BOUND, FEATURE_BOUND, gamma)
    mean = sum(expected) / len(expected)
    return {"expected": mean, "stopped": sum(stopped) / len(stopped), "bound": bound, "holds": mean <= bound}


START = (-0.3, -0.3)


def descend(log_p: Tensor, gamma: float, steps: Tensor, batch: int, generator: torch.Generator) -> Tensor:
    """SGD with the estimator of Theorem 3 from `START`, projected to the ball."""
    theta = torch.tensor(START, dtype=torch.float64)
    path = [theta]
    for step in steps[:-1].tolist():
        model = Linear(theta)
        x_pos, x_neg = draw(log_p, batch, generator), exact.draw(model, GRID, batch, generator)
        loss = pseudo_spherical(model(x_pos), model(x_neg), gamma)
        (estimate,) = torch.autograd.grad(loss, model.theta)
        theta = theta - step * estimate
        theta = theta * min(1.0, RADIUS / float(theta.norm().clamp(min=1e-12)))
        path.append(theta)
    return torch.stack(path)


@torch.no_grad()
def _loss(log_p: Tensor, theta: Tensor, gamma: float) -> float:
    return -float(exact.gamma_score(log_p, Linear(theta), gamma, GRID))


# --- Theorems 7 and 8: convex problems ---


def _convex_runs(quick: bool, seeds: int) -> list[Settings]:
    lengths = (16, 64) if quick else (16, 64, 256, 1024)
    return [
        {"check": kind, "steps": steps, "gamma": 0.1, "runs": 2 if quick else 10, "batch": 1024}
        for kind in ("strongly convex", "convex")
        for steps in lengths
    ]


def curvature(log_p: Tensor, gamma: float) -> float:
    """The smallest curvature of the exact loss over the ball: positive where it is strongly convex."""
    angles = torch.linspace(0, 2 * math.pi, 17)[:-1]
    smallest = math.inf
    for radius in (0.0, 0.5, 1.0):
        for angle in angles.tolist():
            theta = RADIUS * radius * torch.tensor([math.cos(angle), math.sin(angle)], dtype=torch.float64)
            smallest = min(smallest, float(torch.linalg.eigvalsh(_hessian(log_p, theta, gamma))[0]))
    return smallest


def _hessian(log_p: Tensor, theta: Tensor, gamma: float) -> Tensor:
    """(gamma + 1) Cov_r(phi) - gamma Cov_a(phi), a proportional to p q^gamma and r to q^(gamma + 1)."""
    phi = features(GRID.points)
    e = phi @ theta

    def covariance(log_weight: Tensor) -> Tensor:
        w = (log_weight + GRID.h.log()).softmax(0)
        centred = phi - w @ phi
        return centred.T @ (w[:, None] * centred)

    return (gamma + 1) * covariance(-(gamma + 1) * e) - gamma * covariance(log_p - gamma * e)


def _convex(settings: Settings) -> Result:
    gamma, n_steps = settings["gamma"], settings["steps"]
    log_p = data_density()
    best, j = optimum(log_p, gamma), curvature(log_p, gamma)
    strongly = settings["check"] == "strongly convex"
    steps = theory.strongly_convex_steps(n_steps, j) if strongly else theory.convex_steps(n_steps)
    values = []
    for i in range(settings["runs"]):
        path = descend(log_p, gamma, steps, settings["batch"], generator(i, StudyStream.THEOREM_DESCENT, n_steps))
        if strongly:
            values.append(float((path[-1] - best).square().sum()))
        else:
            values.append(_loss(log_p, path.mean(0), gamma) - _loss(log_p, best, gamma))
    k, length = RADIUS * FEATURE_BOUND, FEATURE_BOUND
    if strongly:
        bound = theory.strongly_convex_bound(n_steps, j, k, length, gamma)
    else:
        bound = theory.convex_bound(n_steps, 2 * RADIUS, k, length, gamma)
    mean = sum(values) / len(values)
    return {"expected": mean, "bound": bound, "convexity": j, "holds": max(values) <= bound}


# --- the experiment ---


def _runs(quick: bool, seeds: int) -> list[Settings]:
    groups = (_estimator_runs, _sgd_runs, _convex_runs, lemma_runs)
    return [cell for group in groups for cell in group(quick, seeds)] + grid_runs(quick)


def _compute(settings: Settings) -> Result:
    checks = {"estimator": _estimator, "sgd": _sgd, "strongly convex": _convex, "convex": _convex, **LEMMAS}
    checks["quadrature"] = check_grid
    return checks[settings["check"]](settings)


def slope(pairs: Sequence[tuple[float, float]]) -> float:
    """Least-squares slope of log y over log x."""
    x, y = torch.tensor(pairs, dtype=torch.float64).log().T
    return float(((x - x.mean()) * (y - y.mean())).sum() / (x - x.mean()).square().sum())


def series(done: Sequence[Run], check: str, by: str, x: str, y: str) -> dict[str, list[tuple[float, float]]]:
    """Points (x, y) of a check."""
    lists: dict[str, list[tuple[float, float]]] = {}
    for d in done:
        if d.settings["check"] == check:
            lists.setdefault(f"{by} {d.settings[by]}" if by else check, []).append((d.settings[x], d.result[y]))
    return lists


def _rows(done: Sequence[Run]) -> list[Row]:
    rows = [
        Row("estimator (Theorem 3)", f"slope of log error over log N, {name}", slope(points), exact=-0.5)
        for name, points in series(done, "estimator", "gamma", "n", "rms_error").items()
    ]
    rows += [
        Row("SGD (Corollary 1)", f"slope of log E|grad|^2 over log T, {name}", slope(points), exact=-0.5)
        for name, points in series(done, "sgd", "schedule", "steps", "expected").items()
    ]
    for kind, rate in (("strongly convex", -1.0), ("convex", -0.5)):
        points = series(done, kind, "", "steps", "expected")[kind]
        rows.append(Row(f"SGD, {kind}", "slope over log T (at most)", slope(points), exact=rate))
    for d in done:
        for name, value in d.result.items():
            if d.settings["check"] in LEMMAS and name not in ("holds", "seconds"):
                rows.append(Row(d.settings["check"], name.replace("_", " "), value))
    for d in done:
        if d.settings["check"] == "quadrature":
            column = f"change on doubling from {d.result['cells']} cells"
            rows.append(Row(f"quadrature, {d.settings['set']}", column, d.result["change"]))
    held = sum(d.result["holds"] for d in done)
    rows.append(Row("all inequalities", "cells in which they hold", float(held), exact=float(len(done))))
    return rows


def _notes(done: Sequence[Run]) -> str:
    j = next(d.result["convexity"] for d in done if d.settings["check"] == "convex")
    return f"""
The model is theta . (sin x, cos 2x) on [-3, 3], bounded as the theorems ask (K = {RADIUS * FEATURE_BOUND:g}, L =
{FEATURE_BOUND:g}); truth is quadrature in float64. *exact* is the rate that the theorem states (an upper bound for
SGD, so a steeper slope is better than promised).

- **Estimator.** Root mean squared error of the gradient estimate; the 95 % quantile of its error stays below
  Theorem 4's bound at every N.
- **SGD.** Expected squared gradient norm at the randomised stop of Algorithm 2, with batches of 256. The theorem
  asks for batches that grow without limit as the gradient vanishes; with a fixed batch the bound still holds at
  every T tried.
- **Convex cases.** gamma = 0.1, where the loss is {j:.4f}-strongly convex on the ball (smallest curvature on a
  grid of it). The squared distance of the last iterate and the excess loss of the averaged one, against the
  bounds of Theorems 7 and 8; Theorem 7 prints the distance without its square, which its proof's source has.
- **Lemmas** over random smooth densities, gamma in {", ".join(f"{g:g}" for g in GAMMAS)}; Lemma 2 for gamma from
  -0.99 to -0.01, as at -1 itself the score is not finite.
- **Quadrature.** The instrument itself: on each 2-D toy, how much log Z and the entropy change when the cells of
  an axis are doubled; all densities integrate to 1 within 1e-6 there.
"""


def _draw(done: Sequence[Run], out: Path) -> list[Path]:
    from studies.paper import figures

    estimator = series(done, "estimator", "gamma", "n", "rms_error")
    bounds = series(done, "estimator", "gamma", "n", "bound")
    sgd = series(done, "sgd", "schedule", "steps", "expected")
    sgd_bounds = series(done, "sgd", "schedule", "steps", "bound")
    convex = {
        **series(done, "strongly convex", "", "steps", "expected"),
        **series(done, "convex", "", "steps", "expected"),
    }
    convex_bounds = {
        **series(done, "strongly convex", "", "steps", "bound"),
        **series(done, "convex", "", "steps", "bound"),
    }
    panels = [
        ("samples N", "gradient error", estimator, bounds),
        ("steps T", "E |grad|^2", sgd, sgd_bounds),
        ("steps T", "squared distance / excess loss", convex, convex_bounds),
    ]
    return [figures.rates(panels, out / "theory.png")]


THEORY = Experiment(
    "theory",
    "The paper's theorems and lemmas, checked against quadrature",
    "6 minutes",
    1,
    _runs,
    _compute,
    _rows,
    _draw,
    _notes,
)
