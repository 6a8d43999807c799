"""What the image baselines have in common: one interface, files, errors."""

import math
import sys

import pytest
import torch

from pscd.errors import Diverged, UserError
from pscd.rng import generator
from studies.baselines import FITS, base, bits_per_dimension, load

SMALL = {
    "ncsn": {"width": 4, "batch_size": 8},
    "ncsnv2": {"width": 4, "batch_size": 8},
    "glow": {"blocks": 1, "width": 4, "batch_size": 8},
    "pixelcnn": {"width": 4, "mixtures": 2, "batch_size": 8},
}


def pictures(n, shape, seed=0):
    """Dark images with a bright bar."""
    x = torch.randint(40, (n, *shape), generator=generator(seed), dtype=torch.uint8)
    x[:, :, 2:4] += 200
    return x


def fitted(name, shape=(1, 8, 8), **changes):
    if name == "glow":
        pytest.importorskip("normflows")
    settings = {"steps": 2, "seed": 1, **SMALL[name], **changes}
    return FITS[name](pictures(20, shape), **settings)


@pytest.mark.parametrize("shape", [(1, 8, 4), (3, 4, 8)])
@pytest.mark.parametrize("name", FITS)
def test_every_baseline_fits_samples_has_energies_and_comes_back_from_its_file(name, shape, tmp_path):
    before = torch.get_rng_state()
    model = fitted(name, shape)
    x = model.sample(3, seed=5)
    assert x.shape == (3, *shape)
    assert x.dtype == torch.uint8
    assert torch.equal(x, model.sample(3, seed=5))
    assert not torch.equal(x, model.sample(3, seed=6))
    energies = model.energy(pictures(4, shape, seed=2))
    assert energies.shape == (4,)
    assert energies.isfinite().all()
    torch.testing.assert_close(model.energy(pictures(4, shape, seed=2)[2:]), energies[2:])  # whatever the neighbours
    model.save(tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    assert torch.equal(again.energy(pictures(4, shape, seed=2)), energies)
    assert torch.equal(again.sample(3, seed=5), x)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", FITS)
def test_the_same_seed_gives_the_same_model(name):
    x = pictures(4, (1, 8, 8), seed=2)
    one, same, other = (fitted(name, seed=seed).energy(x) for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


@pytest.mark.parametrize("name", FITS)
def test_more_training_is_better(name):
    x = pictures(50, (1, 8, 8), seed=2)
    early, late = (fitted(name, steps=steps, ema=0.9, lr=1e-2).energy(x).mean() for steps in (1, 30))
    assert late < early


@pytest.mark.parametrize("name", FITS)
@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.zeros(2, 1, 8, 8), "uint8"),
        (torch.zeros(2, 8, 8, dtype=torch.uint8), "uint8"),
        (torch.zeros(0, 1, 8, 8, dtype=torch.uint8), "uint8"),
        (torch.zeros(2, 1, 8, 7, dtype=torch.uint8), "multiples of 4, got 8 x 7"),
    ],
)
def test_what_is_no_set_of_images_is_refused(name, x, message):
    with pytest.raises(UserError, match=message):
        FITS[name](x, steps=1)


def test_files_that_are_none(tmp_path):
    with pytest.raises(UserError, match="no such file"):
        load(tmp_path / "none.safetensors")
    (tmp_path / "broken.safetensors").write_bytes(b"nothing")
    with pytest.raises(UserError, match="damaged"):
        load(tmp_path / "broken.safetensors")
    base.write_tensors(tmp_path / "other.safetensors", {"a": torch.zeros(1)}, {})
    with pytest.raises(UserError, match="not a baseline"):
        load(tmp_path / "other.safetensors")
    base.save_network(tmp_path / "new.safetensors", "vae", torch.nn.Linear(1, 1), {"shape": [1, 4, 4]})
    with pytest.raises(UserError, match=r"kind 'vae'; there are: ncsn, glow, pixelcnn"):
        load(tmp_path / "new.safetensors")
    with pytest.raises(UserError, match="holds a vae, not a glow"):
        base.load_network(tmp_path / "new.safetensors", "glow")


def test_without_normflows_glow_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "normflows", None)
    with pytest.raises(UserError, match=r"glow needs normflows; .*pip install '\.\[baselines\]'"):
        FITS["glow"](pictures(4, (1, 8, 8)), steps=1)


def test_pixels_survive_being_floats():
    x = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16)
    assert torch.equal(base.quantised(base.dequantised(x, generator(0))), x)
    assert base.quantised(torch.tensor([-0.5, 2.0])).tolist() == [0, 255]


def test_bits_per_dimension_of_a_fair_coin_per_pixel():
    energies = torch.full((3,), 12 * math.log(2.0))
    assert bits_per_dimension(energies, (3, 2, 2)) == pytest.approx(1.0)


def test_a_loss_that_is_no_number_ends_training():
    network = torch.nn.Linear(1, 1)
    training = base.Training(steps=1, batch_size=2, lr=0.1, ema=0.9, seed=0, progress=False)
    with pytest.raises(Diverged, match="step 0: the loss is nan"):
        base.optimise(network, lambda x, rng: network.weight.sum() * math.nan, torch.zeros(3, 1), training)
