import math

import pytest
import torch

from pscd import exact
from pscd.errors import UserError
from pscd.rng import generator
from studies.baselines.tables import FlowDensity, GaussianMixtureDensity, KernelDensity, trimmed_mean

RIVALS = {
    "mixture": GaussianMixtureDensity,
    "kernels": KernelDensity,
    "flow": lambda: FlowDensity(steps=150),
    "trimmed flow": lambda: FlowDensity(alpha=0.1, steps=150),
}


def far_off(n, seed=0):
    """A Gaussian of deviations 2 and 0.5 around (100, -3)."""
    return torch.tensor([100.0, -3.0]) + torch.tensor([2.0, 0.5]) * torch.randn(n, 2, generator=generator(seed))


@pytest.mark.parametrize("name", RIVALS)
def test_a_density_in_the_units_of_the_data(name):
    """It integrates to 1 there, and rows of the truth have nearly the log density that the truth gives them."""
    if "flow" in name:
        pytest.importorskip("zuko")
    before = torch.get_rng_state()
    density = RIVALS[name]().fit(far_off(2000), seed=0)
    assert torch.equal(torch.get_rng_state(), before)
    grid = exact.grid(exact.Box((70.0, -10.5), (130.0, 4.5), cut=math.inf), 150)  # five points for each deviation
    mass = (density.log_prob(grid.points).exp() * grid.h).sum()
    assert mass == pytest.approx(1, abs=1e-2)
    rows = far_off(2000, seed=1)
    truth = -math.log(2 * math.pi) - 0.5 * ((rows - torch.tensor([100.0, -3.0])) / torch.tensor([2, 0.5])).square().sum(
        1
    )
    kl = (truth - density.log_prob(rows)).mean()
    # Trimmed by a tenth, a Gaussian in the plane has its variance times 1 + .1 log(.1) / .9 = .744, a KL of .05; a flow
    # can cut tails off altogether, and after 150 updates is on its way there.
    assert -0.01 < kl < (0.5 if "trim" in name else 0.08)


@pytest.mark.parametrize("name", RIVALS)
def test_the_same_seed_gives_the_same_density(name):
    if "flow" in name:
        pytest.importorskip("zuko")
    x = far_off(300)
    rival = {**RIVALS, "flow": lambda: FlowDensity(steps=5), "trimmed flow": lambda: FlowDensity(alpha=0.1, steps=5)}
    first, again = (rival[name]().fit(x, seed=3).log_prob(x[:20]) for _ in range(2))
    assert torch.equal(first, again)
    assert first.dtype == torch.float64


def test_the_criterion_finds_the_number_of_gaussians():
    sides = torch.where(torch.rand(1000, 1, generator=generator(1)) < 0.5, -10.0, 10.0)
    assert GaussianMixtureDensity().fit(sides + torch.randn(1000, 1, generator=generator(0))).components == 2
    assert GaussianMixtureDensity().fit(far_off(1000)).components == 1


def test_integers_do_not_become_spikes():
    x = torch.randint(5, (500, 2), generator=generator(0)).double()
    # Evenly spread over cells of width 1 the density is 1 / 25; a spike would have far more.
    assert KernelDensity().fit(x).log_prob(x).max() < math.log(0.1)
    assert GaussianMixtureDensity().fit(x).log_prob(x).max() < math.log(0.2)


def test_trimming_keeps_a_flow_from_far_junk():
    pytest.importorskip("zuko")
    clean = far_off(900)
    junk = torch.tensor([112.0, 0.0]) + torch.randn(100, 2, generator=generator(2))
    dirty = torch.cat([clean, junk])
    plain, trimmed = (FlowDensity(alpha=alpha, steps=60).fit(dirty) for alpha in (0.0, 0.12))
    assert trimmed.log_prob(junk).mean() < plain.log_prob(junk).mean() - 2
    assert trimmed.log_prob(far_off(500, seed=1)).mean() > plain.log_prob(far_off(500, seed=1)).mean()


def test_trimmed_mean_by_hand():
    values = torch.tensor([5.0, 1.0, 3.0, -7.0, 2.0])
    assert trimmed_mean(values, 0.0) == pytest.approx(0.8)
    assert trimmed_mean(values, 0.4) == pytest.approx(10 / 3)


def test_mistakes_fit_on_one_line():
    with pytest.raises(UserError, match="alpha"):
        FlowDensity(alpha=1.0)
    with pytest.raises(UserError, match="constant"):
        KernelDensity().fit(torch.ones(30, 2))
