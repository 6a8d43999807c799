import pytest
import torch

from pscd.rng import generator
from studies.images.noise import gaussian_noise, interpolations, uniform_noise


def test_noise_is_a_function_of_its_generator():
    state = torch.get_rng_state()
    for make in (uniform_noise, gaussian_noise):
        a, b = (make(5, (3, 4, 6), generator(seed)) for seed in (0, 1))
        assert a.shape == (5, 3, 4, 6)
        assert a.dtype == torch.uint8
        assert torch.equal(a, make(5, (3, 4, 6), generator(0)))
        assert not torch.equal(a, b)
    interpolations(uniform_noise(9, (1, 4, 4), generator(0)), 5, generator(0))
    assert torch.equal(torch.get_rng_state(), state)


def test_uniform_noise_has_every_value_equally_often():
    count = uniform_noise(256, (1, 40, 25), generator(0)).flatten().long().bincount(minlength=256)
    # 1000 expected of each, deviation 32: five deviations
    assert (count - 1000).abs().max() < 160


def test_gaussian_noise_has_the_moments_it_says():
    x = gaussian_noise(100, (1, 50, 20), generator(0)).double() / 255
    # A Gaussian clipped at two deviations on both sides: mean unchanged, deviation 0.9594 of what it was.
    assert x.mean().item() == pytest.approx(0.5, abs=5 * 0.25 / 1e5**0.5)
    assert x.std().item() == pytest.approx(0.9594 * 0.25, abs=0.002)
    assert gaussian_noise(3, (2,), mean=0.2, sd=0.0).eq(51).all()
    wide = gaussian_noise(100, (1, 50, 20), generator(0), sd=1.0)
    assert ((wide == 0) | (wide == 255)).float().mean() == pytest.approx(2 * 0.3085, abs=0.01)


def test_interpolations_are_means_of_two_different_images():
    x = (torch.tensor([1, 4, 16, 64]) * 2).to(torch.uint8).view(4, 1, 1, 1).expand(4, 1, 2, 2)
    sums = {int(a + b) for a in (1, 4, 16, 64) for b in (1, 4, 16, 64) if a != b}
    mixed = interpolations(x, 200, generator(0))
    assert mixed.shape == (200, 1, 2, 2)
    assert {int(v) for v in mixed.flatten()} == sums  # half of twice the sum; equal pairs would give 2, 8, ...
    assert set(interpolations(x, 50, generator(0), weight=1.0).flatten().tolist()) == {2, 8, 32, 128}
    with pytest.raises(ValueError, match="two images"):
        interpolations(x[:1], 3)


def test_interpolations_come_in_blocks_of_any_size(monkeypatch):
    x = uniform_noise(9, (1, 4, 4), generator(0))
    whole = interpolations(x, 25, generator(1), weight=0.3)
    monkeypatch.setattr("studies.images.noise.BLOCK", 4)
    assert torch.equal(interpolations(x, 25, generator(1), weight=0.3), whole)
    a, b = x[:2].float()
    pair = interpolations(x[:2], 40, generator(2), weight=0.3)
    mixes = {tuple((0.3 * p + 0.7 * q).round().to(torch.uint8).flatten().tolist()) for p, q in ((a, b), (b, a))}
    assert {tuple(row.flatten().tolist()) for row in pair} == mixes
