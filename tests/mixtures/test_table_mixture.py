import math

import pytest
import torch

from pscd.discrete import log_probability, states
from pscd.mixtures import TableMixture
from pscd.mixtures.cells import Cells
from pscd.rng import generator

NAN = float("nan")
LEVELS = [0, 3, 0, 2, 0]


def mixture(k=3, levels=LEVELS, seed=0, spread=2.0):
    rng = generator(seed)
    d = sum(size == 0 for size in levels)
    factor = 0.5 * torch.randn(k, d, d, generator=rng, dtype=torch.float64)
    covariances = factor @ factor.mT + 0.3 * torch.eye(d, dtype=torch.float64)
    weights = torch.rand(k, generator=rng, dtype=torch.float64).add(0.3)
    logs = [torch.randn(k, size, generator=rng, dtype=torch.float64).log_softmax(1) for size in levels if size]
    table = torch.cat(logs, 1) if logs else torch.empty(k, 0)
    means = spread * torch.randn(k, d, generator=rng, dtype=torch.float64)
    return TableMixture(weights / weights.sum(), means, torch.linalg.cholesky(covariances), table, torch.tensor(levels))


def with_gaps(model, n=60, share=0.4, seed=1):
    rng = generator(seed)
    x = model.sample(n, rng)
    missing = torch.rand(x.shape, generator=rng) < share
    missing[0], missing[1] = False, True
    return x.masked_fill(missing, torch.nan)


@pytest.fixture
def finite():
    """A mixture on three binary variables, and the exact probabilities of its 8 states by enumeration."""
    model = mixture(levels=[2, 2, 2])
    every = states(3)
    return model, every, log_probability(-model.log_prob(every)).exp()


def test_a_finite_space_is_normalised_and_marginals_are_sums(finite):
    model, every, p = finite
    torch.testing.assert_close(model.log_prob(every).exp(), p)
    x = torch.tensor([[NAN, 1.0, NAN], [0.0, NAN, 1.0]]).double()
    shown = [p[every[:, 1] == 1].sum(), p[(every[:, 0] == 0) & (every[:, 2] == 1)].sum()]
    torch.testing.assert_close(model.log_prob(x).exp(), torch.stack(shown))


def test_the_density_is_a_weighted_sum_of_products():
    model = mixture()
    x = model.sample(20, generator(3))
    expected = torch.zeros(20, dtype=torch.float64)
    for k, weight in enumerate(model.weights):
        normal = torch.distributions.MultivariateNormal(model.means[k], model.covariances[k])
        first, second = (table[k] for table in model.tables())
        expected += weight * normal.log_prob(x[:, [0, 2, 4]]).exp() * first[x[:, 1].long()] * second[x[:, 3].long()]
    torch.testing.assert_close(model.log_prob(x).exp(), expected)


def test_summing_over_a_category_removes_its_column():
    model = mixture()
    x = with_gaps(model)
    whole = torch.stack([torch.where(torch.arange(5) == 1, float(code), x) for code in range(3)])
    x[:, 1] = torch.nan
    torch.testing.assert_close(torch.stack([model.log_prob(w) for w in whole]).logsumexp(0), model.log_prob(x))


def test_the_energy_of_a_whole_row_is_minus_its_log_density():
    model = mixture()
    x = model.sample(30, generator(3))
    torch.testing.assert_close(model.energy(x), -model.log_prob(x))


def test_the_expected_energy_of_one_gaussian_counts_missing_cells():
    """.5 (quadratic form of the observed cells + number of missing ones + log |2 pi Sigma|)."""
    model = mixture(k=1, levels=[0] * 4)
    x = with_gaps(model)
    (covariance,), (mean,) = model.covariances, model.means
    for row, energy in zip(x, model.energy(x), strict=True):
        there = ~row.isnan()
        apart = (row - mean)[there]
        form = apart @ torch.linalg.solve(covariance[there][:, there], apart) if there.any() else 0.0
        expected = 0.5 * (form + int((~there).sum()) + torch.logdet(2 * math.pi * covariance))
        torch.testing.assert_close(energy, expected)


@pytest.mark.parametrize(("spread", "tolerance"), [(2.0, 0.35), (100.0, 0.0)])
def test_the_expected_energy_of_a_mixture(spread, tolerance):
    """By 20,000 draws of the missing cells; the bound of Jensen's inequality is exact for components far apart.

    An energy has a variance of about D / 2 = 2.5, a mean of 20,000 a standard error of .011.
    """
    model = mixture(spread=spread)
    x = with_gaps(model, n=12)
    found = model.energy(x)
    for row, energy in zip(x, found, strict=True):
        drawn = model.complete(row.expand(20_000, -1), generator(5))
        exact = -model.log_prob(drawn).mean()
        assert exact - 0.055 < energy < exact + tolerance + 0.055


def test_rows_of_the_model_have_the_same_mean_energy_whatever_is_missing():
    """Fairness: E[E[energy | observed]] = E[energy]; one Gaussian, 40,000 rows, five standard errors of sqrt(3 / n)."""
    model = mixture(k=1, levels=[0] * 6)
    x = model.sample(40_000, generator(7))
    whole = model.energy(x).mean()
    missing = torch.rand(x.shape, generator=generator(8)) < 0.5
    assert (model.energy(x.masked_fill(missing, torch.nan)).mean() - whole).abs() < 5 * math.sqrt(3 / 40_000)


def test_draws_of_missing_cells_have_the_conditional_distribution():
    """On a mixture of numbers and categories: against weights p(x with cell) on a grid, five standard errors."""
    model, n = mixture(), 40_000
    row = torch.tensor([0.5, NAN, NAN, 1.0, -0.5]).double()
    drawn = model.complete(row.expand(n, -1), generator(4))
    assert torch.equal(drawn[:, [0, 3, 4]], row[[0, 3, 4]].expand(n, -1))
    z = torch.linspace(-15, 15, 3001, dtype=torch.float64)
    grid = row.repeat(3, len(z), 1)
    grid[..., 1], grid[..., 2] = torch.arange(3)[:, None], z
    p = model.log_prob(grid.flatten(0, 1)).view(3, -1).flatten().softmax(0).view(3, -1)
    for code in range(3):
        share = p[code].sum()
        assert ((drawn[:, 1] == code).double().mean() - share).abs() < 5 * (share * (1 - share) / n).sqrt() + 1e-6
    mean = (p.sum(0) * z).sum()
    variance = (p.sum(0) * (z - mean).square()).sum()
    fourth = (p.sum(0) * (z - mean) ** 4).sum()
    assert (drawn[:, 2].mean() - mean).abs() < 5 * (variance / n).sqrt()
    assert (drawn[:, 2].var() - variance).abs() < 5 * ((fourth - variance**2) / n).sqrt()
    expected = model.expected(row[None])[0]
    torch.testing.assert_close(expected[2], mean, rtol=1e-6, atol=1e-6)
    assert expected[1] == p.sum(1).argmax()


def test_draws_of_several_missing_numbers_are_correlated_as_they_should():
    model, n = mixture(k=1, levels=[0] * 4), 40_000
    row = torch.tensor([NAN, 0.7, NAN, NAN]).double()
    drawn = model.complete(row.expand(n, -1), generator(4))[:, [0, 2, 3]]
    covariance = torch.linalg.inv(torch.linalg.inv(model.covariances[0])[[0, 2, 3]][:, [0, 2, 3]])
    scale = covariance.diagonal().sqrt()
    # A sample covariance has a variance of at most 2 s_i^2 s_j^2 / n.
    error = (torch.cov(drawn.T) - covariance) / torch.outer(scale, scale)
    assert error.abs().max() < 5 * math.sqrt(2 / n)


def test_the_spread_widens_draws_and_intervals():
    model = mixture(k=1, levels=[0, 0])
    wide = TableMixture(**{**model.tensors(), "spread": torch.tensor([2.0, 1.0])})
    x = torch.tensor([[NAN, 0.3], [0.2, NAN]]).double()
    centre = model.expected(x)
    a, b = ((m.complete(x, generator(0)) - centre)[x.isnan()] for m in (model, wide))
    torch.testing.assert_close(b / a, torch.tensor([2.0, 1.0]).double())
    lengths = [upper - lower for lower, upper in (Cells.of(m, x).quantiles(0.5) for m in (model, wide))]
    torch.testing.assert_close(lengths[1] / lengths[0], torch.tensor([2.0, 1.0]).double().expand(2, 2))


def test_samples_are_repeatable_and_leave_the_global_state_alone():
    model = mixture()
    before = torch.get_rng_state()
    a, b = (model.sample(50, generator(1)) for _ in range(2))
    assert torch.equal(a, b)
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(a, model.sample(50, generator(2)))


def test_blocks_do_not_matter(monkeypatch):
    model = mixture()
    x = with_gaps(model, n=500)
    whole = model.log_prob(x), model.energy(x), model.expected(x), Cells.of(model, x).cost
    monkeypatch.setattr("pscd.mixtures.missing.BLOCK_NUMBERS", 100)
    parts = model.log_prob(x), model.energy(x), model.expected(x), Cells.of(model, x).cost
    for a, b in zip(whole, parts, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("levels", [[0, 0], [3, 2], [0], [4]])
def test_columns_of_one_kind_alone(levels):
    model = mixture(levels=levels)
    x = with_gaps(model)
    assert model.energy(x).isfinite().all()
    assert not model.expected(x).isnan().any()
    assert Cells.of(model, x).cost.shape == x.shape


def test_saved_tensors_make_the_same_mixture():
    model = mixture()
    x = with_gaps(model)
    again = TableMixture(**{name: t.clone() for name, t in model.tensors().items()})
    assert torch.equal(again.energy(x), model.energy(x))


def test_bad_rows_are_refused():
    model = mixture()
    with pytest.raises(ValueError, match="5 columns"):
        model.log_prob(torch.zeros(3, 4))
    for code in (3.0, 0.5, -1.0):
        x = torch.zeros(1, 5)
        x[0, 1] = code
        with pytest.raises(ValueError, match="codes of categories"):
            model.log_prob(x)


def test_what_is_derived_is_not_part_of_the_state():
    mixture = TableMixture(
        torch.ones(1), torch.zeros(1, 2), torch.eye(2)[None], torch.zeros(1, 0), torch.zeros(2).long()
    )
    assert {name.removeprefix("numbers.") for name in mixture.state_dict()} == mixture.tensors().keys()


def expected_log(model, row, k, other):
    """E[log p_other] over the missing cells of a row, drawn from component k given the observed ones."""
    z, codes = row[model.numeric], row[model.categorical]
    gone, there = z.isnan(), ~z.isnan()
    covariance, mean = model.covariances[k], model.means[k].clone()
    across = covariance[gone][:, there] @ torch.linalg.inv(covariance[there][:, there])
    left = covariance[gone][:, gone] - across @ covariance[there][:, gone]
    whole = z.clone()
    whole[gone] = mean[gone] + across @ (z - mean)[there]
    normal = torch.distributions.MultivariateNormal(model.means[other], model.covariances[other])
    precision = torch.linalg.inv(model.covariances[other])[gone][:, gone]
    total = normal.log_prob(whole) - 0.5 * (precision * left).sum()
    for code, table in zip(codes, model.tables(), strict=True):
        known = (table[k] * table[other].log()).sum() if code.isnan() else table[other, int(code)].log()
        total = total + known
    return total


def test_the_expected_energy_by_hand_of_the_formula():
    """Component by component, those of next to no share left out."""
    model = mixture(k=3, spread=3.0)
    x = with_gaps(model, n=10)
    shares = model.parts(x).softmax(1)
    assert ((shares > 1e-9) & (shares < 1e-4)).any()  # some that do not count
    assert (shares > 1e-4).sum(1).max() > 1
    for row, share, found in zip(x[1:], shares[1:], model.energy(x)[1:], strict=True):
        counted = [k for k in range(3) if share[k] > 1e-4]
        total = 0.0
        for k in counted:
            logs = [model.weights[o].log() + expected_log(model, row, k, o) for o in range(3)]
            total -= share[k] * torch.stack(logs).logsumexp(0)
        torch.testing.assert_close(found, total / share[counted].sum())


def test_predictions_stay_within_bounds_and_rows_are_left_alone():
    model = mixture()
    x = with_gaps(model)
    free = model.expected(x)
    low, high = free[:, [0, 2, 4]].quantile(0.3, 0), free[:, [0, 2, 4]].quantile(0.6, 0)
    bounded = TableMixture(**{**model.tensors(), "bounds": torch.stack([low, high])})
    before = x.clone()
    found = bounded.expected(x)
    for column, edge in zip((0, 2, 4), range(3), strict=True):
        gone = x[:, column].isnan()
        torch.testing.assert_close(found[gone, column], free[gone, column].clamp(low[edge], high[edge]))
        assert torch.equal(found[~gone, column], x[~gone, column])
    model.complete(x, generator(0))
    torch.testing.assert_close(x, before, equal_nan=True)


def test_rows_may_be_of_single_precision_but_not_of_another_shape():
    model = mixture()
    x = with_gaps(model).float()
    assert torch.equal(model.log_prob(x), model.log_prob(x.double()))
    assert model.expected(x).dtype == model.complete(x, generator(0)).dtype == torch.float64
    for shape in ((5,), (2, 5, 1), (2, 6)):
        with pytest.raises(ValueError, match=r"rows must have 5 columns, got shape"):
            model.log_prob(torch.zeros(shape))
