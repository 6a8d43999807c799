import copy
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from torch import nn

import pscd
from pscd.config import ChainSettings, RowSettings, TrainConfig
from pscd.coordinates import Coordinates
from pscd.energies import Architecture
from pscd.errors import UserError
from pscd.mixtures import Mixture
from pscd.model import SCORE_BLOCK, Model
from pscd.recipes.configs import RECIPES
from pscd.rng import Stream, generator
from pscd.sampling import Langevin


class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.centre = nn.Parameter(torch.zeros(2))

    def forward(self, x):
        return (x - self.centre).square().sum(1)


def test_saved_and_loaded_it_is_the_same_model(trained):
    model, again = pscd.load(trained), Model.load(trained / "model.safetensors")
    x = torch.randn(10, 2, generator=generator(0))
    assert torch.equal(model(x), again(x))
    assert torch.equal(model.sample(20, seed=3), again.sample(20, seed=3))
    assert model.config == again.config
    assert not torch.equal(model.sample(20, seed=3), model.sample(20, seed=4))


def test_the_network_sees_standardised_coordinates(trained):
    model = pscd.load(trained)
    x = torch.randn(10, 2, generator=generator(0))
    assert torch.equal(model(x), model.network(((x - model.shift) / model.scale).float()))
    assert model.scale[0] > 1.5  # two moons are wider than a unit


def test_scores_any_number_of_rows_in_blocks(trained):
    model = pscd.load(trained)
    x = torch.randn(SCORE_BLOCK + 5, 2, generator=generator(0))
    scores = model.energy(x)
    assert scores.shape == (SCORE_BLOCK + 5,)
    torch.testing.assert_close(scores[-5:], model(x[-5:]).detach())
    with pytest.raises(UserError, match=r"rows have shape \(3,\), the model was trained on \(2,\)"):
        model.energy(torch.zeros(4, 3))


def test_a_network_of_ones_own_is_given_again(small, tmp_path):
    x = torch.randn(200, 2, generator=generator(0))
    model = pscd.fit(x, config=small, energy=Own())
    model.save(tmp_path / "m.safetensors", step=1)
    again = Model.load(tmp_path / "m.safetensors", energy=Own())
    assert torch.equal(again.network.centre, model.network.centre)
    with pytest.raises(UserError, match=r"load it with energy=Own\(\.\.\.\)"):
        Model.load(tmp_path / "m.safetensors")


def test_damage_is_named(trained, tmp_path):
    with pytest.raises(UserError, match="no such run folder"):
        pscd.load(tmp_path / "nothing")
    path = trained / "model.safetensors"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(UserError, match=r"model\.safetensors: damaged"):
        pscd.load(trained)
    with pytest.raises(UserError, match="at least 1"):
        Model.load(_fresh(tmp_path)).sample(0)


def _fresh(folder):

    config = TrainConfig(
        updates=1, batch_size=8, chains=ChainSettings(buffer_size=8, jump_components=1), rows=RowSettings(n_data=100)
    )
    model = pscd.fit(torch.randn(100, 2, generator=generator(0)), config=config)
    model.save(folder / "fresh.safetensors", step=1)
    return folder / "fresh.safetensors"


def test_it_says_how_chains_get_their_gradients(trained, small):
    model = pscd.load(trained)
    assert model.gradients in ("by hand in C++", "by hand")  # without a compiler
    model.config = model.config.changed({"compute.gradients": "plain"})
    assert model.gradients == "by autograd"
    conditional = Architecture("conv", width=2, depth=2, classes=10)
    label = torch.arange(30) % 10
    images = torch.rand(30, 1, 8, 8, generator=generator(0))
    model = pscd.fit(
        images, config=replace(small, energy=conditional, updates=1, sampler=Langevin(n_steps=1)), label=label
    )
    assert model.gradients in ("by hand in C++", "by hand")


def by_hand(tails=True, bent=False):
    """A mixture that nothing corrects, in robust coordinates of a table with a constant column."""
    x = 50 + 8 * torch.randn(300, 4, generator=generator(0), dtype=torch.float64).sinh()
    x[:, 2] = -3.0
    x[:, 3] = x[:, 3].div(10).exp()
    coordinates = Coordinates.robust(x, tails=tails)
    if bent:
        coordinates = coordinates.unskewed(x)
        assert coordinates.skew is not None
    factors = torch.tensor([[1.0, 0, 0], [0.5, 0.8, 0], [0.1, -0.4, 1.2]]).expand(2, 3, 3).contiguous()
    mixture = Mixture(torch.tensor([0.4, 0.6]), torch.tensor([[0.0, 0, 0], [1, -1, 0.5]]), factors)
    energy = RECIPES["table"].energy.correct(mixture, torch.empty(3, 0))
    model = Model(
        energy,
        RECIPES["table"].changed({"objective.gamma": 0.3}),
        coordinates=coordinates,
        step_size=torch.tensor(1.0),
        proposal=copy.deepcopy(mixture),
        columns=("a", "b", "c", "d"),
        notes=("a word", 'another, with "quotes" and 5 %'),
    )
    return model, mixture, x


@pytest.mark.parametrize(("tails", "bent"), [(True, False), (False, False), (False, True), (True, True)])
def test_log_prob_is_the_density_in_the_units_of_the_data(tails, bent):
    """log m(z) + log |dz/dx|, the slope by autograd, to float32's rounding of z, without the constant column."""
    model, mixture, x = by_hand(tails, bent)
    assert model.log_z().value == pytest.approx(0, abs=1e-5)
    assert model.log_z() is model.log_z()  # computed once
    leaf = x[:20].clone().requires_grad_()
    z = model.coordinates.forward(leaf, torch.float64)
    slopes = torch.autograd.grad(z.sum(), leaf)[0][:, [0, 1, 3]]
    expected = mixture.double().log_prob(z.detach()) + slopes.log().sum(1)
    torch.testing.assert_close(model.log_density(x[:20]), expected, rtol=1e-4, atol=1e-4)
    # The energy is that of the same units: exp(-E) is the density up to a factor that no row changes.
    apart = model.energy(x[:20]).double() + expected
    assert (apart - apart[0]).abs().max() < 1e-4
    # An energy that is higher everywhere is the same density.
    network, model._log_z = model.network.network, None
    torch.nn.init.constant_(network.net[-1].bias, 1.0)
    height = network.bound * math.tanh(1.0 / network.bound)
    assert model.log_z().value == pytest.approx(-height, abs=1e-5)
    torch.testing.assert_close(model.log_density(x[:20]), expected, rtol=1e-4, atol=1e-4)


def test_samples_of_a_table_with_a_constant_column():
    model, _, x = by_hand()
    assert model.shape == (4,)
    drawn = model.sample(50, n_steps=2)
    assert (drawn[:, 2] == -3.0).all()
    assert model.gradients in ("by hand in C++", "by hand")
    moved = model.sample(5, start=x[:5], n_steps=1)
    assert moved.shape == (5, 4)
    shifted = x[:5].clone()
    shifted[:, 2] = 100.0  # it has no say
    assert torch.equal(model.energy(shifted), model.energy(x[:5]))


def test_notes_and_everything_else_survive_the_file(tmp_path):
    model, _, x = by_hand()
    with torch.no_grad():
        for p in model.network.parameters():
            p.copy_(torch.randn(p.shape, generator=generator(1)))
    model.save(tmp_path / "m.safetensors", step=7)
    again = Model.load(tmp_path / "m.safetensors")
    assert again.notes == model.notes
    assert again.config == model.config
    assert again.columns == model.columns
    assert model.state_dict().keys() == again.state_dict().keys()
    for name, value in model.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name
    assert torch.equal(model.energy(x), again.energy(x))
    assert torch.equal(model.sample(30, seed=5), again.sample(30, seed=5))
    assert torch.equal(model.log_density(x), again.log_density(x))


def test_images_have_no_log_z(small):
    images = torch.rand(30, 1, 8, 8, generator=generator(0))
    config = RECIPES["digits"].changed({"energy.width": 2, "updates": 1, "chains.buffer_size": 30, "batch_size": 8})
    with pytest.raises(UserError, match="models of tables only"):
        pscd.fit(images, config=config).log_z()


def sampled_by_hand(model, n, seed, n_steps, start=None):
    """Chains from the proposal, by the configuration's sampler with its jumps, mapped back to the data's units."""
    rng = generator(seed, Stream.SAMPLE)
    z = model.proposal.sample(n, rng).view(n, *model.shift.shape)
    z = z if start is None else model.coordinates.forward(start)
    z, stats = model.config.sampler.run(
        model.network, z, step_size=model.step_size, n_steps=n_steps, proposal=model.proposal, generator=rng
    )
    return model.coordinates.inverse(z), stats


@pytest.mark.parametrize("jump_every", [0, 2])
def test_samples_are_those_of_the_sampler_with_its_jumps(trained, jump_every):
    model = pscd.load(trained)
    model.config = model.config.changed({"sampler.jump_every": jump_every})
    expected, stats = sampled_by_hand(model, 25, 3, 6)
    assert ("jumps" in stats) == bool(jump_every)
    assert torch.equal(model.sample(25, seed=3, n_steps=6), expected)
    assert torch.equal(model.sample(25, seed=3, n_steps=6, progress=True), expected)
    assert torch.equal(model.sample(25, seed=3), sampled_by_hand(model, 25, 3, model.config.chains.sample_steps)[0])
    start = torch.full((25, 2), 0.5)
    assert torch.equal(model.sample(25, seed=3, n_steps=2, start=start), sampled_by_hand(model, 25, 3, 2, start)[0])
    seen = []
    model.sample(25, n_steps=6, callback=seen.append)
    assert [at["step"] for at in seen] == list(range(6))
    seen.clear()
    model.sample(25, n_steps=6, callback=seen.append, progress=True)
    assert [at["step"] for at in seen] == list(range(6))


def test_one_sample_and_one_step_are_the_least(trained):
    model = pscd.load(trained)
    assert model.sample(1, n_steps=1).shape == (1, 2)
    for settings in ({"n": 0}, {"n": 1, "n_steps": 0}):
        with pytest.raises(UserError, match="must be at least 1, got 0"):
            model.sample(**settings)
    with pytest.raises(UserError, match="left out: the model is not conditional"):
        model.sample(1, label=0)


def test_labels_of_samples_are_those_asked_for():
    x = torch.randint(256, (40, 1, 8, 8), generator=generator(0)).to(torch.uint8)
    small = {"energy.width": 2, "energy.classes": 3, "chains.buffer_size": 30, "batch_size": 8, "updates": 1}
    model = pscd.fit(x, config=RECIPES["digits"].changed(small), label=torch.arange(40) % 3)
    seen = []
    run = Langevin.run

    def spy(self, energy, x, **settings):
        seen.append(energy.label.tolist())
        return run(self, energy, x, **settings)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Langevin, "run", spy)
        model.sample(4, n_steps=1, label=2)
        model.sample(30, n_steps=1)
    assert seen[0] == [2, 2, 2, 2]
    assert sorted(seen[1]) == sorted(model.proposal.label.tolist())
    for label in (-1, 3):
        with pytest.raises(UserError, match=f"the label must be between 0 and 2, got {label}"):
            model.sample(1, label=label)
    e = model(x[:5].float() / 255, torch.tensor([0, 1, 2, 0, 1]))
    z = model.coordinates.forward(x[:5].float() / 255, torch.float32)
    assert torch.equal(e, model.network(z, torch.tensor([0, 1, 2, 0, 1])))
    assert model.is_image
    assert model.shape == (1, 8, 8)


def test_images_are_evaluated_and_sampled_in_blocks(monkeypatch):
    monkeypatch.setattr("pscd.model.IMAGE_BLOCK", 7)
    x = torch.randint(256, (20, 1, 8, 8), generator=generator(0)).to(torch.uint8)
    small = {"energy.width": 2, "chains.buffer_size": 30, "batch_size": 8, "updates": 1}
    model = pscd.fit(x, config=RECIPES["digits"].changed(small))
    sizes = []
    model.network.register_forward_hook(lambda module, args, out: sizes.append(len(args[0])))
    assert model.energy(x).shape == (20,)
    assert sizes == [7, 7, 6]
    assert model.sample(20, n_steps=1).shape == (20, 1, 8, 8)


def test_a_saved_model_knows_its_step_and_device(tmp_path, trained):
    from pscd.files import read_tensors

    model = pscd.load(trained)
    model.save(tmp_path / "m.safetensors", step=17)
    _, facts = read_tensors(tmp_path / "m.safetensors")
    assert (facts["step"], facts["energy"]) == ("17", type(model.network).__name__)
    assert Model.load(tmp_path / "m.safetensors").fingerprint == model.fingerprint is not None
    model.save(tmp_path / "m.safetensors")
    assert read_tensors(tmp_path / "m.safetensors")[1]["step"] == str(model.config.updates)


def test_samples_come_as_the_frame_that_the_model_was_fitted_to(trained):
    frame = pd.DataFrame({"hired": pd.date_range("2020-01-01", periods=60), "flag": [True, False] * 30})
    frame["pay"] = np.random.default_rng(0).normal(9, 1, 60).round(1)
    model = pscd.fit(frame, updates=2)
    drawn = model.sample_frame(20, seed=1, n_steps=2)
    assert drawn.dtypes.equals(frame.dtypes)
    assert drawn["hired"].between("2019", "2021").all()
    assert (drawn["pay"] == drawn["pay"].round(1)).all()
    polars = pl.from_pandas(frame)
    assert torch.equal(model.energy(polars), model.energy(frame))
    assert torch.equal(pscd.fit(polars, updates=2).energy(frame), model.energy(frame))
    plain = pscd.load(trained)
    assert np.array_equal(plain.sample_frame(5, n_steps=2), plain.sample(5, n_steps=2))
    assert list(plain.sample_frame(1, n_steps=1).columns) == ["x0", "x1"]


def test_a_path_that_a_model_cannot_be_saved_to_is_one_line(tmp_path, trained):
    for path in (tmp_path, tmp_path / "none" / "m.safetensors"):
        with pytest.raises(pscd.UserError, match="cannot write to"):
            pscd.load(trained).save(path)


def test_a_file_of_a_model_is_loaded_as_a_run_folder_is(tmp_path, trained):
    model = pscd.load(trained)
    model.save(tmp_path / "m.safetensors")
    again = pscd.load(tmp_path / "m.safetensors")
    assert torch.equal(again.sample(20, seed=3), model.sample(20, seed=3))
    (tmp_path / "other.txt").write_text("no model")
    with pytest.raises(UserError, match=r"other\.txt: damaged, or not a model of pscd"):
        pscd.load(tmp_path / "other.txt")


def test_log_z_and_energies_are_those_of_the_network_at_rest():
    model, _, x = by_hand()
    for ask in (model.log_z, lambda: model.energy(x)):
        model.train()
        ask()
        assert not model.training


def test_energies_of_a_stream_are_those_of_the_rows(trained, tmp_path):
    model = pscd.load(trained)
    rows = np.random.default_rng(0).normal(size=(2 * SCORE_BLOCK + 5, 2)).astype(np.float32)
    np.save(tmp_path / "rows.npy", rows)
    energies = model.energy(rows)
    blocks = [model.energy(rows[i : i + SCORE_BLOCK]) for i in range(0, len(rows), SCORE_BLOCK)]
    assert torch.equal(energies, torch.cat(blocks))
    assert torch.equal(energies, model.energy(np.load(tmp_path / "rows.npy", mmap_mode="r")))
    assert torch.equal(energies, model.energy(torch.from_numpy(rows)))
    batches = np.split(rows, [SCORE_BLOCK, 2 * SCORE_BLOCK])
    assert all(torch.equal(a, b) for a, b in zip(model.score_batches(batches), blocks, strict=True))


def test_bad_rows_of_any_block_are_counted(trained):
    model = pscd.load(trained)
    rows = np.zeros((2 * SCORE_BLOCK + 5, 2))
    rows[[3, -1], 1] = np.nan
    with pytest.raises(UserError, match=f"2 of {len(rows)} rows"):
        model.energy(rows)


def test_a_model_in_training_is_scored_at_rest(trained):
    model = pscd.load(trained)
    for part in (model, model.network):
        part.train()
        model.energy(torch.zeros(3, 2))
        assert not model.network.training


def test_what_a_notebook_shows():
    model, _, _ = by_hand()
    html = model._repr_html_()
    n = sum(p.numel() for p in model.network.parameters())
    for text in ("4 numbers: a, b, c, d", f"{type(model.network).__name__}, {n:,} parameters", "1,000",
                 "rows in memory", "a word", "Energy-based model"):  # fmt: skip
        assert text in html
    model.columns, model.config = ("x" * 300,), model.config.changed({"rows.data": "x.csv"})
    html = model._repr_html_()
    assert "x" * 200 in html
    assert "x" * 201 not in html
    assert "x.csv" in html
    model.columns = None
    assert "4 numbers<" in model._repr_html_().replace("\n", "")


def test_rows_as_lists_are_scored_and_whole_blocks_need_no_threads(trained, monkeypatch):
    model = pscd.load(trained)
    x = torch.randn(8, 2, generator=generator(0))
    monkeypatch.setattr("pscd.model.SCORE_BLOCK", 8)
    monkeypatch.setattr("pscd.model.fast.in_order", None)  # not asked
    torch.testing.assert_close(model.energy(x.tolist()), model(x).detach())
    monkeypatch.undo()
    monkeypatch.setattr("pscd.model.SCORE_BLOCK", 3)
    torch.testing.assert_close(model.energy(x.tolist()), model(x).detach())
    with pytest.raises(UserError, match=r"one column is x\[:, None\]"):
        model.energy(np.zeros(9))


def test_log_densities_of_rows_in_any_form():
    model, _, x = by_hand()
    expected = model.log_density(x)
    assert expected.dtype == torch.float64
    for rows in (x.tolist(), x.numpy()):
        torch.testing.assert_close(model.log_density(rows), expected)
