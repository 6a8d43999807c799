import csv
import gzip
import io
import sys
import zipfile

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pscd.errors import UserError
from pscd.tables import ReadOptions, look, open_table
from pscd.tables.layout import column_names, find_footer, infer_layout, is_summary
from pscd.tables.text import encodings, records
from tests.tables.helpers import read_frame


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def read(tmp_path, content, name="x.csv", **options):
    table = open_table(write(tmp_path / name, content), ReadOptions(**options))
    frame = table.frame()
    return list(frame.columns), frame.to_numpy().tolist(), table.notes


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
    schema = look(open_table(tmp_path / "x.csv"))
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
    assert (n.kind, n.missing, n.invalid) == ("number", 1, 1)
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
    table = open_table(path)
    schema = look(table)
    assert table.options.delimiter == delimiter
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
    with pytest.raises(UserError, match="more than the memory"):
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


def find_layout(text, encoding="utf-8", **options):
    """The layout of a text, with its quotation marks taken as text if one is never closed."""
    quoted = not (text.count('"') % 2 and _never_closed(text))
    split = lambda mark: [record for record, _, _ in records(text, mark, quoted=quoted)][:200]  # noqa: E731
    return infer_layout(split, encoding, quoted=quoted, **options)


def _never_closed(text):
    try:
        list(csv.reader(io.StringIO(text), strict=True))
    except csv.Error:
        return True
    return False


def layout(text, **options):
    return find_layout(text, **options)


@pytest.mark.parametrize(
    ("text", "delimiter"),
    [
        ("a,b\n1,2\n", ","),
        ("a;b\n1;2\n", ";"),
        ("a b\n1 2\n", " "),
        ("a, b\n1, 2\n", ","),  # a blank is the last resort
        ("title\na;b\n1;2\n3;4\n", ";"),
        ("x\ny\na;b\n1;2\n", ";"),  # half of the records are split
        ("x\ny\nz\na;b\n1;2\n", ","),
        ("a;b;c\n" + "1;2;3\n" * 7 + "1;2\n" * 2, ";"),  # eight of ten are as wide as most
        ("a;b;c\n" + "1;2;3\n" * 6 + "1;2\n" * 3, ","),
        ("a;b\n1,5;2,5\n3,5;4,5\n", ";"),  # both are as steady, but a decimal comma is none
        ("a|b\n1|2\n", "|"),
        ("a\n1\n", ","),
    ],
)
def test_the_delimiter_gives_most_records_one_width(text, delimiter):
    assert layout(text)[0].delimiter == delimiter


@pytest.mark.parametrize(
    ("text", "skip", "header", "width"),
    [
        ("a,b\n1,2\n", 0, True, 2),
        ("a,b", 0, True, 2),
        ("# by me\na,b\n1,2\n", 1, True, 2),
        ("# by me\n# again, and more\na,b\n1,2\n", 2, True, 2),
        ("title\n\na,b\n1,2\n", 1, True, 2),
        ("#a\n", 0, True, 1),  # the last record is the table
        ("1,2\n3,4\n", 0, False, 2),
        ("1,\n3,4\n", 0, False, 2),
        (",\n3,4\n", 0, True, 2),
        ("a,1\nb,2\nc,3\n", 0, True, 2),
        ("a,1\nb,2\na,3\n", 0, False, 2),
        ("a,b\nb,a\na,b\n", 0, True, 2),  # texts alone may come again
        (",1\n,2\n", 0, False, 2),
        ('a,1\nb,2\n"a ",3\n', 0, False, 2),
        ("a,b\nr1,1,2\nr2,3,4\n", 0, True, 3),  # the names of the rows have none
        ("a,b\n1,2,\n3,4,\n", 0, True, 2),  # each line ends with a delimiter
        ("a\n1,2,3\n4,5,6\n", 1, False, 3),
        ("a,b,c,d\n1,2\n3,4\n", 0, True, 4),
    ],
)
def test_where_the_table_begins_and_how_wide_it_is(text, skip, header, width):
    found, notes = layout(text)
    assert (found.skip, found.header, found.width) == (skip, header, width)
    assert ("no header: columns are called x0, x1, ...; state header=True if there is one" in notes) is not header
    assert (f"{skip} {'line' if skip == 1 else 'lines'} before the table skipped" in notes) is (skip > 0)
    for told in (True, False):
        found, notes = layout(text, header=told)
        assert found.header is told
        assert not any("no header" in note for note in notes)


def test_delimiters_have_names():
    for name, sign in [("tab", "\t"), ("\\t", "\t"), ("comma", ","), ("semicolon", ";"), ("space", " "), ("bar", "|"),
                       ("pipe", "|"), ("x", "x")]:  # fmt: skip
        assert layout(f"a{sign}b\n1{sign}2\n", delimiter=name)[0].delimiter == sign
    for bad in ("", "ab"):
        with pytest.raises(UserError, match=f"delimiter must be one character, or one of comma, .*; got '{bad}'"):
            layout("a,b\n", delimiter=bad)


def test_quotation_marks_that_are_never_closed_are_text():
    found, notes = layout('a,b\n1,"2\n3,4\n')
    assert not found.quoted
    assert notes == ("a quotation mark is never closed: all are taken as text",)
    assert layout('a,b\n1,"2"\n3,4\n')[0].quoted
    assert layout('a,b\n1,5" wide\n3,4\n')[0].quoted  # an odd one that opens nothing


@pytest.mark.parametrize(
    ("rows", "width", "n"),
    [
        ([["1", "2", "3"], ["end"]], 3, 1),
        ([["1", "2", "3"], ["end", ""]], 3, 1),
        ([["1", "2", "3"], ["end", "x"]], 3, 0),
        ([["1", "2", "3"], ["4", "5", "6"], ["one"], ["two"]], 3, 2),
        ([["1", "2", "3"], ["4", "5"], ["one"], ["two"]], 3, 2),
        ([["1", "2", "3"], ["end", "", ""]], 3, 0),
        ([["1", "2"], ["end"]], 2, 0),
        ([["end"]], 3, 0),
        ([["1"], ["a"], ["b"], ["c"], ["d"]], 3, 3),
        ([["a"], ["b"]], 3, 1),
        ([], 3, 0),
    ],
)
def test_records_at_the_end_that_are_no_rows(rows, width, n):
    assert find_footer(rows, width) == n


@pytest.mark.parametrize(
    ("row", "word"),
    [(["x", "Total"], "Total"), (["Sum:", "1"], "Sum:"), (["n", "1"], None), (["n.", "1"], None), (["sums"], None),
     (["Grand total", "Mean"], "Grand total"), ([" average "], " average "), ([], None)],
)  # fmt: skip
def test_rows_that_sum_up(row, word):
    assert is_summary(row) == word


@pytest.mark.parametrize(
    ("first", "width", "names", "notes"),
    [
        (["a", " b "], 2, ["a", "b"], []),
        (["a", "b"], 3, ["row", "a", "b"], ["the header is one name short: the first column is called 'row'"]),
        (["a"], 3, ["a", "unnamed 2", "unnamed 3"], ["2 without a name: called unnamed 2, ..."]),
        (["a", ""], 2, ["a", "unnamed 2"], ["1 without a name: called unnamed 2"]),
        (["a", "a", "a"], 3, ["a", "a (2)", "a (3)"], ["there twice: 'a'; the second is called 'a (2)'"]),
        (["a", "a (2)", "a"], 3, ["a", "a (2)", "a (3)"], ["there twice: 'a'; the second is called 'a (2)'"]),
        (["a", "b", "c"], 2, ["a", "b"], []),
    ],
)
def test_names_of_columns(first, width, names, notes):
    assert column_names(first, width, header=True) == (names, notes)
    assert column_names(first, width, header=False) == ([f"x{j}" for j in range(width)], [])


def test_records_tell_their_lines():
    text = 'a,b\n\n1,"x\ny"\n  \n,\n2,3'
    assert list(records(text, ",")) == [(["a", "b"], 0, 1), (["1", "x\ny"], 2, 4), (["", ""], 5, 6), (["2", "3"], 6, 7)]
    assert [fields for fields, _, _ in records('1,"x\n', ",", quoted=False)] == [["1", '"x']]
    limit = csv.field_size_limit()
    assert len(next(records("x" * (limit + 1), ","))[0][0]) == limit + 1
    assert csv.field_size_limit() == limit


def test_rows_of_another_length_are_told(tmp_path):
    body = "".join("1,2,3\n" for _ in range(9))
    *_, notes = read(tmp_path, "a,b,c\n" + body + "1,2\n" + body)
    assert notes == ("1 row has fewer fields than there are columns (row 10): missing fields are empty",)
    *_, notes = read(tmp_path, "a,b,c\n" + body + "1,2,3,4\n" * 4 + body)
    assert notes == ("4 rows have more fields than there are columns (rows 10, 11, 12, ...): extra fields are ignored",)
    *_, notes = read(tmp_path, "a,b,c\n" + body + "1,2,3,4\n" * 3 + body)
    assert "(rows 10, 11, 12)" in notes[0]


def test_the_end_of_a_file(tmp_path):
    body = "".join("1,2,3\n" for _ in range(9))
    _, rows, notes = read(tmp_path, "a,b,c\n" + body + "the end\n")
    assert (len(rows), notes) == (9, ("last line left out, it is no row: 'the end'",))
    _, rows, notes = read(tmp_path, "a,b,c\nx,2,3\ny,2,3\nTotal,4,6\n")
    assert (len(rows), notes) == (3, ("the last row looks like a summary ('Total'): remove it if it is one",))
    assert read(tmp_path, "a,b,c\nx,2,3\nTotal,4,6\n")[2] == ()  # two rows are no table to sum up
    with pytest.raises(UserError, match="there are no rows in it"):
        read(tmp_path, "a,b,c\n")


def test_typed_files_without_rows_are_told(tmp_path):
    empty = pd.DataFrame({"a": [], "b": []})
    empty.to_parquet(tmp_path / "x.parquet")
    empty.to_excel(tmp_path / "x.xlsx", index=False)
    for name in ("x.parquet", "x.xlsx"):
        with pytest.raises(UserError, match=f"{name}: there are no rows in it"):
            read_frame(tmp_path / name)


def test_a_file_that_holds_fewer_rows_than_it_declares_is_refused(tmp_path, monkeypatch):
    """The metadata of a damaged Parquet file may promise rows that reading does not find."""
    pd.DataFrame({"a": range(30)}).to_parquet(tmp_path / "x.parquet")
    table = open_table(tmp_path / "x.parquet")
    monkeypatch.setattr(type(table._source), "blocks", lambda *args, **kwargs: iter(()))
    with pytest.raises(UserError, match="fewer rows than it declares"):
        table.frame()
    with pytest.raises(UserError, match="fewer rows than it declares"):
        table.excerpt(n=20)
