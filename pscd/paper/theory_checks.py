"""The paper's theory, checked: every bound and limit against exact quadrature on a bounded space.

The model is E(x) = theta . phi(x) on [-3, 3] with bounded features phi, so that the assumptions of the
theorems hold with known constants: |grad E| <= L = max |phi|, |E| <= K = |theta|_max L, and the loss is
M-smooth with M = (1 + gamma) L^2, because its Hessian is (gamma + 1) Cov_r(phi) - gamma Cov_a(phi).
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from pscd import exact, theory
from pscd.losses import pseudo_spherical
from pscd.paper.artefact import Artefact, Done, Result, Row, Settings
from pscd.rng import generator

GRID = exact.grid(exact.Box((-3.0,), (3.0,), cut=math.inf), 600)
GAMMAS = (-0.5, 0.1, 0.5, 1.0, 2.0)
ALPHA = 0.5  # relative gradient error that the convergence theorems allow
DELTA = 0.05  # probability with which their bounds may fail
RADIUS = 0.5  # of the ball that theta stays in
FEATURE_BOUND = 2.0  # L
SCHEDULES = {
    "constant": theory.constant_steps,
    "increasing": theory.increasing_steps,
    "decreasing": theory.decreasing_steps,
}


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


# --- Theorems 3 and 4: the estimator ---


def _estimator_cells(quick: bool, seeds: int) -> list[Settings]:
    exponents = (2, 3, 4) if quick else (2, 2.5, 3, 3.5, 4, 4.5, 5, 5.5, 6)
    return [
        {"check": "estimator", "gamma": gamma, "n": round(10**k), "repeats": 20 if quick else (400 if k < 5 else 100)}
        for gamma in (0.5, 1.0)
        for k in exponents
    ]


def _estimator(settings: Settings) -> Result:
    gamma, n, theta = settings["gamma"], settings["n"], (0.4, -0.3)
    log_p, model = data_density(), Linear(theta)
    truth = exact.gamma_gradient(log_p, model, gamma, GRID)["theta"]
    errors = []
    for i in range(settings["repeats"]):
        rng = generator(i, 10, n)
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


def draw(log_p: Tensor, n: int, rng: torch.Generator) -> Tensor:
    """Draws of a density on the grid."""
    return exact.draw(lambda x: -log_p, GRID, n, rng)


# --- Theorem 5 and Corollary 1: SGD ---


def _sgd_cells(quick: bool, seeds: int) -> list[Settings]:
    lengths = (16, 64) if quick else (16, 64, 256, 1024, 4096)
    runs = 3 if quick else 10
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
        rng = generator(i, 11, n_steps)
        path = descend(log_p, gamma, steps, settings["batch"], rng)
        squared = torch.stack([gradient(log_p, theta, gamma).square().sum() for theta in path])
        expected.append(float((weights * squared).sum()))
        stopped.append(float(squared[theory.randomised_stop(steps, ALPHA, m, rng) - 1]))
    gap = _loss(log_p, torch.tensor(START, dtype=torch.float64), gamma) - _loss(log_p, optimum(log_p, gamma), gamma)
    bound = theory.nonconvex_bound(steps, ALPHA, m, gap, RADIUS * FEATURE_BOUND, FEATURE_BOUND, gamma)
    mean = sum(expected) / len(expected)
    return {"expected": mean, "stopped": sum(stopped) / len(stopped), "bound": bound, "holds": mean <= bound}


START = (-0.3, -0.3)


def descend(log_p: Tensor, gamma: float, steps: Tensor, batch: int, rng: torch.Generator) -> Tensor:
    """SGD with the estimator of Theorem 3 from `START`, projected to the ball; all iterates, theta_1 first."""
    theta = torch.tensor(START, dtype=torch.float64)
    path = [theta]
    for step in steps[:-1].tolist():
        model = Linear(theta)
        x_pos, x_neg = draw(log_p, batch, rng), exact.draw(model, GRID, batch, rng)
        loss = pseudo_spherical(model(x_pos), model(x_neg), gamma)
        (estimate,) = torch.autograd.grad(loss, model.theta)
        theta = theta - step * estimate
        theta = theta * min(1.0, RADIUS / float(theta.norm().clamp(min=1e-12)))
        path.append(theta)
    return torch.stack(path)


def gradient(log_p: Tensor, theta: Tensor, gamma: float) -> Tensor:
    """The exact gradient, E_a[phi] - E_r[phi] (Theorem 2)."""
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


@torch.no_grad()
def _loss(log_p: Tensor, theta: Tensor, gamma: float) -> float:
    return -float(exact.gamma_score(log_p, Linear(theta), gamma, GRID))


# --- Theorems 7 and 8: convex problems ---


def _convex_cells(quick: bool, seeds: int) -> list[Settings]:
    lengths = (16, 64) if quick else (16, 64, 256, 1024)
    return [
        {"check": kind, "steps": steps, "gamma": 0.1, "runs": 3 if quick else 10, "batch": 1024}
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
        path = descend(log_p, gamma, steps, settings["batch"], generator(i, 12, n_steps))
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


# --- lemmas ---


def _lemma_cells(quick: bool, seeds: int) -> list[Settings]:
    tries = 20 if quick else 500
    return [{"check": name, "tries": tries} for name in LEMMAS]


def _random_log_density(rng: torch.Generator) -> Tensor:
    """A smooth random density on the box."""
    x = GRID.points[:, 0]
    waves = torch.arange(1, 6, dtype=torch.float64)
    amplitude = torch.randn(5, 2, generator=rng, dtype=torch.float64) / waves[:, None].sqrt()
    phase = waves[:, None] * x * math.pi / 3
    log_f = (amplitude[:, :1] * phase.sin() + amplitude[:, 1:] * phase.cos()).sum(0)
    return log_f - exact.log_integral(log_f, GRID)


def _variational(settings: Settings) -> Result:
    """Second proof of Theorem 2: the bound at r* is the norm, and no other r exceeds it."""
    gap_at_optimum, smallest_gap = 0.0, math.inf
    for i in range(settings["tries"]):
        rng = generator(i, 13)
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
        rng = generator(i, 14)
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
        float(exact.gamma_divergence(log_p, _negative(_random_log_density(generator(i, 15))), gamma, GRID))
        for i in range(settings["tries"])
        for gamma in GAMMAS
    )
    return {"distance": farthest, "smallest_divergence": smallest, "holds": farthest < 1e-6 and smallest > 0}


def _negative(log_q: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda x: -log_q


LEMMAS: dict[str, Callable[[Settings], Result]] = {
    "variational form (Theorem 2)": _variational,
    "limit gamma to 0 (Lemma 1)": _limit,
    "entropy bound (Lemma 2)": _lemma2,
    "propriety (Theorem 1)": _proper,
}


# --- the artefact ---


def _cells(quick: bool, seeds: int) -> list[Settings]:
    groups = (_estimator_cells, _sgd_cells, _convex_cells, _lemma_cells)
    return [cell for group in groups for cell in group(quick, seeds)]


def _compute(settings: Settings) -> Result:
    checks = {"estimator": _estimator, "sgd": _sgd, "strongly convex": _convex, "convex": _convex, **LEMMAS}
    return checks[settings["check"]](settings)


def slope(pairs: Sequence[tuple[float, float]]) -> float:
    """Least-squares slope of log y over log x."""
    x, y = torch.tensor(pairs, dtype=torch.float64).log().T
    return float(((x - x.mean()) * (y - y.mean())).sum() / (x - x.mean()).square().sum())


def series(done: Sequence[Done], check: str, by: str, x: str, y: str) -> dict[str, list[tuple[float, float]]]:
    """Points `(x, y)` of a check, one list for each value of the setting `by`."""
    lists: dict[str, list[tuple[float, float]]] = {}
    for d in done:
        if d.settings["check"] == check:
            lists.setdefault(f"{by} {d.settings[by]}" if by else check, []).append((d.settings[x], d.result[y]))
    return lists


def _rows(done: Sequence[Done]) -> list[Row]:
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
    held = sum(d.result["holds"] for d in done)
    rows.append(Row("all inequalities", "cells in which they hold", float(held), exact=float(len(done))))
    return rows


def _notes(done: Sequence[Done]) -> str:
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
"""


def _draw(done: Sequence[Done], out: Path) -> list[Path]:
    from pscd.paper import figures

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


THEORY = Artefact(
    "theory",
    "The paper's theorems and lemmas, checked against quadrature",
    "6 minutes",
    1,
    _cells,
    _compute,
    _rows,
    _draw,
    _notes,
)
