import numpy as np
import pytest
import torch

from pscd import load, train
from pscd.data import TOYS
from pscd.errors import UserError
from pscd.evaluation import evaluate, load_run_data
from pscd.metrics import mmd
from pscd.recipes.configs import RECIPES
from pscd.rng import generator
from pscd.training.fit import fit


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
    rows = np.random.default_rng(0).normal(size=(300, 2))
    values = []
    for name, unit in (("metres", 1.0), ("millimetres", 1000.0)):
        np.save(tmp_path / f"{name}.npy", rows * unit)
        config = small.changed({"rows.data": str(tmp_path / f"{name}.npy"), "updates": 5})
        model = load(train(config, tmp_path / name, progress=False))
        assert len(load_run_data(model).held_out) == 30
        samples, data = evaluate(model)
        assert samples.n_real == 30
        values.append(data.mmd)
    assert values[0] == pytest.approx(values[1], rel=1e-3)


@pytest.fixture
def of_rows(small):
    """A model of rows in memory, far from two moons."""
    x = 100 + torch.randn(500, 2, generator=generator(0))
    return fit(x, config=small.changed({"rows.data": "", "updates": 20}))


def test_a_model_of_rows_in_memory_is_not_compared_with_anything_else(of_rows):
    with pytest.raises(UserError, match=r"rows in memory.*evaluate\(model, real=rows\)"):
        evaluate(of_rows, n=100)
    with pytest.raises(UserError, match="rows in memory"):
        load_run_data(of_rows)


def test_held_out_rows_can_be_passed(of_rows):
    real = 100 + torch.randn(300, 2, generator=generator(1))
    samples, data = evaluate(of_rows, n=200, seed=1, real=real.numpy())
    assert (samples.n_real, samples.n_fake, data.n_real, data.n_fake) == (200, 200, 150, 150)

    def standard(x):
        return (x - of_rows.shift) / of_rows.scale

    fake = of_rows.sample(200, seed=1)
    assert samples.mmd == pytest.approx(mmd(standard(real[:200]), standard(fake), bandwidth=2**0.5), abs=1e-6)
    assert data.mmd == pytest.approx(mmd(standard(real[::2]), standard(real[1::2]), bandwidth=2**0.5), abs=1e-6)
    with pytest.raises(UserError, match=r"rows of shape \(2,\); its shape is 300 x 1"):
        evaluate(of_rows, real=real[:, :1])


def test_passed_rows_replace_those_of_the_run(trained):
    model, real = load(trained), torch.zeros(10, 2)
    fake = torch.zeros(10, 2)
    samples, _ = evaluate(model, samples=fake, real=real)
    assert samples.mmd == pytest.approx(0, abs=1e-6)


def test_constant_columns_and_heavy_tails_are_measured_in_the_coordinates_of_the_network():
    x = torch.randn(300, 4, generator=generator(0), dtype=torch.float64).sinh()
    x[:, 1] = 5.0
    model = fit(x, config=RECIPES["table"].changed({"updates": 3}))
    samples, _ = evaluate(model, n=100, seed=1, real=x)

    def seen(rows):
        return model.coordinates.forward(rows, torch.float64)

    expected = mmd(seen(x[:100]), seen(model.sample(100, seed=1)), bandwidth=3**0.5)
    assert samples.mmd == pytest.approx(expected, abs=1e-12)
