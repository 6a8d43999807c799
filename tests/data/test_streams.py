"""Windows of a source: every row of an epoch once, from any place, in any number of processes."""

from itertools import chain

import numpy as np
import pytest
import torch

from pscd.data.chunks import ArrayChunks
from pscd.data.streams import Batch, ChunkedSource, check_finite, distinct, fingerprint, plan, sample_size
from pscd.errors import UserError
from pscd.rng import generator


class Tiny:
    """Rows 0, 1, 2, ... in chunks of given sizes."""

    shape, columns = (1,), None
    sampled, mixed, window = 3, 1, 4

    def __init__(self, sizes, **settings):
        self.sizes = np.array(sizes)
        self.first = np.cumsum(self.sizes) - self.sizes
        self.read_so_far = []
        vars(self).update(settings)

    def read(self, chunk, rows):
        self.read_so_far.append(chunk)
        rows = np.arange(self.sizes[chunk]) if rows is None else rows
        x = torch.from_numpy(self.first[chunk] + rows).double()[:, None]
        return Batch(x, x[:, 0].long() % 3)

    def where(self, chunk, row):
        return f"chunk {chunk}, row {row}"


def rows_of(source, n, position=0, rank=0, world=1, seed=0):
    """The first rows that a process reads from a place on, as numbers."""
    found = []
    for window in source.windows(seed, position, rank, world):
        assert torch.equal(window.label, window.x[:, 0].long() % 3)
        found += window.x[max(0, position - window.start) :, 0].tolist()
        if len(found) >= n:
            return found[:n]
    raise AssertionError


SIZES = {
    "small chunks": ([3, 1, 2, 5, 2, 4, 3], {}),
    "large chunks in shares": ([40, 7, 30], {"mixed": 2, "window": 9}),
    "one chunk": ([23], {"mixed": 8, "window": 5}),
    "an empty one": ([4, 0, 6], {}),
}


@pytest.mark.parametrize("name", SIZES)
def test_every_row_comes_once_in_an_epoch(name):
    sizes, settings = SIZES[name]
    n = sum(sizes)
    source = ChunkedSource(Tiny(sizes, **settings))
    rows = rows_of(source, 3 * n)
    epochs = [rows[i * n : (i + 1) * n] for i in range(3)]
    for epoch in epochs:
        assert sorted(epoch) == list(range(n))
        assert epoch != sorted(epoch)
    assert epochs[0] != epochs[1]
    assert rows_of(source, 3 * n, seed=1) != rows


@pytest.mark.parametrize("name", SIZES)
def test_processes_share_the_rows_of_an_epoch(name):
    sizes, settings = SIZES[name]
    for world in (2, 3):
        source = ChunkedSource(Tiny(sizes, **settings))
        epoch = plan(source.sizes, source.chunks.window, source.chunks.mixed, 0, 0, world)
        shares = [int(epoch.rows[rank::world].sum()) for rank in range(world)]
        assert min(shares) > 0
        rows = [rows_of(source, share, rank=rank, world=world) for rank, share in enumerate(shares)]
        assert sorted(chain(*rows)) == list(range(sum(sizes)))


@pytest.mark.parametrize("world", [1, 2])
def test_any_place_is_found_again_and_only_its_window_is_read(world):
    chunks = Tiny([3, 1, 2, 5, 2, 4, 3])
    rows = rows_of(ChunkedSource(chunks), 70, world=world)
    for position in (0, 1, 5, 19, 20, 21, 47):
        chunks.read_so_far.clear()
        found = next(ChunkedSource(chunks).windows(0, position, 0, world))
        assert found.start <= position < found.start + len(found.x)
        assert found.x[:, 0].tolist() == rows[found.start : found.start + len(found.x)]
        assert len(chunks.read_so_far) <= 4


def test_a_window_mixes_many_chunks_and_an_early_end_has_seen_all_groups():
    source = ChunkedSource(Tiny([100] * 12, mixed=4, window=20))
    windows = source.windows(0, 0)
    seen = set()
    for _ in range(3):  # of three groups
        chunks = {int(row) // 100 for row in next(windows).x[:, 0]}
        assert len(chunks) == 4
        seen |= chunks
    assert seen == set(range(12))
    assert max(len(next(windows).x) for _ in range(60)) <= 24


def test_rows_left_out_never_come_and_positions_stay():
    source = ChunkedSource(Tiny([5, 5, 5], mixed=2, window=4)).leaving_out(np.array([12, 3])).leaving_out(np.array([4]))
    left = [i for i in range(15) if i not in (3, 4, 12)]
    assert source.n_rows == 12
    assert sorted(rows_of(source, 12)) == left
    sample = source.sample(100, 0)
    assert sample.position.tolist() == sample.x[:, 0].tolist() == left


def test_a_sample_is_random_spread_out_and_the_same_again():
    source = ChunkedSource(Tiny([10] * 30))
    sample = source.sample(12, 5)
    assert sample.x[:, 0].tolist() == sample.position.tolist()
    assert len(set(sample.position.tolist())) == 12
    assert sample.position.tolist() != sorted(sample.position)
    assert {p // 100 for p in sample.position} == {0, 1, 2}  # one chunk of each third
    assert ChunkedSource(Tiny([10] * 30)).sample(12, 5).position.tolist() == sample.position.tolist()
    assert source.sample(12, 6).position.tolist() != sample.position.tolist()
    whole = source.sample(300, 0)
    assert whole.position.tolist() == list(range(300))


def test_a_fingerprint_changes_with_rows_and_sizes():
    source, other = (ChunkedSource(ArrayChunks(torch.arange(n).view(-1, 2).double())) for n in (40, 42))
    sample = source.sample(5, 0)
    assert fingerprint(source, sample) == fingerprint(source, sample)
    assert len({fingerprint(source, sample), fingerprint(other, sample), fingerprint(source, other.sample(5, 1))}) == 3


def test_bad_numbers_are_told_by_their_place():
    x = torch.zeros(4, 2)
    check_finite(x, str)
    for value in (float("nan"), float("inf"), -1e31):
        x[2, 1] = value
        with pytest.raises(UserError, match=r"^row 2 is missing, infinite or over 1e30"):
            check_finite(x, lambda i: f"row {i}")


def test_distinct_numbers_and_the_size_of_a_sample():
    for n, k in ((10, 10), (10_000, 50), (7, 3)):
        found = distinct(n, k, generator(0))
        assert len(found.unique()) == k
        assert 0 <= found.min() <= found.max() < n
    assert sample_size((10,)) == 200_000
    assert sample_size((3, 32, 32)) == 2**24 // 3072
