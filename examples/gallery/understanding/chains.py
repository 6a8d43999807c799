"""
Why chains jump
===============

Langevin steps are local. Between two modes lies a region of low density that no step of a sensible size crosses, so
chains stay on the side where they start. Independence proposals ("jumps"), draws of a rough density that are accepted
by the Metropolis rule, cross it and keep the distribution exact.
"""

import matplotlib.pyplot as plt
import torch

import pscd
from pscd.mixtures import Mixture


def energy(x):
    """Two modes, at -3 and 3, the right one with three quarters of the mass."""
    left, right = (x[:, 0] + 3).square() / 0.5, (x[:, 0] - 3).square() / 0.5
    return -torch.logsumexp(torch.stack([-left - 1.386, -right - 0.288]), 0)


start = -3 + 0.5 * torch.randn(4000, 1, generator=torch.Generator().manual_seed(0))  # all chains on the left
rough = Mixture(torch.ones(1), torch.zeros(1, 1), torch.full((1, 1, 1), 4.0))  # one broad Gaussian

share = {}
for name, proposal in {"without jumps": None, "with jumps": rough}.items():
    trace = []
    pscd.mala(
        energy,
        start,
        n_steps=60,
        step_size=0.2,
        proposal=proposal,
        generator=torch.Generator().manual_seed(1),
        callback=lambda at, trace=trace: trace.append(at["x"].clone()),
    )
    share[name] = torch.stack(trace)[..., 0]

# %%
# Without jumps no chain reaches the other mode; with them the shares are right after a few dozen steps.

figure, (left, right) = plt.subplots(1, 2)
for name, x in share.items():
    left.plot((x > 0).float().mean(1), label=name)
    right.hist(x[-1].numpy(), bins=80, range=(-5, 5), density=True, histtype="step", linewidth=1.5, label=name)
left.axhline(0.75, color="black", linestyle=":", label="exact")
left.set(xlabel="step", ylabel="share of chains on the right")
left.legend(loc="best")
line = torch.linspace(-5, 5, 400)[:, None]
density = torch.exp(-energy(line))
right.plot(line[:, 0], density / (density.sum() * 10 / 400), ":", color="black", label="exact")
right.set(xlabel="x", title="After 60 steps", yticks=[])
plt.show()
