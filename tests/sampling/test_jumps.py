import math

import pytest
import torch

from pscd.energies import Quadratic
from pscd.errors import UserError
from pscd.mixtures import Mixture
from pscd.rng import generator
from pscd.sampling import Jumps
from pscd.sampling.jumps import jumps
from pscd.sampling.mala import mala

M = 7  # points of the finite space
ENERGY = torch.tensor([0.3, 2.0, -1.0, 0.0, 4.0, 1.0, -0.5], dtype=torch.float64)
G = torch.tensor([0.05, 0.3, 0.1, 0.02, 0.2, 0.23, 0.1], dtype=torch.float64)  # lopsided, unlike exp(-E)


class OneTo:
    """A proposal on the points 0, 1, ..., M - 1 whose next draws are given."""

    def __init__(self, to):
        self.to = to

    def sample(self, n, generator=None):
        return self.to.double()[:, None]

    def log_prob(self, x):
        return G.log()[x[:, 0].long()]


def energy(x):
    return ENERGY[x[:, 0].long()]


def accepted(monkeypatch, u):
    """Which moves between all pairs of points are made when the uniform numbers are these, `(M, M)`."""
    pairs = torch.cartesian_prod(torch.arange(M), torch.arange(M))
    with monkeypatch.context() as patch:
        patch.setattr(torch, "rand", lambda *a, **k: u.flatten())
        result = []
        x, stats = jumps(
            energy,
            pairs[:, :1].double(),
            n_steps=1,
            proposal=OneTo(pairs[:, 1]),
            callback=lambda at: result.append(at["accept"]),
        )
    moved = torch.where(result[0], pairs[:, 1], pairs[:, 0])
    assert torch.equal(x[:, 0], moved.double())
    assert stats["jumps"].item() == pytest.approx(result[0].double().mean().item())
    return result[0].view(M, M)


def test_detailed_balance_holds_for_every_pair_of_points(monkeypatch):
    """The chance of a move, bracketed to 1e-9 by uniform numbers next to it, makes pi P = pi a matrix identity."""
    pi = torch.softmax(-ENERGY, 0)
    chance = (pi[None, :] * G[:, None] / (pi[:, None] * G[None, :])).clamp(max=1)
    assert accepted(monkeypatch, chance * (1 - 1e-9)).all()
    assert not accepted(monkeypatch, chance * (1 + 1e-9))[chance < 1].any()
    move = G[None, :] * chance
    move.fill_diagonal_(0)
    flow = pi[:, None] * move
    torch.testing.assert_close(flow, flow.T, rtol=1e-12, atol=0)
    step = move + torch.diag(1 - move.sum(1))
    torch.testing.assert_close(pi @ step, pi, rtol=1e-12, atol=0)
    assert (flow - flow.T).abs().max() < 1e-15 < (pi[:, None] * G - (pi[:, None] * G).T).abs().max()


def test_a_proposal_that_is_the_model_is_always_accepted():
    proposal = Mixture.standard(3).double()
    x = torch.zeros(200, 3, dtype=torch.float64)
    moved, stats = jumps(lambda z: 5.0 - proposal.log_prob(z), x, n_steps=10, proposal=proposal, generator=generator(0))
    # log u < 0 up to rounding of the four terms, 1e-14: the chance of a refusal is as small.
    assert stats["jumps"] == 1
    assert (moved != x).all()


def test_stationary_moments_of_a_tilted_gaussian():
    """exp(-E) = N(.7, 1) from draws of N(0, 1) and a broad one; 4,000 chains, of which 30 steps are forgotten."""
    x, _ = jumps(
        lambda z: 0.5 * (z[:, 0] - 0.7).square(),
        torch.full((4000, 1), -3.0),
        n_steps=30,
        proposal=Mixture.standard(1),
        generator=generator(0),
    )
    assert x.mean().item() == pytest.approx(0.7, abs=5 / math.sqrt(4000))
    assert x.var().item() == pytest.approx(1.0, abs=5 * math.sqrt(2 / 4000))


def test_a_box_is_never_left_and_an_energy_that_is_not_a_number_never_entered():
    inside, _ = jumps(
        Quadratic(dim=2),
        torch.full((500, 2), 9.0),
        n_steps=20,
        proposal=Mixture.standard(2),
        bounds=(-0.5, 1.0),
        generator=generator(0),
    )
    assert inside.min() >= -0.5
    assert inside.max() <= 1.0
    assert inside.min() < -0.4  # they move

    def broken(z):
        return torch.where(z[:, 0] > 0, torch.nan, 0.5 * z.square().sum(1))

    x, _ = jumps(broken, -torch.ones(500, 2), n_steps=20, proposal=Mixture.standard(2), generator=generator(0))
    assert (x[:, 0] <= 0).all()


def test_the_start_and_the_global_generator_are_left_alone():
    x, state = torch.zeros(10, 2), torch.get_rng_state()
    settings = {"n_steps": 3, "proposal": Mixture.standard(2)}
    first, again, other = (jumps(Quadratic(dim=2), x, generator=generator(s), **settings)[0] for s in (0, 0, 1))
    assert torch.equal(x, torch.zeros(10, 2))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_the_sampler_is_the_function_and_needs_a_proposal():
    sampler, one = Jumps(n_steps=4, low=-1.0, high=1.0), torch.tensor(1.0)
    x, proposal = torch.zeros(10, 2), Mixture.standard(2)
    result, _ = sampler.run(Quadratic(dim=2), x, step_size=one, n_steps=4, proposal=proposal, generator=generator(0))
    expected, _ = jumps(Quadratic(dim=2), x, n_steps=4, proposal=proposal, bounds=(-1.0, 1.0), generator=generator(0))
    assert torch.equal(result, expected)
    assert sampler.adapt(one, {}) is one
    with pytest.raises(UserError, match="need a proposal to draw from"):
        sampler.run(Quadratic(dim=2), x, step_size=one, n_steps=4)
    with pytest.raises(UserError, match="n_steps"):
        Jumps(n_steps=0)


class Far:
    """Draws that are as likely as any other, on the edge of a box and beyond it."""

    def sample(self, n, generator=None):
        return torch.linspace(1.0, 2.0, n)[:, None]

    def log_prob(self, x):
        return torch.zeros(len(x))


@pytest.mark.parametrize("run", [jumps, mala])
def test_not_even_a_uniform_number_of_0_lets_a_chain_out_of_its_box(run, monkeypatch):
    """The logarithm of 0 is that of the ratio outside."""
    monkeypatch.setattr(torch, "rand", lambda shape, **k: torch.zeros(shape))
    settings = {"jump_every": 1, "step_size": 0.1} if run is mala else {}
    x, _ = run(lambda x: 0 * x[:, 0], torch.zeros(3, 1), n_steps=1, proposal=Far(), bounds=(0.0, 1.0), **settings)
    assert x[:, 0].tolist() == [1.0, 0.0, 0.0]


@pytest.mark.parametrize("run", [jumps, mala])
def test_a_ratio_of_one_is_accepted_whatever_the_uniform_number_and_none_where_it_is_no_number(run, monkeypatch):
    monkeypatch.setattr(torch, "rand", lambda shape, **k: torch.full(shape, 1 - 2**-24))
    settings = {"jump_every": 1, "step_size": 0.1} if run is mala else {}
    x, stats = run(lambda x: 0 * x[:, 0], torch.zeros(3, 1), n_steps=1, proposal=Far(), **settings)
    assert x[:, 0].tolist() == [1.0, 1.5, 2.0]
    assert stats["jumps"] == 1
    monkeypatch.setattr(torch, "rand", lambda shape, **k: torch.zeros(shape))
    x, stats = run(lambda x: x[:, 0] / 0 * 0, torch.zeros(3, 1), n_steps=1, proposal=Far(), **settings)
    assert x[:, 0].tolist() == [0.0, 0.0, 0.0]
    assert stats["jumps"] == 0


def test_defaults_of_jumps():
    assert (Jumps().n_steps, Jumps().low, Jumps().high, Jumps().step_size) == (2, None, None, 1.0)
    with pytest.raises(UserError, match="box is empty"):
        Jumps(low=1.0, high=1.0)
    step = torch.tensor(0.5)
    assert Jumps().adapt(step, {}) is step
