import math

import pytest
import torch
from scipy import stats
from torch import Tensor, nn

from pscd.energies import Quadratic
from pscd.exact import Box, gamma_score, grid, kl, log_density, log_integral, renyi_entropy
from pscd.rng import generator
from studies import theory
from studies.theory import (
    constant_steps,
    convex_bound,
    convex_steps,
    decreasing_steps,
    error_bound,
    increasing_steps,
    lemma2_bound,
    nonconvex_bound,
    randomised_stop,
    required_samples,
    samples_per_step,
    stopping_distribution,
    strongly_convex_bound,
    strongly_convex_steps,
    variational_norm,
)

SCHEDULES = [constant_steps, increasing_steps, decreasing_steps]
LINE = Box((-24.0,), (24.0,))


# Theorem 4


def test_required_samples_by_hand():
    # 32 * 2^2 * (1 + 4 log 4) / 0.5^2 = 3351.07... without weights, times e^(8 * 0.25) with them
    assert required_samples(0.5, 0.5, 0.0, 3.0, 2.0) == math.ceil(512 * (1 + 4 * math.log(4))) == 3352
    assert required_samples(0.5, 0.5, 1.0, 0.25, 2.0) == math.ceil(512 * math.exp(2) * (1 + 4 * math.log(4))) == 24762


@pytest.mark.parametrize("gamma", [-0.5, 0.0, 1.0])
def test_error_bound_inverts_required_samples(gamma: float):
    for epsilon in (0.03, 0.4):
        n = required_samples(epsilon, 0.05, gamma, 0.7, 1.3)
        assert error_bound(n, 0.05, gamma, 0.7, 1.3) <= epsilon < error_bound(n - 1, 0.05, gamma, 0.7, 1.3)


def test_the_sign_of_gamma_does_not_buy_samples():
    # exp(8 gamma K) with gamma < 0 would ask for fewer samples than no weights at all.
    assert required_samples(0.1, 0.1, -0.5, 1.0, 1.0) == required_samples(0.1, 0.1, 0.5, 1.0, 1.0)
    assert required_samples(0.1, 0.1, -0.5, 1.0, 1.0) > required_samples(0.1, 0.1, 0.0, 1.0, 1.0)


@pytest.mark.parametrize("delta", [1e-9, 0.05, 0.5, 0.999])
def test_two_independent_halves_fail_with_at_most_delta(delta: float):
    # Each half may fail with exp(-N epsilon^2 / (128 L^2) + 1/4) (vector Bernstein); both hold with 1 - delta.
    n = required_samples(0.01, delta, 0.0, 1.0, 1.0)
    one = math.exp(-n * 0.01**2 / 128 + 0.25)
    assert (1 - one) ** 2 >= 1 - delta
    assert 1 - (1 - one) ** 2 > 0.7 * delta  # and no more samples than that takes


def test_samples_per_step_is_theorem_4_for_every_step():
    assert samples_per_step(0.4, 10, 0.5, 0.1, 1.0, 0.2, 2.0) == required_samples(0.2, 0.01, 1.0, 0.2, 2.0)
    exact = 32 * 4 * math.exp(1.6) * (1 + 4 * math.log(2 * 10 / 0.1)) / (0.5 * 0.4) ** 2
    assert samples_per_step(0.4, 10, 0.5, 0.1, 1.0, 0.2, 2.0) == math.ceil(exact)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 1.0}, "delta"),
        ({"gamma": math.inf}, "gamma"),
        ({"energy_bound": -1.0}, "energy_bound"),
        ({"gradient_bound": 0.0}, "gradient_bound"),
        ({"energy_bound": 100.0}, "says nothing"),
    ],
)
def test_arguments_of_the_sample_bound_are_checked(change: dict[str, float], word: str):
    good = {"epsilon": 0.1, "delta": 0.1, "gamma": 1.0, "energy_bound": 1.0, "gradient_bound": 1.0}
    with pytest.raises(ValueError, match=word):
        required_samples(**(good | change))


def test_other_arguments_are_checked():
    with pytest.raises(ValueError, match="n must be positive"):
        error_bound(0, 0.1, 1.0, 1.0, 1.0)
    with pytest.raises(ValueError, match="gradient_norm"):
        samples_per_step(0.0, 10, 0.5, 0.1, 1.0, 1.0, 1.0)
    with pytest.raises(ValueError, match="initial_gap"):
        nonconvex_bound(constant_steps(4, 0.5, 1.0), 0.5, 1.0, -1.0, 1.0, 1.0, 1.0)
    with pytest.raises(ValueError, match="diameter"):
        convex_bound(4, 0.0, 1.0, 1.0, 1.0)
    with pytest.raises(ValueError, match="convexity"):
        strongly_convex_bound(4, 0.0, 1.0, 1.0, 1.0)


# Step sizes and stopping


def test_step_sizes_by_hand():
    torch.testing.assert_close(constant_steps(4, 0.5, 0.1).tolist(), [0.5] * 4)
    torch.testing.assert_close(increasing_steps(4, 0.5, 0.1).tolist(), [math.sqrt(t) / 4 for t in (1, 2, 3, 4)])
    torch.testing.assert_close(decreasing_steps(4, 0.5, 0.1).tolist(), [(4 * t) ** -0.25 for t in (1, 2, 3, 4)])
    torch.testing.assert_close(strongly_convex_steps(2, 3.0).tolist(), [1 / 2.25, 1 / 4.5])
    torch.testing.assert_close(convex_steps(4).tolist(), [1.0, 2**-0.5, 3**-0.5, 0.5])


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_step_sizes_are_capped(schedule):
    steps = schedule(50, 0.25, 30.0)
    assert steps.dtype == torch.float64
    assert steps.shape == (50,)
    assert steps.max().item() == 0.75 / 30
    for arguments in ((0, 0.5, 1.0), (5, 0.0, 1.0), (5, 1.0, 1.0), (5, 0.5, 0.0)):
        with pytest.raises(ValueError, match=r"steps|alpha|smoothness"):
            schedule(*arguments)


def test_stopping_distribution_by_hand():
    p = stopping_distribution(torch.tensor([0.1, 0.2]), 0.5, 2.0)
    torch.testing.assert_close(p, torch.tensor([0.08, 0.12], dtype=torch.float64) / 0.2, rtol=1e-6, atol=0)
    uniform = stopping_distribution(constant_steps(10, 0.5, 2.0), 0.5, 2.0)
    torch.testing.assert_close(uniform, torch.full((10,), 0.1, dtype=torch.float64))


@pytest.mark.parametrize("steps", [torch.tensor([0.1, 0.5]), torch.tensor([0.0]), torch.ones(0), torch.ones(2, 2)])
def test_stopping_needs_step_sizes_below_the_limit(steps: Tensor):
    with pytest.raises(ValueError, match="step"):  # 2 (1 - 0.5) / 2 = 0.5
        stopping_distribution(steps, 0.5, 2.0)


def test_randomised_stop_follows_its_distribution():
    steps, before = increasing_steps(6, 0.3, 1.0), torch.get_rng_state()
    rng = generator(0)
    draws = torch.tensor([randomised_stop(steps, 0.3, 1.0, rng) for _ in range(3000)])
    counts = torch.bincount(draws, minlength=7)
    assert counts[0] == 0  # counted from 1
    assert len(counts) == 7
    expected = 3000 * stopping_distribution(steps, 0.3, 1.0)
    assert stats.chisquare(counts[1:].numpy(), expected.numpy()).pvalue > 0.01
    assert torch.equal(torch.get_rng_state(), before)
    assert randomised_stop(torch.tensor([0.1]), 0.3, 1.0) == 1


# Convergence


def corollary(n_steps: int, alpha: float, m: float, gap: float, noise: float) -> float:
    """Right-hand side of Corollary 1; noise = 12 alpha M L^2 exp(4 gamma K)."""
    return 2 * m * gap / ((1 - alpha) ** 2 * n_steps) + (2 * gap + noise) / ((1 - alpha) * math.sqrt(n_steps))


def test_nonconvex_bound_by_hand():
    # (2 * 3 + 12 * 0.5 * 2 * 4 * e^(4 * 0.5) * (0.01 + 0.04)) / (0.08 + 0.12)
    value = nonconvex_bound(torch.tensor([0.1, 0.2]).double(), 0.5, 2.0, 3.0, 1.0, 2.0, 0.5)
    assert value == pytest.approx((6 + 48 * math.exp(2) * 0.05) / 0.2, rel=1e-6)


@pytest.mark.parametrize("n_steps", [1, 10, 1000])
@pytest.mark.parametrize("m", [0.1, 40.0])
def test_corollary_1_follows_from_theorem_5(n_steps: int, m: float):
    alpha, gap, noise = 0.3, 2.0, 12 * 0.3 * m * 1.5**2 * math.exp(4 * 0.5 * 0.8)
    value = nonconvex_bound(constant_steps(n_steps, alpha, m), alpha, m, gap, 0.8, 1.5, 0.5)
    limit = corollary(n_steps, alpha, m, gap, noise)
    assert 0.05 * limit < value < limit


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_schedule_has_the_rate_of_one_over_root_t(schedule):
    scaled = [
        nonconvex_bound(schedule(t, 0.3, 2.0), 0.3, 2.0, 1.0, 0.5, 1.0, 1.0) * math.sqrt(t) for t in (10**3, 10**5)
    ]
    assert scaled[1] == pytest.approx(scaled[0], rel=0.1)


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_theorem_5_holds_on_a_parabola_with_the_worst_gradients(schedule, sign: int):
    alpha, m, start, n_steps = 0.4, 2.0, 3.0, 200
    steps, theta, squares = schedule(n_steps, alpha, m), start, []
    for eta in steps.tolist():
        gradient = m * theta
        squares.append(gradient**2)
        theta -= eta * (1 + sign * alpha) * gradient
    expected = (stopping_distribution(steps, alpha, m) * torch.tensor(squares, dtype=torch.float64)).sum().item()
    # 2 L exp(2 gamma K) bounds the gradient, which is largest at the start.
    bound = nonconvex_bound(steps, alpha, m, m * start**2 / 2, 0.0, m * start / 2, 0.0)
    assert 0 < expected < bound


def test_strongly_convex_bound_by_hand():
    # (4 * 4 / 2) ((2 + 3/2)^2 + 9 * 1.5) / (9 * 2.25)
    assert strongly_convex_bound(2, 3.0, 1.0, 2.0, 0.0) == pytest.approx(8 * (12.25 + 13.5) / 20.25, rel=1e-14)
    weighted = strongly_convex_bound(2, 3.0, 0.5, 2.0, 1.0)
    assert weighted == pytest.approx(math.exp(2) * 8 * (12.25 + 13.5) / 20.25, rel=1e-14)


@pytest.mark.parametrize("distance", [0.01, 1.0, 50.0])
def test_theorem_7_bounds_the_square_of_the_distance(distance: float):
    j, g = 2.0, 2.0 * distance  # the condition J <= G / |theta_1 - theta*|, with equality; G = 2 L
    bound = strongly_convex_bound(1, j, 0.0, g / 2, 0.0)
    assert distance**2 <= bound
    # Without the square, as printed, it would exclude a start close to the optimum.
    assert (distance <= bound) == (distance > 0.05)


@pytest.mark.parametrize("n_steps", [2, 10, 300])
@pytest.mark.parametrize("sign", [-1, 1])
def test_theorem_7_holds_on_a_parabola_with_the_worst_gradients(n_steps: int, sign: int):
    j, start = 1.5, 0.8
    theta = start
    for eta in strongly_convex_steps(n_steps, j).tolist()[:-1]:
        theta -= eta * (1 + sign * j / (2 * n_steps)) * j * theta
    assert theta**2 <= strongly_convex_bound(n_steps, j, 0.0, j * start / 2, 0.0)


def test_convex_bound_by_hand():
    exact = (9 + 2 * 4 * math.exp(2) * (1 + 1.5**2 * math.sqrt(1.25))) / 2
    assert convex_bound(4, 3.0, 0.5, 2.0, 1.0) == pytest.approx(exact, rel=1e-14)


@pytest.mark.parametrize("n_steps", [1, 30, 1000])
def test_theorem_8_holds_for_the_modulus(n_steps: int):
    slope, diameter = 2.0, 3.0  # L(theta) = 2 |theta - 1| on [-1, 2], from the far end
    theta, path = -1.0, []
    for eta in convex_steps(n_steps).tolist():
        path.append(theta)
        gradient = math.copysign(slope, theta - 1) * (1 - 1 / math.sqrt(n_steps))
        theta = min(max(theta - eta * gradient, -1.0), 2.0)
    gap = slope * abs(sum(path) / len(path) - 1)
    assert 0 < gap <= convex_bound(n_steps, diameter, 0.0, slope / 2, 0.0)


# The norm, and Lemma 2


def gaussian(mean: float, sd: float) -> Quadratic:
    model = Quadratic().double().requires_grad_(False)
    nn.init.constant_(model.mu, mean)
    nn.init.constant_(model.log_sigma, math.log(sd))
    return model


@pytest.mark.parametrize("gamma", [-0.5, 0.0, 0.5, 2.0])
def test_variational_norm_is_a_bound_with_a_known_gap(gamma: float):
    mesh, q = grid(LINE, 1024), gaussian(0.4, 1.3)
    log_q_bar = -q(mesh.points)
    log_norm = log_integral((gamma + 1) * log_q_bar, mesh) / (gamma + 1)
    best = log_density(lambda x: (gamma + 1) * q(x), mesh)
    torch.testing.assert_close(variational_norm(log_q_bar, best, gamma, mesh.h), log_norm, rtol=0, atol=1e-12)
    other = log_density(gaussian(-0.2, 0.9), mesh)
    gap = log_norm - variational_norm(log_q_bar, other, gamma, mesh.h)
    torch.testing.assert_close(gap, kl(other, best, mesh) / (gamma + 1), rtol=0, atol=1e-12)
    assert gap > 0.01


def test_variational_norm_takes_one_cell_size_and_zero_densities():
    mesh = grid(LINE, 1024)
    log_r = torch.where(mesh.points[:, 0].abs() < 3, torch.tensor(-math.log(6), dtype=torch.float64), -math.inf)
    # E = |x|: E_r[-|x|] + log(6) / 2 at gamma = 1; both ends of the support are edges of cells
    value = variational_norm(-mesh.points[:, 0].abs(), log_r, 1.0, 48 / 1024)
    assert value.item() == pytest.approx(-1.5 + math.log(6) / 2, abs=1e-12)
    with pytest.raises(ValueError, match="gamma"):
        variational_norm(log_r, log_r, -1.0, 1.0)


@pytest.mark.parametrize("gamma", [-0.6, -0.2, 0.0, 0.5, 2.0])
def test_lemma_2_bounds_the_score_from_above_below_zero_and_from_below_above(gamma: float):
    mesh, q = grid(LINE, 1024), gaussian(-0.3, 1.4)
    log_p, log_q = log_density(gaussian(0.5, 0.9), mesh), log_density(q, mesh)
    expected_log_q = gamma_score(log_p, q, 0.0, mesh).item()
    bound = lemma2_bound(expected_log_q, renyi_entropy(log_q, gamma + 1, mesh).item(), gamma)
    score = gamma_score(log_p, q, gamma, mesh).item()
    if gamma == 0:
        assert score == pytest.approx(bound, abs=1e-12)
    else:
        assert (bound - score) * -gamma > 1e-3 * abs(gamma)


def test_lemma_2_is_an_equality_for_a_flat_model():
    # Nothing is lost to Jensen's inequality where q is constant: on a volume V, S = -log V / (gamma + 1).
    for gamma in (-0.5, 1.0):
        bound = lemma2_bound(-math.log(4), math.log(4), gamma)
        assert bound == pytest.approx(-math.log(4) / (gamma + 1), abs=1e-14)
    with pytest.raises(ValueError, match="gamma"):
        lemma2_bound(0.0, 1.0, -1.0)


@pytest.mark.parametrize("smoothness", [0.0, -1.0, math.nan])
def test_progress_needs_a_positive_smoothness(smoothness):
    with pytest.raises(ValueError, match="smoothness"):
        stopping_distribution(torch.tensor([0.1]), 0.5, smoothness)


GOOD = {
    "samples_per_step": {"gradient_norm": 1.0, "n_steps": 10, "alpha": 0.5, "delta": 0.1, "gamma": 1.0,
                         "energy_bound": 1.0, "gradient_bound": 1.0},
    "error_bound": {"n": 10, "delta": 0.1, "gamma": 1.0, "energy_bound": 1.0, "gradient_bound": 1.0},
    "strongly_convex_steps": {"n_steps": 4, "convexity": 1.0},
    "convex_steps": {"n_steps": 4},
    "strongly_convex_bound": {"n_steps": 4, "convexity": 1.0, "energy_bound": 1.0, "gradient_bound": 1.0, "gamma": 1.0},
    "convex_bound": {"n_steps": 4, "diameter": 1.0, "energy_bound": 1.0, "gradient_bound": 1.0, "gamma": 1.0},
    "lemma2_bound": {"expected_log_q": 0.0, "entropy": 1.0, "gamma": 1.0},
}  # fmt: skip
BAD = {
    "n_steps": (0, -1),
    "alpha": (0.0, 1.0),
    "delta": (0.0, 1.0),
    "gradient_norm": (0.0, math.inf),
    "n": (0,),
    "convexity": (0.0, math.nan),
    "diameter": (0.0, math.inf),
    "gradient_bound": (0.0,),
    "energy_bound": (-1.0,),
}


@pytest.mark.parametrize("name", GOOD)
def test_every_argument_of_every_bound_is_checked(name):
    function, good = getattr(theory, name), GOOD[name]
    function(**good)
    for argument in good.keys() & BAD.keys():
        for value in BAD[argument]:
            with pytest.raises(ValueError, match=r"must|cannot"):
                function(**{**good, argument: value})
    if "gamma" in good:
        with pytest.raises(ValueError, match="gamma"):
            function(**{**good, "gamma": math.nan})
    if name == "lemma2_bound":
        with pytest.raises(ValueError, match="gamma must be a finite number > -1"):
            function(**{**good, "gamma": -1.0})
