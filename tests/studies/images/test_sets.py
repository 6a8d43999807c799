import gzip
import pickle

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.io import savemat

from pscd.data import Dataset, data_root, pictures
from pscd.errors import UserError
from studies.images import sets as module
from studies.images.sets import IMAGE_SETS, _homes, load_dataset, load_images
from tests.studies.images.test_formats import idx, pixels, save


@pytest.fixture(autouse=True)
def no_data_of_the_user(monkeypatch, tmp_path):
    monkeypatch.setenv("PSCD_DATA", str(tmp_path / "nothing"))


def refused(*args, **kwargs):
    with pytest.raises(UserError) as caught:
        load_images(*args, **kwargs)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_embedded_digits_are_split_once_and_for_all():
    train, test = load_images("digits"), load_images("digits", train=False)
    assert (train.x.shape, test.x.shape) == ((1500, 1, 8, 8), (297, 1, 8, 8))
    assert train.x.dtype == torch.uint8
    assert train.label.dtype == torch.int64
    assert (train.x.min(), train.x.max()) == (0, 255)
    assert set(train.label.tolist()) == set(test.label.tolist()) == set(range(10))
    together = torch.cat([train.x, test.x]).flatten(1).unique(dim=0)
    assert len(together) == 1797  # nothing twice, nothing lost
    assert train.label[:8].tolist() == [8, 4, 5, 3, 6, 1, 0, 6]


def test_the_root_is_the_argument_else_the_environment_else_the_cache(monkeypatch, tmp_path):
    assert data_root("somewhere").name == "somewhere"
    assert data_root() == tmp_path / "nothing"
    monkeypatch.delenv("PSCD_DATA")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert data_root().parts[-2:] == (".cache", "pscd")


def write_idx(folder, n_train=6, n_test=4, suffix="", seed=0):
    folder.mkdir(parents=True)
    pack = gzip.compress if suffix else bytes
    for part, n in (("train", n_train), ("t10k", n_test)):
        (folder / f"{part}-images-idx3-ubyte{suffix}").write_bytes(pack(idx(pixels(n, 28, 28, seed=seed))))
        (folder / f"{part}-labels-idx1-ubyte{suffix}").write_bytes(pack(idx(np.arange(n, dtype=np.uint8))))


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "notmnist"])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_idx_sets_are_found_in_every_usual_place(tmp_path, name, suffix):
    spelt = {"mnist": "MNIST", "fashion-mnist": "FashionMNIST", "notmnist": "notMNIST"}[name]
    for i, place in enumerate((f"{spelt}/raw", spelt, name, f"{name}/raw", name.replace("-", "_"))):
        root = tmp_path / str(i)
        write_idx(root / place, suffix=suffix)
        for given in (root, root / place):
            train, test = load_images(name, root=given), load_images(name, root=given, train=False)
            np.testing.assert_array_equal(train.x, pixels(6, 28, 28)[:, None])
            assert train.label.tolist() == [0, 1, 2, 3, 4, 5]
            assert test.x.shape == (4, 1, 28, 28)
            assert train.name == name


def test_one_set_is_never_taken_for_another(tmp_path):
    write_idx(tmp_path / "MNIST" / "raw")
    assert "no FashionMNIST/raw/train-images-idx3-ubyte" in refused("fashion-mnist", root=tmp_path)
    assert "no FashionMNIST" in refused("fashion-mnist", root=tmp_path / "MNIST" / "raw")


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("name", sorted(set(IMAGE_SETS) - {"digits"}))
def test_what_is_missing_is_said_with_how_to_get_it(tmp_path, name, train):
    line = refused(name, root=tmp_path, train=train)
    assert line.startswith(f"{name}: no ")
    assert f"below {tmp_path}" in line
    assert f"python -m studies data get {name} --root {tmp_path}" in line or "https://" in line
    assert not IMAGE_SETS[name].there(tmp_path)


def test_cifar_in_both_layouts(tmp_path):
    for i in range(1, 7):
        x, label = pixels(2, 3072, seed=i), [i, i + 1]
        name = f"data_batch_{i}" if i < 6 else "test_batch"
        for folder in ("cifar-10-batches-bin", "cifar-10-batches-py"):
            (tmp_path / folder).mkdir(exist_ok=True)
        rows = np.concatenate([np.array(label, np.uint8)[:, None], x], 1)
        (tmp_path / "cifar-10-batches-bin" / f"{name}.bin").write_bytes(rows.tobytes())
        (tmp_path / "cifar-10-batches-py" / name).write_bytes(pickle.dumps({b"data": x, b"labels": label}, 2))
    binary = load_images("cifar10", root=tmp_path)
    np.testing.assert_array_equal(binary.x[2:4].reshape(2, -1), pixels(2, 3072, seed=2))
    assert binary.label.tolist() == [1, 2, 2, 3, 3, 4, 4, 5, 5, 6]
    assert load_images("cifar10", root=tmp_path, train=False).label.tolist() == [6, 7]
    (tmp_path / "cifar-10-batches-bin").rename(tmp_path / "away")
    python = load_images("cifar10", root=tmp_path)
    assert torch.equal(python.x, binary.x)
    assert torch.equal(python.label, binary.label)
    assert IMAGE_SETS["cifar10"].there(tmp_path)


@pytest.mark.parametrize("place", ["", "svhn", "SVHN"])
def test_svhn(tmp_path, place):
    (tmp_path / place).mkdir(exist_ok=True)
    for part, n in (("train", 3), ("test", 2)):
        content = {"X": pixels(32, 32, 3, n), "y": np.full((n, 1), 10, np.uint8)}
        savemat(tmp_path / place / f"{part}_32x32.mat", content)
    assert load_images("svhn", root=tmp_path).x.shape == (3, 3, 32, 32)
    assert load_images("svhn", root=tmp_path, train=False).label.tolist() == [0, 0]


def test_celeba_is_cut_and_split_by_number_or_list(tmp_path):
    folder = tmp_path / "celeba" / "img_align_celeba"
    numbers = (1, 162770, 162771, 182637, 182638, 202599)
    for value, number in enumerate(numbers):
        save(folder / f"{number:06d}.png", np.full((218, 178, 3), value, np.uint8))
    train, test = (load_images("celeba", root=tmp_path, train=part) for part in (True, False))
    assert train.x.shape == (2, 3, 64, 64)
    assert train.label is None
    assert train.x[:, 0, 0, 0].tolist() == [0, 1]
    assert test.x[:, 0, 0, 0].tolist() == [4, 5]
    lines = [f"{number:06d}.png {part}" for number, part in zip(numbers, (2, 0, 1, 0, 2, 0), strict=True)]
    listed = tmp_path / "celeba" / "list_eval_partition.txt"
    listed.write_text("\n".join(lines) + "\n")
    assert load_images("celeba", root=tmp_path).x[:, 0, 0, 0].tolist() == [1, 3, 5]
    assert load_images("celeba", root=tmp_path, train=False, size=32).x.shape == (2, 3, 32, 32)
    listed.write_text("000001.png\n")
    assert "each line must be" in refused("celeba", root=tmp_path)
    listed.unlink()
    save(folder / "me.png", pixels(218, 178, 3))
    assert "named by numbers" in refused("celeba", root=tmp_path)


def test_celeba_shows_the_middle_of_the_face(tmp_path):
    x = np.zeros((218, 178, 3), np.uint8)
    x[39:179, 19:159] = 200  # what is outside of the crop is black
    save(tmp_path / "img_align_celeba" / "000001.png", x)
    assert load_images("celeba", root=tmp_path).x.eq(200).all()


def test_describable_textures_follow_their_first_partition(tmp_path):
    folder = tmp_path / "dtd" / "dtd"
    for i, name in enumerate(("banded/a", "banded/b", "dotted/a", "dotted/b")):
        save(folder / "images" / f"{name}.png", np.full((50, 40 + i, 3), i, np.uint8))
    whole = load_images("textures", root=tmp_path)
    assert (whole.x.shape, whole.label.tolist()) == ((4, 3, 32, 32), [0, 0, 1, 1])
    (folder / "labels").mkdir()
    for part, content in {"train": "banded/b.png", "val": "dotted/a.png", "test": "dotted/b.png"}.items():
        (folder / "labels" / f"{part}1.txt").write_text(content + "\n")
    assert load_images("textures", root=tmp_path).x[:, 0, 0, 0].tolist() == [1, 2]
    test = load_images("textures", root=tmp_path, train=False)
    assert (test.x[:, 0, 0, 0].tolist(), test.label.tolist()) == ([3], [1])


def test_textures_of_scikit_image_are_cut_in_patches(tmp_path, monkeypatch):
    (tmp_path / "skimage").mkdir()
    (tmp_path / "skimage" / "__init__.py").write_text("raise RuntimeError('not to be imported')")
    for i, name in enumerate(("brick", "gravel")):
        save(tmp_path / "skimage" / "data" / f"{name}.png", pixels(140, 70, seed=i))
    monkeypatch.syspath_prepend(tmp_path)
    train, test = (load_images("textures", root=tmp_path, train=part) for part in (True, False))
    assert (train.x.shape, test.x.shape) == ((12, 1, 32, 32), (4, 1, 32, 32))
    assert train.label.tolist() == [0] * 6 + [1] * 6
    np.testing.assert_array_equal(train.x[7, 0], pixels(140, 70, seed=1)[:32, 32:64])
    np.testing.assert_array_equal(test.x[0, 0], pixels(140, 70)[96:128, :32])


def test_quickdraw_takes_as_many_of_each_class(tmp_path):
    (tmp_path / "quickdraw").mkdir()
    for i, name in enumerate(("ant", "bee")):
        np.save(tmp_path / "quickdraw" / f"{name}.npy", pixels(103 + i, 28, 28, seed=i))
    train, test = (load_images("quickdraw", root=tmp_path, train=part) for part in (True, False))
    assert (train.label.bincount().tolist(), test.label.bincount().tolist()) == ([80, 80], [20, 20])
    np.testing.assert_array_equal(test.x[20:, 0], pixels(104, 28, 28, seed=1)[80:100])


def test_any_set_can_be_scaled(tmp_path):
    assert load_images("digits", size=16).x.shape == (1500, 1, 16, 16)
    assert "at least 1" in refused("digits", size=0)


# --- folders and load_dataset ---


def write_folder(folder, n=30, size=8):
    for i in range(n):
        save(folder / f"{'ab'[i % 2]}" / f"{i:03d}.png", np.full((size, size), i, np.uint8))


def test_a_folder_is_given_whole_or_in_its_parts(tmp_path):
    write_folder(tmp_path / "mine")
    for train in (True, False):
        images = load_images(str(tmp_path / "mine"), train=train)
        assert (images.x.shape, images.label.bincount().tolist()) == ((30, 1, 8, 8), [15, 15])
    assert load_images(str(tmp_path / "mine"), size=4).x.shape == (30, 1, 4, 4)
    write_folder(tmp_path / "parts" / "train", 20)
    write_folder(tmp_path / "parts" / "test", 4)
    assert len(load_images(str(tmp_path / "parts")).x) == 20
    assert len(load_images(str(tmp_path / "parts"), train=False).x) == 4
    (tmp_path / "empty").mkdir()
    assert "holds no pictures" in refused(str(tmp_path / "empty"))
    assert "unknown images 'minst'" in refused("minst")


def test_a_data_set_of_a_folder_holds_out_a_tenth_with_its_labels(tmp_path):
    write_folder(tmp_path / "mine")
    data, again, other = (load_dataset(str(tmp_path / "mine"), seed=seed) for seed in (0, 0, 1))
    assert (data.train.shape, data.held_out.shape) == ((27, 1, 8, 8), (3, 1, 8, 8))
    for x, label in ((data.train, data.train_labels), (data.held_out, data.held_out_labels)):
        assert torch.equal(x[:, 0, 0, 0].long() % 2, label)
    assert data.fingerprint == again.fingerprint != other.fingerprint
    write_folder(tmp_path / "few", 5)
    with pytest.raises(UserError, match="5 rows are too few"):
        load_dataset(str(tmp_path / "few"), seed=0)
    write_folder(tmp_path / "parts" / "train", 20)
    write_folder(tmp_path / "parts" / "test", 4, size=6)
    with pytest.raises(UserError, match="1 x 8 x 8 and 1 x 6 x 6"):
        load_dataset(str(tmp_path / "parts"), seed=0)
    data = load_dataset(str(tmp_path / "parts"), seed=0, image_size=6)
    assert (len(data.train), len(data.held_out)) == (20, 4)


def test_data_sets_find_their_files_below_a_root(tmp_path):
    write_idx(tmp_path / "MNIST" / "raw")
    data = load_dataset("mnist", seed=0, root=tmp_path)
    assert (len(data.train), len(data.held_out)) == (6, 4)


def test_the_fingerprint_sees_labels():
    x = torch.zeros(4, 2)
    label = torch.arange(4)
    prints = {Dataset(x, x, None, a, b).fingerprint for a in (None, label, label.flip(0)) for b in (None, label + 1)}
    assert len(prints) == 6
    assert Dataset(torch.zeros(4, 2).T, x).fingerprint == Dataset(torch.zeros(2, 4), x).fingerprint


@pytest.mark.parametrize(
    ("name", "train", "expected"),
    [
        ("mnist", True, "MNIST/raw/train-images-idx3-ubyte and train-labels-idx1-ubyte (or with .gz)"),
        ("mnist", False, "MNIST/raw/t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte (or with .gz)"),
        ("cifar10", True, "cifar-10-batches-bin/data_batch_1.bin to data_batch_5.bin"),
        ("cifar10", False, "cifar-10-batches-bin/test_batch.bin"),
        ("svhn", True, "svhn/train_32x32.mat"),
        ("svhn", False, "svhn/test_32x32.mat"),
        ("quickdraw", True, "quickdraw/*.npy, a file for each class"),
    ],
)
def test_what_is_missing_is_named_for_each_part(tmp_path, name, train, expected):
    assert refused(name, root=tmp_path, train=train).startswith(f"{name}: no {expected} below {tmp_path}; get it: ")


def test_a_size_is_a_positive_number(tmp_path):
    assert refused("digits", size=0) == "an image size must be at least 1, got 0"
    assert load_images("digits", size=1).x.shape == (1500, 1, 1, 1)
    assert load_images("digits", size=8).x.data_ptr() != 0
    assert load_images("digits").name == "digits"


def test_a_part_of_celeba_without_pictures_is_told(tmp_path):
    folder = tmp_path / "celeba" / "img_align_celeba"
    folder.mkdir(parents=True)
    Image.fromarray(pixels(218, 178, 3)).save(folder / "000001.jpg")
    assert load_images("celeba", root=tmp_path).x.shape == (1, 3, 64, 64)
    assert refused("celeba", root=tmp_path, train=False) == f"{folder}: holds no test pictures of CelebA"
    (folder / "000001.jpg").rename(folder / "202599.jpg")
    assert refused("celeba", root=tmp_path) == f"{folder}: holds no training pictures of CelebA"


def test_homes_are_found_whatever_their_spelling(tmp_path):
    for name in ("Fashion-MNIST", "fashion_mnist", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "FASHIONMNIST").write_text("a file")
    found = list(_homes(tmp_path, "fashionmnist"))
    own = [tmp_path / "Fashion-MNIST", tmp_path / "fashion_mnist"]
    assert found == [p for home in own for p in (home, home / "raw")]
    assert list(_homes(own[0], "fashionmnist")) == [own[0], own[0] / "raw"]
    (own[0] / "raw").mkdir()
    assert list(_homes(own[0] / "raw", "fashionmnist")) == [own[0], own[0] / "raw"]
    assert list(_homes(tmp_path / "nowhere", "fashionmnist")) == []


def test_grey_textures_and_faces_have_three_channels_too(tmp_path):
    folder = tmp_path / "dtd" / "images" / "dotted"
    folder.mkdir(parents=True)
    Image.fromarray(pixels(40, 50)).save(folder / "a.png")
    found = load_images("textures", root=tmp_path)
    assert found.x.shape == (1, 3, 32, 32)
    assert torch.equal(found.x[:, 0], found.x[:, 2])
    assert found.label.tolist() == [0]
    faces = tmp_path / "celeba" / "img_align_celeba"
    faces.mkdir(parents=True)
    Image.fromarray(pixels(218, 178)).save(faces / "000001.png")
    assert load_images("celeba", root=tmp_path).x.shape == (1, 3, 64, 64)


def test_a_set_is_there_if_its_test_images_are(tmp_path, monkeypatch):
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)  # no scikit-image
    places = {
        "mnist": ("MNIST/raw/t10k-images-idx3-ubyte", "MNIST/raw/t10k-labels-idx1-ubyte.gz"),
        "cifar10": ("cifar10/cifar-10-batches-py/test_batch",),
        "svhn": ("svhn/test_32x32.mat",),
        "celeba": ("CelebA/img_align_celeba/000001.jpg",),
        "textures": ("textures/dtd/images/dotted/a.png",),
        "quickdraw": ("quickdraw/ant.npy",),
    }
    assert IMAGE_SETS["digits"].there(tmp_path)
    for name, files in places.items():
        assert not IMAGE_SETS[name].there(tmp_path)
        for file in files:
            assert not IMAGE_SETS[name].there(tmp_path)  # all of them are needed
            (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / file).touch()
        assert IMAGE_SETS[name].there(tmp_path)
        assert not IMAGE_SETS["notmnist"].there(tmp_path)


def test_pictures_are_scaled_or_cut_once_to_the_size_that_is_asked_for(tmp_path, monkeypatch):
    """Not to the usual one first, which would blur them."""
    (tmp_path / "skimage").mkdir()
    (tmp_path / "skimage" / "__init__.py").touch()
    save(tmp_path / "skimage" / "data" / "grass.png", pixels(64, 40))
    monkeypatch.syspath_prepend(tmp_path)
    assert load_images("textures", root=tmp_path, size=8).x.shape == (6 * 5, 1, 8, 8)
    face = tmp_path / "celeba" / "img_align_celeba" / "000001.png"
    save(face, pixels(218, 178, 3))
    one = pictures.read_pictures([face], size=20, crop=140, channels=3)
    np.testing.assert_array_equal(load_images("celeba", root=tmp_path, size=20).x, one)
    texture = tmp_path / "dtd" / "images" / "dotted" / "a.png"
    save(texture, pixels(70, 90, 3))
    one = pictures.read_pictures([texture], size=20, channels=3)
    np.testing.assert_array_equal(load_images("textures", root=tmp_path, size=20).x, one)


def test_textures_without_kinds_or_with_lists_of_others_are_told(tmp_path):
    folder = tmp_path / "dtd"
    save(folder / "images" / "a.png", pixels(40, 50))
    start = f"{folder / 'images'}: no sub-folders of pictures"
    assert refused("textures", root=tmp_path).startswith(start)
    (folder / "images" / "dotted").mkdir()
    (folder / "images" / "a.png").rename(folder / "images" / "dotted" / "a.png")
    (folder / "labels").mkdir()
    for part in ("train", "val", "test"):
        (folder / "labels" / f"{part}1.txt").write_text("dotted/b.png\n")
    for train, first in ((True, "train"), (False, "test")):
        told = f"{folder / 'labels' / f'{first}1.txt'}: none of the pictures it names is in {folder / 'images'}"
        assert refused("textures", root=tmp_path, train=train) == told
    (folder / "labels" / "val1.txt").unlink()  # without all lists there is no partition
    assert len(load_images("textures", root=tmp_path).x) == 1


def test_a_root_in_the_home_folder_may_be_written_with_a_tilde(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data_root("~/sets") == tmp_path / "sets"


def test_bytes_of_the_digits_are_the_nearest():
    """Sixteen steps of grey from 0 to 255, each rounded."""
    found = set(load_images("digits").x.unique().tolist())
    assert found == {round(255 * step / 16) for step in range(17)}
