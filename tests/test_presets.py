import pytest

from pscd.config import TrainConfig
from pscd.energies import Architecture
from pscd.errors import UserError
from pscd.presets import DEFAULT_OF, PRESETS, default_preset, preset

SHAPES = {"digits": (1, 8, 8), "mnist": (1, 28, 28), "fashion-mnist": (1, 28, 28), "paper-celeba": (3, 64, 64)}


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_a_whole_configuration(name):
    config = preset(name)
    assert TrainConfig.from_dict({**TrainConfig().to_dict(), **config.to_dict()}) == config
    small = config.changed({"energy.width": 2}).energy
    assert isinstance(small, Architecture)
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
