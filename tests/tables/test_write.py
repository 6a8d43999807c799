import codecs
import gzip

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pscd.errors import UserError
from pscd.tables import write_like
from pscd.tables.text import records
from pscd.tables.write import _changed, field_spans
from tests.tables.helpers import read_frame

DIRTY = (
    "# a title\r\n"
    'name;"size"; note\r\n'
    '"x";1,50;"a ""quoted"" word; and more"\r\n'
    "\r\n"
    "y ; 2,25 ;two\r\n"
    'z;3;"over\ntwo lines"\r\n'
    "w;4\r\n"
    "(4 rows)"
)


@pytest.fixture
def dirty(tmp_path):
    path = tmp_path / "dirty.csv"
    path.write_bytes(DIRTY.encode("cp1252"))
    return path


def test_nothing_changed_is_nothing_changed(dirty, tmp_path):
    write_like(dirty, {}, tmp_path / "copy.csv")
    assert (tmp_path / "copy.csv").read_bytes() == dirty.read_bytes()


@pytest.mark.parametrize(
    ("change", "old", "new"),
    [
        ({(0, "name"): "q"}, '"x"', '"q"'),
        ({(0, "size"): "9,99"}, "1,50", "9,99"),
        ({(0, "note"): 'say "hi"'}, '"a ""quoted"" word; and more"', '"say ""hi"""'),
        ({(1, "size"): "7"}, " 2,25 ", " 7 "),
        ({(1, "note"): "a;b"}, "two\r\nz", '"a;b"\r\nz'),
        ({(2, "note"): ""}, '"over\ntwo lines"', '""'),
        ({(3, "note"): "new"}, "w;4", "w;4;new"),
        ({(1, "name"): "Y", (1, "note"): "2"}, "y ; 2,25 ;two", "Y ; 2,25 ;2"),
    ],
)
def test_only_the_changed_cells_change(dirty, tmp_path, change, old, new):
    assert DIRTY.count(old) == 1
    write_like(dirty, change, tmp_path / "copy.csv")
    assert (tmp_path / "copy.csv").read_bytes().decode("cp1252") == DIRTY.replace(old, new)
    before, after = read_frame(dirty), read_frame(tmp_path / "copy.csv")
    for (row, column), text in change.items():
        assert after.loc[row, column].strip() == text
        before.loc[row, column] = after.loc[row, column]
    pd.testing.assert_frame_equal(before, after)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be", "cp1252"])
def test_encodings_stay(tmp_path, encoding):
    content = ("\ufeff" if encoding == "utf-16-be" else "") + "a,b\n1,é\n2,ü\n"
    (tmp_path / "x.csv").write_bytes(content.encode(encoding))
    write_like(tmp_path / "x.csv", {(1, "a"): "ö"}, tmp_path / "y.csv")
    assert (tmp_path / "y.csv").read_bytes() == content.replace("2,", "ö,").encode(encoding)


def test_gzip_goes_by_the_name_of_the_copy(dirty, tmp_path):
    write_like(dirty, {}, tmp_path / "copy.csv.gz")
    assert gzip.decompress((tmp_path / "copy.csv.gz").read_bytes()) == dirty.read_bytes()


def test_a_file_without_a_header(tmp_path):
    (tmp_path / "x.csv").write_text("1,2\n3,4\n")
    write_like(tmp_path / "x.csv", {(1, "x0"): "5"}, tmp_path / "y.csv")
    assert (tmp_path / "y.csv").read_text() == "1,2\n5,4\n"


def test_what_cannot_be_written(dirty, tmp_path):
    for path, change, message in [
        (dirty, {(0, "colour"): "x"}, "no column 'colour'; it has 'name', 'size', 'note'"),
        (dirty, {(17, "name"): "x"}, "no row 17"),
        (tmp_path / "x.parquet", {}, "only text files"),
    ]:
        with pytest.raises(UserError, match=message):
            write_like(path, change, tmp_path / "copy.csv")
    (tmp_path / "latin.csv").write_bytes("a,b\n1,é\n".encode("cp1252"))
    with pytest.raises(UserError, match="cp1252, has no '→'"):
        write_like(tmp_path / "latin.csv", {(0, "b"): "→"}, tmp_path / "copy.csv")
    with pytest.raises(UserError, match="cannot write"):
        write_like(dirty, {}, tmp_path / "nowhere" / "copy.csv")
    assert not (tmp_path / "copy.csv").exists()


FIELDS = st.lists(st.text('ab ,;"', max_size=6), min_size=1, max_size=5)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(FIELDS)
def test_spans_are_the_fields_that_the_reader_sees(fields):
    """Whatever the quotation marks: the text of each span, read alone, is the field."""
    record = ",".join(fields)
    if not any(f for f, _, _ in records(record, ",")):
        return
    ((found, _, _),) = records(record, ",")
    spans = field_spans(record, ",")
    assert len(spans) == len(found)
    assert ",".join(record[begin:end] for begin, end in spans) == record
    for (begin, end), field in zip(spans, found, strict=True):
        ((alone, _, _),) = records(f"x,{record[begin:end]}", ",")
        assert alone[1] == field


@pytest.mark.parametrize(
    ("raw", "delimiter", "quoted", "new", "expected"),
    [
        ("a,b\n", ",", True, {0: "x"}, "x,b\n"),
        ("a,b\r\n", ",", True, {1: "x"}, "a,x\r\n"),
        ("a,b", ",", True, {3: "x"}, "a,b,,x"),
        (" a , b\n", ",", True, {0: "x", 1: "y"}, " x , y\n"),
        ("a,  ,c\n", ",", True, {1: "x"}, "a,  x,c\n"),  # blanks alone lead, and do not trail
        ('a, "b" ,c\n', ",", True, {1: "x"}, 'a, "x" ,c\n'),
        ("a,b\n", ",", True, {0: "x,y"}, '"x,y",b\n'),
        ("a,b\n", ",", True, {0: 'x"y'}, '"x""y",b\n'),
        ("a,b\n", ",", True, {0: "x\ny"}, '"x\ny",b\n'),
        ("a,b\n", ",", True, {0: "x\ry"}, '"x\ry",b\n'),
        ("a,b\n", ",", False, {0: 'x"y'}, 'x"y,b\n'),
        ('"a,b\n', ",", False, {0: "x"}, "x,b\n"),
        ("a b c\n", " ", True, {1: "x"}, "a x c\n"),
    ],
)
def test_one_record_with_new_fields(raw, delimiter, quoted, new, expected):
    assert _changed(raw, delimiter, quoted, new) == expected


@pytest.mark.parametrize(
    ("record", "delimiter", "quoted", "fields"),
    [
        ('a,"b,c",d', ",", True, ["a", '"b,c"', "d"]),
        ('a,"b,c",d', ",", False, ["a", '"b', 'c"', "d"]),
        ('a,  "b,""c",d', ",", True, ["a", '  "b,""c"', "d"]),
        ('a,"b,c', ",", True, ["a", '"b,c']),
        ('a,b"c,d"', ",", True, ["a", 'b"c', 'd"']),
        ("a  b", " ", True, ["a", "", "b"]),
        ("", ",", True, [""]),
        (",", ",", True, ["", ""]),
        ('"a""","b"', ",", True, ['"a"""', '"b"']),
    ],
)
def test_spans_by_hand(record, delimiter, quoted, fields):
    assert [record[a:b] for a, b in field_spans(record, delimiter, quoted=quoted)] == fields


def test_the_byte_order_and_its_mark_stay_and_copies_are_the_same_every_time(tmp_path):
    for order in ("le", "be"):
        mark = codecs.BOM_UTF16_LE if order == "le" else codecs.BOM_UTF16_BE
        (tmp_path / "x.csv").write_bytes(mark + "a,b\n1,2\n".encode(f"utf-16-{order}"))
        for name in ("utf-16", "UTF_16", "utf16"):
            write_like(tmp_path / "x.csv", {(0, "b"): "ö"}, tmp_path / "y.csv", encoding=name)
            assert (tmp_path / "y.csv").read_bytes() == mark + "a,b\n1,ö\n".encode(f"utf-16-{order}")
    for name in ("y.csv.gz", "y.csv.GZ"):
        write_like(tmp_path / "x.csv", {}, tmp_path / name)
        assert (tmp_path / name).read_bytes()[4:8] == b"\0\0\0\0"  # no time


def test_what_was_told_of_a_file_is_told_again(tmp_path):
    (tmp_path / "x.csv").write_text("1;2\n3;4\n5;6\n")
    write_like(tmp_path / "x.csv", {(1, "2"): "9"}, tmp_path / "y.csv", header=True)
    assert (tmp_path / "y.csv").read_text() == "1;2\n3;4\n5;9\n"
    write_like(tmp_path / "x.csv", {(1, "1;2"): "9"}, tmp_path / "y.csv", delimiter=",")
    assert (tmp_path / "y.csv").read_text() == "1;2\n3;4\n9\n"
    rows = {(2, "x0"): "c", (0, "x0"): "a"}
    write_like(tmp_path / "x.csv", rows, tmp_path / "y.csv", header=False)
    assert (tmp_path / "y.csv").read_text() == "a;2\n3;4\nc;6\n"
    with pytest.raises(UserError, match="has no row 3; it has 3"):
        write_like(tmp_path / "x.csv", {(0, "x0"): "a", (3, "x0"): "b"}, tmp_path / "y.csv", header=False)
