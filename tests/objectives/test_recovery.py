"""Recovery likelihood."""

import math

import pytest
import torch

from pscd import PseudoSpherical, TrainConfig, fit, losses
from pscd.config import ChainSettings, ComputeSettings, GuardSettings, RowSettings
from pscd.energies import Architecture, ConvNet, LevelEnergy, NoisyEnergies, Quadratic
from pscd.errors import UserError
from pscd.model import Model
from pscd.objectives import Recovery
from pscd.objectives.recovery import denoised
from pscd.rng import generator
from pscd.sampling import Langevin

IMAGE = (1, 8, 8)
CONV = Architecture("conv", width=2, depth=2, fourier=0, base_scale=None, levels=3)
SMALL = TrainConfig(
    objective=Recovery(gamma=0.3, n_steps=2),
    sampler=Langevin(low=0.0, high=1.0),
    energy=CONV,
    updates=6,
    batch_size=8,
    chains=ChainSettings(base="box", buffer_size=8, sample_steps=6),
    guard=GuardSettings(checkpoint_every=3, log_every=1),
    rows=RowSettings(standardise="none"),
)


class Silent(torch.nn.Module):
    """f = 0: the exact energies of data that are Gaussian with deviation 0.5."""

    def forward(self, x, label):
        return x.new_zeros(len(x))


def gaussian(levels=3, least=0.25, most=2.0, dtype=torch.float64):
    return NoisyEnergies(Silent(), (1,), levels=levels, least=least, most=most).to(dtype)


def network(levels=3):
    torch.manual_seed(0)
    net = ConvNet(IMAGE, width=2, depth=2, classes=levels)
    return NoisyEnergies(net, IMAGE, levels=levels, least=0.1, most=0.8).double()


def by_hand(energy, x_pos, seed, *, n_steps, step_size):
    """Energies of data and of recovered samples in an update, line by line, with the same draws."""
    rng = generator(seed)
    t = int(torch.randint(energy.levels, (1,), generator=rng))
    s, above = energy.sigmas[t].item(), energy.sigmas[t + 1].item()
    sigma2 = above**2 - s**2
    v = s**2 * sigma2 / above**2
    x = x_pos + s * torch.randn(x_pos.shape, generator=rng, dtype=x_pos.dtype)
    y = x + math.sqrt(sigma2) * torch.randn(x_pos.shape, generator=rng, dtype=x_pos.dtype)
    z = y.clone()
    for i in range(n_steps):
        z.requires_grad_(True)
        e = energy(z, torch.full((len(z),), t)) + (z - y).square().flatten(1).sum(1) / (2 * sigma2)
        (slope,) = torch.autograd.grad(e.sum(), z)
        last = i == n_steps - 1
        mean = (x_pos / s**2 + y / sigma2) / (1 / s**2 + 1 / sigma2)
        noise = (x - mean) / math.sqrt(v) if last else torch.randn(z.shape, generator=rng, dtype=z.dtype)
        z = z.detach() - step_size * v * slope + math.sqrt(step_size * (2 - step_size) * v) * noise
    label = torch.full((len(x),), t)
    return energy(x, label), energy(z, label)


@pytest.mark.parametrize("seed", [0, 1, 4])
@pytest.mark.parametrize("gamma", [0.0, 0.7])
def test_the_loss_by_hand(gamma, seed):
    energy, x = network(), torch.rand(16, *IMAGE, dtype=torch.float64, generator=generator(9))
    objective = Recovery(gamma=gamma, n_steps=3, step_size=0.4, unit="nats")
    loss, stats = objective(energy, None, x, x[:0], generator(seed))
    loss.backward()
    result = [p.grad.clone() for p in energy.parameters()]
    energy.zero_grad()
    e_pos, e_neg = by_hand(energy, x, seed, n_steps=3, step_size=0.4)
    expected = (
        e_pos.mean() - e_neg.mean()
        if gamma == 0
        else -torch.log(torch.exp(-gamma * (e_pos - e_pos[0])).mean()) / gamma
        + e_pos[0]
        - (torch.softmax(-gamma * e_neg, 0).detach() * e_neg).sum()
    )
    expected.backward()
    torch.testing.assert_close(loss, expected, rtol=1e-6, atol=1e-6)
    for ours, p in zip(result, energy.parameters(), strict=True):
        torch.testing.assert_close(ours, p.grad, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(stats["e_neg"], e_neg.mean().detach(), rtol=1e-6, atol=1e-6)


def test_gamma_is_per_spread_of_the_energies_of_the_level():
    energy, x = network(), torch.rand(16, *IMAGE, dtype=torch.float64, generator=generator(9))
    loss, stats = Recovery(gamma=0.7, n_steps=3, step_size=0.4)(energy, None, x, x[:0], generator(1))
    e_pos, e_neg = by_hand(energy, x, 1, n_steps=3, step_size=0.4)
    spread = losses.energy_spread(e_pos)
    torch.testing.assert_close(stats["spread"], spread, rtol=1e-6, atol=0)
    expected = losses.pseudo_spherical(e_pos, e_neg, 0.7 / float(spread))
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-5)


def test_every_level_has_its_turn_and_all_rows_of_an_update_the_same():
    seen = set()
    for seed in range(40):
        energy = network()
        loss, _ = Recovery(n_steps=1)(energy, None, torch.rand(4, *IMAGE).double(), torch.empty(0), generator(seed))
        loss.backward()
        used = energy.net.net[-1].weight.grad.abs().sum(1) > 0  # an output of the network for each level
        assert used.sum() == 1
        seen.add(int(used.nonzero()))
    assert seen == {0, 1, 2}


@pytest.mark.parametrize(("level", "n_steps"), [(0, 1), (1, 4), (2, 400)])
def test_the_law_of_what_is_recovered(level, n_steps):
    # With f = 0 the energy given y is that of a Gaussian of precision P around m. Steps are then linear, and the law
    # after n of them is known, that of the discretised chain included.
    energy, n, start, a = gaussian(), 40_000, 1.5, 0.5
    s, above = 0.25 * 2**level, 0.5 * 2**level
    sigma2 = above**2 - s**2
    v = s**2 * sigma2 / above**2
    precision = 1 / (s**2 + 0.5**2) + 1 / sigma2
    mean = start / sigma2 / precision
    shrink = 1 - a * v * precision
    y = torch.full((n, 1), start, dtype=torch.float64)
    x = Recovery(n_steps=n_steps, step_size=a).recover(energy, y, level, generator=generator(0))
    variance = a * (2 - a) * v * (1 - shrink ** (2 * n_steps)) / (1 - shrink**2)
    # Five standard errors of mean and variance.
    assert abs(float(x.mean()) - (mean + shrink**n_steps * (start - mean))) < 5 * math.sqrt(variance / n)
    assert abs(float(x.var()) / variance - 1) < 5 * math.sqrt(2 / n)


def test_one_step_is_exact_for_a_row_that_is_known():
    # E(x, t) = |x - c|^2 / (2 s_t^2): all data are c. A step of size 1 draws x given y exactly, and with the data's own
    # noise it is the data's own x.
    class Known(NoisyEnergies):
        def forward(self, x, level=None):
            return (x - 0.3).square().sum(1) / (2 * self.sigmas[level].square())

        input_gradient = None

    energy = Known(Silent(), (1,), levels=3, least=0.25, most=2.0).double()
    c = torch.full((6, 1), 0.3, dtype=torch.float64)
    loss, stats = Recovery(n_steps=1)(energy, None, c, c[:0], generator(2))
    assert abs(float(loss)) < 1e-12
    assert float(stats["e_pos"]) > 0.01


def test_samples_go_down_all_levels_to_the_data():
    # Many small steps: the chain's own error is below that of 5,000 samples. The last noise is removed by its
    # mean, which leaves a variance of 0.5^4 / (0.5^2 + s_0^2).
    energy, n = gaussian(levels=6, least=0.25, most=16.0), 5_000
    objective = Recovery(n_steps=100, step_size=0.1)
    x = objective.sample(energy, torch.full((n, 1), 3.0, dtype=torch.float64), generator=generator(0))
    variance = 0.5**4 / (0.5**2 + 0.25**2)
    assert abs(float(x.mean())) < 5 * math.sqrt(variance / n)
    assert abs(float(x.var()) / variance - 1) < 5 * math.sqrt(2 / n) + 0.05


def test_denoising_is_the_posterior_mean():
    x = torch.tensor([[2.0]], dtype=torch.float64)
    expected = x * 0.5**2 / (0.5**2 + 0.25**2)
    torch.testing.assert_close(denoised(gaussian(), x), expected)


def test_at_the_data_s_own_energies_the_loss_has_no_slope_whatever_gamma():
    # Data of deviation 0.5, whose energies are exact at f = 0: a small linear f has slope 0 there, on average.
    class Tilted(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.slope = torch.nn.Parameter(torch.zeros(3, dtype=torch.float64))

        def forward(self, x, label):
            return self.slope[label] * x.square().sum(1)

    x = 0.5 * torch.randn(20_000, 1, dtype=torch.float64, generator=generator(5))
    for gamma in (0.0, 1.0):
        energy = NoisyEnergies(Tilted(), (1,), levels=3, least=0.25, most=2.0).double()
        objective = Recovery(gamma=gamma, n_steps=300, step_size=0.05, unit="nats")
        loss, _ = objective(energy, None, x, x[:0], generator(3))
        loss.backward()
        scale = float(energy.factors(torch.arange(3))[1].max())
        # The statistic is scale times x^2 / w^2, of deviation sqrt(2): five standard errors of a
        # difference are .07, and the error of the chain is .02.
        assert float(energy.net.slope.grad.abs().max()) / scale < 0.09


def test_steps_of_all_levels_are_divided_and_counted():
    energy, steps = gaussian(), []
    Recovery().sample(energy, torch.zeros(2, 1).double(), n_steps=7, generator=generator(0), callback=steps.append)
    assert [at["step"] for at in steps] == list(range(7))
    with pytest.raises(UserError, match="n_steps must be at least 3"):
        Recovery().sample(energy, torch.zeros(2, 1).double(), n_steps=2)


def test_a_model_is_trained_kept_and_sampled(tmp_path):
    x = torch.rand(40, *IMAGE, generator=generator(0))
    log = []
    model = fit(x, config=SMALL, folder=tmp_path, callbacks=[lambda at: log.append(at["stats"])])
    assert {"loss", "gap", "ess_pos", "spread"} <= log[-1].keys()
    samples = model.sample(5, seed=1)
    assert samples.shape == (5, *IMAGE)
    assert torch.isfinite(samples).all()
    model.save(tmp_path / "model.safetensors", step=6)
    again = Model.load(tmp_path / "model.safetensors")
    assert again.config == SMALL
    torch.testing.assert_close(again.sample(5, seed=1), samples, rtol=0, atol=0)
    torch.testing.assert_close(again.energy(x), model.energy(x), rtol=0, atol=0)


def test_a_stopped_run_goes_on_to_the_same_weights(tmp_path):
    x = torch.rand(40, *IMAGE, generator=generator(0))
    whole = fit(x, config=SMALL)
    seen = []

    def stop(row):
        seen.append(row)
        if row["step"] == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(x, config=SMALL, folder=tmp_path, callbacks=[lambda at: stop(at["stats"])])
    resumed = fit(x, config=SMALL, folder=tmp_path)
    for a, b in zip(whole.network.parameters(), resumed.network.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


def test_the_ladder_of_the_model_is_used_to_sample():
    x = torch.rand(40, *IMAGE, generator=generator(0))
    model = fit(x, config=SMALL)
    seen = []
    model.sample(3, callback=lambda at: seen.append(at["step"]))
    assert seen == list(range(6))
    # Other chains start in [0, 1]; these start from noise.
    first = []
    model.sample(200, callback=lambda at: first.append(at["x"]) if at["step"] == 0 else None)
    assert float(first[0].std()) > 1


def test_settings_out_of_range_are_refused():
    for settings in ({"gamma": -2.0}, {"warmup": 2.0}, {"n_steps": 0}, {"step_size": 2.0}, {"unit": "bits"}):
        with pytest.raises(UserError):
            Recovery(**settings)
    with pytest.raises(UserError, match="set levels"):
        TrainConfig(objective=Recovery())
    with pytest.raises(UserError, match="set levels to 0"):
        TrainConfig(objective=PseudoSpherical(), energy=CONV)
    with pytest.raises(UserError, match="float32"):
        TrainConfig(objective=Recovery(), energy=CONV, compute=ComputeSettings(precision="bfloat16"))
    with pytest.raises(UserError, match="NoisyEnergies"):
        Recovery().init(Quadratic(), torch.zeros(2, 1))


def test_gamma_warms_up():
    objective = Recovery(gamma=0.4, warmup=0.5)
    assert [objective.at(p).gamma for p in (0.0, 0.25, 0.5, 1.0)] == pytest.approx([0.0, 0.2, 0.4, 0.4])


def test_the_round_trip_of_its_settings():
    assert TrainConfig.from_dict(SMALL.to_dict()) == SMALL


def test_level_energies_are_functions_of_one_level():
    energy, x = network(), torch.rand(3, *IMAGE).double()
    torch.testing.assert_close(LevelEnergy(energy, 1)(x), energy(x, torch.ones(3, dtype=torch.long)))
