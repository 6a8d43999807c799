import torch

from pscd.mixtures.cells import Cells
from pscd.mixtures.trust import likely_cells, spread_of
from pscd.rng import generator
from tests.mixtures.test_table_mixture import mixture


def test_the_spread_is_that_of_cells_that_the_fit_has_not_seen():
    """Rows 1.5 times as wide as the model says: 4,000 cells, whose .9 quantile has a relative error of about .015."""
    model = mixture(k=1, levels=[0] * 4)
    x = model.sample(4000, generator(0))
    wider = model.means[0] + 1.5 * (x - model.means[0])
    torch.testing.assert_close(spread_of(Cells.of(model, x)), torch.ones(4).double(), rtol=0.0, atol=0.08)
    torch.testing.assert_close(spread_of(Cells.of(model, wider)), 1.5 * torch.ones(4).double(), rtol=0.0, atol=0.12)


def test_no_column_loses_most_of_its_cells():
    model = mixture(k=1, levels=[0] * 4)
    x = model.sample(500, generator(0))
    x[:, 0] += 40
    trusted = likely_cells(model, x, 1e-3)
    assert trusted[:, 0].double().mean() >= 0.7
    assert trusted[:, 1:].double().mean() > 0.9
