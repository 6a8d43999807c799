import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from pscd.objectives import PseudoSpherical
from studies.engine import Run
from studies.paper import Choice
from studies.paper.comparison import differences, gradient_agreement

DIGITS = Choice(data="digits", features="pixels", n=60)


def test_differences_tell_units_apart():
    runs = [
        Run(
            {"gamma": g, "seed": s, "config": replace(DIGITS, unit=unit).config(g, s, quick=True).to_dict()}, {"fid": f}
        )
        for g, s, unit, f in (
            (0.0, 0, "nats", 8.0),
            (0.0, 1, "nats", 10.0),
            (1.0, 0, "nats", 9.0),
            (1.0, 1, "nats", 11.0),
            (1.0, 0, "spread", 6.0),
            (1.0, 1, "spread", 8.0),
        )
    ]
    lines = differences(runs).splitlines()
    assert [line.split("|")[1:3] for line in lines[2:]] == [
        [" CD ", "  "],
        [" gamma 1 per nat ", " 1.0 +- 0.0 "],
        [" gamma 1 per spread ", " -2.0 +- 0.0 "],
    ]


def test_differences_from_cd_are_of_the_same_seed():
    """10 and 14 less 8 and 10 are 2 and 4: 3 +- 12.7 sqrt(2) / sqrt(2), Student's t of one degree of freedom."""
    config = DIGITS.config(0.0, 0, quick=True).to_dict()
    runs = [
        Run({"gamma": g, "seed": s, "config": config}, {"fid": fid, "spread": 0.25, "ess_pos": 0.5})
        for g, s, fid in ((0.0, 0, 8.0), (0.0, 1, 10.0), (1.0, 1, 14.0), (1.0, 0, 10.0), (2.0, 0, 9.0), (2.0, 1, None))
    ]
    lines = differences(runs).splitlines()
    assert "| gamma 1 | 3.0 +- 12.7 | 0.0002 | 0.25 | 0.5 |  |  |  |" in lines
    assert "| gamma 2 |  | 0.0002 | 0.25 | 0.5 |  |  |  |" in lines  # one seed is no interval
    assert differences([c for c in runs if c.settings["seed"] == 0]) == ""


class Linear(nn.Module):
    """E(x) = x_0 log 2: weights exp(-E) halve where the first pixel is white."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.tensor([math.log(2), 0.0]))

    def forward(self, x):
        return x.flatten(1) @ self.w


def test_gradients_agree_as_worked_out_by_hand():
    """The gradient is the mean of the data less that of the samples, both weighted by exp(-gamma E) unless it is CD.

    First batch: CD (1/2, 1/2), gamma 1 (1/3, 2/3), a cosine of 3 / sqrt(10). Second: (1, -1) for both. The two
    of CD are at a right angle.

    Adam divides CD's two gradients by sqrt(5/8), the root of their mean square. The first then changes the energies
    of all real images alike, the second by -s, s, -s and -s with s = lr sqrt(8/5): a deviation of s; that of the
    energies, log 2 times 1, 0, 1 and 1, is log(2) / 2.
    """
    real = torch.tensor([[1, 0], [0, 1], [1, 0], [1, 0]], dtype=torch.uint8).view(4, 1, 1, 2) * 255
    fake = torch.tensor([[0, 0], [0, 0], [0, 1], [0, 1]], dtype=torch.uint8).view(4, 1, 1, 2) * 255
    objective = PseudoSpherical(gamma=1.0, warmup=0.0)
    found = gradient_agreement(Linear(), objective, real, fake, batch_size=2, lr=0.1)
    assert found["cosine_to_cd"] == pytest.approx((3 / math.sqrt(10) + 1) / 2, abs=1e-6)
    assert found["cosine_of_batches"] == pytest.approx(0, abs=1e-6)
    same = gradient_agreement(Linear(), replace(objective, gamma=0.0), real, fake, batch_size=2, lr=0.1, n_batches=2)
    assert same["cosine_to_cd"] == pytest.approx(1, abs=1e-6)
    step = (0 + 0.1 * math.sqrt(8 / 5)) / 2
    assert same["energy_step"] == pytest.approx(step / (math.log(2) / 2), rel=1e-5)


def test_weights_may_lie_in_memory_as_they_like():
    """Those of convolutions in channels-last order are no view of a vector."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 4, 2), nn.Flatten(), nn.Linear(16, 1), nn.Flatten(0))
    real, fake = (torch.randint(256, (8, 3, 3, 3), dtype=torch.uint8) for _ in range(2))
    objective = PseudoSpherical(gamma=1.0, warmup=0.0)
    plain, last = (
        gradient_agreement(network.to(memory_format=order), objective, real, fake, batch_size=4, lr=0.01)
        for order in (torch.contiguous_format, torch.channels_last)
    )
    assert plain == pytest.approx(last, rel=1e-4)
