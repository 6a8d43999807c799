"""Large text files, read once into an array on disk."""

import gzip

import numpy as np
import pytest

from pscd.data import read_table, text_blocks
from pscd.data.chunks import ParquetChunks
from pscd.data.text_blocks import as_array_file
from pscd.errors import UserError
from tests.data.test_chunks import table, write


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    """Small blocks, and a cache folder of the test's own."""
    monkeypatch.setattr(text_blocks, "BLOCK_BYTES", 60)
    monkeypatch.setattr(text_blocks, "BLOCK_ROWS", 3)
    monkeypatch.setattr(text_blocks, "cache_folder", lambda: tmp_path / "cache")
    return tmp_path / "cache" / "tables"


def lines(n, separator=",", decimal="."):
    return [separator.join((str(i), f"{i / 7:.3f}".replace(".", decimal))) for i in range(n)]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", ["height,width", *lines(40)]),
        ("no-header.csv", lines(40)),
        ("a.tsv", ["height\twidth", *lines(40, "\t")]),
        ("german.csv", ["height;width", *lines(40, ";", ",")]),
        ("a.csv.gz", ["height,width", *lines(40)]),
        ("no-newline-at-its-end.csv", ["height,width", *lines(39), "39,5.571"]),
    ],
)
def test_blocks_give_what_the_whole_file_gives(tmp_path, name, text):
    path = tmp_path / name
    content = "\n".join(text).encode() + b"\n" * ("newline" not in name)
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    made, columns = as_array_file(path, None, show=False)
    whole = read_table(path)
    assert columns == whole.columns
    assert np.array_equal(np.load(made), whole.x.numpy())


def test_a_file_is_read_once_and_again_when_it_has_changed(tmp_path, home):
    path = tmp_path / "a.csv"
    path.write_text("a,b\n" + "\n".join(lines(30)))
    first, _ = as_array_file(path, None, show=False)
    stamp = first.stat().st_mtime_ns
    assert as_array_file(path, None, show=False)[0] == first
    assert first.stat().st_mtime_ns == stamp
    other, columns = as_array_file(path, ["b"], show=False)
    assert (np.load(other).shape, columns) == ((30, 1), ("b",))
    path.write_text("a,b\n" + "\n".join(lines(31)))
    assert np.load(as_array_file(path, None, show=False)[0]).shape == (31, 2)
    assert len(list(home.iterdir())) == 6  # three arrays and their columns, and nothing unfinished


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            ["a,b", *lines(30), "7,many", *lines(5)],
            r"a\.csv: column 'b' is not numeric: 'many' in row \d+; .*counted from row",
        ),
        (["a,b", *lines(30), "7,"], r"a\.csv: 1 row is missing"),
    ],
)
def test_what_is_no_number_is_told_and_nothing_is_left(tmp_path, home, text, message):
    path = tmp_path / "a.csv"
    path.write_text("\n".join(text))
    with pytest.raises(UserError, match=message) as found:
        as_array_file(path, None, show=False)
    assert "part.csv" not in str(found.value)
    assert not list(home.iterdir())


def test_a_file_that_is_no_text_is_told(tmp_path):
    for content, message in (
        (gzip.compress(b"a,b\n" + b"1,2\n" * 100)[:-9], "damaged"),
        ("a,b\n1,2".encode("utf-16"), "UTF-16"),
    ):
        (tmp_path / "a.csv").write_bytes(content)
        with pytest.raises(UserError, match=message):
            as_array_file(tmp_path / "a.csv", None, show=False)


def test_huge_row_groups_are_read_once_too(tmp_path):
    path = write(tmp_path / "a.parquet", table(10), rows=10)
    made, columns = as_array_file(path, None, ParquetChunks(path), show=False)
    assert columns == ("a", "b")
    assert np.array_equal(np.load(made), table(10).to_numpy())
