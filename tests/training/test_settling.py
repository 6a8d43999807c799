from dataclasses import replace

import torch

from pscd.objectives import OBJECTIVES
from pscd.rng import Stream, generator
from pscd.sampling import Langevin, Mala
from pscd.sampling.proposals import Chains
from pscd.training.loop import fit
from pscd.training.settling import settled


def test_the_step_settles_without_chains_only_and_at_the_sampler_s_target(small):
    x = torch.randn(200, 2, generator=generator(0))
    model = fit(x, replace(small, steps=2, sampler=Mala(step_size=5.0)))
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
    config = replace(small, steps=2, objective=OBJECTIVES["dsm"], sampler=Mala(step_size=5.0), seed=4)
    model = fit(x, config)
    model.step_size = step = torch.tensor(50.0)
    rng = generator(4, Stream.SETTLE_STEP)
    z = model.proposal.sample(256, rng)
    for _ in range(300):
        z, stats = config.sampler.run(
            model.energy, z, step_size=step, n_steps=2, proposal=model.proposal, generator=rng
        )
        step = config.sampler.adapt(step, stats)
    assert settled(model).step_size == step


def test_nothing_settles_without_draws_to_start_from(small):
    x = torch.randn(200, 2, generator=generator(0))
    model = fit(x, replace(small, steps=2, objective=OBJECTIVES["dsm"]))
    model.proposal, model.step_size = Chains(x[:8]), torch.tensor(50.0)
    assert settled(model).step_size == 50.0
