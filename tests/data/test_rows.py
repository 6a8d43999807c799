import warnings
import zlib

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import Dataset, Subset, TensorDataset

import pscd
from pscd.data import TOYS, as_rows, load_dataset, read_table, rows_of, split_rows
from pscd.errors import UserError
from pscd.rng import Stream as Streams
from pscd.rng import generator
from pscd.tables import encode, open_table


def test_rows_are_the_same_whatever_holds_them():
    x = torch.arange(6.0).view(3, 2)
    for rows in (x, x.numpy(), x.tolist(), pd.DataFrame(x.numpy()), TensorDataset(x), x.long()):
        assert torch.equal(as_rows(rows).float(), x)


def test_images_of_bytes_become_floats_from_0_to_1():
    x = torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1)
    for rows in (x, x.numpy(), TensorDataset(x)):
        assert as_rows(rows).flatten().tolist() == [0, 1]
    assert as_rows(x.view(2, 1)).flatten().tolist() == [0, 255]  # a table


def test_a_dataset_of_one_tensor_is_trained_on_as_its_rows(small):
    x = TOYS["moon"](200, generator(0))
    model = pscd.fit(TensorDataset(x), config=small)
    assert model.shape == (2,)
    assert torch.equal(model.shift, pscd.fit(x, config=small).shift)


@pytest.mark.parametrize("stream", ["yes", "no"])
def test_twenty_rows_are_the_fewest_to_learn_from(tmp_path, stream):
    path = tmp_path / "x.npy"
    np.save(path, np.arange(40.0).reshape(20, 2))
    assert len(load_dataset(str(path), seed=0, stream=stream).train) == 18
    np.save(path, np.arange(38.0).reshape(19, 2))
    with pytest.raises(UserError, match="19 rows are too few to learn from; at least 20 are needed"):
        load_dataset(str(path), seed=0, stream=stream)
    np.save(path, np.arange(2.0).reshape(1, 2))
    with pytest.raises(UserError, match="1 row is too few"):
        load_dataset(str(path), seed=0, stream=stream)


def test_rows_in_memory_are_as_many_unless_settings_are_given():
    x = torch.randn(19, 2, generator=torch.Generator().manual_seed(0))
    with pytest.raises(UserError, match=r"^19 rows are too few to learn from; at least 20 are needed"):
        pscd.fit(x)
    config = pscd.TrainConfig(
        updates=2, batch_size=4, energy=pscd.Architecture("quadratic"), chains=pscd.ChainSettings(buffer_size=8)
    )
    assert pscd.fit(x, config=config).shape == (2,)


class Stream(Dataset):
    def __getitem__(self, i):
        return torch.zeros(2), i

    def __len__(self):
        return 3


def test_other_datasets_are_refused_with_what_to_do():
    x = torch.zeros(3, 2)
    with pytest.raises(UserError, match=r"has 2 tensors; give that of the rows, such as dataset\.tensors\[0\]"):
        as_rows(TensorDataset(x, torch.arange(3)))
    hint = r"torch\.stack\(\[x for x, \*_ in dataset\]"
    for data, name in ((Stream(), "Stream"), (Subset(TensorDataset(x), [0, 1]), "Subset")):
        with pytest.raises(UserError, match=rf"a {name} may give anything; .*{hint}"):
            as_rows(data)
    assert as_rows(torch.stack([x for x, *_ in (Stream()[i] for i in range(3))])).shape == (3, 2)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([["a", "b"]], "must be numbers"),
        (np.zeros(3), r"one column is x\[:, None\]"),
        (np.zeros((0, 2)), "give rows"),
        ([[1.0, float("nan")]], "1 of 1 rows"),
    ],
)
def test_what_are_no_rows_is_told(rows, message):
    with pytest.raises(UserError, match=message):
        as_rows(rows)


def test_rows_keep_their_type_and_their_memory_where_they_can():
    for kind in (np.float32, np.float64):
        x = np.arange(6, dtype=kind).reshape(3, 2)
        assert as_rows(x).data_ptr() == x.ctypes.data
        assert as_rows(x[::-1]).flatten().tolist() == [4, 5, 2, 3, 0, 1]  # torch has no negative strides
        assert as_rows(x.astype(x.dtype.newbyteorder())).flatten().tolist() == list(range(6))
        x.flags.writeable = False
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert as_rows(x).dtype == torch.from_numpy(np.zeros(1, kind)).dtype
    assert as_rows(np.arange(6).reshape(3, 2)).dtype == torch.float64
    assert as_rows(torch.arange(6).view(3, 2)).dtype == torch.float32
    assert as_rows(torch.zeros(2, 2, dtype=torch.float16)).dtype == torch.float16
    assert not as_rows(torch.ones(2, 2, requires_grad=True)).requires_grad


def test_bad_rows_are_counted_unless_missing_values_are_allowed():
    x = torch.zeros(7, 2, 2)
    x[[0, 2, 6], 1, 0] = torch.tensor([torch.nan, torch.inf, -torch.inf])
    x[6, 0, 1] = torch.nan
    with pytest.raises(UserError, match="3 of 7 rows are missing or infinite"):
        as_rows(x)
    with pytest.raises(UserError, match="2 of 7 rows are infinite"):
        as_rows(x, missing=True)
    assert as_rows(x[:2], missing=True).isnan().sum() == 1


def test_a_fingerprint_is_of_all_rows_and_labels():
    x, label = torch.arange(8.0).view(4, 2), torch.arange(4)
    data = pscd.data.Dataset(x[:3], x[3:], None, label[:3], label[3:])
    total = zlib.crc32(label.numpy().tobytes(), zlib.crc32(x.numpy().tobytes()))
    assert data.fingerprint == f"{total:08x}"
    assert pscd.data.Dataset(x[:3], x[3:]).fingerprint == f"{zlib.crc32(x.numpy().tobytes()):08x}"
    across = pscd.data.Dataset(x.T, x[:0])
    assert across.fingerprint == f"{zlib.crc32(x.T.numpy().tobytes()):08x}"


def test_toys_are_drawn_from_streams_of_their_own():
    data = load_dataset("moon", seed=3, n=30)
    assert torch.equal(data.train, TOYS["moon"](30, generator(3, Streams.TOY_TRAIN)))
    assert torch.equal(data.held_out, TOYS["moon"](10_000, generator(3, Streams.TOY_HELD_OUT)))
    assert len(load_dataset("moon", seed=3).train) == 50_000


@pytest.mark.parametrize(("n", "held"), [(9, 0), (10, 1), (29, 2), (100_000, 10_000), (100_010, 10_000)])
def test_a_tenth_is_held_out_up_to_ten_thousand(n, held):
    first, rest = split_rows(n, 5)
    order = torch.randperm(n, generator=generator(5, Streams.SPLIT))
    assert torch.equal(first, order[:held])
    assert torch.equal(rest, order[held:])


def test_a_file_is_split_whether_it_is_streamed_or_not(tmp_path):
    x = np.arange(600.0).reshape(300, 2)
    np.save(tmp_path / "x.npy", x)
    held, kept = split_rows(300, 3)
    data = load_dataset(str(tmp_path / "x.npy"), seed=3, stream="no")
    assert torch.equal(data.train.double(), torch.from_numpy(x)[kept])
    assert torch.equal(data.held_out.double(), torch.from_numpy(x)[held])
    data = load_dataset(str(tmp_path / "x.npy"), seed=3, stream="yes")
    assert (len(data.train), len(data.held_out), data.stream.n_rows) == (270, 30, 270)
    both = torch.cat([data.train, data.held_out])[:, 0].double()
    assert torch.equal(both.sort().values, torch.from_numpy(x[:, 0]))


def test_what_images_and_toys_do_not_have_is_told(tmp_path):
    for name, what in (("digits", "images"), ("moon", "a toy"), (str(tmp_path), "images")):
        with pytest.raises(UserError, match=f"is {what} without column names; leave columns out"):
            load_dataset(name, seed=0, columns=["a"])
        with pytest.raises(UserError, match=f"is {what}, held in memory; leave stream out"):
            load_dataset(name, seed=0, stream="yes")
    np.save(tmp_path / "x.npy", np.zeros((30, 2)))
    for name in ("moon", str(tmp_path / "x.npy")):
        with pytest.raises(UserError, match="is not a set of images; leave the image size out"):
            load_dataset(name, seed=0, image_size=8)
    (tmp_path / "own").write_text("1,2")
    with pytest.raises(UserError, match=r"own: "):  # there, so that what is wrong with it is told
        load_dataset(str(tmp_path / "own"), seed=0)


@pytest.fixture
def people(tmp_path):
    """A table with text, dates, flags, an identifier, and missing and invalid cells."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "name": [f"person {i}" for i in range(100)],
            "height": rng.normal(170, 10, 100).round(1),
            "born": pd.date_range("1990-01-01", periods=100, freq="37D").strftime("%d.%m.%Y"),
            "smokes": rng.choice(["yes", "no"], 100),
            "city": rng.choice(["Oslo", "Rome", "Bonn"], 100),
        }
    ).astype({"height": object})
    frame.loc[3, "height"] = "?"
    frame.loc[5, "height"] = "tall"
    frame.to_csv(tmp_path / "people.csv", index=False)
    return tmp_path / "people.csv"


def test_a_table_as_it_comes_is_learnt_from_where_it_has_numbers_dates_and_flags(people):
    data = load_dataset(str(people), seed=0)
    assert data.columns == data.schema.names_out
    assert data.columns[:2] == ("height", "born")
    assert data.columns[-1] == "smokes"
    assert len(data.train) + len(data.held_out) == 100
    assert int(data.train.isnan().any(1).sum()) == 2
    assert not data.held_out.isnan().any()
    assert "not learnt from: name (identifier: different in (nearly) every row), city (a category)" in data.notes
    assert "cells that are missing: height 1" in data.notes
    assert "cells that are invalid, treated as missing: height 1" in data.notes
    rows = encode(read_table(people), data.schema).x
    assert sorted(rows[:, 1]) == sorted(torch.cat([data.train, data.held_out])[:, 1].tolist())


def test_columns_are_chosen_by_name_in_their_order(people):
    assert load_dataset(str(people), seed=0, columns=["smokes", "height"]).columns == ("smokes", "height")
    with pytest.raises(UserError, match=r"people\.csv: has no column 'age'; it has 'name', 'height'"):
        load_dataset(str(people), seed=0, columns=["age"])
    with pytest.raises(UserError, match=r"people\.csv: column 'city' holds no numbers, but for example 'Oslo'"):
        load_dataset(str(people), seed=0, columns=["city", "height"])
    read_table(people)[["name", "city"]].to_csv(people, index=False)
    with pytest.raises(UserError, match=r"no column of numbers or dates is left to learn from: name \(identifier"):
        load_dataset(str(people), seed=0)


def test_all_kinds_of_file_give_the_same_rows(tmp_path):
    x = np.random.default_rng(0).normal(size=(40, 3))
    frame = pd.DataFrame(x, columns=["a", "b", "c"])
    frame.to_csv(tmp_path / "x.csv", index=False)
    frame.to_parquet(tmp_path / "x.parquet")
    frame.to_excel(tmp_path / "x.xlsx", index=False)
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "x.npz", X=x, y=np.zeros(40))
    first = load_dataset(str(tmp_path / "x.npy"), seed=0)
    for suffix in ("csv", "parquet", "xlsx", "npz"):
        data = load_dataset(str(tmp_path / f"x.{suffix}"), seed=0)
        torch.testing.assert_close(data.train, first.train, rtol=1e-15, atol=1e-15)
        assert data.columns == (None if suffix == "npz" else ("a", "b", "c"))
    np.save(tmp_path / "images.npy", np.zeros((30, 1, 8, 8), np.uint8))
    assert load_dataset(str(tmp_path / "images.npy"), seed=0).train.shape == (27, 1, 8, 8)


def test_rows_for_a_model_are_taken_by_name(people):
    table = open_table(people)
    assert rows_of(table, ["smokes", "height"]).shape == (100, 2)
    assert rows_of(table, None, ids=["name", "city", "born"]).shape == (100, 2)
