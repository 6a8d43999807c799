import numpy as np
import pytest
import torch

from pscd.data import looks
from pscd.data.looks import COLUMNS, close_miniatures, miniatures_of, numbers_of

SIDE = 32


def column(x, name):
    return numbers_of(x)[:, COLUMNS.index(name)]


def plain(*colours):
    """Pictures of one colour each, bytes."""
    return torch.tensor(colours, dtype=torch.uint8)[:, :, None, None].expand(-1, -1, SIDE, SIDE).clone()


def test_a_plain_picture_has_brightness_and_no_contrast_or_detail():
    x = plain((0, 0, 0), (255, 255, 255), (100, 100, 100))
    torch.testing.assert_close(column(x, "brightness"), torch.tensor([0, 1, 100 / 255]).double(), rtol=1e-6, atol=1e-7)
    for name in ("contrast", "detail"):
        assert column(x, name).allclose(torch.full((3,), -np.log(255)).double(), atol=1e-4)
    assert numbers_of(x)[:, 3:].abs().max() < 1e-6  # no colours, and no part lighter than another


def test_colours_are_opposites():
    x = plain((255, 0, 0), (255, 255, 0))
    torch.testing.assert_close(column(x, "colour 1"), torch.tensor([1.0, 0.0]).double())
    torch.testing.assert_close(column(x, "colour 2"), torch.tensor([0.5, 1.0]).double())


def test_layout_says_where_it_is_light():
    across = torch.cos(torch.pi * (torch.arange(SIDE) + 0.5) / SIDE)  # light on the left, dark on the right
    down_twice = torch.cos(2 * torch.pi * (torch.arange(SIDE) + 0.5) / SIDE)  # light above and below
    waves = torch.stack([across.expand(SIDE, -1), down_twice[:, None] * across])
    x = (127.5 + 127 * waves)[:, None].expand(-1, 3, -1, -1).round().to(torch.uint8)
    layout = numbers_of(x)[:, 5:]
    assert layout.shape == (2, 8)
    expected = torch.zeros(2, 8, dtype=torch.float64)
    # The mean of cos^2 is 1/2; the slowest waves come first: 01, 10, 11, 02, 20, 12, 21, 22, down before across.
    expected[0, 0], expected[1, 6] = 127 / 255 / 2, 127 / 255 / 4
    torch.testing.assert_close(layout, expected, rtol=0, atol=2e-3)  # bytes are rounded to 1/255


def test_miniatures_are_colours_of_patches_and_greys_of_squares():
    x = plain((0, 0, 0))
    x[:, :, 3, 3] = 255  # one of the 16 pixels of the first square
    x[:, 0, SIDE // 2 :, SIDE // 2 :] = 255  # the last patch red
    (found,) = miniatures_of(x)
    assert found[:8].tolist() == pytest.approx([0, 0, 0, 1, 0, 0, 0, 0.5], abs=1e-6)
    assert found[8] == pytest.approx(1 / 16, abs=1e-6)
    assert found[9:40].abs().max() < 1e-6
    assert len(found) == 72


def test_detail_and_contrast_tell_noise_from_a_ramp():
    ramp = torch.arange(SIDE).mul(8).to(torch.uint8).expand(3, SIDE, SIDE)
    shuffled = ramp[:, :, torch.randperm(SIDE, generator=torch.Generator().manual_seed(0))]
    x = torch.stack([ramp, shuffled])
    contrast, detail = column(x, "contrast"), column(x, "detail")
    assert contrast[0] == pytest.approx(float(contrast[1]))
    assert detail[0] == pytest.approx(np.log(8 / 255 + 1 / 255), abs=1e-5)
    assert detail[1] > detail[0] + 1


def test_grey_images_floats_and_oblong_ones_look_as_their_coloured_bytes_do():
    x = torch.randint(256, (3, 1, 6, 9), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    expected = numbers_of(x.expand(-1, 3, -1, -1))
    for same in (x, x.float() / 255, x.expand(-1, 2, -1, -1)):
        torch.testing.assert_close(numbers_of(same), expected, rtol=0, atol=1e-6)
    assert numbers_of(x).shape == (3, len(COLUMNS))
    turned = numbers_of(x.transpose(2, 3))  # waves down and across change places
    torch.testing.assert_close(turned[:, [5, 6]], expected[:, [6, 5]], rtol=0, atol=1e-6)


def test_close_pictures_are_those_of_all_pairs(monkeypatch):
    """In blocks of seven: no pair is left out, and every picture is in one block."""
    monkeypatch.setattr(looks, "BLOCK", 7)
    x = torch.rand(60, 3, generator=torch.Generator().manual_seed(0)).double()
    x = torch.cat([x, x[:20] + 0.009, x[5:6]])
    expected = torch.cdist(x, x) < 0.01 * 3**0.5
    found, seen = torch.zeros(len(x), len(x), dtype=torch.bool), []
    for some, others, close in close_miniatures(x, 0.01):
        found[some[:, None], others] = close
        seen += some.tolist()
    assert torch.equal(found, expected)
    assert expected.sum() > len(x) + 40
    assert sorted(seen) == list(range(len(x)))
