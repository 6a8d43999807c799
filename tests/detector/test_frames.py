import numpy as np
import pandas as pd
import polars as pl
import pytest

from pscd.detector.frames import empty_frame, empty_like, frame_like, framed, has_text, labels, native_frame, row_labels

X = np.arange(4.0).reshape(2, 2)


@pytest.mark.parametrize("table", [pd.DataFrame(X, columns=["a", 7]), pl.DataFrame(X, schema=["a", "b"])])
def test_frames_come_back_in_their_own_library(table):
    empty = empty_like(table)
    assert type(empty) is type(table)
    assert (len(empty), list(empty.columns)) == (0, list(table.columns))
    made = frame_like(X, empty)
    assert type(made) is type(table)
    np.testing.assert_array_equal(np.asarray(made), X)
    assert list(made.columns) == list(table.columns)
    labelled = framed({str(name): X[:, j] for j, name in enumerate(table.columns)}, table)
    assert type(labelled) is type(table)
    assert list(labelled.columns) == list(table.columns)


def test_arrays_are_no_frames():
    assert native_frame(X) is None
    assert native_frame([[1]]) is None
    assert empty_like(X) is None
    assert frame_like(X, None) is X
    assert empty_frame(None) is None
    assert list(empty_frame(["a"]).columns) == ["a"]


def test_words_in_arrays():
    assert not has_text(np.array(["a", "b"]))
    assert not has_text(np.array([["1", "2.5"]]))  # as scikit-learn takes them
    assert not has_text([[1, None], ["2", 3.5]])
    assert has_text([[1, None], ["2", "x"]])


def test_rows_go_by_index_or_column():
    frame = pd.DataFrame({"a": [1, 2], "id": ["x", "y"]}, index=[7, 9])
    assert row_labels(frame, 2) == [7, 9]
    assert row_labels(frame, 2, "id") == ["x", "y"]
    assert row_labels(X, 2) == row_labels(pl.from_pandas(frame), 2) == [0, 1]
    for table in (frame, X):
        with pytest.raises(ValueError, match="no column 'name' to name the rows"):
            row_labels(table, 2, "name")
    assert labels(pd.DataFrame(X, columns=["a", 7]), ["a", "7"]) == ["a", 7]
