from dataclasses import replace

import torch
from torch import nn

from pscd import losses
from pscd.coordinates import Coordinates
from pscd.model import Model
from pscd.objectives import OBJECTIVES
from pscd.rng import Stream, generator
from pscd.sampling import Langevin, Mala
from pscd.sampling.proposals import Chains
from pscd.training.finish import settled
from pscd.training.fit import fit
from studies.presets import PRESETS


def test_the_step_settles_without_chains_only_and_at_the_sampler_s_target(small):
    x = torch.randn(200, 2, generator=generator(0))
    model = fit(x, config=replace(small, updates=2, sampler=Mala(step_size=5.0)))
    without = replace(small, objective=OBJECTIVES["dsm"])
    for config, settles in [(small, False), (without, True), (replace(without, sampler=Langevin()), False)]:
        model.config, model.step_size = config, torch.tensor(50.0)
        assert settled(model) is model
        assert (model.step_size != 50.0) == settles
        if settles:  # after one round it would still be next to where it was
            assert 0.5 < model.step_size < 15


def test_the_step_is_that_of_three_hundred_rounds_of_two_steps(small):
    """With chains that start at draws of the proposal, and by the stream of random numbers that is theirs."""
    x = torch.randn(200, 2, generator=generator(0))
    config = replace(small, updates=2, objective=OBJECTIVES["dsm"], sampler=Mala(step_size=5.0), seed=4)
    model = fit(x, config=config)
    model.step_size = step = torch.tensor(50.0)
    rng = generator(4, Stream.SETTLE_STEP)
    z = model.proposal.sample(256, rng)
    for _ in range(300):
        z, stats = config.sampler.run(
            model.network, z, step_size=step, n_steps=2, proposal=model.proposal, generator=rng
        )
        step = config.sampler.adapt(step, stats)
    assert settled(model).step_size == step


def test_nothing_settles_without_draws_to_start_from(small):
    x = torch.randn(200, 2, generator=generator(0))
    model = fit(x, config=replace(small, updates=2, objective=OBJECTIVES["dsm"]))
    model.proposal, model.step_size = Chains(x[:8]), torch.tensor(50.0)
    assert settled(model).step_size == 50.0


class Brightness(nn.Module):
    """E(x) is the sum of the pixels; with a label, so many times five more unless they are black."""

    def forward(self, x, label=None):
        e = x.flatten(1).sum(1)
        return e if label is None else e + 5.0 * label * (e > 0)


def painted(bytes_, label=None, *, classes=0):
    """A model of single pixels whose chains have these bytes."""
    chains = Chains(torch.tensor(bytes_, dtype=torch.uint8).view(-1, 1, 1, 1), label)
    config = PRESETS["mnist"].changed({"energy.classes": classes})
    identity = Coordinates.identity((1, 1, 1))
    return Model(Brightness(), config, coordinates=identity, step_size=torch.tensor(1.0), proposal=chains)


def test_chains_far_above_the_others_are_left_behind():
    """The energies are 0 to 39 and 150, 158, 160, over 255, in an order of their own."""
    order = torch.randperm(43, generator=generator(0))
    bytes_ = torch.tensor([*range(40), 150, 158, 160])[order]
    e = bytes_ / 255
    limit = float(e.median() + 6 * losses.energy_spread(e))
    assert 158 / 255 < limit < 160 / 255  # so that the test says where the limit is
    model = painted(bytes_.tolist())
    assert settled(model) is model
    assert model.proposal.points.flatten().tolist() == bytes_[bytes_ <= 158].tolist()


def test_more_chains_than_a_block_holds():
    model = painted([*range(30)] * 40 + [255])
    assert len(settled(model).proposal.points) == 1200


def test_chains_are_judged_by_their_labels_and_every_label_keeps_some():
    """With label 1 the grey chain has strayed and the black one has not; with label 2 both have, and both stay."""
    bytes_, label = [*range(30), 255, 0, 10, 20, 30], torch.tensor([0] * 30 + [0, 1, 1, 2, 2])
    model = settled(painted(bytes_, label, classes=3))
    assert model.proposal.label.tolist() == [0] * 30 + [1, 2, 2]
    assert model.proposal.points.flatten().tolist() == [*range(30), 0, 20, 30]
    # To a model without labels they are pixels like others.
    assert len(settled(painted(bytes_, label)).proposal.points) == 34


def test_no_chains_are_none():
    assert len(settled(painted([])).proposal.points) == 0
