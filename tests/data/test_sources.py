"""When rows are streamed, and what streams them."""

import gzip

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, Subset, TensorDataset

from pscd.data import load_dataset, sources
from pscd.data.batches import BatchSource
from pscd.data.chunks import ArrayChunks, DatasetChunks, ParquetChunks
from pscd.data.sources import as_source, encoded_file, is_parquet_folder, open_source, streams_file
from pscd.data.streams import ChunkedSource
from pscd.errors import UserError
from pscd.tables import open_table
from tests.data.test_chunks import table, write

X = np.arange(200, dtype=np.float32).reshape(100, 2)


@pytest.fixture
def npy(tmp_path):
    np.save(tmp_path / "x.npy", X)
    return tmp_path / "x.npy"


class Endless(IterableDataset):
    def __iter__(self):
        return iter(torch.from_numpy(X))


def source_of(x, stream="auto", label=None, labelled=False):
    found = as_source(x, stream, label=label, labelled=labelled)
    return type(getattr(found, "chunks", found))


@pytest.mark.parametrize(
    ("x", "kind"),
    [
        (X, None),
        (torch.from_numpy(X), None),
        (X.tolist(), None),
        (pd.DataFrame(X), None),
        (TensorDataset(torch.from_numpy(X)), None),
        ([torch.zeros(2), torch.zeros(2)], None),
        (Subset(TensorDataset(torch.from_numpy(X)), range(5)), DatasetChunks),
        (Endless(), BatchSource),
        (DataLoader(TensorDataset(torch.from_numpy(X)), 10), BatchSource),
        (lambda: [torch.from_numpy(X)], BatchSource),
        ([torch.zeros(4, 2), torch.zeros(4, 2)], BatchSource),
        ([(torch.zeros(4, 1, 2, 2), torch.zeros(4))], BatchSource),
    ],
)
def test_what_is_streamed_unless_told_otherwise(x, kind):
    assert source_of(x) is (type(None) if kind is None else kind)


def test_large_arrays_are_streamed_and_others_if_asked_for(monkeypatch, npy):
    mapped = np.load(npy, mmap_mode="r")
    assert source_of(mapped) is type(None)
    assert source_of(X, "yes") is ArrayChunks
    monkeypatch.setattr(sources, "STREAM_BYTES", 4 * X.size - 1)
    for x in (X, torch.from_numpy(X), mapped):
        assert source_of(x) is ArrayChunks
        assert source_of(x, "no") is type(None)
    images = torch.zeros(100, 1, 4, 4)
    assert source_of(images) is type(None)
    assert source_of(images, "yes") is ArrayChunks
    labels = TensorDataset(torch.from_numpy(X), torch.arange(100))
    assert source_of(labels, labelled=True) is DatasetChunks
    with pytest.raises(UserError, match="must be numbers of this machine"):
        as_source(X.astype(">f4"), "yes", label=None, labelled=False)


def test_files_are_streamed_by_their_size_alone(monkeypatch, tmp_path, npy):
    csv, parquet = tmp_path / "x.csv", write(tmp_path / "f" / "x.parquet", table(50))
    csv.write_text("a,b\n" + "1,2\n" * 40)
    files = (npy, csv, parquet)
    assert not any(streams_file(path, "auto") for path in files)
    assert all(streams_file(path, "yes") for path in files)
    assert streams_file(tmp_path / "f", "auto")
    monkeypatch.setattr(sources, "STREAM_BYTES", 64)
    assert all(streams_file(path, "auto") for path in files)
    assert not any(streams_file(path, "no") for path in files)
    with pytest.raises(UserError, match="a folder of Parquet files is always streamed"):
        streams_file(tmp_path / "f", "no")
    parquet.write_bytes(b"PAR1" * 20)
    assert not streams_file(parquet, "auto")  # what is wrong with it is told when it is read
    (tmp_path / "x.npz").write_bytes(b"PK")
    assert not streams_file(tmp_path / "x.npz", "auto")
    with pytest.raises(UserError, match=r"\.npz cannot be streamed; write it as \.npy"):
        streams_file(tmp_path / "x.npz", "yes")


def test_a_folder_of_parquet_files_is_told_from_one_of_images(tmp_path):
    write(tmp_path / "tables" / "x.parquet", table(5))
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "a.png").write_bytes(b"")
    assert is_parquet_folder(tmp_path / "tables")
    assert not is_parquet_folder(tmp_path / "pictures")
    assert not is_parquet_folder(tmp_path / "tables" / "x.parquet")


@pytest.fixture
def home(monkeypatch, tmp_path):
    """A cache folder of the test's own."""
    monkeypatch.setattr(sources, "cache_folder", lambda: tmp_path / "cache")
    return tmp_path / "cache" / "tables"


def test_files_are_opened_by_their_kind(monkeypatch, tmp_path, npy, home):
    assert open_source(npy).n_rows == 100
    parquet = write(tmp_path / "f" / "x.parquet", table(50))
    assert isinstance(open_source(parquet, ["a", "b"]).chunks, ParquetChunks)
    monkeypatch.setattr(ParquetChunks, "is_readable", lambda self: False)
    rewritten = open_source(parquet, ["a", "b"], show=False)
    assert (type(rewritten.chunks), rewritten.columns, rewritten.n_rows) == (ArrayChunks, ("a", "b"), 50)
    assert np.array_equal(rewritten.sample(50, 0).x.numpy(), table(50).to_numpy())
    np.save(npy, np.array(["text"]))
    with pytest.raises(UserError, match="not numbers"):
        open_source(npy)
    np.save(npy, np.zeros((0, 2)))
    with pytest.raises(UserError, match="there are no rows in it"):
        open_source(npy)
    np.save(npy, X)
    with pytest.raises(UserError, match="has no column names"):
        open_source(npy, ["a"])


def lines(n, separator=",", decimal="."):
    return [separator.join((str(i * i), f"{i / 7:.3f}".replace(".", decimal), "xy"[i % 2])) for i in range(n)]


@pytest.mark.parametrize(
    ("name", "text", "columns"),
    [
        ("a.csv", ["height,width,city", *lines(40)], ("height", "width")),
        ("no-header.csv", lines(40), ("x0", "x1")),
        ("a.tsv", ["height\twidth\tcity", *lines(40, "\t")], ("height", "width")),
        ("german.csv", ["height;width;city", *lines(40, ";", ",")], ("height", "width")),
        ("a.csv.gz", ["height,width,city", *lines(40)], ("height", "width")),
    ],
)
def test_text_is_encoded_once_as_it_would_be_in_memory(tmp_path, home, name, text, columns):
    path = tmp_path / name
    content = "\n".join(text).encode()
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    encoded, schema, notes = encoded_file(open_table(path), None, show=False)
    assert schema.names_out == columns
    assert "city (a category)" in notes[-1] or "x2 (a category)" in notes[-1]
    whole = load_dataset(str(path), seed=0)
    assert whole.columns == columns
    assert sorted(np.load(encoded)[:, 0]) == sorted(torch.cat([whole.train, whole.held_out])[:, 0].tolist())
    stamp = encoded.stat().st_mtime_ns
    assert encoded_file(open_table(path), None, show=False)[0].stat().st_mtime_ns == stamp
    other, _, _ = encoded_file(open_table(path), columns[1:], show=False)
    assert np.load(other).tolist() == np.load(encoded)[:, 1:].tolist()
    path.write_bytes(path.read_bytes() if name.endswith(".gz") else content + b"\n" + text[-1].encode())
    assert len(list(home.iterdir())) == 4  # two arrays and what is known about them, and nothing unfinished


def test_a_stream_with_missing_values_is_refused_by_row(tmp_path, home):
    (tmp_path / "a.csv").write_text("\n".join(["a,b,c", *lines(30), "7,many,x"]))
    with pytest.raises(UserError, match=r"a\.csv: row 31 is missing"):
        load_dataset(str(tmp_path / "a.csv"), seed=0, stream="yes")


def test_a_streamed_dataset_is_a_sample_and_rows_held_out(npy, tmp_path):
    data = load_dataset(str(npy), seed=3, stream="yes")
    assert isinstance(data.stream, ChunkedSource)
    together = torch.cat([data.train, data.held_out])
    assert (len(data.held_out), len(data.train)) == (10, 90)
    assert sorted(together[:, 0].tolist()) == X[:, 0].tolist()
    assert data.stream.n_rows == 90
    again = load_dataset(str(npy), seed=3, stream="yes")
    assert again.fingerprint == data.fingerprint
    assert not torch.equal(load_dataset(str(npy), seed=4, stream="yes").held_out, data.held_out)
    changed = X.copy()
    changed[50, 1] += 1
    np.save(npy, changed)
    assert load_dataset(str(npy), seed=3, stream="yes").fingerprint != data.fingerprint
    with pytest.raises(UserError, match="moon is a toy, held in memory"):
        load_dataset("moon", seed=0, stream="yes")
    write(tmp_path / "f" / "x.parquet", table(50))
    assert load_dataset(str(tmp_path / "f"), seed=0, columns=["a", "b"]).columns == ("a", "b")
