"""Tables: whatever pandas can write is read back to the last bit, or refused in one line."""

import csv
import math

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from pscd.data import as_rows, rows_of
from pscd.errors import UserError
from pscd.tables import open_table

numbers = st.one_of(
    st.floats(-1e29, 1e29), st.integers(-(2**53), 2**53).map(float), st.sampled_from([0.1, -0.0, 5e-324, 1e-300])
)
plain_names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_ .-]{0,6}[A-Za-z0-9_]", fullmatch=True)


@st.composite
def frames(draw, names=plain_names):
    columns = draw(st.lists(names, min_size=1, max_size=4, unique_by=lambda name: name.strip().lower()))
    n = draw(st.integers(1, 5))
    kinds = st.sampled_from(["float", "integer", "truth"])
    elements = {"float": numbers, "integer": st.integers(-(2**53), 2**53), "truth": st.booleans()}
    data = {c: draw(st.lists(elements[draw(kinds)], min_size=n, max_size=n)) for c in columns}
    return pd.DataFrame(data)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("tables")


@given(
    frame=frames(),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]),
    ending=st.sampled_from(["\n", "\r\n"]),
    encoding=st.sampled_from(["utf-8", "utf-8-sig"]),
)
def test_a_csv_that_pandas_wrote_is_read_to_the_last_bit(folder, frame, quoting, ending, encoding):
    path = folder / "x.csv"
    frame.to_csv(path, index=False, quoting=quoting, lineterminator=ending, encoding=encoding)
    table = open_table(path)
    assert table.names == tuple(name.strip() for name in frame.columns)
    expected = torch.from_numpy(frame.to_numpy(dtype=np.float64, copy=True))
    assert torch.equal(rows_of(table), expected)
    assert torch.equal(rows_of(table, list(reversed(table.names))), expected.flip(1))


@given(frame=frames())
def test_parquet_npy_and_npz_are_read_to_the_last_bit(folder, frame):
    expected = torch.from_numpy(frame.to_numpy(dtype=np.float64, copy=True))
    frame.to_parquet(folder / "x.parquet")
    np.save(folder / "x.npy", expected.numpy())
    np.savez(folder / "x.npz", X=expected.numpy())
    for suffix in ("parquet", "npy", "npz"):
        assert torch.equal(rows_of(open_table(folder / f"x.{suffix}")), expected)


names_of_any_kind = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=0, max_size=5)
cells = st.one_of(
    numbers, st.floats(allow_nan=True), st.none(), st.text(st.characters(exclude_categories=("Cs",)), max_size=4)
)


@st.composite
def any_frame(draw):
    columns = draw(st.lists(names_of_any_kind, min_size=1, max_size=3))
    n = draw(st.integers(0, 4))
    rows = [[draw(cells) for _ in columns] for _ in range(n)]
    return pd.DataFrame(rows, columns=columns)


@given(frame=any_frame(), index=st.booleans(), separator=st.sampled_from([",", ";", "\t"]))
@example(pd.DataFrame([[1.0, 2.0]], columns=["1", "2"]), False, ",")  # a header of numbers is data
@example(pd.DataFrame([[math.nan]], columns=["a"]), False, ",")
@example(pd.DataFrame([[1.0, 2.0], [3.0, math.nan]], columns=["a", "b\nc"]), False, ",")
def test_whatever_else_is_finite_numbers_or_one_clear_line(folder, frame, index, separator):
    path = folder / "any.csv"
    try:
        frame.to_csv(path, index=index, sep=separator)
    except (ValueError, UnicodeError, csv.Error):
        return  # pandas itself cannot write it
    try:
        table = open_table(path)
        x = rows_of(table)
    except UserError as error:
        assert str(error).startswith(str(path))
        assert len(str(error).splitlines()) == 1
    else:
        assert not x.isinf().any()
        assert x.shape[1] <= len(table.names)
        assert len(set(table.names)) == len(table.names)


@example([[1.0, math.inf], [2.0, 3.0]])
@given(st.recursive(st.one_of(st.floats(), st.integers(), st.text(max_size=3), st.none()), st.lists, max_leaves=12))
def test_rows_given_in_memory_are_finite_rows_or_one_clear_line(x):
    try:
        found = as_rows(x)
    except UserError as error:
        assert len(str(error).splitlines()) == 1
    else:
        assert found.ndim >= 2
        assert found.isfinite().all()
        assert np.array_equal(found.numpy(), np.array(x, dtype=np.float64))
