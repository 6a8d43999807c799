"""Samplers leave their target exactly invariant: detailed balance pair by pair, and joint tests with known power."""

import math

import pytest
import torch
from scipy import stats

from pscd.energies import TemperedEnergy
from pscd.errors import UserError
from pscd.mixtures import Mixture
from pscd.rng import generator
from pscd.sampling import Jumps, Langevin, Mala, langevin, mala
from pscd.sampling.mala import adapt_step_size
from pscd.sampling.protocol import box

STEP = 0.17
POINTS = torch.tensor(
    [[0.0, 0.0], [0.6, -0.4], [-1.1, 0.3], [0.2, 1.5], [-0.7, -0.9], [1.3, 0.8], [2.2, -1.6]], dtype=torch.float64
)
M = len(POINTS)
PAIRS = torch.cartesian_prod(torch.arange(M), torch.arange(M))
FROM, TO = POINTS[PAIRS[:, 0]], POINTS[PAIRS[:, 1]]
LOPSIDED = torch.tensor([0.05, 0.3, 0.1, 0.02, 0.2, 0.23, 0.1], dtype=torch.float64)


def crooked(x):
    """No symmetry: a sign, a factor or an exchange of the two points shows."""
    a, b = x[:, 0], x[:, 1]
    return 0.5 * a**2 + 0.3 * a * b + torch.exp(0.4 * b) + 0.2 * torch.sin(3 * a + b)


def slope(x):
    leaf = x.clone().requires_grad_()
    return torch.autograd.grad(crooked(leaf).sum(), leaf)[0]


def log_kernel(x, y):
    """Log density of a Langevin proposal from x at y, as the textbook has it."""
    normal = torch.distributions.Normal(x - STEP * slope(x), math.sqrt(2 * STEP))
    return normal.log_prob(y).sum(1)


class OneTo:
    """A proposal whose next draws are given, with a lopsided log density on the points."""

    def sample(self, n, generator=None):
        return TO

    def log_prob(self, x):
        return LOPSIDED.log()[(x[:, None] == POINTS).all(2).long().argmax(1)]


class Drawn:
    """In place of torch's random numbers: proposals that hit the second point of each pair, and given uniforms."""

    def __init__(self, monkeypatch, u):
        normal = (TO - FROM + STEP * slope(FROM)) / math.sqrt(2 * STEP)
        monkeypatch.setattr(torch.Tensor, "normal_", lambda z, generator=None: z.copy_(normal))
        monkeypatch.setattr(torch, "rand", lambda *a, **k: u)


def accepted(monkeypatch, u, **settings):
    """Which moves from every point to every point are made, `(M * M,)`."""
    result = []
    with monkeypatch.context() as patch:
        Drawn(patch, u)
        x, _ = mala(crooked, FROM, step_size=STEP, callback=lambda at: result.append(at["accept"]), **settings)
    torch.testing.assert_close(x, torch.where(result[-1][:, None], TO, FROM), rtol=1e-12, atol=1e-14)
    return result[-1]


def balanced(chance, forward, monkeypatch, **settings):
    """Moves happen with this chance, bracketed to 1e-9, so the flow between any two points is the same both ways."""
    assert accepted(monkeypatch, chance * (1 - 1e-9), **settings).all()
    refused = accepted(monkeypatch, chance * (1 + 1e-9), **settings)[chance < 1]
    assert len(refused) > M
    assert not refused.any()
    flow = (torch.exp(-crooked(FROM)) * forward * chance).view(M, M)
    torch.testing.assert_close(flow, flow.T, rtol=1e-10, atol=0)
    apart = (torch.exp(-crooked(FROM)) * forward).view(M, M)
    assert (apart / apart.T - 1).abs().max() > 0.5  # without the right chance it would be far from it


def test_langevin_proposals_are_in_detailed_balance(monkeypatch):
    there, back = log_kernel(FROM, TO), log_kernel(TO, FROM)
    chance = torch.exp(crooked(FROM) - crooked(TO) + back - there).clamp(max=1)
    balanced(chance, there.exp(), monkeypatch, n_steps=1)


def test_jumps_by_a_lopsided_proposal_are_in_detailed_balance(monkeypatch):
    """The second of two steps is a jump; in the first one, every move is refused."""
    there, back = LOPSIDED[PAIRS[:, 1]], LOPSIDED[PAIRS[:, 0]]
    chance = (torch.exp(crooked(FROM) - crooked(TO)) * back / there).clamp(max=1)

    def accepted_second(patch, u, **settings):
        draws = iter([torch.full_like(u, torch.inf), u])
        result = []
        with patch.context() as inner:
            inner.setattr(torch, "rand", lambda *a, **k: next(draws))
            settings = {"n_steps": 2, "step_size": STEP, "proposal": OneTo(), "jump_every": 2}
            x, info = mala(crooked, FROM, callback=lambda at: result.append(at["accept"]), **settings)
        assert not result[0].any()
        assert torch.equal(x, torch.where(result[1][:, None], TO, FROM))
        assert info["acceptance"] == 0
        assert info["jumps"].item() == pytest.approx(result[1].double().mean().item())
        return result[1]

    assert accepted_second(monkeypatch, chance * (1 - 1e-9)).all()
    assert not accepted_second(monkeypatch, chance * (1 + 1e-9))[chance < 1].any()
    flow = (torch.exp(-crooked(FROM)) * there * chance).view(M, M)
    torch.testing.assert_close(flow, flow.T, rtol=1e-12, atol=0)


def test_a_box_refuses_every_move_out_of_it_and_no_other(monkeypatch):
    low, high = -1.0, 1.4
    outside = ((low > TO) | (high < TO)).any(1)
    start = FROM.clamp(low, high)
    with monkeypatch.context() as patch:
        normal = (TO - start + STEP * slope(start)) / math.sqrt(2 * STEP)
        patch.setattr(torch.Tensor, "normal_", lambda z, generator=None: z.copy_(normal))
        patch.setattr(torch, "rand", lambda *a, **k: torch.zeros(len(FROM), dtype=torch.float64))
        x, info = mala(crooked, FROM, n_steps=1, step_size=STEP, bounds=(low, high))
    torch.testing.assert_close(x, torch.where(outside[:, None], start, TO))
    assert info["acceptance"].item() == pytest.approx((~outside).double().mean().item())


# Joint tests in the manner of Geweke (2004): chains that start at exact draws of the target stay exact draws, whatever
# the step size, and the pair (start, end) is exchangeable where the kernel is reversible.
N = 40_000
# The KS distance of N exact draws exceeds 2.23 / sqrt(N) = .0112 with probability 1e-4. By the DKW inequality, a
# sampler whose target is off by a distance of .03 is missed with probability below 2 exp(-2 N (.0188)^2) = 1e-12.
FAR = 2.23 / math.sqrt(N)


def exact_start():
    u = torch.rand(N, generator=generator(5), dtype=torch.float64)
    return -torch.log(-torch.log(u))[:, None]


def gumbel(x):
    return (x + torch.exp(-x)).squeeze(1)


def rough():
    """A proposal that is neither the target nor symmetric."""
    means, factors = torch.tensor([[0.0], [2.5]]), torch.tensor([[[1.3]], [[2.0]]])
    return Mixture(torch.tensor([0.7, 0.3]), means, factors).double()


@pytest.mark.parametrize(
    ("sampler", "n_steps"),
    [
        (Mala(step_size=0.9, jump_every=0), 6),
        (Mala(step_size=0.3, jump_every=2), 7),
        (Mala(step_size=0.9, jump_every=3), 5),
        (Jumps(), 3),
    ],
)
def test_exact_draws_stay_exact_draws(sampler, n_steps):
    x, moved = exact_start(), []
    step = torch.tensor(sampler.step_size, dtype=torch.float64)
    settings = {"step_size": step, "n_steps": n_steps, "proposal": rough(), "generator": generator(6)}
    y, _ = sampler.run(gumbel, x, callback=lambda at: moved.append(at["accept"]), **settings)
    assert torch.stack(moved).double().mean() > 0.3  # a chain that stands still is exact, too
    assert stats.kstest(y[:, 0].numpy(), stats.gumbel_r.cdf).statistic < FAR
    # And joint with where they came from: E[f(x) g(y)] = E[g(x) f(y)] for a kernel that is its own reverse. The steps
    # of the sweep are palindromic. Five standard errors: a false alarm in two million.
    f, g = x.clamp(-1, 4), (x > 1).double()
    fy, gy = y.clamp(-1, 4), (y > 1).double()
    difference = (f * gy - g * fy).flatten()
    assert difference.mean().abs() < 5 * difference.std() / math.sqrt(N)


def test_a_box_leaves_the_target_restricted_to_it_invariant():
    low, high = -0.5, 1.5
    a, b = (math.exp(-math.exp(-v)) for v in (low, high))
    u = a + (b - a) * torch.rand(N, generator=generator(5), dtype=torch.float64)
    x = -torch.log(-torch.log(u))[:, None]
    sampler = Mala(step_size=0.4, low=low, high=high)
    settings = {"step_size": torch.tensor(0.4).double(), "n_steps": 6, "proposal": rough(), "generator": generator(7)}
    y, _ = sampler.run(gumbel, x, **settings)
    assert stats.kstest(y[:, 0].numpy(), lambda v: (stats.gumbel_r.cdf(v) - a) / (b - a)).statistic < FAR


def test_simulation_based_calibration_of_a_posterior():
    """Where theta is drawn from a prior and data from theta, its rank among draws of the posterior is uniform.

    theta ~ N(0, 1), data ~ N(theta^3 / 3 + theta, 1): a posterior without a closed form. A chi-square test of 10 ranks
    gives a false alarm once in 10^4. If one rank had 13 % instead of 10 %, its non-centrality were 20,000 (.03^2 / .1)
    10 / 9 = 200, its mean 209 and its deviation 29, with a threshold of 33.7: six deviations, a miss in 10^9.
    """
    n, draws = 20_000, 9
    theta = torch.randn(n, 1, generator=generator(0), dtype=torch.float64)
    data = theta**3 / 3 + theta + torch.randn(n, 1, generator=generator(1), dtype=torch.float64)

    def posterior(x):
        return (0.5 * x**2 + 0.5 * (data - x**3 / 3 - x) ** 2).squeeze(1)

    # The chain continues from the true theta, itself a draw of the posterior; ranks are exact if the order of the chain
    # in time is random: theta takes a random place, and the chain runs forwards and backwards from it.
    place = torch.randint(draws + 1, (n,), generator=generator(2))
    rng = generator(3)
    below, ties = torch.zeros(n), torch.zeros(n)
    for part in (place, draws - place):
        x = theta
        for step in range(int(part.max())):
            x, _ = mala(posterior, x, n_steps=4, step_size=0.15, generator=rng)
            below += (x < theta).squeeze(1) & (step < part)
            ties += (x == theta).squeeze(1) & (step < part)
    # Chains that have not moved tie with theta, which is then equally likely to have any rank among them.
    rank = below + (torch.rand(n, generator=rng) * (ties + 1)).floor()
    counts = torch.bincount(rank.long(), minlength=draws + 1)
    assert stats.chisquare(counts.numpy()).pvalue > 1e-4


def test_the_sampler_hands_on_every_setting():
    """`Langevin.run` and `Mala.run` are the functions, with each setting in turn changed from its default."""
    x = torch.randn(20, 2, generator=generator(0))
    step, steep = torch.tensor(0.2), lambda x: 5 * (x**2).sum(1) + 3 * x[:, 0]
    base = langevin(steep, x, n_steps=3, step_size=0.2, generator=generator(1))
    for settings, arguments in [
        ({"max_grad": 0.3}, {"max_grad": 0.3}),
        ({"noise_scale": 0.01}, {"noise_scale": 0.01}),
        ({"low": -0.2}, {"bounds": (-0.2, math.inf)}),
        ({"high": 0.1}, {"bounds": (-math.inf, 0.1)}),
    ]:
        sampler = Langevin(step_size=0.2, **settings)
        result, info = sampler.run(steep, x, step_size=step, n_steps=3, generator=generator(1))
        expected = langevin(steep, x, n_steps=3, step_size=0.2, generator=generator(1), **arguments)
        torch.testing.assert_close(result, expected)
        assert not torch.allclose(result, base)
        assert info["temperature"].item() == pytest.approx(sampler.temperature)


def test_jumps_are_made_if_and_only_if_they_are_asked_for():
    x, proposal, settings = torch.zeros(50, 1), Mixture.standard(1), {"step_size": torch.tensor(0.01), "n_steps": 6}
    for every, n_jumps in [(0, 0), (2, 3), (3, 2), (7, 0)]:
        drawn = []

        class Spy:
            def sample(self, n, generator, drawn=drawn):
                drawn.append(n)
                return proposal.sample(n, generator)

            log_prob = staticmethod(proposal.log_prob)

        _, info = Mala(jump_every=every).run(gumbel, x, proposal=Spy(), generator=generator(0), **settings)
        assert drawn == [50] * n_jumps
        assert ("jumps" in info) == bool(n_jumps)


def test_acceptance_is_the_mean_over_the_steps_of_its_kind():
    result = []
    settings = {"step_size": 0.8, "n_steps": 5, "proposal": rough(), "generator": generator(0)}
    _, info = mala(
        gumbel, exact_start()[:500], callback=lambda at: result.append(at["accept"].double().mean()), **settings
    )
    local, jumps = torch.stack(result[0::2]).mean(), torch.stack(result[1::2]).mean()
    assert info["acceptance"].item() == pytest.approx(local.item(), rel=1e-6)
    assert info["jumps"].item() == pytest.approx(jumps.item(), rel=1e-6)
    assert abs(local - jumps) > 0.05


def test_the_step_adapts_by_the_formula():
    step = torch.tensor(0.3)
    assert adapt_step_size(step, torch.tensor(0.9), 0.6).item() == pytest.approx(0.3 * math.exp(0.05 * 0.5))
    assert adapt_step_size(step, torch.tensor(0.0), 0.5, rate=0.2).item() == pytest.approx(0.3 * math.exp(-0.2))
    result = Mala(target_acceptance=0.8).adapt(step, {"acceptance": torch.tensor(0.4)})
    assert result.item() == pytest.approx(0.3 * math.exp(-0.05 * 0.5))


def test_chains_on_a_power_of_q_sample_that_power():
    """exp(-2 E) of a unit Gaussian has variance 1/2; five standard errors."""
    x = torch.randn(N, 1, generator=generator(0)) * math.sqrt(0.5)

    class Gauss(torch.nn.Module):
        def forward(self, x):
            return 0.5 * x.square().sum(1)

    y, _ = mala(TemperedEnergy(Gauss(), 2.0), x, n_steps=5, step_size=0.5, generator=generator(1))
    assert y.var().item() == pytest.approx(0.5, abs=5 * 0.5 * math.sqrt(2 / N))


@pytest.mark.parametrize(
    ("kind", "name", "good", "bad"),
    [
        *[(kind, "n_steps", (1, 9), (0, -1)) for kind in (Langevin, Mala, Jumps)],
        *[(kind, "step_size", (1e-9, 10.0), (0.0, -1.0, math.inf, math.nan)) for kind in (Langevin, Mala)],
        (Langevin, "noise_scale", (None, 0.0, 3.0), (-1e-9, math.inf, math.nan)),
        (Langevin, "max_grad", (None, 1e-9), (0.0, -1.0, math.inf)),
        (Mala, "target_acceptance", (0.01, 0.99), (0.0, 1.0, math.nan)),
        (Mala, "jump_every", (0, 2, 3), (-1, 1)),
    ],
)
def test_settings_include_their_ends_as_they_say(kind, name, good, bad):
    for value in good:
        assert getattr(kind(**{name: value}), name) == value
    for value in bad:
        with pytest.raises(UserError, match=name):
            kind(**{name: value})


@pytest.mark.parametrize("kind", [Langevin, Mala, Jumps])
def test_a_box_has_an_inside(kind):
    for low, high in [(None, None), (0.0, None), (None, 0.0), (-1.0, 1.0)]:
        kind(low=low, high=high)
    for low, high in [(1.0, 1.0), (1.0, 0.0), (0.0, math.nan)]:
        with pytest.raises(UserError, match="box is empty"):
            kind(low=low, high=high)
    assert box(None, None) is None
    assert box(1.0, None) == (1.0, math.inf)
    assert box(None, 1.0) == (-math.inf, 1.0)
    assert box(0.0, 1.0) == (0.0, 1.0)
