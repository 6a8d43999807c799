"""Folders of pictures as bytes, and the handwritten digits that come with scikit-learn.

>>> digits = load_images("digits")
>>> digits.x.shape, digits.x.dtype, digits.label[:3].tolist()
(torch.Size([1500, 1, 8, 8]), torch.uint8, [8, 4, 5])
"""

import math
import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from pscd.data.pixels import as_shape
from pscd.errors import UserError
from pscd.files import cache_folder, one_line
from pscd.progress import progress_bar
from pscd.rng import generator

if TYPE_CHECKING:
    from PIL import Image

DIGITS = "digits"
PICTURE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm")


@dataclass(frozen=True)
class Limits:
    """What protects from pictures that take all memory, and from silence while many are read."""

    small: int = 2**20  # pixels of a picture that is never refused
    pixels_per_byte: int = 10_000  # of a blank page that is packed as well as can be; a file with more is a bomb
    long_list: int = 2000  # pictures that take seconds to read, so that a progress bar is shown


LIMITS = Limits()
Arrays = tuple[np.ndarray, np.ndarray | None]  # pixels and labels


@dataclass(frozen=True)
class Images:
    """Images and their labels.

    Args:
        x: bytes `(n, channels, height, width)`.
        label: int64 `(n,)`, or None.
        name: of the set, or the folder.
    """

    x: Tensor  # uint8
    label: Tensor | None  # int64 (n,)
    name: str


def load_images(name: str, *, train: bool = True, size: int | None = None) -> Images:
    """Training or test images of a folder, or scikit-learn's handwritten digits."""
    x, label = read_digits(train) if name == DIGITS else read_folder(Path(name), train, size)
    return as_images(x, label, name, size)


def as_images(x: np.ndarray, label: np.ndarray | None, name: str, size: int | None = None) -> Images:
    """Arrays of pixels and labels as `Images`, scaled to `size`."""
    if size is not None and size < 1:
        raise UserError(f"an image size must be at least 1, got {size}")
    images = torch.from_numpy(x)
    if size is not None and images.shape[2:] != (size, size):
        images = as_shape(images, images.shape[1], size)
    return Images(images, None if label is None else torch.from_numpy(label), name)


def data_root(root: Path | str | None = None) -> Path:
    """The folder for downloaded and cached files: the argument, what `PSCD_DATA` names, or the system's cache."""
    chosen = root or os.environ.get("PSCD_DATA")
    return Path(chosen).expanduser() if chosen else cache_folder()


def has_parts(folder: Path) -> bool:
    """Whether a folder of images comes with a test set."""
    return (folder / "train").is_dir() and (folder / "test").is_dir()


def read_digits(train: bool, n_train: int = 1500) -> Arrays:
    """Pixels and labels of scikit-learn's 8 x 8 digits, the first `n_train` of a fixed permutation or the others."""
    from sklearn.datasets import load_digits

    values, label = load_digits(return_X_y=True)
    order = torch.randperm(len(values), generator=generator(0)).numpy()
    chosen = order[:n_train] if train else order[n_train:]
    x = np.rint(values[chosen] * (255 / 16)).astype(np.uint8)
    return x.reshape(-1, 1, 8, 8), label[chosen].astype(np.int64)


def read_folder(folder: Path, train: bool, size: int | None) -> Arrays:
    """Pixels and labels of a folder of pictures, of its part `train` or `test` if it has them."""
    if not folder.is_dir():
        raise UserError(f"unknown images {str(folder)!r}; give a folder of pictures")
    if has_parts(folder):
        folder = folder / ("train" if train else "test")
    paths, label = list_pictures(folder)
    if not paths:
        raise UserError(f"{folder}: holds no pictures ({', '.join(PICTURE_SUFFIXES)})")
    x, readable = read_readable(paths, size=size)
    return x, None if label is None else label[readable]


def list_pictures(folder: Path) -> tuple[list[Path], np.ndarray | None]:
    """All pictures of a folder and its sub-folders, by their names, and as labels the numbers of the sub-folders."""
    classes = sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
    own = _pictures_in(folder.iterdir())
    inner = [(_pictures_in(c.rglob("*")), c) for c in classes]
    inner = [(paths, c) for paths, c in inner if paths]
    if own or not inner:
        return all_pictures(folder), None
    labels = np.concatenate([np.full(len(paths), i, np.int64) for i, (paths, _) in enumerate(inner)])
    return [p for paths, _ in inner for p in paths], labels


def all_pictures(folder: Path) -> list[Path]:
    """All pictures of a folder and of the folders in it, in order; hidden files and folders are passed over."""
    paths = _pictures_in(folder.rglob("*"))
    return [p for p in paths if not any(part.startswith(".") for part in p.relative_to(folder).parts)]


def open_picture(path: Path, channels: int = 3) -> "Image.Image":
    """A picture upright, in grey (1 channel) or colour (3), with 8 bits; of an animated one the first frame."""
    from PIL import ImageOps

    with _open(path) as opened:
        return _in_eight_bits(ImageOps.exif_transpose(opened), channels)


def read_readable(
    paths: Sequence[Path], *, size: int | None = None, channels: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Those of several pictures that can be read, as `read_pictures` reads them; a warning names the others."""
    broken: dict[Path, Exception] = {}
    x = read_pictures(paths, size=size, channels=channels, broken=broken)
    if broken:
        warnings.warn(f"{_about(broken, len(paths), 'read')}; left out", stacklevel=2)
    return x, np.array([i for i, path in enumerate(paths) if path not in broken])


def read_pictures(
    paths: Sequence[Path],
    *,
    size: int | None = None,
    crop: int | None = None,
    channels: int | None = None,
    broken: dict[Path, Exception] | None = None,
) -> np.ndarray:
    """Pictures as one array of bytes `(n, channels, height, width)`, grey if all of them are."""
    if channels is None:
        modes = [mode for _, mode in _each(paths, _mode, "looked at", broken)]
        channels = 1 if all(mode in ("1", "L", "LA") or mode.startswith("I;16") for mode in modes) else 3
    pixels: np.ndarray | None = None
    other: tuple[Path, tuple[int, ...]] | None = None

    def read(path: Path) -> np.ndarray:
        return decode_picture(path, channels, size, crop)

    first, n = paths[0], 0
    for path, x in _each(paths, read, "read", broken):
        if pixels is None:
            pixels, first = np.empty((len(paths), *x.shape), np.uint8), path
        if x.shape == pixels.shape[1:]:
            pixels[n] = x
            n += 1
        elif other is None:
            other = (path, x.shape)
    assert pixels is not None
    if other is not None:
        its, others = (f"{width} x {height}" for height, width in (pixels.shape[2:], other[1][1:]))
        raise UserError(
            f"{first} is {its} and {other[0]} is {others}; scale all to one size, for example an image_size of 32"
        )
    return pixels[:n]


def _each(
    paths: Sequence[Path], read: Callable[[Path], Any], verb: str, broken: dict[Path, Exception] | None
) -> Iterable[tuple[Path, Any]]:
    """`(path, read(path))` for all paths; those that fail go to `broken`, or are named together in an error."""
    fails = {} if broken is None else broken
    with progress_bar(len(paths), show=len(paths) >= LIMITS.long_list, unit="picture") as bar:
        for path in paths:
            try:
                if path not in fails:
                    yield path, read(path)
            except Exception as error:  # Pillow raises a dozen kinds for a damaged file
                fails[path] = error
            bar.update()
    if fails and (broken is None or len(fails) == len(paths)):
        raise UserError(f"{_about(fails, len(paths), verb)}; remove {'it' if len(fails) == 1 else 'them'}")


def _about(broken: dict[Path, Exception], n: int, verb: str) -> str:
    """Which of n pictures could not be read, and why the first could not."""
    names = ", ".join(map(str, list(broken)[:5])) + (" ..." if len(broken) > 5 else "")
    return f"{len(broken)} of {n} pictures cannot be {verb}: {names} ({one_line(next(iter(broken.values())))})"


def _mode(path: Path) -> str:
    with _open(path) as picture:
        return picture.mode


def _open(path: Path) -> "Image.Image":
    """A picture of which the header is read; bombs, by Pillow's measure and by their files' lengths, are refused."""
    from PIL import Image

    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        picture = Image.open(path)
    if math.prod(picture.size) > max(LIMITS.small, LIMITS.pixels_per_byte * path.stat().st_size):
        picture.close()
        raise ValueError(f"{path.stat().st_size} bytes cannot be {picture.width} x {picture.height} pixels")
    return picture


def decode_picture(path: Path, channels: int, size: int | None = None, crop: int | None = None) -> np.ndarray:
    """One picture, as `read_pictures` reads each of them; raises whatever Pillow raises."""
    from PIL import Image

    picture = open_picture(path, channels)
    if size is not None:
        side = min(*picture.size) if crop is None else crop
        left, top = (picture.width - side) // 2, (picture.height - side) // 2
        if min(left, top) < 0:
            raise ValueError(f"{picture.width} x {picture.height}, smaller than {side} x {side}")
        # Cut first: scaling with a box would blend in what lies just outside of it.
        picture = picture.crop((left, top, left + side, top + side)).resize((size, size), Image.Resampling.BILINEAR)
    pixels = np.array(picture, np.uint8)
    return pixels[None] if channels == 1 else pixels.transpose(2, 0, 1)


def _in_eight_bits(picture: "Image.Image", channels: int) -> "Image.Image":
    """Grey or colour with values from 0 to 255; what is transparent shows white."""
    from PIL import Image

    if picture.mode.startswith("I;16"):  # converted by Pillow, all above 255 would be white
        picture = Image.fromarray((np.asarray(picture) >> 8).astype(np.uint8))
    if picture.mode in ("I", "F"):
        raise ValueError("more than 16 bits a pixel; save it with 8")
    if picture.mode in ("LA", "PA", "RGBA", "RGBa", "La") or "transparency" in picture.info:
        picture = picture.convert("RGBA")
        picture = Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture)
    return picture.convert("L" if channels == 1 else "RGB")


def _pictures_in(paths: Iterable[Path]) -> list[Path]:
    return sorted(
        p for p in paths if p.suffix.lower() in PICTURE_SUFFIXES and not p.name.startswith(".") and p.is_file()
    )
