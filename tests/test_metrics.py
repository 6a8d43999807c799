import subprocess
import sys

import numpy as np
import pytest
import scipy.linalg
import torch
from sklearn.metrics import roc_curve

from pscd.metrics import PRDC, aupr, auroc, fpr_at_95, frechet_distance, mmd, prdc
from pscd.rng import generator


def brute_force(real, fake, unbiased):
    def k(x, y):
        return torch.exp(-torch.cdist(x.double(), y.double()).square() / 4)

    n, m = len(real), len(fake)
    if unbiased:
        within = (k(real, real).sum() - n) / (n * (n - 1)) + (k(fake, fake).sum() - m) / (m * (m - 1))
    else:
        within = k(real, real).mean() + k(fake, fake).mean()
    return (within - 2 * k(real, fake).mean()).item()


@pytest.mark.parametrize("unbiased", [True, False])
@pytest.mark.parametrize("block", [7, 4096])
@pytest.mark.parametrize("offset", [0.0, 300.0])
def test_equals_the_definition_in_blocks_of_any_size(unbiased, block, offset):
    real = torch.randn(50, 2, generator=generator(0)) + offset
    fake = 0.5 + torch.randn(31, 2, generator=generator(1)) + offset
    assert mmd(real, fake, unbiased=unbiased, block=block) == pytest.approx(
        brute_force(real, fake, unbiased), abs=1e-6 if offset else 1e-7
    )


def test_closed_form_for_two_gaussians():
    """E k(x, y) = sqrt(2 / (2 + s^2)) exp(-m^2 / (2 (2 + s^2))) for a difference N(m, s^2), bandwidth^2 = 2."""
    n = 5000
    real, fake = torch.randn(n, 1, generator=generator(0)), 1 + torch.randn(n, 1, generator=generator(1))
    k = (2 / 4) ** 0.5
    exact = 2 * k - 2 * k * torch.tensor(-1 / 8).exp().item()
    assert mmd(real, fake) == pytest.approx(exact, abs=0.02)


def test_u_statistic_is_centred_on_zero_for_equal_distributions():
    values = [
        1e4 * mmd(torch.randn(500, 2, generator=generator(2 * i)), torch.randn(500, 2, generator=generator(2 * i + 1)))
        for i in range(40)
    ]
    mean, spread = torch.tensor(values).mean().item(), torch.tensor(values).std().item() / 40**0.5
    assert abs(mean) < 5 * spread
    assert min(values) < 0 < max(values)


def test_refuses_what_cannot_be_compared():
    with pytest.raises(ValueError, match="rows of shape"):
        mmd(torch.zeros(5, 2), torch.zeros(5, 3))
    with pytest.raises(ValueError, match="two points"):
        mmd(torch.zeros(1, 2), torch.zeros(5, 2))


# --- Frechet distance ---


def normal(n, d, seed=0):
    return torch.randn(n, d, generator=generator(seed), dtype=torch.float64)


def by_matrix_root(real, fake):
    a, b = (np.cov(x.numpy(), rowvar=False) for x in (real, fake))
    shift = (real.mean(0) - fake.mean(0)).square().sum().item()
    return shift + np.trace(a + b - 2 * scipy.linalg.sqrtm(a @ b).real)


@pytest.mark.parametrize("offset", [0.0, 1e5])
@pytest.mark.parametrize(("n", "m"), [(200, 150), (200, 7), (7, 200)])
def test_frechet_equals_the_formula_with_a_matrix_root(n, m, offset):
    """Correlated columns, covariances that do not commute; sets with fewer rows than columns among them."""
    real, fake = normal(n, 8) @ normal(8, 8, 2), 1 + normal(m, 8, 1) @ normal(8, 8, 3)
    assert frechet_distance(real + offset, fake + offset) == pytest.approx(by_matrix_root(real, fake), rel=1e-6)


@pytest.mark.parametrize(("n", "d"), [(50, 3), (5, 40), (40, 40)])
def test_frechet_of_a_set_and_its_image_under_scaling(n, d):
    """C2 = s^2 C1 has the same eigenvectors, so the distance is |shift|^2 + (1 - s)^2 tr C1, at any rank."""
    x = normal(n, d)
    trace = (x - x.mean(0)).square().sum().item() / (n - 1)
    shifted = 3 * (x - x.mean(0)) + x.mean(0) + 1
    assert frechet_distance(x, shifted) == pytest.approx(d + 4 * trace, rel=1e-10)
    assert frechet_distance(x, x.flip(0)) == pytest.approx(0, abs=1e-9 * trace)


def test_frechet_of_sets_in_orthogonal_spaces_is_the_sum_of_their_variances():
    x, y = normal(30, 6), normal(30, 6, 1)
    x[:, 3:], y[:, :3] = 0, 0
    expected = x.var(0).sum() + y.var(0).sum() + (x.mean(0) - y.mean(0)).square().sum()
    assert frechet_distance(x, y) == pytest.approx(expected.item(), rel=1e-10)


def test_frechet_does_not_depend_on_how_many_columns_are_constant():
    """40 rows: with 10 columns the covariance is decomposed, with 50 the rows are."""
    x, y = normal(40, 10) @ normal(10, 10, 2), normal(40, 10, 1)
    wide = [torch.cat([z, torch.full((40, 40), 7.0)], 1) for z in (x, y)]
    assert frechet_distance(*wide) == pytest.approx(frechet_distance(x, y), rel=1e-10)
    assert frechet_distance(wide[0].view(40, 2, 25), wide[1].view(40, 2, 25)) == frechet_distance(*wide)
    assert frechet_distance(x.float(), y.float()) == pytest.approx(frechet_distance(x, y), rel=1e-5)


# --- precision, recall, density, coverage ---


def dense_prdc(real, fake, k):
    """The definitions, by subtraction, all at once."""
    real, fake = real.double().numpy(), fake.double().numpy()

    def distances(x, y):
        return np.sqrt(((x[:, None] - y[None]) ** 2).sum(-1))

    def radii(x):
        within = distances(x, x)
        np.fill_diagonal(within, np.inf)
        return np.sort(within, 1)[:, k - 1]

    across = distances(real, fake)
    in_real, in_fake = across < radii(real)[:, None], across < radii(fake)[None]
    return PRDC(in_real.any(0).mean(), in_fake.any(1).mean(), in_real.sum(0).mean() / k, in_real.any(1).mean())


@pytest.mark.parametrize("k", [1, 5])
@pytest.mark.parametrize("block", [1, 7, 2048])
@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_prdc_equals_its_definition_in_blocks_of_any_size(k, block, offset):
    real = normal(60, 3).float() + offset
    fake = 0.4 + 0.8 * normal(45, 3, 1).float() + offset
    assert prdc(real, fake, k, block=block) == pytest.approx(dense_prdc(real, fake, k), abs=1e-12)


def test_progress_is_shown_on_demand_only(capsys):
    x = normal(30, 2).float()
    prdc(x, x)
    assert capsys.readouterr().err == ""
    prdc(x, x, progress=True)
    assert "block" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("k", "expected"),
    [
        (1, (0.7866666666666666, 0.4666666666666667, 1.4133333333333333, 0.6083333333333333)),
        (5, (0.98, 0.8416666666666667, 1.156, 0.9833333333333333)),
    ],
)
def test_prdc_equals_the_package_of_its_authors(k, expected):
    """Values of `prdc` 0.2 on these points, in float64."""
    real = torch.randn(120, 6, generator=generator(0))
    fake = 0.3 + 0.9 * torch.randn(150, 6, generator=generator(1))
    assert prdc(real, fake, k) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("offset", [0.0, 3000.0])
@pytest.mark.parametrize("block", [64, 1000])
def test_equal_sets_agree_exactly(offset, block):
    """The k-th neighbour lies on the edge of the ball: in or out must not be left to rounding."""
    x = normal(300, 40).float() + offset
    for k in (1, 5):
        assert prdc(x, x[torch.randperm(300, generator=generator(2))], k, block=block) == (1, 1, 1, 1)


def test_copies_do_not_confuse_a_point_with_itself():
    x = torch.tensor([[0.0], [0.0], [1.0], [3.0]])
    # Radii with k = 1: 0, 0, 1, 2. A fake at 0 lies in the balls around its two copies only: the one around 1
    # ends there.
    assert prdc(x, torch.zeros(4, 1), 1) == (1.0, 0.5, 2.0, 0.5)
    # A fake at 2 is in the ball around 3 alone, those at 2.5 and 9 as well and not.
    result = prdc(x, torch.tensor([[2.0], [2.5], [9.0]]), 1)
    assert result == (2 / 3, 0.25, 2 / 3, 0.25)
    assert prdc(torch.ones(9, 2), torch.ones(7, 2), 3) == (1, 1, 3, 1)
    assert prdc(torch.ones(9, 2), torch.zeros(7, 2), 3) == (0, 0, 0, 0)


def test_metrics_of_points_refuse_what_they_cannot_measure():
    x = normal(6, 2)
    with pytest.raises(ValueError, match="at least 6 points"):
        prdc(x, x[:5], 5)
    with pytest.raises(ValueError, match="k must be at least 1"):
        prdc(x, x, 0)
    with pytest.raises(ValueError, match="at least two points"):
        frechet_distance(x, x[:1])
    bad = x.clone()
    bad[0, 0] = np.nan
    for measure in (frechet_distance, prdc):
        with pytest.raises(ValueError, match="rows of shape"):
            measure(x, normal(6, 3))
        for pair in ((x, bad), (bad, x)):
            with pytest.raises(ValueError, match="not all finite"):
                measure(*pair)


MEMORY = """
import resource, torch
from pscd.metrics import frechet_distance, prdc
x, y = torch.randn(8000, 1024), torch.randn(8000, 1024)
prdc(x[:100], y[:100]), frechet_distance(x[:1100], y[:1100])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
prdc(x, y, block=512)
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
frechet_distance(x, y)
prdc(torch.ones(600, 1024), torch.ones(600, 1024), block=512)  # every pair is in doubt
print((after - before) / 1024, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_square_of_the_number_of_points():
    """8,000 points: one matrix of distances would be 488 MB, a copy of the features in float64 62 MB a side."""
    done = subprocess.run([sys.executable, "-c", MEMORY], check=True, capture_output=True, text=True)
    neighbours, both = map(float, done.stdout.split())
    assert neighbours < 100
    assert both < 200  # and that of constant features, where 262,144 pairs of a block are looked at twice, 1 GB a side


# --- scores ---


def scores(n, m, seed=0, decimals=1):
    """Coarse numbers, so that there are ties."""
    return normal(n, 1, seed)[:, 0].round(decimals=decimals), (1 + normal(m, 1, seed + 1)[:, 0]).round(
        decimals=decimals
    )


@pytest.mark.parametrize("decimals", [0, 1, 8])
def test_auroc_is_a_chance_and_aupr_a_mean_of_precisions(decimals):
    inside, outside = scores(200, 90, decimals=decimals)
    wins = (outside[:, None] > inside).double() + 0.5 * (outside[:, None] == inside)
    assert auroc(inside, outside) == pytest.approx(wins.mean().item(), abs=1e-12)
    assert auroc(outside, inside) == pytest.approx(1 - wins.mean().item(), abs=1e-12)
    # At each found one, the precision of all that score at least as high.
    result = [(outside >= s).sum() / ((outside >= s).sum() + (inside >= s).sum()) for s in outside]
    value, share = aupr(inside, outside)
    assert value == pytest.approx(torch.stack(result).mean().item(), abs=1e-6)
    assert share == 90 / 290


@pytest.mark.parametrize("m", [1, 19, 20, 21, 100, 140])
def test_fpr_at_95_is_a_point_of_the_roc_curve(m):
    inside, outside = scores(200, m, seed=m)
    false, true, _ = roc_curve(np.repeat([0, 1], [200, m]), torch.cat([inside, outside]), drop_intermediate=False)
    assert fpr_at_95(inside, outside) == pytest.approx(false[true >= 0.95 - 1e-12].min(), abs=1e-12)


def test_scores_that_know_all_nothing_or_the_opposite():
    low, high = torch.arange(50.0), torch.arange(50.0) + 100
    assert (auroc(low, high), aupr(low, high).value, fpr_at_95(low, high)) == (1, 1, 0)
    assert (auroc(high, low), fpr_at_95(high, low)) == (0, 1)
    same = torch.zeros(30)
    assert (auroc(same, same), aupr(same, same), fpr_at_95(same, same)) == (0.5, (0.5, 0.5), 1)


def test_infinite_scores_are_the_highest_and_nan_is_refused():
    inside, outside = torch.tensor([0.0, 1.0, 3.0]), torch.tensor([2.0, torch.inf, torch.inf, 4.0])
    assert auroc(inside, outside) == pytest.approx(11 / 12)
    assert fpr_at_95(inside, outside) == pytest.approx(1 / 3)
    for measure in (auroc, aupr, fpr_at_95):
        with pytest.raises(ValueError, match="1 of 7 scores are not numbers"):
            measure(inside, torch.tensor([2.0, torch.nan, torch.inf, 4.0]))
        with pytest.raises(ValueError, match="both sides"):
            measure(inside, inside[:0])


@pytest.mark.parametrize("measure", [mmd, frechet_distance, prdc])
def test_rows_of_two_shapes_are_told_which_is_which(measure):
    with pytest.raises(ValueError, match=r"real has rows of shape \(2,\), fake \(3,\)"):
        measure(torch.zeros(9, 2), torch.zeros(9, 3))
