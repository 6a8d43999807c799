"""
Objectives side by side
=======================

When the model is too simple for the data, objectives differ in what they fit. One Gaussian is fitted to a mixture of a
narrow and a broad one by six objectives, with the same training loop.
"""

from dataclasses import replace

import matplotlib.pyplot as plt
import torch

import pscd
from pscd.data.toys import MIXTURE_1D

data = MIXTURE_1D.sample(20_000, torch.Generator().manual_seed(0))
objectives = {
    "CD": pscd.PseudoSpherical(gamma=0.0),
    "PS-CD, gamma 1": pscd.PseudoSpherical(gamma=1.0),
    "PS-CD, gamma -0.5": pscd.PseudoSpherical(gamma=-0.5),
    "density power, beta 1": pscd.DensityPower(beta=1.0),
    "trimmed, 20 %": pscd.Trimmed(alpha=0.2),
    "score matching": pscd.ScoreMatching(),
}
settings = pscd.TrainConfig(
    updates=250,
    batch_size=512,
    optimizer=pscd.OptimizerSettings(lr=0.03, ema=0.98),
    rows=pscd.RowSettings(standardise="none"),
)

x = torch.linspace(-4, 7, 400, dtype=torch.float64)[:, None]
figure, axis = plt.subplots(figsize=(8, 4))
axis.fill_between(x[:, 0], MIXTURE_1D.log_prob(x).exp(), alpha=0.2, color="grey", label="data")
for name, objective in objectives.items():
    config = replace(settings, objective=objective)
    energy = pscd.fit(data, config=config, energy=pscd.Quadratic(1.0, 1.8)).network
    mean, deviation = energy.mu.item(), energy.sigma.item()
    q = torch.distributions.Normal(mean, deviation).log_prob(x[:, 0]).exp()
    axis.plot(x[:, 0], q, label=f"{name}: {mean:.2f} ± {deviation:.2f}")
axis.set(xlabel="x", ylabel="density", ylim=(0, 0.6))
axis.legend(loc="best", fontsize="small")
plt.show()

# %%
# :doc:`/objectives` describes what each of them minimises, needs and costs; :doc:`/results/objectives-1d` compares the
# results of training with the exact optima.
