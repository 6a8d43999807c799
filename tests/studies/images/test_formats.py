import gzip
import io
import pickle
import struct

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from pscd.errors import UserError
from studies.images import formats


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
        np.testing.assert_array_equal(formats.read_idx(tmp_path / name, 3), x)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (idx(pixels(5, 4, 3))[:-1], "59 bytes where its header promises 60"),
        (idx(pixels(5, 4, 3)) + b"0", "more than 60 bytes where its header promises 60"),
        (idx(pixels(5)), "not an IDX file of bytes with 3 dimensions"),
        (b"<html>", "not an IDX file"),
        (b"", "not an IDX file"),
        (bytes([0, 0, 8, 3]) + b"\xff" * 12, "more than the memory"),
    ],
)
def test_a_damaged_idx_file_is_named(tmp_path, content, message):
    path = tmp_path / "x"
    path.write_bytes(content)
    line = refused(formats.read_idx, path, 3)
    assert message in line
    assert str(path) in line
    (tmp_path / "cut.gz").write_bytes(gzip.compress(idx(pixels(50)))[:20])
    assert "get it again" in refused(formats.read_idx, tmp_path / "cut.gz", 1)


def test_images_and_labels_must_be_as_many(tmp_path):
    (tmp_path / "x").write_bytes(idx(pixels(5, 4, 3)))
    (tmp_path / "y").write_bytes(idx(pixels(4)))
    assert "5 images, but 4 labels" in refused(formats.read_idx_pair, tmp_path / "x", tmp_path / "y")


def test_the_layouts_of_cifar_give_the_same(tmp_path):
    x, label = pixels(6, 3072), [3, 1, 4, 1, 5, 9]
    rows = np.concatenate([np.array(label, np.uint8)[:, None], x], 1)
    (tmp_path / "b.bin").write_bytes(rows.tobytes())
    expected = x.reshape(6, 3, 32, 32)
    found, found_label = formats.read_cifar_binary(tmp_path / "b.bin")
    np.testing.assert_array_equal(found, expected)
    assert found_label.tolist() == label
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        for keys in ((b"data", b"labels"), ("data", "labels")):
            content = dict(zip(keys, (x, label), strict=True))
            (tmp_path / "b").write_bytes(pickle.dumps(content, protocol))
            found, found_label = formats.read_cifar_pickle(tmp_path / "b")
            np.testing.assert_array_equal(found, expected)
            assert found_label.tolist() == label
    (tmp_path / "b").write_bytes(pickle.dumps({"data": np.asfortranarray(x), "labels": label}))
    np.testing.assert_array_equal(formats.read_cifar_pickle(tmp_path / "b")[0], expected)
    (tmp_path / "b.bin").write_bytes(rows.tobytes()[:-5])
    assert "no whole number of images" in refused(formats.read_cifar_binary, tmp_path / "b.bin")


def test_a_pickle_of_python_2_is_read(tmp_path):
    """Opcodes as Python 2 wrote them: the bytes of the array are a text, the module has its old name."""
    x = pixels(1, 3072)
    out = io.BytesIO()
    out.write(b"\x80\x02}(U\x04datacnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R")
    out.write(b"(K\x01K\x01M\x00\x0c\x86cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xff")
    out.write(b"J\xff\xff\xff\xffK\x00tb\x89T" + struct.pack("<i", 3072) + x.tobytes() + b"tb")
    out.write(b"U\x06labels]K\x07au.")
    (tmp_path / "b").write_bytes(out.getvalue())
    found, label = formats.read_cifar_pickle(tmp_path / "b")
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
    assert "which no array needs" in refused(formats.read_cifar_pickle, tmp_path / "b")
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
    assert "not a readable batch" in refused(formats.read_cifar_pickle, tmp_path / "b")


def test_svhn_calls_a_nought_ten(tmp_path):
    x = pixels(4, 32, 32, 3)
    savemat(tmp_path / "s.mat", {"X": x.transpose(1, 2, 3, 0), "y": np.array([[10], [1], [9], [2]], np.uint8)})
    found, label = formats.read_svhn(tmp_path / "s.mat")
    np.testing.assert_array_equal(found, x.transpose(0, 3, 1, 2))
    assert label.tolist() == [0, 1, 9, 2]
    (tmp_path / "s.mat").write_bytes(b"garbage" * 50)
    assert "not a readable .mat file" in refused(formats.read_svhn, tmp_path / "s.mat")
    savemat(tmp_path / "s.mat", {"X": x.astype(np.float64), "y": np.ones(4)})
    assert "X must hold bytes" in refused(formats.read_svhn, tmp_path / "s.mat")


def test_bitmaps_in_rows_or_squares(tmp_path):
    x = pixels(5, 28, 28)
    for shape in ((5, 28, 28), (5, 784)):
        np.save(tmp_path / "x.npy", x.reshape(shape))
        np.testing.assert_array_equal(formats.read_bitmaps(tmp_path / "x.npy", 3, 28), x[:3, None])
    assert "5 drawings, 6 are needed" in refused(formats.read_bitmaps, tmp_path / "x.npy", 6, 28)
    np.save(tmp_path / "x.npy", x.astype(float))
    assert "holds float64" in refused(formats.read_bitmaps, tmp_path / "x.npy", 3, 28)
    (tmp_path / "x.npy").write_bytes(b"garbage")
    assert "not a readable .npy" in refused(formats.read_bitmaps, tmp_path / "x.npy", 3, 28)


def save(path, array, **options):
    path.parent.mkdir(exist_ok=True, parents=True)
    Image.fromarray(array).save(path, **options)
    return path


def test_numbers_of_one_byte_that_are_no_bytes_are_refused(tmp_path):
    path = tmp_path / "data_batch_1"
    path.write_bytes(pickle.dumps({"data": np.zeros((2, 3072), np.int8), "labels": [0, 1]}))
    with pytest.raises(UserError, match="its data are not bytes"):
        formats.read_cifar_pickle(path)


def test_a_compressed_idx_bomb_is_refused_before_it_is_unpacked(tmp_path):
    (tmp_path / "x.gz").write_bytes(gzip.compress(bytes([0, 0, 8, 3]) + struct.pack(">3I", 10**4, 10**5, 10**5)))
    assert "more than the memory" in refused(formats.read_idx, tmp_path / "x.gz", 3)


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
    assert message in refused(formats.read_cifar_pickle, tmp_path / "data_batch_1")


def test_an_unpickler_finds_stand_ins_of_numpy_and_nothing_else():
    reader = formats._BatchUnpickler(io.BytesIO())
    for module in ("numpy", "numpy.core.multiarray", "numpy._core.numeric", "_codecs"):
        assert reader.find_class(module, "encode") is formats._STAND_INS["encode"]
    for module, name in (
        ("os", "encode"),
        ("numpyx", "dtype"),
        ("x.numpy", "dtype"),
        ("numpy", "fromfile"),
        ("", "dtype"),
    ):
        with pytest.raises(pickle.UnpicklingError, match=f"it asks for {module}.{name}, which no array needs"):
            reader.find_class(module, name)
