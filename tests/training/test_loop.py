import json
import math
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import pscd
from pscd.coordinates import Coordinates
from pscd.data.toys import TOYS
from pscd.energies import MLP
from pscd.errors import Diverged, UserError
from pscd.fast import cpp, gradients
from pscd.model import Model
from pscd.objectives import OBJECTIVES, DenoisingScoreMatching, PseudoSpherical
from pscd.recipes.configs import RECIPES
from pscd.recipes.tables import Prepared, prepare
from pscd.rng import generator
from pscd.sampling import Langevin, Mala
from pscd.training import checkpoint, loop
from pscd.training.fit import fit
from pscd.training.held_out import hold_out
from pscd.training.loop import (
    _draw_rows,
    count_modes,
    last_step,
    learning_rate,
    train_step,
    update_average,
)
from pscd.training.state import init_state


@pytest.fixture
def x():
    return pscd.TOYS["moon"](1000, generator(0))


class Flaky(nn.Module):
    """An energy that is NaN at chosen training passes."""

    def __init__(self, bad):
        super().__init__()
        self.net, self.bad, self.passes = MLP((2,), width=8, base_scale=2.0), bad, 0

    def forward(self, x):
        e = self.net(x)
        if self.training and torch.is_grad_enabled():
            self.passes += 1
            if self.bad(self.passes):
                return e * torch.nan
        return e


def test_training_learns(small, x):
    rows = []
    model = fit(
        x,
        config=replace(small, updates=400, objective=PseudoSpherical(gamma=0.5)),
        callbacks=[lambda at: rows.append(at["stats"])],
    )
    held_out = pscd.TOYS["moon"](500, generator(1))
    noise = 6 * torch.rand(500, 2, generator=generator(2)) - 3
    better = (model(held_out)[:, None] < model(noise)[None, :]).float().mean()
    assert better > 0.75  # about half before training; the noise overlaps the moons, so 1 is out of reach
    assert [row["step"] for row in rows] == list(range(10, 401, 10))
    assert {"loss", "e_pos", "e_neg", "ess_neg", "acceptance", "jumps", "gamma", "gap", "gradient"} <= rows[0].keys()
    assert rows[-1]["gamma"] == 0.5


def test_the_same_seed_gives_the_same_weights(small, x):
    first, again, other = (fit(x, config=replace(small, seed=seed)).network.state_dict() for seed in (0, 0, 1))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


@pytest.mark.skipif(cpp.library() is None, reason="no C++ compiler")
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("ps-cd", {"warmup": 0.0, "l2": 0.1}),
        ("beta", {"warmup": 0.0, "l2": 0.1}),
        ("negatives-only", {}),
        ("trim", {"alpha": 0.25}),
        ("f-ebm", {"l2": 0.1}),
        ("nce", {}),
    ],
)
def test_an_update_is_the_same_in_cpp(small, x, name, options, monkeypatch, any_size):
    """Gradients of the first update, with squares where the objective has them; they depend on samples too."""
    config = replace(small, objective=replace(OBJECTIVES[name], **options))
    found, learnt = {}, []
    learn = cpp.Network.learn
    monkeypatch.setattr(cpp.Network, "learn", lambda *a: learnt.append(mode) or learn(*a))
    for mode in ("auto", "plain"):
        state = init_state(x, config, None, torch.device("cpu"))
        train_step(state, x, config.changed({"compute.gradients": mode}))
        found[mode] = [p.grad for p in state.energy.parameters()]
    assert learnt == ["auto"]
    largest = max(grad.abs().max().item() for grad in found["plain"])  # that of the last bias may be 0
    for a, b in zip(found["auto"], found["plain"], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5 * largest)


def test_any_module_will_do_and_a_wrong_shape_is_told(small, x):
    net = [nn.Linear(2, 16), nn.SiLU(), nn.Linear(16, 1)]
    model = fit(x, config=small, energy=nn.Sequential(*net, nn.Flatten(0)))
    assert model(x[:5]).shape == (5,)
    with pytest.raises(UserError, match=r"it gave \(2, 1\); end it with nn.Flatten\(0\)"):
        fit(x, config=small, energy=nn.Sequential(*net))


UNTIL_KILLED = """
import json, os, signal, sys
from pathlib import Path
import torch
from pscd.config import TrainConfig
from pscd.training.fit import fit
torch.set_num_threads(1)
def log(at):
    if at["step"] >= 50:
        os.kill(os.getpid(), signal.SIGKILL)
folder = Path(sys.argv[1])
config = TrainConfig.from_dict(json.loads(sys.argv[2]))
fit(torch.load(folder.with_name("x.pt"), weights_only=True), config=config, folder=folder, callbacks=[log])
"""


def test_resume_after_kill_9_is_bitwise(small, x, tmp_path):
    """80 steps at once, against 40 checkpointed, a kill -9 some steps later, and the rest."""
    config = small.changed({"updates": 80, "guard.checkpoint_every": 40})
    fit(x, config=config, folder=tmp_path / "whole")
    torch.save(x, tmp_path / "x.pt")
    words = [str(tmp_path / "cut"), json.dumps(config.to_dict())]
    assert subprocess.run([sys.executable, "-c", UNTIL_KILLED, *words], check=False).returncode == -signal.SIGKILL
    assert checkpoint.load(tmp_path / "cut")["step"] == 40
    fit(x, config=config, folder=tmp_path / "cut")
    whole, cut = checkpoint.load(tmp_path / "whole"), checkpoint.load(tmp_path / "cut")
    assert whole["step"] == cut["step"] == 80
    for part in ("energy", "averaged"):
        assert all(torch.equal(whole[part][name], cut[part][name]) for name in whole[part])
    for key, values in whole["optimizer"]["state"].items():
        assert all(torch.equal(v, cut["optimizer"]["state"][key][name]) for name, v in values.items())
    assert torch.equal(whole["buffer"], cut["buffer"])
    assert torch.equal(whole["step_size"], cut["step_size"])


def test_a_bad_step_is_rolled_back_and_retried_smaller(small, x, tmp_path, capsys):
    energy = Flaky(lambda n: n == 31)
    fit(x, config=small, energy=energy, folder=tmp_path)
    assert energy.passes == 60 + 11  # steps 20 to 30 were done twice
    values = checkpoint.load(tmp_path)
    assert (values["step"], values["retries"]) == (60, 1)
    rate = values["optimizer"]["param_groups"][0]["lr"]
    assert rate == pytest.approx(0.5 * learning_rate(small, 59))
    assert "update 30: e_pos contains NaN" in capsys.readouterr().err


def test_after_the_last_try_the_good_model_is_kept(small, x, tmp_path):
    config = small.changed({"guard.max_retries": 2})
    energy = Flaky(lambda n: n > 50)
    with pytest.raises(Diverged, match=r"diverged 3 times, last at update \d+: .*the model of update 40 is kept"):
        fit(x, config=config, energy=energy, folder=tmp_path)
    assert checkpoint.load(tmp_path)["step"] == 40
    kept = Model.load(tmp_path / "model.safetensors", energy=Flaky(lambda n: False))
    assert kept(x).isfinite().all()


def test_energies_that_run_away_are_stopped(small, x):
    """Unadjusted steps far too large for the energy overshoot, and the model learns from its own overshoot."""
    config = small.changed(
        {"sampler": Langevin(n_steps=20, step_size=50.0), "guard.max_retries": 1, "optimizer.lr": 0.05}
    )
    with pytest.raises(Diverged, match=r"apart|is -?(inf|nan)|NaN"):
        fit(x, config=config)


def test_a_diverged_step_changes_neither_weights_nor_chains(small, x):
    state = init_state(x, small, Flaky(lambda n: True), torch.device("cpu"))
    before = checkpoint.snapshot(state)
    with pytest.raises(Diverged):
        train_step(state, x, small)
    after = checkpoint.snapshot(state)
    assert all(torch.equal(before["energy"][k], after["energy"][k]) for k in before["energy"])
    assert torch.equal(before["buffer"], after["buffer"])


def test_learning_rate_rises_then_falls_to_zero(small):
    config = small.changed({"updates": 1000, "optimizer.lr": 1.0})
    assert learning_rate(config, 0) == pytest.approx(0.01)
    assert learning_rate(config, 100) > 0.97
    assert learning_rate(config, 999) < 1e-5
    assert learning_rate(config.changed({"optimizer.schedule": "constant"}), 999) == 1.0


def test_a_constant_column_is_told(small, x):
    with pytest.raises(UserError, match="column b is constant"):
        fit(torch.cat([x, torch.ones(1000, 1)], 1), config=small, columns=("x", "y", "b"))


def test_a_gross_outlier_does_not_spoil_the_model(small, x):
    dirty = x.clone()
    dirty[0, 0] = 1e9
    model = fit(dirty, config=replace(small, updates=300))
    samples = model.sample(500)
    assert (samples.median(0).values - x.median(0).values).abs().max() < 1
    assert model.energy(dirty[:1]) > model.energy(x).max()


def test_columns_far_from_zero_keep_their_digits(small):
    x = torch.randn(500, 2, generator=generator(0)).double() * 20 + 1.7e9
    samples = fit(x, config=replace(small, updates=200)).sample(500)
    assert samples.dtype == torch.float64
    assert 5 < samples[:, 0].std() < 80  # in float32 all these rows are one of two numbers
    assert len(samples[:, 0].unique()) == 500


def test_rows_of_any_shape_and_kind(small):
    images = torch.randn(100, 1, 4, 4, generator=generator(0))
    assert fit(images, config=small).sample(5).shape == (5, 1, 4, 4)
    frame = pd.DataFrame({"a": np.arange(50.0) % 7, "b": np.arange(50) ** 2})
    assert fit(frame, config=small).energy(frame).shape == (50,)
    for bad, message in [
        (torch.zeros(5), "give rows"),
        (torch.full((5, 2), torch.nan), "missing values need a table"),
        ([["a", "b"]], "must be numbers"),
    ]:
        with pytest.raises(UserError, match=message):
            fit(bad, config=small)


def test_ctrl_c_saves_where_it_is(small, x, tmp_path):
    def press(row):
        if row["step"] == 30:
            signal.raise_signal(signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)  # a shell's background jobs ignore it
    with pytest.raises(KeyboardInterrupt):
        fit(x, config=small, folder=tmp_path, callbacks=[lambda at: press(at["stats"])])
    assert checkpoint.load(tmp_path)["step"] == 30
    assert signal.getsignal(signal.SIGINT) is before
    fit(x, config=small, folder=tmp_path)
    whole = fit(x, config=small)
    resumed = checkpoint.load(tmp_path)["averaged"]
    assert all(torch.equal(value, resumed[name]) for name, value in whole.network.state_dict().items())


def test_data_noise_and_columns_as_they_are(small, x):
    model = fit(3 + x, config=small.changed({"rows.standardise": "none", "rows.data_noise": 0.1, "updates": 5}))
    assert model.shift.tolist() == [0.0, 0.0]
    assert model.scale.tolist() == [1.0, 1.0]
    state = init_state(3 + x, small.changed({"rows.standardise": "none"}), None, torch.device("cpu"))
    chains = state.buffer.x  # they start around the data, wherever those lie
    assert (chains.mean(0) - (3 + x).mean(0)).norm() < 5 * 2 * x.std() * (2 / len(chains)) ** 0.5


def test_the_randomised_stop_of_algorithm_2(small, x, tmp_path):
    config = small.changed(
        {"optimizer.stop": "randomised", "updates": 500, "optimizer.lr": 1.0, "optimizer.schedule": "constant"}
    )
    ends = [last_step(replace(config, seed=seed)) for seed in range(200)]
    assert last_step(config.changed({"optimizer.stop": "end"})) == 500
    assert min(ends) >= 1
    assert max(ends) <= 500
    # Steps beyond the warm-up all have the largest rate, so Z is nearly uniform: mean about 270, sd 140.
    assert sum(ends) / 200 == pytest.approx(270, abs=5 * 140 / 200**0.5)
    short = small.changed({"optimizer.stop": "randomised"})
    fit(x, config=short, folder=tmp_path)
    assert checkpoint.load(tmp_path)["step"] == last_step(short)


def starts(small, x, chains):
    """Where the chains of one update start: with sampler steps of no size they end there too."""
    config = small.changed(
        {"chains.start": chains, "sampler": Langevin(n_steps=1, step_size=1e-12), "chains.restart": 0.0}
    )
    state = init_state(x, config, None, torch.device("cpu"))
    before = state.buffer.x.clone()
    train_step(state, x, config)
    moved = (state.buffer.x - before).abs().amax(1) > 1e-4
    return state.buffer.x, before, moved


def nearest(a, b):
    return (a[:, None] - b).abs().amax(2).amin(1)


def test_chains_start_where_they_ended_at_the_data_or_afresh(small, x):
    _, _, moved = starts(small, x, "persistent")
    assert not moved.any()
    after, _, moved = starts(small, x, "data")
    assert moved.sum() == small.batch_size
    assert nearest(after[moved], x).max() < 1e-4
    after, before, moved = starts(small, x, "short-run")
    assert moved.sum() == small.batch_size
    assert nearest(after[moved], before).median() > 1e-3
    assert nearest(after[moved], x).median() > 1e-2


@pytest.mark.parametrize("chains", ["data", "short-run"])
def test_chains_that_do_not_persist_train_too(small, x, chains):
    rows = []
    fit(
        x,
        config=small.changed({"chains.start": chains, "updates": 100}),
        callbacks=[lambda at: rows.append(at["stats"])],
    )
    assert abs(rows[-1]["gap"]) < 5


def test_a_model_trained_without_chains_can_be_sampled(small, x):
    """The step settles at the acceptance that the sampler aims at, from far above and from far below."""
    steps = []
    for start in (1e-2, 10.0):
        config = replace(small, objective=OBJECTIVES["dsm"], sampler=Mala(step_size=start))
        model = fit(x, config=config)
        z = model.proposal.sample(1000, generator(0))
        run = {"step_size": model.step_size, "proposal": model.proposal, "generator": generator(1)}
        _, stats = config.sampler.run(model.network, z, n_steps=50, **run)
        assert stats["acceptance"] == pytest.approx(0.6, abs=0.1)
        steps.append(model.step_size.item())
    assert steps[0] == pytest.approx(steps[1], rel=0.2)


@pytest.mark.parametrize("name", ["f-ebm", "nce"])
def test_what_is_trained_beside_the_energy_is_resumed(small, x, tmp_path, name):
    """Half a run and the rest, against the whole, bit for bit."""
    config = replace(small, objective=OBJECTIVES[name])

    def stop(row):
        if row["step"] == 30:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        fit(x, config=config, folder=tmp_path, callbacks=[lambda at: stop(at["stats"])])
    resumed, whole = fit(x, config=config, folder=tmp_path), fit(x, config=config)
    for a, b in zip(resumed.network.state_dict().values(), whole.network.state_dict().values(), strict=True):
        assert torch.equal(a, b)
    other = fit(x, config=replace(config, seed=1))
    assert not torch.equal(next(other.network.parameters()), next(whole.network.parameters()))


def test_the_log_says_how_chains_are_spread_over_known_modes(small, x):
    rows = []
    fit(x, config=small, callbacks=[count_modes(TOYS["moon"].mode, x), lambda at: rows.append(at["stats"])])
    assert rows[-1]["mode_0"] + rows[-1]["mode_1"] == pytest.approx(1)
    assert rows[-1]["mode_error"] == pytest.approx(abs(rows[-1]["mode_0"] - 0.5), abs=0.05)
    rows.clear()
    fit(
        x,
        config=replace(small, updates=10, objective=OBJECTIVES["dsm"]),
        callbacks=[count_modes(TOYS["moon"].mode, x), lambda at: rows.append(at["stats"])],
    )
    assert not rows[-1].keys() & {"mode_0", "mode_error"}  # no chains run, so that there is nothing to tell


class Stop(Exception):
    """Raised in the middle of a run."""


def test_a_conditional_model_of_images_resumes_to_the_last_bit(tmp_path):
    x = torch.randint(256, (40, 1, 8, 8), generator=generator(0)).to(torch.uint8)
    label = torch.arange(40) % 3
    small = {"energy.width": 2, "energy.classes": 3, "chains.buffer_size": 30, "batch_size": 8, "guard.log_every": 1}
    config = RECIPES["digits"].changed({**small, "updates": 6, "guard.checkpoint_every": 3})

    def stop(row):
        if row["step"] == 5:
            raise Stop

    with pytest.raises(Stop):
        fit(x, config=config, label=label, folder=tmp_path, callbacks=[lambda at: stop(at["stats"])])
    resumed = fit(x, config=config, label=label, folder=tmp_path)
    straight = fit(x, config=config, label=label)
    torch.testing.assert_close(resumed.state_dict(), straight.state_dict(), rtol=0, atol=0)
    assert resumed.proposal.points.dtype == torch.uint8
    assert set(resumed.proposal.label.tolist()) == {0, 1, 2}


def test_chains_of_a_conditional_model_run_under_their_labels(monkeypatch):
    x = torch.rand(40, 1, 8, 8, generator=generator(0))
    label = torch.arange(40) % 3
    small = {"energy.width": 2, "energy.classes": 3, "chains.buffer_size": 30, "batch_size": 8, "chains.start": "data"}
    config = RECIPES["digits"].changed(small)
    state = init_state(x, config, None, torch.device("cpu"))
    seen, run = [], loop.run_chains

    def spy(energy, rows, config, *, label=None, **options):
        seen.append((rows, label))
        return run(energy, rows, config, label=label, **options)

    monkeypatch.setattr(loop, "run_chains", spy)
    train_step(state, x, config, label)
    ((rows, labels),) = seen
    nearest = (rows[:, None] - x).abs().flatten(2).amax(2).argmin(1)  # they start at the data, but for their noise
    assert torch.equal(labels, label[nearest])


def test_branching_begins_where_another_run_stands(tmp_path):
    x = torch.randint(256, (40, 1, 8, 8), generator=generator(0)).to(torch.uint8)
    config = RECIPES["digits"].changed({"energy.width": 2, "chains.buffer_size": 30, "batch_size": 8, "updates": 3})
    fit(x, config=config, folder=tmp_path / "first")
    checkpoint.branch(tmp_path / "first", tmp_path / "second")
    before, after = checkpoint.load(tmp_path / "first"), checkpoint.load(tmp_path / "second")
    assert (before["step"], after["step"]) == (3, 0)
    torch.testing.assert_close(after["energy"], before["energy"], rtol=0, atol=0)
    assert torch.equal(after["buffer"], before["buffer"])
    fit(x, config=config, folder=tmp_path / "second")
    checkpoint.branch(tmp_path / "first", tmp_path / "second")  # does not start it again
    assert checkpoint.load(tmp_path / "second")["step"] == 3
    with pytest.raises(UserError, match="no run"):
        checkpoint.branch(tmp_path / "nothing", tmp_path / "third")


def test_phases_that_are_many_spreads_apart_are_noticed(tmp_path):
    """A tenth of a nat is much where energies are spread over a thousandth."""

    class Apart(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.tensor(1.0))

        def forward(self, x):
            e = x.mean((1, 2, 3))
            return self.weight * torch.where(e > 0.4, 0.1 + 0.001 * e, 0.001 * e)  # noise against black images

    x = torch.rand(40, 1, 8, 8, generator=generator(0)) * 0.2
    config = RECIPES["digits"].changed(
        {"chains.buffer_size": 30, "batch_size": 8, "updates": 2, "guard.max_retries": 0}
    )
    with pytest.raises(Diverged, match="spreads apart"):
        fit(x, config=config, energy=Apart())


def test_a_steep_critic_does_not_shorten_the_gradient_of_the_energy(small, x):
    """Each player's gradient is clipped by itself."""
    config = small.changed({"objective": OBJECTIVES["f-ebm"], "optimizer.clip": 1e-4})
    state = init_state(x, config, None, torch.device("cpu"))
    with torch.no_grad():
        for p in state.aux.parameters():
            p.mul_(10)
    stats = train_step(state, x.float(), config)
    for player in (state.energy, state.aux):
        norm = torch.stack([p.grad.norm() for p in player.parameters()]).norm()
        assert norm.item() == pytest.approx(1e-4, rel=1e-3)
    assert stats["gradient"] > 1e-3  # told as it was


def test_the_step_settles_with_the_precision_and_gradients_of_the_run(small, monkeypatch):
    """Objectives without chains settle the sampler's step at the end, on the model as it will be sampled."""
    seen = []
    run = Mala.run

    def spy(self, energy, *args, **kwargs):
        seen.append((type(energy).__name__, gradients._mode.get()))
        return run(self, energy, *args, **kwargs)

    monkeypatch.setattr(Mala, "run", spy)
    monkeypatch.setattr("pscd.energies.wrappers.has_bfloat16", lambda: True)
    config = small.changed(
        {
            "objective": DenoisingScoreMatching(),
            "updates": 2,
            "compute.precision": "bfloat16",
            "compute.gradients": "plain",
        }
    )
    fit(torch.randn(50, 2, generator=generator(0)), config=config)
    assert set(seen) == {("BFloat16Energy", "plain")}


def test_a_folder_of_other_rows_is_refused(small, tmp_path):
    x = torch.randn(100, 2, generator=generator(0))
    config = replace(small, updates=20)
    first = fit(x, config=config, folder=tmp_path)
    again = fit(x, config=config, folder=tmp_path)  # the same rows: nothing is left to do
    assert torch.equal(first(x), again(x))
    with pytest.raises(UserError, match="holds a run on other rows; choose another folder"):
        fit(x + 1, config=config, folder=tmp_path)


def test_rows_are_drawn_by_their_chances():
    """4,000 draws against shares of 0, .1, .2, .7: five standard errors, and what has no chance is never drawn."""
    chances = torch.tensor([0.0, 0.3, 0.6, 2.1, 0.0]).double().cumsum(0)
    index = _draw_rows(5, 4000, chances, generator(0))
    share = torch.bincount(index, minlength=5) / 4000
    expected = torch.tensor([0.0, 0.1, 0.2, 0.7, 0.0])
    assert (share[[0, 4]] == 0).all()
    assert ((share - expected).abs() <= 5 * (expected * (1 - expected) / 4000).sqrt()).all()
    even = torch.bincount(_draw_rows(5, 4000, None, generator(0)), minlength=5) / 4000
    assert (even - 0.2).abs().max() <= 5 * (0.16 / 4000) ** 0.5


def test_the_average_takes_over_buffers_and_remembers_little_at_first():
    averaged, energy = nn.BatchNorm1d(2), nn.BatchNorm1d(2)
    with torch.no_grad():
        averaged.weight.fill_(1.0)
        energy.weight.fill_(3.0)
        energy.running_mean.fill_(5.0)
    update_average(averaged, energy, 0.99, 0)  # memory 1 / 10
    assert averaged.weight.tolist() == pytest.approx([2.8, 2.8])
    assert averaged.running_mean.tolist() == [5.0, 5.0]
    update_average(averaged, energy, 0.25, 1000)
    assert averaged.weight.tolist() == pytest.approx([2.95, 2.95])


def test_held_out_rows_are_a_share_and_no_row_is_in_both(small):
    z = torch.arange(50.0)[:, None]
    prepared = Prepared(z, Coordinates.identity((1,)), clean=torch.arange(50.0))
    kept, held, index = hold_out(prepared, small.changed({"rows.hold_out": 0.3}))
    assert (len(kept.z), len(held.z)) == (35, 15)
    assert sorted([*kept.z[:, 0].tolist(), *held.z[:, 0].tolist()]) == list(range(50))
    assert torch.equal(held.z[:, 0], held.clean)
    assert torch.equal(kept.z[:, 0], kept.clean)
    assert kept.z[:, 0].tolist() != sorted(kept.z[:, 0].tolist())
    assert torch.equal(held.z[:, 0].long(), index)
    assert hold_out(prepared, small.changed({"rows.hold_out": 0.0}))[:2] == (prepared, None)


def test_the_learning_rate_by_hand(small):
    config = small.changed({"updates": 400, "optimizer.lr": 2.0})
    assert learning_rate(config, 49) == pytest.approx(2 * 0.5 * 0.5 * (1 + math.cos(math.pi * 49 / 400)))
    assert learning_rate(config, 99) == pytest.approx(2 * 0.5 * (1 + math.cos(math.pi * 99 / 400)))
    assert learning_rate(config.changed({"optimizer.schedule": "constant"}), 9) == pytest.approx(0.2)


def test_the_log_and_the_checkpoints_come_when_they_are_due(small, x, tmp_path):
    rows, saved = [], []
    config = small.changed({"updates": 25, "guard.log_every": 10, "guard.checkpoint_every": 8})
    with pytest.MonkeyPatch.context() as patch:
        save = checkpoint.save
        patch.setattr(checkpoint, "save", lambda values, folder: saved.append(values["step"]) or save(values, folder))
        fit(x, config=config, folder=tmp_path, callbacks=[lambda at: rows.append(at["stats"])])
    assert [row["step"] for row in rows] == [10, 20, 25]
    assert saved == [8, 16, 24, 25]
    assert all(row["retries"] == 0 for row in rows)


def test_batches_need_not_hold_every_row_and_the_energy_is_in_training(small, x):
    seen = []

    class Spy(MLP):
        def forward(self, x):
            seen.append((self.training, torch.is_grad_enabled(), len(x)))
            return super().forward(x)

    state = init_state(x, small, Spy((2,), width=8), torch.device("cpu"))
    state.energy.eval()
    train_step(state, x, small.changed({"compute.gradients": "plain"}))
    assert seen[-1] == (True, True, 2 * small.batch_size)


def test_labels_are_checked_and_an_energy_without_classes_refuses_them(small, x):
    with pytest.raises(UserError, match="labels need an energy with classes"):
        fit(x, config=small, label=torch.arange(len(x)))
    images = torch.zeros(30, 1, 8, 8, dtype=torch.uint8)
    conditional = RECIPES["digits"].changed(
        {"energy.width": 2, "energy.classes": 3, "chains.buffer_size": 8, "updates": 1}
    )
    with pytest.raises(UserError, match="labels must lie between 0 and 2"):
        fit(images, config=conditional, label=torch.full((30,), 3))


def test_what_is_known_of_the_rows_goes_along_with_the_model(x):
    config = RECIPES["table"].changed({"updates": 2})
    model = fit(x, config=config, columns=("a", "b"), fingerprint="of the rows")
    assert model.notes == prepare(x, config)[0].notes != ()
    assert (model.columns, model.fingerprint) == (("a", "b"), "of the rows")
