"""PixelCNN++: probabilities that sum to one, and no look ahead."""

import pytest
import torch

from pscd.rng import generator
from studies.baselines import pixelcnn
from studies.baselines.pixelcnn import PixelNetwork, draw, log_likelihood, n_parameters

MIXTURES = 3


def parameters(channels, seed=0, n=1, scale=1.0):
    return scale * torch.randn(n, n_parameters(channels, MIXTURES), 1, 1, generator=generator(seed)).double()


@pytest.mark.parametrize("scale", [0.1, 1.0, 5.0])
def test_256_values_share_a_probability_of_one(scale):
    values = torch.arange(256, dtype=torch.uint8).view(256, 1, 1, 1)
    log_p = log_likelihood(values, parameters(1, scale=scale).expand(256, -1, 1, 1), MIXTURES)
    assert log_p.isfinite().all()
    assert log_p.double().exp().sum().item() == pytest.approx(1.0, abs=1e-4)  # pixels are floats of seven digits


def test_a_channel_given_those_before_has_a_probability_of_one():
    """All values of the last of three channels, the others fixed: the sum is the probability of those others."""
    fixed, p = torch.tensor([30, 200]), parameters(3)
    values = torch.arange(256, dtype=torch.uint8)
    x = torch.cat([fixed.to(torch.uint8).expand(256, 2), values[:, None]], 1).view(256, 3, 1, 1)
    total = log_likelihood(x, p.expand(256, -1, 1, 1), MIXTURES).double().logsumexp(0)
    # The same of the first two channels alone, whose parameters are among those of three.
    rest = p[:, MIXTURES:].view(1, MIXTURES, 9, 1, 1)
    two = torch.cat([p[:, :MIXTURES], rest[:, :, [0, 1, 3, 4, 6]].reshape(1, -1, 1, 1)], 1)
    assert total.item() == pytest.approx(log_likelihood(x[:1, :2], two, MIXTURES).item(), abs=1e-3)


def test_draws_have_their_probabilities():
    n = 40_000
    p = parameters(1, seed=1)
    x = draw(p.float().expand(n, -1, 1, 1), 1, MIXTURES, generator(0)).flatten()
    frequencies = torch.bincount(x.long(), minlength=256) / n
    values = torch.arange(256, dtype=torch.uint8).view(256, 1, 1, 1)
    expected = log_likelihood(values, p.expand(256, -1, 1, 1), MIXTURES).exp().flatten()
    # Cumulated, the largest difference exceeds 1.95 / sqrt(n) once in a thousand (Kolmogorov).
    assert (frequencies.cumsum(0) - expected.cumsum(0)).abs().max() < 1.95 / n**0.5


@pytest.fixture(scope="module")
def network():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return PixelNetwork(channels=2, width=6, mixtures=MIXTURES)


def test_a_pixel_depends_on_all_before_it_and_on_none_after(network):
    height, width = 8, 8
    x = torch.randint(256, (1, 2, height, width), generator=generator(0), dtype=torch.uint8)
    with torch.no_grad():
        before = network(x)
        for i in range(height * width):
            changed = x.clone()
            changed[0, :, i // width, i % width] = 255 - changed[0, :, i // width, i % width]
            moved = (network(changed) != before).any(1).flatten()
            assert not moved[: i + 1].any(), f"pixel {i} is seen by itself or before"
            if i + 1 < height * width:
                assert moved[i + 1 :].any(), f"pixel {i} is seen by nobody"


def test_rows_below_have_no_say_in_a_shorter_image(network):
    """Which is what sampling row by row relies on."""
    x = torch.randint(256, (2, 2, 12, 8), generator=generator(1), dtype=torch.uint8)
    with torch.no_grad():
        torch.testing.assert_close(network(x)[:, :, :8], network(x[:, :, :8]))


def test_sampling_draws_each_pixel_given_those_before():
    """A network that asks for the value of the pixel to the left plus ten, give or take one."""

    class Chain(torch.nn.Module):
        def forward(self, x):
            left = torch.nn.functional.pad(x.float(), (1, 0))[:, :, :, :-1]
            mean = (left + 10) / 127.5 - 1
            return torch.cat([torch.zeros_like(mean), mean, torch.full_like(mean, -20.0)], 1)

    model = pixelcnn.PixelCNN(Chain(), pixelcnn.Settings((1, 4, 8), width=1, mixtures=1))
    rises = model.sample(2).float().diff(dim=3, prepend=torch.zeros(2, 1, 4, 1))
    assert (rises - 10).abs().max() <= 1
