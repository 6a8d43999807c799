"""The cost of a cell is the energy that its row loses with a better value, for detectors and for models alike."""

import numpy as np
import pandas as pd
import pytest
import torch

import pscd
from pscd.report.cells import costs_by_detector, costs_by_model


def test_suggestions_of_a_detector_stand_beside_the_costs_of_the_same_cells():
    frame = pd.DataFrame({"a": ["1", "2", "3"], "other": ["x", "y", "z"], "b": ["4", "5", ""]})
    costs = pd.DataFrame({"a": [0.5, 9.0], "b": [0.0, 1.0]})
    cells = pd.DataFrame({"row": [1, 2], "column": ["a", "b"], "suggestion": [0.2, 4.0]})
    found = costs_by_detector(costs, frame[:2], cells)
    assert found.value.tolist() == [["1", "4"], ["2", "5"]]
    assert found.cost.tolist() == costs.to_numpy().tolist()
    assert found.suggestion.tolist() == [[None, None], [0.2, None]]


def test_a_model_compares_each_cell_with_the_best_value():
    x = np.random.default_rng(0).normal(size=(300, 2))
    x[:, 1] = x[:, 0] + 0.1 * x[:, 1]  # the columns nearly agree
    x[0] = (1.0, -6.0)
    config = pscd.TrainConfig(
        updates=300,
        batch_size=64,
        energy=pscd.Architecture("quadratic"),
        chains=pscd.ChainSettings(buffer_size=200),
        optimizer=pscd.OptimizerSettings(lr=0.05),
    )
    model = pscd.fit(torch.from_numpy(x), config=config)
    samples = model.sample(500).numpy()
    found = costs_by_model(model, x[:20], samples)
    assert (found.cost >= 0).all()
    assert found.cost[0].argmax() == 1
    better = found.cost[:, 1] > 0
    repaired = x[:20].copy()
    repaired[better, 1] = found.suggestion[better, 1].astype(float)
    saved = (model.energy(torch.from_numpy(x[:20])) - model.energy(repaired)).double().numpy()
    assert found.cost[:, 1] == pytest.approx(saved, abs=1e-4)
    assert [cell is None for cell in found.suggestion[:, 1]] == (~better).tolist()
    tried = np.quantile(samples[:, 1], np.linspace(0.005, 0.995, 48))
    changed = np.stack([np.full(48, x[0, 0]), tried], 1)
    assert found.suggestion[0, 1] == pytest.approx(tried[model.energy(changed).argmin()])
    assert np.array_equal(found.value, x[:20])
