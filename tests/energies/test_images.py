import pytest
import torch

from pscd.energies import Architecture, BFloat16Energy, ConvNet, LabelledEnergy, PlainCNN, ResNet, as_function, wrappers
from pscd.rng import generator


def parameters(module):
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize("kind", [ConvNet, PlainCNN, ResNet])
def test_without_a_label_the_energy_is_that_of_the_likeliest_one(kind):
    torch.manual_seed(0)
    energy = kind((1, 8, 8), width=8, depth=2, classes=3).eval()
    for p in energy.parameters():  # gains and offsets start alike for all labels
        p.data += 0.3 * torch.randn_like(p)
    x = torch.rand(5, 1, 8, 8, generator=generator(0))
    each = torch.stack([energy(x, torch.full((5,), y)) for y in range(3)])
    assert each.std(0).min() > 1e-4
    torch.testing.assert_close(energy(x), each.amin(0))


def test_fixed_labels_make_a_function_of_x_alone():
    torch.manual_seed(0)
    energy = ConvNet((1, 8, 8), width=4, depth=2, classes=3)
    x, label = torch.rand(4, 1, 8, 8), torch.tensor([0, 1, 2, 1])
    torch.testing.assert_close(LabelledEnergy(energy, label)(x[:2]), energy(x[:2], label[:2]))


def test_the_paper_networks_have_the_layers_of_its_figure():
    """Kernel, channels and size of each layer, counted by hand from Figure 6."""
    celeba = Architecture("cnn", width=64, depth=4, base_scale=None).build((3, 64, 64))
    channels = [3, 64, 128, 256, 512, 512, 1]
    kernels = [9, 16, 16, 16, 16, 16]
    expected = sum(a * b * k + b for a, b, k in zip(channels, channels[1:], kernels, strict=False))
    assert parameters(celeba) == expected
    cifar = ResNet((3, 32, 32), width=128, depth=3, spectral_norm=False)
    blocks = [(128, 128), (128, 128), (128, 256), (256, 256), (256, 256), (256, 256)]
    expected = 3 * 128 * 9 + 128 + 256 + 1
    expected += sum(a * b * 9 + b + b * b * 9 + b + (a * b + b if a != b else 0) for a, b in blocks)
    assert parameters(cifar) == expected
    with torch.no_grad():
        assert cifar(torch.rand(2, 3, 32, 32)).shape == (2,)


def test_the_last_sum_runs_over_positions():
    """Tiling an image that is constant multiplies the pooled features, away from the padding."""
    torch.manual_seed(0)
    energy = ResNet((1, 8, 8), width=4, depth=1, spectral_norm=False)
    with torch.no_grad():
        small, large = energy(torch.zeros(1, 1, 32, 32)), energy(torch.zeros(1, 1, 64, 64))
        bias = energy.last.bias
        edge = energy(torch.zeros(1, 1, 16, 16))
    # Positions n^2 a + n b + c + bias: three sizes tell a, b, and the fourth is implied.
    values = torch.stack([edge - bias, small - bias, large - bias]).flatten()
    sides = torch.tensor([[8.0**2, 8, 1], [16.0**2, 16, 1], [32.0**2, 32, 1]])
    a, b, c = torch.linalg.solve(sides, values)
    with torch.no_grad():
        other = energy(torch.zeros(1, 1, 48, 48)) - bias
    torch.testing.assert_close(a * 24**2 + b * 24 + c, other[0], rtol=1e-4, atol=1e-4)


def test_five_layers_for_small_images():
    net = PlainCNN((3, 32, 32), width=8, depth=3)
    assert sum(isinstance(m, torch.nn.Conv2d) for m in net.modules()) == 5


def test_mixed_precision_returns_float32_near_the_full_one():
    torch.manual_seed(0)
    energy = ConvNet((1, 8, 8), width=8, depth=2)
    x = torch.rand(16, 1, 8, 8)
    mixed = BFloat16Energy(energy)(x)
    assert mixed.dtype == torch.float32
    torch.testing.assert_close(mixed, energy(x), rtol=0.05, atol=0.02)
    assert not torch.equal(mixed, energy(x))


@pytest.mark.parametrize("has_it", [True, False])
def test_a_processor_without_bfloat16_computes_in_float32(has_it, monkeypatch):
    monkeypatch.setattr(wrappers, "has_bfloat16", lambda: has_it)
    energy = ConvNet((1, 8, 8), width=8, depth=2)
    assert isinstance(as_function(energy, "bfloat16"), BFloat16Energy) == has_it
    assert as_function(energy, "float32") is energy
    elsewhere = ConvNet((1, 8, 8), width=8, depth=2).to("meta")  # what other devices can is not asked
    assert isinstance(as_function(elsewhere, "bfloat16"), BFloat16Energy)
    labelled = as_function(energy, "bfloat16", torch.zeros(3, dtype=torch.long), None)
    assert isinstance(labelled.energy if has_it else labelled, LabelledEnergy)
