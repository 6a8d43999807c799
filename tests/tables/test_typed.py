import gzip

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pscd import UserError
from pscd.tables import ReadOptions, open_table
from pscd.tables.read import block_size


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
    table = open_table(tmp_path / "x.npy")
    assert (table.n_rows, len(table.names), table.shape) == (23, int(np.prod(shape[1:])), shape[1:] or (1,))
    flat = x.reshape(len(x), -1)
    np.testing.assert_array_equal(np.concatenate(list(table.blocks(5))), flat)
    np.testing.assert_array_equal(np.concatenate(list(table.blocks(5, start=13))), flat[13:])
    np.testing.assert_array_equal(table.frame(), flat)
    assert [list(block.columns) for block in table.blocks(10, columns=["x0"])] == [["x0"]] * 3


@pytest.mark.parametrize("groups", [3, 7, 100])
def test_parquet_files_are_read_across_row_groups_and_files(tmp_path, frame, groups):
    frame.to_parquet(tmp_path / "one.parquet", row_group_size=groups)
    (tmp_path / "many").mkdir()
    for i, part in enumerate((frame[:4], frame[4:4], frame[4:15], frame[15:])):
        part.to_parquet(tmp_path / "many" / f"part-{i}.parquet", row_group_size=groups)
    for path in (tmp_path / "one.parquet", tmp_path / "many"):
        table = open_table(path)
        assert [len(block) for block in table.blocks(5)] == [5, 5, 5, 5, 3]
        for start in (0, 3, 5, 15, 22, 25):
            found = [*table.blocks(5, start), frame[:0]]
            pd.testing.assert_frame_equal(
                pd.concat(found, ignore_index=True), frame[start:].reset_index(drop=True), check_dtype=False
            )
        assert [list(block.columns) for block in table.blocks(5, columns=["b"])] == [["b"]] * 5
    assert open_table(tmp_path / "many").notes == ("part-1.parquet has no rows",)


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
    whole = open_table(path)
    frame = whole.frame()
    for size in (1, 2, 100):
        table = open_table(path)
        found = list(table.blocks(size))
        assert {len(block) for block in found[:-1]} <= {size}
        pd.testing.assert_frame_equal(pd.concat(found, ignore_index=True), frame)
        assert (table.options, table.notes) == (whole.options, whole.notes)
    last = list(open_table(path).blocks(2, start=2))
    pd.testing.assert_frame_equal(pd.concat(last, ignore_index=True), frame[2:].reset_index(drop=True))


def test_a_letter_far_down_decides_on_the_encoding(tmp_path):
    """Found out before the first row is scored, not after a million."""
    (tmp_path / "x.csv").write_bytes(b"a,b\n" + b"1,2\n" * 3000 + "3,é\n".encode("cp1252"))
    *_, last = open_table(tmp_path / "x.csv").blocks(1000)
    assert last["b"].iloc[-1] == "é"


def test_blocks_of_wide_tables_have_fewer_rows(tmp_path, frame):
    assert block_size(3) == 131_072
    assert block_size(5_000) == 65_536
    frame.to_parquet(tmp_path / "x.parquet")
    assert not open_table(tmp_path / "x.parquet").is_large


def test_a_fingerprint_is_of_the_file_and_the_options(tmp_path, frame):
    frame.to_csv(tmp_path / "x.csv", index=False)
    first = open_table(tmp_path / "x.csv").fingerprint()
    assert first == open_table(tmp_path / "x.csv").fingerprint()
    assert first != open_table(tmp_path / "x.csv", ReadOptions(decimal=",")).fingerprint()
    frame[:5].to_csv(tmp_path / "x.csv", index=False)
    assert first != open_table(tmp_path / "x.csv").fingerprint()


@pytest.mark.parametrize("kind", ["csv", "parquet", "npy"])
def test_an_excerpt_has_rows_from_everywhere_and_a_sample_is_random(tmp_path, kind):
    x = np.arange(5000.0)[:, None]
    frame = pd.DataFrame(x, columns=["a"])
    {"csv": lambda p: frame.to_csv(p, index=False), "parquet": frame.to_parquet, "npy": lambda p: np.save(p, x)}[kind](
        tmp_path / f"x.{kind}"
    )
    table = open_table(tmp_path / f"x.{kind}")
    places = table.excerpt(200, pieces=4).iloc[:, 0].astype(float)
    assert 190 <= len(places) <= 200
    assert places.min() == 0
    assert places.max() > 4900
    drawn = table.sample(400, seed=0).iloc[:, 0].astype(float).to_numpy()
    assert len(set(drawn)) == 400
    assert (np.diff(drawn) > 0).all()
    np.testing.assert_array_equal(drawn, table.sample(400, seed=0).iloc[:, 0].astype(float))
    assert not np.array_equal(drawn, table.sample(400, seed=1).iloc[:, 0].astype(float))
    assert len(table.sample(9999, seed=0)) == 5000


def test_two_columns_of_one_name_are_told(tmp_path):
    pq.write_table(pa.Table.from_arrays([pa.array([1.0, 2.0])] * 3, names=["a", "d", "d"]), tmp_path / "x.parquet")
    with pytest.raises(UserError, match="two columns 'd'; rename"):
        open_table(tmp_path / "x.parquet")


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
            open_table(folder(str(i), other))
        assert "\n" not in str(told.value)
    assert open_table(folder("whole", frame.assign(a=1))).n_rows == 46  # whole numbers are numbers
    (tmp_path / "nothing").mkdir()
    with pytest.raises(UserError, match=r"no \.parquet files"):
        open_table(tmp_path / "nothing")


def test_damage_further_down_is_told_in_one_line(tmp_path, frame):
    """The footer is whole, so that only reading the rows finds it."""
    path = tmp_path / "x.parquet"
    frame.to_parquet(path, compression="gzip")
    content = bytearray(path.read_bytes())
    content[20:120] = bytes(100)
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"x\.parquet: ") as told:
        list(open_table(path).blocks(5))
    assert "\n" not in str(told.value)


def test_what_engines_leave_beside_their_shards_is_left_aside(tmp_path, frame):
    for name in ("part-0.parquet", "deep/part-1.parquet", "_temporary/part-2.parquet", ".hidden.parquet"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        frame.to_parquet(tmp_path / name)
    assert open_table(tmp_path).n_rows == 2 * len(frame)
