import math
from dataclasses import replace

import pytest
import torch

import pscd
from pscd.errors import UserError
from pscd.mixtures import Mixture
from pscd.presets import PRESETS
from pscd.rng import generator
from pscd.training.held_out import score_gain
from pscd.training.loop import _draw_rows


def parts(gamma, constant=0.0, tilt=0.0, n=200_000):
    """Rows and draws of a standard Gaussian m in one column, and f = constant - tilt z."""
    mixture = Mixture(torch.ones(1).double(), torch.zeros(1, 1).double(), torch.ones(1, 1, 1).double())
    rows, draws = (torch.randn(n, 1, generator=generator(s), dtype=torch.float64) for s in (0, 1))

    def f(z):
        return constant - tilt * z[:, 0]

    clean = torch.ones(n).double()
    return score_gain(f(rows), mixture.log_prob(rows), clean, f(draws), mixture.log_prob(draws), gamma)


@pytest.mark.parametrize("gamma", [0.0, 0.3, 1.0])
def test_nothing_and_constants_gain_nothing(gamma):
    assert parts(gamma) == pytest.approx(0.0, abs=1e-12)
    assert parts(gamma, constant=5.0) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("gamma", [0.0, 0.3, 1.0])
def test_a_tilt_costs_what_the_integrals_say(gamma):
    """A tilt moves the model N(0, 1) to N(t, 1) and loses, in the gamma-score, t^2 / (2 (1 + gamma)).

    E_p[q^gamma] of a Gaussian falls by exp(-gamma t^2 / (2 (1 + gamma))), and the norm of q stays. The error of both
    means over 200,000 draws is below .01 at five standard errors.
    """
    t = 0.5
    assert parts(gamma, tilt=t) == pytest.approx(-(t**2) / (2 * (1 + gamma)), abs=0.01)


def test_gamma_near_0_is_the_log_density():
    assert parts(1e-6, tilt=0.5) == pytest.approx(parts(0.0, tilt=0.5), abs=1e-4)


def test_rows_are_drawn_by_their_chances():
    """With 100,000 draws a share of .6 has a standard error of .0016."""
    chances = torch.tensor([0.0, 1.0, 0.0, 3.0, 1.0]).double()
    index = _draw_rows(5, 100_000, chances.cumsum(0), generator(0))
    counts = torch.bincount(index, minlength=5) / 100_000
    assert counts[0] == 0
    assert counts[2] == 0
    assert torch.allclose(counts, (chances / 5).float(), atol=0.008)


def small_table(n=40, d=8):
    return torch.randn(n, d, generator=generator(5), dtype=torch.float64)


def test_a_network_that_memorises_is_not_kept():
    """Forty rows of noise in eight columns leave nothing to learn; the mixture alone is the better model."""
    config = PRESETS["table"].changed({"steps": 300, "lr": 0.01, "log_every": 25})
    rows = []
    model = pscd.fit(small_table(), config, log=rows.append)
    gains = [row["gain"] for row in rows]
    best = max(0.0, *gains)
    x = torch.randn(2000, 8, generator=generator(6), dtype=torch.float64)
    with torch.no_grad():
        f = model.energy.network(model.coordinates.forward(x))
    if best == 0.0:
        assert torch.equal(f, torch.zeros_like(f))
    assert gains[-1] < best + 1e-9
    assert float(f.abs().max()) < model.energy.network.bound


def test_the_best_weights_survive_a_stop(tmp_path, monkeypatch):
    config = PRESETS["table"].changed({"steps": 60, "log_every": 10, "checkpoint_every": 20})
    x = torch.randn(300, 3, generator=generator(1), dtype=torch.float64)
    x[:, 2] = x[:, 0] ** 2 + 0.3 * x[:, 2]
    whole = pscd.fit(x, config)

    class Stop(Exception):
        pass

    def stop(row):
        if row["step"] == 50:
            raise Stop

    with pytest.raises(Stop):
        pscd.fit(x, config, folder=tmp_path, log=stop)
    again = pscd.fit(x, config, folder=tmp_path)
    for name, value in whole.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name


def test_such_models_are_saved_loaded_and_drawn_from_to_the_same_bits(tmp_path):
    x = torch.randn(200, 3, generator=generator(2), dtype=torch.float64)
    model = pscd.fit(x, PRESETS["table"].changed({"steps": 30}))
    model.save(tmp_path / "model.safetensors", step=30)
    again = pscd.Model.load(tmp_path / "model.safetensors")
    assert torch.equal(model.energies(x), again.energies(x))
    assert torch.equal(model.sample(20), again.sample(20))
    assert torch.equal(model.log_prob(x), again.log_prob(x))
    assert again.notes == model.notes
    assert model.config == again.config


def test_log_densities_integrate_to_one_in_the_units_of_the_data():
    """A Riemann sum over a grid of the plane, drawn-in tails included."""
    x = 100 * torch.randn(400, 2, generator=generator(3), dtype=torch.float64)
    config = PRESETS["table"].changed({"steps": 40})
    model = pscd.fit(x, config)
    axis = torch.linspace(-1500, 1500, 600, dtype=torch.float64)
    points = torch.cartesian_prod(axis, axis)
    total = model.log_prob(points).exp().sum() * float(axis[1] - axis[0]) ** 2
    assert math.isclose(float(total), 1.0, abs_tol=0.01)


def test_holding_rows_out_needs_a_network_that_corrects():
    config = replace(PRESETS["plane"], hold_out=0.2, steps=5)
    with pytest.raises(UserError, match="hold_out judges a network that corrects a mixture"):
        pscd.fit(small_table(60, 2), config)
