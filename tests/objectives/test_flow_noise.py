"""Noise from a normalising flow_noise. Its density is checked by quadrature, so nothing here is a matter of taste."""

import sys

import pytest
import torch

from pscd import exact
from pscd.config import ChainSettings, GuardSettings, OptimizerSettings, TrainConfig
from pscd.data.toys import TOYS
from pscd.energies import Quadratic
from pscd.errors import UserError
from pscd.mixtures import Mixture
from pscd.objectives import NoiseContrastive, flow_noise
from pscd.rng import generator
from pscd.training.fit import fit


def test_without_zuko_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "zuko", None)
    with pytest.raises(UserError, match=r"pip install '\.\[flow\]'"):
        NoiseContrastive(noise="flow").init(Quadratic(dim=2), torch.randn(50, 2))


@pytest.fixture(scope="module")
def moons():
    x = TOYS["moon"](3000, generator(0))
    return ((x - x.mean(0)) / x.std(0)).float()


@pytest.fixture(scope="module")
def noise(moons):
    pytest.importorskip("zuko")
    return flow_noise.FlowNoise.fit(moons, seed=3, settings=flow_noise.FlowSettings(steps=60))


def test_its_density_integrates_to_one_and_fits_better_than_a_gaussian(noise, moons):
    grid = exact.grid(exact.Box((-15.0, -15.0), (15.0, 15.0)), 300)
    with torch.no_grad():
        log_density = noise.log_prob(grid.points.float())
    # Splines have kinks in their second derivatives, and cells are a tenth wide.
    assert exact.log_integral(log_density, grid).item() == pytest.approx(0, abs=2e-3)
    ours, theirs = noise.log_prob(moons).mean(), Mixture.gaussian(moons).log_prob(moons).mean()
    assert ours > theirs + 0.3  # the moons' entropy is about a nat below that of their Gaussian


def test_it_is_the_flow_and_a_broad_gaussian_in_the_units_of_the_rows():
    """Both by hand, far from centre 0 and spread 1."""
    pytest.importorskip("zuko")
    centre, spread = torch.tensor([4.0, -2.0]), torch.tensor([3.0, 0.25])
    noise = flow_noise.FlowNoise(centre, spread).requires_grad_(False)
    x = noise.sample(500, generator(1))
    rng = generator(1)
    z, broad = torch.randn(500, 2, generator=rng), torch.rand(500, generator=rng) < noise.settings.broad_weight
    wide = torch.distributions.Normal(centre, noise.settings.broad_scale * spread)
    torch.testing.assert_close(x[broad], wide.mean + wide.stddev * z[broad])
    white = (x - centre) / spread
    torch.testing.assert_close(noise.flow().transform(white[~broad]), z[~broad], atol=1e-4, rtol=1e-4)
    share = torch.tensor([1 - noise.settings.broad_weight, noise.settings.broad_weight])
    parts = torch.stack([noise.flow().log_prob(white) - spread.log().sum(), wide.log_prob(x).sum(1)], 1)
    torch.testing.assert_close(noise.log_prob(x), (parts + share.log()).logsumexp(1))


def test_its_centre_and_spread_are_those_of_the_rows():
    pytest.importorskip("zuko")
    noise = flow_noise.FlowNoise.fit(
        torch.tensor([[1.0, 5.0], [3.0, 5.0]]), seed=0, settings=flow_noise.FlowSettings(steps=1)
    )
    torch.testing.assert_close(noise.centre, torch.tensor([2.0, 5.0]))
    torch.testing.assert_close(noise.spread, torch.tensor([1.001, 0.001]))


def test_each_update_sees_the_gradient_of_its_own_batch(monkeypatch):
    """Equal rows, and weights that stay as they are: so the last of three gradients is the first."""
    pytest.importorskip("zuko")
    monkeypatch.setattr("torch.nn.utils.clip_grad_norm_", lambda *_: None)
    result = []
    for steps in (1, 3):
        settings = flow_noise.FlowSettings(steps=steps, lr=0.0)
        flow = flow_noise.FlowNoise.fit(torch.ones(10, 2), seed=0, settings=settings).flow
        result.append(torch.cat([p.grad.flatten() for p in flow.parameters()]))
    assert result[0].norm() > 0
    torch.testing.assert_close(*result)


def test_its_draws_have_its_density(noise):
    """E[1 / density] over draws inside a box is the box's area: draws and density agree."""
    x = noise.sample(40_000, generator(1))
    inside = (x.abs() < 1).all(1)
    ratios = torch.where(inside, torch.exp(-noise.log_prob(x)), 0.0)
    error = ratios.std().item() / len(ratios) ** 0.5
    assert ratios.mean().item() == pytest.approx(4.0, abs=5 * error)
    assert error < 0.2


def test_it_is_a_function_of_the_seed_and_leaves_the_global_generator_alone(noise, moons):
    settings = flow_noise.FlowSettings(steps=3)
    before = torch.get_rng_state()
    one, same, other = (flow_noise.FlowNoise.fit(moons, seed=seed, settings=settings) for seed in (3, 3, 4))
    draws = noise.sample(5, generator(7))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(one.log_prob(moons), same.log_prob(moons))
    assert not torch.equal(one.log_prob(moons), other.log_prob(moons))
    assert torch.equal(draws, noise.sample(5, generator(7)))
    assert not any(p.requires_grad for p in noise.parameters())


@pytest.mark.parametrize("shape", [(1,), (2, 3)])
def test_rows_of_any_shape(shape):
    pytest.importorskip("zuko")
    x = torch.randn(100, *shape, generator=generator(0))
    noise = flow_noise.FlowNoise.fit(x, seed=0, settings=flow_noise.FlowSettings(steps=3))
    x = noise.sample(7, generator(0))
    assert x.shape == (7, torch.Size(shape).numel())
    assert noise.log_prob(x.view(7, *shape)).shape == (7,)
    assert noise.log_prob(x).isfinite().all()


def test_noise_contrastive_estimation_learns_log_z_with_it():
    pytest.importorskip("zuko")
    rows = []
    config = TrainConfig(
        objective=NoiseContrastive(noise="flow"),
        updates=100,
        chains=ChainSettings(jump_components=2),
        optimizer=OptimizerSettings(lr=0.03),
        guard=GuardSettings(log_every=10),
    )
    x = 3 + 2 * torch.randn(2000, 2, generator=generator(0))
    energy = Quadratic(0.3, 1.3, dim=2)
    model = fit(x, config=config, energy=energy, callbacks=[lambda at: rows.append(at["stats"])])
    # Of 2000 rows a deviation is known to 0.016; updates on batches of 256 double that.
    assert model.network.sigma.tolist() == pytest.approx([1, 1], rel=0.1)
    log_z = torch.log(2 * torch.pi * energy.sigma.prod()).item()
    assert rows[-1]["log_z"] == pytest.approx(log_z, abs=0.1)
