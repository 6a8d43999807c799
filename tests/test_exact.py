import math

import pytest
import torch
from scipy import stats
from torch import Tensor, nn

from pscd import exact
from pscd.data.toys import MIXTURE_1D, TOYS_2D
from pscd.energies import MLP, Quadratic
from pscd.errors import UserError
from pscd.exact import (
    Box,
    Grid,
    converged_grid,
    draw,
    evaluate,
    gamma_divergence,
    gamma_gradient,
    gamma_score,
    grid,
    kl,
    log_density,
    log_integral,
    log_partition,
    mmd_between,
    mmd_to_density,
    renyi_entropy,
)
from pscd.losses import pseudo_spherical
from pscd.rng import generator

LINE = Box((-16.0,), (16.0,))
PLANE = Box((-9.0, -12.0), (9.0, 10.0))
GAMMAS = (-0.5, -0.1, 0.0, 1e-6, 0.5, 1.0, 2.0)
DENSITIES_2D = sorted(TOYS_2D)
WITH_ENTROPY = ("cosine", "mog", "funnel", "rings")  # the entropy is known in closed form, or along the radius


def normal(mean: float, sd: float, mesh: Grid) -> Tensor:
    """Log density of N(mean, sd^2) on a line."""
    return -0.5 * ((mesh.points[:, 0] - mean) / sd).square() - math.log(sd * math.sqrt(2 * math.pi))


def gaussian(mean: float, sd: float, dim: int = 1) -> Quadratic:
    """The energy of N(mean, sd^2), exact in float64."""
    model = Quadratic(dim=dim).double()
    nn.init.constant_(model.mu, mean)
    nn.init.constant_(model.log_sigma, math.log(sd))
    return model


def flat(inside: Tensor, value: float) -> Tensor:
    """`value` inside, -inf outside."""
    return torch.where(inside, torch.tensor(value, dtype=torch.float64), -math.inf)


def gaussian_score(p: tuple[float, float], mean: Tensor, log_sd: Tensor, gamma: float) -> Tensor:
    """The gamma-score of exp(-(x - mean)^2 / (2 sd^2)) under N(*p), by hand."""
    var, shift = (2 * log_sd).exp(), (p[0] - mean).square()
    if gamma == 0:
        return -(p[1] ** 2 + shift) / (2 * var) - 0.5 * math.log(2 * math.pi) - log_sd
    expected = -torch.log1p(gamma * p[1] ** 2 / var) / (2 * gamma) - shift / (2 * (var + gamma * p[1] ** 2))
    return expected - (math.log(2 * math.pi / (gamma + 1)) / 2 + log_sd) / (gamma + 1)


def wavy(mesh_dim: int = 2, seed: int = 0, dtype: torch.dtype = torch.float64) -> MLP:
    """A network far from Gaussian; the base keeps it integrable on `PLANE`."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net = MLP((mesh_dim,), width=12, depth=2, fourier=3, base_scale=1.0)
        for p in net.parameters():
            nn.init.normal_(p, std=0.6)
    return net.to(dtype)


def skewed(mesh: Grid) -> Tensor:
    """Log density of an asymmetric mixture in the plane."""
    x, y = mesh.points[:, 0], mesh.points[:, 1]
    one = -0.5 * ((x - 1).square() + (y / 0.7).square()) + math.log(0.7 / (2 * math.pi * 0.7))
    two = -0.5 * (((x + 2) / 0.6).square() + (y + 1 - 0.3 * x).square()) + math.log(0.3 / (2 * math.pi * 0.6))
    return torch.logaddexp(one, two)


# Grids


@pytest.mark.parametrize("box", [LINE, PLANE, Box((-2.0, 0.0), (1.0, 5.0), cut=math.inf)])
def test_cells_tile_the_box(box: Box):
    mesh = grid(box, 12)
    assert mesh.points.shape == (12 ** len(box.low), len(box.low))
    assert mesh.points.dtype == torch.float64
    volume = math.prod(b - a for a, b in zip(box.low, box.high, strict=True))
    assert mesh.h.sum().item() == pytest.approx(volume, rel=1e-14)


def test_axes_have_their_own_number_of_cells_and_the_last_runs_fastest():
    mesh = grid(Box((0.0, 0.0), (2.0, 3.0)), (2, 3))
    assert mesh.points.tolist() == [[0.5, 0.5], [0.5, 1.5], [0.5, 2.5], [1.5, 0.5], [1.5, 1.5], [1.5, 2.5]]


@pytest.mark.parametrize(
    "box",
    [
        Box((-3.0, -20.0), (5.0, 24.0), core=(None, 0.1)),
        Box((-4.0, -8.0), (4.0, 8.0), jumps=((1.0,), (-4.0, 4.0))),
    ],
)
def test_uneven_cells_tile_the_box_and_hold_their_centres(box: Box):
    mesh = grid(box, (256, 256))
    for i in range(2):
        edges, centres = mesh.edges[i], mesh.axes[i]
        torch.testing.assert_close(edges[[0, -1]], torch.tensor([box.low[i], box.high[i]], dtype=torch.float64))
        assert bool(((edges[:-1] < centres) & (centres < edges[1:])).all())
        # The weights are those of the midpoint rule in u, and agree with the lengths to its second order.
        torch.testing.assert_close(mesh.widths[i].sum(), edges[-1] - edges[0], rtol=1e-4, atol=0)


def test_a_core_resolves_a_spike_that_even_cells_miss():
    def spike(x: Tensor) -> Tensor:
        return 0.5 * (x[:, 0] / 1e-3).square()

    exact = math.log(1e-3 * math.sqrt(2 * math.pi))
    assert log_partition(spike, grid(Box((-30.0,), (20.0,), core=(0.01,)), 256)).item() == pytest.approx(
        exact, abs=1e-12
    )
    assert abs(log_partition(spike, grid(Box((-30.0,), (20.0,)), 256)).item() - exact) > 1


def test_jumps_raise_the_order_of_the_rule_from_two_to_six():
    def error(n: int, jumps: tuple[float, ...]) -> float:
        mesh = grid(Box((-8.0,), (8.0,), jumps=(jumps,)), n)
        inside = (mesh.points[:, 0].abs() < 4).double()
        return abs((mesh.h * inside * torch.exp(mesh.points[:, 0])).sum().item() - 2 * math.sinh(4))

    plain, warped = error(64, ()) / error(128, ()), error(64, (-4.0, 4.0)) / error(128, (-4.0, 4.0))
    assert plain == pytest.approx(4, rel=0.05)
    assert warped == pytest.approx(64, rel=0.2)
    assert error(128, (-4.0, 4.0)) < 1e-4 * error(128, ())


@pytest.mark.parametrize(
    "make",
    [
        lambda: Box((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
        lambda: Box((0.0,), (1.0, 1.0)),
        lambda: Box((1.0,), (1.0,)),
        lambda: Box((-math.inf,), (1.0,)),
        lambda: Box((math.nan,), (1.0,)),
        lambda: Box((0.0, 0.0), (1.0, 1.0), core=(None,)),
        lambda: Box((-1.0,), (1.0,), core=(0.0,)),
        lambda: Box((-1.0,), (1.0,), jumps=((2.0,),)),
        lambda: Box((-1.0,), (1.0,), core=(0.1,), jumps=((0.5,),)),
        lambda: grid(LINE, 0),
        lambda: grid(LINE, (3, 3)),
    ],
)
def test_impossible_boxes_and_grids_are_refused(make):
    with pytest.raises(ValueError, match=r"axis|axes"):
        make()


# Partition function and density


@pytest.mark.parametrize("offset", [0.0, 1e4, -1e4])
def test_log_partition_of_gaussians(offset: float):
    mesh = grid(LINE, 256)
    model = gaussian(0.3, 0.7)
    exact = math.log(0.7 * math.sqrt(2 * math.pi))
    assert log_partition(lambda x: model(x) + offset, mesh).item() == pytest.approx(exact - offset, abs=2e-11)


def test_log_partition_in_the_plane():
    def energy(x: Tensor) -> Tensor:
        return 0.5 * (x[:, 0] / 0.5).square() + 0.5 * ((x[:, 1] - x[:, 0] + 1) / 1.3).square()

    exact = math.log(2 * math.pi * 0.65)
    assert log_partition(energy, grid(PLANE, 128)).item() == pytest.approx(exact, abs=1e-12)


def test_log_density_is_normalised():
    mesh = grid(PLANE, 96)
    log_q = log_density(wavy(), mesh)
    assert (mesh.h * log_q.exp()).sum().item() == pytest.approx(1, abs=1e-14)


def test_float32_module_is_integrated_in_float64_and_left_as_it_was():
    mesh, module = grid(PLANE, 64), wavy(dtype=torch.float32).train()
    state, random = {k: v.clone() for k, v in module.state_dict().items()}, torch.get_rng_state()
    log_z = log_partition(module, mesh)
    torch.testing.assert_close(log_z, log_partition(wavy(dtype=torch.float32).double(), mesh), rtol=0, atol=1e-14)
    log_z.backward()
    assert module.training
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in module.parameters())
    assert all(torch.equal(v, state[k]) for k, v in module.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random)


def test_spectral_norm_does_not_move_between_blocks():
    module = MLP((2,), width=8, depth=2, spectral_norm=True, base_scale=1.0).train()
    x = torch.randn(40, 2, generator=generator(0))
    with torch.no_grad():
        one, other = evaluate(module, x, block=10), evaluate(module, x, block=40)
    torch.testing.assert_close(one, other, rtol=0, atol=1e-14)


def test_blocks_change_neither_values_nor_gradients():
    x = torch.randn(50, 2, dtype=torch.float64, generator=generator(1))
    grads = []
    for block in (7, 50):
        module = wavy()
        evaluate(module, x, block=block).square().sum().backward()
        grads.append([p.grad for p in module.parameters()])
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("energy", "words"),
    [
        (lambda x: x[:, 0] * math.nan, "NaN at 64 of 64"),
        (lambda x: x, "maps"),
        (lambda x: x[:, 0].abs() * math.inf, "infinite"),
        (lambda x: x[:, 0] - math.inf, "infinite"),
    ],
)
def test_energies_without_an_integral_are_refused(energy, words: str):
    with pytest.raises(ValueError, match=words):
        log_partition(energy, grid(LINE, 64))


# Mass that the box cuts off


@pytest.mark.parametrize("n", [64, 100, 2048])
def test_a_box_that_cuts_mass_off_says_where(n: int):
    with pytest.raises(UserError, match=r"along high\[0\] = 4; move that up"):
        log_partition(Quadratic(3.0, 1.0), grid(Box((-4.0,), (4.0,)), n))
    with pytest.raises(UserError, match=r"along low\[0\] = -4; move that down"):
        log_partition(Quadratic(-3.0, 1.0), grid(Box((-4.0,), (4.0,)), n))


def test_a_box_that_cuts_mass_off_says_which_axis():
    with pytest.raises(UserError, match=r"low\[1\] = -3"):
        log_partition(Quadratic(0.0, 1.0, dim=2), grid(Box((-9.0, -3.0), (9.0, 9.0)), 64))


def test_cells_that_shrink_towards_the_ends_hide_no_mass():
    box = Box((-3.0,), (9.0,), jumps=((0.0,),))
    with pytest.raises(UserError, match=r"low\[0\] = -3"):
        log_partition(Quadratic(0.0, 1.0), grid(box, 1024))


def test_a_bounded_space_is_integrated_without_complaint():
    mesh = grid(Box((-1.0,), (2.0,), cut=math.inf), 4096)
    mass = stats.norm.cdf(2) - stats.norm.cdf(-1)
    exact = math.log(mass * math.sqrt(2 * math.pi))
    assert log_partition(Quadratic(0.0, 1.0), mesh).item() == pytest.approx(exact, abs=1e-7)


def test_below_zero_it_is_the_power_of_q_that_must_fit():
    mesh = grid(Box((-8.0,), (8.0,)), 256)
    log_p, q = normal(0.0, 1.0, mesh), Quadratic(0.0, 1.0)
    assert math.isfinite(gamma_score(log_p, q, -0.1, mesh).item())
    for function in (gamma_score, gamma_gradient):
        # r is N(0, 10), of which the box holds 2.5 deviations
        with pytest.raises(UserError, match="cuts off mass"):
            function(log_p, q, -0.9, mesh)
        # p q^gamma grows without limit where q is narrower than p by more than gamma allows
        with pytest.raises(UserError, match="cuts off mass"):
            function(log_p, Quadratic(0.0, 0.6), -0.5, mesh)


def test_a_log_density_that_is_not_normalised_is_refused():
    mesh = grid(LINE, 256)
    log_p = normal(0.0, 1.0, mesh)
    for call in (kl, gamma_score):
        other = log_p if call is kl else Quadratic()
        with pytest.raises(UserError, match="integrates to 2 "):
            call(log_p + math.log(2), other, *(() if call is kl else (1.0,)), mesh)
    with pytest.raises(ValueError, match="shape"):
        kl(log_p[1:], log_p, mesh)


# Entropy and divergences, closed forms


@pytest.mark.parametrize("alpha", [0.3, 0.999, 1.0, 1.001, 2.0, 5.0])
def test_renyi_entropy_of_a_gaussian(alpha: float):
    mesh = grid(LINE, 512)
    log_ratio = 1.0 if alpha == 1 else math.log(alpha) / (alpha - 1)
    exact = 0.5 * math.log(2 * math.pi * 0.8**2) + 0.5 * log_ratio
    assert renyi_entropy(normal(0.5, 0.8, mesh), alpha, mesh).item() == pytest.approx(exact, abs=1e-12)


def test_renyi_entropy_is_smooth_through_shannon_and_is_the_log_volume_at_zero():
    mesh = grid(LINE, 512)
    log_q = normal(0.5, 0.8, mesh)
    shannon = renyi_entropy(log_q, 1.0, mesh).item()
    for alpha in (1 - 1e-8, 1 + 1e-8):
        assert renyi_entropy(log_q, alpha, mesh).item() == pytest.approx(shannon, abs=1e-8)
    uniform = flat(mesh.points[:, 0].abs() < 2, -math.log(4))
    for alpha in (0.0, 0.5, 1.0, 2.0):
        assert renyi_entropy(uniform, alpha, mesh).item() == pytest.approx(math.log(4), abs=1e-13)
    with pytest.raises(ValueError, match="alpha"):
        renyi_entropy(log_q, -0.1, mesh)


def test_kl_of_gaussians():
    mesh = grid(LINE, 512)
    p, q = (0.5, 0.8), (-0.7, 1.5)
    exact = math.log(q[1] / p[1]) + (p[1] ** 2 + (p[0] - q[0]) ** 2) / (2 * q[1] ** 2) - 0.5
    assert kl(normal(*p, mesh), normal(*q, mesh), mesh).item() == pytest.approx(exact, abs=1e-12)


def test_kl_at_the_ends_of_the_supports():
    mesh = grid(LINE, 512)
    x = mesh.points[:, 0]
    half = flat((x > 0) & (x < 2), -math.log(2))
    whole = flat(x.abs() < 2, -math.log(4))
    assert kl(half, whole, mesh).item() == pytest.approx(math.log(2), abs=1e-13)
    assert kl(whole, half, mesh).item() == math.inf
    # q = 0 where p is positive, but too small for float64
    thin = torch.where(x < 15, normal(0.0, 0.3, mesh), -math.inf)
    assert kl(normal(0.0, 0.3, mesh), thin, mesh).item() == math.inf


@pytest.mark.parametrize("gamma", [*GAMMAS, -1e-8, 1e-8])
def test_gamma_score_of_gaussians(gamma: float):
    mesh, p = grid(Box((-24.0,), (24.0,)), 1024), (0.5, 0.8)
    q = gaussian(-0.7, 1.5)
    exact = gaussian_score(p, q.mu, q.log_sigma, gamma)
    score = gamma_score(normal(*p, mesh), q, gamma, mesh)
    torch.testing.assert_close(score, exact.squeeze(), rtol=0, atol=1e-11)


def test_gamma_score_where_powers_of_q_leave_the_range_of_float64():
    mesh, p = grid(Box((-90.0,), (90.0,)), 2048), (0.5, 0.8)  # q^-0.5 = exp(900) at the ends
    q = gaussian(-0.7, 1.5)
    score, exact = gamma_score(normal(*p, mesh), q, -0.5, mesh), gaussian_score(p, q.mu, q.log_sigma, -0.5).squeeze()
    torch.testing.assert_close(score, exact, rtol=0, atol=1e-11)
    grads = [torch.cat(torch.autograd.grad(value, [q.mu, q.log_sigma])) for value in (score, exact)]
    torch.testing.assert_close(*grads, rtol=0, atol=1e-10)


def test_an_error_of_the_mass_of_p_is_not_divided_by_gamma():
    mesh, q = grid(LINE, 512), gaussian(-0.7, 1.5)
    log_p = normal(0.5, 0.8, mesh)
    exact, off = (gamma_score(log_p + error, q, 1e-8, mesh).item() for error in (0.0, 5e-4))
    assert off == pytest.approx(exact, abs=1e-9)


def test_gamma_score_does_not_see_a_constant():
    mesh, log_p = grid(PLANE, 64), skewed(grid(PLANE, 64))
    net = wavy()
    for gamma in GAMMAS:
        a, b = gamma_score(log_p, net, gamma, mesh), gamma_score(log_p, lambda x: net(x) + 300, gamma, mesh)
        assert a.item() == pytest.approx(b.item(), abs=1e-11 if gamma != 1e-6 else 1e-9)


@pytest.mark.parametrize("gamma", [1e-8, -1e-8])
def test_gamma_to_zero_is_the_likelihood(gamma: float):
    mesh, net = grid(PLANE, 96), wavy()
    log_p = skewed(mesh)
    expected_log_q = (mesh.h * log_p.exp() * log_density(net, mesh)).sum()
    torch.testing.assert_close(gamma_score(log_p, net, 0.0, mesh), expected_log_q, rtol=0, atol=1e-12)
    torch.testing.assert_close(gamma_score(log_p, net, gamma, mesh), expected_log_q, rtol=0, atol=1e-7)
    exact = kl(log_p, log_density(net, mesh), mesh)
    torch.testing.assert_close(gamma_divergence(log_p, net, 0.0, mesh), exact, rtol=0, atol=1e-12)
    torch.testing.assert_close(gamma_divergence(log_p, net, gamma, mesh), exact, rtol=0, atol=1e-7)


@pytest.mark.parametrize("gamma", GAMMAS)
def test_gamma_divergence_is_zero_at_p_and_positive_elsewhere(gamma: float):
    # Strictly proper below 0 too, by the reverse of Hölder's inequality.
    mesh = grid(Box((-24.0,), (24.0,)), 1024)
    log_p = normal(0.5, 1.0, mesh)
    assert gamma_divergence(log_p, gaussian(0.5, 1.0), gamma, mesh).item() == pytest.approx(0, abs=1e-12)
    for mean, sd in ((0.6, 1.0), (0.4, 1.0), (0.5, 1.1), (0.5, 0.9), (-1.0, 1.7)):
        assert gamma_divergence(log_p, gaussian(mean, sd), gamma, mesh).item() > 1e-4


@pytest.mark.parametrize("gamma", GAMMAS)
def test_score_of_p_against_itself_is_a_renyi_entropy(gamma: float):
    mesh = grid(Box((-24.0,), (24.0,)), 1024)
    log_p = normal(0.5, 1.2, mesh)
    score = gamma_score(log_p, gaussian(0.5, 1.2), gamma, mesh)
    assert score.item() == pytest.approx(-renyi_entropy(log_p, gamma + 1, mesh).item() / (gamma + 1), abs=1e-7)


def test_scores_where_q_vanishes():
    mesh = grid(LINE, 512)
    log_p = normal(0.0, 1.0, mesh)

    def half(x: Tensor) -> Tensor:
        return torch.where(x[:, 0].abs() < 1, 0.0, math.inf)

    held = math.log((mesh.h * log_p.exp())[mesh.points[:, 0].abs() < 1].sum().item())
    assert gamma_score(log_p, half, 1.0, mesh).item() == pytest.approx(held - 0.5 * math.log(2), abs=1e-12)
    assert gamma_score(log_p, half, 0.0, mesh).item() == -math.inf
    assert gamma_score(log_p, half, -0.5, mesh).item() == -math.inf


@pytest.mark.parametrize("gamma", [-1.0, -2.0, math.nan, math.inf])
def test_gammas_without_a_score_are_refused(gamma: float):
    mesh = grid(Box((-1.0,), (1.0,), cut=math.inf), 64)
    uniform = torch.full((64,), -math.log(2), dtype=torch.float64)
    for function in (gamma_score, gamma_divergence):
        with pytest.raises(ValueError, match="gamma > -1"):
            function(uniform, Quadratic(), gamma, mesh)


# Gradients


@pytest.mark.parametrize("gamma", GAMMAS)
def test_theorem_2_is_the_gradient_of_the_quadrature(gamma: float):
    mesh, net = grid(PLANE, 64), wavy()
    log_p = skewed(mesh)
    formula = gamma_gradient(log_p, net, gamma, mesh)
    for loss in (-gamma_score(log_p, net, gamma, mesh), gamma_divergence(log_p, net, gamma, mesh)):
        through = torch.autograd.grad(loss, list(net.parameters()))
        for (name, _), grad in zip(net.named_parameters(), through, strict=True):
            torch.testing.assert_close(formula[name], grad, rtol=0, atol=1e-9)
    assert max(g.abs().max().item() for g in formula.values()) > 0.1


@pytest.mark.parametrize("gamma", GAMMAS)
def test_theorem_2_against_the_closed_form_of_a_gaussian(gamma: float):
    mesh, p = grid(Box((-24.0,), (24.0,)), 1024), (0.5, 0.8)
    q = gaussian(-0.7, 1.5)
    exact = torch.autograd.grad(-gaussian_score(p, q.mu, q.log_sigma, gamma).sum(), [q.mu, q.log_sigma])
    formula = gamma_gradient(normal(*p, mesh), q, gamma, mesh)
    torch.testing.assert_close(formula["mu"], exact[0], rtol=0, atol=1e-10)
    torch.testing.assert_close(formula["log_sigma"], exact[1], rtol=0, atol=1e-10)


def test_gradient_of_a_float32_module_is_float64_and_touches_nothing():
    mesh, module = grid(PLANE, 64), wavy(dtype=torch.float32).train()
    next(iter(module.parameters())).requires_grad_(False)
    with torch.no_grad():
        formula = gamma_gradient(skewed(mesh), module, 1.0, mesh)
    wide = gamma_gradient(skewed(mesh), wavy(dtype=torch.float32).double(), 1.0, mesh)
    names = [name for name, _ in module.named_parameters()]
    assert list(formula) == names[1:]
    for name, grad in formula.items():
        torch.testing.assert_close(grad, wide[name], rtol=0, atol=1e-13)
    assert module.training
    assert all(p.grad is None and p.dtype == torch.float32 for p in module.parameters())


def test_gradient_at_gamma_minus_one_is_a_limit_on_a_bounded_space():
    mesh = grid(Box((-2.0,), (3.0,), cut=math.inf), 512)
    log_p, q = log_density(Quadratic(0.3, 1.0), mesh).detach(), Quadratic(-0.5, 1.5)
    limit, close = (gamma_gradient(log_p, q, gamma, mesh)["mu"] for gamma in (-1.0, -1 + 1e-7))
    torch.testing.assert_close(limit, close, rtol=0, atol=1e-6)
    with pytest.raises(UserError, match="cuts off mass"):
        gamma_gradient(normal(0.3, 1.0, grid(LINE, 64)), Quadratic(), -1.0, grid(LINE, 64))
    with pytest.raises(ValueError, match="gamma"):
        gamma_gradient(log_p, q, -1.5, mesh)


def test_gradient_needs_finite_energies():
    class Wall(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.where(x[:, 0] > 0, x[:, 0], math.inf)

    mesh = grid(LINE, 64)
    with pytest.raises(ValueError, match="finite on the whole box"):
        gamma_gradient(normal(0.0, 1.0, mesh), Wall(), 1.0, mesh)


def test_the_estimator_of_theorem_3_converges_to_the_exact_gradient():
    mesh, q, gamma = grid(LINE, 512), gaussian(0.6, 1.4), 1.0
    exact = gamma_gradient(MIXTURE_1D.log_prob(mesh.points), q, gamma, mesh)
    estimates = []
    for batch in range(40):
        x_pos = draw(lambda x: -MIXTURE_1D.log_prob(x), mesh, 5000, generator(3, batch, 0))
        x_neg = draw(q, mesh, 5000, generator(3, batch, 1))
        loss = pseudo_spherical(q(x_pos), q(x_neg), gamma)
        estimates.append(torch.cat(torch.autograd.grad(loss, [q.mu, q.log_sigma])))
    stacked = torch.stack(estimates)
    error = stacked.std(0) / math.sqrt(len(stacked))
    off = (stacked.mean(0) - torch.cat([exact["mu"], exact["log_sigma"]])).abs()
    # The bias, about the squared error of one batch, is a tenth of the error of the mean.
    assert bool((error < 0.005).all())
    assert bool((off < 5 * error).all())


# Draws


def test_draws_follow_a_gaussian():
    x = draw(Quadratic(0.7, 1.3), grid(LINE, 2048), 20_000, generator(4))
    assert x.shape == (20_000, 1)
    assert stats.kstest(x[:, 0].numpy(), stats.norm(0.7, 1.3).cdf).pvalue > 0.01


def test_draws_in_the_plane_keep_axes_apart_and_dependent():
    def energy(x: Tensor) -> Tensor:
        return 0.5 * x[:, 0].square() + 0.5 * ((x[:, 1] - 0.8 * x[:, 0] + 1) / 0.6).square()

    x = draw(energy, grid(PLANE, (512, 640)), 20_000, generator(5))
    assert stats.kstest(x[:, 0].numpy(), "norm").pvalue > 0.01
    assert stats.kstest(((x[:, 1] - 0.8 * x[:, 0] + 1) / 0.6).numpy(), "norm").pvalue > 0.01


def test_draws_from_uneven_cells_and_beside_jumps():
    funnel, cosine = TOYS_2D["funnel"].box, TOYS_2D["cosine"].box
    x = draw(lambda x: -TOYS_2D["funnel"].log_density(x), grid(funnel, 1024), 20_000, generator(6))
    assert stats.kstest((x[:, 0] / 2).numpy(), "norm").pvalue > 0.01
    assert stats.kstest((x[:, 1] / torch.exp(-x[:, 0]).clamp(max=10).sqrt()).numpy(), "norm").pvalue > 0.01
    x = draw(lambda x: -TOYS_2D["cosine"].log_density(x), grid(cosine, 1024), 20_000, generator(7))
    assert x[:, 0].abs().max().item() < 4
    assert stats.kstest(x[:, 0].numpy(), stats.uniform(-4, 8).cdf).pvalue > 0.01
    assert stats.kstest((x[:, 1] - 3 * torch.cos(2 * x[:, 0])).numpy(), "norm").pvalue > 0.01


def test_draws_depend_on_their_generator_alone():
    before = torch.get_rng_state()
    one, two = (draw(Quadratic(), grid(LINE, 64), 5, generator(8)) for _ in range(2))
    assert torch.equal(one, two)
    assert torch.equal(torch.get_rng_state(), before)


# Convergence, and the toys


def test_every_toy_has_a_box_that_holds_its_data():
    for name, toy in TOYS_2D.items():
        x, box = toy(20_000, generator(9)), toy.box
        assert bool((x > 0.7 * torch.tensor(box.low)).all()), name
        assert bool((x < 0.7 * torch.tensor(box.high)).all()), name


def entropy(name: str) -> float:
    """Closed forms; that of `rings` is the quadrature of its radius (scipy)."""
    one = 0.5 * math.log(2 * math.pi * math.e)
    if name == "cosine":
        return math.log(8) + one
    if name == "mog":
        return math.log(2) + 2 * one + math.log(0.25)
    if name == "funnel":
        c = math.log(10)  # E[log var] = E[min(Y, c)] for Y = -x0 of deviation 2
        log_var = c * stats.norm.sf(c / 2) - 2 * stats.norm.pdf(c / 2)
        return 2 * one + math.log(2) + 0.5 * log_var
    from scipy.integrate import quad

    def term(r: float) -> float:
        log_p = TOYS_2D["rings"].log_density(torch.tensor([[r, 0.0]], dtype=torch.float64)).item()
        return -2 * math.pi * r * math.exp(log_p) * log_p

    return quad(term, 0, 8, points=[1, 3, 5], epsabs=1e-10, limit=200)[0]


@pytest.mark.parametrize("name", DENSITIES_2D)
def test_toy_densities_integrate_to_one_on_a_converged_grid(name: str):
    mesh, report = converged_grid(lambda x: -TOYS_2D[name].log_density(x), TOYS_2D[name].box)
    assert report.shape == mesh.shape
    assert report.change < 1e-6
    assert abs(report.log_partition) < 1e-6
    if name in WITH_ENTROPY:
        assert report.mean_energy == pytest.approx(entropy(name), abs=1e-6)
    assert math.prod(mesh.shape) <= 2**16


def second_moment(name: str) -> float:
    """E|x|^2."""
    if name == "cosine":
        return 16 / 3 + 9 * (0.5 + math.sin(16) / 32) + 1
    if name == "mog":
        return 16 + 2 * 0.25
    if name == "funnel":
        c = math.log(10)  # E[var] = E[min(exp(Y), 10)] for Y = -x0 of deviation 2
        return 4 + math.exp(2) * stats.norm.cdf((c - 4) / 2) + 10 * stats.norm.sf(c / 2)
    return 17 + 2 * 0.04


@pytest.mark.parametrize("name", WITH_ENTROPY)
def test_divergences_from_the_toys_are_exact_on_a_converged_grid(name: str):
    q, log_p = gaussian(0.0, 1.5, dim=2), TOYS_2D[name].log_density
    mesh, _ = converged_grid(q, TOYS_2D[name].box, log_p=log_p)
    exact = second_moment(name) / (2 * 1.5**2) + math.log(2 * math.pi * 1.5**2) - entropy(name)
    on_grid = log_p(mesh.points)
    assert kl(on_grid, log_density(q, mesh), mesh).item() == pytest.approx(exact, abs=2e-6)
    assert gamma_divergence(on_grid, q, 0.0, mesh).item() == pytest.approx(exact, abs=2e-6)


def test_a_converged_grid_refines_the_axis_that_needs_it():
    def energy(x: Tensor) -> Tensor:
        return 0.5 * (x[:, 0] / 3).square() + 0.5 * (x[:, 1] / 0.05).square()

    mesh, report = converged_grid(energy, Box((-18.0, -18.0), (18.0, 18.0)))
    assert mesh.shape == (64, 1024)
    assert report.log_partition == pytest.approx(math.log(2 * math.pi * 0.15), abs=1e-7)
    assert report.mean_energy == pytest.approx(1, abs=1e-6)


def test_a_converged_grid_settles_a_p_that_is_sharper_than_q():
    q, log_p = gaussian(0.0, 1.5, dim=2), lambda x: -50 * (x - 0.3).square().sum(1) + math.log(50 / math.pi)
    exact = (0.02 + 0.18) / (2 * 1.5**2) + math.log(2 * math.pi * 1.5**2) - math.log(2 * math.pi * math.e * 0.01)
    box = Box((-9.0, -9.0), (9.0, 9.0))
    assert converged_grid(q, box)[0].shape == (64, 64)
    mesh, report = converged_grid(q, box, log_p=log_p)
    assert report.change < 1e-6
    assert kl(log_p(mesh.points), log_density(q, mesh), mesh).item() == pytest.approx(exact, abs=1e-6)


def test_an_integral_that_does_not_settle_is_an_error():
    with pytest.raises(UserError, match="still change by"):
        converged_grid(Quadratic(0.0, 1e-3), Box((-18.0,), (18.0,)), max_points=1024)


# Maximum mean discrepancy


def kernel(x: Tensor, y: Tensor, bandwidth: float) -> Tensor:
    return torch.exp(-(x[:, None] - y[None]).square().sum(2) / (2 * bandwidth**2))


@pytest.mark.parametrize(
    ("box", "shape"),
    [
        (Box((-3.0, -4.0), (3.0, 2.0), cut=math.inf), (14, 17)),
        (Box((-3.0, -4.0), (3.0, 2.0), core=(None, 0.2), cut=math.inf), (14, 17)),
        (Box((-3.0,), (3.0,), cut=math.inf), (30,)),
    ],
)
def test_mmd_against_the_sum_over_all_pairs(box: Box, shape: tuple[int, ...]):
    mesh, bandwidth, d = grid(box, shape), 0.9, len(shape)
    log_p = log_density(Quadratic(0.4, 0.8, dim=d), mesh).detach()
    log_q = log_density(Quadratic(-0.3, 1.1, dim=d), mesh).detach()
    p, q = mesh.h * log_p.exp(), mesh.h * log_q.exp()
    k = kernel(mesh.points, mesh.points, bandwidth)
    torch.testing.assert_close(mmd_between(log_p, log_q, mesh, bandwidth), (p - q) @ k @ (p - q), rtol=0, atol=1e-14)
    real = torch.randn(9, d, generator=generator(10)) + 0.2
    within = kernel(real.double(), real.double(), bandwidth)
    pairs = (within.sum() - within.trace()) / (9 * 8)
    brute = pairs - 2 * (kernel(real.double(), mesh.points, bandwidth) @ q).mean() + q @ k @ q
    torch.testing.assert_close(mmd_to_density(real, log_q, mesh, bandwidth), brute, rtol=0, atol=1e-14)


def test_mmd_of_gaussians_in_closed_form():
    mesh, b = grid(LINE, 512), 0.7

    def mean_kernel(shift: float, variance: float) -> float:
        return b / math.sqrt(b * b + variance) * math.exp(-(shift**2) / (2 * (b * b + variance)))

    exact = mean_kernel(0, 2 * 0.8**2) + mean_kernel(0, 2 * 1.5**2) - 2 * mean_kernel(1.2, 0.8**2 + 1.5**2)
    value = mmd_between(normal(0.5, 0.8, mesh), normal(-0.7, 1.5, mesh), mesh, b)
    assert value.item() == pytest.approx(exact, abs=1e-13)


def test_mmd_to_the_own_density_is_zero_on_average():
    # One U-statistic of 500 points scatters by about 1e-3; that its mean is 0 shows that nothing is biased.
    mesh = grid(LINE, 256)
    log_q = normal(0.0, 1.0, mesh)
    values = torch.stack(
        [mmd_to_density(draw(Quadratic(), mesh, 500, generator(11, i)), log_q, mesh) for i in range(100)]
    )
    error = values.std().item() / 10
    assert error < 2e-4
    assert abs(values.mean().item()) < 5 * error


def test_mmd_needs_points_of_the_right_shape():
    mesh = grid(LINE, 64)
    log_q = normal(0.0, 1.5, mesh)
    for real in (torch.zeros(1, 1), torch.zeros(4, 2), torch.zeros(4)):
        with pytest.raises(ValueError, match="at least two points"):
            mmd_to_density(real, log_q, mesh)


def test_log_integral_is_differentiable():
    mesh = grid(LINE, 64)
    log_f = normal(0.0, 1.5, mesh).requires_grad_()
    (grad,) = torch.autograd.grad(log_integral(log_f, mesh), log_f)
    torch.testing.assert_close(grad, mesh.h * normal(0.0, 1.5, mesh).exp(), rtol=0, atol=1e-12)


def test_the_integrals_that_have_to_converge_by_hand():
    """Log Z, -E_q[E] twice, the log mass of p, -E_p[E] and E_p[log p], of Gaussians."""
    mesh = exact.grid(exact.Box((-20.0,), (20.0,)), 2000)
    p = torch.distributions.Normal(*torch.tensor([1.0, 0.5]).double())

    def energy(x):
        return 0.5 * x[:, 0] ** 2 + 3.0

    result = exact._integrals(energy, lambda x: p.log_prob(x[:, 0]), mesh)
    log_z = 0.5 * math.log(2 * math.pi) - 3.0
    entropy = 0.5 * math.log(2 * math.pi * math.e * 0.25)
    assert result == pytest.approx([log_z, -3.5, -3.5, 0.0, -(0.5 * (1 + 0.25) + 3.0), -entropy], abs=1e-8)
    assert exact._integrals(energy, None, mesh) == pytest.approx([log_z, -3.5, -3.5], abs=1e-9)
    _, how = exact.converged_grid(energy, exact.Box((-20.0,), (20.0,)))
    assert (how.log_partition, how.mean_energy) == pytest.approx((log_z, 3.5))
    assert how.change < 1e-6


def test_each_axis_is_refined_on_its_own_up_to_the_largest_grid():
    """Narrow along the first axis alone; the grid is one on which every doubling would still have fitted."""
    box = exact.Box((-8.0, -8.0), (8.0, 8.0))

    def energy(x):
        return 8.0 * x[:, 0] ** 2 + 0.5 * x[:, 1] ** 2

    mesh, how = exact.converged_grid(energy, box, start=(16, 32))
    assert how.shape == mesh.shape == (64, 32)
    exact.converged_grid(energy, box, start=(16, 32), max_points=2 * 64 * 32)
    with pytest.raises(UserError, match="still change by"):
        exact.converged_grid(energy, box, start=(16, 32), max_points=2 * 64 * 32 - 1)
