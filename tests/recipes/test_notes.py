import pytest
import torch

from pscd.coordinates import Coordinates
from pscd.recipes.notes import far_groups, notes_of
from pscd.rng import generator


def normal(n, d=2, seed=0):
    return torch.randn(n, d, generator=generator(seed), dtype=torch.float64)


def identity(d):
    return Coordinates.identity((d,))


def test_shares_of_contamination_and_of_ignored_rows():
    z = normal(1000)
    clean = torch.ones(1000)
    clean[:180] = 0.4
    (note,) = notes_of(z, z, clean, identity(2), contamination=0.2, gamma=0.2)
    assert note == "gamma 0.2: about 20.0% of the rows look like contamination, and 18.0% are ignored"


def test_rows_that_all_count_and_rows_out_of_reach():
    z = normal(1000)
    assert notes_of(z, z, None, identity(2)) == ("gamma 0: every row counts",)
    clean = torch.ones(1000)
    clean[7] = 0
    assert notes_of(z, z, clean, identity(2)) == ("gamma 0: 1 of the rows lie too far from the others and are ignored",)


def test_a_far_group_is_named_by_the_columns_that_tell_it_apart():
    """In the units of the data, without columns that the network does not see; a column of few values is no place."""
    z = normal(1000, 3)
    z[:100] = torch.tensor([0.0, 30.0, -20.0]) + 0.1 * z[:100]
    x = torch.cat([z[:, :1], torch.full((1000, 1), 7.0).double(), 10 * z[:, 1:]], 1)
    coordinates = Coordinates.robust(x)
    note = notes_of(x, z, None, coordinates, columns=("a", "constant", "b", "c"))[1]
    assert note == (
        "a group of 10.0% of the rows, around b = 300, c = -200, lies far from all others and counts as data; "
        "leave it out if it is contamination"
    )
    few = (torch.arange(1000) % 3)[:, None].double()
    assert len(notes_of(few, 100 * few, None, identity(1))) == 1


def test_far_groups_are_found_row_by_row_and_several_by_size():
    z = normal(1000)
    z[:50, 0] += 40
    z[50:150, 1] += 40
    groups = far_groups(z)
    assert [group.tolist() for group in groups] == [list(range(50, 150)), list(range(50))]


@pytest.mark.parametrize("kind", ["one mode", "two halves", "heavy tails", "small group"])
def test_no_far_groups(kind):
    z = normal(1000)
    if kind == "two halves":
        z[::2] += 30
    elif kind == "heavy tails":
        z = z / normal(1000, 1, seed=1).abs().clamp(min=0.05)
    elif kind == "small group":
        z[:15] += 40
    assert far_groups(z) == []
