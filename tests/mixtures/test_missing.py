import pytest
import torch
from scipy.stats import multivariate_normal

from pscd.mixtures.missing import fill, gaps, row_blocks
from pscd.rng import generator


def gaussians(k=3, d=5, seed=0):
    rng = generator(seed)
    factor = torch.randn(k, d, d, generator=rng, dtype=torch.float64)
    covariances = factor @ factor.mT + 0.3 * torch.eye(d, dtype=torch.float64)
    return torch.randn(k, d, generator=rng, dtype=torch.float64), covariances


def with_gaps(n=40, d=5, share=0.4, seed=1):
    """Rows of all kinds: the first without gaps, the second without anything else."""
    rng = generator(seed)
    z = 2 * torch.randn(n, d, generator=rng, dtype=torch.float64)
    missing = torch.rand(n, d, generator=rng) < share
    missing[0], missing[1] = False, True
    return z.masked_fill(missing, torch.nan)


def filled(z, means, covariances):
    log_det = torch.linalg.slogdet(covariances).logabsdet
    return fill(z, gaps(z.isnan()), means, torch.linalg.inv(covariances), log_det)


def conditional(z, mean, covariance, wanted, given):
    """Mean and covariance of some cells given others, by the textbook formula with covariances."""
    to, own = covariance[wanted][:, given], covariance[given][:, given]
    weight = torch.linalg.solve(own, to.T).T
    return mean[wanted] + weight @ (z[given] - mean[given]), covariance[wanted][:, wanted] - weight @ to.T


@pytest.mark.parametrize("d", [1, 2, 5])
def test_marginals_are_those_of_sub_matrices(d):
    means, covariances = gaussians(d=d)
    z = with_gaps(d=d)
    found = filled(z, means, covariances).log_prob
    for i, row in enumerate(z):
        there = ~row.isnan()
        for k in range(len(means)):
            expected = 0.0
            if there.any():
                expected = multivariate_normal(means[k][there], covariances[k][there][:, there]).logpdf(row[there])
            assert found[i, k].item() == pytest.approx(expected, abs=1e-9)


def test_gaps_are_filled_with_conditional_means():
    means, covariances = gaussians()
    z = with_gaps()
    found = filled(z, means, covariances)
    for i, row in enumerate(z):
        missing, there = row.isnan().nonzero().flatten(), (~row.isnan()).nonzero().flatten()
        for k in range(len(means)):
            whole = found.apart[k, i] + means[k]
            torch.testing.assert_close(whole[there], row[there])
            mean, _ = conditional(row, means[k], covariances[k], missing, there)
            torch.testing.assert_close(whole[missing], mean)


def test_variances_and_residuals_of_every_cell_given_the_others():
    means, covariances = gaussians()
    z = with_gaps()
    found = filled(z, means, covariances)
    variances = found.variances()
    for i, row in enumerate(z):
        for j in range(z.shape[1]):
            others = [c for c in range(z.shape[1]) if c != j and not row[c].isnan()]
            for k in range(len(means)):
                mean, variance = conditional(row, means[k], covariances[k], [j], others)
                torch.testing.assert_close(variances[k, i, j], variance[0, 0])
                shown = found.apart[k, i, j] + means[k, j] - found.pull[k, i, j] * variances[k, i, j]
                torch.testing.assert_close(shown, mean[0])


def test_conditional_covariances_add_up():
    means, covariances = gaussians()
    z = with_gaps()
    share = torch.rand(len(z), len(means), generator=generator(2), dtype=torch.float64)
    found, scatter = filled(z, means, covariances), torch.zeros_like(covariances)
    found.add_conditional_covariances(scatter, share)
    expected = torch.zeros_like(covariances)
    for i, row in enumerate(z):
        missing, there = row.isnan().nonzero().flatten(), (~row.isnan()).nonzero().flatten()
        for k in range(len(means)):
            _, covariance = conditional(row, means[k], covariances[k], missing, there)
            expected[k][missing[:, None], missing] += share[i, k] * covariance
    torch.testing.assert_close(scatter, expected)


def test_traces_are_those_of_conditional_covariances():
    means, covariances = gaussians()
    z = with_gaps()
    traces = filled(z, means, covariances).traces()
    for i, row in enumerate(z):
        missing, there = row.isnan().nonzero().flatten(), (~row.isnan()).nonzero().flatten()
        for k in range(len(means)):
            _, covariance = conditional(row, means[k], covariances[k], missing, there)
            for other in range(len(means)):
                own = torch.linalg.inv(covariances[other])[missing[:, None], missing]
                torch.testing.assert_close(traces[i, k, other], torch.trace(own @ covariance))


def test_rows_with_the_same_gaps_share_a_pattern():
    missing = torch.tensor([[1, 0, 0], [0, 1, 1], [1, 0, 0], [0, 0, 0], [0, 0, 1]]).bool()
    one, two = gaps(missing)
    assert one.rows.tolist() == [0, 2, 4]
    assert one.of_rows.tolist() == [[0], [0], [2]]
    assert len(one.cells) == 2
    assert two.rows.tolist() == [1]
    assert two.of_rows.tolist() == [[1, 2]]


def test_blocks_hold_every_row_once_and_are_small_where_gaps_are_many(monkeypatch):
    monkeypatch.setattr("pscd.mixtures.missing.BLOCK_NUMBERS", 20_000)
    missing = torch.rand(3000, 20, generator=generator(0)) < torch.linspace(0, 0.8, 3000)[:, None]
    blocks = list(row_blocks(missing, 2))
    assert sorted(torch.cat(blocks).tolist()) == list(range(3000))
    sizes = [len(block) * 2 * 20 * max(1, int(missing[block].sum(1).max())) for block in blocks if len(block) > 64]
    assert sizes
    assert max(sizes) <= 20_000
