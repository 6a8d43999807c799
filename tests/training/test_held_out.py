import copy
import math
from dataclasses import replace

import pytest
import torch

import pscd
from pscd import exact, losses
from pscd.coordinates import Coordinates
from pscd.data.streams import distinct
from pscd.energies import Architecture
from pscd.errors import UserError
from pscd.mixtures import Mixture
from pscd.recipes.configs import RECIPES
from pscd.recipes.tables import Prepared, prepare
from pscd.rng import Stream, generator
from pscd.training import checkpoint
from pscd.training.held_out import HeldOut, hold_out, score_error, score_gain
from pscd.training.loop import _draw_rows


def parts(gamma, constant=0.0, tilt=0.0, n=200_000):
    """Rows and draws of a standard Gaussian m in one column, and f = constant - tilt z."""
    mixture = Mixture(torch.ones(1).double(), torch.zeros(1, 1).double(), torch.ones(1, 1, 1).double())
    rows, draws = (torch.randn(n, 1, generator=generator(s), dtype=torch.float64) for s in (0, 1))

    def f(z):
        return constant - tilt * z[:, 0]

    clean = torch.ones(n).double()
    return score_gain(f(rows), mixture.log_prob(rows), clean, f(draws), mixture.log_prob(draws), gamma)


@pytest.mark.parametrize("gamma", [0.0, 0.3, 1.0])
def test_nothing_and_constants_gain_nothing(gamma):
    assert parts(gamma) == pytest.approx(0.0, abs=1e-12)
    assert parts(gamma, constant=5.0) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("gamma", [0.0, 0.3, 1.0])
def test_a_tilt_costs_what_the_integrals_say(gamma):
    """A tilt moves the model N(0, 1) to N(t, 1) and loses, in the gamma-score, t^2 / (2 (1 + gamma)).

    E_p[q^gamma] of a Gaussian falls by exp(-gamma t^2 / (2 (1 + gamma))), and the norm of q stays. The error of both
    means over 200,000 draws is below .01 at five standard errors.
    """
    t = 0.5
    assert parts(gamma, tilt=t) == pytest.approx(-(t**2) / (2 * (1 + gamma)), abs=0.01)


def test_gamma_near_0_is_the_log_density():
    assert parts(1e-6, tilt=0.5) == pytest.approx(parts(0.0, tilt=0.5), abs=1e-4)


@pytest.mark.parametrize("gamma", [0.0, 0.3])
@pytest.mark.parametrize(("n", "k"), [(400, 40_000), (40_000, 400)])
def test_the_error_is_how_far_gains_of_other_rows_and_draws_lie_apart(gamma, n, k):
    """The deviation of 200 gains has a relative error of 5 %; rows count differently, draws and rows by turns."""
    gains, errors = [], []
    rng = generator(5)
    for _ in range(200):
        z, draws = (torch.randn(size, generator=rng, dtype=torch.float64) for size in (n, k))
        clean = torch.where(z > 0, 1.0, 0.3).double()
        parts = (0.5 * z.sin(), -z.square() / 2, clean, 0.5 * draws.sin(), -draws.square() / 2, gamma)
        gains.append(score_gain(*parts))
        errors.append(score_error(*parts))
    assert sum(errors) / 200 == pytest.approx(torch.tensor(gains).std().item(), rel=0.2)
    nothing = torch.zeros(5)
    assert score_error(nothing, nothing, torch.ones(5), nothing, nothing, gamma) == 0


@pytest.mark.parametrize("d", [1, 3])
def test_a_gain_must_exceed_its_error(d):
    config = RECIPES["table"].changed({"updates": 20, "optimizer.lr": 0.02})
    x = curved()[:, 3 - d :]
    prepared, config = prepare(x, config.changed({"objective.gamma": 0.0}))
    judges = hold_out(prepared, config)[1]
    energy = pscd.fit(x, config=config.changed({"rows.hold_out": 0.0})).network
    energy = energy.to(torch.float64)
    judge = HeldOut.of(energy, judges.z.double(), None, whole=prepared.mixture.density, gamma=0.0, unit="nats", seed=0)
    f, f_draws = (energy.network(z) for z in (judge.z, judge.draws))
    parts = (f, judge.log_m, judge.clean, f_draws, judge.log_m_draws, 0.0)
    assert score_error(*parts) > 1e-4
    assert judge.gain(energy) == pytest.approx(score_gain(*parts) - score_error(*parts), abs=1e-9)


def test_rows_are_drawn_by_their_chances():
    """With 100,000 draws a share of .6 has a standard error of .0016."""
    chances = torch.tensor([0.0, 1.0, 0.0, 3.0, 1.0]).double()
    index = _draw_rows(5, 100_000, chances.cumsum(0), generator(0))
    counts = torch.bincount(index, minlength=5) / 100_000
    assert counts[0] == 0
    assert counts[2] == 0
    assert torch.allclose(counts, (chances / 5).float(), atol=0.008)


def small_table(n=40, d=8):
    return torch.randn(n, d, generator=generator(5), dtype=torch.float64)


def test_a_network_that_memorises_is_not_kept():
    """Forty rows of noise in eight columns leave nothing to learn; the mixture alone is the better model."""
    config = RECIPES["table"].changed({"updates": 100, "optimizer.lr": 0.01, "guard.log_every": 20})
    rows = []
    model = pscd.fit(small_table(), config=config, callbacks=[lambda at: rows.append(at["stats"])])
    gains = [row["gain"] for row in rows]
    # Eight held-out rows: their mean has a standard error of .1 of the little that a network adds in 20 updates.
    assert gains[-1] < -0.05
    assert max(gains) == gains[0] or max(gains) < 0
    f = model.network.network(model.coordinates.forward(small_table()))
    assert f.abs().max() < 1


def curved(n=400):
    """A curve that a few Gaussians miss."""
    x = torch.randn(n, 3, generator=generator(1), dtype=torch.float64)
    x[:, 2] = x[:, 0] ** 2 + 0.1 * x[:, 2]
    return x


def test_the_best_weights_are_those_that_the_model_gets(tmp_path, monkeypatch):
    """The judge is made to like the second look best; what stood there then is the model, not what came after."""
    looks, seen = iter([0.1, 0.7, 0.4, 0.6]), []

    def gain(self, energy):
        seen.append(copy.deepcopy(energy.state_dict()))
        return next(looks)

    monkeypatch.setattr(HeldOut, "gain", gain)
    config = RECIPES["table"].changed({"updates": 40, "guard.log_every": 10, "guard.checkpoint_every": 40})
    rows = []
    model = pscd.fit(curved(), config=config, folder=tmp_path, callbacks=[lambda at: rows.append(at["stats"])])
    assert [row["gain"] for row in rows] == [0.1, 0.7, 0.4, 0.6]
    kept = checkpoint.load(tmp_path)["best"]
    assert kept["gain"] == 0.7
    for name, value in model.network.state_dict().items():
        assert torch.equal(value, kept["weights"][name]), name
        if name.startswith("network"):
            assert torch.equal(value, seen[1][name]), name
    weight = "network.net.0.weight"
    assert not torch.equal(seen[1][weight], seen[3][weight])


def test_held_out_rows_and_their_chances_stay_together_and_no_row_is_lost():
    z = torch.randn(500, 3, generator=generator(0))
    prepared = Prepared(z, Coordinates.identity((3,)), clean=z[:, 0].sigmoid())
    config = RECIPES["table"]
    train, held, _ = hold_out(prepared, config)
    assert (len(train.z), len(held.z)) == (400, 100)
    for part in (train, held):
        assert torch.equal(part.clean, part.z[:, 0].sigmoid())
    together = torch.cat([train.z, held.z])
    assert torch.equal(together[together[:, 0].argsort()], z[z[:, 0].argsort()])
    again, other = hold_out(prepared, config)[1], hold_out(prepared, replace(config, seed=1))[1]
    assert torch.equal(again.z, held.z)
    assert not torch.equal(other.z, held.z)
    assert hold_out(prepared, config.changed({"rows.hold_out": 0.0}))[:2] == (prepared, None)


@pytest.mark.parametrize("gamma", [0.0, 0.3])
def test_a_correction_learnt_without_the_held_out_rows_is_laid_on_the_mixture_of_all(gamma):
    x = curved(300)
    config = RECIPES["table"].changed({"updates": 30, "guard.log_every": 10, "objective.gamma": gamma})
    model = pscd.fit(x, config=config)
    prepared, _ = prepare(x, config)
    z = model.coordinates.forward(x)
    whole = prepared.mixture.density
    assert not torch.equal(whole.means, prepared.judged.means)
    expected = model.network.network(z) - whole.single().log_prob(z)
    torch.testing.assert_close(model.network(z), expected, rtol=0, atol=0)
    torch.testing.assert_close(model.proposal.means, whole.means.float(), rtol=0, atol=0)


def test_the_network_learns_to_correct_the_mixture_that_has_not_seen_its_judges(monkeypatch):
    x, seen = curved(200), []

    def gain(self, energy):
        seen.append((energy.mixture.means.clone(), self.log_m.clone()))
        return 0.0

    monkeypatch.setattr(HeldOut, "gain", gain)
    config = RECIPES["table"].changed({"updates": 2, "guard.log_every": 1, "objective.gamma": 0.0})
    pscd.fit(x, config=config)
    prepared, _ = prepare(x, config)
    _, held, _ = hold_out(prepared, config)
    for means, log_m in seen:
        assert torch.equal(means, prepared.judged.means.float())
        torch.testing.assert_close(log_m, prepared.judged.single().log_prob(held.z))


def test_the_updates_draw_training_rows_by_their_chances(monkeypatch):
    """What reaches the draw are the cumulative chances of the rows that are not held out."""
    seen = []

    def spy(n_rows, n, chances, generator):
        seen.append((n_rows, chances))
        return _draw_rows(n_rows, n, chances, generator)

    monkeypatch.setattr("pscd.training.loop._draw_rows", spy)
    x = curved()
    x[:60] = 12 * torch.rand(60, 3, generator=generator(2), dtype=torch.float64) - 6
    config = RECIPES["table"].changed({"updates": 2, "objective.gamma": 0.3})
    pscd.fit(x, config=config)
    prepared, _ = prepare(x, config)
    train, _, _ = hold_out(prepared, config)
    assert [n for n, _ in seen] == [320, 320]
    torch.testing.assert_close(seen[0][1], train.clean.cumsum(0))
    seen.clear()
    pscd.fit(x, config=config.changed({"objective.gamma": 0.0}))
    assert seen[0][1] is None


def test_a_chance_of_nothing_is_nothing_at_either_end(monkeypatch):
    """Uniform numbers of exactly 0, and next to 1."""
    chances = torch.tensor([0.0, 2.0, 3.0, 0.0]).double()
    at = torch.tensor([0.0, 0.4 - 1e-12, 0.4, 1 - 2**-53], dtype=torch.float64)
    monkeypatch.setattr(torch, "rand", lambda *a, **k: at)
    assert _draw_rows(4, 4, chances.cumsum(0), generator(0)).tolist() == [1, 1, 2, 2]


@pytest.mark.parametrize("unit", ["nats", "spread"])
def test_the_judge_takes_gamma_in_the_unit_of_the_objective(unit):
    mixture = Mixture.standard(10)
    energy = Architecture("corrected", width=4).correct(mixture, torch.empty(10, 0))
    z = torch.randn(50, 10, generator=generator(0))
    judge = HeldOut.of(energy, z, None, whole=mixture, gamma=0.5, unit=unit, seed=0)
    spread = losses.energy_spread(-mixture.log_prob(judge.draws)).item()
    assert spread > 2  # it grows with the root of the columns
    assert judge.gamma == (0.5 if unit == "nats" else pytest.approx(0.5 / spread))
    assert judge.gain(energy) == pytest.approx(0, abs=1e-6)
    assert torch.equal(judge.clean, torch.ones(50))
    again = HeldOut.of(energy, z, torch.zeros(50), whole=mixture, gamma=0.5, unit=unit, seed=0)
    assert torch.equal(again.draws, judge.draws)
    assert again.gain(energy) == pytest.approx(0, abs=1e-6)  # even if no row is clean


def test_the_gain_is_the_difference_of_exact_gamma_scores():
    """By quadrature, for a network that is no tilt; weights of rows count as more or fewer of them.

    Rows are the grid itself with weights p, so that only the draws are random: f is between 0 and 1 and m^gamma below
    1, so that five standard errors of 100,000 draws are below 5 x .5 / sqrt(1e5) = .008.
    """
    grid = exact.grid(exact.Box((-30.0,), (30.0,)), 5000)
    z = grid.points
    mixture = Mixture.standard(1).double()
    log_m, draws = mixture.log_prob(z), mixture.sample(100_000, generator(0))

    def f(z):
        return torch.sigmoid(3 * z[:, 0])

    log_p = torch.distributions.Normal(-1.0, 0.8).log_prob(z[:, 0])
    for gamma in (0.0, 0.3, 1.0):
        scores = [
            exact.gamma_score(log_p, e, gamma, grid)
            for e in (lambda x: f(x) - mixture.log_prob(x), lambda x: -mixture.log_prob(x))
        ]
        found = score_gain(f(z), log_m, log_p.exp(), f(draws), mixture.log_prob(draws), gamma)
        assert found == pytest.approx(float(scores[0] - scores[1]), abs=0.008)
        assert abs(found) > 0.05


def test_two_fits_of_one_seed_are_equal_to_the_last_bit():
    x, config = curved(200), RECIPES["table"].changed({"updates": 30, "guard.log_every": 10})
    state = torch.get_rng_state()
    first, again, other = (pscd.fit(x, config=replace(config, seed=seed)) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), state)
    for name, value in first.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name
    assert torch.equal(first.sample(50), again.sample(50))
    assert not torch.equal(first.sample(50), other.sample(50))


def test_the_best_weights_survive_a_stop(tmp_path):
    config = RECIPES["table"].changed({"updates": 200, "guard.log_every": 10, "guard.checkpoint_every": 20})
    x = curved(2000)
    whole = pscd.fit(x, config=config)
    assert whole.network.network.net[-1].weight.abs().max() > 0  # not the mixture alone

    class Stop(Exception):
        pass

    def stop(row):
        if row["step"] == 50:
            raise Stop

    with pytest.raises(Stop):
        pscd.fit(x, config=config, folder=tmp_path, callbacks=[lambda at: stop(at["stats"])])
    again = pscd.fit(x, config=config, folder=tmp_path)
    for name, value in whole.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name


def impatient(monkeypatch, gains):
    """Looks after every 10 updates, 30 of which may pass without a better one."""
    looks = iter(gains)
    monkeypatch.setattr(HeldOut, "gain", lambda self, energy: next(looks))
    return RECIPES["table"].changed(
        {"updates": 100, "guard.log_every": 10, "guard.checkpoint_every": 20, "rows.idle_updates": 30}
    )


def test_training_ends_when_no_update_has_been_the_best_for_long(tmp_path, monkeypatch):
    config, rows = impatient(monkeypatch, [-0.1, 0.2, 0.1, 0.2, 0.0, 0.9]), []
    pscd.fit(curved(), config=config, folder=tmp_path, callbacks=[lambda at: rows.append(at["stats"])])
    assert [row["step"] for row in rows] == [10, 20, 30, 40, 50]
    kept = checkpoint.load(tmp_path)
    assert (kept["step"], kept["best"]["step"], kept["best"]["gain"]) == (50, 20, 0.2)


def test_a_run_that_ends_early_says_why(monkeypatch, capsys):
    pscd.fit(curved(), config=impatient(monkeypatch, [-0.1, 0.2, 0.1, 0.2, 0.0, 0.9]), progress=True)
    assert "stopped at update 50: by held-out rows none was better than update 20" in capsys.readouterr().err
    pscd.fit(curved(), config=impatient(monkeypatch, [0.1, 0.2, 0.1, 0.2, 0.0]))
    pscd.fit(curved(), config=impatient(monkeypatch, [float(i) for i in range(10)]), progress=True)
    assert "stopped at" not in capsys.readouterr().err


def test_the_start_may_be_the_best(monkeypatch):
    rows = []
    model = pscd.fit(
        curved(), config=impatient(monkeypatch, [-0.1, -0.2, 0.0, 0.5]), callbacks=[lambda at: rows.append(at["stats"])]
    )
    assert [row["step"] for row in rows] == [10, 20, 30]
    assert model.network.network.net[-1].weight.abs().max() == 0


def test_without_patience_every_update_is_made(monkeypatch):
    rows = []
    config = impatient(monkeypatch, [-0.1] * 10).changed({"rows.idle_updates": 0})
    pscd.fit(curved(), config=config, callbacks=[lambda at: rows.append(at["stats"])])
    assert rows[-1]["step"] == 100


def test_a_run_that_ended_early_is_finished(tmp_path, monkeypatch):
    """Neither a run whose model was written nor one that was killed just before goes on training."""
    path = tmp_path / "rows.csv"
    path.write_text("a,b,c\n" + "\n".join(",".join(f"{v:.6f}" for v in row) for row in curved().tolist()))
    config = impatient(monkeypatch, [0.3, 0.2, 0.1, 0.0]).changed({"rows.data": str(path)})
    run = pscd.train(config, tmp_path / "run", progress=False)
    first = pscd.load(run)
    pscd.train(config, run, progress=False)  # a look would find no number
    (run / "model.safetensors").unlink()
    pscd.train(config, run, progress=False)
    again = pscd.load(run)
    for name, value in first.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name
    assert checkpoint.load(run)["step"] == 40


def test_a_stop_does_not_change_when_training_ends(tmp_path, monkeypatch):
    gains = [0.3, 0.2, 0.4, 0.3, 0.2, 0.1]
    whole = pscd.fit(curved(), config=impatient(monkeypatch, gains))

    class Stop(Exception):
        pass

    def stop(row):
        if row["step"] == 50:
            raise Stop

    with pytest.raises(Stop):
        pscd.fit(
            curved(), config=impatient(monkeypatch, gains), folder=tmp_path, callbacks=[lambda at: stop(at["stats"])]
        )
    rows = []
    # The last checkpoint is that of update 40.
    again = pscd.fit(
        curved(),
        config=impatient(monkeypatch, gains[4:]),
        folder=tmp_path,
        callbacks=[lambda at: rows.append(at["stats"])],
    )
    assert [row["step"] for row in rows] == [50, 60]
    for name, value in whole.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name


def test_a_checkpoint_that_does_not_tell_when_the_best_was_found_can_be_read(tmp_path, monkeypatch):
    config = impatient(monkeypatch, [0.1] * 4)
    pscd.fit(curved(), config=config.changed({"updates": 20}), folder=tmp_path)
    values = checkpoint.load(tmp_path)
    del values["best"]["step"]
    checkpoint.save(values, tmp_path)
    rows = []
    pscd.fit(curved(), config=config, folder=tmp_path, callbacks=[lambda at: rows.append(at["stats"])])
    assert [row["step"] for row in rows] == [30]


def test_such_models_are_saved_loaded_and_drawn_from_to_the_same_bits(tmp_path):
    x = torch.randn(200, 3, generator=generator(2), dtype=torch.float64)
    model = pscd.fit(x, config=RECIPES["table"].changed({"updates": 30}))
    model.save(tmp_path / "model.safetensors", step=30)
    again = pscd.Model.load(tmp_path / "model.safetensors")
    assert torch.equal(model.energy(x), again.energy(x))
    assert torch.equal(model.sample(20), again.sample(20))
    assert torch.equal(model.log_density(x), again.log_density(x))
    assert again.notes == model.notes
    assert model.config == again.config


def test_log_densities_integrate_to_one_in_the_units_of_the_data():
    """A Riemann sum over a grid of the plane, drawn-in tails included."""
    x = 100 * torch.randn(400, 2, generator=generator(3), dtype=torch.float64)
    config = RECIPES["table"].changed({"updates": 40})
    model = pscd.fit(x, config=config)
    axis = torch.linspace(-1500, 1500, 100, dtype=torch.float64)
    points = torch.cartesian_prod(axis, axis)
    total = model.log_density(points).exp().sum() * float(axis[1] - axis[0]) ** 2
    # Smooth, and nothing at the edges: the sum is all but exact, so that what is left is the error of log Z.
    assert math.isclose(float(total), 1.0, abs_tol=1e-4 + 4 * model.log_z().error)
    assert model.log_z().error < 1e-3


def test_holding_rows_out_needs_a_network_that_corrects():
    config = RECIPES["free"].changed({"rows.hold_out": 0.2, "updates": 5})
    with pytest.raises(UserError, match="hold_out judges a network that corrects a mixture"):
        pscd.fit(small_table(60, 2), config=config)


def test_the_judge_draws_as_many_rows_from_the_mixture_by_its_own_stream():
    mixture = Mixture.standard(3)
    energy = Architecture("corrected", width=4).correct(mixture, torch.empty(3, 0))
    z = torch.randn(5, 3, generator=generator(0))
    clean = torch.tensor([0.0, 0.25, 1.0, 1e-7, 0.5]).double()
    judge = HeldOut.of(energy, z, clean, whole=mixture, gamma=0.0, unit="spread", seed=4)
    draws = mixture.sample(16_384, generator(4, Stream.SPREAD))
    assert torch.equal(judge.draws, draws)
    assert torch.equal(judge.log_m_draws, mixture.log_prob(draws))
    assert torch.equal(judge.log_m, mixture.log_prob(z))
    assert judge.gamma == 0
    assert judge.clean.tolist() == pytest.approx([1e-6, 0.25, 1.0, 1e-6, 0.5])
    assert judge.clean.dtype == z.dtype


@pytest.mark.parametrize("share", [0.3, 0.0])
def test_of_very_many_rows_a_share_of_the_sample_is_held_out_and_the_last_take_their_places(monkeypatch, share):
    monkeypatch.setattr("pscd.training.held_out.SAMPLE_ROWS", 20)
    z = torch.arange(50.0)[:, None].expand(-1, 2).clone()
    prepared = Prepared(z.clone(), Coordinates.identity((2,)), clean=z[:, 0].clone() / 100)
    config = RECIPES["table"].changed({"rows.hold_out": share})
    train, held, index = hold_out(prepared, config)
    if share == 0:
        assert (train is prepared, held, len(index)) == (True, None, 0)
        return
    assert (len(train.z), len(held.z), len(index)) == (44, 6, 6)
    assert torch.equal(held.z[:, 0], index.float())
    assert torch.equal(index, distinct(50, 6, generator(config.seed, Stream.HOLD_OUT)).sort().values)
    assert sorted([*train.z[:, 0].tolist(), *held.z[:, 0].tolist()]) == list(range(50))
    for part in (train, held):
        assert torch.equal(part.clean, part.z[:, 0] / 100)
    stayed = [i for i in range(44) if i not in index.tolist()]
    assert torch.equal(train.z[stayed, 0], torch.tensor(stayed).float())
    none = Prepared(z.clone(), Coordinates.identity((2,)))
    assert hold_out(none, config)[0].clean is None


def test_up_to_the_size_of_the_sample_rows_are_held_out_in_a_random_order(monkeypatch):
    monkeypatch.setattr("pscd.training.held_out.SAMPLE_ROWS", 20)
    z = torch.arange(20.0)[:, None]
    config = RECIPES["table"].changed({"rows.hold_out": 0.3})
    train, held, index = hold_out(Prepared(z, Coordinates.identity((1,))), config)
    order = torch.randperm(20, generator=generator(config.seed, Stream.HOLD_OUT))
    assert torch.equal(index, order[:6])
    assert torch.equal(held.z, z[order[:6]])
    assert torch.equal(train.z, z[order[6:]])


def test_rows_that_are_held_out_may_be_among_the_last(monkeypatch):
    monkeypatch.setattr("pscd.training.held_out.SAMPLE_ROWS", 20)
    z = torch.arange(24.0)[:, None]
    config = RECIPES["table"].changed({"rows.hold_out": 0.5})
    train, held, index = hold_out(Prepared(z.clone(), Coordinates.identity((1,))), config)
    assert 0 < (index >= 14).sum() < 10
    assert sorted([*train.z[:, 0].tolist(), *held.z[:, 0].tolist()]) == list(range(24))
    assert torch.equal(held.z[:, 0], index.float())
