"""Iterables of batches as a source."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from pscd.data.batches import BatchSource
from pscd.errors import UserError

BATCHES = [torch.arange(start, start + 4.0)[:, None] for start in range(0, 40, 4)]


def rows_of(source, n, position=0, **share):
    found = []
    for window in source.windows(0, position, **share):
        found += window.x[max(0, position - window.start) :, 0].tolist()
        if len(found) >= n:
            return found[:n]
    raise AssertionError


def small(batches, **settings):
    source = BatchSource(batches, **settings)
    source.window = 10
    return source


@pytest.mark.parametrize(
    "batches", [BATCHES, lambda: iter(BATCHES), [(b, b) for b in BATCHES]], ids=["list", "function", "tuples"]
)
def test_every_row_comes_once_and_any_place_is_found_again(batches):
    rows = rows_of(small(batches), 80)
    assert sorted(rows[:40]) == sorted(rows[40:]) == list(range(40))
    assert rows[:40] != rows[40:]
    assert rows[:12] != sorted(rows[:12])
    assert set(rows[:12]) == set(range(12))  # a window of three batches
    for position in (3, 12, 41):
        assert rows_of(small(batches), 20, position) == rows[position : position + 20]


def test_processes_take_turns_with_batches():
    shares = [rows_of(small(BATCHES), 20, rank=rank, world=2) for rank in range(2)]
    assert sorted(shares[0] + shares[1]) == list(range(40))


def test_a_loader_that_shuffles_does_so_by_the_seed_and_leaves_random_numbers_alone():
    loader = DataLoader(TensorDataset(torch.arange(40.0)[:, None], torch.arange(40)), batch_size=4, shuffle=True)
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    rows = rows_of(small(loader), 80)
    assert torch.equal(torch.rand(1), expected)
    assert rows == rows_of(small(loader), 80)
    assert sorted(rows[40:]) == list(range(40))
    assert set(rows[:12]) != set(range(12))
    window = next(small(loader, labelled=True).windows(0, 0))
    assert torch.equal(window.label, window.x[:, 0].long())


def test_a_sample_is_a_part_of_the_first_rows_and_can_be_left_out():
    source = BatchSource(BATCHES)
    sample = source.sample(10, 0)
    assert len(set(sample.position.tolist())) == 10
    assert sample.x[:, 0].tolist() == sample.position.tolist() != sorted(sample.position)
    assert source.sample(100, 0).position.tolist() == list(range(40))
    rest = source.leaving_out(sample.position)
    assert sorted([*rows_of(rest, 30), *sample.position]) == list(range(40))
    counts = np.zeros(40)
    for seed in range(200):
        counts[source.sample(10, seed, seed).position] += 1
    assert abs(counts.mean() - 50) < 1e-9
    assert abs(counts - 50).max() < 5 * (200 * 0.25 * 0.75) ** 0.5  # five standard deviations


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        (iter(BATCHES), "a list_iterator can be read once only"),
        ([], "gives no batches"),
        ([["a"]], "a batch must be rows of numbers"),
        ([torch.zeros(2, 2), torch.zeros(2, 3)], "rows have the shape"),
        ([torch.tensor([[1.0], [float("nan")]])], "row 2 of the batches is missing"),
    ],
)
def test_what_cannot_be_streamed_is_told(batches, message):
    with pytest.raises(UserError, match=message):
        next(BatchSource(batches).windows(0, 0))
