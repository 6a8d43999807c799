import math

import pytest
import torch

from pscd.coordinates import Coordinates
from pscd.mixtures.background import GAUSSIAN_IQR, OUTSIDE, THINNEST, Background
from pscd.rng import generator

BOXES, BROAD = (0.0, 0.003, 0.01, 0.03), (1.5, 2.0, 3.0)
WIDTHS = torch.tensor(BROAD, dtype=torch.float64)[:, None]
N_BROAD = len(BROAD)


def background_of(z, **more):
    return Background.of(z, **{"boxes": BOXES, "robust_widths": BROAD, "widths": (), **more})


@pytest.fixture(scope="module")
def rows():
    """Two columns of different scales, one of them skewed."""
    z = torch.randn(2000, 2, generator=generator(0), dtype=torch.float64)
    return torch.stack([z[:, 0], 3 * z[:, 1].exp()], 1)


@pytest.fixture(scope="module")
def background(rows):
    return background_of(rows)


def test_every_density_integrates_to_one(background):
    """Midpoint rule on a box that the broadest Gaussian leaves with less than 1e-8 (6 deviations on each side).

    A box is 1 over its area inside: an edge may cut a cell, so that its sides are known to one cell of 2,000, about
    1e-2 of the widths of the narrowest; the error of the area is at most twice that.
    """
    low = torch.minimum(background.low[0], background.centre - 6 * background.deviation[-1])
    high = torch.maximum(background.high[0], background.centre + 6 * background.deviation[-1])
    h = (high - low) / 2000
    axes = [a + step * (torch.arange(2000) + 0.5) for a, step in zip(low, h, strict=True)]
    log_density = background.log_prob(torch.cartesian_prod(*axes))
    mass = log_density.exp().sum(0) * h.prod()
    bound = [2 * float((h / (b - a)).max()) for a, b in zip(background.low, background.high, strict=True)]
    for total, error in zip(mass[:-N_BROAD].tolist(), bound, strict=True):
        assert error < 0.03
        assert total == pytest.approx(1, abs=error)
    assert mass[-N_BROAD:].tolist() == pytest.approx([1] * N_BROAD, abs=1e-7)


def test_boxes_are_nested_and_leave_out_what_they_should(rows, background):
    assert background.kinds == len(BOXES) + N_BROAD
    assert torch.equal(background.low[0], rows.amin(0))
    assert torch.equal(background.high[0], rows.amax(0))
    assert (background.low.diff(dim=0) > 0).all()
    assert (background.high.diff(dim=0) < 0).all()
    for a, b, share in zip(background.low, background.high, BOXES, strict=True):
        left_out = ((rows < a) | (rows > b)).double().mean(0)
        # Quantiles of 2,000 rows are exact to one row on either side.
        assert (left_out - 2 * share).abs().max() <= 2 / len(rows)


def test_the_outermost_rows_are_inside_the_widest_box(rows, background):
    assert (background.log_prob(rows)[:, 0] > OUTSIDE).all()
    corners = torch.stack([background.low[0], background.high[0]])
    assert (background.log_prob(corners)[:, 0] > OUTSIDE).all()


def test_outside_a_box_there_is_next_to_nothing(background):
    outside = background.high[:1] + torch.tensor([[0.1, -0.1]]).double()
    found = background.log_prob(outside)
    assert found[0, :-N_BROAD].tolist() == [OUTSIDE] * len(BOXES)
    assert (found[0, -N_BROAD:] > OUTSIDE).all()


def test_the_gaussians_are_those_of_torch_with_robust_deviations(rows, background):
    quartiles = torch.quantile(rows, torch.tensor([0.25, 0.75]).double(), 0)
    torch.testing.assert_close(background.deviation, WIDTHS * (quartiles[1] - quartiles[0]) / GAUSSIAN_IQR)
    torch.testing.assert_close(background.centre, rows.quantile(0.5, 0))
    for i, deviation in enumerate(background.deviation):
        reference = torch.distributions.Normal(background.centre, deviation).log_prob(rows).sum(1)
        torch.testing.assert_close(background.log_prob(rows)[:, len(BOXES) + i], reference)


def test_further_gaussians_have_standard_deviations(rows):
    found = background_of(rows, widths=(2.0,))
    torch.testing.assert_close(found.deviation[-1], 2 * rows.std(0, correction=0))
    assert found.kinds == len(BOXES) + N_BROAD + 1


def test_missing_cells_are_integrated_out(rows, background):
    x = rows[:50].clone()
    x[:, 1] = torch.nan
    torch.testing.assert_close(background.log_prob(x), background_of(rows[:, :1]).log_prob(rows[:50, :1]))
    of_gappy = background_of(rows.masked_fill(torch.arange(2000)[:, None] % 7 == 0, torch.nan))
    assert of_gappy.log_prob(rows).isfinite().all()
    torch.testing.assert_close(background.log_prob(torch.full((1, 2), torch.nan).double()), torch.zeros(1, 7).double())


def test_a_column_that_hardly_varies_has_a_density_too():
    z = torch.full((100, 2), 5.0, dtype=torch.float64)
    z[:, 0] = torch.arange(100) / 100
    found = background_of(z)
    assert found.low[:, 1].tolist() == pytest.approx([5 - THINNEST] * len(BOXES))
    assert found.deviation[:, 1].tolist() == pytest.approx((WIDTHS[:, 0] * THINNEST).tolist())
    assert (found.high - found.low)[:, 1].tolist() == pytest.approx([2 * THINNEST] * len(BOXES))
    log_density = found.log_prob(z)
    assert log_density.isfinite().all()
    assert log_density[0, 0].item() == pytest.approx(-math.log(0.99 * 2 * THINNEST))


@pytest.mark.parametrize("constant", [False, True])
def test_in_bent_coordinates_boxes_are_even_in_the_units_of_the_data(rows, constant):
    """Their density of the data is one over the volume inside: that of the coordinates, times their slope."""
    x = torch.cat([rows[:, :1], torch.ones(len(rows), 1).double(), rows[:, 1:]], 1) if constant else rows
    coordinates = Coordinates.robust(x).unskewed(x)
    z = coordinates.forward(x, torch.float64)
    found = background_of(z, coordinates=coordinates)
    log_density = found.log_prob(z)
    of_data = log_density + coordinates.log_slope(x)[:, None]
    for j, share in enumerate(BOXES):
        low, high = torch.quantile(rows, share, 0), torch.quantile(rows, 1 - share, 0)
        inside = log_density[:, j] > OUTSIDE
        # Quantiles lie between two rows, and the middle between two is elsewhere in bent coordinates.
        torch.testing.assert_close(
            of_data[inside, j], -(high - low).log().sum().expand(int(inside.sum())), rtol=0, atol=0.02
        )
        assert (log_density[~inside, j] == OUTSIDE).all()
    straight = Coordinates.robust(rows, tails=False)
    assert background_of(rows, coordinates=straight).coordinates is None
