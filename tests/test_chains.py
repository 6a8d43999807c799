from dataclasses import dataclass

import torch

from pscd.chains import run_chains
from pscd.config import TrainConfig
from pscd.rng import generator
from pscd.sampling import Langevin


def test_the_one_place_where_the_sampler_of_a_configuration_meets_an_energy():
    asked = []

    @dataclass(frozen=True)
    class Spy(Langevin):
        name: str = ""

        def run(self, energy, x, **settings):
            asked.append((self.name, energy, settings))
            return x, {}

    config = TrainConfig(sampler=Spy(n_steps=7, name="of the run"))
    energy, x, step = torch.nn.Identity(), torch.zeros(2, 2), torch.tensor(0.5)
    run_chains(energy, x, config, step_size=step)
    rng = generator(0)
    run_chains(energy, x, config, step_size=step, n_steps=3, sampler=Spy(n_steps=9, name="another"), proposal="p",
               generator=rng, callback=print, seen_as=lambda e: ("seen", e))  # fmt: skip
    run_chains(energy, x, config, step_size=step, sampler=Spy(n_steps=9))
    assert asked[0] == ("of the run", energy, {"step_size": step, "n_steps": 7, "proposal": None, "generator": None,
                                               "callback": None})  # fmt: skip
    assert asked[1] == ("another", ("seen", energy), {"step_size": step, "n_steps": 3, "proposal": "p",
                                                      "generator": rng, "callback": print})  # fmt: skip
    assert asked[2][2]["n_steps"] == 9
