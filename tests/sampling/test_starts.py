import pytest
import torch

from pscd.errors import UserError
from pscd.mixtures import Mixture
from pscd.rng import generator
from pscd.sampling import Chains, ReplayBuffer
from pscd.sampling.starts import STARTS, BoxStart, GaussianStart, MixtureStart

CPU = torch.device("cpu")


def test_chains_start_at_draws_of_the_mixture_and_go_anywhere():
    mixture = Mixture.standard(3)
    start = MixtureStart(mixture)
    assert torch.equal(start.draw(50, generator(0)), mixture.sample(50, generator(0)))
    x = torch.full((2, 3), 1e6)
    assert torch.equal(start.confine(x), x)
    assert not start.in_bytes
    buffer = ReplayBuffer(10, start.draw, generator=generator(1))
    assert torch.equal(buffer.x, mixture.sample(10, generator(1)))
    assert start.of_model(mixture, buffer) is mixture


def test_a_gaussian_start_is_twice_as_wide_as_the_data():
    z = torch.randn(300, 2, generator=generator(0)) * torch.tensor([1.0, 5.0]) + torch.tensor([3.0, -8.0])
    start = STARTS["gaussian"].fit(z, CPU)
    assert isinstance(start, GaussianStart)
    torch.testing.assert_close(start.centre, z.mean(0))
    torch.testing.assert_close(start.spread, z.std(0, correction=0), rtol=2e-3, atol=0)
    noise = torch.randn(7, 2, generator=generator(1))
    torch.testing.assert_close(start.draw(7, generator(1)), start.centre + 2 * start.spread * noise)
    assert (start.centre.dtype, start.spread.dtype) == (torch.float32, torch.float32)
    far = torch.full((2, 2), 1e6)
    assert torch.equal(start.confine(far), far)
    proposal = start.proposal(z, components=3, seed=0)
    assert len(proposal.weights) == 3 + 1  # and a broad one
    assert start.of_model(proposal, None) is proposal
    assert not start.in_bytes
    assert start.proposal(z, components=3, seed=0).means.tolist() == proposal.means.tolist()


def test_a_box_start_is_even_and_keeps_chains_and_data_inside():
    start = STARTS["box"].fit(torch.tensor([[0.0, 1.0]]), CPU)  # the ends belong to the box
    assert isinstance(start, BoxStart)
    assert torch.equal(start.draw(5, generator(0)), torch.rand(5, 2, generator=generator(0)))
    assert start.confine(torch.tensor([-0.5, 0.25, 1.5])).tolist() == [0.0, 0.25, 1.0]
    assert start.in_bytes
    for outside in (-1e-3, 1 + 1e-3):
        with pytest.raises(UserError, match=r"need data in \[0, 1\]"):
            BoxStart.fit(torch.tensor([[0.5, outside]]), CPU)
    empty = start.proposal(torch.zeros(3, 2), components=9, seed=0)
    assert (empty.points.shape, empty.points.dtype) == ((0, 2), torch.uint8)
    buffer = ReplayBuffer(6, start.draw, draw_label=lambda n, g: torch.arange(n), uint8=True, generator=generator(2))
    stored = start.of_model(empty, buffer)
    assert torch.equal(stored.points, buffer.x)
    assert stored.label.tolist() == [0, 1, 2, 3, 4, 5]
    buffer.x.zero_()
    assert stored.points.any()  # a copy: the training may go on


def test_chains_are_chosen_without_repeats_as_long_as_there_are_enough():
    points = (torch.arange(10)[:, None] * torch.ones(1, 3)).to(torch.uint8)
    chains = Chains(points, torch.arange(10) % 2)
    assert sorted(chains.choose(10, generator(0)).tolist()) == list(range(10))
    twice = chains.choose(25, generator(0))
    counts = torch.bincount(twice, minlength=10)
    assert len(twice) == 25
    assert set(counts.tolist()) == {2, 3}
    odd = chains.choose(5, generator(1), label=1)
    assert sorted(odd.tolist()) == [1, 3, 5, 7, 9]
    assert chains.choose(6, generator(1)).tolist() != chains.choose(6, generator(2)).tolist()
    torch.testing.assert_close(chains.at(torch.tensor([4, 0])), torch.tensor([[4 / 255] * 3, [0.0] * 3]))
    assert torch.equal(chains.sample(3, generator(3)), chains.at(chains.choose(3, generator(3))))
    with pytest.raises(UserError, match="no chain of the model has the label 7"):
        chains.choose(1, label=7)
    with pytest.raises(UserError, match="no density to draw jumps from"):
        chains.log_prob(points)
    assert (Chains(points).label.tolist(), Chains(points).label.dtype) == ([0] * 10, torch.long)
    assert chains.tensors().keys() == {"points", "label"}
