import struct
import zlib
from contextlib import suppress

import numpy as np
import pytest
from scipy.io import savemat

from pscd.data.matlab import read_arrays
from pscd.errors import UserError

ARRAYS = {
    "X": np.arange(48, dtype=np.uint8).reshape(2, 4, 3, 2),
    "y": np.array([[1.0], [10.0]]),
    "small": np.int16([[-3]]),
    "longer_name": np.float32([[0.5, -1e30]]),
    "wide": np.array([[2**60]]),
}


@pytest.mark.parametrize("compressed", [False, True])
def test_what_scipy_writes(tmp_path, compressed):
    others = {"text": "abc", "cells": np.array([[1, "a"]], object), "complex": np.array([[1j]])}
    savemat(tmp_path / "x.mat", {**ARRAYS, **others}, do_compression=compressed)
    found = read_arrays(tmp_path / "x.mat")
    assert found.keys() == ARRAYS.keys()
    for name, value in ARRAYS.items():
        np.testing.assert_array_equal(found[name], value)
        assert found[name].dtype == value.dtype


def test_the_other_byte_order(tmp_path):
    def element(kind, data):
        return struct.pack(">2I", kind, len(data)) + data + b"\0" * (-len(data) % 8)

    matrix = element(6, struct.pack(">2I", 6, 0)) + element(5, struct.pack(">2i", 1, 2)) + element(1, b"a")
    matrix += element(3, struct.pack(">2h", 1, -2))  # stored as short integers, meant as float64
    (tmp_path / "x.mat").write_bytes(b" " * 124 + b"\1\0MI" + element(14, matrix))
    np.testing.assert_array_equal(read_arrays(tmp_path / "x.mat")["a"], [[1.0, -2.0]])


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path):
    bomb = zlib.compress(struct.pack("<2I", 14, 2**32 - 8) + b"\0" * 10**6)
    (tmp_path / "x.mat").write_bytes(b" " * 124 + b"\0\1IM" + struct.pack("<2I", 15, len(bomb)) + bomb)
    with pytest.raises(UserError, match=r"x\.mat: (unpacks to|not a readable)"):
        read_arrays(tmp_path / "x.mat")


@pytest.mark.parametrize(
    ("at", "value"),
    # Wrong sizes and kinds of elements, some of which ended the process when scipy read the file.
    [
        (at, value)
        for at in (128, 132, 136, 140, 152, 156, 160, 168, 176, 184, 192)
        for value in (0, 9, 2**31, 2**32 - 1)
    ],
)
def test_wrong_numbers_are_one_line_or_a_value(tmp_path, at, value):
    savemat(tmp_path / "x.mat", ARRAYS)
    content = bytearray((tmp_path / "x.mat").read_bytes())
    content[at : at + 4] = struct.pack("<I", value)
    (tmp_path / "x.mat").write_bytes(content)
    with suppress(UserError):
        read_arrays(tmp_path / "x.mat")


def test_another_kind_of_file_is_told(tmp_path):
    (tmp_path / "x.mat").write_bytes(b"x" * 200)
    with pytest.raises(UserError, match=r"not a readable \.mat file \(its header is not of version 5\)"):
        read_arrays(tmp_path / "x.mat")
