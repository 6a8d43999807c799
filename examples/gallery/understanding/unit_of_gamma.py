"""
The unit of gamma
=================

The spread of energies grows with the number of columns. A gamma per nat that is mild in two columns gives almost all
rows no weight in thirty. Per *spread* of the energies, the same gamma has the same effect in every dimension.
"""

import matplotlib.pyplot as plt
import torch

import pscd
from pscd.losses import energy_spread


def effective_share(energies, gamma):
    """Effective share of the rows under the weights exp(-gamma E)."""
    return float(pscd.effective_sample_fraction(pscd.importance_weights(energies, gamma)))


rng = torch.Generator().manual_seed(0)
columns = [1, 2, 4, 8, 16, 32, 64]
energies = {d: torch.randn(100_000, d, generator=rng).square().sum(1) / 2 for d in columns}  # of a Gaussian

figure, (left, right) = plt.subplots(1, 2, sharey=True)
for gamma in (0.1, 0.3, 1.0):
    left.plot(columns, [effective_share(e, gamma) for e in energies.values()], "o-", label=f"gamma {gamma}")
    right.plot(columns, [effective_share(e, gamma / float(energy_spread(e))) for e in energies.values()], "o-")
left.set(title="gamma per nat", ylabel="effective share of the rows", xlabel="columns", xscale="log", ylim=(0, 1.02))
right.set(title="gamma per spread", xlabel="columns", xscale="log")
for axis in (left, right):
    axis.set_xticks(columns, columns)
    axis.minorticks_off()
left.legend(loc="best")
plt.show()

# %%
# The curves on the left are ((1 + 2 gamma) / (1 + gamma)^2)^(d / 2). See :doc:`/explanations/unit-of-gamma`.
