"""Glow: invertible, and its log-determinant against autograd's Jacobian."""

import math

import pytest
import torch

from pscd.rng import generator
from studies.baselines import glow

pytest.importorskip("normflows")

SHAPE = (1, 4, 4)


@pytest.fixture(scope="module")
def network():
    """All weights at random: a new flow is nearly the identity, and would pass every test."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = glow.Settings(SHAPE, levels=2, blocks=2, width=8).build()
        network.log_prob(torch.randn(50, *SHAPE), None)  # sets the scale of its activations
        for p in network.parameters():
            p.data += 0.1 * torch.randn_like(p)
    return network.double().eval()


def flattened(network, x):
    return torch.cat([z.flatten(1) for z in network.inverse_and_log_det(x)[0]], 1)


def test_it_is_invertible(network):
    x = torch.randn(5, *SHAPE, generator=generator(0), dtype=torch.float64)
    latent, log_det = network.inverse_and_log_det(x)
    back, log_det_back = network.forward_and_log_det(latent)
    assert (back - x).abs().max() < 1e-4
    assert (log_det + log_det_back).abs().max() < 1e-4
    assert (flattened(network, x) - x.flatten(1)).abs().max() > 0.1


def test_its_log_determinant_is_that_of_the_jacobian(network):
    x = torch.randn(3, *SHAPE, generator=generator(1), dtype=torch.float64)
    _, log_det = network.inverse_and_log_det(x)
    for row, ours in zip(x, log_det, strict=True):
        jacobian = torch.autograd.functional.jacobian(lambda v: flattened(network, v[None])[0], row).view(16, 16)
        assert ours.item() == pytest.approx(torch.linalg.slogdet(jacobian)[1].item(), abs=1e-8)


def test_likelihood_of_pixels_is_density_times_the_volume_of_a_bin(network):
    x = torch.rand(3, *SHAPE, generator=generator(2), dtype=torch.float64)
    expected = network.log_prob(x - 0.5, None) - 16 * math.log(256)
    torch.testing.assert_close(glow.log_density(network, x), expected)


def test_latent_numbers_are_as_many_as_pixels(network):
    assert sum(q.loc.numel() for q in network.q0) == 16
