"""
Why the initial model matters
=============================

A model without restrictions has one optimum: the density of all data, contamination included. The gamma-score is
strictly proper, and no gamma changes that. Gamma changes how fast each region is learnt: at the rate q^gamma. A model
that has no mass at the contamination learns it slowly; a model that has learnt it does not lose it.
"""

import matplotlib.pyplot as plt
import torch

from studies.paper.path import BORDER, CLEAN, DIRTY, STARTS, flow, line

x, cell = line(800)
log_p = DIRTY.log_prob(x[:, None])
times = torch.logspace(-1, 2, 40, dtype=torch.float64)

figure, axes = plt.subplots(1, 2, figsize=(9, 3.6))
for start, style in zip(STARTS, ("-", "--", ":"), strict=True):
    for gamma, colour in zip((0.0, 1.0), ("#0072B2", "#D55E00"), strict=True):
        path = flow(STARTS[start].log_prob(x[:, None]), log_p, gamma, cell, times, step=0.02)
        held = [float(q[x > BORDER].sum() * cell) for q in path]
        axes[0].plot(times, held, style, color=colour, label=f"{start}, gamma {gamma:g}")
        if start == "robust" and gamma == 1:
            axes[1].plot(x, path[26], color=colour, label=f"learnt by time {times[26]:.0f}")
axes[0].set(xscale="log", xlabel="time", ylabel="share of contamination in the model", title="How fast it is learnt")
axes[0].legend(loc="best", fontsize="x-small")
axes[1].fill_between(x, log_p.exp(), alpha=0.25, color="grey", label="data")
axes[1].plot(x, CLEAN.log_prob(x[:, None]).exp(), ":", color="black", label="clean")
axes[1].set(xlim=(-4, 7), xlabel="x", title="From a robust start, gamma 1")
axes[1].legend(loc="best", fontsize="small")
plt.show()

# %%
# The experiment :doc:`/results/path` has the numbers; :doc:`/explanations/robust` explains the consequences.
