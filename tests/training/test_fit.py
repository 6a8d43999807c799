"""`pscd.fit`: the recipe for rows of a shape, and what keywords change of it."""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import pscd
from pscd.errors import UserError
from pscd.objectives import OBJECTIVES
from pscd.recipes.configs import RECIPES
from pscd.rng import generator


@pytest.fixture
def rows():
    return torch.randn(120, 3, generator=generator(0))


def with_gamma(config, model):
    """The configuration with the gamma that was chosen from the rows."""
    return config.changed({"objective.gamma": model.config.objective.gamma})


def test_keywords_change_one_setting_of_the_same_recipe(rows):
    model = pscd.fit(rows, updates=3)
    recipe = RECIPES["table"].changed({"updates": 3})
    assert model.config == with_gamma(recipe, model)
    assert model.config.rows.start == "mixture"
    assert model.notes[0] == "recipe for tables: a robust mixture, corrected by a bounded network"
    changed = pscd.fit(rows, updates=3, gamma=0.5, batch_size=32, seed=4, lr=0.1, sampler=pscd.Jumps(n_steps=3)).config
    settings = {"objective.gamma": 0.5, "batch_size": 32, "seed": 4, "optimizer.lr": 0.1, "sampler.n_steps": 3}
    assert changed == recipe.changed(settings)
    explicit = pscd.fit(rows, config=recipe)
    torch.testing.assert_close(explicit.state_dict(), model.state_dict(), rtol=0, atol=0)
    assert not any("recipe" in note for note in explicit.notes)
    assert pscd.fit(rows, config=recipe, updates=2).config == with_gamma(recipe.changed({"updates": 2}), explicit)


def test_each_shape_has_its_recipe():
    plane = pscd.fit(torch.randn(60, 2, generator=generator(0)), updates=1)
    assert plane.config == with_gamma(RECIPES["plane"].changed({"updates": 1}), plane)
    images = torch.randint(0, 256, (30, 1, 8, 8), dtype=torch.uint8)
    config = pscd.fit(images, updates=1, batch_size=4, energy=pscd.Architecture("conv", width=2, depth=2)).config
    assert (config.energy.width, config.rows.start, config.chains.base) == (2, "glance", "box")


def test_an_energy_of_ones_own_keeps_the_robust_weights(rows):
    rows[:6] += 50
    net = nn.Sequential(nn.Linear(3, 8), nn.SiLU(), nn.Linear(8, 1), nn.Flatten(0))
    for energy in (net, pscd.Architecture("mlp", width=8)):
        model = pscd.fit(rows, energy=energy, updates=2)
        assert model.config.rows.start == "mixture"
        assert model.config.objective.gamma > 0
        assert model.config.rows.hold_out == 0
        assert model.notes[0].startswith("recipe for a custom energy")


@pytest.mark.parametrize("name", [name for name in OBJECTIVES if name != "recovery"])
def test_every_objective_has_the_recipe(rows, name):
    model = pscd.fit(rows, objective=OBJECTIVES[name], updates=2)
    assert model.energy(rows).isfinite().all()


def test_what_fit_cannot_use_is_one_line(rows):
    with pytest.raises(TypeError, match="positional"):
        pscd.fit(rows, pscd.TrainConfig())
    with pytest.raises(UserError, match=r"a path is not rows; pscd\.read_table\('my\.csv'\) reads a file"):
        pscd.fit("my.csv")
    with pytest.raises(UserError, match="TrainConfig, not dict"):
        pscd.fit(rows, config={"updates": 3})
    with pytest.raises(UserError, match=r"objective must be an instance such as pscd\.PseudoSpherical\(\)"):
        pscd.fit(rows, objective=pscd.PseudoSpherical)
    with pytest.raises(UserError, match=r"sampler must be an instance such as pscd\.Mala\(\), got 'mala'"):
        pscd.fit(rows, sampler="mala")
    with pytest.raises(UserError, match="energy must be a torch module"):
        pscd.fit(rows, energy="mlp")
    with pytest.raises(UserError, match="labels need an energy with classes"):
        pscd.fit(rows, label=torch.zeros(120))
    with pytest.raises(UserError, match=r"objective\.gamma': DenoisingScoreMatching has no gamma"):
        pscd.fit(rows, objective=OBJECTIVES["dsm"], gamma=1.0)
    with pytest.raises(UserError, match="no column of the table is a number or a date"):
        pscd.fit(pd.DataFrame({"name": ["a", "b", "c"] * 9}))


def test_a_frame_with_text_and_missing_values_is_modelled_by_its_numbers():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"town": ["a", "b"] * 60, "kg": rng.normal(70, 9, 120), "cm": rng.normal(170, 8, 120)})
    frame.loc[:9, "kg"] = None
    with pytest.warns(UserWarning, match=r"^columns left out: town \(a category\)$") as warned:
        model = pscd.fit(frame, updates=3)
    assert len(warned) == 1
    assert model.columns == ("kg", "cm")
    assert model.notes[1] == "columns left out: town (a category)"
    assert model.energy(frame.iloc[10:]).isfinite().all()
    assert torch.equal(model.energy(frame.iloc[10:]), model.energy(frame.iloc[10:, 1:].to_numpy()))


def test_a_model_of_a_frame_is_saved_with_its_columns(tmp_path):
    frame = pd.DataFrame(
        {"day": pd.date_range("2020-01-01", periods=60), "x": np.random.default_rng(0).normal(size=60)}
    )
    model = pscd.fit(frame, updates=2)
    model.save(tmp_path / "m.safetensors")
    assert torch.equal(pscd.load(tmp_path / "m.safetensors").energy(frame), model.energy(frame))


def test_a_finished_run_in_a_folder_is_loaded_without_a_warning(rows, tmp_path):
    model = pscd.fit(rows, updates=3, folder=tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded = pscd.load(tmp_path)
    assert torch.equal(loaded.energy(rows), model.energy(rows))


def test_callbacks_see_the_run_and_may_end_it(rows):
    seen = []

    def stop(at):
        seen.append((at["step"], at["stats"]["loss"], at["model"]().energy(rows[:2]).shape))
        return at["step"] >= 100

    model = pscd.fit(rows, updates=1000, callbacks=[stop])
    assert [step for step, _, _ in seen] == [50, 100]
    assert seen[0][2] == (2,)
    assert model.energy(rows).isfinite().all()
