import math

import pytest
import torch

from pscd.discrete import log_probability, states
from pscd.mixtures import TableMixture
from pscd.mixtures.cells import Cells, Conditionals, trusted_cells
from pscd.rng import generator
from tests.mixtures.test_table_mixture import mixture, with_gaps

GRID = torch.linspace(-30, 30, 12_001, dtype=torch.float64)
STEP = float(GRID[1] - GRID[0])


def given(model, row, j, trusted):
    """Probabilities of the values of cell j given the trusted others, by the joint density at all its values."""
    levels = int(model.levels[j])
    values = torch.arange(levels).double() if levels else GRID
    rows = torch.where(trusted, row, torch.nan).repeat(len(values), 1)
    rows[:, j] = values
    return values, model.log_prob(rows).softmax(0)


def test_a_finite_space_by_enumeration():
    """Every cell of every state of three binary variables, each relied on or not."""
    model = mixture(levels=[2, 2, 2])
    every = states(3)
    p = log_probability(-model.log_prob(every)).exp()
    for relied in states(3).bool():
        trusted = relied.expand(8, 3)
        found = Cells.of(model, every, trusted)
        for i, row in enumerate(every):
            for j in range(3):
                same = ((every == row) | ~relied | (torch.arange(3) == j)).all(1)
                chance = torch.stack([p[same & (every[:, j] == code)].sum() for code in (0, 1)])
                chance = chance / chance.sum()
                own = chance[int(row[j])]
                torch.testing.assert_close(found.log_prob[i, j], own.log())
                torch.testing.assert_close(found.cost[i, j], (chance.max() / own).log())
                torch.testing.assert_close(found.surprise[i, j], -chance[chance <= own].sum().log())
                assert found.mean[i, j] == chance.argmax()


def test_numbers_and_categories_by_brute_force():
    """Rows with gaps and cells that are not relied on: every cell by the joint density on a fine grid of its values."""
    model = mixture()
    x = with_gaps(model, n=12, share=0.2)
    trusted = torch.rand(x.shape, generator=generator(3)) < 0.7
    found = Cells.of(model, x, trusted)
    lower, upper = found.quantiles(0.9)
    for i, row in enumerate(x):
        for j in range(x.shape[1]):
            values, chance = given(model, row, j, trusted[i])
            if model.levels[j]:
                assert found.mean[i, j] == chance.argmax()
                assert lower[i, j].isnan()
                continue
            torch.testing.assert_close(found.mean[i, j], (chance * values).sum(), rtol=1e-6, atol=1e-6)
            below = chance.cumsum(0)
            for end, level in ((lower, 0.05), (upper, 0.95)):
                assert (end[i, j] - values[int((below < level).sum())]).abs() < 2 * STEP
            if not row[j].isnan():
                under = (chance * (values <= row[j])).sum()
                # One step of the grid has at most the probability of its highest point.
                tail = 2 * torch.minimum(under, 1 - under)
                assert (found.surprise[i, j].neg().exp() - tail).abs() < 2 * chance.max()
                near = (chance / STEP)[(values - row[j]).abs().argmin()]
                torch.testing.assert_close(found.log_prob[i, j].exp(), near, rtol=0.05, atol=1e-3)


def test_the_cost_of_one_gaussian_is_half_the_squared_residual_and_surprise_its_tail():
    model = mixture(k=1, levels=[0] * 4)
    x = with_gaps(model)
    found = Cells.of(model, x)
    precision = torch.linalg.inv(model.covariances[0])
    row, mean = x[0], model.means[0]
    residual = (precision @ (row - mean)) / precision.diagonal().sqrt()
    torch.testing.assert_close(found.cost[0], 0.5 * residual.square())
    torch.testing.assert_close(found.surprise[0].neg().exp(), torch.special.erfc(residual.abs() / math.sqrt(2)))
    assert (found.cost >= 0).all()
    assert (found.cost[x.isnan()] == 0).all()
    assert (found.surprise[x.isnan()] == 0).all()


def test_the_highest_density_of_a_mixture_is_found_near_a_mean():
    model = mixture()
    found = Cells.of(model, model.sample(200, generator(2)))
    assert (found.cost >= 0).all()
    at_best = found.x.clone()
    z = torch.linspace(-8, 8, 4001, dtype=torch.float64)
    rows = at_best[0].repeat(len(z), 1)
    rows[:, 0] = z
    lowest = Cells.of(model, rows).cost[:, 0].min()
    assert lowest < 0.1


def test_far_out_cells_stay_finite_and_in_order():
    """Tail probabilities below the smallest number of the machine still rank."""
    model = mixture(k=1, levels=[0, 0])
    x = torch.zeros(3, 2).double()
    x[:, 0] = torch.tensor([50.0, 100.0, 1000.0])
    surprise = Cells.of(model, x).surprise[:, 0]
    assert surprise.isfinite().all()
    assert (surprise.diff() > 0).all()


def test_quantiles_of_a_mixture_have_their_probability():
    rng = generator(1)
    share = torch.rand(4, 30, generator=rng, dtype=torch.float64)
    found = Conditionals(
        (share / share.sum(0)).log(),
        5 * torch.randn(4, 30, generator=rng, dtype=torch.float64),
        torch.rand(4, 30, generator=rng, dtype=torch.float64) + 0.01,
    )
    for level in (0.05, 0.3, 0.95):
        normal = torch.distributions.Normal(found.mean, found.variance.sqrt())
        reached = (found.log_share.exp() * normal.cdf(found.quantile(level))).sum(0)
        torch.testing.assert_close(reached, torch.full_like(reached, level))


def test_only_the_quantiles_that_are_asked_for_are_computed():
    model = mixture()
    x = with_gaps(model)
    found = Cells.of(model, x)
    where = torch.zeros_like(x, dtype=torch.bool)
    where[3, 0] = where[7, 2] = True
    lower, upper = found.quantiles(0.8, where)
    whole_lower, whole_upper = found.quantiles(0.8)
    assert torch.equal(~lower.isnan(), where)
    torch.testing.assert_close(lower[where], whole_lower[where])
    torch.testing.assert_close(upper[where], whole_upper[where])
    assert (lower[where] < upper[where]).all()


def chained(d=6, rho=0.95):
    """One Gaussian with strongly correlated columns."""
    covariance = rho * torch.ones(d, d).double() + (1 - rho) * torch.eye(d).double()
    tensors = torch.ones(1), torch.zeros(1, d), torch.linalg.cholesky(covariance)[None]
    return TableMixture(*tensors)


def test_a_wrong_cell_does_not_make_its_neighbours_look_wrong():
    model = chained()
    x = model.sample(300, generator(0))
    x[:, 2] += 20.0
    blamed = ~trusted_cells(model, x, 0.001)
    assert blamed[:, 2].all()
    # Five standard errors of a share of .001 among 1,500 cells, plus what several looks at a row find: .007.
    assert blamed[:, [0, 1, 3, 4, 5]].double().mean() < 0.007
    found = Cells.of(model, x, ~blamed)
    right = Cells.of(chained(), torch.where(torch.arange(6) == 2, torch.nan, x))
    torch.testing.assert_close(found.mean[:, 2], right.mean[:, 2], rtol=0.0, atol=0.5)


def test_the_share_of_right_cells_that_are_distrusted_is_as_stated():
    model = chained(rho=0.5)
    x = model.sample(20_000, generator(0))
    for rate in (0.01, 0.001):
        found = (~trusted_cells(model, x, rate)).double().mean().item()
        # One cell goes at a time and the others are looked at again, without it: a little more or less than stated.
        assert rate / 2 < found < 2 * rate


def test_trust_is_about_cells_that_are_there_and_never_lost_for_most_of_a_row():
    model = mixture()
    x = with_gaps(model)
    trusted = trusted_cells(model, x)
    assert not trusted[x.isnan()].any()
    strange = chained()
    rows = 30 * torch.randn(50, 6, generator=generator(2), dtype=torch.float64)
    assert (trusted_cells(strange, rows).sum(1) >= 3).all()


@pytest.mark.parametrize("levels", [[0, 0], [2, 3]])
def test_trust_with_columns_of_one_kind(levels):
    model = mixture(levels=levels)
    assert trusted_cells(model, model.sample(50, generator(0))).double().mean() > 0.9


def test_the_only_cell_of_a_row_is_judged_by_itself():
    """3.29 deviations are surprising at one in a thousand; a row with nothing in it has nothing to distrust."""
    model = TableMixture(
        torch.ones(1).double(),
        torch.zeros(1, 2).double(),
        torch.eye(2).double()[None],
        torch.zeros(1, 0).double(),
        torch.zeros(2, dtype=torch.long),
    )
    nothing = torch.nan
    x = torch.tensor([[3.28, nothing], [3.30, nothing], [nothing, -3.30], [nothing, nothing], [9.0, 9.0]])
    trusted = trusted_cells(model, x.double(), 0.001)
    assert trusted[:4].tolist() == [[True, False], [False, False], [False, False], [False, False]]
    assert trusted[4].sum() == 1  # no more than half of a row
