"""Score networks: the method against Gaussians, of which everything is known."""

import math

import pytest
import torch

from pscd.errors import UserError
from pscd.rng import generator
from studies.baselines import ncsn

SD = 0.7


def true_score(scale=1.0, shift=0.0):
    """Of N(0, SD^2) with noise of deviation sigma; or not quite."""
    return lambda x, sigma: -scale * (x - shift) / (SD**2 + sigma.view(-1, 1) ** 2)


def test_the_loss_is_lowest_at_the_true_score_and_has_its_value():
    x = SD * torch.randn(200_000, 1, generator=generator(0))
    sigmas = torch.tensor([0.5, 1.5])
    values = {
        (scale, shift): ncsn.loss(true_score(scale, shift), x, sigmas, generator(1)).item()
        for scale, shift in [(1.0, 0.0), (0.9, 0.0), (1.1, 0.0), (1.0, 0.1), (1.0, -0.1)]
    }
    best = values.pop((1.0, 0.0))
    assert all(value > best + 1e-4 for value in values.values())
    # |sigma s + z|^2 / 2 at the truth has the mean SD^2 / (SD^2 + sigma^2) / 2, and a variance below one.
    expected = (0.5 * SD**2 / (SD**2 + sigmas**2)).mean().item()
    assert best == pytest.approx(expected, abs=5 / 200_000**0.5)


@pytest.mark.parametrize("denoise", [False, True])
def test_annealed_langevin_recovers_a_gaussian(denoise):
    sigmas = torch.logspace(math.log10(4.0), -1, 20)
    x = 4 * torch.randn(10_000, 2, generator=generator(0))
    mean = torch.tensor([0.5, -1.0])
    ends = ncsn.annealed_langevin(
        lambda x, sigma: true_score()(x - mean, sigma),
        x,
        sigmas,
        n_steps=100,
        step=0.2,
        generator=generator(1),
    )
    x = ends[int(denoise)]
    # Of 10,000 draws a mean and a deviation are known to a hundredth; noise of a tenth (1 %) is left.
    assert x.mean(0).tolist() == pytest.approx(mean.tolist(), abs=0.035)
    assert x.std(0).tolist() == pytest.approx([SD, SD], rel=0.04)


def test_the_last_step_takes_the_noise_away():
    """Where the data are one point, the true score knows it, and denoising ends there exactly."""
    sigmas = torch.tensor([1.0, 0.1])

    def score(x, sigma):
        return (3 - x) / sigma.view(-1, 1) ** 2

    settings = {"n_steps": 1, "step": 0.5, "generator": generator(0)}
    x = torch.zeros(50, 1)
    noisy, clean = ncsn.annealed_langevin(score, x, sigmas, **settings)
    assert noisy.std() > 0.05
    torch.testing.assert_close(clean, torch.full((50, 1), 3.0))


@pytest.mark.parametrize("dim", [64, 784, 3072])
def test_the_ladder_overlaps_by_half(dim):
    factor = ncsn.ladder_factor(dim)
    root = math.sqrt(2 * dim)
    normal = torch.distributions.Normal(0.0, 1.0)
    edges = torch.tensor([root * (factor - 1) - 3 * factor, root * (factor - 1) + 3 * factor])
    low, high = normal.cdf(edges)
    assert (high - low).item() == pytest.approx(0.5, abs=1e-3)
    sigmas = ncsn.ladder(10.0, dim)
    assert sigmas[0].item() == pytest.approx(10)
    assert sigmas[-1].item() == pytest.approx(ncsn.SMALLEST)
    torch.testing.assert_close(sigmas[:-1] / sigmas[1:], torch.full((len(sigmas) - 1,), (sigmas[0] / sigmas[1]).item()))
    assert (sigmas[0] / sigmas[1]).item() == pytest.approx(factor, rel=0.1)


def test_ladder_and_step_are_about_those_published_for_cifar():
    """Song and Ermon (2020): 232 levels from 50 to 0.01 for 3072 numbers, and 6.2e-6 for five steps at each."""
    assert len(ncsn.ladder(50.0, 3072)) == pytest.approx(232, rel=0.07)  # theirs overlap by 0.57
    sigmas = torch.logspace(math.log10(50.0), -2, 232)
    assert 0.01**2 * ncsn.step_size(sigmas, 5) == pytest.approx(6.2e-6, rel=0.05)


def test_no_other_step_brings_one_variance_closer_to_the_next():
    sigmas = ncsn.ladder(10.0, 784)

    def variance(step):
        value = float((sigmas[0] / sigmas[1]) ** 2)
        for _ in range(5):
            value = (1 - step) ** 2 * value + 2 * step
        return value

    best = ncsn.step_size(sigmas, 5)
    assert 1 < variance(best) < min(variance(0.8 * best), variance(1.25 * best))


def test_largest_distance_by_hand():
    assert ncsn.largest_distance(torch.tensor([[[0.0, 0.0]], [[3.0, 4.0]], [[1.0, 1.0]]])) == pytest.approx(5.0)


def test_only_the_first_version_is_told_how_much_noise_there_is():
    x = torch.rand(2, 1, 8, 8, generator=generator(0))
    for version, told in ((1, True), (2, False)):
        torch.manual_seed(0)
        network = ncsn.Settings((1, 8, 8), 4, 10.0, version).build()
        little, much = (network(x, torch.full((2,), sigma)) for sigma in (0.1, 3.0))
        assert torch.equal(little, much) is not told


def test_there_is_no_third_version():
    with pytest.raises(UserError, match="there are 1"):
        ncsn.fit(torch.zeros(2, 1, 8, 8, dtype=torch.uint8), version=3)
