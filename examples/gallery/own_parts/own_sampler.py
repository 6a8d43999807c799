"""
A sampler of your own
=====================

A sampler is a frozen dataclass with a method ``run`` that moves points. This one is underdamped Langevin dynamics, from
the file that :doc:`/examples/own-parts` shows in full (``examples/own_parts.py``, which has to be on the
``PYTHONPATH``): points have a velocity, so they move further than by a random walk.
"""

import matplotlib.pyplot as plt
import torch
from own_parts import Underdamped

import pscd


def valley(x):
    """A long, narrow valley: variances of 25 and 0.04."""
    return x[:, 0].square() / 50 + x[:, 1].square() / 0.08


def walk(sampler):
    """The paths of four chains from the left end of the valley, every 20 steps."""
    x, path = torch.tensor([[-8.0, 0.0]]).repeat(4, 1), []
    generator = torch.Generator().manual_seed(0)
    for _ in range(100):
        x, _ = sampler.run(valley, x, step_size=torch.tensor(0.01), n_steps=20, generator=generator)
        path.append(x[:, 0])
    return torch.stack(path)


paths = {
    "Langevin with an accept step": walk(pscd.Mala(jump_every=0)),
    "underdamped": walk(Underdamped(friction=0.2)),
}

# %%
# Both take the same number of steps of the same size, and of gradients.

figure, axes = plt.subplots(1, 2, sharey=True)
for axis, (name, path) in zip(axes, paths.items(), strict=True):
    axis.plot(20 * torch.arange(len(path)), path, linewidth=1.2)
    axis.axhspan(-10, 10, color="grey", alpha=0.12, label="two deviations")
    axis.set(title=name, xlabel="step", ylim=(-16, 16))
axes[0].set(ylabel="position along the valley")
axes[0].legend(loc="best")
plt.show()

# %%
# In training it is passed as ``pscd.TrainConfig(sampler=Underdamped())``.
