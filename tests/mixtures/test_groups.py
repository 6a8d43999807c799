import torch

from pscd.mixtures.groups import LARGEST_FAR, SMALLEST_GROUP, _linked, dense_groups, far_groups
from pscd.rng import generator


def table(sizes, n=1000, d=2):
    """A standard Gaussian, dense groups at places 12 apart, and which rows are in a group."""
    z = torch.randn(n, d, generator=generator(0), dtype=torch.float64)
    group = torch.zeros(n, dtype=torch.long)
    first = 0
    for j, size in enumerate(sizes, start=1):
        z[first : first + size] = 0.03 * z[first : first + size]
        z[first : first + size, 0] += 12 * j
        group[first : first + size] = j
        first += size
    return z, group


def test_a_dense_group_is_found_row_by_row():
    z, group = table([100])
    (found,) = dense_groups(z, group == 1)
    assert found.sort().values.tolist() == list(range(100))


def test_several_are_told_apart_and_the_largest_comes_first():
    z, group = table([60, 150, 90])
    found = dense_groups(z, group > 0)
    assert [len(rows) for rows in found] == [150, 90, 60]
    for rows, name in zip(found, (2, 3, 1), strict=True):
        assert (group[rows] == name).all()


def test_thin_junk_is_no_group():
    z, _ = table([])
    junk = torch.arange(1000) < 100
    z[junk] = 20 * torch.rand(100, 2, generator=generator(1), dtype=torch.float64) - 10
    assert dense_groups(z, junk) == []


def test_a_group_must_be_worth_a_word():
    """Of 4,000 rows 80; the neighbour that counts is number 63, so that density is no reason to leave them out."""
    few = int(SMALLEST_GROUP * 4000) - 1
    for size, expected in ((few, []), (few + 1, [few + 1])):
        z, group = table([size], n=4000)
        assert [len(rows) for rows in dense_groups(z, group == 1)] == expected


def test_nothing_and_everything_ignored():
    z, _ = table([])
    assert dense_groups(z, torch.zeros(1000, dtype=torch.bool)) == []
    assert dense_groups(z, torch.ones(1000, dtype=torch.bool)) == []


def test_at_most_three():
    z, group = table([60] * 5)
    assert len(dense_groups(z, group > 0)) == 3


def test_rows_along_a_long_chain_are_one_group():
    near = (torch.arange(500)[:, None] - torch.arange(500)).abs() <= 1
    near[250, 249] = near[249, 250] = False
    order = torch.randperm(500, generator=generator(0))
    name = _linked(near[order][:, order])
    expected = order >= 250
    assert len(name[expected].unique()) == len(name[~expected].unique()) == 1
    assert len(name.unique()) == 2


def test_a_group_has_ten_rows_in_a_small_table():
    """Of 60 rows neighbour number 7 counts, so that nine or ten rows together are dense, and ten are enough."""
    for size, expected in ((9, []), (10, [10])):
        z, group = table([size], n=60)
        assert [len(rows) for rows in dense_groups(z, group == 1)] == expected


def test_a_far_group_is_found_row_by_row_and_several_by_size():
    z, group = table([100])
    (found,) = far_groups(z)
    assert found.tolist() == list(range(100))
    z, group = table([60, 150, 90])
    assert [group[rows].unique().tolist() for rows in far_groups(z)] == [[2], [3], [1]]
    z, _ = table([60] * 5)
    assert len(far_groups(z)) == 3


def test_one_mode_two_halves_and_thin_tails_are_no_far_groups():
    z, _ = table([])
    assert far_groups(z) == []
    assert far_groups((2 * z).sinh()) == []
    z[::2, 0] += 30
    assert far_groups(z) == []  # neither half is an oddity
    z[:300, 0] += 1000
    assert [len(rows) for rows in far_groups(z)] == [300]


def test_far_means_farther_than_typical_rows_are_from_the_middle():
    """On a line, evenly from 0 to 1: the median distance from the middle is a quarter, with the group nearly so."""
    line = torch.linspace(0, 1, 950, dtype=torch.float64)
    for gap, expected in ((0.24, 0), (0.30, 1)):
        z = torch.cat([line, torch.full((50,), 1 + gap).double()])[:, None]
        typical = (z - z.median(0).values).abs().median()
        assert (gap > typical) == bool(expected)
        assert len(far_groups(z)) == expected


def test_far_groups_are_worth_a_word_and_not_the_majority():
    few, many = int(SMALLEST_GROUP * 1000), int(LARGEST_FAR * 1000)
    for size, expected in ((few - 1, 0), (few, 1), (many, 1), (many + 1, 0)):
        z, _ = table([size])
        assert len(far_groups(z)) == expected
