import struct

import numpy as np
import pytest
import torch
from PIL import Image

from pscd.data import load_dataset, load_images, pictures
from pscd.errors import UserError


def pixels(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def refused(read, *args, **kwargs):
    with pytest.raises(UserError) as caught:
        read(*args, **kwargs)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def save(path, array, **options):
    path.parent.mkdir(exist_ok=True, parents=True)
    Image.fromarray(array).save(path, **options)
    return path


def test_grey_stays_grey_unless_a_picture_has_colour(tmp_path):
    grey, colour = pixels(6, 5), pixels(6, 5, 3)
    paths = [save(tmp_path / "a.png", grey), save(tmp_path / "b.bmp", grey)]
    x = pictures.read_pictures(paths)
    assert x.shape == (2, 1, 6, 5)
    np.testing.assert_array_equal(x[:, 0], [grey, grey])
    x = pictures.read_pictures([*paths, save(tmp_path / "c.png", colour)])
    np.testing.assert_array_equal(x[0], [grey] * 3)
    np.testing.assert_array_equal(x[2], colour.transpose(2, 0, 1))


def test_sixteen_bits_are_scaled_and_what_is_transparent_is_white(tmp_path):
    deep = np.array([[0, 255, 256, 65535]], np.uint16)
    assert pictures.read_pictures([save(tmp_path / "d.png", deep)])[0, 0].tolist() == [[0, 0, 1, 255]]
    clear = np.array([[[10, 20, 30, 255], [10, 20, 30, 0]]], np.uint8)
    x = pictures.read_pictures([save(tmp_path / "c.png", clear)])
    assert x[0, :, 0].T.tolist() == [[10, 20, 30], [255, 255, 255]]
    one_bit = Image.fromarray(np.array([[0, 255]], np.uint8)).convert("1")
    one_bit.save(tmp_path / "o.png")
    assert pictures.read_pictures([tmp_path / "o.png"]).tolist() == [[[[0, 255]]]]


def test_a_photograph_lies_as_its_camera_says(tmp_path):
    turned = Image.Exif()
    turned[0x0112] = 6  # to be turned by 90 degrees
    path = save(tmp_path / "p.png", pixels(4, 6), exif=turned)
    np.testing.assert_array_equal(pictures.read_pictures([path])[0, 0], np.rot90(pixels(4, 6), -1))


def test_sizes_must_agree_or_are_made_to(tmp_path):
    paths = [save(tmp_path / "a.png", pixels(6, 5)), save(tmp_path / "b.png", pixels(7, 9))]
    line = refused(pictures.read_pictures, paths)
    assert "a.png is 5 x 6 and" in line
    assert "b.png is 9 x 7; scale all to one size" in line
    assert pictures.read_pictures(paths, size=4).shape == (2, 1, 4, 4)
    # The square in the middle, at its own size, is not changed.
    np.testing.assert_array_equal(pictures.read_pictures(paths[1:], size=7)[0, 0], pixels(7, 9)[:, 1:8])
    np.testing.assert_array_equal(pictures.read_pictures(paths[1:], size=3, crop=3)[0, 0], pixels(7, 9)[2:5, 3:6])
    assert "smaller than 8 x 8" in refused(pictures.read_pictures, paths, size=4, crop=8)


def test_broken_pictures_are_named_together(tmp_path):
    good = save(tmp_path / "good.png", pixels(6, 5))
    text = tmp_path / "text.png"
    text.write_text("no picture")
    cut = tmp_path / "cut.png"
    cut.write_bytes(save(tmp_path / "whole.png", pixels(60, 50)).read_bytes()[:200])
    line = refused(pictures.read_pictures, [good, text, good, cut], channels=1, size=4)
    assert "2 of 4 pictures cannot be read" in line
    assert str(text) in line
    assert str(cut) in line
    assert str(good) not in line
    assert "1 of 1 pictures" in refused(pictures.read_pictures, [text])


def test_pictures_that_can_be_read_are_read_and_the_others_named(tmp_path):
    good = [save(tmp_path / f"{i}.png", pixels(6, 6) + i) for i in range(3)]
    text = tmp_path / "text.png"
    text.write_text("no picture")
    cut = tmp_path / "cut.png"
    cut.write_bytes(save(tmp_path / "whole.png", pixels(60, 60)).read_bytes()[:200])  # its header is whole
    with pytest.warns(UserWarning, match="2 of 5 pictures cannot be read: .*text.png, .*cut.png .*; left out"):
        x, kept = pictures.read_readable([text, good[0], cut, *good[1:]])
    assert kept.tolist() == [1, 3, 4]
    assert [int(one[0, 0, 0]) for one in x] == [int((pixels(6, 6) + i)[0, 0]) for i in range(3)]
    assert x.shape == (3, 1, 6, 6)
    assert "2 of 2 pictures cannot be" in refused(pictures.read_readable, [text, cut], size=4)
    assert len(pictures.read_readable(good)[1]) == 3  # without a warning


def test_sub_folders_are_labels(tmp_path):
    for name in ("cats/2.png", "cats/1.PNG", "dogs/old/1.png", "empty/notes.txt", ".hidden/1.png", "dogs/._1.png"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    paths, label = pictures.list_pictures(tmp_path)
    assert [p.relative_to(tmp_path).as_posix() for p in paths] == ["cats/1.PNG", "cats/2.png", "dogs/old/1.png"]
    assert label.tolist() == [0, 0, 1]
    paths, label = pictures.list_pictures(tmp_path / "cats")
    assert (len(paths), label) == (2, None)
    (tmp_path / "stray.png").write_bytes(b"")
    paths, label = pictures.list_pictures(tmp_path)
    assert label is None
    names = ["cats/1.PNG", "cats/2.png", "dogs/old/1.png", "stray.png"]
    assert [p.relative_to(tmp_path).as_posix() for p in paths] == names


def test_a_picture_far_larger_than_its_file_is_refused(tmp_path):
    """Memory for its pixels is never taken: a bomb of a few bytes, and one that Pillow knows."""
    for name, shape in (("small.tif", (5000, 4000)), ("large.tif", (40_000, 40_000))):
        entries = {256: shape[0], 257: shape[1], 258: 8, 259: 1, 262: 1, 273: 8, 277: 1, 278: shape[1], 279: 10}
        fields = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in entries.items())
        (tmp_path / name).write_bytes(b"II*\0" + struct.pack("<IH", 8, len(entries)) + fields + b"\0" * 20)
    assert "cannot be 5000 x 4000 pixels" in refused(pictures.read_pictures, [tmp_path / "small.tif"])
    assert "decompression bomb" in refused(pictures.read_pictures, [tmp_path / "large.tif"])


def test_a_data_set_of_a_name_holds_out_its_test_images():
    data = load_dataset("digits", seed=0)
    assert torch.equal(data.train, load_images("digits").x)
    assert torch.equal(data.held_out_labels, load_images("digits", train=False).label)
    assert data.train.dtype == torch.uint8
    assert data.columns is None
    assert load_dataset("digits", seed=0, image_size=4).held_out.shape == (297, 1, 4, 4)
    with pytest.raises(UserError, match="images without column names"):
        load_dataset("digits", seed=0, columns=["a"])
    with pytest.raises(UserError, match="moon is not a set of images"):
        load_dataset("moon", seed=0, image_size=8)
