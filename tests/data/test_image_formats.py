import gzip
import io
import pickle
import struct

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from pscd.data import image_formats
from pscd.errors import UserError


def idx(array):
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def pixels(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def refused(read, *args, **kwargs):
    with pytest.raises(UserError) as caught:
        read(*args, **kwargs)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_idx_is_read_with_and_without_gzip(tmp_path):
    x = pixels(5, 4, 3)
    (tmp_path / "x").write_bytes(idx(x))
    (tmp_path / "x.gz").write_bytes(gzip.compress(idx(x)))
    for name in ("x", "x.gz"):
        np.testing.assert_array_equal(image_formats.read_idx(tmp_path / name, 3), x)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (idx(pixels(5, 4, 3))[:-1], "59 bytes where its header promises 60"),
        (idx(pixels(5, 4, 3)) + b"0", "more than 60 bytes where its header promises 60"),
        (idx(pixels(5)), "not an IDX file of bytes with 3 dimensions"),
        (b"<html>", "not an IDX file"),
        (b"", "not an IDX file"),
        (bytes([0, 0, 8, 3]) + b"\xff" * 12, "more than there is memory"),
    ],
)
def test_a_damaged_idx_file_is_named(tmp_path, content, message):
    path = tmp_path / "x"
    path.write_bytes(content)
    line = refused(image_formats.read_idx, path, 3)
    assert message in line
    assert str(path) in line
    (tmp_path / "cut.gz").write_bytes(gzip.compress(idx(pixels(50)))[:20])
    assert "get it again" in refused(image_formats.read_idx, tmp_path / "cut.gz", 1)


def test_images_and_labels_must_be_as_many(tmp_path):
    (tmp_path / "x").write_bytes(idx(pixels(5, 4, 3)))
    (tmp_path / "y").write_bytes(idx(pixels(4)))
    assert "5 images, but 4 labels" in refused(image_formats.read_idx_pair, tmp_path / "x", tmp_path / "y")


def test_the_layouts_of_cifar_give_the_same(tmp_path):
    x, label = pixels(6, 3072), [3, 1, 4, 1, 5, 9]
    rows = np.concatenate([np.array(label, np.uint8)[:, None], x], 1)
    (tmp_path / "b.bin").write_bytes(rows.tobytes())
    expected = x.reshape(6, 3, 32, 32)
    found, found_label = image_formats.read_cifar_binary(tmp_path / "b.bin")
    np.testing.assert_array_equal(found, expected)
    assert found_label.tolist() == label
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        for keys in ((b"data", b"labels"), ("data", "labels")):
            content = dict(zip(keys, (x, label), strict=True))
            (tmp_path / "b").write_bytes(pickle.dumps(content, protocol))
            found, found_label = image_formats.read_cifar_pickle(tmp_path / "b")
            np.testing.assert_array_equal(found, expected)
            assert found_label.tolist() == label
    (tmp_path / "b").write_bytes(pickle.dumps({"data": np.asfortranarray(x), "labels": label}))
    np.testing.assert_array_equal(image_formats.read_cifar_pickle(tmp_path / "b")[0], expected)
    (tmp_path / "b.bin").write_bytes(rows.tobytes()[:-5])
    assert "no whole number of images" in refused(image_formats.read_cifar_binary, tmp_path / "b.bin")


def test_a_pickle_of_python_2_is_read(tmp_path):
    """Opcodes as Python 2 wrote them: the bytes of the array are a text, the module has its old name."""
    x = pixels(1, 3072)
    out = io.BytesIO()
    out.write(b"\x80\x02}(U\x04datacnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R")
    out.write(b"(K\x01K\x01M\x00\x0c\x86cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xff")
    out.write(b"J\xff\xff\xff\xffK\x00tb\x89T" + struct.pack("<i", 3072) + x.tobytes() + b"tb")
    out.write(b"U\x06labels]K\x07au.")
    (tmp_path / "b").write_bytes(out.getvalue())
    found, label = image_formats.read_cifar_pickle(tmp_path / "b")
    np.testing.assert_array_equal(found.reshape(1, -1), x)
    assert label.tolist() == [7]


class Trap:
    """Writes a file if it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_cannot_run_anything(tmp_path, protocol):
    content = pickle.dumps({"data": Trap(tmp_path / "trapped"), "labels": [1]}, protocol)
    (tmp_path / "b").write_bytes(content)
    assert "which no array needs" in refused(image_formats.read_cifar_pickle, tmp_path / "b")
    assert not (tmp_path / "trapped").exists()
    pickle.loads(content)["data"].close()
    assert (tmp_path / "trapped").exists()  # so the trap works


@pytest.mark.parametrize(
    "content",
    [
        b"garbage",
        pickle.dumps([1, 2]),
        pickle.dumps({"data": pixels(2, 3072)}),
        pickle.dumps({"data": pixels(2, 3072).astype(np.float32), "labels": [1, 2]}),
        pickle.dumps({"data": pixels(2, 3072).astype(np.int8), "labels": [1, 2]}),
        pickle.dumps({"data": pixels(2, 3071), "labels": [1, 2]}),
        pickle.dumps({"data": pixels(2, 3072), "labels": [1]}),
        pickle.dumps({"data": np.array([None]), "labels": [1]}),
        b"cnumpy\nfromfile\n(S'/etc/passwd'\ntR.",
        b"cnumpy\nndarray\n)R.",
    ],
)
def test_a_damaged_pickle_is_named(tmp_path, content):
    (tmp_path / "b").write_bytes(content)
    assert "not a readable batch" in refused(image_formats.read_cifar_pickle, tmp_path / "b")


def test_svhn_calls_a_nought_ten(tmp_path):
    x = pixels(4, 32, 32, 3)
    savemat(tmp_path / "s.mat", {"X": x.transpose(1, 2, 3, 0), "y": np.array([[10], [1], [9], [2]], np.uint8)})
    found, label = image_formats.read_svhn(tmp_path / "s.mat")
    np.testing.assert_array_equal(found, x.transpose(0, 3, 1, 2))
    assert label.tolist() == [0, 1, 9, 2]
    (tmp_path / "s.mat").write_bytes(b"garbage" * 50)
    assert "not a readable .mat file" in refused(image_formats.read_svhn, tmp_path / "s.mat")
    savemat(tmp_path / "s.mat", {"X": x.astype(np.float64), "y": np.ones(4)})
    assert "X must hold bytes" in refused(image_formats.read_svhn, tmp_path / "s.mat")


def test_bitmaps_in_rows_or_squares(tmp_path):
    x = pixels(5, 28, 28)
    for shape in ((5, 28, 28), (5, 784)):
        np.save(tmp_path / "x.npy", x.reshape(shape))
        np.testing.assert_array_equal(image_formats.read_bitmaps(tmp_path / "x.npy", 3, 28), x[:3, None])
    assert "5 drawings, 6 are needed" in refused(image_formats.read_bitmaps, tmp_path / "x.npy", 6, 28)
    np.save(tmp_path / "x.npy", x.astype(float))
    assert "holds float64" in refused(image_formats.read_bitmaps, tmp_path / "x.npy", 3, 28)
    (tmp_path / "x.npy").write_bytes(b"garbage")
    assert "not a readable .npy" in refused(image_formats.read_bitmaps, tmp_path / "x.npy", 3, 28)


def save(path, array, **options):
    path.parent.mkdir(exist_ok=True, parents=True)
    Image.fromarray(array).save(path, **options)
    return path


def test_grey_stays_grey_unless_a_picture_has_colour(tmp_path):
    grey, colour = pixels(6, 5), pixels(6, 5, 3)
    paths = [save(tmp_path / "a.png", grey), save(tmp_path / "b.bmp", grey)]
    x = image_formats.read_pictures(paths)
    assert x.shape == (2, 1, 6, 5)
    np.testing.assert_array_equal(x[:, 0], [grey, grey])
    x = image_formats.read_pictures([*paths, save(tmp_path / "c.png", colour)])
    np.testing.assert_array_equal(x[0], [grey] * 3)
    np.testing.assert_array_equal(x[2], colour.transpose(2, 0, 1))


def test_sixteen_bits_are_scaled_and_what_is_transparent_is_white(tmp_path):
    deep = np.array([[0, 255, 256, 65535]], np.uint16)
    assert image_formats.read_pictures([save(tmp_path / "d.png", deep)])[0, 0].tolist() == [[0, 0, 1, 255]]
    clear = np.array([[[10, 20, 30, 255], [10, 20, 30, 0]]], np.uint8)
    x = image_formats.read_pictures([save(tmp_path / "c.png", clear)])
    assert x[0, :, 0].T.tolist() == [[10, 20, 30], [255, 255, 255]]
    one_bit = Image.fromarray(np.array([[0, 255]], np.uint8)).convert("1")
    one_bit.save(tmp_path / "o.png")
    assert image_formats.read_pictures([tmp_path / "o.png"]).tolist() == [[[[0, 255]]]]


def test_a_photograph_lies_as_its_camera_says(tmp_path):
    turned = Image.Exif()
    turned[0x0112] = 6  # to be turned by 90 degrees
    path = save(tmp_path / "p.png", pixels(4, 6), exif=turned)
    np.testing.assert_array_equal(image_formats.read_pictures([path])[0, 0], np.rot90(pixels(4, 6), -1))


def test_sizes_must_agree_or_are_made_to(tmp_path):
    paths = [save(tmp_path / "a.png", pixels(6, 5)), save(tmp_path / "b.png", pixels(7, 9))]
    line = refused(image_formats.read_pictures, paths)
    assert "a.png is 5 x 6 and" in line
    assert "b.png is 9 x 7; scale all to one size" in line
    assert image_formats.read_pictures(paths, size=4).shape == (2, 1, 4, 4)
    # The square in the middle, at its own size, is not changed.
    np.testing.assert_array_equal(image_formats.read_pictures(paths[1:], size=7)[0, 0], pixels(7, 9)[:, 1:8])
    np.testing.assert_array_equal(image_formats.read_pictures(paths[1:], size=3, crop=3)[0, 0], pixels(7, 9)[2:5, 3:6])
    assert "smaller than 8 x 8" in refused(image_formats.read_pictures, paths, size=4, crop=8)


def test_broken_pictures_are_named_together(tmp_path):
    good = save(tmp_path / "good.png", pixels(6, 5))
    text = tmp_path / "text.png"
    text.write_text("no picture")
    cut = tmp_path / "cut.png"
    cut.write_bytes(save(tmp_path / "whole.png", pixels(60, 50)).read_bytes()[:200])
    line = refused(image_formats.read_pictures, [good, text, good, cut], channels=1, size=4)
    assert "2 of 4 pictures cannot be read" in line
    assert str(text) in line
    assert str(cut) in line
    assert str(good) not in line
    assert "1 of 1 pictures" in refused(image_formats.read_pictures, [text])


def test_pictures_that_can_be_read_are_read_and_the_others_named(tmp_path):
    good = [save(tmp_path / f"{i}.png", pixels(6, 6) + i) for i in range(3)]
    text = tmp_path / "text.png"
    text.write_text("no picture")
    cut = tmp_path / "cut.png"
    cut.write_bytes(save(tmp_path / "whole.png", pixels(60, 60)).read_bytes()[:200])  # its header is whole
    with pytest.warns(UserWarning, match="2 of 5 pictures cannot be read: .*text.png, .*cut.png .*; left out"):
        x, kept = image_formats.read_readable([text, good[0], cut, *good[1:]])
    assert kept.tolist() == [1, 3, 4]
    assert [int(one[0, 0, 0]) for one in x] == [int((pixels(6, 6) + i)[0, 0]) for i in range(3)]
    assert x.shape == (3, 1, 6, 6)
    assert "2 of 2 pictures cannot be" in refused(image_formats.read_readable, [text, cut], size=4)
    assert len(image_formats.read_readable(good)[1]) == 3  # without a warning


def test_sub_folders_are_labels(tmp_path):
    for name in ("cats/2.png", "cats/1.PNG", "dogs/old/1.png", "empty/notes.txt", ".hidden/1.png", "dogs/._1.png"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    paths, label = image_formats.list_pictures(tmp_path)
    assert [p.relative_to(tmp_path).as_posix() for p in paths] == ["cats/1.PNG", "cats/2.png", "dogs/old/1.png"]
    assert label.tolist() == [0, 0, 1]
    paths, label = image_formats.list_pictures(tmp_path / "cats")
    assert (len(paths), label) == (2, None)
    (tmp_path / "stray.png").write_bytes(b"")
    paths, label = image_formats.list_pictures(tmp_path)
    assert label is None
    names = ["cats/1.PNG", "cats/2.png", "dogs/old/1.png", "stray.png"]
    assert [p.relative_to(tmp_path).as_posix() for p in paths] == names


def test_numbers_of_one_byte_that_are_no_bytes_are_refused(tmp_path):
    path = tmp_path / "data_batch_1"
    path.write_bytes(pickle.dumps({"data": np.zeros((2, 3072), np.int8), "labels": [0, 1]}))
    with pytest.raises(UserError, match="its data are not bytes"):
        image_formats.read_cifar_pickle(path)


def test_a_picture_far_larger_than_its_file_is_refused(tmp_path):
    """Memory for its pixels is never taken: a bomb of a few bytes, and one that Pillow knows."""
    for name, shape in (("small.tif", (5000, 4000)), ("large.tif", (40_000, 40_000))):
        entries = {256: shape[0], 257: shape[1], 258: 8, 259: 1, 262: 1, 273: 8, 277: 1, 278: shape[1], 279: 10}
        fields = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in entries.items())
        (tmp_path / name).write_bytes(b"II*\0" + struct.pack("<IH", 8, len(entries)) + fields + b"\0" * 20)
    assert "cannot be 5000 x 4000 pixels" in refused(image_formats.read_pictures, [tmp_path / "small.tif"])
    assert "decompression bomb" in refused(image_formats.read_pictures, [tmp_path / "large.tif"])


def test_a_compressed_idx_bomb_is_refused_before_it_is_unpacked(tmp_path):
    (tmp_path / "x.gz").write_bytes(gzip.compress(bytes([0, 0, 8, 3]) + struct.pack(">3I", 10**4, 10**5, 10**5)))
    assert "more than there is memory" in refused(image_formats.read_idx, tmp_path / "x.gz", 3)


@pytest.mark.parametrize(
    ("opcodes", "message"),
    [
        (b"\x80\x02}r\xff\xff\xff\x7f.", "counts beyond its own end"),  # a memo of two thousand million entries
        (b"\x80\x02)q\x00" + b"h\x00h\x00\x86q\x00" * 40 + b".", "so many tuples"),  # two to the 40 to hash
        (b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00true\x85R.", "asks for os.system"),
        (pickle.dumps({"data": 1, "labels": [[0] * 9] * 9}), "attribute"),
    ],
)
def test_pickles_that_would_do_harm_are_refused(tmp_path, opcodes, message):
    (tmp_path / "data_batch_1").write_bytes(opcodes)
    assert message in refused(image_formats.read_cifar_pickle, tmp_path / "data_batch_1")


def test_an_unpickler_finds_stand_ins_of_numpy_and_nothing_else():
    reader = image_formats._BatchUnpickler(io.BytesIO())
    for module in ("numpy", "numpy.core.multiarray", "numpy._core.numeric", "_codecs"):
        assert reader.find_class(module, "encode") is image_formats._STAND_INS["encode"]
    for module, name in (
        ("os", "encode"),
        ("numpyx", "dtype"),
        ("x.numpy", "dtype"),
        ("numpy", "fromfile"),
        ("", "dtype"),
    ):
        with pytest.raises(pickle.UnpicklingError, match=f"it asks for {module}.{name}, which no array needs"):
            reader.find_class(module, name)


def test_numbers_that_were_chosen():
    """Chosen on tables of benchmarks, whose pages name results: a change has to be made here too, on purpose."""
    chosen = {
        "CIFAR_SHAPE": (3, 32, 32),
        "SMALL_PICTURE": 2**20,
        "PIXELS_PER_BYTE": 10_000,
        "MOST_TUPLES": 16,
        "MOST_RECALLS": 64,
        "CELEBA_TRAIN": 162_770,
        "CELEBA_VALIDATION": 19_867,
    }
    assert {name: getattr(image_formats, name) for name in chosen} == chosen
