import pytest
import torch

from pscd.config import TrainConfig
from pscd.data import load_dataset, to_bytes
from pscd.energies import Architecture
from pscd.errors import UserError
from pscd.images.features import Pixels
from pscd.metrics import auroc, frechet_distance
from pscd.presets import DEFAULT_OF, PRESETS, default_preset, preset
from pscd.rng import generator
from pscd.training.loop import fit

SHAPES = {"digits": (1, 8, 8), "mnist": (1, 28, 28), "fashion-mnist": (1, 28, 28), "paper-celeba": (3, 64, 64)}


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_a_whole_configuration(name):
    config = preset(name)
    assert TrainConfig.from_dict({**TrainConfig().to_dict(), **config.to_dict()}) == config
    small = config.changed({"energy.width": 2}).energy
    assert isinstance(small, Architecture)
    if config.start == "none":
        small.build(SHAPES.get(name, (3, 32, 32)))


def test_the_paper_settings():
    cifar, celeba = PRESETS["paper-cifar10"], PRESETS["paper-celeba"]
    sampler = cifar.sampler
    assert (sampler.n_steps, sampler.step_size, sampler.noise_scale) == (60, 10.0, 0.005)
    assert (cifar.buffer_size, cifar.batch_size, cifar.objective.l2, cifar.energy.classes) == (10_000, 128, 1.0, 10)
    assert (celeba.sampler.n_steps, celeba.chains, celeba.batch_size) == (100, "short-run", 64)
    assert sampler.temperature == pytest.approx(1.25e-6)


def test_data_find_their_preset():
    assert default_preset("mnist") is PRESETS["mnist"]
    assert default_preset("cifar10") is PRESETS["cifar10-small"]
    assert default_preset("moon") == TrainConfig()
    assert set(DEFAULT_OF.values()) <= set(PRESETS)
    with pytest.raises(UserError, match="digits"):
        preset("nonsense")


def test_digits_become_something_like_digits():
    """A tenth of the preset's updates: far from noise already, and noise is strange to the model."""
    data = load_dataset("digits", seed=0)
    model = fit(data.train, PRESETS["digits"].changed({"steps": 200, "sample_steps": 60}))
    noise = torch.rand(500, 1, 8, 8, generator=generator(0))
    pixels = Pixels()
    real, fake = pixels(data.held_out), pixels(to_bytes(model.sample(500)))
    # Two seeds gave 1.8 and 1.8; noise is at 10.3, other digits at .2.
    assert frechet_distance(real, fake) < 3
    assert auroc(model.energies(data.held_out), model.energies(noise)) > 0.99
