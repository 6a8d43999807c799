"""Metrics against their definitions, on small sets with ties, copies and offsets."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pscd import metrics

coarse = st.integers(-4, 4).map(float)  # many ties
scores = st.lists(st.one_of(coarse, st.sampled_from([math.inf, -math.inf])), min_size=1, max_size=12)


@st.composite
def two_sets(draw, least=2):
    d = draw(st.integers(1, 3))
    row = st.lists(st.one_of(coarse, st.floats(-3, 3, width=32)), min_size=d, max_size=d)
    offset = draw(st.sampled_from([0.0, 100.0]))
    return tuple(
        offset + torch.tensor(draw(st.lists(row, min_size=least, max_size=9)), dtype=torch.float64) for _ in range(2)
    )


@given(scores, scores)
def test_auroc_is_the_share_of_pairs_in_the_right_order(inside, outside):
    pairs = [(o > i) + 0.5 * (o == i) for i in inside for o in outside]
    assert metrics.auroc(torch.tensor(inside), torch.tensor(outside)) == pytest.approx(sum(pairs) / len(pairs))


@given(scores, scores)
def test_aupr_is_the_precision_at_each_threshold_weighted_by_the_recall_gained(inside, outside):
    expected, before = 0.0, 0.0
    for threshold in sorted({*inside, *outside}, reverse=True):
        result, wrong = sum(o >= threshold for o in outside), sum(i >= threshold for i in inside)
        recall = result / len(outside)
        expected, before = expected + (recall - before) * result / (result + wrong), recall
    value, share = metrics.aupr(torch.tensor(inside), torch.tensor(outside))
    assert value == pytest.approx(expected)
    assert share == pytest.approx(len(outside) / (len(outside) + len(inside)))


@given(scores, scores)
def test_fpr_at_95_is_the_least_that_finds_95_percent(inside, outside):
    allowed = [t for t in outside if sum(o >= t for o in outside) >= 0.95 * len(outside) - 1e-9]
    expected = sum(i >= max(allowed) for i in inside) / len(inside)
    assert metrics.fpr_at_95(torch.tensor(inside), torch.tensor(outside)) == pytest.approx(expected)


@given(two_sets(), st.floats(0.3, 3), st.booleans(), st.integers(1, 5))
def test_mmd_is_the_double_sum(sets, bandwidth, unbiased, block):
    def kernel(a, b):
        return math.exp(-sum((s - t) ** 2 for s, t in zip(a, b, strict=True)) / (2 * bandwidth**2))

    def within(rows):
        n = len(rows)
        pairs = [kernel(a, b) for i, a in enumerate(rows) for j, b in enumerate(rows) if i != j or not unbiased]
        return math.fsum(pairs) / (n * (n - 1) if unbiased else n * n)

    real, fake = (s.tolist() for s in sets)
    across = math.fsum(kernel(a, b) for a in real for b in fake) / (len(real) * len(fake))
    expected = within(real) + within(fake) - 2 * across
    result = metrics.mmd(*sets, bandwidth=bandwidth, unbiased=unbiased, block=block)
    assert result == pytest.approx(expected, abs=3e-5)  # the kernel is computed in float32
    assert metrics.mmd(sets[1], sets[0], bandwidth=bandwidth, unbiased=unbiased) == pytest.approx(result, abs=3e-5)


@given(two_sets(3), st.integers(1, 2), st.integers(1, 4))
def test_prdc_is_its_definition_ties_and_copies_included(sets, k, block):
    real, fake = (s.tolist() for s in sets)

    def radius(rows, i):
        return sorted(math.dist(rows[i], row) for j, row in enumerate(rows) if j != i)[k - 1]

    # Open balls, except that copies of a point are inside its ball even at radius 0.
    def inside(rows, i, point):
        apart = math.dist(rows[i], point)
        return apart < radius(rows, i) * (1 - 1e-12) or (apart == 0 and radius(rows, i) == 0)

    in_real = [[inside(real, i, point) for point in fake] for i in range(len(real))]
    in_fake = [[inside(fake, j, point) for j in range(len(fake))] for point in real]
    result = metrics.prdc(*sets, k=k, block=block)
    assert result.precision == pytest.approx(sum(any(row[j] for row in in_real) for j in range(len(fake))) / len(fake))
    assert result.recall == pytest.approx(sum(any(row) for row in in_fake) / len(real))
    assert result.density == pytest.approx(sum(map(sum, in_real)) / (k * len(fake)))
    assert result.coverage == pytest.approx(sum(any(row) for row in in_real) / len(real))


@given(two_sets(4), st.floats(-5, 5), st.floats(0.2, 3))
def test_frechet_distance_moves_and_scales_with_the_sets(sets, shift, factor):
    real, fake = sets
    result = metrics.frechet_distance(real, fake)
    assert result >= -1e-6
    assert metrics.frechet_distance(fake, real) == pytest.approx(result, abs=1e-5)
    moved = metrics.frechet_distance(factor * real + shift, factor * fake + shift)
    assert moved == pytest.approx(factor**2 * result, rel=1e-4, abs=1e-4)
    same = metrics.frechet_distance(real, real + shift)
    assert same == pytest.approx(real.shape[1] * shift**2, rel=1e-4, abs=1e-4)
