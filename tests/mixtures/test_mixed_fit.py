import math
from dataclasses import replace

import pytest
import torch

from pscd.mixtures.mixed_fit import Fit, Shrinkage, _em, _spread, _start, _statistics, fit_mixed
from pscd.rng import generator
from tests.mixtures.test_mixed import LEVELS, mixture

NONE = Shrinkage(pseudo_rows=0.0, to_diagonal=0.0, ridge=0.0, smoothing=0.0)


def table(n=1500, seed=0):
    """Three groups in six numbers and two categories; a twentieth of the numbers wrong, a tenth of all missing."""
    rng = generator(seed)
    group = torch.randint(3, (n,), generator=rng)
    load = torch.randn(2, 6, generator=rng, dtype=torch.float64)
    z = torch.randn(n, 2, generator=rng, dtype=torch.float64) @ load
    z += 0.3 * torch.randn(n, 6, generator=rng, dtype=torch.float64)
    z += 2 * torch.randn(3, 6, generator=rng, dtype=torch.float64)[group]
    codes = torch.where(torch.rand(n, 2, generator=rng) < 0.9, group[:, None], torch.randint(3, (n, 2), generator=rng))
    right = torch.cat([z, codes.double()], 1)
    x, wrong = right.clone(), torch.zeros(n, 8, dtype=torch.bool)
    wrong[:, :6] = torch.rand(n, 6, generator=rng) < 0.05
    x[wrong] += torch.where(torch.rand(int(wrong.sum()), generator=rng) < 0.5, 8.0, -8.0)
    missing = torch.rand(n, 8, generator=rng) < 0.1
    return right, x.masked_fill(missing, torch.nan), wrong & ~missing, [0] * 6 + [3, 3]


@pytest.fixture(scope="module")
def fitted():
    right, x, wrong, levels = table()
    return fit_mixed(x, levels, seed=0), right, x, wrong


def likelihoods(found: Fit, x, rounds):
    for _ in range(rounds):
        yield _statistics(found, list(found.model.blocks(x))).score
        found = _em(found, x, 1, NONE)


def test_the_likelihood_never_falls():
    """EM with gaps in numbers and categories, a background beside the components, and no shrinkage."""
    truth, rng = mixture(), generator(1)
    x = truth.sample(600, rng)
    x[torch.rand(x.shape, generator=rng) < 0.3] = torch.nan
    x[:30, [0, 2, 4]] *= 5
    start = mixture(seed=5)
    found = _start(x, torch.tensor(LEVELS), robust=True)
    scores = torch.tensor(list(likelihoods(replace(found, model=start), x, 25)))
    assert (scores.diff() > -1e-10).all()
    assert scores[-1] > scores[0] + 0.1


def test_one_component_without_gaps_is_mean_and_covariance():
    rng = generator(0)
    z = torch.randn(500, 3, generator=rng, dtype=torch.float64) @ torch.randn(3, 3, generator=rng, dtype=torch.float64)
    codes = torch.randint(3, (500, 1), generator=rng)
    x = torch.cat([z, codes.double()], 1)
    model = _em(_start(x, torch.tensor([0, 0, 0, 3]), robust=False), x, 2, NONE).model
    torch.testing.assert_close(model.means[0], z.mean(0), rtol=1e-7, atol=1e-7)
    torch.testing.assert_close(model.covariances[0], torch.cov(z.T, correction=0), rtol=1e-7, atol=1e-7)
    shares = torch.bincount(codes.flatten()).double() / 500
    torch.testing.assert_close(model.tables()[0][0], shares, rtol=1e-7, atol=1e-7)


def test_one_gaussian_with_gaps_is_at_its_maximum_of_likelihood():
    """The gradient of the mean log density with respect to mean and covariance is 0 once EM has converged."""
    rng = generator(3)
    factor = torch.tensor([[1.0, 0.0, 0.0], [0.8, 0.6, 0.0], [-0.5, 0.5, 0.7]]).double()
    x = torch.randn(300, 3, generator=rng, dtype=torch.float64) @ factor.T
    x[torch.rand(x.shape, generator=rng) < 0.3] = torch.nan
    found = _start(x, torch.zeros(3).long(), robust=False)
    for _ in range(100):
        found = _em(found, x, 1, NONE)
    mean = found.model.means[0].clone().requires_grad_()
    covariance = found.model.covariances[0].clone().requires_grad_()
    total = torch.zeros((), dtype=torch.float64)
    for row in x[(~x.isnan()).any(1)]:
        there = (~row.isnan()).nonzero().flatten()
        normal = torch.distributions.MultivariateNormal(mean[there], covariance[there][:, there])
        total = total + normal.log_prob(row[there])
    slopes = torch.autograd.grad(total / len(x), (mean, covariance))
    assert max(slope.abs().max() for slope in slopes) < 1e-6


def test_wrong_cells_are_found_and_little_else(fitted):
    model, _, x, wrong = fitted
    trusted = model.trusted(x)
    there = ~x.isnan()
    assert (~trusted[wrong]).double().mean() > 0.95
    # .001 are expected; gaps and wrong cells leave some components in doubt.
    assert (~trusted[there & ~wrong]).double().mean() < 0.005
    cost = model.cells(x, trusted).cost
    assert cost[wrong].quantile(0.1) > cost[there & ~wrong].quantile(0.99)


def test_wrong_cells_and_gaps_are_repaired(fitted):
    """Half of them to within the noise of .3; in some rows too little is left. Categories nine times of ten."""
    model, right, x, wrong = fitted
    repaired = model.expected(x.masked_fill(~model.trusted(x), torch.nan))
    gone = wrong | x.isnan()
    error = (repaired - right)[:, :6][gone[:, :6]]
    assert error.abs().median() < 0.3
    assert error.square().mean().sqrt() < 0.55 * right[:, :6].std()
    assert (repaired == right)[:, 6:][gone[:, 6:]].double().mean() > 0.85


def test_intervals_cover_what_was_lost(fitted):
    """Of about 900 missing and wrong numbers: .9 to five standard errors of .01."""
    model, right, x, wrong = fitted
    gone = (wrong | x.isnan())[:, :6]
    lower, upper = model.cells(x, model.trusted(x)).quantiles(0.9)
    inside = ((right >= lower) & (right <= upper))[:, :6][gone]
    assert inside.double().mean().item() == pytest.approx(0.9, abs=5 * math.sqrt(0.09 / len(inside)))


def test_wrong_cells_hardly_move_the_fit(fitted):
    """Against a fit to the right cells, by the mean log density of rows without mistakes."""
    model, right, x, _ = fitted
    levels = [0] * 6 + [3, 3]
    clean, dirty = (
        fit_mixed(rows.masked_fill(x.isnan(), torch.nan), levels, seed=0, components=4, robust=False)
        for rows in (right, x)
    )
    kept, lost = (clean.log_prob(right).mean() - m.log_prob(right).mean() for m in (model, dirty))
    assert kept < 0.25
    assert lost > 2 * kept


def test_strange_rows_do_not_move_the_fit():
    rng = generator(2)
    x = torch.randn(1000, 4, generator=rng, dtype=torch.float64)
    x[:, 1:] = 0.9 * x[:, :1] + 0.4 * x[:, 1:]
    x[:100] = 3 * torch.randn(100, 4, generator=rng, dtype=torch.float64)
    model = fit_mixed(x, [0] * 4, seed=0, components=1)
    truth = torch.cov(x[100:].T)
    assert ((model.covariances[0] - truth) / truth.diagonal().mean()).abs().max() < 0.25
    energy = model.energy(x)
    assert energy[:100].median() > energy[100:].quantile(0.95)


def test_the_number_of_components_is_chosen():
    rng = generator(0)
    one = torch.randn(400, 3, generator=rng, dtype=torch.float64)
    several = one * 0.2 + 3 * torch.randn(4, 3, generator=rng, dtype=torch.float64)[torch.arange(400) % 4]
    assert len(fit_mixed(one, [0] * 3, seed=0).weights) == 1
    assert len(fit_mixed(several, [0] * 3, seed=0, components=(1, 2, 4, 8)).weights) >= 4
    assert len(fit_mixed(several, [0] * 3, seed=0, components=2).weights) == 2


def test_the_same_seed_gives_the_same_mixture():
    _, x, _, levels = table(n=300)
    a, b = (fit_mixed(x, levels, seed=3, components=(1, 2)) for _ in range(2))
    assert all(torch.equal(s, t) for s, t in zip(a.tensors().values(), b.tensors().values(), strict=True))


def test_the_spread_is_that_of_cells_that_the_fit_has_not_seen():
    """Rows 1.5 times as wide as the model says: 4,000 cells, whose .9 quantile has a relative error of about .015."""
    model = mixture(k=1, levels=[0] * 4)
    x = model.sample(4000, generator(0))
    wider = model.means[0] + 1.5 * (x - model.means[0])
    torch.testing.assert_close(_spread(model.cells(x)), torch.ones(4).double(), rtol=0.0, atol=0.08)
    torch.testing.assert_close(_spread(model.cells(wider)), 1.5 * torch.ones(4).double(), rtol=0.0, atol=0.12)


def test_nothing_is_predicted_beyond_what_was_seen(fitted):
    model, _, x, _ = fitted
    far = x[:20].clone()
    far[:, 0], far[:, 1] = 50.0, torch.nan
    found = model.expected(far)[:, 1]
    assert (found >= model.bounds[0, 1]).all()
    assert (found <= model.bounds[1, 1]).all()
    torch.testing.assert_close(model.cells(far, ~far.isnan()).mean[:, 1], found)


@pytest.mark.parametrize("levels", [[0], [3], [0, 0], [2, 3]])
def test_small_tables(levels):
    """Two rows, few rows, constant columns: a finite answer."""
    rng = generator(0)
    for n in (1, 2, 12):
        x = torch.stack([torch.randint(size or 4, (n,), generator=rng) for size in levels], 1)
        model = fit_mixed(x.double(), levels, seed=0)
        assert model.energy(x.double()).isfinite().all()
    constant = torch.ones(50, len(levels)).double()
    assert fit_mixed(constant, levels, seed=0).energy(constant).isfinite().all()


def test_bad_tables_are_refused():
    with pytest.raises(ValueError, match="must have 1 columns"):
        fit_mixed(torch.zeros(5, 2), [0], seed=0)
    with pytest.raises(ValueError, match="codes of categories"):
        fit_mixed(torch.full((5, 1), 2.0), [2], seed=0)
    x = torch.zeros(5, 2)
    x[:, 1] = torch.nan
    with pytest.raises(ValueError, match="without any value"):
        fit_mixed(x, [0, 0], seed=0)


def test_a_category_of_a_fifth_of_the_rows_is_no_mistake():
    """Its rows are a cluster of their own: one Gaussian and a background would call them strange, and forget it."""
    rng = torch.Generator().manual_seed(0)
    group = torch.arange(400) % 5
    code = (group > 1).double() + (group > 3).double()  # two fifths, two fifths, one fifth
    z = torch.randn(400, 4, generator=rng).double() * 0.3 + torch.stack([code * 2, -code, code**2, 0 * code], 1)
    x = torch.cat([z, code[:, None]], 1)
    model = fit_mixed(x, [0, 0, 0, 0, 3], seed=0)
    assert model.trusted(x)[:, 4].all()


def test_columns_that_mostly_have_one_value_do_not_cost_any_number_of_nats():
    """Nine in ten rows have 0; the others are rare, not impossible: about -log of their share, and none is wrong."""
    rng = torch.Generator().manual_seed(0)
    spiked = torch.zeros(600, dtype=torch.float64)
    spiked[:60] = 1 + torch.rand(60, generator=rng).double()
    x = torch.cat([torch.randn(600, 2, generator=rng).double(), spiked[:, None]], 1)
    model = fit_mixed(x, [0, 0, 0], seed=0)
    cost = model.cells(x).cost[:60, 2]
    assert cost.max() < 8
    assert model.trusted(x)[:, 2].double().mean() > 0.99
