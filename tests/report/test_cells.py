"""Blame is the energy that a row loses with the expected value, for detectors and for models alike."""

import numpy as np
import pandas as pd
import pytest
import torch

import pscd
from pscd.report.cells import blame_by_detector, blame_by_model


@pytest.fixture(scope="module")
def rows():
    """Two columns that nearly agree, one that never varies; in the first row they disagree."""
    x = np.random.default_rng(0).normal(size=(300, 3))
    x[:, 1] = x[:, 0] + 0.1 * x[:, 1]
    x[:, 2] = 7.0
    x[0] = (1.0, -6.0, 7.0)
    return x


def test_a_detector_blames_the_cell_that_contradicts_the_others(rows):
    frame = pd.DataFrame(rows, columns=["a", "b", "same"])
    detector = pscd.EnergyDetector(n_updates=5).fit(frame)
    found = blame_by_detector(detector, frame[:5], [0, 1, 2])
    assert np.array_equal(found.nats, detector.explain(frame[:5]))
    assert found.nats[0].argmax() == 1
    assert found.expected[0, 1] == pytest.approx(1.0, abs=1.0)  # what the first column suggests
    assert (found.expected[:, 2] == 7.0).all()
    assert found.nats[0, 1] > 10


def test_a_model_blames_against_the_likeliest_value(rows):
    x = torch.from_numpy(rows[:, :2])
    config = pscd.TrainConfig(steps=300, batch_size=64, buffer_size=200, lr=0.05, energy=pscd.Architecture("quadratic"))
    model = pscd.fit(x, config)
    samples = model.sample(500).numpy()
    found = blame_by_model(model, rows[:20, :2], samples)
    assert (found.nats >= 0).all()
    assert found.nats[0].argmax() == 1
    mended = rows[:20, :2].copy()
    mended[:, 1] = found.expected[:, 1]
    saved = (model.energies(x[:20]) - model.energies(mended)).double().numpy()
    assert found.nats[:, 1] == pytest.approx(saved, abs=1e-4)
    tried = np.quantile(samples[:, 1], np.linspace(0.005, 0.995, 48))
    changed = np.stack([np.full(48, rows[0, 0]), tried], 1)
    assert found.expected[0, 1] == pytest.approx(tried[model.energies(changed).argmin()])
