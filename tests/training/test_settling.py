from dataclasses import replace

import torch

from pscd.objectives import OBJECTIVES
from pscd.rng import generator
from pscd.sampling import Langevin, Mala
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
