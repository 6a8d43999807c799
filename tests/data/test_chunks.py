"""What sources are read from: arrays, Parquet files, datasets."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import Dataset

from pscd.data.chunks import ArrayChunks, DatasetChunks, ParquetChunks, as_part
from pscd.data.streams import ChunkedSource
from pscd.errors import UserError
from pscd.files import parquet_files
from pscd.tables import numeric_schema, open_table


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(ArrayChunks, "chunk_bytes", 64)


def test_an_array_reads_the_same_from_memory_a_map_and_a_file(tmp_path):
    x = np.arange(60, dtype=np.float32).reshape(20, 3)
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    label = torch.arange(20)
    for found in (
        ArrayChunks(x, label),
        ArrayChunks(torch.from_numpy(x), label),
        ArrayChunks(mapped, label),
        ArrayChunks(mapped, label, path=tmp_path / "x.npy"),
        ArrayChunks(np.asfortranarray(x), label),
    ):
        assert found.sizes.tolist() == [5, 5, 5, 5]
        parts = [found.read(i, None) for i in range(4)]
        assert torch.equal(torch.cat([part.x for part in parts]), torch.from_numpy(x))
        assert torch.equal(torch.cat([part.label for part in parts]), label)
        some = found.read(2, np.array([1, 4]))
        assert some.x.tolist() == x[[11, 14]].tolist()
        assert some.label.tolist() == [11, 14]
        assert found.where(2, 1) == "the data: row 12"


def test_integers_and_bytes_become_floats():
    assert ArrayChunks(np.arange(8).reshape(4, 2)).read(0, None).x.dtype == torch.float64
    image = ArrayChunks(np.full((3, 1, 2, 2), 255, np.uint8)).read(0, None).x
    assert image.shape[1:] == (1, 2, 2)
    assert (image == 1).all()
    assert ArrayChunks(np.arange(4.0)).read(0, None).x.shape[1:] == (1,)


def test_a_changed_map_of_a_user_is_not_dropped(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((20, 3)))
    own = np.load(tmp_path / "x.npy", mmap_mode="c")
    own[:] = 7
    found = ArrayChunks(own)
    found.released = 2
    assert all((found.read(i, None).x == 7).all() for i in range(len(found.sizes)))


def write(path, frame, rows=4):
    path.parent.mkdir(exist_ok=True)
    frame.to_parquet(path, row_group_size=rows, index=False)
    return path


def parquet(path, columns=("a", "b")):
    file = open_table(path)
    return ParquetChunks(file, numeric_schema(file, columns)[0])


def table(n, start=0):
    return pd.DataFrame({"a": np.arange(start, start + n, dtype=float), "b": np.arange(n)})


def test_row_groups_of_all_files_are_chunks(tmp_path):
    write(tmp_path / "x" / "2.parquet", table(6, 10)[["b", "a"]])
    write(tmp_path / "x" / "1.parquet", table(10))
    write(tmp_path / "x" / "_hidden.parquet", table(3))
    (tmp_path / "x" / "notes.txt").write_text("no rows")
    found = parquet(tmp_path / "x")
    assert [path.name for path in parquet_files(tmp_path / "x")] == ["1.parquet", "2.parquet"]
    assert (found.columns, found.sizes.tolist()) == (("a", "b"), [4, 4, 2, 4, 2])
    assert found.read(3, np.array([0, 2])).x.tolist() == [[10, 0], [12, 2]]
    assert found.where(4, 1) == f"{tmp_path / 'x' / '2.parquet'}: row 6"
    assert parquet(tmp_path / "x" / "1.parquet", ["b"]).read(1, None).x.tolist() == [[4], [5], [6], [7]]
    assert found.is_readable()
    assert not found.is_readable(most=7)


def test_floats_of_four_bytes_stay_so(tmp_path):
    path = write(tmp_path / "a.parquet", table(4).astype(np.float32))
    assert parquet(path).read(0, None).x.dtype == torch.float32
    flags = pd.DataFrame({"a": [True, False], "b": np.array([1, 2], np.int8)})
    assert parquet(write(tmp_path / "b.parquet", flags)).read(0, None).x.tolist() == [[1, 1], [0, 2]]


def test_dates_are_encoded_and_missing_values_stay(tmp_path):
    days = pd.Series(pd.date_range("2020-01-01", periods=4, freq="D"))
    path = write(tmp_path / "a.parquet", table(4).assign(day=days, a=[0.5, None, 2.5, 3.5]))
    found = parquet(path, ["a", "day"]).read(0, np.array([1, 3]))
    assert found.x[:, 0].isnan().tolist() == [True, False]
    assert found.x[:, 1].diff().tolist() == [2.0]


def test_a_truncated_shard_is_named(tmp_path):
    good = write(tmp_path / "x" / "1.parquet", table(10))
    bad = tmp_path / "x" / "2.parquet"
    for content in (good.read_bytes()[:-20], b"no parquet at all", b""):
        bad.write_bytes(content)
        with pytest.raises(UserError, match=r"2\.parquet: (not a readable \.parquet file|the file is empty)"):
            parquet(tmp_path / "x")


def test_a_shard_that_breaks_while_it_is_read_is_named(tmp_path):
    path = write(tmp_path / "1.parquet", table(10))
    source = ChunkedSource(parquet(path))
    path.write_bytes(path.read_bytes()[:40] + bytes(100))
    with pytest.raises(UserError, match=r"1\.parquet: damaged, or changed since it was opened"):
        next(source.windows(0, 0))
    missing = write(tmp_path / "2.parquet", table(10).assign(a=[*range(9), np.inf]))
    with pytest.raises(UserError, match=r"2\.parquet: row 10 is missing, infinite"):
        next(ChunkedSource(parquet(missing)).windows(0, 0))


class Items(Dataset):
    def __init__(self, n, row=lambda i: (torch.tensor([float(i), -float(i)]), i % 2)):
        self.n, self.row = n, row

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return self.row(i)


def test_items_of_a_dataset_come_once_in_an_epoch(monkeypatch):
    monkeypatch.setattr(DatasetChunks, "sampled", 8)
    found = DatasetChunks(Items(19), labelled=True)
    found.window = 5
    assert found.sizes.tolist() == [3, 3, 3, 3, 3, 3, 1]
    windows = ChunkedSource(found).windows(0, 0)
    rows = torch.cat([torch.cat([w.x, w.label[:, None]], 1) for w, _ in zip(windows, range(4), strict=False)])
    assert sorted(rows[:19, 0].tolist()) == list(range(19))
    assert torch.equal(rows[:, 2], rows[:, 0] % 2)
    assert found.where(2, 1) == "item 7 of the Items"


def test_an_item_is_a_row_or_begins_with_one():
    assert as_part([(1, 2), (3, 4)], labelled=False).x.tolist() == [[1, 2], [3, 4]]
    assert as_part([np.array([1.0, 2.0])], labelled=False).x.tolist() == [[1, 2]]
    for items, message in (
        ([("a", 1)], "an item must be a row of numbers"),
        ([torch.zeros(2), torch.zeros(3)], "an item must be a row of numbers"),
        ([torch.tensor(1.0)], "a row of one number has the shape"),
    ):
        with pytest.raises(UserError, match=message):
            as_part(items, labelled=False)
    with pytest.raises(UserError, match="the Items is empty"):
        DatasetChunks(Items(0), labelled=False)
