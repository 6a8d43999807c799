import numpy as np
import pytest
import torch
from PIL import Image

from pscd.images.thumbnails import COLUMNS, GROUPS, SIDE, describe, near_duplicates, numbers_of, reason


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
    assert numbers_of(x)[:, 3:].abs().max() < 1e-6  # no colours, and no square lighter than another


def test_colours_are_opposites():
    red, yellow = numbers_of(plain((255, 0, 0), (255, 255, 0)))[:, 3:11]
    torch.testing.assert_close(red, torch.tensor([1.0] * 4 + [0.5] * 4).double())
    torch.testing.assert_close(yellow, torch.tensor([0.0] * 4 + [1.0] * 4).double())


def test_layout_says_where_it_is_light():
    x = plain((0, 0, 0))
    x[:, :, : SIDE // 8, : SIDE // 8] = 255  # the first square
    layout = numbers_of(x)[0, 11:]
    assert layout[0] == pytest.approx(1 - 1 / 64, abs=1e-6)
    assert layout[1:].allclose(torch.tensor(-1 / 64).double(), atol=1e-6)


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
    assert said("colour 3", 1) == "colour"
    assert said("layout 64", 1) == "layout"
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
    assert near_duplicates(described.x) == [[1, 4, 5], [3, 6]]


def test_a_darker_copy_is_no_duplicate():
    rng = np.random.default_rng(1)
    x = torch.from_numpy(rng.integers(60, 200, (1, 3, SIDE, SIDE), dtype=np.uint8))
    assert near_duplicates(numbers_of(torch.cat([x, x])).numpy()) == [[0, 1]]
    assert near_duplicates(numbers_of(torch.cat([x, x - 6])).numpy()) == []
