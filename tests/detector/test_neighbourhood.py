import math

import pytest
import torch

from pscd.detector import neighbourhood as module
from pscd.detector.neighbourhood import Neighbourhood
from pscd.rng import generator


def rows(n, k=3, seed=0):
    return torch.randn(n, k, generator=generator(seed), dtype=torch.float64)


def test_the_energy_by_hand():
    """Two nearest of three rows, at distances 1 and 2 of the first row and 0 and 3 of the second."""
    near = Neighbourhood(torch.tensor([[0.0, 0.0], [3.0, 0.0], [50.0, 0.0]]).double(), 2)
    u = torch.tensor([[1.0, 0.0], [0.0, 0.0]]).double()
    expected = [2 * math.log(math.sqrt((1 + 4) / 2)), 2 * math.log(math.sqrt(9 / 2))]
    assert near.energy(u).tolist() == pytest.approx(expected)


def test_isolated_rows_are_no_neighbours_and_2_sqrt_n_rows_count():
    u = rows(400)
    near = Neighbourhood.of(u)
    away = (u[:, None] - u).norm(dim=2).sort(1).values[:, 20]
    torch.testing.assert_close(near.rows, u[away <= away.quantile(0.9)])
    assert (len(near.rows), near.count) == (360, 40)


def test_it_falls_with_the_density_as_a_log_density_does():
    """Even rows in two squares, four times as many in one: the energies differ by log 4.

    The distance to 40 neighbours in two columns has a relative error of about 1 / (2 sqrt(40)), so that the energy of a
    row is off by .16 nats; means over many rows by less, but not much less, since their neighbours are the same.
    """
    u = torch.rand(2500, 2, generator=generator(0), dtype=torch.float64)
    u[:, 0] = torch.where(torch.arange(2500) < 2000, u[:, 0], u[:, 0] + 1)
    energy = Neighbourhood(u, 40).energy(u)
    inner = ((u[:, 0] % 1 - 0.5).abs() < 0.2) & ((u[:, 1] - 0.5).abs() < 0.2)
    dense, thin = (energy[inner & half].mean() for half in (u[:, 0] < 1, u[:, 0] >= 1))
    assert float(thin - dense) == pytest.approx(math.log(4), abs=0.2)


def test_blocks_change_nothing_and_copies_are_no_trouble(monkeypatch):
    near = Neighbourhood.of(torch.cat([rows(200), torch.zeros(300, 3).double()]))
    u = torch.cat([rows(20, seed=2), torch.zeros(1, 3).double()])
    whole = near.energy(u)
    assert torch.isfinite(whole).all()
    assert whole.argmin() == 20
    monkeypatch.setattr(module, "SCORE_BLOCK", 7)
    torch.testing.assert_close(near.energy(u), whole, rtol=0, atol=1e-9)
