import math

import pytest
import torch

from pscd.coordinates import Coordinates, spaced_rows
from pscd.rng import generator


def test_standardisation_is_mean_and_deviation_of_clean_columns_and_one_slip_changes_nothing():
    x = torch.randn(1000, 2, generator=generator(0)) * torch.tensor([1.0, 50.0]) + 7
    result = Coordinates.standard(x)
    shift, scale = result.shift, result.scale
    torch.testing.assert_close(shift, x.double().mean(0))
    torch.testing.assert_close(scale, x.double().std(0))
    x[3, 1] = 1e12
    dirty = Coordinates.standard(x)
    dirty_shift, dirty_scale = dirty.shift, dirty.scale
    torch.testing.assert_close(dirty_shift, shift, rtol=0.02, atol=0.2)
    torch.testing.assert_close(dirty_scale, scale, rtol=0.01, atol=0)


def test_there_and_back_in_float64():
    x = 1.7e9 + torch.arange(6.0).double().view(3, 2)  # time stamps, whose seconds float32 would lose
    result = Coordinates.standard(x)
    assert torch.allclose(result.inverse(result.forward(x, torch.float64)), x, rtol=0, atol=1e-6)
    assert result.forward(x).dtype == torch.float32
    assert torch.equal(Coordinates.identity((2,)).forward(x, torch.float64), x)


# --- robust ---


def gaussian(n=4000, d=3):
    return torch.randn(n, d, generator=generator(0), dtype=torch.float64)


def test_formula_by_hand():
    columns = Coordinates.robust(torch.tensor([[0.0], [1.0], [2.0], [3.0], [4.0]], dtype=torch.float64))
    scale = (3 - 1) / 1.349
    z = columns.forward(torch.tensor([[2.0], [5.0]], dtype=torch.float64), torch.float64)
    assert z.flatten().tolist() == pytest.approx([0.0, 3 * math.asinh(3 / scale / 3)])


def test_inverse_and_slope():
    x = gaussian() * 5 + 1
    x[:, 1] = 7.0
    columns = Coordinates.robust(x)
    assert columns.used.tolist() == [True, False, True]
    z = columns.forward(x, torch.float64).requires_grad_()
    back = columns.inverse(z.detach())
    torch.testing.assert_close(back, x)
    x.requires_grad_()
    slopes = torch.autograd.grad(columns.forward(x, torch.float64).sum(), x)[0][:, columns.used]
    torch.testing.assert_close(columns.log_slope(x), slopes.log().sum(1))


def test_gross_outliers_move_the_bulk_little():
    x = gaussian()
    dirty = x.clone()
    dirty[:200] = 1e12  # one row in twenty
    clean = Coordinates.robust(x).forward(x[200:])
    spoilt = Coordinates.robust(dirty).forward(x[200:])
    assert (clean - spoilt).abs().max() < 0.3
    assert torch.isfinite(Coordinates.robust(dirty).forward(dirty)).all()


@pytest.mark.parametrize("share", [0.001, 0.01, 0.2])
def test_a_column_with_one_common_value_is_scaled_like_a_binary_one(share):
    x = torch.zeros(10_000, 1, dtype=torch.float64)
    n = int(share * len(x))
    x[:n] = 3.0
    expected = 3.0 * share**0.5
    assert float(Coordinates.robust(x).scale) == pytest.approx(expected)
    x[0] = 1e9  # the standard deviation would follow this
    assert float(Coordinates.robust(x).scale) == pytest.approx(expected)


@pytest.mark.parametrize("share", [0.5, 0.6, 0.74, 0.76, 0.9])
def test_a_column_with_many_zeros_keeps_its_scale(share):
    rng = generator(0)
    x = torch.empty(20_000, 1, dtype=torch.float64).exponential_(generator=rng)
    x[torch.rand(x.shape, generator=rng) < share + 0.01] = 0
    columns = Coordinates.robust(x)
    assert columns.spiked.all()
    assert float(columns.scale) == pytest.approx(math.log(2) * (1 - share - 0.01) ** 0.5, rel=0.1)


def test_a_table_without_a_column_that_varies():
    with pytest.raises(ValueError, match="constant"):
        Coordinates.robust(torch.ones(5, 2, dtype=torch.float64))


def test_there_and_back_to_nine_digits_where_tails_are_drawn_in():
    x = 1e3 * gaussian().sinh() + 5
    x[0] = 1e7
    columns = Coordinates.robust(x)
    back = columns.inverse(columns.forward(x, torch.float64))
    torch.testing.assert_close(back, x, rtol=1e-9, atol=1e-9)


def test_the_slope_is_that_of_finite_differences_and_of_a_straight_line():
    x = 4 * gaussian(50).sinh()
    columns, h = Coordinates.robust(x), 1e-5
    per_column = (columns.forward(x + h, torch.float64) - columns.forward(x - h, torch.float64)) / (2 * h)
    torch.testing.assert_close(columns.log_slope(x), per_column.log().sum(1), rtol=1e-6, atol=1e-6)
    straight = Coordinates.robust(x, tails=False)
    torch.testing.assert_close(straight.log_slope(x), -straight.scale.log().sum().expand(50))
    assert torch.equal(Coordinates.identity((3,)).log_slope(x), torch.zeros(50).double())


def test_constant_columns_are_put_back_wherever_they_stand():
    x = gaussian(30, 5)
    x[:, 0], x[:, 3] = -2.5, 7.0
    columns = Coordinates.robust(x)
    z = torch.zeros(4, 3, dtype=torch.float64)
    back = columns.inverse(z)
    assert back[:, [0, 3]].tolist() == [[-2.5, 7.0]] * 4
    torch.testing.assert_close(back[:, [1, 2, 4]], columns.shift.expand(4, 3))
    again = Coordinates(**columns.tensors()).to(torch.device("cpu"))
    assert torch.equal(again.forward(x), columns.forward(x))
    assert torch.equal(again.inverse(z), back)


def test_robust_columns_ignore_missing_values():
    """Each column is as if its missing values had never been there; NaN stays NaN, there and back."""
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(500, 3, generator=rng, dtype=torch.float64)
    x[:, 1] = (x[:, 1] > 1).double()  # mostly one value
    missing = torch.rand(500, 3, generator=rng) < 0.3
    gaps = x.masked_fill(missing, torch.nan)
    result = Coordinates.robust(gaps)
    for j in range(3):
        alone = Coordinates.robust(x[~missing[:, j]][:, [j]])
        assert torch.equal(result.shift[[j]], alone.shift)
        assert torch.equal(result.scale[[j]], alone.scale)
        assert torch.equal(result.linear[[j]], alone.linear)
    z = result.forward(gaps, torch.float64)
    assert torch.equal(z.isnan(), missing)
    torch.testing.assert_close(result.inverse(z), gaps, equal_nan=True)


def test_a_column_with_one_value_or_none_beside_gaps_is_left_out():
    x = torch.tensor([[1.0, torch.nan, 5.0], [2.0, torch.nan, torch.nan], [4.0, torch.nan, 5.0]], dtype=torch.float64)
    result = Coordinates.robust(x)
    assert result.used.tolist() == [True, False, False]
    assert result.constants[2] == 5.0


def test_integers_are_standardised_too():
    result = Coordinates.standard(torch.arange(12).view(6, 2))
    assert result.shift.tolist() == [5.0, 6.0]
    torch.testing.assert_close(result.scale, torch.full((2,), 14.0).double().sqrt())
    assert result.scale.dtype == torch.float64


# --- bent ---


def log_normal(n=20_001, seed=0):
    """Columns with a long tail above, below, and none; shifts and scales of their own."""
    z = torch.randn(n, 3, generator=generator(seed), dtype=torch.float64)
    return torch.stack([5 + 2 * z[:, 0].exp(), -3 - 7 * (1.5 * z[:, 1]).exp(), 4 * z[:, 2]], 1)


@pytest.mark.parametrize(("sigma", "sign"), [(1.0, 1), (1.5, -1)])
def test_bent_coordinates_are_the_logarithm_of_log_normal_columns(sigma, sign):
    z = torch.linspace(-1.5, 1.5, 2001, dtype=torch.float64)[:, None]
    x = 3 + sign * 7 * (sigma * z).exp()
    columns = Coordinates.robust(x, tails=False).unskewed(x)
    skew = float(columns.skew)
    assert skew == pytest.approx(sign * float(columns.scale) / 7)  # so that 1 + skew u = (x - 3) / (sign 7)
    # asinh(v) = log(2 v) + 1 / (4 v^2) + ..., with v = exp(sigma z) / 0.02
    error = 0.02**2 / 4 * (2 * sigma * 1.5 * torch.ones(1)).exp().item() * 1.1 / abs(skew)
    torch.testing.assert_close(columns.forward(x, torch.float64), sigma * z / skew, rtol=4e-4, atol=error)
    few = Coordinates.robust(x[::400])
    assert few.unskewed(x[::400]) is few  # of six rows it may be chance


def test_columns_without_skew_stay_as_they_are():
    x = log_normal()
    straight = Coordinates.robust(x, tails=False)
    bent = straight.unskewed(x)
    assert (bent.skew[0] > 0, bent.skew[1] < 0, bent.skew[2] == 0) == (True, True, True)
    assert torch.equal(bent.forward(x)[:, 2], straight.forward(x)[:, 2])


def test_skew_that_may_be_chance_is_none():
    n = 1000
    x = torch.randn(n, 200, generator=generator(3), dtype=torch.float64)
    skew = Coordinates.robust(x).unskewed(x).skew
    assert 0 < (skew != 0).sum() < 24  # two standard errors leave 4.6 % of 200, with a deviation of 3
    assert (skew[skew != 0].abs() > 8.5 / n**0.5).all()


def test_columns_with_a_quartile_at_the_median_are_not_bent():
    x = torch.cat([torch.zeros(400), torch.arange(1.0, 1000)]).double()[:, None]
    result = Coordinates.robust(torch.cat([x, x.square() + 1], 1)[::2])
    spiked = torch.cat([torch.zeros(600), torch.arange(1.0, 400)]).double()[:, None]
    assert result.unskewed(torch.cat([x, x.square() + 1], 1)[::2]).skew[1] > 0
    straight = Coordinates.robust(spiked)
    assert straight.unskewed(spiked) is straight


def test_a_column_of_two_values_is_linear_and_one_of_three_is_not():
    x = gaussian(200, 4)
    x[:, 0] = 7.0  # not seen
    x[:, 1] = 5 * (x[:, 1] > 1.5) - 2.0
    x[:, 2] = (x[:, 2] > 1.5) * 1.0 + (x[:, 2] > 2)
    result = Coordinates.robust(x)
    straight = result.linear_if_binary(x)
    rows = torch.tensor([[7.0, 40.0, 1.0, 20.0]]).double()
    expected = result.forward(rows, torch.float64)
    expected[0, 0] = (40 + 2) / result.scale[0]
    assert result.forward(rows)[0, 0] < 0.5 * expected[0, 0]
    torch.testing.assert_close(straight.forward(rows, torch.float64), expected)
    torch.testing.assert_close(straight.inverse(expected), rows)
    bare = Coordinates.robust(x, tails=False)
    assert bare.linear_if_binary(x) is bare


@pytest.mark.parametrize("tails", [True, False])
def test_bent_coordinates_there_and_back_with_their_slope(tails):
    x = log_normal(301)
    x = torch.cat([x, torch.tensor([[-100.0, 100.0, 50.0], [5.0, -3.0, 0.0]]).double()])  # beyond both ends, and there
    columns = Coordinates.robust(x, tails=tails).unskewed(x)
    assert (columns.skew[:2] != 0).all()
    z = columns.forward(x, torch.float64)
    assert (z.sort(0).indices == x.sort(0).indices).all()  # every number has a place, in the same order
    torch.testing.assert_close(columns.inverse(z), x, rtol=1e-9, atol=1e-9)
    rows = x.clone().requires_grad_()
    slopes = torch.autograd.grad(columns.forward(rows, torch.float64).sum(), rows)[0]
    torch.testing.assert_close(columns.log_slope(x), slopes.log().sum(1))
    again = Coordinates(**columns.tensors())
    assert torch.equal(again.forward(x), columns.forward(x))
    middle = columns.shift[None]
    torch.testing.assert_close(columns.forward(middle, torch.float64), torch.zeros_like(middle), atol=1e-12, rtol=0)
    torch.testing.assert_close(columns.log_slope(middle), -columns.scale.log().sum()[None])
    torch.testing.assert_close(columns.log_nonlinear_slope(x), columns.log_slope(x) + columns.scale.log().sum())


def test_bent_coordinates_ignore_missing_values_and_constant_columns():
    x = log_normal(2000)
    x[::3, 0] = torch.nan
    wide = torch.cat([x[:, :1], torch.full((2000, 1), 4.0).double(), x[:, 1:]], 1)
    columns, alone = Coordinates.robust(wide), Coordinates.robust(x[~x[:, 0].isnan()][:, :1])
    assert columns.unskewed(wide).skew[0] == alone.unskewed(x[~x[:, 0].isnan()][:, :1]).skew
    gap = wide[:1].clone()
    slope = columns.unskewed(wide).log_slope(gap)
    assert slope.isfinite().all()
    known = columns.unskewed(wide)
    rest = Coordinates(known.shift[1:], known.scale[1:], known.linear[1:], skew=known.skew[1:])
    torch.testing.assert_close(slope, rest.log_slope(gap[:, [2, 3]]))


def test_the_standard_coordinates_by_hand():
    """Quartiles 1 and 3: values from -19 to 23 count, ends included."""
    x = torch.tensor([0.0, 1.0, 2.0, 3.0, 4.0])[:, None].repeat(20, 1).double()
    for value, counts in ((23.0, True), (23.5, False), (-19.0, True), (-19.5, False)):
        rows = torch.cat([x, torch.tensor([[value]]).double()])
        stored = rows if counts else x
        result = Coordinates.standard(rows)
        torch.testing.assert_close(result.shift, stored.mean(0))
        torch.testing.assert_close(result.scale, stored.std(0))
    same = torch.tensor([[5.0], [5.0], [5.0], [5.0], [9.0]]).double()  # no range to measure by: all count
    assert Coordinates.standard(same).shift.item() == pytest.approx(5.8)
    assert Coordinates.standard(torch.ones(3, 2)).scale.tolist() == [0, 0]


def test_the_robust_coordinates_by_hand():
    x = torch.tensor([[0.0, 7.0], [1.0, 7.0], [2.0, 7.0], [3.0, 8.0], [10.0, 9.0]]).double()
    result = Coordinates.robust(x)
    assert result.shift.tolist() == [2, 7]
    # Quartiles 1 and 3; of the second column three of five are 7, and the others 1 and 2 away, their lower median 1.
    assert result.scale.tolist() == pytest.approx([2 / 1.349, 1 * (2 / 5) ** 0.5])
    assert result.linear.tolist() == [3.0, 1.0]
    assert result.spiked.tolist() == [False, True]
    assert Coordinates.robust(x, tails=False).linear is None
    half = torch.tensor([[1.0], [1.0], [2.0], [3.0]]).double()
    assert Coordinates.robust(half).spiked.tolist() == [False]  # the median is 1.5
    half = torch.tensor([[1.0], [1.0], [1.0], [2.0], [3.0], [4.0]]).double()
    half[2] = 2.0
    assert Coordinates.robust(half).shift.tolist() == [2]


def test_quantiles_need_a_hundred_thousand_rows():
    assert len(spaced_rows(torch.arange(100_000))) == 100_000
    some = spaced_rows(torch.arange(250_001))
    assert (len(some), some[0], some[-1]) == (100_000, 0, 250_000)
    assert spaced_rows(torch.arange(3)).tolist() == [0, 1, 2]
    assert spaced_rows(torch.arange(9), 3).tolist() == [0, 4, 8]


def test_identity_is_known_and_copies_nothing():
    x = torch.rand(3, 2)
    assert Coordinates.identity((2,)).forward(x) is x
    assert Coordinates.identity((2,)).forward(x, torch.float64).dtype == torch.float64
    zero, one = torch.zeros(2).double(), torch.ones(2).double()
    for other in (Coordinates(zero + 1, one), Coordinates(zero, 2 * one), Coordinates(zero, one, linear=one),
                  Coordinates(zero, one, skew=one / 2),
                  Coordinates(zero, one, used=torch.tensor([True, True]), constants=zero)):  # fmt: skip
        assert not other._is_identity
        torch.testing.assert_close(other.inverse(other.forward(x, torch.float64)), x.double())


def test_only_shifted_and_scaled_columns_are_linear():
    zero, one = torch.zeros(2).double(), torch.ones(2).double()
    assert Coordinates(zero, 2 * one, used=torch.tensor([True, False, True])).is_linear
    assert not Coordinates(zero, one, linear=one).is_linear
    assert not Coordinates(zero, one, skew=one).is_linear
    assert Coordinates(zero, 2 * one).log_nonlinear_slope(torch.rand(3, 2)).tolist() == [0, 0, 0]


def test_gaps_add_nothing_to_the_slope():
    coordinates = Coordinates(torch.zeros(2).double(), torch.tensor([2.0, 5.0]).double(), torch.ones(2).double() * 3)
    x = torch.tensor([[6.0, 15.0], [torch.nan, 15.0], [torch.nan, torch.nan]]).double()
    each = [-math.log(2) - 0.5 * math.log(2), -math.log(5) - 0.5 * math.log(2)]
    assert coordinates.log_slope(x).tolist() == pytest.approx([sum(each), each[1], 0.0])
