"""
Digits, and the outliers among them
===================================

A convolutional energy learns pictures of 8 x 8 pixels. It draws new ones, and ranks the training pictures by energy.
"""

import matplotlib.pyplot as plt
import torch

import pscd
from pscd.data import to_unit
from pscd.images.grids import grid

digits = pscd.load_dataset("digits", seed=0)
config = pscd.recipes.configs.RECIPES["digits"].changed({"updates": 700, "energy.width": 16})
model = pscd.fit(digits.train, config=config)

energy = model.energy(digits.train)
order = torch.argsort(energy)
panels = {
    "samples": model.sample(40),
    "lowest energies": to_unit(digits.train[order[:40]]),
    "highest energies": to_unit(digits.train[order[-40:]]),
}

# %%
# 700 updates on one core. ``pscd train`` with the full recipe trains for longer.

figure, axes = plt.subplots(1, 3, figsize=(9, 4))
for axis, (title, x) in zip(axes, panels.items(), strict=True):
    axis.imshow(grid(x.float(), columns=5), cmap="gray")
    axis.set(title=title)
    axis.axis("off")
plt.show()
