import math

import pytest
import torch

from pscd.energies import ENERGIES, MLP, Architecture, Correction, Quadratic
from pscd.errors import UserError
from pscd.rng import generator


def test_quadratic_is_a_gaussian_up_to_its_constant():
    energy, x = Quadratic(mu=-1.0, sigma=0.7), torch.linspace(-3, 3, 20)[:, None]
    density = torch.distributions.Normal(-1.0, 0.7).log_prob(x[:, 0])
    torch.testing.assert_close(-energy(x) - math.log(0.7 * math.sqrt(2 * math.pi)), density)
    with pytest.raises(ValueError, match="sigma"):
        Quadratic(sigma=0.0)


@pytest.mark.parametrize("name", [name for name in ENERGIES if name != "corrected"])  # which needs a mixture
@pytest.mark.parametrize("shape", [(1,), (5,), (1, 8, 8), (3, 8, 16)])
def test_every_energy_maps_rows_of_any_shape_to_one_number(name, shape):
    torch.manual_seed(0)
    architecture = Architecture(name=name, width=8)
    if len(shape) == 1 and name in ("conv", "cnn", "resnet"):
        with pytest.raises(UserError, match="for images"):
            architecture.build(shape)
        return
    energy = architecture.build(shape).eval()
    x = torch.randn(7, *shape, generator=generator(0))
    e = energy(x)
    assert e.shape == (7,)
    # rows do not see each other
    torch.testing.assert_close(energy(x[2:3]), e[2:3])


def test_base_makes_the_energy_grow_in_every_direction():
    energy = MLP((2,), width=32, fourier=8, base_scale=2.0)
    directions = torch.nn.functional.normalize(torch.randn(100, 2, generator=generator(0)))
    growth = energy(200 * directions) - energy(100 * directions)
    # the base alone grows by (200^2 - 100^2) / 8 = 3750; the network at most linearly
    assert growth.min() > 3000
    assert MLP((2,), width=32)(torch.zeros(1, 2)).isfinite()


def test_spectral_norm_bounds_the_slope():
    torch.manual_seed(0)
    energy = MLP((3,), width=16, spectral_norm=True)
    for _ in range(200):  # each training pass is one power iteration
        energy(torch.zeros(2, 3))
    energy.eval()
    x = torch.randn(500, 3, generator=generator(1), requires_grad=True)
    (slope,) = torch.autograd.grad(energy(x).sum(), x)
    # SiLU's own slope is at most 1.1 in each of three layers
    assert slope.norm(dim=1).max() < 1.1**3 * 1.01


def test_fourier_features_are_saved_with_the_weights():
    energy, other = MLP((2,), width=8, fourier=4), MLP((2,), width=8, fourier=4)
    other.load_state_dict(energy.state_dict())
    x = torch.randn(5, 2, generator=generator(0))
    assert torch.equal(energy(x), other(x))


@pytest.mark.parametrize(
    "settings",
    [
        {"name": "none"},
        {"width": 0},
        {"depth": 0},
        {"fourier": -1},
        {"base_scale": 0.0},
        {"base_scale": 10**400},
        {"base_scale": 1e-200},
    ],
)
def test_bad_architectures_are_refused(settings):
    with pytest.raises(UserError):
        Architecture(**settings)


def test_a_correction_starts_as_the_gaussian_and_stays_near_it():
    torch.manual_seed(0)
    energy = Correction(4, bound=1.5)
    x = 10 * torch.randn(100, 4)
    gaussian = 0.5 * x.square().sum(1)
    torch.testing.assert_close(energy(x), gaussian)
    torch.nn.init.normal_(energy.net[-1].weight, std=100.0)
    assert (energy(x) - gaussian).abs().max() <= 1.5 + 1e-4
    assert (energy(x) - gaussian).abs().max() > 1


def test_labels_and_sizes_that_do_not_fit_are_told():
    with pytest.raises(UserError, match="conv or cnn or resnet"):
        Architecture("mlp", classes=10)
    with pytest.raises(UserError, match="lower the depth"):
        Architecture("conv", depth=4).build((1, 8, 8))
