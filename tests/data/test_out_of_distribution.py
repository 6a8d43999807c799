import pytest
import torch
from PIL import Image

from pscd.data import as_shape, gaussian_noise, interpolations, uniform_noise
from pscd.rng import generator


def images(n, channels, size, seed=0):
    return uniform_noise(n, (channels, size, size), generator(seed))


def test_noise_is_a_function_of_its_generator():
    state = torch.get_rng_state()
    for make in (uniform_noise, gaussian_noise):
        a, b = (make(5, (3, 4, 6), generator(seed)) for seed in (0, 1))
        assert a.shape == (5, 3, 4, 6)
        assert a.dtype == torch.uint8
        assert torch.equal(a, make(5, (3, 4, 6), generator(0)))
        assert not torch.equal(a, b)
    interpolations(images(9, 1, 4), 5, generator(0))
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


def test_a_shape_that_fits_is_left_alone_and_grey_becomes_colour():
    x = images(3, 1, 8)
    assert as_shape(x, 1, 8) is x
    colour = as_shape(x, 3, 8)
    assert colour.shape == (3, 3, 8, 8)
    assert torch.equal(as_shape(colour, 1, 8), x)  # luma of grey is the grey


def test_luma_and_scaling_agree_with_pillow():
    x = images(2, 3, 32)
    grey = as_shape(x, 1, 32)
    small = as_shape(x, 3, 12)
    large = as_shape(x, 3, 40)
    for i in range(len(x)):
        picture = Image.fromarray(x[i].permute(1, 2, 0).numpy())
        luma = torch.tensor(list(picture.convert("L").tobytes())).view(32, 32)
        assert (grey[i, 0].int() - luma).abs().max() <= 1
        for scaled in (small, large):
            size = scaled.shape[-1]
            theirs = picture.resize((size, size), Image.Resampling.BILINEAR).tobytes()
            theirs = torch.tensor(list(theirs)).view(size, size, 3).permute(2, 0, 1)
            assert (scaled[i].int() - theirs).abs().max() <= 1


def test_only_images_have_a_shape():
    for x in (torch.zeros(2, 1, 4, 4), images(2, 2, 4), images(2, 1, 4)[0]):
        with pytest.raises(ValueError, match="uint8 images"):
            as_shape(x, 3, 4)
    with pytest.raises(ValueError, match="uint8 images"):
        as_shape(images(2, 1, 4), 4, 4)
