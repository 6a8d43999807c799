import math

import pytest
import torch
from scipy import stats
from torch import nn

from pscd.energies import MLP, Quadratic
from pscd.errors import UserError
from pscd.fast import frozen, using
from pscd.mixtures import Mixture
from pscd.rng import generator
from pscd.sampling import SAMPLERS, Langevin, Mala, adapt_step_size, langevin, mala


def gumbel(x):
    """A skewed target: a symmetric one hides sign errors."""
    return (x + torch.exp(-x)).squeeze(1)


def far_modes(x):
    """Two modes, of mass .25 at -5 and .75 at 5, that no local step can cross between."""
    parts = torch.stack(
        [-0.5 * (x + 5) ** 2 + torch.tensor(0.25).log(), -0.5 * (x - 5) ** 2 + torch.tensor(0.75).log()]
    )
    return -torch.logsumexp(parts, 0).squeeze(1)


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.calls, self.trainable = MLP((2,), width=8), 0, []

    def forward(self, x):
        self.calls += 1
        self.trainable.append(any(p.requires_grad for p in self.parameters()))
        return self.net(x)


def run(kind, energy, x, **settings):
    """Both samplers through one signature."""
    return langevin(energy, x, **settings) if kind == "langevin" else mala(energy, x, **settings)[0]


@pytest.mark.parametrize(("kind", "step_size"), [("langevin", 0.005), ("mala", 0.3)])
def test_stationary_distribution_is_the_target(kind, step_size):
    # 4,000 independent chains: the KS distance of exact draws is under 1.95 / sqrt(4000) = .031 with
    # probability .999; Langevin's bias at this step is of order .003.
    x = torch.zeros(4000, 1)
    x = run(kind, gumbel, x, n_steps=1500 if kind == "langevin" else 200, step_size=step_size, generator=generator(0))
    assert stats.kstest(x[:, 0].numpy(), stats.gumbel_r.cdf).statistic < 0.031


@pytest.mark.parametrize("bounds", [None, (-0.5, 0.5)])
def test_noise_off_langevin_is_gradient_descent_bit_for_bit(bounds):
    energy = MLP((3,), width=16)
    start = torch.randn(5, 3, generator=generator(0))
    x = start.clamp(*bounds) if bounds else start.clone()
    for _ in range(10):
        leaf = x.clone().requires_grad_()
        energy(leaf).sum().backward()
        x = x - 0.1 * leaf.grad
        if bounds:
            x = x.clamp(*bounds)
    for mode in ("plain", "eager"):
        with using(mode):
            assert torch.equal(langevin(energy, start, n_steps=10, step_size=0.1, noise_scale=0.0, bounds=bounds), x)


def test_equation_two_of_the_paper():
    """x - eps/2 grad + sqrt(eps) z with eps = 2 step_size, for one step of a linear energy."""
    start, z = torch.zeros(4, 2), torch.empty(4, 2).normal_(generator=generator(3))
    moved = langevin(lambda x: 3 * x.sum(1), start, n_steps=1, step_size=0.02, generator=generator(3))
    torch.testing.assert_close(moved, start - 0.02 * 3 + 0.04**0.5 * z)


def test_decoupled_noise_sets_the_temperature():
    x = torch.zeros(20_000, 1)
    x = langevin(Quadratic(), x, n_steps=300, step_size=0.02, noise_scale=0.1, generator=generator(0))
    # temperature .1^2 / .04 = .25; discretised variance T / (1 - step/2)
    assert Langevin(step_size=0.02, noise_scale=0.1).temperature == pytest.approx(0.25)
    assert x.var().item() == pytest.approx(0.25 / 0.99, abs=5 * 0.25 * (2 / 20_000) ** 0.5)


def test_gradient_clip_and_box():
    steep = langevin(
        lambda x: 100 * x.sum(1), torch.zeros(3, 2), n_steps=1, step_size=1.0, noise_scale=0.0, max_grad=0.5
    )
    assert torch.equal(steep, torch.full((3, 2), -0.5))
    for kind in ("langevin", "mala"):
        x = run(
            kind,
            Quadratic(dim=2),
            torch.zeros(100, 2),
            n_steps=20,
            step_size=0.5,
            bounds=(-0.3, 0.4),
            generator=generator(0),
        )
        assert x.min() >= -0.3
        assert x.max() <= 0.4
        assert x.std() > 0.1


def test_mala_is_exact_where_langevin_is_not():
    """At a step of 1 on a unit Gaussian, plain Langevin's variance is 1 / (1 - 1/2) = 2; MALA's stays 1."""
    x = torch.randn(20_000, 1, generator=generator(1))
    plain = langevin(Quadratic(), x, n_steps=30, step_size=1.0, generator=generator(2)).var().item()
    adjusted = mala(Quadratic(), x, n_steps=30, step_size=1.0, generator=generator(2))[0].var().item()
    tolerance = 5 * (2 / 20_000) ** 0.5
    assert plain == pytest.approx(2.0, abs=2 * tolerance)
    assert adjusted == pytest.approx(1.0, abs=tolerance)


def test_jumps_put_the_right_mass_into_far_modes():
    rough = torch.cat([torch.randn(500, 1, generator=generator(0)) * 1.5 + centre for centre in (-5.0, 5.0)])
    proposal = Mixture.fit(rough, components=2, seed=0)
    start = torch.full((4000, 1), -5.0)
    local, _ = mala(far_modes, start, n_steps=60, step_size=0.5, generator=generator(1))
    jumped, info = mala(
        far_modes, start, n_steps=60, step_size=0.5, proposal=proposal, jump_every=2, generator=generator(1)
    )
    assert (local > 0).float().mean() == 0
    assert (jumped > 0).float().mean().item() == pytest.approx(0.75, abs=5 * (0.75 * 0.25 / 4000) ** 0.5)
    assert 0.2 < info["jumps"] < 1


@pytest.mark.parametrize(("kind", "extra"), [("langevin", 0), ("mala", 1)])
def test_one_evaluation_per_step_and_parameters_out_of_the_graph(kind, extra):
    energy = Counting()
    run(kind, energy, torch.zeros(4, 2), n_steps=7, step_size=0.1, generator=generator(0))
    assert energy.calls == 7 + extra
    assert not any(energy.trainable)
    assert all(p.requires_grad and p.grad is None for p in energy.parameters())


def test_frozen_restores_what_it_found_after_an_error():
    energy = MLP((2,), width=4)
    energy.net[0].weight.requires_grad_(False)
    seen = []

    def stop(x):
        seen.append(energy.training)
        raise RuntimeError("stop")

    energy.forward = stop
    with pytest.raises(RuntimeError, match="stop"), frozen(energy):
        energy(torch.zeros(1, 2))
    assert seen == [False]
    assert energy.training
    assert [p.requires_grad for p in energy.parameters()][:2] == [False, True]


@pytest.mark.parametrize("kind", ["langevin", "mala"])
def test_start_and_global_generator_are_left_alone(kind):
    start, state = torch.ones(3, 2), torch.get_rng_state()
    seen = []
    x = run(kind, Quadratic(dim=2), start, n_steps=3, step_size=0.1, generator=generator(0), callback=seen.append)
    assert torch.equal(start, torch.ones(3, 2))
    assert torch.equal(state, torch.get_rng_state())
    assert [s["step"] for s in seen] == [0, 1, 2]
    assert torch.equal(seen[-1]["x"], x)
    assert torch.equal(x, run(kind, Quadratic(dim=2), start, n_steps=3, step_size=0.1, generator=generator(0)))


@pytest.mark.parametrize("kind", ["langevin", "mala"])
@pytest.mark.parametrize("bounds", [None, (0.0, 1.0)])
@pytest.mark.parametrize("n_steps", [0, 1])
def test_what_is_returned_has_no_history_and_lies_in_the_box(kind, bounds, n_steps):
    x = torch.tensor([[-3.0, 0.5], [0.2, 3.0]], requires_grad=True)
    result = run(kind, Quadratic(dim=2), x, n_steps=n_steps, step_size=0.1, bounds=bounds, generator=generator(0))
    assert not result.requires_grad
    assert result.data_ptr() != x.data_ptr()
    if bounds is not None:
        assert ((result >= 0) & (result <= 1)).all()


def test_an_overflow_is_rejected_not_followed():
    def cliff(x):
        return torch.where(x[:, 0] > 0.5, torch.nan, 0.5 * x[:, 0] ** 2)

    x, _ = mala(cliff, torch.zeros(500, 1), n_steps=50, step_size=0.2, generator=generator(0))
    assert torch.isfinite(x).all()
    assert x.max() <= 0.5


def test_step_size_adapts_to_the_target_acceptance():
    step_size, x = torch.tensor(5.0), torch.zeros(500, 2)
    for i in range(150):
        x, info = mala(Quadratic(dim=2), x, n_steps=5, step_size=step_size, generator=generator(i))
        step_size = adapt_step_size(step_size, info["acceptance"], 0.6)
    assert info["acceptance"].item() == pytest.approx(0.6, abs=0.05)


@pytest.mark.parametrize("name", SAMPLERS)
def test_every_sampler_runs_through_the_trainer_protocol(name):
    sampler = SAMPLERS[name](n_steps=3)
    step_size = torch.tensor(sampler.step_size)
    settings = {"step_size": step_size, "n_steps": 3, "proposal": Mixture.standard(2), "generator": generator(0)}
    x, info = sampler.run(Quadratic(dim=2), torch.zeros(4, 2), **settings)
    assert x.shape == (4, 2)
    assert sampler.adapt(step_size, info) > 0


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (Mala, {"n_steps": 0}, "n_steps must be a positive"),
        (Mala, {"target_acceptance": 1.0}, "target_acceptance"),
        (Mala, {"jump_every": -1}, "jump_every"),
        (Mala, {"jump_every": 1}, "jump_every"),
        (Langevin, {"noise_scale": -1.0}, "noise_scale"),
        (Langevin, {"step_size": -1.0}, "step_size must be a positive"),
        (Langevin, {"low": 1.0, "high": 0.0}, "box is empty"),
    ],
)
def test_bad_settings_are_refused(kind, settings, message):
    with pytest.raises(UserError, match=message):
        kind(**settings)


def test_a_step_is_adapted_by_a_twentieth_of_the_relative_excess():
    step = torch.tensor(2.0)
    for acceptance, target in ((0.9, 0.6), (0.1, 0.5)):
        expected = 2.0 * math.exp(0.05 * (acceptance - target) / target)
        assert adapt_step_size(step, torch.tensor(acceptance), target) == pytest.approx(expected)
        assert Mala(target_acceptance=target).adapt(step, {"acceptance": torch.tensor(acceptance)}) == pytest.approx(
            expected
        )
    assert adapt_step_size(step, torch.tensor(0.9), 0.6, rate=1.0) == pytest.approx(2.0 * math.exp(0.5))
    assert Langevin().adapt(step, {}) is step
