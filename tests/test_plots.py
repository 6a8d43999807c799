import numpy as np
import pytest
import torch
from matplotlib import image

from pscd.plots import plot_run, plot_scores
from pscd.recipes.configs import RECIPES
from pscd.rng import generator
from pscd.training.fit import fit


@pytest.mark.parametrize("dim", [1, 2, 5])
def test_a_picture_for_every_dimension(small, tmp_path, dim):
    x = torch.randn(300, dim, generator=generator(0))
    x[0] = 1e3  # one outlier does not widen the picture
    model = fit(x, config=small)
    path = plot_run(model, x, model.sample(100), tmp_path / "plot.png")
    pixels = image.imread(path)
    assert pixels.shape[0] > 200
    assert pixels.shape[1] > 400
    # something is drawn: many different colours, and not all of them white
    assert pixels[..., :3].std() > 0.05


@pytest.mark.parametrize("columns", [[0], [0, 1]])
def test_scores_of_a_table(tmp_path, columns):
    x = np.random.default_rng(0).normal(size=(200, 2))
    x[0] = 1e6
    energy = (x**2).sum(1).clip(max=1e3)
    path = plot_scores(energy, 5.0, x, ["a", "b"], columns, tmp_path / "scores.png")
    pixels = image.imread(path)
    assert pixels.shape[1] > 800
    assert pixels[..., :3].std() > 0.05


@pytest.mark.parametrize("constant", [0.0, 2020.0, 1.7e9])
def test_constant_columns_and_time_stamps_have_a_histogram(tmp_path, constant):
    """Bins of no width divide by 0, which is a warning, and warnings are errors."""
    x = torch.randn(300, 3, generator=generator(0), dtype=torch.float64)
    x[:, 1] = constant
    x[:, 2] += 1.7e9
    model = fit(x, config=RECIPES["table"].changed({"updates": 2}))
    assert plot_run(model, x, model.sample(50), tmp_path / "plot.png").exists()
