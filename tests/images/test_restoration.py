import pytest
import torch
from torch import nn

from pscd.config import TrainConfig
from pscd.coordinates import Coordinates
from pscd.energies import MaskedEnergy
from pscd.errors import UserError
from pscd.images.restoration import denoise, half_mask, inpaint
from pscd.model import Model
from pscd.rng import generator
from pscd.sampling import Chains
from studies.presets import PRESETS

SHAPE = (1, 4, 4)


class Smooth(nn.Module):
    """Neighbours in a row want to be alike: the unknown half is decided by the known one."""

    def forward(self, x):
        return 0.01 * (x[:, :, :, 1:] - x[:, :, :, :-1]).square().sum((1, 2, 3))


@pytest.fixture
def model():
    return make(PRESETS["mnist"].changed({"sampler.noise_scale": 0.0}))


def make(config, shape=SHAPE):
    return Model(
        Smooth(),
        config,
        coordinates=Coordinates.identity(shape),
        step_size=torch.tensor(config.sampler.step_size),
        proposal=Chains(torch.zeros(3, *shape, dtype=torch.uint8)),
    )


def test_known_pixels_stay_and_the_others_find_the_lowest_energy(model):
    x = torch.rand(3, *SHAPE, generator=generator(0))
    known = half_mask(SHAPE, "left")
    filled = inpaint(model, x, known, n_steps=400)
    assert torch.equal(filled[:, known], x[:, known])
    # With no noise the lowest energy is a constant row, equal to the last known pixel.
    expected = x[:, :, :, 1:2].expand(-1, -1, -1, 2)
    torch.testing.assert_close(filled[:, :, :, 2:], expected, rtol=0, atol=0.02)


def test_the_gradient_of_held_pixels_is_zero():
    x = torch.rand(2, *SHAPE, generator=generator(0), requires_grad=True)
    known = half_mask(SHAPE, "top")
    (grad,) = torch.autograd.grad(MaskedEnergy(Smooth(), torch.rand(2, *SHAPE), known)(x).sum(), x)
    assert (grad[:, known] == 0).all()
    assert (grad[:, ~known] != 0).all()


def test_denoising_lowers_the_energy_and_draws_no_noise(model):
    x = torch.rand(2, *SHAPE, generator=generator(1))
    torch.manual_seed(0)
    clean = denoise(make(PRESETS["mnist"]), x, n_steps=20)
    assert (model.energy(clean) < 0.2 * model.energy(x)).all()
    assert torch.equal(clean, denoise(make(PRESETS["mnist"]), x, n_steps=20, seed=7))


@pytest.mark.parametrize(("side", "pixel"), [("left", (0, 0)), ("right", (0, 3)), ("top", (0, 0)), ("bottom", (3, 0))])
def test_halves(side, pixel):
    known = half_mask((3, 4, 4), side)
    assert known[:, *pixel].all()
    assert known.sum() == 24


def test_what_cannot_be_restored_is_refused(model):
    with pytest.raises(UserError, match="left, right, top or bottom"):
        half_mask(SHAPE, "middle")
    with pytest.raises(UserError, match="shape"):
        inpaint(model, torch.rand(1, 1, 5, 5), half_mask((1, 5, 5), "left"))
    with pytest.raises(UserError, match="only models of images"):
        denoise(make(TrainConfig(), shape=(2,)), torch.rand(1, 2))


class Seen(nn.Module):
    """A conditional energy that notes how it is called: with which labels, and whether in bfloat16."""

    def __init__(self):
        super().__init__()
        self.classes, self.calls = 2, []

    def forward(self, x, label=None):
        self.calls.append((None if label is None else label.tolist(), torch.is_autocast_enabled("cpu")))
        return 0.01 * x.square().sum((1, 2, 3))


@pytest.mark.parametrize("restore", ["inpaint", "denoise"])
def test_chains_run_with_the_labels_and_precision_of_the_model(restore, monkeypatch):
    monkeypatch.setattr("pscd.energies.wrappers.has_bfloat16", lambda: True)
    config = PRESETS["mnist"].changed({"compute.precision": "bfloat16", "energy.name": "conv", "energy.classes": 2})
    model = make(config)
    model.network = Seen()
    x, label = torch.rand(2, *SHAPE, generator=generator(0)), torch.tensor([1, 0])
    if restore == "inpaint":
        inpaint(model, x, half_mask(SHAPE, "left"), n_steps=2, label=label)
    else:
        denoise(model, x, n_steps=2, label=label)
    assert model.network.calls
    assert all(call == ([1, 0], True) for call in model.network.calls)
