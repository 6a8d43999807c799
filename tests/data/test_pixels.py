import pytest
import torch
from PIL import Image

from pscd.data.pixels import as_shape, nearest_bytes, to_bytes, to_unit
from pscd.rng import generator
from studies.images.noise import uniform_noise


def images(n, channels, size, seed=0):
    return uniform_noise(n, (channels, size, size), generator(seed))


def test_bytes_to_floats_and_back_is_the_identity():
    x = torch.arange(256, dtype=torch.uint8)
    assert torch.equal(to_bytes(to_unit(x)), x)
    assert to_unit(x).dtype == torch.float32
    assert (to_unit(x).min(), to_unit(x).max()) == (0, 1)


def test_floats_become_the_nearest_byte():
    x = torch.tensor([-3.0, 0.4, 0.6, 254.4, 254.6, 300.0])
    assert nearest_bytes(x).tolist() == to_bytes(x / 255).tolist() == [0, 0, 1, 254, 255, 255]
    assert x[0] == -3  # not in place


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
