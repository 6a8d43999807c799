"""
Two moons with 10 % outliers
============================

10 % of the rows are uniform outliers. The same network is trained twice: by contrastive divergence (CD), which has
to explain every row, and by pseudo-spherical contrastive divergence (PS-CD), where the weight of a row is proportional
to its density under the model.
"""

import matplotlib.pyplot as plt
import torch

import pscd

torch.manual_seed(0)
moon = pscd.load_dataset("moon", n=5000, seed=0)
dirty = pscd.contaminate(moon.train, 0.1, lambda n, rng: 12 * torch.rand(n, 2, generator=rng) - 6)

network = pscd.Architecture("mlp", width=64)
panels = {"data": dirty.x}
for name, gamma in {"CD": 0.0, "PS-CD": 1.0}.items():
    objective = pscd.PseudoSpherical(gamma=gamma, warmup=0)
    model = pscd.fit(
        dirty.x,
        config=pscd.TrainConfig(
            objective=objective, energy=network, updates=1200, optimizer=pscd.OptimizerSettings(lr=0.005)
        ),
    )
    panels[f"samples of {name}"] = model.sample(5000)

# %%
# CD has learnt the outliers far from the moons; PS-CD has hardly learnt any.

figure, axes = plt.subplots(1, 3, figsize=(9, 3.2), sharex=True, sharey=True)
for axis, (title, x) in zip(axes, panels.items(), strict=True):
    far = (x.abs() > 4).any(1)
    axis.plot(*x[~far].T, ".", markersize=1.5)
    axis.plot(*x[far].T, ".", markersize=3)
    axis.set(title=f"{title}: {far.float().mean():.1%} far out", xlim=(-6, 6), ylim=(-6, 6), aspect="equal")
plt.show()
