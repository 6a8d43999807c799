import pytest
import torch

from pscd.data import as_shape, load_images
from pscd.errors import UserError
from pscd.rng import generator
from studies.images.contamination import (
    JUNK,
    ORIGINALS,
    WOBBLE,
    blank,
    junk,
    near_duplicates,
    occluded,
    saturated,
    shifted,
)

BYTES = torch.uint8


@pytest.fixture
def x():
    """Images all of whose pixels are different from 0, from each other in an image, and from mid-grey."""
    pixels = 1 + torch.arange(64).view(1, 1, 8, 8) + torch.arange(3).view(3, 1, 1, 1)
    return pixels.to(BYTES)


@pytest.mark.parametrize("kind", JUNK)
def test_junk_is_images_of_bytes_and_a_function_of_its_generator(x, kind):
    before, state = x.clone(), torch.get_rng_state()
    found = JUNK[kind](x, 20, generator(0))
    assert (found.dtype, tuple(found.shape)) == (BYTES, (20, 1, 8, 8))
    assert torch.equal(found, JUNK[kind](x, 20, generator(0)))
    assert not torch.equal(found, JUNK[kind](x, 20, generator(1)))
    assert torch.equal(x, before)
    assert torch.equal(torch.get_rng_state(), state)
    assert len(JUNK[kind](x, 0, generator(0))) == 0


def test_blank_frames_have_one_level_each_and_all_of_them_together(x):
    level = blank(x, 5000, generator(0)).flatten(1).long()
    assert (level == level[:, :1]).all()
    assert level.unique().tolist() == list(range(256))


def test_saturated_images_are_twice_as_bright_and_clipped():
    x = torch.tensor([0, 1, 63, 64, 200, 255]).view(1, 1, 2, 3).to(BYTES)
    assert saturated(x, 1, generator(0)).flatten().tolist() == [128, 130, 254, 255, 255, 255]


def test_one_half_is_covered_and_the_other_as_it_was(x):
    found = occluded(x, 100, generator(0))
    covered = found == 128
    sides = torch.zeros(4, 8, 8, dtype=torch.bool)
    sides[0, :4], sides[1, 4:], sides[2, :, :4], sides[3, :, 4:] = True, True, True, True
    which = (covered == sides[None]).flatten(2).all(2)  # (100, 4), one image per row has one channel
    assert (which.sum(1) == 1).all()
    assert (which.sum(0) > 10).all()
    for image, hidden in zip(found, covered, strict=True):
        assert any(torch.equal(image[~hidden], one[~hidden]) for one in x)


def test_of_an_odd_side_the_middle_stays(x):
    found = occluded(torch.ones(1, 1, 5, 5, dtype=BYTES), 20, generator(0))
    assert (found == 128).flatten(1).sum(1).tolist() == [10] * 20
    assert (found[:, 0, 2, 2] == 1).all()


def test_shifted_images_are_parts_of_the_originals_on_black(x):
    found = shifted(x, 200, generator(0))
    moves = set()
    for image in found[:, 0]:
        rows, columns = (image.any(1).nonzero().flatten(), image.any(0).nonzero().flatten())
        part = image[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
        height, width = part.shape
        assert (part > 0).all()
        assert 4 <= height <= 6
        assert 4 <= width <= 6
        # Where it came from: the opposite corner, if it stands in the first rows or columns of the frame.
        top, left = 8 - height if rows[0] == 0 else 0, 8 - width if columns[0] == 0 else 0
        assert any(torch.equal(part, one[0, top : top + height, left : left + width]) for one in x)
        moves.add((int(rows[0]), int(rows[-1]), int(columns[0]), int(columns[-1])))
    assert len(moves) == 36  # by 2, 3 or 4, forwards or backwards, on either axis


def test_copies_differ_from_a_few_originals_by_a_few_levels():
    x = torch.randint(256, (100, 1, 8, 8), generator=generator(0)).to(BYTES)
    found = near_duplicates(x, 300, generator(1))
    far = (found[:, None].long() - x[None].long()).abs().flatten(2).amax(2)  # (300, 100)
    assert (far.amin(1) <= WOBBLE).all()
    assert len(far.argmin(1).unique()) == ORIGINALS
    assert far.amin(1).max() == WOBBLE
    dark = near_duplicates(torch.zeros(1, 1, 8, 8, dtype=BYTES), 5, generator(0))
    assert dark.max() <= WOBBLE  # and never 254, as below zero it would become


def test_junk_of_another_set_is_in_the_shape_of_the_images():
    clean = torch.zeros(3, 3, 16, 16, dtype=BYTES)
    found = junk("digits")(clean, 12, generator(0))
    digits = as_shape(load_images("digits", train=False).x, 3, 16)
    assert found.shape == (12, 3, 16, 16)
    assert (found[:, None] == digits[None]).flatten(2).all(2).any(1).all()
    with pytest.raises(UserError, match="unknown junk 'dust'; there are: noise, blank"):
        junk("dust")
