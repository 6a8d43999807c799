"""Arrays of numbers in MATLAB's `.mat` files (version 5), as SVHN comes in.

Not scipy's reader: on files with a few wrong bytes it reads outside of its memory, which ends the process.
"""

import math
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from pscd.errors import UserError
from pscd.files import check_fits, reading

HEADER = 128  # bytes before the first element
MATRIX, COMPRESSED = 14, 15  # kinds of elements
NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}  # as stored
CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}  # as meant


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of real numbers in a `.mat` file, by name; whatever else it holds is left out.

    Args:
        path: the file, of version 5 to 7.2.

    Returns:
        Arrays of their own shapes and types.

    Raises:
        UserError: it is damaged, or no such file, or would not fit into memory.
    """
    with reading(path, "not a readable .mat file"):
        content = path.read_bytes()
        order = {b"IM": "<", b"MI": ">"}.get(content[126:HEADER])
        if order is None:
            raise UserError("its header is not of version 5")
        arrays = {}
        for kind, data in _elements(content[HEADER:], order):
            matrix = _unpacked(path, data, order) if kind == COMPRESSED else data if kind == MATRIX else None
            found = _array(matrix, order) if matrix is not None else None
            if found is not None:
                arrays[found[0]] = found[1]
        return arrays


def _elements(content: bytes, order: str) -> Iterator[tuple[int, bytes]]:
    """Kind and data of the elements that follow one another; their data begin at multiples of eight bytes."""
    at = 0
    while at + 8 <= len(content):
        kind, size = struct.unpack(f"{order}2I", content[at : at + 8])
        if kind >> 16:  # up to four bytes of data stand within the tag
            yield kind & 0xFFFF, content[at + 4 : at + 4 + min(kind >> 16, 4)]
            at += 8
            continue
        if at + 8 + size > len(content):
            raise ValueError(f"it ends within an element of {size} bytes")
        yield kind, content[at + 8 : at + 8 + size]
        at += 8 + size + (0 if kind == COMPRESSED else -size % 8)


def _unpacked(path: Path, data: bytes, order: str) -> bytes | None:
    """The matrix in a compressed element, or None if it is none; no more is unpacked than its tag declares."""
    unpack = zlib.decompressobj()
    tag = unpack.decompress(data, 8)
    kind, size = struct.unpack(f"{order}2I", tag)
    check_fits(path, size)
    return unpack.decompress(unpack.unconsumed_tail, size) if kind == MATRIX and size else None


def _array(matrix: bytes, order: str) -> tuple[str, np.ndarray] | None:
    """Name and values of a matrix; None for cells, structures, sparse and complex ones."""
    parts = _elements(matrix, order)
    (_, flags), (_, shape), (_, name), (kind, data) = (next(parts) for _ in range(4))
    about = struct.unpack(f"{order}I", flags[:4])[0]
    is_complex = about & 0x0800
    if (about & 0xFF) not in CLASSES or is_complex:
        return None
    lengths = struct.unpack(f"{order}{len(shape) // 4}i", shape)
    stored = np.frombuffer(data, f"{order}{NUMBERS[kind]}")
    if min(lengths) < 0 or math.prod(lengths) != len(stored):
        raise ValueError(f"{len(stored)} numbers cannot have the shape {lengths}")
    values = stored.astype(CLASSES[about & 0xFF]).reshape(lengths, order="F")
    return name.decode("ascii", "replace"), values
