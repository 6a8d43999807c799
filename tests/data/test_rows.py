import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import Dataset, Subset, TensorDataset

import pscd
from pscd.data import TOYS, as_rows, load_dataset
from pscd.errors import UserError
from pscd.rng import generator


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
    model = pscd.fit(TensorDataset(x), small)
    assert model.shape == (2,)
    assert torch.equal(model.shift, pscd.fit(x, small).shift)


@pytest.mark.parametrize("stream", ["yes", "no"])
def test_twenty_rows_are_the_fewest_to_learn_from(tmp_path, stream):
    path = tmp_path / "x.npy"
    np.save(path, np.arange(40.0).reshape(20, 2))
    assert len(load_dataset(str(path), seed=0, stream=stream).train) == 18
    np.save(path, np.arange(38.0).reshape(19, 2))
    with pytest.raises(UserError, match="19 rows are too few to learn from; at least 20 are needed"):
        load_dataset(str(path), seed=0, stream=stream)


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
