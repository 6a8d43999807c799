import math

import numpy as np
import pandas as pd
import pytest

from pscd import EnergyDetector
from pscd.model import SCORE_BLOCK


def test_log_density_integrates_to_one():
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=(500, 1)) - 3, rng.normal(size=(500, 1)) * 0.5 + 3])
    detector = EnergyDetector(gamma=0.0, updates=200).fit(x)
    points = np.linspace(-60, 60, 20_001)[:, None]
    mass = np.trapezoid(np.exp(detector.log_density(points)), points[:, 0])
    assert mass == pytest.approx(1.0, abs=0.03)  # 20,000 draws for the constant


@pytest.mark.parametrize("shape", [(1000, 3), (300, 30)])
def test_samples_are_as_wide_as_clean_rows(shape):
    x = np.random.default_rng(0).normal(size=shape)
    new = EnergyDetector(updates=60).fit(x).sample(2000)
    assert new.std(0).mean() == pytest.approx(1.0, abs=0.15)


@pytest.mark.parametrize("rank", ["energy", "neighbours"])
def test_scores_of_a_stream_are_those_of_the_rows(rank):
    x = np.random.default_rng(0).normal(size=(300, 4))
    detector = EnergyDetector(updates=5, rank=rank).fit(x)
    rows = np.tile(x, (SCORE_BLOCK // len(x) + 2, 1))
    rows[5, 1] = np.nan
    blocks = [detector.score_samples(part) for part in (rows[:SCORE_BLOCK], rows[SCORE_BLOCK:])]
    np.testing.assert_array_equal(detector.score_samples(rows), np.concatenate(blocks))
    batches = detector.score_batches(iter([rows[:SCORE_BLOCK], rows[SCORE_BLOCK:]]))
    np.testing.assert_array_equal(np.concatenate(list(batches)), np.concatenate(blocks))


def test_impossible_cells_cost_by_the_rule_of_succession():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=90).astype(object), "b": rng.normal(size=90)})
    frame.loc[:2, "a"] = ["x", "y", "z"]
    detector = EnergyDetector(updates=2).fit(frame)
    missing = frame.assign(a=frame["a"].where(frame.index > 2))
    difference = detector.energy(frame) - detector.energy(missing)
    np.testing.assert_allclose(difference[:3], math.log((90 + 2) / (3 + 1)))
    np.testing.assert_array_equal(difference[3:], 0)
