import math

import pytest
import torch
from torch import nn

from pscd import exact
from pscd.energies import Architecture, CorrectedEnergy, Quadratic
from pscd.mixtures import Mixture
from pscd.rng import Stream, generator
from pscd.sampling.normalizing import LogZ, _by_quadrature, log_z


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
    result = log_z(energy, Mixture.standard(dim))
    assert result.value == pytest.approx(energy.exact, abs=1e-6)
    assert result.error < 1e-6
    assert result.warning is None


def test_a_box_reaches_as_far_as_columns_that_fall_together():
    """A correlation of -.9: the factor has a negative entry, which widens the box as a positive one would."""
    covariance = torch.tensor([[1.0, -1.8], [-1.8, 4.0]]).double()
    mixture = Mixture(torch.ones(1).double(), torch.zeros(1, 2).double(), torch.linalg.cholesky(covariance)[None])

    class Same(nn.Module):
        def forward(self, x):
            return 2.0 - mixture.log_prob(x.double())

    result = _by_quadrature(Same(), mixture, 12.0)
    assert result.value == pytest.approx(-2.0, abs=1e-6)


def test_the_stated_error_covers_the_truth():
    """Two standard errors hold in 95 % of the seeds; fewer than 16 of 20 have a chance of 1 in 400."""
    energy = Shifted(10, -1.0, 0.5)
    result = [log_z(energy, Mixture.standard(10), n=4096, seed=seed) for seed in range(20)]
    covered = sum(abs(f.value - energy.exact) < 2 * f.error for f in result)
    assert covered >= 16
    assert all(0 < f.error < 0.05 for f in result)


def test_a_proposal_that_is_the_model_has_no_error():
    mixture = Mixture.standard(5)

    class Same(nn.Module):
        def forward(self, x):
            return 2.0 - mixture.log_prob(x)

    result = log_z(Same(), mixture, n=1000)
    assert result.value == pytest.approx(-2.0, abs=1e-5)
    assert result.error < 1e-6
    assert result.effective == pytest.approx(1.0)


def test_a_large_error_is_told():
    warning = LogZ(0.0, 0.5, 0.02).warning
    assert warning is not None
    assert "uncertain by 0.50 nats" in warning
    assert "(2.0%)" in warning


def test_the_global_generator_is_left_alone():
    before = torch.get_rng_state()
    log_z(Shifted(3, 0.0, 0.1), Mixture.standard(3), n=100)
    assert torch.equal(before, torch.get_rng_state())


class Step(nn.Module):
    """f = height to one side of 0 and -height to the other; under a symmetric m the mean of exp(-f) is cosh(height)."""

    def __init__(self, height):
        super().__init__()
        self.height = height

    def forward(self, z):
        return torch.where(z[:, 0] > 0, self.height, -self.height)


def symmetric(dim):
    """Three Gaussians, two of them mirror images with correlated columns."""
    rng = generator(dim)
    factor = torch.eye(dim) + 0.2 * torch.randn(dim, dim, generator=rng).tril(-1)
    mean = torch.randn(dim, generator=rng)
    return Mixture(
        torch.tensor([0.25, 0.25, 0.5]),
        torch.stack([mean, -mean, torch.zeros(dim)]),
        torch.stack([factor, factor, 2 * torch.eye(dim)]),
    )


@pytest.mark.parametrize("dim", [1, 2, 10])
def test_a_mixture_of_known_mass(dim):
    """By draws of itself the weights are all alike; by quadrature, to its rounding in float32 weights."""
    mixture = symmetric(dim)
    energy = CorrectedEnergy(mixture, Constant(-1.5))
    result = log_z(energy, mixture, n=2000)
    assert result.value == pytest.approx(1.5, abs=1e-5)
    assert result.error < 1e-5
    drawn = log_z(energy, mixture.broadened())
    assert 0 < drawn.error < 0.01
    assert drawn.value == pytest.approx(1.5, abs=5 * drawn.error)
    if dim <= 2:  # of an energy that does not say what it corrects; the proposal is where to look, and no more
        result = log_z(Unknown(energy), mixture.broadened())
        assert result.value == pytest.approx(1.5, abs=1e-5)
        assert result.effective == 1


class Unknown(nn.Module):
    def __init__(self, energy):
        super().__init__()
        self.energy = energy

    def forward(self, z):
        return self.energy(z)


class Constant(nn.Module):
    def __init__(self, value):
        super().__init__()
        self.value = value

    def forward(self, z):
        return z.new_full((len(z),), self.value)


def test_the_stated_error_covers_for_a_corrected_mixture_in_ten_columns():
    """Three standard errors hold in 99.7 % of the seeds; two misses of 20 have a chance of 190 x .0027^2 = .0014.

    The error itself is known: weights exp(-+1) have the deviation sinh(1) and the mean cosh(1).
    """
    mixture = symmetric(10)
    energy = CorrectedEnergy(mixture, Step(1.0))
    result = [log_z(energy, mixture, n=8192, seed=seed) for seed in range(20)]
    assert sum(abs(f.value - math.log(math.cosh(1.0))) < 3 * f.error for f in result) >= 19
    for f in result:
        assert f.error == pytest.approx(math.tanh(1.0) / math.sqrt(8192), rel=0.05)
        assert f.effective == pytest.approx(1 / (1 + math.tanh(1.0) ** 2), rel=0.05)
    # And it is no overstatement: the estimates' own deviation, known to 5 / sqrt(40), is the error.
    spread = torch.tensor([f.value for f in result]).std().item()
    assert spread == pytest.approx(result[0].error, rel=5 / math.sqrt(40))


class Wide(nn.Module):
    def __init__(self, deviation):
        super().__init__()
        self.deviation = deviation

    def forward(self, x):
        return 0.5 * (x / self.deviation).square().sum(1)


@pytest.mark.parametrize("deviation", [10.0, 30.0])
def test_a_model_that_reaches_beyond_the_box_gets_a_larger_one(deviation):
    """The first box ends at 36: it would cut off mass and state no error."""
    result = log_z(Wide(deviation), Mixture.standard(1))
    assert result.value == pytest.approx(math.log(deviation * math.sqrt(2 * math.pi)), abs=1e-5)


def test_far_beyond_every_box_the_answer_comes_with_a_warning():
    """Draws of a proposal that is far too narrow understate their error, and few of them carry the answer."""
    result = log_z(Wide(1000.0), Mixture.standard(1))
    assert result.effective < 0.01
    assert result.warning is not None
    assert "at least" in result.warning
    assert "at least" not in LogZ(0.0, 0.5, 0.02).warning
    assert LogZ(0.0, 0.05, 0.02).warning is None


@pytest.mark.parametrize(
    ("error", "effective", "words"),
    [(0.1, 0.01, None), (0.11, 0.01, "uncertain by 0.11 nats"), (0.1, 0.0099, "uncertain by at least 0.10 nats")],
)
def test_a_warning_has_its_thresholds(error, effective, words):
    warning = LogZ(0.0, error, effective).warning
    assert warning is None if words is None else words in warning
    assert LogZ(0.0, 0.0).effective == 1


def test_draws_by_hand():
    """Weights of draws in blocks, by the stream that is theirs."""
    proposal, energy = Mixture.standard(3), Quadratic(dim=3)
    n = 16_384 + 10
    rng = generator(2, Stream.LOG_Z)
    y = torch.cat([proposal.sample(16_384, rng), proposal.sample(10, rng)])
    w = (-energy(y) - proposal.log_prob(y)).double().exp().detach()
    result = log_z(energy, proposal, n=n, seed=2)
    assert result.value == pytest.approx(float(w.mean().log()))
    assert result.error == pytest.approx(float(w.std() / w.mean()) / n**0.5)
    assert result.effective == pytest.approx(float(w.sum() ** 2 / w.square().sum() / n))


@pytest.mark.parametrize("dim", [1, 2])
def test_the_box_and_the_grid_of_a_quadrature(dim, monkeypatch):
    seen = []
    original = exact.grid

    def grid(box, count):
        seen.append((box.low, box.high, count))
        return original(box, 64)

    monkeypatch.setattr(exact, "grid", grid)
    weights, means = torch.tensor([0.25, 0.75]), torch.tensor([[0.0] * dim, [4.0] * dim])
    factors = torch.stack([torch.eye(dim), 2 * torch.eye(dim)])
    _by_quadrature(Quadratic(dim=dim), Mixture(weights, means, factors), 12.0)
    low, high = 3.0 - 3.0 - 24.0, 3.0 + 3.0 + 24.0
    cells = 16 * 1024 if dim == 1 else 1024
    assert seen == [((low,) * dim, (high,) * dim, cells), ((low,) * dim, (high,) * dim, cells // 2)]


def test_draws_of_what_is_corrected_agree_with_quadrature_to_a_hundredth():
    mixture = symmetric(2)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        energy = Architecture("corrected", width=16, depth=2).correct(mixture, 2 * torch.randn(2, 8))
    torch.nn.init.normal_(energy.network.net[-1].weight, generator=generator(1))
    assert energy.network(mixture.sample(1000, generator(2))).std() > 0.1  # a correction that matters
    drawn, exactly = log_z(energy, mixture), log_z(Unknown(energy), mixture)
    assert drawn.error < 0.005
    assert drawn.value == pytest.approx(exactly.value, abs=min(0.01, 5 * drawn.error))
    assert abs(exactly.value) > 0.02
