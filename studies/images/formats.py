"""Parsers of image files: IDX, CIFAR-10, SVHN, arrays, and pictures that Pillow reads.

Every fault of a file is a `UserError` of one line that names the file. Images are `uint8` arrays
`(n, channels, height, width)`, labels `int64` arrays `(n,)`.
"""

import gzip
import io
import math
import pickle
import pickletools
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pscd.data.pictures import read_pictures
from pscd.errors import UserError
from pscd.files import check_fits, one_line, reading
from studies.images.matlab import read_arrays

CIFAR_SHAPE = (3, 32, 32)
UNSIGNED_BYTE = 8  # the kind of number in an IDX header
MOST_TUPLES, MOST_RECALLS = 16, 64  # in the pickle of a batch, which has 6 and 0
CELEBA_TRAIN, CELEBA_VALIDATION = 162_770, 19_867  # by file number; the 19,962 after them are the test images


# --- IDX: MNIST and its relatives ---


def read_idx(path: Path, n_dims: int) -> np.ndarray:
    """The array of bytes in an IDX file, gzipped or not, which must have `n_dims` dimensions."""
    with reading(path, "cannot be read; delete it and get it again"):
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            header = file.read(4 + 4 * n_dims)
            if len(header) < 4 + 4 * n_dims or header[:4] != bytes([0, 0, UNSIGNED_BYTE, n_dims]):
                raise UserError(f"{path}: not an IDX file of bytes with {n_dims} dimensions")
            shape = struct.unpack(f">{n_dims}I", header[4:])
            size = math.prod(shape)
            check_fits(path, size)
            content = file.read(size) + file.read(1)
        if len(content) != size:
            found = f"more than {size}" if len(content) > size else len(content)
            raise UserError(f"{path}: {found} bytes where its header promises {size}; get it again")
        return np.frombuffer(content, np.uint8).reshape(shape).copy()


def read_idx_pair(images: Path, labels: Path) -> tuple[np.ndarray, np.ndarray]:
    """Grey images and their labels from two IDX files."""
    x, label = read_idx(images, 3)[:, None], read_idx(labels, 1).astype(np.int64)
    if len(x) != len(label):
        raise UserError(f"{images}: {len(x)} images, but {len(label)} labels in {labels.name}")
    return x, label


# --- CIFAR-10 ---


def read_cifar_binary(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """A batch of the binary layout: records of a byte for the label and 3,072 for the pixels."""
    content = np.frombuffer(_bytes_of(path), np.uint8)
    record = 1 + int(np.prod(CIFAR_SHAPE))
    if len(content) == 0 or len(content) % record:
        raise UserError(f"{path}: {len(content)} bytes are no whole number of images; get it again")
    rows = content.reshape(-1, record)
    return rows[:, 1:].reshape(-1, *CIFAR_SHAPE), rows[:, 0].astype(np.int64)


def read_cifar_pickle(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """A batch of the Python layout, by an unpickler that calls nothing but the stand-ins of this module."""
    content = _bytes_of(path)
    with reading(path, "not a readable batch of CIFAR-10"):
        _check_opcodes(content)
        batch = _BatchUnpickler(io.BytesIO(content), encoding="latin1").load()
        batch = {key.decode() if isinstance(key, bytes) else key: value for key, value in batch.items()}
        x, label = batch["data"].as_bytes(), batch["labels"]
        if not (isinstance(label, list) and all(isinstance(one, int) for one in label)):
            raise ValueError("its labels are not numbers")
        return x.reshape(len(label), *CIFAR_SHAPE), np.array(label, np.int64)


def _check_opcodes(content: bytes) -> None:
    """Refuse a pickle that would keep the unpickler busy, or fill the memory, without being long."""
    tuples = recalls = 0
    for opcode, argument, _ in pickletools.genops(content):
        if "PUT" in opcode.name and int(argument or 0) > len(content):  # the memo is a table of that length
            raise ValueError("it counts beyond its own end")
        tuples += "TUPLE" in opcode.name or "FROZENSET" in opcode.name
        recalls += "GET" in opcode.name or opcode.name == "DUP"
    if tuples > MOST_TUPLES or recalls > MOST_RECALLS:  # of tuples of tuples, twice each, it takes years to get a key
        raise ValueError("no array needs so many tuples")


class _StoredArray:
    """What a pickle says of an array. numpy would build one of objects on top of any bytes it is given."""

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, self.shape, self.kind, self.in_columns, self.raw = state

    def as_bytes(self) -> np.ndarray:
        """The array, which must be one of bytes."""
        if not isinstance(self.kind, _StoredType) or self.kind.code not in ("u1", "|u1"):
            raise ValueError("its data are not bytes")
        raw = self.raw.encode("latin1") if isinstance(self.raw, str) else self.raw  # text of Python 2 was bytes
        return np.frombuffer(raw, np.uint8).reshape(self.shape, order="F" if self.in_columns else "C")


class _StoredType:
    """What a pickle says of the type of an array's values; the details are of no interest for bytes."""

    def __init__(self, code: str, *flags: Any) -> None:
        self.code = code

    def __setstate__(self, state: object) -> None:
        pass


def _from_buffer(raw: bytes, kind: _StoredType, shape: tuple[int, ...], order: str) -> _StoredArray:
    array = _StoredArray()
    array.__setstate__((1, shape, kind, order == "F", raw))
    return array


_STAND_INS: dict[str, Any] = {
    "_reconstruct": lambda *_: _StoredArray(),
    "_frombuffer": _from_buffer,
    "ndarray": None,  # an argument of _reconstruct, never called
    "dtype": _StoredType,
    "encode": lambda text, encoding: text.encode("latin1"),  # bytes that Python 3 wrote for Python 2
}


class _BatchUnpickler(pickle.Unpickler):
    """A pickle is a program; this one finds none of the functions it asks for, only stand-ins for numpy's."""

    def find_class(self, module: str, name: str) -> Any:
        """The stand-in of that name."""
        if module.split(".", maxsplit=1)[0] not in ("numpy", "_codecs") or name not in _STAND_INS:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no array needs")
        return _STAND_INS[name]


# --- SVHN and arrays ---


def read_svhn(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """The cropped digits of a `.mat` file; its label 10 stands for the digit 0."""
    content = read_arrays(path)
    if not {"X", "y"} <= content.keys():
        raise UserError(f"{path}: not a readable .mat file with X and y")
    x, label = content["X"], content["y"].reshape(-1)
    if x.dtype != np.uint8 or x.ndim != 4 or x.shape[2] != 3 or x.shape[3] != len(label):
        raise UserError(f"{path}: X must hold bytes, height x width x 3 x n, with n labels in y")
    return np.ascontiguousarray(x.transpose(3, 2, 0, 1)), label.astype(np.int64) % 10


def read_bitmaps(path: Path, n: int, size: int) -> np.ndarray:
    """The first `n` grey drawings of a `.npy` file.

    Args:
        path: the file, with squares `(m, size, size)` or rows of pixels `(m, size * size)`.
        n: number of drawings to read.
        size: side of a drawing.

    Returns:
        Bytes `(n, 1, size, size)`.

    Raises:
        UserError: the file is not readable, its drawings have another size, or there are too few.
    """
    try:
        rows = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # numpy raises several kinds for a damaged file
        raise UserError(f"{path}: not a readable .npy file ({one_line(error)})") from None
    if rows.dtype != np.uint8 or rows.shape[1:] not in ((size, size), (size * size,)):
        raise UserError(f"{path}: holds {rows.dtype} {rows.shape}, not bytes of {size} x {size}")
    if len(rows) < n:
        raise UserError(f"{path}: {len(rows)} drawings, {n} are needed")
    return np.array(rows[:n]).reshape(n, 1, size, size)


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None


def celeba_partition(folder: Path) -> Callable[[Path], int]:
    """Which part of CelebA a picture belongs to: 0 (training), 1 (validation) or 2 (test).

    It is read from `list_eval_partition.txt` in the folder or beside it; without that file, the number in a picture's
    name decides.

    Returns:
        A function from the path of a picture to its part; -1 for one that the list does not name.

    Raises:
        UserError: the list is damaged, or there is none and a picture is not named by a number.
    """
    listed = next((p for home in (folder.parent, folder) if (p := home / "list_eval_partition.txt").is_file()), None)
    if listed is not None:
        rows = [line.split() for line in listed.read_text().splitlines() if line.strip()]
        if not all(len(row) == 2 and row[1] in ("0", "1", "2") for row in rows):
            raise UserError(f"{listed}: each line must be a file's name and 0, 1 or 2")
        parts = {name: int(part) for name, part in rows}
        return lambda path: parts.get(path.name, -1)

    def by_number(path: Path) -> int:
        if not path.stem.isdecimal():
            raise UserError(f"{path}: pictures of CelebA are named by numbers, 000001.jpg; move this one away")
        return sum(int(path.stem) > last for last in (CELEBA_TRAIN, CELEBA_TRAIN + CELEBA_VALIDATION))

    return by_number


def cut_squares(pictures: Sequence[Path], train: bool, side: int) -> tuple[np.ndarray, np.ndarray]:
    """Squares cut from large grey pictures, and from which of them.

    Args:
        pictures: files.
        train: whether to cut from the upper three quarters of each, or from the rest.
        side: of the squares, in pixels.

    Returns:
        Bytes `(n, 1, side, side)` and labels `(n,)`.
    """
    cut, label = [], []
    for kind, path in enumerate(pictures):
        x = read_pictures([path], channels=1)[0, 0]
        rows, columns = (n // side for n in x.shape)
        squares = x[: rows * side, : columns * side].reshape(rows, side, columns, side).swapaxes(1, 2)
        split = rows - rows // 4
        squares = (squares[:split] if train else squares[split:]).reshape(-1, 1, side, side)
        cut.append(squares)
        label.append(np.full(len(squares), kind, np.int64))
    return np.concatenate(cut), np.concatenate(label)
