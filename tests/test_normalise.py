import math

import pytest
import torch
from torch import nn

from pscd.mixtures import Mixture
from pscd.normalise import LogZ, log_z
from pscd.rng import generator


class Shifted(nn.Module):
    """-log m(x) + constant + a tilt whose normaliser is known: E exp(t x) of a Gaussian is exp(t^2 / 2)."""

    def __init__(self, dim, constant, tilt):
        super().__init__()
        self.dim, self.constant, self.tilt = dim, constant, tilt

    def forward(self, x):
        gaussian = 0.5 * x.square().sum(1) + 0.5 * self.dim * math.log(2 * math.pi)
        return gaussian + self.constant - self.tilt * x[:, 0]

    @property
    def exact(self):
        return -self.constant + 0.5 * self.tilt**2


@pytest.mark.parametrize("dim", [1, 2])
def test_one_and_two_columns_are_integrated(dim):
    energy = Shifted(dim, 3.0, 0.7)
    found = log_z(energy, Mixture.standard(dim))
    assert found.value == pytest.approx(energy.exact, abs=1e-6)
    assert found.error < 1e-6
    assert found.warning is None


def test_the_stated_error_covers_the_truth():
    """Two standard errors hold in 95 % of the seeds; fewer than 16 of 20 have a chance of 1 in 400."""
    energy = Shifted(10, -1.0, 0.5)
    found = [log_z(energy, Mixture.standard(10), n=4096, seed=seed) for seed in range(20)]
    covered = sum(abs(f.value - energy.exact) < 2 * f.error for f in found)
    assert covered >= 16
    assert all(0 < f.error < 0.05 for f in found)


def test_a_proposal_that_is_the_model_has_no_error():
    mixture = Mixture.standard(5)

    class Same(nn.Module):
        def forward(self, x):
            return 2.0 - mixture.log_prob(x)

    found = log_z(Same(), mixture, n=1000)
    assert found.value == pytest.approx(-2.0, abs=1e-5)
    assert found.error < 1e-6
    assert found.effective == pytest.approx(1.0)


def test_a_large_error_is_told():
    warning = LogZ(0.0, 0.5, 0.01).warning
    assert warning is not None
    assert "uncertain by 0.50 nats" in warning


def test_the_global_generator_is_left_alone():
    before = torch.get_rng_state()
    log_z(Shifted(3, 0.0, 0.1), Mixture.standard(3), n=100)
    assert torch.equal(before, torch.get_rng_state())
    assert generator(0) is not None
