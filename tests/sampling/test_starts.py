import torch

from pscd.mixtures import Mixture
from pscd.rng import generator
from pscd.sampling import ReplayBuffer
from pscd.sampling.starts import MixtureStart


def test_chains_start_at_draws_of_the_mixture_and_go_anywhere():
    mixture = Mixture.standard(3)
    start = MixtureStart(mixture)
    assert torch.equal(start.draw(50, generator(0)), mixture.sample(50, generator(0)))
    x = torch.full((2, 3), 1e6)
    assert torch.equal(start.confine(x), x)
    assert not start.in_bytes
    buffer = ReplayBuffer(10, start.draw, generator=generator(1))
    assert torch.equal(buffer.x, mixture.sample(10, generator(1)))
    assert start.kept(mixture, buffer) is mixture
