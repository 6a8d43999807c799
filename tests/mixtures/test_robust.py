import math
from dataclasses import replace

import pytest
import torch

from pscd.mixtures import fit_robust_mixture
from pscd.mixtures import robust as module
from pscd.mixtures.background import Background
from pscd.mixtures.robust import RobustMixture, _maximise, em, first, k_means, near_rows, refit
from pscd.rng import generator

MEANS = torch.tensor([[-2.0, 0.0, 1.0], [2.0, 1.0, -1.0]], dtype=torch.float64)
JUNK = 0.1
REACH = 8.0


def mixed(n=8000, junk=JUNK, seed=0):
    """Two Gaussians of deviation .5, and junk evenly in a cube; the rows and which of them are junk."""
    rng = generator(seed)
    group = torch.randint(2, (n,), generator=rng)
    z = MEANS[group] + 0.5 * torch.randn(n, 3, generator=rng, dtype=torch.float64)
    is_junk = torch.rand(n, generator=rng) < junk
    z[is_junk] = 2 * REACH * torch.rand(int(is_junk.sum()), 3, generator=rng, dtype=torch.float64) - REACH
    return z, is_junk


@pytest.fixture(scope="module")
def found():
    return fit_robust_mixture(mixed()[0], robust=True, seed=0)


def without_trace(found):
    return replace(found, background=None, junk=found.junk[:0]).density


def skewed(n, d, seed=0):
    rng = generator(seed)
    factor = torch.eye(d).double() + 0.5 * torch.randn(d, d, generator=rng, dtype=torch.float64).tril(-1)
    return 3 + torch.randn(n, d, generator=rng, dtype=torch.float64) @ factor.T


def test_the_share_of_junk_is_found(found):
    """Five standard errors of a share among 8,000 rows, and the share's own: sqrt(.1 .9 / n) = .0034.

    The junk that lies inside the two Gaussians, whose balls of 3 deviations are 2 x 14 of 4,096 units of volume, is not
    told from data: .7 % of the junk, .0007 of the rows.
    """
    _, is_junk = mixed()
    share = is_junk.double().mean().item()
    assert found.share_of_junk == pytest.approx(share, abs=5 * math.sqrt(share * (1 - share) / 8000) + 0.001)


def test_the_chance_of_being_clean_is_bayes_rule(found):
    z, _ = mixed(1000, seed=1)
    clean = without_trace(found).log_prob(z).exp() * (1 - found.share_of_junk)
    junk = found.background.log_prob(z).exp() @ found.junk
    torch.testing.assert_close(found.clean(z), clean / (clean + junk), rtol=1e-9, atol=1e-12)


def test_chances_are_calibrated(found):
    """Rows of a density that has the tail, too, and junk: a mixture fitted to them knows how many of which are clean.

    Of the rows in each bin of the chances so many are clean as they say, to five standard errors.
    """
    rng = generator(4)
    z = without_trace(found).sample(40_000, rng)
    is_junk = torch.rand(40_000, generator=rng) < JUNK
    z[is_junk] = 2 * REACH * torch.rand(int(is_junk.sum()), 3, generator=rng, dtype=torch.float64) - REACH
    again = fit_robust_mixture(z[:20_000], robust=True, seed=0)
    chances, truth = again.clean(z[20_000:]), (~is_junk[20_000:]).double()
    for low, high in ((0.05, 0.35), (0.35, 0.65), (0.65, 0.95)):
        near = (chances > low) & (chances < high)
        n = int(near.sum())
        assert n > 50
        assert truth[near].mean().item() == pytest.approx(chances[near].mean().item(), abs=5 * 0.5 / math.sqrt(n))
    assert truth[chances < 0.05].mean() < 0.05
    assert truth[chances > 0.95].mean() > 0.95


def test_the_majority_is_found_as_it_is(found):
    """KL(truth || density), by clean rows it has not seen: the tail of .01 costs .01, the parameters 20 / (2 n)."""
    z, _ = mixed(20_000, junk=0.0, seed=2)
    parts = [torch.distributions.Normal(mean, 0.5).log_prob(z).sum(1) for mean in MEANS]
    excess = torch.logaddexp(*parts) - math.log(2) - found.density.log_prob(z)
    # A mixture of two has 19 parameters: 19 / 14,400 = .0013. More components than two cost as much again.
    assert excess.mean().item() == pytest.approx(0.012, abs=0.008)
    assert len(found.components.weights) in (2, 4)


def test_without_a_background_the_junk_gets_components():
    """What robustness is for: maximum likelihood covers the cube, at the clean rows' cost of about log(1 - junk)."""
    z, is_junk = mixed()
    plain, clean = fit_robust_mixture(z, robust=False, seed=0), mixed(5000, junk=0.0, seed=2)[0]
    found = fit_robust_mixture(z, robust=True, seed=0)
    assert plain.background is None
    assert plain.share_of_junk == 0.0
    torch.testing.assert_close(plain.clean(z[:50]), torch.ones(50).double())
    # A trace of .005 is left of a tenth: log 20 = 3 nats less, where the clean rows are not.
    assert plain.density.log_prob(z[is_junk]).mean() > found.density.log_prob(z[is_junk]).mean() + 2.5
    assert found.density.log_prob(clean).mean() > plain.density.log_prob(clean).mean() + 0.5 * -math.log(1 - JUNK)


@pytest.mark.parametrize("d", [1, 2, 5])
def test_one_gaussian_has_the_mean_and_covariance_of_the_rows(d, monkeypatch):
    """Without junk and with one component, the M-step is maximum likelihood but for what is added on purpose.

    The tail takes .01 of the rows, those far out more than others: that takes less than 3 % off the variances.
    """
    monkeypatch.setattr(module, "COMPONENTS", (1,))
    z = skewed(4000, d)
    found = fit_robust_mixture(z, robust=False, seed=0, components=(1,))
    covariance = torch.cov(z.T, correction=0).reshape(d, d)
    (factor,) = found.components.factors
    scale = covariance.diagonal().sqrt()
    assert ((found.components.means[0] - z.mean(0)) / scale).abs().max() < 0.01
    assert ((factor @ factor.T - covariance) / torch.outer(scale, scale)).abs().max() < 0.05


def test_one_step_is_that_of_weighted_moments():
    """Shares of 0 and 1: counts, means and covariances by hand, with the pseudo-rows of the pooled covariance."""
    z, share = skewed(60, 2), torch.zeros(60, 2, dtype=torch.float64)
    share[:20, 0] = share[20:, 1] = 1
    found = _maximise(z, share)
    torch.testing.assert_close(found.weights, torch.tensor([1, 2]).double() / 3, rtol=1e-8, atol=1e-8)
    groups = (z[:20], z[20:])
    own = [torch.cov(rows.T, correction=0) for rows in groups]
    pooled = (20 * own[0] + 40 * own[1]) / 60
    part = 0.5 * 2 / 60
    pooled = (1 - part) * pooled + part * torch.diag(pooled.diagonal())
    extra = 0.5 * math.sqrt(2)
    for k, (rows, covariance) in enumerate(zip(groups, own, strict=True)):
        torch.testing.assert_close(found.means[k], rows.mean(0), rtol=1e-8, atol=1e-8)
        expected = (len(rows) * covariance + extra * pooled) / (len(rows) + extra) + 1e-6 * torch.diag(
            z.var(0, correction=0)
        )
        torch.testing.assert_close(found.factors[k] @ found.factors[k].T, expected, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("robust", [True, False])
def test_the_likelihood_never_falls(robust, monkeypatch):
    """EM, exactly, where nothing is added to the covariances; then it is one round of EM after the other."""
    for name in ("PSEUDO_ROWS", "TO_DIAGONAL", "RIDGE"):
        monkeypatch.setattr(module, name, 0.0)
    z, _ = mixed(1500)
    current = first(near_rows(z), 4, Background.of(z) if robust else None, generator(0))
    values = []
    for _ in range(30):
        values.append(float(current.log_parts(z).logsumexp(1).mean()))
        current = em(current, z, 1)
    rises = torch.tensor(values).diff()
    assert values[-1] > values[0] + 0.01
    assert rises.min() > -1e-9


def test_parts_add_up_to_a_density(found):
    """Their integral by draws of a broad Gaussian: one, to five standard errors."""
    broad = torch.distributions.Normal(torch.zeros(3).double(), torch.full((3,), 5.0).double())
    z = 5 * torch.randn(400_000, 3, generator=generator(3), dtype=torch.float64)
    weight = (found.log_parts(z).logsumexp(1) - broad.log_prob(z).sum(1)).exp()
    assert weight.mean().item() == pytest.approx(1, abs=5 * weight.std().item() / len(z) ** 0.5)
    torch.testing.assert_close(found.log_parts(z[:100])[:, :2].softmax(1).sum(1), torch.ones(100).double())


def test_the_density_of_the_majority_keeps_a_trace_of_the_background_in_more_columns_than_two(found):
    z = 5 * torch.randn(100, 3, generator=generator(3), dtype=torch.float64)
    majority = without_trace(found).log_prob(z)
    torch.testing.assert_close(majority, found.log_parts(z)[:, :2].logsumexp(1) - math.log(1 - found.share_of_junk))
    trace = found.background.gaussians(found.junk / found.share_of_junk).log_prob(z)
    expected = torch.logaddexp(majority + math.log(1 - module.TRACE), trace + math.log(module.TRACE))
    torch.testing.assert_close(expected, found.density.log_prob(z))
    plane = fit_robust_mixture(mixed()[0][:, :2], robust=True, seed=0)
    plain = fit_robust_mixture(mixed()[0], robust=False, seed=0)
    for other in (plane, plain):
        rows = z[:, : other.tail.means.shape[1]]
        assert torch.equal(without_trace(other).log_prob(rows), other.density.log_prob(rows))


def test_the_same_seed_gives_the_same_mixture():
    z, _ = mixed(1000)
    before = torch.get_rng_state()
    first, again, other = (fit_robust_mixture(z, robust=True, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first.density.factors, again.density.factors)
    assert torch.equal(first.junk, again.junk)
    assert first.held_out == again.held_out
    assert first.held_out != other.held_out


@pytest.mark.parametrize("robust", [True, False])
@pytest.mark.parametrize(("n", "d"), [(2, 2), (5, 3), (25, 3), (300, 1), (100, 64), (30, 64)])
def test_any_table_gets_a_mixture(n, d, robust):
    z = torch.randn(n, d, generator=generator(n), dtype=torch.float64)
    found = fit_robust_mixture(z, robust=robust, seed=0)
    assert found.density.weights.sum().item() == pytest.approx(1)
    assert found.density.log_prob(z).isfinite().all()
    assert found.clean(z).isfinite().all()
    assert found.share_of_junk <= module.MOST_JUNK + 1e-12
    assert found.density.sample(5, generator(0)).shape == (5, d)


def test_duplicate_rows_and_columns_are_no_trouble():
    z = torch.randn(10, 2, generator=generator(0), dtype=torch.float64).repeat(20, 2)
    found = fit_robust_mixture(z, robust=True, seed=0)
    assert found.density.log_prob(z).isfinite().all()


def test_clean_rows_have_little_background():
    for seed in range(3):
        z = skewed(2000, 3, seed)
        # Below what `prepare` calls junk: .03 and one over sqrt(n).
        assert fit_robust_mixture(z, robust=True, seed=seed).share_of_junk < 0.03 + 2000**-0.5


@pytest.mark.parametrize(("n", "d", "most"), [(15, 3, 1), (80, 3, 4), (80, 40, 1)])
def test_components_are_no_more_than_rows_can_tell_apart(n, d, most, monkeypatch):
    """Ten rows, and one for each column, of the four fifths that are fitted to."""
    tried = []
    first = module.first
    monkeypatch.setattr(module, "BETTER", -torch.inf)  # so that all are tried
    monkeypatch.setattr(module, "first", lambda z, k, *rest: tried.append(k) or first(z, k, *rest))
    module.fit_robust_mixture(torch.randn(n, d, generator=generator(0)).double(), robust=True, seed=0)
    assert max(tried) == most


def test_components_start_on_rows_with_near_neighbours():
    z, is_junk = mixed(1000)
    near = near_rows(z)
    assert len(near) == 900
    left = {tuple(row) for row in near.tolist()}
    kept_junk = sum(tuple(row) in left for row in z[is_junk].tolist())
    # As much is left out as there is junk, give or take: hardly any of it can be kept.
    assert kept_junk < 0.25 * int(is_junk.sum())
    assert len(near_rows(z[:, :2])) == 800  # in the plane


def test_k_means_finds_clusters_that_are_apart():
    z = torch.randn(300, 2, generator=generator(0), dtype=torch.float64)
    truth = torch.arange(300) % 3
    z[:, 0] += 30 * truth
    group = k_means(z, 3, generator(1))
    pairs = {(int(a), int(b)) for a, b in zip(truth, group, strict=True)}
    assert len(pairs) == 3
    assert len({b for _, b in pairs}) == 3


def test_a_mixture_without_background_calls_every_row_clean(found):
    plain = replace(found, background=None, junk=found.junk[:0])
    assert isinstance(plain, RobustMixture)
    torch.testing.assert_close(plain.clean(torch.full((1, 3), 100.0).double()), torch.ones(1).double())
    assert found.clean(torch.full((1, 3), 7.9).double()) < 1e-6


def test_which_rows_are_near_does_not_depend_on_the_units():
    z = torch.randn(200, 3, generator=generator(0)).double().sinh()
    units = torch.tensor([1.0, 1e3, 1e-3]).double()
    torch.testing.assert_close(near_rows(z * units), near_rows(z) * units)
    assert len(near_rows(z)) < 200


@pytest.mark.parametrize(
    ("scores", "full", "tried", "best"),
    [
        ({1: 0.0, 2: -1.0, 4: 1.0, 8: 1.0, 16: 0.9, 32: 5.0}, (), [1, 2, 4, 8, 16], 4),  # one worse is forgiven
        ({1: 0.0, 2: 5e-4, 4: 9e-4, 8: 9.0}, (), [1, 2, 4], 1),  # less than BETTER is no better
        ({1: 0.0, 2: 2e-3, 4: 4e-3, 8: 6e-3}, (), [1, 2, 4, 8], 8),
        # A full background stands in for components that are missing, and ends no search.
        (
            {1: 5.0, 2: 4.0, 4: 3.0, 8: 1.0, 16: 9.0, 32: 8.0, 64: 7.0, 128: 10.0},
            (1, 2, 4),
            [1, 2, 4, 8, 16, 32, 64],
            16,
        ),
        # Nor does one that is the best so far.
        ({1: 5.0, 2: 4.0, 4: 3.0, 8: 1.0, 16: 2.0, 32: 9.0}, (1,), [1, 2, 4, 8, 16, 32], 32),
        ({1: 5.0, 2: 6.0, 4: 3.0, 8: 1.0, 16: 2.0, 32: 9.0}, (1, 4), [1, 2, 4, 8, 16], 2),
    ],
)
def test_numbers_of_components_are_tried_until_two_in_a_row_are_no_better(scores, full, tried, best, monkeypatch):
    asked = []

    class Scored:
        def __init__(self, k):
            self.k = k
            self.share_of_junk = 0.495 if k in full else 0.485  # full from .49 on

        def log_parts(self, z):
            return torch.full((len(z), 1), scores[self.k]).double()

    monkeypatch.setattr(module, "first", lambda start, k, *rest: asked.append(k) or Scored(k))
    monkeypatch.setattr(module, "em", lambda found, z, rounds: found)
    monkeypatch.setattr(module, "replace", lambda found, held_out: (found.k, held_out))
    z = torch.randn(1000, 2, generator=generator(0)).double()
    assert module.fit_robust_mixture(z, robust=False, seed=0, components=tuple(scores)) == (
        best,
        pytest.approx(scores[best]),
    )
    assert asked == tried


@pytest.mark.parametrize("seed", range(5))
def test_k_means_ends_where_every_row_is_nearest_to_the_mean_of_its_own_cluster(seed):
    z = torch.randn(40, 2, generator=generator(seed), dtype=torch.float64)
    group = k_means(z, 3, generator(seed, 1))
    means = torch.stack([z[group == j].mean(0) for j in range(3)])
    assert torch.equal(torch.cdist(z, means).argmin(1), group)


@pytest.mark.parametrize("junk", [True, False])
def test_em_starts_with_a_tail_of_twice_the_deviations_and_little_junk(junk):
    """By hand: the ridge is d / (d + n) of the variances, 3 / 203, and next to nothing for columns without any."""
    z = skewed(200, 3)
    found = first(z, 2, Background.of(z) if junk else None, generator(0))
    covariance = torch.cov(z.T, correction=0)
    ridge = torch.diag((3 / 203 + 1e-6) * covariance.diagonal() + 1e-12)
    (mean,), (factor,) = found.tail.means, found.tail.factors
    torch.testing.assert_close(mean, z.mean(0))
    torch.testing.assert_close(factor @ factor.T, 4 * (covariance + ridge))
    assert found.junk.tolist() == (pytest.approx([0.05 / 4] * 4) if junk else [])
    assert found.components.weights.sum().item() == pytest.approx(1)


def test_a_refit_starts_from_what_was_found_with_a_little_junk(found):
    """On half of the rows, of which the background is made anew: EM from there, and nothing else."""
    z = mixed()[0][:4000]
    background = Background.of(z)
    start = replace(found, junk=torch.full((4,), 0.05 / 4, dtype=torch.float64), background=background)
    expected, again = em(start, z, 60), refit(found, z)
    for ours, theirs in zip(again.components.tensors().values(), expected.components.tensors().values(), strict=True):
        assert torch.equal(ours, theirs)
    assert torch.equal(again.junk, expected.junk)
    assert torch.equal(again.background.low, background.low)
    assert again.share_of_junk == pytest.approx(JUNK, abs=0.03)


def test_a_refit_keeps_components_that_a_new_start_may_miss():
    """Two modes beside each other, as wide apart as they are high: k-means may cut both into halves."""
    rng = generator(0)
    z = 0.5 * torch.randn(4000, 2, generator=rng, dtype=torch.float64)
    z[:, 0] += 4.0 * (2.0 * (torch.arange(4000) % 2) - 1)
    z = z / z.std(0)
    shares = [fit_robust_mixture(z, robust=True, seed=seed, components=(2,)).share_of_junk for seed in range(20)]
    assert max(shares) > 0.4  # the background stands in for a mode
    best = fit_robust_mixture(z, robust=True, seed=shares.index(min(shares)), components=(2,))
    assert refit(best, z).share_of_junk < 0.02


@pytest.mark.parametrize(("d", "fitted"), [(2, 80), (3, 32)])
def test_in_the_plane_all_rows_choose_the_number_of_components(d, fitted, monkeypatch):
    """Four fifths of 40 rows are fitted to while a number is chosen, where no more may choose, and of all 100 else."""
    monkeypatch.setattr(module, "CHOOSING_ROWS", 40)
    seen, em = [], module.em
    monkeypatch.setattr(module, "em", lambda found, z, rounds: seen.append(len(z)) or em(found, z, rounds))
    module.fit_robust_mixture(
        torch.randn(100, d, generator=generator(0)).double(), robust=True, seed=0, components=(1,)
    )
    assert seen == [fitted, 100]


def test_a_refit_of_a_mixture_without_a_background_has_none():
    z = torch.randn(300, 2, generator=generator(0)).double()
    found = fit_robust_mixture(z, robust=False, seed=0, components=(2,))
    again = refit(found, z + 5)
    assert again.background is None
    assert len(again.junk) == 0
    torch.testing.assert_close(again.components.weights @ again.components.means, z.mean(0) + 5, atol=0.01, rtol=0)
