"""The default recipe at full size: minutes, so behind `make test-slow`."""

import pytest

from pscd.config import RowSettings, TrainConfig
from pscd.data import load_dataset
from pscd.evaluation import evaluate
from pscd.objectives import PseudoSpherical
from pscd.training.fit import fit


@pytest.mark.slow
@pytest.mark.parametrize("gamma", [0.0, 1.0])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_moon_is_learned_with_every_seed(gamma, seed):
    config = TrainConfig(objective=PseudoSpherical(gamma=gamma), seed=seed, rows=RowSettings(data="moon"))
    model = fit(load_dataset("moon", seed=seed).train, config=config)
    samples, data = evaluate(model, n=10_000, seed=seed)
    assert 1e4 * samples.mmd < 3
    assert abs(1e4 * data.mmd) < 3
