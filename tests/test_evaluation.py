import numpy as np
import pytest

from pscd.data import TOYS
from pscd.evaluation import evaluate, load_run_data
from pscd.metrics import mmd
from pscd.rng import generator
from pscd.runs import load, train


def test_samples_beside_the_floor_that_noise_sets(trained):
    model = load(trained)
    samples, data = evaluate(model, n=400, seed=1)
    assert (samples.name, data.name) == ("samples", "data")
    assert samples.n_real == samples.n_fake == 400
    real, other = TOYS["moon"](400, generator(1, 6)), TOYS["moon"](400, generator(1, 7))
    assert data.mmd == mmd(real, other)
    assert samples.mmd == mmd(real, model.sample(400, seed=1))
    assert samples.mmd > 10 * abs(data.mmd)  # after 20 steps the model is still far off


def test_a_file_is_measured_on_its_held_out_rows_whatever_its_units(small, tmp_path):
    from dataclasses import replace

    rows = np.random.default_rng(0).normal(size=(300, 2))
    values = []
    for name, unit in (("metres", 1.0), ("millimetres", 1000.0)):
        np.save(tmp_path / f"{name}.npy", rows * unit)
        config = replace(small, data=str(tmp_path / f"{name}.npy"), steps=5)
        model = load(train(config, tmp_path / name, progress=False))
        assert len(load_run_data(model).held_out) == 30
        samples, data = evaluate(model)
        assert samples.n_real == 30
        values.append(data.mmd)
    assert values[0] == pytest.approx(values[1], rel=1e-3)
