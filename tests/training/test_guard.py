"""Each verdict on a run built to provoke it."""

from dataclasses import replace

import pytest
import torch

from pscd.data.toys import TOYS
from pscd.energies import Architecture
from pscd.objectives import NoiseContrastive, PseudoSpherical
from pscd.rng import generator
from pscd.sampling import Langevin, Mala
from pscd.training.guard import mode_shares, verdict
from pscd.training.loop import fit


def judged(x, config, modes=None):
    rows = []
    fit(x, config, log=rows.append, modes=modes)
    return verdict(rows)


@pytest.fixture
def moon():
    return TOYS["moon"](1000, generator(0))


def test_a_good_run_has_nothing_to_report(small, moon):
    config = replace(small, steps=300, sampler=Mala(), objective=PseudoSpherical(gamma=0.5))
    assert judged(moon, config, TOYS["moon"].mode) == ["no problem found"]


def test_weights_that_collapse(small):
    """In twenty dimensions at gamma 5, next to no row counts."""
    x = torch.randn(1000, 20, generator=generator(0))
    config = replace(small, steps=100, objective=PseudoSpherical(gamma=5.0, warmup=0.0), batch_size=128)
    assert any("weights collapsed" in sentence for sentence in judged(x, config))


def test_negatives_that_lag(small, moon):
    """Chains that mostly start afresh and take one small step never reach the data."""
    sampler = Mala(n_steps=1, jump_every=0, step_size=1e-4, target_acceptance=0.9)
    config = replace(small, steps=200, restart=0.9, sampler=sampler, lr=0.01)
    assert any("negatives lag" in sentence for sentence in judged(moon, config))


def test_samples_that_run_ahead(small, moon):
    """Chains without noise end in the minima of the energy, below all data, if it cannot adapt to them."""
    sampler = Langevin(n_steps=40, step_size=0.02, noise_scale=0.0)
    config = replace(small, sampler=sampler, lr=1e-6, energy=Architecture(width=8, base_scale=0.5))
    assert any("nats less energy than the data" in sentence for sentence in judged(moon, config))


def test_a_step_that_has_not_settled(small, moon):
    config = replace(small, steps=20, sampler=Mala(n_steps=2, step_size=1e-8, jump_every=0))
    assert any("has not settled (acceptance 1.00)" in sentence for sentence in judged(moon, config))


def test_jumps_that_are_never_accepted(small):
    """One Gaussian as the proposal for small clusters at corners of a cube in eight dimensions."""
    corners = torch.randint(2, (16, 8), generator=generator(0)) * 2.0 - 1
    x = corners.repeat(100, 1) + 0.05 * torch.randn(1600, 8, generator=generator(1))
    energy = Architecture(width=64, depth=2, fourier=0)
    config = replace(small, steps=300, jump_components=1, energy=energy, sampler=Mala(n_steps=10))
    assert any("jumps are hardly ever accepted" in sentence for sentence in judged(x, config))


def test_a_mode_that_is_lost(small):
    """Full gamma from the start, no jumps and no restarts: a ring is taken for contamination."""
    x = TOYS["rings"](5000, generator(0))
    objective = PseudoSpherical(gamma=3.0, warmup=0.0)
    config = replace(small, steps=400, restart=0.0, objective=objective, sampler=Mala(jump_every=0), lr=0.01)
    assert any("modes hold the wrong mass" in sentence for sentence in judged(x, config, TOYS["rings"].mode))


def test_noise_that_is_too_easy(small):
    """Small clusters at corners of a cube in eight dimensions, and one Gaussian for noise."""
    corners = torch.randint(2, (16, 8), generator=generator(0)) * 2.0 - 1
    x = corners.repeat(100, 1) + 0.02 * torch.randn(1600, 8, generator=generator(1))
    energy = Architecture(width=64, depth=2, fourier=0)
    config = replace(small, steps=300, objective=NoiseContrastive(noise="gaussian"), lr=0.01, energy=energy)
    assert any("told from data too easily" in sentence for sentence in judged(x, config))


def test_roll_backs_are_told():
    rows = [{"gap": 0.0}]
    assert verdict(rows, retries=1) == ["the run was rolled back once: a lower learning rate would be safer"]
    assert "3 times" in verdict(rows, retries=3)[0]


def test_mode_shares_sum_to_one():
    for name in ("mog", "rings", "moon"):
        modes = TOYS[name].mode
        x = TOYS[name](5000, generator(0))
        n_modes = int(modes(x).max()) + 1
        shares = mode_shares(x, modes, n_modes)
        assert shares.sum().item() == pytest.approx(1)
        expected = [1 / 9, 3 / 9, 5 / 9] if name == "rings" else [0.5, 0.5]
        assert shares.tolist() == pytest.approx(expected, abs=0.03)


def test_gaps_of_images_are_in_spreads():
    row = {"gap": -0.3, "spread": 0.05, "ess_pos": 0.7, "ess_neg": 0.7}
    assert "6.0 spreads" in verdict([row])[0]
    assert verdict([{**row, "gap": -0.1}]) == ["no problem found"]
