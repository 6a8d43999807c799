import pytest
import torch

from pscd.metrics import mmd
from pscd.rng import generator


def brute_force(real, fake, unbiased):
    def k(x, y):
        return torch.exp(-torch.cdist(x.double(), y.double()).square() / 4)

    n, m = len(real), len(fake)
    if unbiased:
        within = (k(real, real).sum() - n) / (n * (n - 1)) + (k(fake, fake).sum() - m) / (m * (m - 1))
    else:
        within = k(real, real).mean() + k(fake, fake).mean()
    return (within - 2 * k(real, fake).mean()).item()


@pytest.mark.parametrize("unbiased", [True, False])
@pytest.mark.parametrize("block", [7, 4096])
@pytest.mark.parametrize("offset", [0.0, 300.0])
def test_equals_the_definition_in_blocks_of_any_size(unbiased, block, offset):
    real = torch.randn(50, 2, generator=generator(0)) + offset
    fake = 0.5 + torch.randn(31, 2, generator=generator(1)) + offset
    assert mmd(real, fake, unbiased=unbiased, block=block) == pytest.approx(
        brute_force(real, fake, unbiased), abs=1e-6 if offset else 1e-7
    )


def test_closed_form_for_two_gaussians():
    """E k(x, y) = sqrt(2 / (2 + s^2)) exp(-m^2 / (2 (2 + s^2))) for a difference N(m, s^2), bandwidth^2 = 2."""
    n = 5000
    real, fake = torch.randn(n, 1, generator=generator(0)), 1 + torch.randn(n, 1, generator=generator(1))
    k = (2 / 4) ** 0.5
    exact = 2 * k - 2 * k * torch.tensor(-1 / 8).exp().item()
    assert mmd(real, fake) == pytest.approx(exact, abs=0.02)


def test_u_statistic_is_centred_on_zero_for_equal_distributions():
    values = [
        1e4 * mmd(torch.randn(500, 2, generator=generator(2 * i)), torch.randn(500, 2, generator=generator(2 * i + 1)))
        for i in range(40)
    ]
    mean, spread = torch.tensor(values).mean().item(), torch.tensor(values).std().item() / 40**0.5
    assert abs(mean) < 5 * spread
    assert min(values) < 0 < max(values)


def test_refuses_what_cannot_be_compared():
    with pytest.raises(ValueError, match="rows of shape"):
        mmd(torch.zeros(5, 2), torch.zeros(5, 3))
    with pytest.raises(ValueError, match="two points"):
        mmd(torch.zeros(1, 2), torch.zeros(5, 2))
