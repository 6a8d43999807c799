import pytest
import torch

from pscd.coordinates import Coordinates
from pscd.recipes.notes import notes_of
from pscd.rng import generator


def rows(n=600, d=4, seed=0):
    return torch.randn(n, d, generator=generator(seed), dtype=torch.float64)


def identity(d=4):
    return Coordinates.identity((d,))


def test_a_dense_group_that_was_ignored_is_named_with_its_share_and_place():
    """Junk all over the range, and a tenth of all rows tightly together, far away."""
    z = rows(1500)
    z[:300] = 20 * torch.rand(300, 4, generator=generator(9), dtype=torch.float64) - 10
    z[:150] = torch.tensor([17.0, -2.0, -2.0, -2.0]) + 0.15 * rows(150)
    clean = torch.ones(1500).double()
    clean[:300] = 0.0
    coordinates = Coordinates(torch.full((4,), 10.0).double(), torch.full((4,), 3.0).double())
    x = coordinates.inverse(z)
    names = ("height", "b", "c", "d")
    first, *groups = notes_of(x, z, clean, coordinates, junk=0.2, gamma=0.3, columns=names)
    assert first == "gamma 0.3: about 20.0% of the rows look like junk, and 20.0% are ignored"
    assert len(groups) == 1
    assert groups[0].startswith("a group of 10.0% of the rows, around height = 60.9, ")
    assert groups[0].endswith("was ignored; gamma 0 keeps it")


@pytest.mark.parametrize("everything", [True, False])
def test_nothing_left_to_compare_a_group_with(everything):
    x = rows()
    clean = torch.full((600,), 0.0 if everything else 1.0).double()
    assert len(notes_of(x, x, clean, identity(), junk=0.5, gamma=0.3)) == 1


def test_the_two_columns_that_tell_a_group_apart_most_are_named():
    x = rows(200, 3)
    x[180:] = torch.tensor([0.0, 9.0, -6.0]) + 1e-3 * x[180:]
    clean = torch.ones(200).double()
    clean[180:] = 0.4999
    kept = Coordinates(torch.zeros(2).double(), torch.ones(2).double(), used=torch.tensor([False, True, True]))
    _, group = notes_of(x, x[:, 1:], clean, kept, junk=0.1, gamma=0.3)
    assert group == "a group of 10.0% of the rows, around x1 = 9, x2 = -6, was ignored; gamma 0 keeps it"
    clean[180:] = 0.5
    first, group = notes_of(x, x[:, 1:], clean, kept, junk=0.1, gamma=0.3)
    assert first == "gamma 0.3: about 10.0% of the rows look like junk, and 0.0% are ignored"
    assert group == (
        "a group of 10.0% of the rows, around x1 = 9, x2 = -6, lies far from all others and counts as data; "
        "leave it out if it is junk"
    )


@pytest.mark.parametrize("ignored", [True, False])
def test_groups_of_a_long_table_are_found_wherever_they_stand_with_their_true_share(ignored):
    """At the end of a sorted table of 12,000 rows, of which a part is searched: rows of a group may be left out."""
    x = rows(12_000, 2)
    x[10_800:] = 20 + 0.3 * x[10_800:]
    clean = torch.ones(12_000).double()
    clean[10_800:] = 0.0 if ignored else 1.0
    _, group = notes_of(x, x, clean, identity(2), junk=0.1, gamma=0.3)
    assert group.startswith(("a group of 9.9% of the rows, around x", "a group of 10.0% of the rows, around x"))
    assert ("was ignored" in group) == ignored


def test_where_every_row_counts_far_groups_are_told():
    x = rows(500, 2)
    assert notes_of(x, x, None, identity(2)) == ("gamma 0: every row counts",)
    x[:50] = 15 + 0.1 * x[:50]
    first, group = notes_of(x, x, None, identity(2), columns=("a", "b"))
    assert first == "gamma 0: every row counts"
    assert group.startswith("a group of 10.0% of the rows, around ")


def test_columns_of_a_few_values_make_no_far_group():
    """A tenth of the rows has a flag; that is no place far away."""
    x = rows(500, 3)
    x[:, 2] = (torch.arange(500) < 50) * 5.0
    assert len(notes_of(x, x, None, identity(3))) == 1
    assert len(notes_of(x[:, 2:], x[:, 2:], None, identity(1))) == 1
    x[:, 2] += 0.01 * rows(500, 1, seed=2)[:, 0]
    assert len(notes_of(x, x, None, identity(3))) == 2


@pytest.mark.parametrize(("gamma", "told"), [(0.0, "gamma 0: "), (-0.5, "gamma -0.5: ")])
def test_the_gamma_is_told_where_every_row_counts(gamma, told):
    x = rows(50, 3)
    assert notes_of(x, x, None, identity(3), gamma=gamma)[0] == f"{told}every row counts"
