"""Named sets of images, as bytes. To add one: a function that reads it, and an entry of `IMAGE_SETS`."""

import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pscd.data import Dataset, pictures
from pscd.data import load_dataset as pscd_load_dataset
from pscd.data.pictures import Arrays, Images, data_root
from pscd.errors import UserError
from studies.images import formats

CELEBA_CROP, CELEBA_SIZE = 140, 64
QUICKDRAW_SIZE, QUICKDRAW_TRAIN, QUICKDRAW_TEST = 28, 80, 20  # drawings of each class
TEXTURE_SIZE = 32
BUNDLED_TEXTURES = ("brick", "grass", "gravel")  # of scikit-image, in its wheel
IDX_FILES = tuple(f"{part}-{what}-ubyte.gz" for part in ("train", "t10k") for what in ("images-idx3", "labels-idx1"))


@dataclass(frozen=True)
class Download:
    """A file to fetch; of a `.tar.gz` only the content is kept, in its own folders.

    Args:
        urls: mirrors, in the order in which they are tried.
        md5: its published checksum.
        folder: where it goes, below the root of all sets.
    """

    urls: tuple[str, ...]
    md5: str
    folder: str

    @property
    def name(self) -> str:
        """The file's name."""
        return self.urls[0].rsplit("/", 1)[1]


@dataclass(frozen=True)
class ImageSet:
    """All there is to know of a set of images.

    Args:
        about: what it is, in a line.
        read: pixels and labels, from the root of all sets, whether the training images are asked for, and a side to
            scale to or None.
        there: whether its files are below a root.
        by_hand: where to get it, if no command does.
        files: what `python -m studies data get` downloads.
    """

    about: str
    read: Callable[[Path, bool, int | None], Arrays]
    there: Callable[[Path], bool]
    by_hand: str | None = None
    files: tuple[Download, ...] = ()


def load_images(name: str, *, root: Path | str | None = None, train: bool = True, size: int | None = None) -> Images:
    """Training or test images of a named set below `root` (see `data_root`), or of a folder."""
    if name not in IMAGE_SETS:
        return pictures.load_images(name, train=train, size=size)
    x, label = IMAGE_SETS[name].read(data_root(root), train, size)
    return pictures.as_images(x, label, name, size)


def load_dataset(name: str, *, seed: int, root: Path | str | None = None, image_size: int | None = None) -> Dataset:
    """A named set with its test images held out, or whatever `pscd.load_dataset` knows."""
    if name not in IMAGE_SETS or name == pictures.DIGITS:
        return pscd_load_dataset(name, seed=seed, image_size=image_size)
    train, test = (load_images(name, root=root, train=part, size=image_size) for part in (True, False))
    return Dataset(train.x, test.x, None, train.label, test.label)


# --- where files may be ---


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


def _homes(root: Path, *names: str) -> Iterator[Path]:
    """Folders below `root` that may belong to a set, whatever their spelling, and `root` if it is one."""
    if not root.is_dir():
        return
    own = [p for p in sorted(root.iterdir()) if _plain(p.name) in names and p.is_dir()]
    for folder in (*own, *(p for p in (root, root.parent) if _plain(p.name) in names)):
        yield folder
        yield folder / "raw"


def _missing(name: str, root: Path, expected: str) -> UserError:
    by_hand = IMAGE_SETS[name].by_hand
    get = f"python -m studies data get {name} --root {root}" if by_hand is None else by_hand
    return UserError(f"{name}: no {expected} below {root}; get it: {get}; or name another root (PSCD_DATA)")


# --- the sets ---


def _digits(root: Path, train: bool, size: int | None) -> Arrays:
    return pictures.read_digits(train)


def _idx_pair(folder: Path, train: bool) -> tuple[Path, Path] | None:
    part = "train" if train else "t10k"
    names = (f"{part}-images-idx3-ubyte", f"{part}-labels-idx1-ubyte")
    images, labels = (next((p for p in (folder / n, folder / f"{n}.gz") if p.is_file()), None) for n in names)
    return (images, labels) if images is not None and labels is not None else None


def _idx_set(
    name: str,
    folder: str,
    about: str,
    *,
    by_hand: str | None = None,
    mirrors: tuple[str, ...] = (),
    md5: tuple[str, ...] = (),
) -> ImageSet:
    def read(root: Path, train: bool, size: int | None) -> Arrays:
        for home in _homes(root, _plain(name)):
            pair = _idx_pair(home, train)
            if pair is not None:
                return formats.read_idx_pair(*pair)
        part = "train" if train else "t10k"
        expected = f"{folder}/raw/{part}-images-idx3-ubyte and {part}-labels-idx1-ubyte (or with .gz)"
        raise _missing(name, root, expected)

    def there(root: Path) -> bool:
        return any(_idx_pair(home, False) for home in _homes(root, _plain(name)))

    files = _files(mirrors, f"{folder}/raw", dict(zip(IDX_FILES, md5, strict=True)) if md5 else {})
    return ImageSet(about, read, there, by_hand, files)


def _cifar_files(root: Path, train: bool) -> list[Path]:
    names = [f"data_batch_{i}" for i in range(1, 6)] if train else ["test_batch"]
    layouts = [("cifar-10-batches-bin", ".bin"), ("cifar-10-batches-py", "")]
    for home in (root, root.parent, *_homes(root, "cifar10")):
        for folder, suffix in layouts:
            files = [home / folder / f"{name}{suffix}" for name in names]
            if all(p.is_file() for p in files):
                return files
    return []


def _read_cifar10(root: Path, train: bool, size: int | None) -> Arrays:
    files = _cifar_files(root, train)
    if not files:
        what = "data_batch_1.bin to data_batch_5.bin" if train else "test_batch.bin"
        raise _missing("cifar10", root, f"cifar-10-batches-bin/{what}")
    read = formats.read_cifar_binary if files[0].suffix == ".bin" else formats.read_cifar_pickle
    x, label = zip(*map(read, files), strict=True)
    return np.concatenate(x), np.concatenate(label)


def _svhn_file(root: Path, train: bool) -> Path | None:
    name = f"{'train' if train else 'test'}_32x32.mat"
    return next((home / name for home in (*_homes(root, "svhn"), root) if (home / name).is_file()), None)


def _read_svhn(root: Path, train: bool, size: int | None) -> Arrays:
    path = _svhn_file(root, train)
    if path is None:
        raise _missing("svhn", root, f"svhn/{'train' if train else 'test'}_32x32.mat")
    return formats.read_svhn(path)


def _celeba_folder(root: Path) -> Path | None:
    homes = (root, root.parent, *_homes(root, "celeba"))
    return next((p for home in homes if (p := home / "img_align_celeba").is_dir()), None)


def _read_celeba(root: Path, train: bool, size: int | None) -> Arrays:
    folder = _celeba_folder(root)
    if folder is None:
        raise _missing("celeba", root, "folder celeba/img_align_celeba of pictures 000001.jpg, ...")
    partition = formats.celeba_partition(folder)
    wanted = 0 if train else 2
    paths = [p for p in pictures.list_pictures(folder)[0] if partition(p) == wanted]
    if not paths:
        raise UserError(f"{folder}: holds no {'training' if train else 'test'} pictures of CelebA")
    return pictures.read_pictures(paths, size=size or CELEBA_SIZE, crop=CELEBA_CROP, channels=3), None


def _dtd_folder(root: Path) -> Path | None:
    homes = [home / inner for home in _homes(root, "dtd", "textures") for inner in ("", "dtd")]
    return next((home for home in homes if (home / "images").is_dir()), None)


def _bundled_textures() -> list[Path]:
    """Files of scikit-image's wheel, found without importing it and so without its downloads."""
    spec = importlib.util.find_spec("skimage")
    folders = [] if spec is None else list(spec.submodule_search_locations or [])
    files = [Path(folder) / "data" / f"{name}.png" for folder in folders for name in BUNDLED_TEXTURES]
    return [p for p in files if p.is_file()]


def _read_textures(root: Path, train: bool, size: int | None) -> Arrays:
    side = size or TEXTURE_SIZE
    folder = _dtd_folder(root)
    if folder is not None:
        paths, label = pictures.list_pictures(folder / "images")
        return _dtd_part(folder, paths, label, train, side)
    textures = _bundled_textures()
    if not textures:
        expected = (
            "folder dtd/images (Describable Textures), nor the pictures of scikit-image (pip install scikit-image)"
        )
        raise _missing("textures", root, expected)
    return formats.cut_squares(textures, train, side)


def _dtd_part(folder: Path, paths: list[Path], label: np.ndarray | None, train: bool, side: int) -> Arrays:
    """The set's first partition: its training and validation pictures, or its test pictures."""
    lists = [folder / "labels" / f"{part}1.txt" for part in (("train", "val") if train else ("test",))]
    if label is None:
        raise UserError(f"{folder / 'images'}: no sub-folders of pictures, one for each kind of texture")
    if all(p.is_file() for p in lists):
        names = {line.strip() for p in lists for line in p.read_text().splitlines()}
        chosen = [i for i, p in enumerate(paths) if p.relative_to(folder / "images").as_posix() in names]
        if not chosen:
            raise UserError(f"{lists[0]}: none of the pictures it names is in {folder / 'images'}")
        paths, label = [paths[i] for i in chosen], label[chosen]
    return pictures.read_pictures(paths, size=side, channels=3), label


def _quickdraw_files(root: Path) -> list[Path]:
    return next((files for home in _homes(root, "quickdraw") if (files := sorted(home.glob("*.npy")))), [])


def _read_quickdraw(root: Path, train: bool, size: int | None) -> Arrays:
    files = _quickdraw_files(root)
    if not files:
        raise _missing("quickdraw", root, "quickdraw/*.npy, a file for each class")
    n = QUICKDRAW_TRAIN + QUICKDRAW_TEST
    part = slice(QUICKDRAW_TRAIN) if train else slice(QUICKDRAW_TRAIN, n)
    x = [formats.read_bitmaps(path, n, QUICKDRAW_SIZE)[part] for path in files]
    return np.concatenate(x), np.arange(len(files), dtype=np.int64).repeat(len(x[0]))


_QUICKDRAW_URL = "https://storage.googleapis.com/quickdraw_dataset/full/numpy_bitmap/CLASS.npy"
_CELEBA_URL = "https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html (Align&Cropped Images, img_align_celeba.zip)"
_NOTMNIST_URL = "https://github.com/davidflanagan/notMNIST-to-MNIST (the four IDX files)"

_MNIST = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/")
_FASHION = ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",)
_SVHN = ("http://ufldl.stanford.edu/housenumbers/",)
_CIFAR = ("https://www.cs.toronto.edu/~kriz/",)
_DTD = ("https://www.robots.ox.ac.uk/~vgg/data/dtd/download/",)


def _files(mirrors: tuple[str, ...], folder: str, md5: dict[str, str]) -> tuple[Download, ...]:
    return tuple(Download(tuple(mirror + name for mirror in mirrors), sum_, folder) for name, sum_ in md5.items())


# The MD5 sums of MNIST, Fashion-MNIST, SVHN and DTD are those in torchvision's `datasets`; that of the binary CIFAR-10
# stands on its authors' page, https://www.cs.toronto.edu/~kriz/cifar.html.
IMAGE_SETS: dict[str, ImageSet] = {
    "digits": ImageSet("handwritten digits, 8 x 8 grey, 1,500 + 297, part of scikit-learn", _digits, lambda _: True),
    "mnist": _idx_set(
        "mnist",
        "MNIST",
        "handwritten digits, 28 x 28 grey, 60,000 + 10,000",
        mirrors=_MNIST,
        md5=(
            "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "d53e105ee54ea40749a09fcbcd1e9432",
            "9fb629c4189551a2d022fa330f9573f3",
            "ec29112dd5afa0611ce80d1b7f02629c",
        ),
    ),
    "fashion-mnist": _idx_set(
        "fashion-mnist",
        "FashionMNIST",
        "clothes, 28 x 28 grey, 60,000 + 10,000",
        mirrors=_FASHION,
        md5=(
            "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "25c81989df183df01b3e8a0aad5dffbe",
            "bef4ecab320f06d8554ea6380940ec79",
            "bb300cfdad3c16e7a12a480ee83cd310",
        ),
    ),
    "notmnist": _idx_set("notmnist", "notMNIST", "letters A to J of many fonts, 28 x 28 grey", by_hand=_NOTMNIST_URL),
    "cifar10": ImageSet(
        "ten kinds of things, 32 x 32 colour, 50,000 + 10,000",
        _read_cifar10,
        lambda root: bool(_cifar_files(root, False)),
        files=_files(_CIFAR, "", {"cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530"}),
    ),
    "svhn": ImageSet(
        "house numbers, 32 x 32 colour, 73,257 + 26,032",
        _read_svhn,
        lambda root: _svhn_file(root, False) is not None,
        files=_files(
            _SVHN,
            "svhn",
            {
                "train_32x32.mat": "e26dedcc434d2e4c54c9b2d4a06d8373",
                "test_32x32.mat": "eb5a983be6a315427106f1b164d9cef3",
            },
        ),
    ),
    "celeba": ImageSet(
        "faces, 64 x 64 colour, 162,770 + 19,962",
        _read_celeba,
        lambda root: _celeba_folder(root) is not None,
        by_hand=_CELEBA_URL,
    ),
    "textures": ImageSet(
        "describable textures (DTD), 32 x 32 colour; else patches of scikit-image's",
        _read_textures,
        lambda root: _dtd_folder(root) is not None or bool(_bundled_textures()),
        files=_files(_DTD, "dtd", {"dtd-r1.0.1.tar.gz": "fff73e5086ae6bdbea199a49dfb8a4c1"}),
    ),
    "quickdraw": ImageSet(
        "drawings of many classes, 28 x 28 grey, 80 + 20 of each",
        _read_quickdraw,
        lambda root: bool(_quickdraw_files(root)),
        by_hand=_QUICKDRAW_URL,
    ),
}
