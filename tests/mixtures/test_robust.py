import math
from dataclasses import replace

import pytest
import torch

from pscd.coordinates import Coordinates
from pscd.mixtures import MixtureSettings, TableMixture, fit_mixture
from pscd.mixtures.cells import Cells, trusted_cells
from pscd.mixtures.robust import first_component, k_means, start
from pscd.rng import generator
from tests.mixtures.test_table_mixture import with_gaps

MEANS = torch.tensor([[-2.0, 0.0, 1.0], [2.0, 1.0, -1.0]], dtype=torch.float64)
REACH = 8.0


def mixed(n=8000, share=0.1, seed=0):
    """Two Gaussians of deviation .5, and contamination evenly in a cube; the rows and which of them it is."""
    rng = generator(seed)
    group = torch.randint(2, (n,), generator=rng)
    z = MEANS[group] + 0.5 * torch.randn(n, 3, generator=rng, dtype=torch.float64)
    is_outlier = torch.rand(n, generator=rng) < share
    z[is_outlier] = 2 * REACH * torch.rand(int(is_outlier.sum()), 3, generator=rng, dtype=torch.float64) - REACH
    return z, is_outlier


@pytest.fixture(scope="module")
def fitted():
    return fit_mixture(mixed()[0], seed=0)


def test_the_share_of_contamination(fitted):
    """Five standard errors of a share among 8,000 rows, sqrt(.1 .9 / n) = .0034, and what lies inside the Gaussians.

    Their balls of 3 deviations are 2 x 14 of 4,096 units of volume: .7 % of the contamination, .0007 of the rows.
    """
    share = mixed()[1].double().mean().item()
    assert fitted.contamination == pytest.approx(share, abs=5 * math.sqrt(share * (1 - share) / 8000) + 0.001)


def test_p_clean_is_bayes_rule(fitted):
    z, _ = mixed(1000, seed=1)
    clean = fitted.density.log_prob(z).exp() * (1 - fitted.contamination)
    spread = fitted.frame.background.log_prob(z).exp() @ fitted.shares
    torch.testing.assert_close(fitted.p_clean(z), clean / (clean + spread), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(fitted.log_density(z), (clean + spread).log(), rtol=1e-9, atol=1e-12)


def test_p_clean_is_calibrated(fitted):
    """Of rows with about the same probability so many are clean: five binomial errors, and .03 for the fit's own."""
    z, is_outlier = mixed(40_000, seed=2)
    p = fitted.p_clean(z)
    for low in (0.0, 0.8):
        bin = (p >= low) & (p < low + 0.2)
        n, expected = int(bin.sum()), p[bin].mean().item()
        error = math.sqrt(max(expected * (1 - expected), 1e-3) / n)
        assert (~is_outlier)[bin].double().mean().item() == pytest.approx(expected, abs=5 * error + 0.05)


def test_the_majority_is_found_as_it_is(fitted):
    """Means to five standard errors, .5 / sqrt(3600) = .008, the two components merged by the side they lie on."""
    weights, means = fitted.components.weights, fitted.components.means
    for side, mean in zip((-1, 1), MEANS, strict=True):
        near = means[:, 0] * side > 0
        assert weights[near].sum().item() == pytest.approx(0.5, abs=0.03)
        merged = (weights[near, None] * means[near]).sum(0) / weights[near].sum()
        assert (merged - mean).abs().max() < 0.05


def test_without_a_background_contamination_gets_components():
    z = mixed(2000)[0]
    plain = fit_mixture(z, seed=0, settings=MixtureSettings(background=False))
    assert plain.contamination == 0
    assert torch.equal(plain.p_clean(z), torch.ones(2000).double())
    assert plain.density.log_prob(torch.full((1, 3), 6.0).double()) > -14


@pytest.mark.parametrize("share", [0.0, 0.2])
@pytest.mark.parametrize("d", [1, 2, 4])
def test_clean_rows_have_hardly_any_background(d, share):
    """A background is always there; what it takes is contamination, and next to nothing where there is none."""
    rng = generator(d)
    z = torch.randn(2000, d, generator=rng, dtype=torch.float64)
    z[::2] += 6
    k = int(share * len(z))
    z[:k] = 40 * torch.rand(k, d, generator=rng, dtype=torch.float64) - 17
    mixture = fit_mixture(z, seed=0)
    # In one column a quarter of the contamination lies among the data.
    assert mixture.contamination == pytest.approx(share, abs=0.03 if d > 1 else 0.08)


def test_evenly_spread_data_are_data():
    """The background would explain all of them."""
    z = torch.rand(1000, 3, generator=generator(0), dtype=torch.float64)
    mixture = fit_mixture(z, seed=0)
    assert mixture.contamination == 0
    assert mixture.density.log_prob(z).mean() > -0.5


def test_missing_cells_do_not_change_what_is_clean():
    z, is_outlier = mixed(3000)
    gappy = z.masked_fill(torch.rand(z.shape, generator=generator(4)) < 0.15, torch.nan)
    gappy[0] = torch.nan
    mixture = fit_mixture(gappy, seed=0)
    assert mixture.contamination == pytest.approx(0.1, abs=0.03)
    p = mixture.p_clean(gappy)
    assert p[is_outlier].mean() < 0.35
    assert p[~is_outlier].mean() > 0.95
    completed = mixture.completed(gappy, generator(0))
    assert completed.isfinite().all()
    assert torch.equal(completed[~gappy.isnan()], gappy[~gappy.isnan()])
    # Rows of the first Gaussian without their first cell get one of its own.
    side = (gappy[:, 0].isnan() & ~is_outlier & (z[:, 1:] - MEANS[0, 1:]).norm(dim=1).lt(0.5)).nonzero().flatten()
    assert (completed[side, 0] < 0).double().mean() > 0.9


def test_categories_take_part():
    """A category that goes with the side: combinations that do not occur are unlikely."""
    z, _ = mixed(2000, share=0.0)
    code = (z[:, :1] > 0).double()
    x = torch.cat([z, code], 1)
    mixture = fit_mixture(x, [0, 0, 0, 2], seed=0)
    swapped = x.clone()
    swapped[:, 3] = 1 - swapped[:, 3]
    assert mixture.log_density(x).mean() > mixture.log_density(swapped).mean() + 3
    assert mixture.p_clean(x).mean() > 0.98
    only = fit_mixture(code.expand(-1, 2).contiguous(), [2, 2], seed=0)
    assert only.log_density(torch.tensor([[0.0, 0.0]]).double()).exp().item() == pytest.approx(0.5, abs=0.06)


def test_contamination_that_is_even_in_the_units_of_the_data_is_so_in_any_coordinates():
    """Log-normal rows whose logs are modelled: evenly spread contamination crowds at the far end of the logarithm."""
    rng = generator(0)
    x = torch.randn(2000, 2, generator=rng, dtype=torch.float64).exp()
    x[:200] = 60 * torch.rand(200, 2, generator=rng, dtype=torch.float64)
    coordinates = Coordinates.robust(x).unskewed(x)
    mixture = fit_mixture(coordinates.forward(x, torch.float64), seed=0, coordinates=coordinates)
    assert mixture.contamination == pytest.approx(0.1, abs=0.02)


def test_the_same_seed_gives_the_same_mixture():
    z = mixed(500)[0]
    state = torch.get_rng_state()
    a, b, c = (fit_mixture(z, seed=seed).density.means for seed in (1, 1, 2))
    assert torch.equal(a, b)
    assert a.shape != c.shape or not torch.equal(a, c)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("background", [True, False])
@pytest.mark.parametrize("levels", [[0], [3], [0, 0], [2, 3]])
def test_any_table_gets_a_mixture(levels, background):
    """One row, few rows, constant columns: a finite answer."""
    rng, settings = generator(0), MixtureSettings(background=background)
    for n in (1, 2, 12, 60):
        x = torch.stack([torch.randint(size or 4, (n,), generator=rng) for size in levels], 1).double()
        mixture = fit_mixture(x, levels, seed=0, settings=settings)
        assert mixture.log_density(x).isfinite().all()
    constant = torch.ones(50, len(levels)).double()
    assert fit_mixture(constant, levels, seed=0, settings=settings).log_density(constant).isfinite().all()


def test_the_number_of_components_is_chosen():
    rng = generator(0)
    one = torch.randn(800, 3, generator=rng, dtype=torch.float64)
    several = one * 0.2 + 3 * torch.randn(4, 3, generator=rng, dtype=torch.float64)[torch.arange(800) % 4]
    assert len(fit_mixture(one, seed=0).components.weights) == 1
    assert len(fit_mixture(several, seed=0).components.weights) >= 4
    assert len(fit_mixture(several, seed=0, settings=MixtureSettings(components=(2,))).components.weights) == 2


def test_components_start_at_rows_with_near_neighbours():
    z, _ = mixed(2000, share=0.2)
    settings = MixtureSettings(near=0.75)
    first = first_component(z, torch.zeros(3).long(), settings, None)
    means = start(first, z, 4, generator(0)).components.means
    assert torch.cdist(means, MEANS).amin(1).max() < 1.5


def test_refitted_goes_on_with_other_rows(fitted):
    z, _ = mixed(4000, seed=5)
    again = fitted.refitted(z + 0.1)
    shift = (again.components.weights[:, None] * again.components.means).sum(0)
    before = (fitted.components.weights[:, None] * fitted.components.means).sum(0)
    # Five standard errors of a mean of 3,600 rows of deviation 2.
    assert (shift - before - 0.1).abs().max() < 5 * 2 / 60


def test_invalid_tables_are_refused():
    with pytest.raises(ValueError, match="must have 1 columns"):
        fit_mixture(torch.zeros(5, 2), [0], seed=0)
    with pytest.raises(ValueError, match="codes of categories"):
        fit_mixture(torch.full((5, 1), 2.0), [2], seed=0)
    x = torch.zeros(5, 2)
    x[:, 1] = torch.nan
    with pytest.raises(ValueError, match="no values at all"):
        fit_mixture(x, seed=0)


def test_k_means_finds_clusters_that_are_apart():
    rng = generator(0)
    group = torch.arange(300) % 3
    z = (
        0.3 * torch.randn(300, 2, generator=rng, dtype=torch.float64)
        + 10 * torch.tensor([[0, 0], [1, 0], [0, 1]])[group]
    )
    found = k_means(z, 3, rng)
    assert all(len(found[group == k].unique()) == 1 for k in range(3))
    assert len(found.unique()) == 3


# --- single wrong cells ---

CELLS = MixtureSettings(wrong_cells=True, near=0.85, pseudo_rows=4.0, ridge=1e-4)


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
def cells():
    right, x, wrong, levels = table()
    return fit_mixture(x, levels, seed=0, settings=CELLS).components, right, x, wrong


def test_wrong_cells_are_found_and_little_else(cells):
    model, _, x, wrong = cells
    trusted, there = trusted_cells(model, x), ~x.isnan()
    assert (~trusted[wrong]).double().mean() > 0.94
    # .001 are expected; missing and wrong cells leave some components in doubt.
    assert (~trusted[there & ~wrong]).double().mean() < 0.005
    cost = Cells.of(model, x, trusted).cost
    assert cost[wrong].quantile(0.1) > cost[there & ~wrong].quantile(0.99)


def test_wrong_and_missing_cells_are_repaired(cells):
    """Half of them to within the noise of .3; in some rows too little is left. Categories nine times of ten."""
    model, right, x, wrong = cells
    repaired = model.expected(x.masked_fill(~trusted_cells(model, x), torch.nan))
    lost = wrong | x.isnan()
    error = (repaired - right)[:, :6][lost[:, :6]]
    assert error.abs().median() < 0.3
    assert error.square().mean().sqrt() < 0.55 * right[:, :6].std()
    assert (repaired == right)[:, 6:][lost[:, 6:]].double().mean() > 0.85


def test_intervals_cover_what_was_lost(cells):
    """Of about 900 missing and wrong numbers: .9 to five standard errors of .01."""
    model, right, x, wrong = cells
    lost = (wrong | x.isnan())[:, :6]
    lower, upper = Cells.of(model, x, trusted_cells(model, x)).quantiles(0.9)
    inside = ((right >= lower) & (right <= upper))[:, :6][lost]
    assert inside.double().mean().item() == pytest.approx(0.9, abs=5 * math.sqrt(0.09 / len(inside)))


def test_wrong_cells_hardly_move_the_fit(cells):
    """Against a fit to the correct cells, by the mean log density of rows without mistakes."""
    model, right, x, _ = cells
    plain = replace(CELLS, background=False, wrong_cells=False, components=(4,))
    clean, dirty = (
        fit_mixture(rows.masked_fill(x.isnan(), torch.nan), [0] * 6 + [3, 3], seed=0, settings=plain).components
        for rows in (right, x)
    )
    ours, theirs = (clean.log_prob(right).mean() - m.log_prob(right).mean() for m in (model, dirty))
    assert ours < 0.4
    assert theirs > 1.5 * ours


def test_outlying_rows_do_not_move_the_fit():
    rng = generator(2)
    x = torch.randn(1000, 4, generator=rng, dtype=torch.float64)
    x[:, 1:] = 0.9 * x[:, :1] + 0.4 * x[:, 1:]
    x[:100] = 3 * torch.randn(100, 4, generator=rng, dtype=torch.float64)
    model = fit_mixture(x, seed=0, settings=replace(CELLS, components=(1,))).components
    covariance, truth = model.factors[0] @ model.factors[0].T, torch.cov(x[100:].T)
    assert ((covariance - truth) / truth.diagonal().mean()).abs().max() < 0.25
    energy = model.energy(x)
    assert energy[:100].median() > energy[100:].quantile(0.95)


def test_nothing_is_predicted_beyond_what_was_seen(cells):
    model, _, x, _ = cells
    far = x[:20].clone()
    far[:, 0], far[:, 1] = 50.0, torch.nan
    expected = model.expected(far)[:, 1]
    assert (expected >= model.bounds[0, 1]).all()
    assert (expected <= model.bounds[1, 1]).all()
    torch.testing.assert_close(Cells.of(model, far, ~far.isnan()).mean[:, 1], expected)


def test_a_category_of_a_fifth_of_the_rows_is_no_mistake():
    """Its rows are a cluster of their own: one Gaussian and a background would take all of them."""
    rng = torch.Generator().manual_seed(0)
    group = torch.arange(400) % 5
    code = (group > 1).double() + (group > 3).double()  # two fifths, two fifths, one fifth
    z = torch.randn(400, 4, generator=rng).double() * 0.3 + torch.stack([code * 2, -code, code**2, 0 * code], 1)
    x = torch.cat([z, code[:, None]], 1)
    model = fit_mixture(x, [0, 0, 0, 0, 3], seed=0, settings=CELLS).components
    assert trusted_cells(model, x)[:, 4].all()


def test_columns_that_mostly_have_one_value_do_not_cost_any_number_of_nats():
    """Nine in ten rows have 0; the others are rare, not impossible: about -log of their share, and none is wrong."""
    rng = torch.Generator().manual_seed(0)
    spiked = torch.zeros(600, dtype=torch.float64)
    spiked[:60] = 1 + torch.rand(60, generator=rng).double()
    x = torch.cat([torch.randn(600, 2, generator=rng).double(), spiked[:, None]], 1)
    model = fit_mixture(x, seed=0, settings=CELLS).components
    assert Cells.of(model, x).cost[:60, 2].max() < 8
    assert trusted_cells(model, x)[:, 2].double().mean() > 0.99


def test_saved_tensors_make_the_same_model(cells):
    model, _, x, _ = cells
    again = TableMixture(**model.tensors())
    assert torch.equal(again.energy(x[:50]), model.energy(x[:50]))
    assert with_gaps(again).isnan().any()
