import gzip

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pscd import UserError
from pscd.tables import blocks as module
from pscd.tables import read_frame
from pscd.tables.blocks import open_blocks


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    made = pd.DataFrame(rng.normal(size=(23, 2)).astype(np.float32), columns=["a", "b"])
    return made.assign(name=[f"row {i}" for i in range(23)])


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", [(23,), (23, 3), (23, 2, 4)])
def test_arrays_come_in_blocks_whatever_their_order(tmp_path, order, shape):
    x = np.asarray(np.random.default_rng(0).normal(size=shape), order=order)
    np.save(tmp_path / "x.npy", x)
    source = open_blocks(tmp_path / "x.npy", size=5)
    assert (source.n_rows, source.n_columns, source.names) == (23, int(np.prod(shape[1:])), None)
    x = x.reshape(len(x), -1) if x.ndim == 1 else x
    np.testing.assert_array_equal(np.concatenate(list(source.blocks())), x)
    np.testing.assert_array_equal(np.concatenate(list(source.blocks(3))), x[15:])
    assert [len(block) for block in source.blocks(4)] == [3]


@pytest.mark.parametrize("groups", [3, 7, 100])
def test_parquet_files_are_read_across_row_groups_and_files(tmp_path, frame, groups):
    frame.to_parquet(tmp_path / "one.parquet", row_group_size=groups)
    (tmp_path / "many").mkdir()
    for i, part in enumerate((frame[:4], frame[4:4], frame[4:15], frame[15:])):
        part.to_parquet(tmp_path / "many" / f"part-{i}.parquet", row_group_size=groups)
    for path in (tmp_path / "one.parquet", tmp_path / "many"):
        source = open_blocks(path, size=5)
        assert [len(block) for block in source.blocks()] == [5, 5, 5, 5, 3]
        for first in range(6):
            found = [*source.blocks(first), frame[:0]]
            pd.testing.assert_frame_equal(
                pd.concat(found, ignore_index=True), frame[5 * first :].reset_index(drop=True), check_dtype=False
            )
        assert [list(block.columns) for block in source.blocks(0, ["b"])] == [["b"]] * 5
    assert open_blocks(tmp_path / "many", size=5).notes == ("part-1.parquet has no rows",)


TEXTS = {
    "plain": "a,b\n1,x\n2,y\n\n3,z\n4,u\n5,v\n",
    "semicolons": "a;b\n1,5;x\n2;y\n3;z\n4;u\n",
    "title and footer": "a title\na,b,c\n1,2,3\n4,5,6\n7,8,9\n10,11,12\nwritten on Monday\n",
    "ragged": "a,b,c\n1,2\n3,4,5,6\n7,8,9\n",
    "quoted lines": 'a,b\n1,"two\nlines"\n2,y\n3,"a ""b"""\n',
    "no header": "1,2\n3,4\n5,6\n7,8\n",
    "unclosed": 'a,b\n1,5" pipe\n2,y\n3,z\n',
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "gzip"])
def test_text_files_are_read_as_at_once(tmp_path, text, encoding):
    path = tmp_path / ("x.csv.gz" if encoding == "gzip" else "x.csv")
    path.write_bytes(gzip.compress(text.encode()) if encoding == "gzip" else text.encode(encoding))
    whole = read_frame(path)
    for size in (1, 2, 100):
        source = open_blocks(path, size=size)
        found = list(source.blocks())
        assert {len(block) for block in found[:-1]} <= {size}
        pd.testing.assert_frame_equal(pd.concat(found, ignore_index=True), whole)
        assert found[0].attrs["pscd"]["delimiter"] == whole.attrs["pscd"]["delimiter"]
    last = list(open_blocks(path, size=2).blocks(1))
    pd.testing.assert_frame_equal(pd.concat(last, ignore_index=True), whole[2:].reset_index(drop=True))


def test_a_letter_far_down_decides_on_the_encoding(tmp_path):
    """Found out before the first row is scored, not after a million."""
    (tmp_path / "x.csv").write_bytes(b"a,b\n" + b"1,2\n" * 3000 + "3,é\n".encode("cp1252"))
    *_, last = open_blocks(tmp_path / "x.csv", size=1000).blocks()
    assert last["b"].iloc[-1] == "é"


def test_small_files_and_other_kinds_are_read_at_once(tmp_path, frame, monkeypatch):
    frame.to_parquet(tmp_path / "x.parquet")
    np.save(tmp_path / "x.npy", np.zeros((23, 2)))
    frame.to_csv(tmp_path / "x.csv", index=False)
    (tmp_path / "empty.csv").touch()
    for name in ("x.parquet", "x.npy", "x.csv", "x.xlsx", "empty.csv", "not there"):
        assert open_blocks(tmp_path / name) is None
    monkeypatch.setattr(module, "BLOCK_ROWS", 22)
    monkeypatch.setattr(module, "LARGE_TEXT", 100)
    assert [open_blocks(tmp_path / f"x.{end}").size for end in ("parquet", "npy", "csv")] == [22] * 3


def test_two_columns_of_one_name_are_told(tmp_path):
    pq.write_table(pa.Table.from_arrays([pa.array([1.0, 2.0])] * 3, names=["a", "d", "d"]), tmp_path / "x.parquet")
    with pytest.raises(UserError, match="two columns 'd'; rename"):
        open_blocks(tmp_path / "x.parquet", size=1)


def test_bad_shards_are_told_in_one_line(tmp_path, frame):
    def folder(name, other):
        (tmp_path / name).mkdir()
        frame.to_parquet(tmp_path / name / "part-0.parquet")
        path = tmp_path / name / "part-1.parquet"
        path.write_bytes(other) if isinstance(other, bytes) else other.to_parquet(path)
        return tmp_path / name

    frame.to_parquet(tmp_path / "x.parquet")
    whole = (tmp_path / "x.parquet").read_bytes()
    bad = {
        "part-1.parquet: has no column 'b', unlike part-0": frame.drop(columns="b"),
        "has a column 'c'": frame.assign(c=1),
        "column 'a' is (large_)?string, in part-0.parquet it is float": frame.assign(a="one"),
        "the file is empty": b"",
        "part-1.parquet: not a readable .parquet file": whole[:-20],
    }
    for i, (message, other) in enumerate(bad.items()):
        with pytest.raises(UserError, match=message) as told:
            open_blocks(folder(str(i), other))
        assert "\n" not in str(told.value)
    assert open_blocks(folder("whole", frame.assign(a=1)), size=5).n_rows == 46  # whole numbers are numbers
    (tmp_path / "nothing").mkdir()
    with pytest.raises(UserError, match=r"no \.parquet files"):
        open_blocks(tmp_path / "nothing")


def test_damage_further_down_is_told_in_one_line(tmp_path, frame):
    """The footer is whole, so that only reading the rows finds it."""
    path = tmp_path / "x.parquet"
    frame.to_parquet(path, compression="gzip")
    content = bytearray(path.read_bytes())
    content[20:120] = bytes(100)
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"x\.parquet: ") as told:
        list(open_blocks(path, size=5).blocks())
    assert "\n" not in str(told.value)


def test_what_engines_leave_beside_their_shards_is_left_aside(tmp_path, frame):
    for name in ("part-0.parquet", "deep/part-1.parquet", "_temporary/part-2.parquet", ".hidden.parquet"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        frame.to_parquet(tmp_path / name)
    assert open_blocks(tmp_path).n_rows == 2 * len(frame)


def test_a_block_has_no_more_rows_than_asked_for_and_the_same_tables_are_small(tmp_path, monkeypatch):
    monkeypatch.setattr("pscd.tables.blocks.BLOCK_ROWS", 10)
    monkeypatch.setattr("pscd.tables.blocks.LARGE_TEXT", 10)
    for n in (10, 11):
        x = np.arange(2.0 * n).reshape(n, 2)
        np.save(tmp_path / f"{n}.npy", x)
        pd.DataFrame(x, columns=["a", "b"]).to_parquet(tmp_path / f"{n}.parquet")
        (tmp_path / f"{n}.csv").write_text("a,b\n" + "1,2\n" * (n - 1) + "3,4")
    for ending in ("npy", "parquet", "csv"):
        assert open_blocks(tmp_path / f"10.{ending}", most=4) is None
        source = open_blocks(tmp_path / f"11.{ending}", most=4)
        assert [len(block) for block in source.blocks()] == [4, 4, 3]
