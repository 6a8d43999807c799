import numpy as np
import pytest
import torch

from pscd.errors import UserError
from pscd.images import grids
from pscd.rng import generator


def test_a_grid_holds_every_image_in_its_place():
    x = torch.randint(256, (5, 1, 4, 6), generator=generator(0)).to(torch.uint8)
    picture = grids.grid(x, 3, enlarge=False)
    assert picture.shape == (2 * 6 + 2, 3 * 8 + 2, 3)
    for i in range(5):
        top, left = 2 + (i // 3) * 6, 2 + (i % 3) * 8
        cut = picture[top : top + 4, left : left + 6]
        assert np.array_equal(cut, np.repeat(x[i, 0].numpy()[:, :, None], 3, 2))


def test_colours_and_floats_are_kept_and_small_grids_enlarged():
    x = torch.tensor([1.0, 0.0, 0.5])[None, :, None, None].expand(1, 3, 2, 2)
    assert grids.grid(x, enlarge=False)[2, 2].tolist() == [255, 0, 128]
    large = grids.grid(x)
    assert large.shape == (48, 48, 3)
    assert large[16, 16].tolist() == [255, 0, 128]


def test_what_is_written_is_read_again(tmp_path):
    x = torch.randint(256, (1, 3, 8, 8), generator=generator(0)).to(torch.uint8)
    path = grids.save(x[0].permute(1, 2, 0).numpy(), tmp_path / "new" / "x.png")
    torch.testing.assert_close(grids.read_image(path, (3, 8, 8)), x[0] / 255)
    assert grids.read_image(path, (1, 4, 4)).shape == (1, 4, 4)


def test_files_that_are_not_pictures_are_refused(tmp_path):
    (tmp_path / "x.png").write_text("no picture")
    with pytest.raises(UserError, match="cannot read"):
        grids.read_image(tmp_path / "x.png", (1, 8, 8))
    with pytest.raises(UserError, match="cannot write"):
        grids.save(np.zeros((2, 2, 3), np.uint8), tmp_path / "x.nonsense")


def test_pictures_stand_beside_each_other():
    black = np.zeros((4, 5, 3), np.uint8)
    both = grids.beside(black, black)
    assert both.shape == (4, 22, 3)
    assert (both[:, 5:17] == 255).all()


def test_other_sizes_are_cut_as_training_cuts_them(tmp_path):
    x = np.zeros((4, 12), np.uint8)
    x[:, 4:8] = 200  # the square in the middle
    path = grids.save(x, tmp_path / "wide.png")
    assert grids.read_image(path, (1, 4, 4)).mul(255).tolist() == [[[200.0] * 4] * 4]
    assert grids.read_image(path, (1, 4, 12)).mul(255).round()[0].tolist() == x.tolist()
    with pytest.raises(UserError, match="12 x 4; the model's images are 12 x 8"):
        grids.read_image(path, (1, 8, 12))


def test_a_contact_sheet_shows_whole_pictures_and_cuts_labels(tmp_path):
    paths = [
        grids.save(np.full((10, 30, 3), 255, np.uint8), tmp_path / "wide.png"),
        grids.save(np.zeros((7, 7, 3), np.uint8), tmp_path / "b.png"),
    ]
    sheet = grids.contact_sheet(paths, ["a", "a label that is far too long for the width of a tile"], columns=2)
    tile, line, gap = 112, 14, 2
    assert sheet.shape == (tile + line + 2 * gap, 2 * (tile + gap) + gap, 3)
    shown = sheet[gap : gap + tile, gap : gap + tile, 0]
    assert (shown == 255).all(1).sum() == pytest.approx(tile / 3, abs=1)  # a third as high as it is wide
    assert (sheet[gap : gap + tile, tile + 2 * gap : -gap] == 0).all()
    assert (sheet[-gap - line :, -gap:] == sheet[0, 0]).all()  # no label runs over the edge
