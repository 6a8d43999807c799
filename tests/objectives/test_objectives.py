import copy
import math

import pytest
import torch
from torch import nn

from pscd import exact
from pscd.config import ChainSettings, GuardSettings, OptimizerSettings, TrainConfig
from pscd.data.toys import contaminated_1d
from pscd.energies import MLP, Architecture, Correction, Quadratic
from pscd.errors import UserError
from pscd.losses import (
    DIVERGENCES,
    contrastive_divergence,
    denoising_score_matching,
    density_power,
    energy_spread,
    f_ebm,
    free_energy,
    importance_weights,
    noise_contrastive,
    pseudo_spherical,
    squares,
)
from pscd.objectives import (
    FEBM,
    OBJECTIVES,
    DenoisingScoreMatching,
    DensityPower,
    NoiseContrastive,
    PseudoSpherical,
    ScoreMatching,
    SlicedScoreMatching,
    Trimmed,
    WeightedNegatives,
    phase_stats,
    weighted_median,
)
from pscd.objectives.f_ebm import with_new_weights
from pscd.rng import generator, integer_seed
from pscd.training.fit import fit
from pscd.training.guard import diagnose


@pytest.fixture
def batch():
    torch.manual_seed(0)
    return MLP((2,), width=8), torch.randn(6, 2, generator=generator(0)), torch.randn(6, 2, generator=generator(1))


def test_binds_the_loss_and_adds_the_l2_term(batch):
    energy, x_pos, x_neg = batch
    e_pos, e_neg = energy(x_pos), energy(x_neg)
    loss, stats = PseudoSpherical(gamma=0.5, l2=0.1)(energy, None, x_pos, x_neg, generator(0))
    expected = pseudo_spherical(e_pos, e_neg, 0.5) + 0.1 * (e_pos.square().mean() + e_neg.square().mean())
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(stats["e_pos"], e_pos.mean().detach())
    assert 1 / 6 <= stats["ess_neg"] <= 1


def test_contrastive_divergence_is_the_member_gamma_zero(batch):
    energy, x_pos, x_neg = batch
    loss, stats = OBJECTIVES["cd"](energy, None, x_pos, x_neg, generator(0))
    torch.testing.assert_close(loss, contrastive_divergence(energy(x_pos), energy(x_neg)))
    assert stats["ess_pos"] == 1


@pytest.mark.parametrize(
    ("warmup", "progress", "gamma"), [(0.5, 0.0, 0.0), (0.5, 0.25, 1.0), (0.5, 0.9, 2.0), (0, 0, 2)]
)
def test_gamma_warms_up_from_zero(warmup, progress, gamma):
    assert PseudoSpherical(gamma=2.0, warmup=warmup).at(progress).gamma == pytest.approx(gamma)


def test_negatives_drawn_from_r_are_not_weighted_again(batch):
    energy, x_pos, x_neg = batch
    objective = PseudoSpherical(gamma=1.0, warmup=0.5, negatives="direct")
    assert objective.sampling_power == 2
    assert objective.at(0.25).sampling_power == 1.5
    assert PseudoSpherical(gamma=1.0).sampling_power == 1
    loss, _ = objective(energy, None, x_pos, x_neg, generator(0))
    torch.testing.assert_close(loss, free_energy(energy(x_pos), 1.0) - energy(x_neg).mean())
    with pytest.raises(UserError, match="flat"):
        PseudoSpherical(gamma=-1.0, negatives="direct")
    with pytest.raises(UserError, match="negatives must be"):
        PseudoSpherical(negatives="none")


@pytest.mark.parametrize(("gamma", "power"), [(1.0, 1.0), (0.0, 1.0), (-0.5, 0.5), (-1.0, 1.0)])
def test_below_zero_negatives_are_drawn_from_r_unless_it_is_flat(gamma, power):
    assert PseudoSpherical(gamma=gamma).sampling_power == power
    assert PseudoSpherical(gamma=gamma, negatives="weighted").sampling_power == 1


def test_weighted_median_by_hand():
    values = torch.tensor([3.0, 1.0, 2.0])
    assert weighted_median(values, torch.full((3,), 1 / 3)) == values.median()
    assert weighted_median(values, torch.tensor([0.6, 0.3, 0.1])) == 3
    assert weighted_median(values, torch.tensor([0.2, 0.7, 0.1])) == 1


@pytest.mark.parametrize("gamma", [-0.5, 0.5])
def test_the_gap_of_the_true_model_is_nothing_in_either_way_of_drawing(gamma):
    # Energies of a standard Gaussian: data from it, negatives from it or from r = N(0, 1 / (1 + gamma)).
    z = torch.randn(200_000, 2, generator=generator(0))
    other = torch.randn(200_000, 2, generator=generator(1))
    e_pos = 0.5 * z.square().sum(1)
    from_q = phase_stats(e_pos, 0.5 * other.square().sum(1), gamma)
    from_r = phase_stats(e_pos, 0.5 * other.square().sum(1) / (1 + gamma), gamma, drawn_from_r=True)
    # A median of an exponential energy has standard error 1 / sqrt(n); weights enlarge it at most threefold.
    assert abs(from_q["gap"]) < 5 * 3 * 2**0.5 / 200_000**0.5
    assert abs(from_r["gap"]) < 5 * 3 * 2**0.5 / 200_000**0.5 / (1 + gamma)
    assert from_r["ess_neg"] == pytest.approx(1.0, rel=1e-4)


# Recovery likelihood needs a network of its own, see test_recovery.py.
ANY_NETWORK = {name: objective for name, objective in OBJECTIVES.items() if name != "recovery"}
RECOVERING = {
    **ANY_NETWORK,
    "dsm": DenoisingScoreMatching(sigma=0.5),  # little noise takes many updates
    **{f"f-ebm, {name}": FEBM(divergence=name) for name in DIVERGENCES if name != "kl"},
    "nce, gaussian": NoiseContrastive(noise="gaussian", ratio=4),
}


@pytest.fixture(scope="module")
def gaussian():
    return 3 + 2 * torch.randn(5000, 1, generator=generator(0))


def recovered(x, objective, start=(0.5, 1.5), settings=None):
    """The Gaussian that training ends with, in the network's coordinates, the model, and the log."""
    rows = []
    config = TrainConfig(
        objective=objective,
        energy=Architecture(name="quadratic"),
        updates=200,
        chains=ChainSettings(buffer_size=1000, jump_components=2),
        optimizer=OptimizerSettings(lr=0.02),
        guard=GuardSettings(log_every=10),
    ).changed(settings or {})
    model = fit(x, config=config, energy=Quadratic(*start), callbacks=[lambda at: rows.append(at["stats"])])
    return model.network.mu.item(), model.network.sigma.item(), model, rows


@pytest.mark.parametrize("name", RECOVERING)
def test_every_objective_recovers_a_gaussian(name, gaussian):
    objective = RECOVERING[name]
    mu, sigma, model, rows = recovered(gaussian, objective)
    # Of 5000 rows the moments are known to 0.014 and 0.01; updates on batches of 256 roughly double that.
    # A standard Gaussian without the tenth beyond 1.645 has variance 1 - 2 * 1.645 * 0.1031 / 0.9.
    narrower = math.sqrt(1 - 2 * 1.645 * 0.1031 / 0.9)
    expected = {"negatives-only": math.sqrt(2), "dsm": math.hypot(1, 0.5), "trim": narrower}.get(name, 1.0)
    assert mu == pytest.approx(0, abs=0.1)
    assert sigma == pytest.approx(expected, rel=0.05)
    assert diagnose(rows) == ["no problem found"]
    samples = model.sample(1000)
    # The step has settled, whether or not chains ran while training; a mean of 1000 draws is known to 0.06 * expected.
    assert samples.mean().item() == pytest.approx(3, abs=0.2 + 5 * 0.064 * expected)
    assert samples.std().item() == pytest.approx(2 * expected, rel=0.15)


@pytest.mark.parametrize(("gamma", "mean", "sd"), [(0.0, -1 + 0.2 * 3, math.sqrt(1.85)), (1.0, -1.0, math.sqrt(0.5))])
def test_gamma_leaves_junk_out_and_maximum_likelihood_does_not(gamma, mean, sd):
    """A fifth from N(2, .05) beside N(-1, .5): CD takes all moments, 0.8 x .5 + 0.2 x .05 + 0.16 x 9 = 1.85."""
    x = contaminated_1d(0.2).sample(5000, generator(0))[:, None].float()
    objective = PseudoSpherical(gamma=gamma, warmup=0.0)
    result = recovered(x, objective, (-0.5, 1.0), {"rows.standardise": "none"})
    assert result[:2] == pytest.approx((mean, sd), abs=0.05)  # .016 to .022 beside it with seeds 0 to 2


def test_nce_recovers_log_z(gaussian):
    _, sigma, _, rows = recovered(gaussian, NoiseContrastive(ratio=4), settings={"updates": 600})
    assert rows[-1]["log_z"] == pytest.approx(0.5 * math.log(2 * math.pi) + math.log(sigma), rel=0.01)
    assert 0.4 < rows[-1]["told_apart"] < 0.6  # noise fitted to the data is hard to tell from them


def test_the_first_log_z_is_the_noise_s_estimate():
    energy, x = Quadratic(0.2, 0.5), torch.randn(2000, 1, generator=generator(0))
    torch.manual_seed(0)
    aux = NoiseContrastive().init(energy, x)
    # Importance weights of 10,000 draws vary by about one: a hundredth.
    assert aux.log_z.item() == pytest.approx(math.log(0.5 * math.sqrt(2 * math.pi)), abs=0.05)


@pytest.mark.parametrize("objective", [ScoreMatching(), SlicedScoreMatching(), DenoisingScoreMatching(sigma=0.5)])
def test_score_matching_learns_a_network(objective, small):
    """In the plane, against the known slope of a Gaussian with correlation, noised for the denoising one."""
    covariance = torch.tensor([[1.0, 0.6], [0.6, 1.0]])
    x = torch.randn(4000, 2, generator=generator(0)) @ torch.linalg.cholesky(covariance).T
    config = small.changed(
        {"objective": objective, "updates": 300, "batch_size": 128, "optimizer.lr": 0.01, "rows.standardise": "none"}
    )
    model = fit(x, config=config)
    covariance = covariance + getattr(objective, "sigma", 0.0) ** 2 * torch.eye(2)
    points = x[:500].clone().requires_grad_()
    (slope,) = torch.autograd.grad(model(points).sum(), points)
    exact = points.detach() @ torch.linalg.inv(covariance)
    assert ((slope - exact).square().mean() / exact.square().mean()).sqrt() < 0.35  # 1 if nothing is learnt


def test_exact_score_matching_refuses_many_columns_and_says_what_to_do():
    with pytest.raises(UserError, match=r"there are 11; .*use sliced score matching"):
        ScoreMatching().init(Quadratic(dim=11), torch.zeros(3, 11))


def test_a_critic_has_weights_of_its_own(batch):
    """With the energy's own weights it would get the energy's gradient, and the game would be over."""
    energy, x_pos, x_neg = batch
    torch.manual_seed(1)
    other = with_new_weights(energy)
    assert torch.equal(other.frequencies, energy.frequencies)
    for (name, new), old in zip(other.named_parameters(), energy.parameters(), strict=True):
        assert not torch.isclose(new, old).any(), name
    first = [module.net[2].weight for module in (energy, other)]
    assert first[1].std().item() == pytest.approx(first[0].std().item(), rel=0.3)  # 64 entries: known to 9 %
    assert not torch.equal(with_new_weights(Quadratic(0.3)).mu, torch.tensor([0.3]))

    aux = FEBM().init(energy, x_pos)
    aux.network.load_state_dict(energy.state_dict())
    loss, _ = FEBM(divergence="js")(energy, aux, x_pos, x_neg, generator(0))
    ours = torch.autograd.grad(loss, list(energy.parameters()), retain_graph=True)
    torch.testing.assert_close(torch.autograd.grad(loss, list(aux.network.parameters())), ours)


def test_f_ebm_trains_the_squares_first_and_counts_in_the_state(batch):
    energy, x_pos, x_neg = batch
    torch.manual_seed(1)
    objective = FEBM(l2=0.1, l2_first=2)
    aux = objective.init(energy, x_pos)
    e_pos, e_neg, c_pos, c_neg = energy(x_pos), energy(x_neg), aux(x_pos), aux(x_neg)
    both = 0.1 * (squares(e_pos, e_neg) + squares(c_pos, c_neg))
    game = f_ebm(e_pos, e_neg, c_pos, c_neg, DIVERGENCES["kl"])
    resumed = objective.init(energy, x_pos)
    for expected in (both, both, game + both):
        torch.testing.assert_close(objective(energy, aux, x_pos, x_neg, generator(0))[0], expected)
        resumed.load_state_dict(copy.deepcopy(aux.state_dict()))
        aux = resumed
    aux = objective.init(energy, x_pos)
    without = FEBM(divergence="js")(energy, aux, x_pos, x_neg, generator(0))[1]
    assert {"divergence", "critic", "gap", "e_pos", "e_neg"} <= without.keys()
    u_pos, u_neg = energy(x_pos) + aux(x_pos), energy(x_neg) + aux(x_neg)
    js = math.log(2) - torch.log1p(torch.exp(-u_pos)).mean() - (torch.log1p(torch.exp(u_neg)) - math.log(2)).mean()
    torch.testing.assert_close(without["divergence"], js.detach())
    torch.testing.assert_close(without["critic"], u_neg.mean().detach())


# Best Gaussians for a mixture, by direct minimisation, as printed at the end of the authors' 1-D program.
PUBLISHED = {"kl": (1.011, 1.829), "reverse-kl": (1.585, 1.631), "hellinger": (1.320, 1.731), "js": (1.303, 1.767)}


def best_gaussian(divergence, updates):
    uniform, z = torch.rand(20_000, generator=generator(0)), torch.randn(20_000, generator=generator(1))
    x = torch.where(uniform < 0.33, -1 + 0.25 * z, 2 + 2**0.5 * z)[:, None]
    objective = FEBM(divergence=divergence, critic="mlp")
    mu, sigma, _, _ = recovered(
        x,
        objective,
        settings={"updates": updates, "rows.standardise": "none", "optimizer.lr": 0.01, "chains.jump_components": 4},
    )
    return mu, sigma


def test_f_ebm_finds_the_gaussian_that_its_divergence_prefers():
    """A Gaussian cannot be this mixture: reverse KL settles on the wider part, KL in between."""
    assert best_gaussian("reverse-kl", updates=600) == pytest.approx(PUBLISHED["reverse-kl"], abs=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("divergence", PUBLISHED)
def test_f_ebm_finds_the_published_gaussians(divergence):
    assert best_gaussian(divergence, updates=3000) == pytest.approx(PUBLISHED[divergence], abs=0.1)


def test_a_divergence_of_one_s_own_is_chosen_by_its_name(batch, monkeypatch):
    energy, x_pos, x_neg = batch
    monkeypatch.setitem(DIVERGENCES, "mine", DIVERGENCES["js"])
    torch.manual_seed(1)
    aux = FEBM(divergence="mine").init(energy, x_pos)
    losses = [FEBM(divergence=name)(energy, aux, x_pos, x_neg, generator(0))[0] for name in ("mine", "js")]
    assert torch.equal(*losses)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (FEBM, {"divergence": "total"}),
        (FEBM, {"critic": "mine"}),
        (FEBM, {"l2": -1.0}),
        (FEBM, {"share": 1.5}),
        (FEBM, {"warmup": -1.0}),
        (FEBM, {"l2_first": -1}),
        (NoiseContrastive, {"noise": "uniform"}),
        (NoiseContrastive, {"ratio": 0}),
        (NoiseContrastive, {"components": 0}),
        (NoiseContrastive, {"divergence": "total"}),
        (DenoisingScoreMatching, {"sigma": 0.0}),
        (DenoisingScoreMatching, {"first_sigma": 0.0}),
        (ScoreMatching, {"sigma": -1.0}),
        (ScoreMatching, {"warmup": 2.0}),
        (SlicedScoreMatching, {"first_sigma": math.inf}),
        (SlicedScoreMatching, {"n_projections": 0}),
        (DensityPower, {"beta": -0.5}),
        (DensityPower, {"warmup": 2.0}),
        (WeightedNegatives, {"gamma": -2.0}),
        (Trimmed, {"alpha": 1.0}),
        (Trimmed, {"alpha": -0.1}),
    ],
)
def test_settings_out_of_range_are_refused(kind, settings):
    (name,) = settings
    with pytest.raises(UserError, match=name):
        kind(**settings)


@pytest.mark.parametrize("name", ANY_NETWORK)
def test_every_objective_takes_rows_of_any_shape_and_leaves_the_global_generator_alone(name):
    torch.manual_seed(0)
    energy = nn.Sequential(nn.Flatten(), MLP((8,), width=8))
    x_pos, x_neg = (torch.randn(6, 2, 4, generator=generator(i)) for i in range(2))
    objective = OBJECTIVES[name]
    aux = objective.init(energy, torch.randn(40, 2, 4, generator=generator(2)))
    before = torch.get_rng_state()
    losses = [objective.at(1.0)(energy, aux, x_pos, x_neg, generator(3)) for _ in range(2)]
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(losses[0][0], losses[1][0])
    assert all(value.ndim == 0 and not value.requires_grad for value in losses[0][1].values())
    losses[0][0].backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in energy.parameters())


def test_noise_of_score_matching_falls_by_equal_factors_and_ends_at_its_setting():
    objective = DenoisingScoreMatching(sigma=0.1, first_sigma=1.6, warmup=0.5)
    assert [objective.at(p).sigma for p in (0, 0.125, 0.25, 0.5, 1)] == pytest.approx([1.6, 0.8, 0.4, 0.1, 0.1])
    for objective in (ScoreMatching(), SlicedScoreMatching()):
        assert objective.at(0.0).sigma == 1
        assert 0.05 < objective.at(0.49).sigma < 0.06
        assert objective.at(0.5).sigma == 0
    assert ScoreMatching(warmup=0.0).at(0.0).sigma == 0


@pytest.mark.parametrize("kind", [ScoreMatching, SlicedScoreMatching])
def test_score_matching_with_noise_is_that_of_noisy_data(kind, batch):
    energy, x_pos, x_neg = batch
    x = x_pos + 0.5 * torch.randn(x_pos.shape, generator=generator(3))
    noisy, _ = kind(sigma=0.5)(energy, None, x_pos, x_neg, generator(3))
    # Noise of its own is drawn with sigma 0 too, so that the directions that follow are the same.
    torch.testing.assert_close(noisy, kind()(energy, None, x, x_neg, generator(3))[0])
    assert not torch.isclose(noisy, kind()(energy, None, x_pos, x_neg, generator(3))[0])


def test_f_ebm_turns_from_kl_into_its_divergence(batch):
    energy, x_pos, x_neg = batch
    torch.manual_seed(1)
    aux = FEBM().init(energy, x_pos)
    objective = FEBM(divergence="js", warmup=0.5)
    assert [objective.at(p).share for p in (0.0, 0.25, 1.0)] == [0, 0.5, 1]

    def loss(objective):
        return objective(energy, aux, x_pos, x_neg, generator(0))[0]

    kl, js = loss(FEBM()), loss(FEBM(divergence="js"))
    torch.testing.assert_close(loss(objective.at(0.0)), kl)
    torch.testing.assert_close(loss(objective.at(0.25)), (kl + js) / 2)
    assert torch.equal(loss(objective.at(0.5)), js)


def test_beta_warms_up_and_is_logged(batch):
    energy, x_pos, x_neg = batch
    assert DensityPower(beta=1.0, warmup=0.5).at(0.25).beta == 0.5
    loss, stats = DensityPower(beta=0.5).at(0.0)(energy, None, x_pos, x_neg, generator(0))
    torch.testing.assert_close(loss, contrastive_divergence(energy(x_pos), energy(x_neg)))
    assert stats["beta"] == 0


def test_gamma_in_spreads_does_not_depend_on_the_scale_of_the_energy():
    torch.manual_seed(0)
    energy = nn.Sequential(nn.Linear(3, 16), nn.SiLU(), nn.Linear(16, 1), nn.Flatten(0))
    x_pos, x_neg = torch.randn(64, 3), torch.randn(64, 3)
    objective = PseudoSpherical(gamma=1.0, unit="spread")
    for factor in (1e-3, 1.0, 1e3):
        loss, stats = objective(lambda x, factor=factor: factor * energy(x), None, x_pos, x_neg, generator(0))
        torch.testing.assert_close(stats["spread"], factor * energy_spread(energy(x_pos)))
        if factor == 1e-3:
            first = loss / factor, stats["ess_pos"], stats["ess_neg"]
        torch.testing.assert_close((loss / factor, stats["ess_pos"], stats["ess_neg"]), first)


def test_gamma_in_spreads_is_gamma_in_nats_where_the_spread_is_one():
    e = torch.randn(64, generator=generator(0)).double()
    e = e / energy_spread(e)
    energy = lambda x: x[:, 0]  # noqa: E731
    x_pos, x_neg = e[:, None], e.flip(0)[:, None] + 0.3
    in_nats, stats = PseudoSpherical(gamma=0.7, l2=0.1)(energy, None, x_pos, x_neg, generator(0))
    in_spreads, others = PseudoSpherical(gamma=0.7, l2=0.1, unit="spread")(energy, None, x_pos, x_neg, generator(0))
    torch.testing.assert_close(in_spreads, in_nats)
    torch.testing.assert_close({name: others[name] for name in stats}, stats)


def test_the_spread_leaves_three_quarters_in_play_whatever_the_junk():
    # Energies of a 2-D Gaussian are exponential with mean 1; here on exact quantiles.
    e = -torch.log1p(-torch.linspace(0, 0.99999, 100_001, dtype=torch.float64))
    assert energy_spread(e).item() == pytest.approx(1.0, abs=2e-3)
    outliers = torch.cat([e, torch.full((11_111,), 1e4, dtype=torch.float64)])  # a tenth
    for energies in (e, 1e-5 * e - 3, outliers):
        weights = importance_weights(energies / energy_spread(energies), 1.0)
        assert 1 / (len(energies) * weights.square().sum().item()) == pytest.approx(0.75, abs=2e-3)
    # Outliers are part of the quarter with negligible weight, so the others are weighted more evenly.
    assert 1 < energy_spread(outliers).item() < 2
    assert energy_spread(torch.zeros(8)).isfinite()


def test_the_squares_ignore_the_rows_that_the_score_ignores():
    e_pos = torch.tensor([0.1, 0.2, 50.0], requires_grad=True)
    e_neg = torch.tensor([0.1, 0.3])
    (pull,) = torch.autograd.grad(squares(e_pos, e_neg, 1.0), e_pos)
    weights = importance_weights(e_pos.detach(), 1.0)
    torch.testing.assert_close(pull, 2 * weights * e_pos.detach())
    assert pull[2] < 1e-15
    torch.testing.assert_close(squares(e_pos, e_neg), e_pos.square().mean() + e_neg.square().mean())


def test_a_wrong_unit_is_told():
    with pytest.raises(UserError, match="nats, spread"):
        PseudoSpherical(unit="volts")


def test_gamma_auto_is_no_number_until_training_starts():
    objective = PseudoSpherical(gamma="auto")
    for use in (lambda: objective.number, lambda: objective.at(0.5), lambda: objective.sampling_power):
        with pytest.raises(UserError, match="becomes a number when training starts"):
            use()
    assert PseudoSpherical(gamma=0.7).number == 0.7


@pytest.mark.parametrize(
    ("kind", "name", "good", "bad"),
    [
        *[
            (k, "warmup", (0.0, 1.0), (-1e-9, 1 + 1e-9, math.nan))
            for k in (PseudoSpherical, FEBM, ScoreMatching, DensityPower)
        ],
        *[(k, "l2", (0.0, 2.0), (-1e-9, math.nan)) for k in (PseudoSpherical, FEBM, DensityPower)],
        (PseudoSpherical, "gamma", (-1.0, 0.0, "auto"), (-1 - 1e-9, math.inf, math.nan)),
        (WeightedNegatives, "gamma", (-1.0, 0.0), (-1 - 1e-9, math.inf)),
        (FEBM, "share", (0.0, 1.0), (-1e-9, 1 + 1e-9)),
        (FEBM, "l2_first", (0,), (-1,)),
        (NoiseContrastive, "ratio", (1,), (0,)),
        (NoiseContrastive, "components", (1,), (0,)),
        (DensityPower, "beta", (0.0, 3.0), (-1e-9, math.inf, math.nan)),
        (ScoreMatching, "sigma", (0.0, 3.0), (-1e-9, math.inf)),
        (ScoreMatching, "first_sigma", (1e-9,), (0.0, math.inf)),
        (DenoisingScoreMatching, "sigma", (1e-9,), (0.0, math.inf, -1.0)),
        (SlicedScoreMatching, "n_projections", (1,), (0,)),
        (SlicedScoreMatching, "sigma", (0.0,), (-1e-9,)),
        (Trimmed, "alpha", (0.0, 0.999), (-1e-9, 1.0)),
    ],
)
def test_settings_include_their_ends_as_they_say(kind, name, good, bad):
    for value in good:
        assert getattr(kind(**{name: value}), name) == value
    for value in bad:
        with pytest.raises(UserError, match=name):
            kind(**{name: value})


def test_energies_that_are_all_equal_have_the_least_spread():
    """Otherwise the weights would be those of 0 / 0."""
    objective = PseudoSpherical(gamma=1.0, unit="spread")
    x = torch.tensor([[0.0], [2.0]])

    def energy(x):
        return 1e-7 * x[:, 0]

    _, stats = objective(energy, None, torch.ones(4, 1), x, generator(0))
    assert stats["spread"] == pytest.approx(1e-6)
    weights = importance_weights(energy(x) / 1e-6, 1.0)
    assert stats["ess_neg"] == pytest.approx(float(1 / (2 * weights.square().sum())), rel=1e-5)


@pytest.mark.parametrize(("gamma", "negatives", "power"), [(-0.5, "auto", 0.5), (-1.0, "auto", 1.0), (0.0, "auto", 1.0),
    (0.5, "auto", 1.0), (0.5, "direct", 1.5), (-0.5, "weighted", 1.0), (0.0, "direct", 1.0)])  # fmt: skip
def test_what_chains_sample(gamma, negatives, power):
    assert PseudoSpherical(gamma=gamma, negatives=negatives).sampling_power == power


def test_the_weighted_median_has_half_of_the_weight_at_or_below_it():
    values = torch.tensor([3.0, 1.0, 2.0])
    assert weighted_median(values, torch.tensor([0.25, 0.5, 0.25])) == 1
    assert weighted_median(values, torch.tensor([0.25, 0.49, 0.26])) == 2
    assert weighted_median(values, torch.tensor([2.0, 1.0, 1.0])) == 2


def test_new_weights_by_hand():
    """Drawn around the mean of a tensor with its deviation, or a tenth where all entries are equal."""
    module = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))
    with torch.no_grad():
        module[0].bias.fill_(0.7)
    torch.manual_seed(5)
    other = with_new_weights(module)
    torch.manual_seed(5)
    for new, old in zip(other.parameters(), module.parameters(), strict=True):
        spread = old.std(correction=0) if old.unique().numel() > 1 else torch.tensor(0.1)
        torch.testing.assert_close(new, old.mean() + spread * torch.randn_like(old))


def test_noise_contrastive_estimation_by_hand(batch):
    """The first log Z from draws of the noise, then a loss of data and four times as many rows of it."""
    energy, x_pos, _ = batch
    x = torch.randn(60, 2, generator=generator(3))
    objective = NoiseContrastive(noise="gaussian")
    torch.manual_seed(7)
    aux = objective.init(energy, x)
    torch.manual_seed(7)
    seed = integer_seed(torch.default_generator)
    y = aux.density.sample(10_000, generator(seed))
    weights = -energy(y).detach() - aux.density.log_prob(y)
    assert aux.log_z.item() == pytest.approx((torch.logsumexp(weights, 0) - math.log(len(y))).item(), rel=1e-5)
    loss, stats = objective(energy, aux, x_pos, x_pos[:0], generator(4))
    y = aux.density.sample(4 * len(x_pos), generator(4))
    ratio = [-energy(z) - aux.log_z - aux.density.log_prob(z) for z in (x_pos, y)]
    torch.testing.assert_close(loss, noise_contrastive(*ratio, ratio=4, f=DIVERGENCES["js"]))
    message = ((ratio[0] > 0).float().mean() + (ratio[1] < 0).float().mean()) / 2
    assert float(stats["told_apart"]) == pytest.approx(float(message))
    assert stats["e_pos"].item() == pytest.approx(energy(x_pos).mean().item(), rel=1e-5)
    assert stats["log_z"] == aux.log_z
    assert not stats["log_z"].requires_grad
    assert len(NoiseContrastive(components=5).init(energy, x).density.weights) == 5 + 1


def test_the_squares_of_density_power_have_their_weight(batch):
    energy, x_pos, x_neg = batch
    e_pos, e_neg = energy(x_pos), energy(x_neg)
    for beta in (0.0, 0.7):
        plain, stats = DensityPower(beta=beta)(energy, None, x_pos, x_neg, generator(0))
        torch.testing.assert_close(plain, density_power(e_pos, e_neg, beta))
        loss, _ = DensityPower(beta=beta, l2=0.3)(energy, None, x_pos, x_neg, generator(0))
        torch.testing.assert_close(loss, plain + 0.3 * squares(e_pos, e_neg, beta))
        expected = phase_stats(e_pos, e_neg, beta)
        assert {name: stats[name].item() for name in ("e_pos", "gap", "ess_neg")} == {
            name: expected[name].item() for name in ("e_pos", "gap", "ess_neg")
        }
        assert stats["beta"].item() == pytest.approx(beta)
        assert "gamma" not in stats


def test_columns_are_counted_in_a_single_row():
    assert ScoreMatching().init(Quadratic(dim=10), torch.zeros(1, 2, 5)) is None
    with pytest.raises(UserError, match="there are 12"):
        ScoreMatching().init(Quadratic(dim=12), torch.zeros(1, 2, 6))


@pytest.mark.parametrize("negatives", ["weighted", "direct"])
@pytest.mark.parametrize("unit", ["nats", "spread"])
def test_the_loss_and_what_is_logged_of_given_energies(negatives, unit):
    """Per spread, energies and the weight of their squares are divided and multiplied by it, and reported in nats."""
    e_pos, e_neg = (3 * torch.randn(20, generator=generator(i)).double() + i for i in range(2))
    drawn = negatives == "direct"
    s = energy_spread(e_pos) if unit == "spread" else torch.tensor(1.0).double()
    loss, stats = PseudoSpherical(gamma=0.7, l2=0.3, negatives=negatives, unit=unit).of_energies(e_pos, e_neg)
    plain = pseudo_spherical(e_pos / s, e_neg / s, 0.7, drawn_from_r=drawn)
    expected = s * plain + 0.3 * s * s * squares(e_pos / s, e_neg / s, 0.7, drawn_from_r=drawn)
    torch.testing.assert_close(loss, expected)
    message = phase_stats(e_pos / s, e_neg / s, 0.7, drawn_from_r=drawn)
    message |= {name: s * message[name] for name in ("e_pos", "e_neg", "gap")}
    assert stats.keys() - message.keys() == ({"spread"} if unit == "spread" else set())
    for name, value in message.items():
        torch.testing.assert_close(stats[name], value)
    assert stats.get("spread", s) == s


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sliced_score_matching_by_hand_of_the_generator(dtype):
    """E = x^T A x / 2: each direction of signs v gives |A x|^2 / 2 - v^T A v, noise first and then the signs."""
    a = torch.tensor([[2.0, 0.5], [0.5, 1.0]], dtype=dtype)
    x = torch.randn(5, 2, generator=generator(0), dtype=dtype)

    def energy(x):
        return 0.5 * ((x @ a) * x).sum(1)

    loss, stats = SlicedScoreMatching(n_projections=3, sigma=0.2)(energy, None, x, x[:0], generator(1))
    rng = generator(1)
    y = x + 0.2 * torch.randn(5, 2, generator=rng, dtype=dtype)
    v = (2 * torch.randint(2, (3, 5, 2), generator=rng) - 1).to(dtype)
    norm = (y @ a).square().sum(1)
    torch.testing.assert_close(loss, (0.5 * norm - ((v @ a) * v).sum(2).mean(0)).mean())
    torch.testing.assert_close(stats, {"e_pos": energy(y).mean(), "slope": norm.mean().sqrt()})


def test_denoising_by_hand_of_the_generator():
    x = torch.randn(5, 2, generator=generator(0), dtype=torch.float64)
    loss, stats = DenoisingScoreMatching(sigma=0.5)(Quadratic(dim=2).double(), None, x, x[:0], generator(1))
    z = torch.randn(5, 2, generator=generator(1), dtype=torch.float64)
    y = x + 0.5 * z  # whose gradient is y itself
    torch.testing.assert_close(loss.detach(), denoising_score_matching(y, z, 0.5).mean())
    torch.testing.assert_close(stats["slope"], y.square().sum(1).mean().sqrt())


@pytest.mark.parametrize("gamma", [0.0, 0.6, -0.4])
def test_draws_of_what_a_bounded_network_corrects_need_no_weights_at_the_start(gamma):
    """They come from the Gaussian to the power 1 + gamma, which r is then, in any number of columns."""
    energy = Correction(40, bound=2.0)
    objective = PseudoSpherical(gamma=gamma, warmup=0.0, negatives="importance")
    x = torch.randn(64, 40, generator=generator(0))
    drawn = objective.init(energy, x)
    _, stats = objective(energy, drawn, x, x[:0], generator(1))
    assert stats["ess_neg"] == pytest.approx(1.0, abs=1e-4)
    y = drawn.density.sample(50_000, generator(2))
    # The standard error of a variance over two million numbers is .1 %.
    assert y.var() == pytest.approx(1 / (1 + gamma), rel=0.005)


def test_the_negative_phase_by_importance_is_that_of_quadrature():
    """For a network with random weights the gradient is that of the exact score, within five standard errors."""
    energy = Correction(1, bound=2.0, width=8).double()
    with torch.no_grad():
        for p in energy.parameters():
            p.copy_(torch.randn(p.shape, generator=generator(3)))
    objective = PseudoSpherical(gamma=0.5, warmup=0.0, negatives="importance")
    x = 0.3 + torch.randn(4000, 1, generator=generator(0), dtype=torch.float64)
    parameters = list(energy.parameters())
    cells = exact.grid(exact.Box((-9.0,), (9.0,)), 4000)
    score = free_energy(energy(x), 0.5) + torch.logsumexp(-1.5 * energy(cells.points), 0) / 1.5
    wanted = torch.cat([g.flatten() for g in torch.autograd.grad(score, parameters)])
    drawn = objective.init(energy, x).double()
    result = []
    for seed in range(40):
        loss, _ = objective(energy, drawn, x, x[:0], generator(seed))
        result.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters)]))
    result = torch.stack(result)
    error = result.std(0) / 40**0.5
    assert ((result.mean(0) - wanted).abs() <= 5 * error + 1e-3).all()
    assert (wanted.abs() > 20 * error + 0.01).any()


def test_negatives_by_importance_need_something_to_draw_from():
    with pytest.raises(UserError, match="need an energy that corrects a density"):
        PseudoSpherical(gamma=0.1, negatives="importance").init(MLP((2,)), torch.zeros(4, 2))
    with pytest.raises(UserError, match="r is flat and cannot be drawn from"):
        PseudoSpherical(gamma=-1.0, negatives="importance")
    assert not PseudoSpherical(negatives="importance").needs_negatives
    assert PseudoSpherical().needs_negatives
