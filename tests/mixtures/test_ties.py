import pytest
import torch

from pscd.mixtures import dequantise
from pscd.mixtures.background import GAUSSIAN_IQR
from pscd.mixtures.ties import Ties, _cells, _deviation, _nearest
from pscd.rng import generator


def normal(n, d=1, seed=0):
    return torch.randn(n, d, generator=generator(seed), dtype=torch.float64)


def test_continuous_columns_are_left_bit_for_bit():
    x = normal(500, 3)
    assert torch.equal(dequantise(x, generator(0)), x)
    x[:, 1] = x[:, 1].round()
    spread = dequantise(x, generator(0))
    assert torch.equal(spread[:, [0, 2]], x[:, [0, 2]])
    assert not torch.equal(spread[:, 1], x[:, 1])


def test_a_few_ties_do_not_make_a_column_rounded():
    x = normal(1000)
    x[:9] = 0.5
    assert torch.equal(dequantise(x, generator(0)), x)
    x[:10] = 0.5
    assert not torch.equal(dequantise(x, generator(0)), x)


@pytest.mark.parametrize("unit", [1.0, 0.25, 1000.0])
def test_values_on_a_grid_stay_in_their_cells(unit):
    """Poisson counts: no value is so common that it asks for more than its cell."""
    counts = torch.poisson(torch.full((2000, 1), 6.0, dtype=torch.float64), generator=generator(0))
    x = unit * counts
    spread = dequantise(x, generator(1))
    # Values that occur once stay where they are, and those of the cells of width 1 at most half away.
    assert torch.equal((spread / unit).round(), counts)
    assert len(spread.unique()) > 1900


def test_a_cell_reaches_half_way_to_the_nearer_neighbour():
    """Values 0, 1, 5, 6.5 and so on: cells of width 1, 1, 1.5, 1.5; only 10.5 and 11 are so common to ask for more."""
    values = torch.tensor([0.0, 1.0, 5.0, 6.5, 10.5, 11.0, 15.0, 16.0], dtype=torch.float64)
    width = torch.tensor([1.0, 1.0, 1.5, 1.5, 0.5, 0.5, 1.0, 1.0], dtype=torch.float64)
    x = values.repeat(4000)[:, None]
    offset = (dequantise(x, generator(0)) - x).view(4000, 8).abs().amax(0)
    quartiles = x.flatten().quantile(torch.tensor([0.25, 0.75]).double())
    least = float(quartiles.diff()) / GAUSSIAN_IQR / 8
    assert 0.5 < least < 1
    # The largest of 4,000 uniform numbers is within .5 % of the edge, but for a chance of e^-20.
    torch.testing.assert_close(offset, width.clamp(min=least) / 2, rtol=5e-3, atol=0)


def test_the_noise_fills_the_cell_evenly():
    x = (torch.arange(40_000) % 4).double()[:, None]
    offset = (dequantise(x, generator(0)) - x).flatten()
    # Uniform on (-1/2, 1/2): mean 0, variance 1/12 with a standard error of 1/12 sqrt(.8 / n).
    assert offset.abs().max() <= 0.5
    assert offset.mean().item() == pytest.approx(0, abs=5 * (1 / 12 / 40_000) ** 0.5)
    assert offset.var().item() == pytest.approx(1 / 12, abs=5 / 12 * (0.8 / 40_000) ** 0.5)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_a_spike_gets_a_density_that_is_bounded(share):
    """A spike at 0 among values 1e-4 apart: its density is at most 1 over the deviation, as the bulk's is."""
    n = 4000
    x = (1e4 * normal(n)).round() / 1e4
    x[: int(share * n)] = 0.0
    spread = dequantise(x, generator(0)).flatten()
    inside = spread[: int(share * n)]
    width = inside.max() - inside.min()
    quartiles = x.flatten().quantile(torch.tensor([0.25, 0.75]).double())
    deviation = float(quartiles.diff()) / 1.349
    if deviation == 0:  # then it is the distance of the others, half a normal number: between .5 and 1
        assert share / width.item() < 2
    else:
        # All of the spike lies in a width of at least share times deviation; the largest and the smallest of n
        # uniform numbers leave out 2 / n of it on average.
        assert width.item() == pytest.approx(share * deviation, rel=0.05)


def test_a_gross_outlier_does_not_widen_a_spike():
    """Most rows share one value: what the others' distance is must not follow a slip of the pen."""
    x = normal(1000).abs()
    x[:900] = 0.0
    clean = dequantise(x, generator(0))[:900].abs().max()
    x[-1] = 1e9
    assert dequantise(x, generator(0))[:900].abs().max() < 1.1 * clean


def test_a_constant_column_and_one_row():
    x = torch.full((50, 1), 3.0, dtype=torch.float64)
    assert torch.equal(dequantise(x, generator(0)), x)
    assert torch.equal(dequantise(x[:1], generator(0)), x[:1])


def test_the_generator_decides_and_the_global_one_is_left_alone():
    x = normal(300, 2).round()
    before = torch.get_rng_state()
    first, again, other = (dequantise(x, generator(seed)) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_the_deviation_of_a_column_that_mostly_holds_one_value_is_that_of_the_others():
    x = torch.tensor([5.0] * 16 + [7.0, 9.0, 4.0, 1.0, 15.0]).double()
    assert _deviation(x, torch.tensor(5.0).double()) == 4.0  # the median of 2, 4, 1, 4 and 10
    near = torch.tensor([5.0] * 9 + [4.5, 5.5, 8.0]).double()
    assert _deviation(near, torch.tensor(5.0).double()) == 0.5  # however near they are
    assert _deviation(normal(10_000)[:, 0], torch.tensor(0.0).double()) == pytest.approx(1, abs=0.06)


def test_the_nearest_value_of_any_number():
    """Also beyond the first and the last; half-way the upper one."""
    values = torch.tensor([0.0, 1.0, 4.0]).double()
    x = torch.tensor([-9.0, 0.0, 0.4, 0.5, 0.6, 1.0, 2.4, 2.5, 2.6, 4.0, 99.0]).double()
    assert _nearest(values, x).tolist() == [0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]


def test_cells_by_hand():
    """Values 0, 1, 4, 4.5 and 9, all but the last tied; a cell reaches half-way to the nearer neighbour."""
    x = torch.tensor([0.0] * 3 + [1.0] * 2 + [4.0] * 2 + [4.5] * 2 + [9.0]).double()
    values, widths = _cells(x)
    assert values.tolist() == [0, 1, 4, 4.5, 9]
    quartiles = torch.quantile(x, torch.tensor([0.25, 0.75]).double())
    deviation = float(quartiles[1] - quartiles[0]) / 1.349
    least = [n / 10 * deviation for n in (3, 2, 2, 2)]
    assert widths.tolist() == pytest.approx(
        [max(1.0, least[0]), max(1.0, least[1]), max(0.5, least[2]), max(0.5, least[3]), 0]
    )
    assert _cells(torch.ones(4).double()) is None


@pytest.mark.parametrize("junk", [0.05, 0.1, 0.2])
def test_junk_between_the_marks_of_a_grid_does_not_narrow_its_cells(junk):
    """Counts of mean 20: no mark is so common that it asks for more than its cell."""
    counts = torch.poisson(torch.full((4000,), 20.0, dtype=torch.float64), generator=generator(0))
    n = int(junk * 4000)
    x = torch.cat([counts[n:], 50 * torch.rand(n, generator=generator(1), dtype=torch.float64)])
    values, widths = _cells(x)
    _, alone = _cells(counts[n:])
    assert alone.max() < 1.5
    often = torch.arange(12.0, 29.0).double()  # each with more rows than there is junk beside it
    at = torch.searchsorted(values, often)
    assert torch.equal(values[at], often)
    assert widths[at].tolist() == pytest.approx([1.0] * 17)
    assert (widths[values != values.round()] == 0).all()


@pytest.mark.parametrize("often", [40, 39])
def test_a_cell_holds_no_more_of_what_occurs_once_than_rows_on_the_marks_beside_it(often):
    """Marks at 0 and 10, the second with as many rows as given, and 40 other values in either half between them."""
    others = torch.cat([torch.arange(1, 41).double() / 20, 8 + torch.arange(40).double() / 20])
    x = torch.cat([torch.zeros(400).double(), torch.full((often,), 10.0).double(), others])
    values, widths = _cells(x)
    least = 400 / len(x) * _deviation(x, torch.tensor(0.0).double())
    assert 0.05 < least < 9
    assert widths[values == 0].item() == pytest.approx(10.0 if often == 40 else least)


def test_a_column_with_many_values_that_occur_once_is_no_grid():
    for n, width in ((100, 1.0), (101, 0.01)):
        marks = torch.arange(300).double() % 30
        x = torch.cat([marks, 1000 + torch.arange(n - 1).double() ** 1.5, torch.tensor([0.01]).double()])
        values, widths = _cells(x)
        least = 10 / len(x) * _deviation(x, torch.tensor(0.0).double())
        assert widths[values == 0].item() == pytest.approx(max(width, least))
        assert least < 1


def test_one_mark_among_other_values_has_their_gaps():
    x = torch.cat([torch.zeros(20), torch.tensor([1.0, 3.0, 7.0])]).double()
    assert _cells(x)[1].tolist() == pytest.approx([max(1.0, 20 / 23 * 3.0), 0, 0, 0])


def test_other_rows_are_spread_by_the_cell_of_the_nearest_value():
    ties = Ties((torch.tensor([0.0, 10.0]).double(), None), (torch.tensor([2.0, 4.0]).double(), None))
    x = torch.tensor([[1.0, 5.0], [9.0, 6.0]]).double()
    noise = torch.rand(2, generator=generator(3), dtype=torch.float64) - 0.5
    expected = torch.stack([x[:, 0] + torch.tensor([2.0, 4.0]) * noise, x[:, 1]], 1)
    assert torch.equal(ties.spread(x, generator(3)), expected)
