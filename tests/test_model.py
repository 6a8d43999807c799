from dataclasses import replace

import pytest
import torch
from torch import nn

import pscd
from pscd.energies import Architecture
from pscd.errors import UserError
from pscd.model import SCORE_BLOCK, Model
from pscd.rng import generator
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
    assert torch.equal(model(x), model.energy(((x - model.shift) / model.scale).float()))
    assert model.scale[0] > 1.5  # two moons are wider than a unit


def test_scores_any_number_of_rows_in_blocks(trained):
    model = pscd.load(trained)
    x = torch.randn(SCORE_BLOCK + 5, 2, generator=generator(0))
    scores = model.energies(x)
    assert scores.shape == (SCORE_BLOCK + 5,)
    torch.testing.assert_close(scores[-5:], model(x[-5:]).detach())
    with pytest.raises(UserError, match=r"rows have shape \(3,\), the model was trained on \(2,\)"):
        model.energies(torch.zeros(4, 3))


def test_a_network_of_ones_own_is_given_again(small, tmp_path):
    x = torch.randn(200, 2, generator=generator(0))
    model = pscd.fit(x, small, energy=Own())
    model.save(tmp_path / "m.safetensors", step=1)
    again = Model.load(tmp_path / "m.safetensors", energy=Own())
    assert torch.equal(again.energy.centre, model.energy.centre)
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
    from pscd.config import TrainConfig

    config = TrainConfig(steps=1, n_data=100, batch_size=8, buffer_size=8, jump_components=1)
    model = pscd.fit(torch.randn(100, 2, generator=generator(0)), config)
    model.save(folder / "fresh.safetensors", step=1)
    return folder / "fresh.safetensors"


def test_it_says_how_chains_get_their_gradients(trained, small):
    model = pscd.load(trained)
    assert model.gradients in ("by hand in C++", "by hand")  # without a compiler
    model.config = replace(model.config, gradients="plain")
    assert model.gradients == "by autograd"
    conditional = Architecture("conv", width=2, depth=2, classes=10)
    label = torch.arange(30) % 10
    images = torch.rand(30, 1, 8, 8, generator=generator(0))
    model = pscd.fit(images, replace(small, energy=conditional, steps=1, sampler=Langevin(n_steps=1)), label=label)
    assert model.gradients in ("by hand in C++", "by hand")
