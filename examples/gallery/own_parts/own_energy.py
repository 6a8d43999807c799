"""
An energy of your own
=====================

Any module that maps ``(B, d)`` to ``(B,)`` can be the energy, so it can use knowledge about the data. Here the
columns are angles: the input of the network is their sines and cosines, so it is periodic by construction.
"""

import math

import matplotlib.pyplot as plt
import torch
from torch import nn

import pscd


class OnATorus(nn.Module):
    """An energy of two angles."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(4, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map `(B, 2)` to `(B,)`."""
        return self.layers(torch.cat([x.sin(), x.cos()], 1)).squeeze(1)


rng = torch.Generator().manual_seed(0)
first = math.pi * (2 * torch.rand(4000, generator=rng) - 1)
second = (2 * first + 0.4 * torch.randn(4000, generator=rng) + math.pi) % (2 * math.pi) - math.pi
angles = torch.stack([first, second], 1)

config = pscd.TrainConfig(
    objective=pscd.PseudoSpherical(gamma=0.3),
    sampler=pscd.Mala(low=-math.pi, high=math.pi),  # chains stay in one period
    updates=600,
    rows=pscd.RowSettings(standardise="none"),  # angles stay angles
)
torch.manual_seed(0)
model = pscd.fit(angles, config=config, energy=OnATorus())

# %%
# The energy continues across the border, although chains never crossed it.

side = torch.linspace(-2 * math.pi, 2 * math.pi, 200)
energy = model.energy(torch.cartesian_prod(side, side)).view(200, 200)
figure, axes = plt.subplots(1, 2, figsize=(8.5, 4), sharex=True, sharey=True)
axes[0].plot(*angles.T, ".", markersize=1.5)
axes[0].set(title="data", aspect="equal", xlabel="first angle", ylabel="second angle")
axes[1].imshow(energy.T, origin="lower", extent=(-2 * math.pi, 2 * math.pi) * 2, cmap="viridis_r")
for axis in axes:
    axis.add_patch(plt.Rectangle((-math.pi, -math.pi), 2 * math.pi, 2 * math.pi, fill=False, linestyle=":"))
axes[1].set(title="energy, two periods each way", xlabel="first angle")
plt.show()
