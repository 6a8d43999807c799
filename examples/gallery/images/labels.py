"""
One model for all labels
========================

A conditional energy E(x, y) has one output for each label. Chains of a label use only its output, so samples can
be drawn by label; the label with the lowest energy is a prediction of what a picture shows.
"""

import matplotlib.pyplot as plt
import torch

import pscd
from pscd.images.grids import grid

digits = pscd.load_dataset("digits", seed=0)
config = pscd.recipes.configs.RECIPES["digits"].changed({"updates": 700, "energy.width": 16, "energy.classes": 10})
model = pscd.fit(digits.train, config=config, label=digits.train_labels)

# %%
# Eight samples of each label, one row for a label.

rows = torch.cat([model.sample(8, label=label) for label in range(10)])
figure, axis = plt.subplots(figsize=(4, 5))
axis.imshow(grid(rows.float(), columns=8), cmap="gray")
axis.axis("off")
plt.show()
