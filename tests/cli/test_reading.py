import numpy as np
import pandas as pd
import pytest

from pscd.cli.flags import Parser, parse_kinds
from pscd.cli.reading import add_reading_flags, look_args, notes_of, read_args
from pscd.cli.streams import source_of
from pscd.errors import UserError


@pytest.fixture
def parser():
    parser = Parser()
    parser.add_argument("data")
    add_reading_flags(parser)
    return parser


def test_every_flag_reaches_the_reader(parser, tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(
        "1.000,5/x/gestern/03-04-2020\n2/y/7/04-04-2020\n3/é/8/05-04-2020\n4/y/9/09-04-2020\n".encode("cp850")
    )
    flags = "--delimiter / --decimal , --thousands . --encoding cp850 --no-header --month-first"
    args = parser.parse_args([str(path), *flags.split(), "--missing", "gestern", "--as", "x1=skip"])
    frame = read_args(args, path)
    assert list(frame.columns) == ["x0", "x1", "x2", "x3"]
    assert frame["x1"].tolist() == ["x", "y", "é", "y"]
    schema = look_args(args, frame)
    x0, x1, x2, x3 = schema.columns
    assert (x0.kind, x0.highest, x0.thousands) == ("number", 1000.5, ".")
    assert x1.kind == "left out"
    assert (x2.missing, x2.stray) == (1, 0)
    assert x3.formats == ("%m-%d-%Y",)


def test_kinds_may_have_names_with_signs_and_formats_with_colons():
    assert parse_kinds("a=b=date:%d.%m.%Y") == {"a=b": "date:%d.%m.%Y"}


@pytest.mark.parametrize(
    ("words", "missing"),
    [
        ("--missing -999,-99", ("-999", "-99")),
        ("--missing -999 --missing -99,x", ("-999", "-99", "x")),
        ("--missing a=-9 --missing -,-.5", ("a=-9", "-", "-.5")),
        ("", ()),
    ],
)
def test_codes_add_up_and_may_be_negative(parser, words, missing):
    assert parser.parse_args(["my.csv", *words.split()]).missing == missing


def test_kinds_add_up(parser):
    args = parser.parse_args(["my.csv", "--as", "a=skip,b=date", "--as", "b=number"])
    assert args.kinds == {"a": "skip", "b": "number"}
    assert parser.parse_args(["my.csv"]).kinds == {}


def test_the_header_can_be_told(parser, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("7,8\n1,2\n3,5\n")
    columns = [list(read_args(parser.parse_args([str(path), *flags]), path)) for flags in ([], ["--header"])]
    assert columns == [["x0", "x1"], ["7", "8"]]
    with pytest.raises(SystemExit):
        parser.parse_args([str(path), "--header", "--no-header"])


@pytest.mark.parametrize(
    ("name", "flags", "note"),
    [
        ("a.csv", "--sheet one --delimiter ,", "--sheet ignored: of no use for a .csv file"),
        ("a.parquet", "--delimiter ; --sheet one", "--delimiter and --sheet ignored: of no use for a .parquet file"),
        ("a.parquet", "--no-header", "--no-header ignored: of no use for a .parquet file"),
        ("a.xlsx", "--sheet Sheet1 --header", "--header ignored: of no use for a .xlsx file"),
        ("a.npy", "--encoding utf-8", "--encoding ignored: of no use for a .npy file"),
    ],
)
def test_flags_of_no_use_are_told(parser, tmp_path, name, flags, note):
    path = tmp_path / name
    frame = pd.DataFrame({"a": [1.5, 2.0], "b": [3.0, 4.0]})
    if name == "a.npy":
        np.save(path, frame.to_numpy())
    else:
        write = {".csv": frame.to_csv, ".parquet": frame.to_parquet, ".xlsx": frame.to_excel}[path.suffix]
        write(path, index=False)
    args = parser.parse_args([str(path), *flags.split()])
    assert notes_of(read_args(args, path)) == (note,)
    assert notes_of(read_args(parser.parse_args([str(path)]), path)) == ()
    if name != "a.xlsx":
        assert source_of(args, path, always=True).notes == (note,)


def test_a_wrong_encoding_is_named(parser, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a,b\n1,2\n3,4\n")
    with pytest.raises(UserError, match="no rows in it, read as utf-16; leave --encoding out to have it found out"):
        read_args(parser.parse_args([str(path), "--encoding", "utf-16"]), path)
