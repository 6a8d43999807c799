import gzip
import os
import sys

import numpy as np
import pandas as pd
import pytest
import torch

from pscd.data import load_dataset, read_table
from pscd.data.tables import _read_plain, count_columns, open_array, read_array
from pscd.errors import UserError


@pytest.fixture
def rows():
    return np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)


def test_all_four_kinds_of_file_give_the_same_rows(tmp_path, rows):
    frame = pd.DataFrame(rows, columns=["a", "b", "c"])
    frame.to_csv(tmp_path / "x.csv", index=False)
    frame.to_parquet(tmp_path / "x.parquet")
    np.save(tmp_path / "x.npy", rows)
    np.savez(tmp_path / "x.npz", X=rows, y=np.zeros(40))
    for suffix in ("csv", "parquet", "npy", "npz"):
        table = read_table(tmp_path / f"x.{suffix}")
        torch.testing.assert_close(table.x, torch.from_numpy(rows).double())
        assert table.columns == (("a", "b", "c") if suffix in ("csv", "parquet") else None)


def test_columns_are_chosen_and_ordered_by_name(tmp_path, rows):
    frame = pd.DataFrame(rows, columns=["a", "b", "c"])
    frame.insert(0, "city", "Rome")
    frame.to_csv(tmp_path / "x.csv", index=False)
    table = read_table(tmp_path / "x.csv", ["c", "a"])
    torch.testing.assert_close(table.x, torch.from_numpy(rows[:, [2, 0]]).double())


def test_a_csv_without_a_header_loses_no_row(tmp_path, rows):
    np.savetxt(tmp_path / "x.csv", rows, delimiter=",")
    table = read_table(tmp_path / "x.csv")
    assert table.x.shape == (40, 3)
    assert table.columns == ("x0", "x1", "x2")


def test_one_dimensional_arrays_are_one_column_and_images_stay_images(tmp_path):
    np.save(tmp_path / "line.npy", np.zeros(30))
    np.save(tmp_path / "images.npy", np.zeros((30, 1, 8, 8), np.uint8))
    assert read_table(tmp_path / "line.npy").x.shape == (30, 1)
    assert read_table(tmp_path / "images.npy").x.shape == (30, 1, 8, 8)


def write(path, content):
    path.write_bytes(content) if isinstance(content, bytes) else path.write_text(content)
    return path


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.csv", "", "is empty"),
        ("x.csv", "a,b\n", "no rows"),
        ("x.csv", "a,city\n1,Rome\n2,Oslo\n", "column 'city' is not numeric; choose others with --columns a"),
        ("x.csv", "a (cm),b,city\n1,3,Rome\n2,4,Oslo\n", r"choose others with --columns 'a \(cm\),b', or"),
        ("x.csv", "city\nRome\n", "column 'city' is not numeric; use pscd detect"),
        ("x.csv", "a,b\n1,2\n3,oops\n5,6\n", r"column 'b' is not numeric: 'oops' in row 2"),
        ("x.csv", "a,b\n1,2\n3,\n4,inf\n", r"2 rows are missing, infinite or over 1e30 \(first: row 2, column b\)"),
        ("x.csv", "a;b\n1;2\n3;inf\n", r"1 row is missing, infinite or over 1e30 \(first: row 2, column b\)"),
        ("x.csv", "a\n1\n1e39\n", r"1 row is missing, infinite or over 1e30 \(first: row 2"),
        ("x.npy", b"garbage", "not a readable .npy"),
        ("x.npz", b"PK garbage", "not a readable .npz"),
        ("x.parquet", b"garbage", "not a readable .parquet"),
        ("x.xml", "1", "cannot read .xml"),
    ],
)
def test_every_fault_is_one_line_that_names_the_file(tmp_path, name, content, message):
    path = write(tmp_path / name, content)
    with pytest.raises(UserError, match=message) as caught:
        read_table(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.csv", "a;b\n1,5;2\n-0,25;1.234,5\n"),
        ("x.tsv", "a\tb\n1.5\t2\n-.25\t1234.5\n"),
        ("x.txt", "a b\n1.5 2\n-.25 1234.5\n"),
        ("x.csv", 'a|b\n1.5|"2"\n-0.25|$1,234.50\n'),
        ("x.csv.gz", gzip.compress(b"a,b\n1.5,2\n-0.25,1234.5\n", mtime=0)),
        ("x.csv", "a,b\n1.5,2\n-0.25,1234.5\n".encode("utf-16")),
        ("x.csv", "a;b\n1,5 \N{EURO SIGN};2\n-0,25 \N{EURO SIGN};1234,5\n".encode("cp1252")),
    ],
)
def test_a_table_may_be_written_in_many_ways(tmp_path, name, content):
    table = read_table(write(tmp_path / name, content))
    assert table.columns == ("a", "b")
    assert table.x.tolist() == [[1.5, 2.0], [-0.25, 1234.5]]


def test_flags_are_numbers_and_a_workbook_is_a_table(tmp_path):
    pd.DataFrame({"a": [True, False], "b": [1, 2.5]}).to_excel(tmp_path / "x.xlsx", index=False)
    write(tmp_path / "x.csv", "a,b\nTrue,1\nFalse,2.5\n")
    for name in ("x.xlsx", "x.csv"):
        assert read_table(tmp_path / name).x.tolist() == [[1.0, 1.0], [0.0, 2.5]]


def test_array_files_that_hold_no_rows_of_numbers(tmp_path):
    np.save(tmp_path / "text.npy", np.array(["a", "b"]))
    np.save(tmp_path / "complex.npy", np.zeros(3, complex))
    np.save(tmp_path / "scalar.npy", np.array(3.0))
    np.savez(tmp_path / "two.npz", first=np.zeros(3), second=np.zeros(3))
    for name, message in [
        ("text.npy", "not numbers"),
        ("complex.npy", "complex"),
        ("scalar.npy", "no rows"),
        ("two.npz", "first, second; name the array of rows X"),
    ]:
        with pytest.raises(UserError, match=message):
            read_table(tmp_path / name)


def test_a_file_is_split_the_same_way_every_time(tmp_path, rows):
    np.save(tmp_path / "x.npy", rows)
    data, again = (load_dataset(str(tmp_path / "x.npy"), seed=0) for _ in range(2))
    assert (len(data.train), len(data.held_out)) == (36, 4)
    assert torch.equal(data.train, again.train)
    together = torch.cat([data.train, data.held_out]).sort(0).values
    torch.testing.assert_close(together, torch.from_numpy(rows).double().sort(0).values)
    assert data.fingerprint == again.fingerprint != load_dataset(str(tmp_path / "x.npy"), seed=1).fingerprint


def test_load_dataset_says_what_there_is(tmp_path):
    with pytest.raises(UserError, match=r"unknown data 'mooon'.*moon"):
        load_dataset("mooon", seed=0)
    with pytest.raises(UserError, match="no such file"):
        load_dataset("missing.csv", seed=0)
    with pytest.raises(UserError, match="toy without column names"):
        load_dataset("moon", seed=0, columns=["a"])
    np.save(tmp_path / "few.npy", np.zeros((5, 2)))
    with pytest.raises(UserError, match="5 rows are too few"):
        load_dataset(str(tmp_path / "few.npy"), seed=0)


def test_ids_go_along_unlearnt(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("name,a,b\nx,1,2\ny,3,4\n")
    table = read_table(path, ids=["name"])
    assert table.columns == ("a", "b")
    assert table.ids == {"name": ["x", "y"]}
    assert read_table(path, ["b"], ids=["name", "a"]).ids == {"name": ["x", "y"], "a": ["1", "3"]}
    with pytest.raises(UserError, match="cannot be an id and be learnt from"):
        read_table(path, ["a"], ids=["a"])
    (tmp_path / "u.csv").write_text("id,a\n007,1\n,2\n9007199254740993,3\n")
    assert read_table(tmp_path / "u.csv", ids=["id"]).ids == {"id": ["007", "", "9007199254740993"]}
    with pytest.raises(UserError, match="--id name, or"):
        read_table(path, ids=())
    with pytest.raises(UserError, match="--columns a,b"):
        read_table(path)
    with pytest.raises(UserError, match="no column 'nobody'"):
        read_table(path, ids=["nobody"])
    with pytest.raises(UserError, match="no columns are left"):
        read_table(path, ids=["name", "a", "b"])
    np.save(tmp_path / "t.npy", np.ones((3, 2)))
    with pytest.raises(UserError, match="none can be an id"):
        read_table(tmp_path / "t.npy", ids=["name"])


def test_without_pyarrow_a_parquet_file_says_what_to_install(tmp_path, monkeypatch):
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UserError, match=r"a\.parquet: reading parquet needs pyarrow; .* pip install '\.\[parquet\]'"):
        read_table(tmp_path / "a.parquet")


def test_columns_are_counted_without_reading_the_rows(tmp_path):
    np.save(tmp_path / "table.npy", np.zeros((5, 3)))
    np.save(tmp_path / "line.npy", np.zeros(5))
    pd.DataFrame(np.zeros((5, 4)), columns=list("abcd")).to_csv(tmp_path / "x.csv", index=False)
    pd.DataFrame(np.zeros((5, 2)), columns=list("ab")).to_parquet(tmp_path / "x.parquet")
    found = {name: count_columns(tmp_path / name) for name in ("table.npy", "line.npy", "x.csv", "x.parquet", "no.npy")}
    assert found == {"table.npy": 3, "line.npy": 1, "x.csv": 4, "x.parquet": 2, "no.npy": None}


def told(path, **options):
    with pytest.raises(UserError) as caught:
        read_table(path, **options)
    return str(caught.value).removeprefix(f"{path}: ")


def test_numbers_up_to_the_largest_of_any_block_are_taken(tmp_path, monkeypatch):
    monkeypatch.setattr("pscd.data.tables.BLOCK", 2)
    x = np.array([[1.0, 2.0], [-0.99e30, 3.0], [0.99e30, 4.0], [1.0, 5.0], [1.0, 6.0]])
    np.save(tmp_path / "x.npy", x)
    assert read_table(tmp_path / "x.npy").x.tolist() == x.tolist()
    for row, value in ((4, 1e30), (2, -1e30), (3, np.nan)):
        bad = x.copy()
        bad[row, 1] = value
        np.save(tmp_path / "x.npy", bad)
        first = f"1 row is missing, infinite or over 1e30 (first: row {row + 1}); fill or remove them"
        assert told(tmp_path / "x.npy").startswith(first)
    x[[1, 3], 0] = np.inf
    np.save(tmp_path / "x.npy", x)
    assert told(tmp_path / "x.npy").startswith("2 rows are missing, infinite or over 1e30 (first: row 2);")
    wide = pd.DataFrame({"a": [1.0, 2.0], "two\nlines": [3.0, np.nan]})
    wide.to_parquet(tmp_path / "x.parquet")
    assert "(first: row 2, column two lines)" in told(tmp_path / "x.parquet")


def test_a_cell_of_text_is_pointed_at_unless_most_are(tmp_path):
    for cells, pointed in ((["x", "1", "2", "y"], True), (["x", "1", "2", "y", "z"], False)):
        (tmp_path / "x.csv").write_text("a,b\n" + "".join(f"{cell},{i}\n" for i, cell in enumerate(cells)))
        message = told(tmp_path / "x.csv")
        start = "column 'a' is not numeric: 'x' in row 1; correct or remove it, or use pscd detect"
        other = "column 'a' is not numeric; choose others with --columns b, or use pscd detect"
        assert message.startswith(start if pointed else other)
    (tmp_path / "x.csv").write_text("a,b,c,d\n" + "".join(f"x{i},y{i},7,{i}\n" for i in range(4)))
    assert told(tmp_path / "x.csv").startswith("columns 'a', 'b' are not numeric; choose others with --columns d, or")
    assert told(tmp_path / "x.csv", ids=()).startswith(
        "columns 'a', 'b' are not numeric; carry them along unlearnt with --id a,b, or"
    )
    (tmp_path / "x.csv").write_text("a,c\n" + "".join(f"x{i},7\n" for i in range(4)))
    assert told(tmp_path / "x.csv").startswith("column 'a' is not numeric; use pscd detect")


def test_what_is_no_file_of_a_table(tmp_path):
    (tmp_path / "x.csv").mkdir()
    assert told(tmp_path / "x.csv") == "a folder, not a file"
    assert told(tmp_path / "y.csv") == "no such file"
    assert told(tmp_path / "y").startswith("cannot read a file without ending; use .csv")
    np.save(tmp_path / "x.npy", np.ones((3, 2)))
    assert told(tmp_path / "x.npy", columns=["a"]).startswith("has no column names, so columns cannot be chosen")
    np.save(tmp_path / "e.npy", np.ones((3, 0)))
    np.save(tmp_path / "f.npy", np.ones((0, 3)))
    assert told(tmp_path / "e.npy") == told(tmp_path / "f.npy") == "there are no rows in it"
    (tmp_path / "t.csv").write_text("a,b\n1,2\n3,4\n")
    assert told(tmp_path / "t.csv", columns=["c", "a", "d"]) == "has no column 'c', 'd'; it has 'a', 'b'"


def test_an_array_file_is_no_longer_than_its_header_says(tmp_path):
    """A header that promises more would take the memory first."""
    np.save(tmp_path / "x.npy", np.ones((3, 2)))
    content = (tmp_path / "x.npy").read_bytes()
    (tmp_path / "x.npy").write_bytes(content.replace(b"(3, 2)", b"(9999999, 2)".ljust(6))[: len(content) + 6])
    for read in (read_array, open_array):
        with pytest.raises(UserError, match=r"\d+ bytes where its header promises 159999984"):
            read(tmp_path / "x.npy")
    np.save(tmp_path / "flags.npy", np.array([[True, False]]))
    assert read_table(tmp_path / "flags.npy").x.tolist() == [[1, 0]]
    np.save(tmp_path / "objects.npy", np.array([None] * 1000), allow_pickle=True)  # shorter than their pointers
    assert told(tmp_path / "objects.npy").startswith("not a readable .npy file")
    with (tmp_path / "second.npy").open("wb") as file:  # another version of the header
        np.lib.format.write_array(file, np.ones((3, 2)), version=(2, 0))
    assert read_array(tmp_path / "second.npy").shape == open_array(tmp_path / "second.npy").shape == (3, 2)


def test_an_array_is_opened_without_reading_it_and_rows_lie_one_after_the_other(tmp_path):
    x = np.arange(6.0, dtype=np.float32).reshape(3, 2)
    np.save(tmp_path / "x.npy", np.asfortranarray(x))
    assert isinstance(open_array(tmp_path / "x.npy"), np.memmap)
    assert not isinstance(read_array(tmp_path / "x.npy"), np.memmap)
    table = read_table(tmp_path / "x.npy")
    assert table.x.is_contiguous()
    assert (table.x.dtype, table.x.tolist()) == (torch.float64, x.tolist())


def test_the_array_of_rows_in_an_archive(tmp_path):
    rows, other = np.ones((3, 2)), np.zeros((5, 1))
    for arrays, expected in (({"X": rows, "x": other}, rows), ({"x": rows, "y": other}, rows), ({"any": rows}, rows)):
        np.savez(tmp_path / "x.npz", **arrays)
        assert read_table(tmp_path / "x.npz").x.tolist() == expected.tolist()


def test_plain_files_are_read_by_pandas_and_others_are_not(tmp_path):
    def plain(text, ids=()):
        (tmp_path / "x.csv").write_text(text)
        return _read_plain(tmp_path / "x.csv", ids)

    assert plain("a, b\n1, 2\n").columns.tolist() == ["a", "b"]
    assert plain("a,b\n007,2\n", ["a"])["a"].tolist() == ["007"]
    for text in (
        "a,a\n1,2\n",
        "1,2\n3,4\n",
        "a,\n1,2\n",
        "a,b\n1,x\n",
        "a,b\n1,2,3\n4,5,6\n",
        "a,b\n",
        "",
        "a;b\n1;2\n3;x\n",
    ):
        assert plain(text) is None, text
    assert plain("a,1\n1,2\n") is not None
    (tmp_path / "x.tsv").write_text("a\tb\n1\t2\n")
    assert _read_plain(tmp_path / "x.tsv", ()) is None


def test_many_names_are_cut_short(tmp_path):
    names = [f"c{i}" for i in range(10)]
    (tmp_path / "x.csv").write_text(",".join(names) + "\n" + ",".join("1" * 10) + "\n")
    assert told(tmp_path / "x.csv", columns=["z"]) == (
        "has no column 'z'; it has 'c0', 'c1', 'c2', 'c3', 'c4', 'c5', 'c6', 'c7' and 2 more"
    )


class Trap:
    """Makes a folder if it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("suffix", ["npy", "npz"])
def test_arrays_of_objects_run_nothing(tmp_path, suffix):
    path, trap = tmp_path / f"x.{suffix}", tmp_path / "trap"
    objects = np.array([[Trap(trap)]], dtype=object)
    np.save(path, objects, allow_pickle=True) if suffix == "npy" else np.savez(path, X=objects)
    assert told(path).startswith(f"not a readable .{suffix} file")
    if suffix == "npy":
        with pytest.raises(UserError, match=r"not a readable \.npy file"):
            open_array(path)
    assert count_columns(path) is None
    assert not trap.exists()
    np.load(path, allow_pickle=True) if suffix == "npy" else np.load(path, allow_pickle=True)["X"]
    assert trap.exists()  # so the trap works


def test_a_mark_of_the_byte_order_is_no_part_of_the_first_field(tmp_path):
    (tmp_path / "x.csv").write_bytes("\ufeff1,2\n3,4\n".encode())
    assert read_table(tmp_path / "x.csv").x.tolist() == [[1, 2], [3, 4]]
    (tmp_path / "x.csv").write_bytes("\ufeffa,b\n3,4\n".encode())
    assert read_table(tmp_path / "x.csv", ["a"]).x.tolist() == [[3]]
