"""Updates worked out by hand in float64, against `train_step`: every objective, sampler, unit and starting rule."""

import copy
import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.functional import softplus

from pscd.config import ChainSettings, ComputeSettings, GuardSettings, OptimizerSettings, TrainConfig
from pscd.losses import energy_spread
from pscd.mixtures import Mixture
from pscd.objectives import (
    FEBM,
    OBJECTIVES,
    DenoisingScoreMatching,
    DensityPower,
    NoiseContrastive,
    PseudoSpherical,
    ScoreMatching,
    SlicedScoreMatching,
    Trimmed,
    WeightedNegatives,
)
from pscd.recipes.tables import prepare
from pscd.rng import Stream, generator
from pscd.sampling import SAMPLERS, Jumps, Langevin, Mala
from pscd.training.loop import train_step
from pscd.training.state import init_state

FIRST, UPDATES = 37, 3  # in the middle of the warm-up, and enough for Adam's moments to count
CONFIG = TrainConfig(
    updates=100,
    batch_size=12,
    objective=PseudoSpherical(gamma=0.8),
    sampler=Mala(n_steps=3, step_size=0.3),
    chains=ChainSettings(buffer_size=30, restart=0.3, jump_components=2),
    optimizer=OptimizerSettings(lr=0.02, betas=(0.7, 0.999), clip=None, ema=0.9),
    guard=GuardSettings(max_gap=1e9),
    compute=ComputeSettings(gradients="plain"),
)


class Bumpy(nn.Module):
    """Smooth, with no symmetry that could hide a sign."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 1), nn.Flatten(0))
        with torch.no_grad():
            for p in self.parameters():
                p.copy_(torch.randn(p.shape, generator=generator(4)))

    def forward(self, x):
        x = x.flatten(1).to(self.net[0].weight)  # chains kept as bytes are float32
        return self.net(x) + 0.3 * x.square().sum(1)

    def corrected_density(self, power):
        """Something to draw from, where no chains run; wider for a smaller power."""
        factors = torch.tensor([[[0.9, 0.0], [0.4, 0.7]], [[1.5, 0.0], [0.0, 1.1]]]) / power
        return Mixture(torch.tensor([0.3, 0.7]), torch.tensor([[0.5, -0.2], [-0.3, 0.4]]), factors)


def slope(energy, x):
    leaf = x.detach().clone().requires_grad_()
    return torch.autograd.grad(energy(leaf).sum(), leaf)[0]


# Samplers: `energy` is what chains see, a power included. Returns points, and the step size for the next update.


def langevin_by_hand(sampler, energy, x, step, proposal, rng):
    noise = math.sqrt(2 * step) if sampler.noise_scale is None else sampler.noise_scale
    low, high = (
        (-math.inf if sampler.low is None else sampler.low),
        (math.inf if sampler.high is None else sampler.high),
    )
    largest = math.inf if sampler.max_grad is None else sampler.max_grad
    x = x.clamp(low, high)
    for _ in range(sampler.n_steps):
        z = torch.empty_like(x).normal_(generator=rng)
        x = (x - step * slope(energy, x).clamp(-largest, largest) + noise * z).clamp(low, high)
    return x, step


def mala_by_hand(sampler, energy, x, step, proposal, rng):
    accepted = []
    for i in range(sampler.n_steps):
        jump = sampler.jump_every and i % sampler.jump_every == sampler.jump_every - 1
        if jump:
            y = proposal.sample(len(x), rng)
            there, back = proposal.log_prob(y), proposal.log_prob(x)
        else:
            centre = x - step * slope(energy, x)
            y = centre + math.sqrt(2 * step) * torch.empty_like(x).normal_(generator=rng)
            there = -(y - centre).square().sum(1) / (4 * step)
            back = -(x - y + step * slope(energy, y)).square().sum(1) / (4 * step)
        chance = torch.exp(energy(x) - energy(y) + back - there)
        accept = torch.rand(len(x), generator=rng, dtype=x.dtype) < chance
        x = torch.where(accept[:, None], y, x)
        if not jump:
            accepted.append(accept.double().mean())
    acceptance, target = sum(accepted) / len(accepted), sampler.target_acceptance
    return x, step * math.exp(0.05 * (acceptance - target) / target)


def jumps_by_hand(sampler, energy, x, step, proposal, rng):
    for _ in range(sampler.n_steps):
        y = proposal.sample(len(x), rng)
        chance = torch.exp(energy(x) - energy(y) + proposal.log_prob(x) - proposal.log_prob(y))
        x = torch.where((torch.rand(len(x), generator=rng, dtype=x.dtype) < chance)[:, None], y, x)
    return x, step


BY_HAND = {Langevin: langevin_by_hand, Mala: mala_by_hand, Jumps: jumps_by_hand}


# Objectives: a scalar whose gradient is that of the scoring rule, from weights that are written out.


def weights(e, gamma):
    w = torch.exp(-gamma * (e.detach() - e.detach().min()))
    return w / w.sum()


def two_phases(objective, e_pos, e_neg, progress):
    """Weights of data and samples, and their squares."""
    if isinstance(objective, DensityPower):
        beta = objective.beta * min(1, progress / objective.warmup)
        w_pos, w_neg = torch.exp(-beta * e_pos.detach()), torch.exp(-beta * e_neg.detach())
        w_pos, w_neg = w_pos / w_neg.mean(), w_neg / w_neg.mean()
        return (w_pos * e_pos).mean() - (w_neg * e_neg).mean() + (w_neg.mean() - w_pos.mean()) * e_neg.mean()
    if isinstance(objective, Trimmed):
        return e_pos.sort().values[: len(e_pos) - int(objective.alpha * len(e_pos))].mean() - e_neg.mean()
    if isinstance(objective, WeightedNegatives):
        return e_pos.mean() - (weights(e_neg, objective.gamma) * e_neg).sum()
    gamma = objective.gamma * min(1, progress / objective.warmup) if objective.warmup else objective.gamma
    direct = objective.negatives == "direct" or (objective.negatives == "auto" and -1 < gamma < 0)
    if objective.unit == "spread":
        gamma = gamma / energy_spread(e_pos)
    w_pos, w_neg = weights(e_pos, gamma), weights(e_neg, 0.0 if direct else gamma)
    loss = (w_pos * e_pos).sum() - (w_neg * e_neg).sum()
    return loss + objective.l2 * ((w_pos * e_pos**2).sum() + (w_neg * e_neg**2).sum())


def median(values):
    """The lower one of two in the middle, as torch has it."""
    return values.sort().values[(len(values) - 1) // 2]


def ess(e, gamma):
    w = weights(e, gamma)
    return 1 / (len(w) * (w**2).sum())


def power_by_hand(objective, progress):
    if not isinstance(objective, PseudoSpherical):
        return 1.0
    gamma = objective.gamma * min(1, progress / objective.warmup) if objective.warmup else objective.gamma
    return 1 + gamma if objective.negatives == "direct" or gamma < 0 else 1.0


def f_ebm_by_hand(objective, energy, critic, x_pos, x_neg, progress):
    """Jensen-Shannon and KL, in the share of the warm-up; the energy goes down and the critic up."""
    share = 0.0 if objective.divergence == "kl" else objective.share * min(1, progress / objective.warmup)
    e_pos, e_neg = energy(x_pos), energy(x_neg)
    c_pos, c_neg = critic.offset - critic.network(x_pos), critic.offset - critic.network(x_neg)
    t_pos, t_neg = (e_pos + c_pos).detach(), (e_neg + c_neg).detach()
    s = share * torch.sigmoid(-t_pos) + (1 - share)
    f = share * (softplus(t_neg) - math.log(2)) + (1 - share) * t_neg.exp()
    f_slope = share * torch.sigmoid(t_neg) + (1 - share) * t_neg.exp()
    excess = f - f_slope
    down = (s * e_pos).mean() - s.mean() * e_neg.mean() + (excess * e_neg).mean() - excess.mean() * e_neg.mean()
    up = (s * c_pos).mean() - (f_slope * c_neg).mean()
    return down - up


def nce_by_hand(objective, energy, noise, x_pos, rng):
    """Logistic regression of data against noise."""
    y = noise.density.sample(objective.ratio * len(x_pos), rng).double()
    shift = noise.log_z + math.log(objective.ratio)
    pos, neg = (-energy(v) - shift - noise.density.log_prob(v) for v in (x_pos, y))
    told = [((v + math.log(objective.ratio)) * sign > 0).double().mean() for v, sign in ((pos, 1), (neg, -1))]
    stats = {"e_pos": energy(x_pos).mean(), "log_z": noise.log_z.clone(), "told_apart": sum(told) / 2}
    return softplus(-pos).mean() + objective.ratio * softplus(neg).mean(), stats


def importance_by_hand(objective, energy, drawn, x_pos, rng, progress):
    """Draws of g stand for draws of q with the weights q / g, and for draws of r with q^(1 + gamma) / g."""
    gamma = objective.gamma * min(1, progress / objective.warmup) if objective.warmup else objective.gamma
    y = drawn.density.sample(2 * len(x_pos), rng).double()
    e_pos, e_neg = energy(x_pos), energy(y)
    per_nat = gamma / energy_spread(e_pos.detach()) if objective.unit == "spread" else gamma
    ratio = torch.exp(-e_neg.detach()) / drawn.density.log_prob(y).exp()
    w_neg = ratio * torch.exp(-per_nat * e_neg.detach())
    w_neg, from_q = w_neg / w_neg.sum(), ratio / ratio.sum()
    stats = {"gamma": torch.tensor(gamma), "e_pos": e_pos.mean(), "e_neg": (from_q * e_neg).sum()}
    stats |= {"ess_pos": ess(e_pos, per_nat), "ess_neg": 1 / (len(y) * w_neg.square().sum())}
    loss = (weights(e_pos, per_nat) * e_pos).sum() - (w_neg * e_neg).sum()
    squares = (weights(e_pos, per_nat) * e_pos.square()).sum() + (w_neg * e_neg.square()).sum()
    return loss + objective.l2 * squares, stats


def score_matching_by_hand(objective, energy, x_pos, rng, progress):
    done = min(1, progress / objective.warmup)
    least = max(objective.sigma, 0.05)
    sigma = least**done * objective.first_sigma ** (1 - done)
    z = torch.randn(x_pos.shape, generator=rng, dtype=x_pos.dtype)
    x = (x_pos + sigma * z).requires_grad_()
    g = torch.autograd.grad(energy(x).sum(), x, create_graph=True)[0]
    stats = {"e_pos": energy(x).mean(), "slope": g.square().sum(1).mean().sqrt()}
    if isinstance(objective, DenoisingScoreMatching):
        return 0.5 * (sigma * g - z).square().sum(1).mean(), stats
    rows = [torch.autograd.grad(g[:, i].sum(), x, create_graph=True)[0] for i in range(2)]
    hessian = torch.stack(rows, 1)
    if isinstance(objective, ScoreMatching):
        curvature = hessian.diagonal(dim1=1, dim2=2).sum(1)
    else:
        v = 2.0 * torch.randint(2, (objective.n_projections, *x.shape), generator=rng).double() - 1
        curvature = torch.einsum("pbi,bij,pbj->pb", v, hessian, v).mean(0)
    return (0.5 * g.square().sum(1) - curvature).mean(), stats


class ByHand:
    """A second run from the same state, with its own weights, moments, chains and step size."""

    def __init__(self, state, config):
        self.config = config
        self.energy, self.averaged, self.aux, self.buffer = copy.deepcopy(
            (state.energy, state.averaged, state.aux, state.buffer)
        )
        self.averaged_weights = [p.clone() for p in self.averaged.parameters()]
        self.players = [list(m.parameters()) for m in (self.energy, self.aux) if m is not None]
        self.parameters = [p for player in self.players for p in player]
        self.first = [torch.zeros_like(p) for p in self.parameters]
        self.second = [torch.zeros_like(p) for p in self.parameters]
        self.step_size, self.proposal, self.chances = float(state.step_size), state.proposal, state.cumulative_chances
        self.step, self.retries, self.stats = state.step, state.retries, {}

    def update(self, x):
        config, progress = self.config, self.step / self.config.updates
        rng = generator(config.seed, Stream.UPDATE, self.step, 0, self.retries)
        n, objective = config.batch_size, config.objective
        if self.chances is None:
            index = torch.randint(len(x), (n,), generator=rng)
        else:
            at = torch.rand(n, generator=rng, dtype=torch.float64) * self.chances[-1]
            index = torch.stack([(self.chances <= u).sum() for u in at])
        x_pos = x[index]
        if config.rows.data_noise:
            x_pos = x_pos + config.rows.data_noise * torch.randn(x_pos.shape, generator=rng)
            x_pos = x_pos.clamp(0, 1) if config.chains.base == "box" else x_pos
        loss = self.loss(objective, x_pos, progress, rng)
        loss.backward()
        self.descend()
        self.step += 1
        return loss

    def loss(self, objective, x_pos, progress, rng):
        if isinstance(objective, NoiseContrastive):
            loss, self.stats = nce_by_hand(objective, self.energy, self.aux, x_pos, rng)
            return loss
        if getattr(objective, "negatives", None) == "importance":
            loss, self.stats = importance_by_hand(objective, self.energy, self.aux, x_pos, rng, progress)
            return loss
        if isinstance(objective, (ScoreMatching, DenoisingScoreMatching, SlicedScoreMatching)):
            loss, self.stats = score_matching_by_hand(objective, self.energy, x_pos, rng, progress)
            return loss
        x_neg = self.negatives(x_pos, power_by_hand(objective, progress), rng)
        e_pos, e_neg = self.energy(x_pos).detach(), self.energy(x_neg).detach()
        self.stats = {"e_pos": e_pos.mean(), "e_neg": e_neg.mean(), "gap": median(e_pos) - median(e_neg)}
        if isinstance(objective, FEBM):
            self.stats["critic"] = (e_neg + self.aux.offset - self.aux.network(x_neg)).mean()
            return f_ebm_by_hand(objective, self.energy, self.aux, x_pos, x_neg, progress)
        if isinstance(objective, PseudoSpherical) and objective.negatives != "direct" and objective.gamma >= 0:
            gamma = objective.gamma * (min(1, progress / objective.warmup) if objective.warmup else 1)
            spread = energy_spread(e_pos) if objective.unit == "spread" else 1.0
            self.stats |= {"gamma": torch.tensor(gamma), "ess_pos": ess(e_pos, gamma / spread)}
            self.stats["ess_neg"] = ess(e_neg, gamma / spread)
        elif isinstance(objective, (Trimmed, WeightedNegatives, DensityPower)):
            name, power = "gamma", getattr(objective, "gamma", 0.0)
            if isinstance(objective, DensityPower):
                name, power = "beta", objective.beta * min(1, progress / objective.warmup)
            self.stats |= {name: torch.tensor(power), "ess_pos": ess(e_pos, power), "ess_neg": ess(e_neg, power)}
        elif isinstance(objective, PseudoSpherical):  # the gap compares draws of r with weighted data
            self.stats.pop("gap")
        return two_phases(objective, self.energy(x_pos), self.energy(x_neg), progress)

    def negatives(self, x_pos, power, rng):
        config = self.config
        restart = {"persistent": config.chains.restart, "data": 0.0, "short-run": 1.0}[config.chains.start]
        rows = self.buffer.draw(config.batch_size, restart, rng)
        start = x_pos if config.chains.start == "data" else rows.x
        sampler = config.sampler
        run = BY_HAND[type(sampler)]
        x_neg, self.step_size = run(
            sampler, lambda x: power * self.energy(x), start, self.step_size, self.proposal, rng
        )
        kept = (x_neg * 255).round().to(torch.uint8) if config.chains.base == "box" else x_neg
        self.buffer.x[rows.index] = kept.detach()
        return x_neg.detach()

    def descend(self):
        config, t = self.config, self.step - FIRST + 1
        for player in self.players:
            norm = math.sqrt(sum(p.grad.square().sum().item() for p in player if p.grad is not None))
            if config.optimizer.clip is not None and norm > config.optimizer.clip:
                for p in player:
                    p.grad *= config.optimizer.clip / (norm + 1e-6)  # as torch does
        rate = config.optimizer.lr * min(1, (self.step + 1) / 100) * 0.5**self.retries
        if config.optimizer.schedule == "cosine":
            rate *= (1 + math.cos(math.pi * self.step / config.updates)) / 2
        for p, m, v in zip(self.parameters, self.first, self.second, strict=True):
            if p.grad is None:
                continue
            m.mul_(config.optimizer.betas[0]).add_((1 - config.optimizer.betas[0]) * p.grad)
            v.mul_(0.999).add_(0.001 * p.grad**2)
            root = (v / (1 - 0.999**t)).sqrt() + 1e-8
            p.data -= rate * m / (1 - config.optimizer.betas[0] ** t) / root
            p.grad = None
        memory = min(config.optimizer.ema, (1 + self.step) / (10 + self.step))
        for average, p in zip(self.averaged_weights, self.energy.parameters(), strict=True):
            average.copy_(memory * average + (1 - memory) * p)


SPREAD = PseudoSpherical(gamma=0.8, unit="spread", warmup=0.0)
CASES = {
    # Recovery likelihood has a network of its own, see tests/objectives/test_recovery.py.
    **{f"objective {name}": {"objective": objective} for name, objective in OBJECTIVES.items() if name != "recovery"},
    "squares": {"objective": PseudoSpherical(gamma=0.8, l2=0.3)},
    "no warm-up": {"objective": PseudoSpherical(gamma=0.8, warmup=0.0)},
    "from r": {"objective": PseudoSpherical(gamma=0.8, negatives="direct")},
    "from r, jumps": {"objective": PseudoSpherical(gamma=0.8, negatives="direct"), "sampler": Jumps(n_steps=3)},
    "importance": {"objective": PseudoSpherical(gamma=0.8, negatives="importance", l2=0.2)},
    "importance, gamma 0": {"objective": PseudoSpherical(gamma=0.0, negatives="importance")},
    "importance, spread": {"objective": PseudoSpherical(gamma=0.8, negatives="importance", unit="spread", l2=0.2)},
    "below zero": {"objective": PseudoSpherical(gamma=-0.5, l2=0.1), "sampler": Langevin(n_steps=3, step_size=0.1)},
    "spread": {"objective": replace(SPREAD, l2=0.2)},
    "spread, from r": {"objective": replace(SPREAD, negatives="direct")},
    "js": {"objective": FEBM(divergence="js", share=0.9)},
    "trim": {"objective": Trimmed(alpha=0.25)},
    **{f"sampler {name}": {"sampler": kind()} for name, kind in SAMPLERS.items()},
    "no jumps": {"sampler": Mala(n_steps=3, step_size=0.3, jump_every=0)},
    "every third step": {"sampler": Mala(n_steps=7, step_size=0.3, jump_every=3, target_acceptance=0.8)},
    "clamped": {"sampler": Langevin(n_steps=4, step_size=0.1, noise_scale=0.1, max_grad=0.2, low=-0.9, high=1.1)},
    **{f"chains {rule}": {"chains.start": rule} for rule in ("persistent", "data", "short-run")},
    "no restarts": {"chains.restart": 0.0},
    "data noise": {"rows.data_noise": 0.2},
    "clip": {"optimizer.clip": 0.05},
    "clip, two players": {"optimizer.clip": 0.05, "objective": FEBM(divergence="js")},
    "constant rate": {"optimizer.schedule": "constant"},
    "no average": {"optimizer.ema": 0.0},
    "mixture": {"rows.start": "mixture", "rows.standardise": "robust"},
    "mixture, own rows": {"rows.start": "mixture", "chains.start": "data", "sampler": Jumps(n_steps=2)},
    "box": {
        "chains.base": "box",
        "rows.standardise": "none",
        "rows.data_noise": 0.1,
        "sampler": Langevin(n_steps=3, step_size=0.05, noise_scale=0.02, low=0.0, high=1.0),
    },
}


def junky(n=60):
    """A skewed cloud with junk, so that a robust mixture finds rows not to draw."""
    x = torch.randn(n, 2, generator=generator(0)).double()
    x[:, 1] = x[:, 0] + 0.5 * x[:, 1].exp()
    x[:6] = 30 + 9 * x[:6]
    return x


def begin(settings):
    config = CONFIG.changed(settings)
    x = torch.rand(40, 1, 1, 2, generator=generator(1)).double() if config.chains.base == "box" else junky()
    prepared, config = prepare(x, config)
    state = init_state(x, config, Bumpy(), torch.device("cpu"), prepared=prepared)
    for module in (state.energy, state.averaged, state.aux, state.proposal):
        if module is not None:
            module.double()
    if not state.buffer.uint8:
        state.buffer.x = state.buffer.x.double()
    state.step_size, state.step = state.step_size.double(), FIRST
    return state, config, prepared.z.double()


@pytest.mark.parametrize("name", CASES)
def test_updates_are_those_worked_out_by_hand(name):
    state, config, x = begin(CASES[name])
    hand = ByHand(state, config)
    close = {"rtol": 1e-8, "atol": 1e-10} if config.chains.base != "box" else {"rtol": 1e-5, "atol": 1e-6}
    for _ in range(UPDATES):
        stats = train_step(state, x, config)
        hand.update(x)
        for key, expected in hand.stats.items():
            assert float(stats[key]) == pytest.approx(float(expected.detach()), rel=1e-5, abs=1e-6), key
        for found, expected in zip(state.energy.parameters(), hand.energy.parameters(), strict=True):
            torch.testing.assert_close(found, expected, **close)
        for found, expected in zip(state.averaged.parameters(), hand.averaged_weights, strict=True):
            torch.testing.assert_close(found, expected, **close)
        if state.aux is not None:
            for found, expected in zip(state.aux.parameters(), hand.aux.parameters(), strict=True):
                torch.testing.assert_close(found, expected, **close)
        torch.testing.assert_close(state.buffer.x, hand.buffer.x, **close)
        assert float(state.step_size) == pytest.approx(hand.step_size, rel=1e-7)  # the acceptance is a float32
        hand.step_size = float(state.step_size)
    assert state.step == FIRST + UPDATES
