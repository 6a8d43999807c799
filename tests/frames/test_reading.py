import gzip
import sys
import zipfile

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pscd.errors import UserError
from pscd.frames import look, read_frame
from pscd.frames.layout import encodings


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def read(tmp_path, content, name="x.csv", **options):
    frame = read_frame(write(tmp_path / name, content), **options)
    return list(frame.columns), frame.to_numpy().tolist(), frame.attrs["pscd"]["notes"]


ROWS = [["1", "a b"], ["2", "é"], ["3", "x"]]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.csv", "n,t\n1,a b\n2,é\n3,x\n"),
        ("x.csv", "n,t\r\n1,a b\r\n2,é\r\n3,x"),
        ("x.csv", "n,t\r1,a b\r2,é\r3,x\r"),
        ("x.csv", "n;t\n1;a b\n2;é\n3;x\n"),
        ("x.csv", 'n, t\n1, "a b"\n\n2, é\n  \n3, x\n\n'),
        ("x.tsv", "n\tt\n1\ta b\n2\té\n3\tx\n"),
        ("x.txt", "n|t\n1|a b\n2|é\n3|x\n"),
        ("x.txt", 'n   t\n1   "a b"\n2   é\n3   x\n'),
        ("x.csv.gz", gzip.compress("n,t\n1,a b\n2,é\n3,x\n".encode(), mtime=0)),
        ("x.csv", "n,t\n1,a b\n2,é\n3,x\n".encode("utf-8-sig")),
        ("x.csv", "n,t\n1,a b\n2,é\n3,x\n".encode("utf-16")),
        ("x.csv", "n,t\n1,a b\n2,é\n3,x\n".encode("utf-16-le")),
        ("x.csv", "n,t,\n1,a b,\n2,é,\n3,x,\n"),
        ("x.csv", "n,t\n1,a b,\n2,é,\n3,x,\n"),
    ],
)
def test_text_files_of_every_make(tmp_path, name, content):
    names, rows, _ = read(tmp_path, content, name)
    assert names[:2] == ["n", "t"]
    assert [row[:2] for row in rows] == ROWS


@pytest.mark.parametrize(
    ("content", "names", "n_rows", "note"),
    [
        ("n,t\n1,é\n".encode("cp1252"), ["n", "t"], 1, "not UTF-8: read as cp1252"),
        ("1,2\n3,4\n", ["x0", "x1"], 2, "no header"),
        ("Oslo,1.5\nRome,2\nOslo,3\n", ["x0", "x1"], 3, "no header"),
        ("a,1960,1961\nx,1,2\ny,3,4\n", ["a", "1960", "1961"], 2, ""),
        ("a,a,b\n1,2,3\n", ["a", "a (2)", "b"], 1, "there twice: 'a'; the second is called 'a (2)'"),
        (",a\nx,1\ny,2\n", ["unnamed 1", "a"], 2, "1 without a name: called unnamed 1"),
        ("a,b\nr1,1,2\nr2,3,4\n", ["row", "a", "b"], 2, "the header is one name short"),
        ("a,b,c\n1,2,3\n4\n5,6,7\n", ["a", "b", "c"], 3, "1 row has fewer fields than there are columns (row 2)"),
        (
            "a,b\n1,2\n3,4,5\n6,7,8\n1,2\n0,9\n",
            ["a", "b"],
            5,
            "2 rows have more fields than there are columns (rows 2, 3)",
        ),
        (
            "a,b,c\n1,2,3\n4,5,6\n2 rows selected.\n",
            ["a", "b", "c"],
            2,
            "last line left out, it is no row: '2 rows sel",
        ),
        ("a,b,c\n1,2,3\n4,5,6\nTotal,7,9\n", ["a", "b", "c"], 3, "the last row looks like a summary ('Total')"),
        ("# made by hand\nTemperatures\na,b,c\n1,2,3\n4,5,6\n", ["a", "b", "c"], 2, "2 lines before the table skipped"),
        ('a,b\n1,"x\n2,y\n3,z\n', ["a", "b"], 3, "a quotation mark is never closed"),
        ("a\n1\n2\n", ["a"], 2, ""),
    ],
)
def test_what_is_odd_about_a_file_is_put_right_and_told(tmp_path, content, names, n_rows, note):
    found, rows, notes = read(tmp_path, content)
    assert found == names
    assert len(rows) == n_rows
    assert note in " | ".join(notes)
    assert bool(note) == bool(notes)
    schema = look(read_frame(tmp_path / "x.csv"))
    assert schema.notes[: len(notes)] == notes


@pytest.mark.parametrize(
    ("name", "content", "options", "message"),
    [
        ("x.csv", "", {}, "is empty"),
        ("x.csv", "\n \n", {}, "is empty"),
        ("x.csv", "a,b\n", {}, "no rows"),
        ("x.csv", b"\x89PNG\0\1\2", {}, "not a text file"),
        ("x.csv.gz", b"\x1f\x8bbroken", {}, "cannot be read"),
        ("x.csv", "a,b\n1,é\n".encode("cp1252"), {"encoding": "utf-8"}, "is not written in utf-8"),
        ("x.csv", "a\n", {"encoding": "klingon"}, "unknown encoding"),
        ("x.csv", "a\n1\n", {"delimiter": "::"}, "must be one character"),
        ("x.json", "{}", {}, "cannot read .json"),
        ("x.parquet", "garbage", {}, "not a readable .parquet"),
        ("x.parquet", "", {}, "is empty"),
        ("x.xlsx", "garbage", {}, "not a readable .xlsx"),
    ],
)
def test_every_fault_is_one_line_that_names_the_file(tmp_path, name, content, options, message):
    with pytest.raises(UserError, match=message) as caught:
        read_frame(write(tmp_path / name, content), **options)
    assert "\n" not in str(caught.value)


def test_rows_of_another_length(tmp_path):
    _, rows, notes = read(tmp_path, "a,b,c\n1,2,3\n4\n5,6,7,\n8,9,0,x\n1,2,3\n1,2,3\n")
    assert rows[:4] == [["1", "2", "3"], ["4", "", ""], ["5", "6", "7"], ["8", "9", "0"]]
    assert [note.partition(" fields")[0] for note in notes] == ["1 row has fewer", "1 row has more"]
    assert read_frame(tmp_path / "x.csv").attrs["pscd"]["ragged"] == {"fewer": [2], "more": [4]}


def test_a_folder_is_no_file(tmp_path):
    (tmp_path / "x.csv").mkdir()
    with pytest.raises(UserError, match="a folder, not a file"):
        read_frame(tmp_path / "x.csv")


def test_typed_files(tmp_path):
    numbers = [1.5, None, 3.0, 2.5, 4.25, 5.0, 6.5, 7.0]
    days = pd.date_range("2020-01-01", periods=8)
    frame = pd.DataFrame({"n": numbers, "t": ["x", "y"] * 4, "d": days})
    frame.to_parquet(tmp_path / "x.parquet")
    with pd.ExcelWriter(tmp_path / "x.xlsx") as book:
        pd.DataFrame({"a": ["readme"]}).to_excel(book, sheet_name="first", index=False)
        frame.astype({"n": object}).replace({"n": {3.0: "three"}}).to_excel(book, sheet_name="data", index=False)
    parquet, excel = read_frame(tmp_path / "x.parquet"), read_frame(tmp_path / "x.xlsx", sheet="data")
    assert [column.kind for column in look(parquet).columns] == ["number", "category", "date"]
    n, t, d = look(excel).columns
    assert (n.kind, n.missing, n.stray) == ("number", 1, 1)
    assert (t.kind, d.kind) == ("category", "date")
    assert list(read_frame(tmp_path / "x.xlsx").columns) == ["a"]
    with pytest.raises(UserError, match=r"not a readable \.xlsx"):
        read_frame(tmp_path / "x.xlsx", sheet="nowhere")


def test_without_openpyxl_a_workbook_says_what_to_install(tmp_path, monkeypatch):
    write(tmp_path / "a.xlsx", "PK")
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(UserError, match=r"a\.xlsx: reading xlsx needs openpyxl; .* pip install '\.\[excel\]'"):
        read_frame(tmp_path / "a.xlsx")


WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=8)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    st.integers(2, 4).flatmap(lambda d: st.lists(st.lists(WORDS, min_size=d, max_size=d), min_size=1, max_size=8)),
    st.sampled_from([",", ";", "\t", "|"]),
    st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]),
)
def test_what_pandas_writes_is_read_as_it_was(tmp_path_factory, rows, delimiter, encoding):
    frame = pd.DataFrame(rows, columns=[f"column {j}" for j in range(len(rows[0]))])
    path = tmp_path_factory.mktemp("csv") / "x.csv"
    frame.to_csv(path, index=False, sep=delimiter, encoding=encoding, quoting=1)
    found = read_frame(path, delimiter=delimiter, header=True)
    assert list(found.columns) == list(frame.columns)
    assert found.to_numpy().tolist() == frame.to_numpy().tolist()


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.integers(0, 10_000), st.sampled_from([(",", "."), (";", ","), ("\t", "."), (";", "."), ("|", ",")]))
def test_delimiter_and_decimal_sign_are_found_out(tmp_path_factory, seed, signs):
    """Any table of numbers, words and holes, however it is written."""
    delimiter, decimal = signs
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "size": rng.normal(scale=10.0 ** rng.integers(-2, 5), size=30).round(2),
            "count": rng.integers(0, 9, 30),
            "word": rng.choice(["red", "light blue", "a, b; c|d"], 30),
        }
    )
    frame.loc[rng.random(30) < 0.2, "size"] = np.nan
    path = tmp_path_factory.mktemp("csv") / "x.csv"
    frame.to_csv(path, index=False, sep=delimiter, decimal=decimal)
    found = read_frame(path)
    schema = look(found)
    assert found.attrs["pscd"]["delimiter"] == delimiter
    size = schema.columns[0]
    assert size.kind == ("integer" if (frame["size"].dropna() % 1 == 0).all() else "number")
    assert (size.lowest, size.highest) == (frame["size"].min(), frame["size"].max())


def test_a_workbook_that_numbers_its_rows_without_end_is_refused(tmp_path):
    """The reader would fill the gap with empty rows for hours."""
    pytest.importorskip("openpyxl")
    path = tmp_path / "x.xlsx"
    pd.DataFrame({"a": [1, 2]}).to_excel(path, index=False)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content.replace(b'<row r="3"', b'<row r="34359738368"'))
    with pytest.raises(UserError, match="a row is numbered 34359738368, and 3 are there"):
        read_frame(path)


def test_a_gzipped_bomb_is_refused_before_it_fills_the_memory(tmp_path, monkeypatch):
    from pscd import files

    (tmp_path / "x.csv.gz").write_bytes(gzip.compress(b"1,2\n" * 10**6, mtime=0))
    monkeypatch.setattr(files, "_memory", lambda: 10**7)
    with pytest.raises(UserError, match="more than there is memory"):
        read_frame(tmp_path / "x.csv.gz")


def test_a_file_without_a_record_is_told(tmp_path):
    (tmp_path / "x.csv").write_bytes(b"\x1f")
    with pytest.raises(UserError, match=r"x\.csv: "):
        read_frame(tmp_path / "x.csv")


def test_text_of_a_parquet_file_that_is_none_is_told(tmp_path):
    pytest.importorskip("pyarrow")
    path = tmp_path / "x.parquet"
    pd.DataFrame({"a": ["abcdefgh", "x"]}).to_parquet(path, compression=None)
    path.write_bytes(path.read_bytes().replace(b"abcdefgh", b"abc\xffefgh"))
    with pytest.raises(UserError, match=r"x\.parquet: not a readable \.parquet file .*UTF"):
        read_frame(path)


@pytest.mark.parametrize(
    ("raw", "first"),
    [
        (b"", "utf-8"),
        (b"a,b\n1,2\n", "utf-8"),
        (b"\xef\xbb\xbfa", "utf-8-sig"),
        (b"\xff\xfea\0", "utf-16"),
        (b"\xfe\xff\0a", "utf-16"),
        (b"a\0b\0c\0de", "utf-16-le"),  # more than a quarter of all bytes, every second one of them
        (b"a\0b\0cdef", "utf-8"),
        (b"\0a\0b\0cde", "utf-16-be"),
        (b"\0a\0bcdef", "utf-8"),
        (b"a" * 1000 + b"\0b" * 1000, "utf-8"),  # by its beginning
    ],
)
def test_encodings_by_the_first_bytes(raw, first):
    assert encodings(raw)[0] == first
