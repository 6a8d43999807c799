"""Tables of texts: what pandas writes is read cell for cell, and a copy differs in the changed cells alone."""

import csv
import string

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pscd.tables import decode, encode, look, write_like
from tests.tables.helpers import read_frame

# Blanks at the start of a field are layout, and a field of its own that starts with # may be a comment.
texts = st.text(string.ascii_letters + string.digits + "äß€ ,;\t|\"'\n.-", min_size=1, max_size=6).map(
    lambda text: "x" + text.replace("\r", "")
)
FORMS = {
    "delimiter": st.sampled_from([",", ";", "\t", "|"]),
    "quoting": st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    "ending": st.sampled_from(["\n", "\r\n"]),
    "encoding": st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "cp1252"]),
}


@st.composite
def tables(draw):
    width, n = draw(st.integers(2, 4)), draw(st.integers(1, 5))
    return pd.DataFrame({f"column {j}": [draw(texts) for _ in range(n)] for j in range(width)})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("frames")


@given(frame=tables(), **FORMS)
def test_texts_that_pandas_wrote_are_read_cell_for_cell(folder, frame, delimiter, quoting, ending, encoding):
    path = folder / "x.csv"
    frame.to_csv(path, index=False, sep=delimiter, quoting=quoting, lineterminator=ending, encoding=encoding)
    found = read_frame(path, delimiter=delimiter, header=True, encoding=encoding)
    assert list(found.columns) == list(frame.columns)
    assert found.to_numpy().tolist() == frame.to_numpy().tolist()


@given(frame=tables(), data=st.data(), **FORMS)
def test_a_copy_differs_in_the_changed_cells_alone(folder, frame, data, delimiter, quoting, ending, encoding):
    old, new = folder / "old.csv", folder / "new.csv"
    frame.to_csv(old, index=False, sep=delimiter, quoting=quoting, lineterminator=ending, encoding=encoding)
    told = {"delimiter": delimiter, "header": True, "encoding": encoding}
    write_like(old, {}, new, **told)
    assert new.read_bytes() == old.read_bytes()
    places = st.tuples(st.integers(0, len(frame) - 1), st.sampled_from(list(frame.columns)))
    changes = data.draw(st.dictionaries(places, texts, max_size=4))
    write_like(old, changes, new, **told)
    for (row, name), text in changes.items():
        frame.loc[row, name] = text
    assert read_frame(new, **told).to_numpy().tolist() == frame.to_numpy().tolist()


@st.composite
def typed_tables(draw):
    """A column of every kind, each with some cells missing."""
    n = draw(st.integers(30, 40))
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), unit="D")
    frame = pd.DataFrame(
        {
            "number": rng.normal(size=n).round(3),
            "whole": rng.integers(0, 500, n).astype(float),
            "kind": rng.choice(["red", "green", "blue"], n),
            "flag": rng.choice(["yes", "no"], n),
            "day": days.strftime("%Y-%m-%d"),
        }
    ).astype(object)
    for name in frame.columns:
        frame.loc[rng.random(n) < draw(st.sampled_from([0.0, 0.2])), name] = None
    return frame


@given(frame=typed_tables())
def test_what_a_model_sees_goes_back_to_the_same_table(frame):
    """Encoded, decoded and encoded again: the same matrix, with NaN exactly where a cell was missing."""
    schema = look(frame)
    kinds = {column.name: column.kind for column in schema.columns}
    assert kinds["kind"] == "category"
    assert kinds["day"] == "date"
    seen = encode(frame, schema)
    learnt = [column.name in frame.columns and column.is_learnt for column in schema.columns]
    assert np.array_equal(seen.missing[:, learnt], frame.isna().to_numpy()[:, learnt])
    assert not seen.invalid.any()
    again = encode(decode(seen.x, schema), schema)
    assert np.array_equal(again.x, seen.x, equal_nan=True)
    assert np.array_equal(encode(frame.iloc[::-1], schema).x, seen.x[::-1], equal_nan=True)
