import numpy as np
import pytest
import torch
from PIL import Image

from pscd.images.thumbnails import (
    COLUMNS,
    GROUPS,
    SIDE,
    columns_for,
    describe,
    miniatures_of,
    near_duplicates,
    numbers_of,
    reason,
)


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


def test_few_pictures_have_few_columns():
    assert columns_for(20) == columns_for(35) == ("brightness", "contrast", "detail", "colour 1", "colour 2")
    assert columns_for(36)[5:] == ("layout 1",)
    assert len(columns_for(77)) == 12
    assert columns_for(78) == columns_for(10_000) == COLUMNS
    assert len(COLUMNS) == 13


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


def test_reasons_are_words_for_the_dearest_column():
    typical = np.zeros(len(COLUMNS))

    def said(name, value):
        x, cost = typical.copy(), typical.copy()
        x[COLUMNS.index(name)], cost[COLUMNS.index(name)] = value, 1.0
        return reason(x, typical, cost)

    assert said("brightness", -1) == "too dark"
    assert said("brightness", 1) == "too bright"
    assert said("contrast", -1) == "too flat"
    assert said("detail", 1) == "too busy"
    assert said("colour 2", 1) == "colour"
    assert said("layout 8", 1) == "layout"
    assert reason(typical, typical, typical) == ""
    assert all(any(name.startswith(group) for group in GROUPS) for name in COLUMNS)


def test_pictures_of_any_kind_are_described_and_others_counted(tmp_path):
    Image.new("L", (5, 9), 128).save(tmp_path / "grey.png")
    Image.new("RGBA", (300, 200), (255, 0, 0, 0)).save(tmp_path / "clear.png")  # transparent: shown white
    frames = [Image.new("P", (20, 20), i) for i in (0, 1)]
    frames[0].save(tmp_path / "moving.gif", save_all=True, append_images=frames[1:])
    (tmp_path / "broken.jpg").write_bytes(b"no picture")
    paths = [tmp_path / name for name in ("grey.png", "clear.png", "moving.gif", "broken.jpg")]
    found = describe(paths)
    assert found.paths == tuple(paths[:3])
    assert found.x[:2, 0] == pytest.approx([128 / 255, 1.0])
    assert found.x.shape == (3, len(COLUMNS))
    ((path, why),) = found.unreadable
    assert path == paths[3]
    assert why.startswith("cannot identify")


def test_copies_are_near_duplicates_and_other_pictures_not(tmp_path):
    rng = np.random.default_rng(0)
    pixels = [rng.integers(0, 256, (8, 8), dtype=np.uint8) for _ in range(4)]
    pictures = [Image.fromarray(p).resize((64, 64), Image.Resampling.BICUBIC) for p in pixels]
    for i, picture in enumerate(pictures):
        picture.save(tmp_path / f"{i}.png")
    pictures[1].resize((200, 200)).save(tmp_path / "4.jpg", quality=70)
    pictures[1].resize((40, 40)).save(tmp_path / "5.png")
    pictures[3].save(tmp_path / "6.bmp")
    described = describe(sorted(tmp_path.iterdir()))
    assert near_duplicates(described.miniatures) == [[1, 4, 5], [3, 6]]


def test_a_darker_copy_is_no_duplicate():
    rng = np.random.default_rng(1)
    x = torch.from_numpy(rng.integers(60, 200, (1, 3, SIDE, SIDE), dtype=np.uint8))
    assert near_duplicates(miniatures_of(torch.cat([x, x])).numpy()) == [[0, 1]]
    assert near_duplicates(miniatures_of(torch.cat([x, x - 6])).numpy()) == []
