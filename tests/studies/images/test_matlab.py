import struct
import zlib
from contextlib import suppress

import numpy as np
import pytest
from scipy.io import savemat

from pscd.errors import UserError
from studies.images.matlab import _elements, read_arrays

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


def element(kind, data, order="<"):
    return struct.pack(f"{order}2I", kind, len(data)) + data + b"\0" * (-len(data) % 8)


TWO = struct.pack("<2d", 1.0, -2.0)


def matrix(flags=6, lengths=(1, 2), name=b"a", kind=9, data=TWO):
    parts = [
        (6, struct.pack("<2I", flags, 0)),
        (5, struct.pack(f"<{len(lengths)}i", *lengths)),
        (1, name),
        (kind, data),
    ]
    return b"".join(element(*part) for part in parts)


def write(tmp_path, *elements):
    (tmp_path / "x.mat").write_bytes(b" " * 124 + b"\0\1IM" + b"".join(elements))
    return tmp_path / "x.mat"


@pytest.mark.parametrize("lengths", [(1, 3), (1, 1), (-1, -2), (2, -1)])
def test_numbers_that_do_not_have_the_shape_are_told(tmp_path, lengths):
    with pytest.raises(UserError, match=rf"2 numbers cannot have the shape \({lengths[0]}, {lengths[1]}\)"):
        read_arrays(write(tmp_path, element(14, matrix(lengths=lengths))))


def test_the_numbers_of_an_array_run_down_its_columns(tmp_path):
    data = struct.pack("<6d", *range(6))
    found = read_arrays(write(tmp_path, element(14, matrix(lengths=(2, 3), data=data))))
    assert found["a"].tolist() == [[0, 2, 4], [1, 3, 5]]


def test_every_type_of_number(tmp_path):
    for stored, code in {1: "b", 2: "B", 3: "h", 4: "H", 5: "i", 6: "I", 7: "f", 9: "d", 12: "q", 13: "Q"}.items():
        found = read_arrays(write(tmp_path, element(14, matrix(kind=stored, data=struct.pack(f"<2{code}", 1, 2)))))
        assert (found["a"].tolist(), found["a"].dtype) == ([[1, 2]], np.float64)
    for meant, kind in {
        6: "f8",
        7: "f4",
        8: "i1",
        9: "u1",
        10: "i2",
        11: "u2",
        12: "i4",
        13: "u4",
        14: "i8",
        15: "u8",
    }.items():
        data = struct.pack("<2d", 1, 2)
        assert read_arrays(write(tmp_path, element(14, matrix(flags=meant, data=data))))["a"].dtype == np.dtype(kind)


def test_other_things_are_left_out(tmp_path):
    for flags in (1, 5, 16, 6 | 0x0800):  # cells, a sparse one, a function, a complex one
        assert read_arrays(write(tmp_path, element(14, matrix(flags=flags)))) == {}
    assert read_arrays(write(tmp_path, element(14, matrix(flags=6 | 0x0400)))).keys() == {"a"}  # global
    both = element(14, matrix(name=b"first")) + element(9, b"12345678") + element(14, matrix(name=b"second"))
    assert read_arrays(write(tmp_path, both)).keys() == {"first", "second"}
    packed = zlib.compress(element(9, b"12345678"))
    assert read_arrays(write(tmp_path, struct.pack("<2I", 15, len(packed)) + packed)) == {}


def test_compressed_elements_follow_one_another_without_a_gap(tmp_path):
    packed = [zlib.compress(element(14, matrix(name=name))) for name in (b"a", b"bcd", b"e")]
    found = read_arrays(write(tmp_path, *(struct.pack("<2I", 15, len(part)) + part for part in packed)))
    assert found.keys() == {"a", "bcd", "e"}


def test_elements_by_hand():
    small = struct.pack("<I", 2 << 16 | 1) + b"ab\0\0"
    content = small + element(2, b"abc") + element(9, b"12345678")
    assert list(_elements(content, "<")) == [(1, b"ab"), (2, b"abc"), (9, b"12345678")]
    assert list(_elements(struct.pack("<I", 9 << 16 | 1) + b"abcd", "<")) == [(1, b"abcd")]
    assert list(_elements(content + b"1234567", "<"))[-1] == (9, b"12345678")  # too short for a tag
    with pytest.raises(ValueError, match="it ends within an element of 8 bytes"):
        list(_elements(content[:-1], "<"))
