"""
How large a gamma
=================

Gamma determines the weight of rows that are unlikely under the model. If it is too small, outliers have weight; if it
is too large, the fit depends on few rows. A trained Gaussian shows both.
"""

from dataclasses import replace

import matplotlib.pyplot as plt
import torch

import pscd

clean = torch.randn(4000, 1, generator=torch.Generator().manual_seed(0))
dirty = pscd.contaminate(clean, 0.1, lambda n, rng: 4 + 0.5 * torch.randn(n, 1, generator=rng)).x

gammas = (0.0, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0)
fits, effective = [], []
for gamma in gammas:
    objective = pscd.PseudoSpherical(gamma=gamma, warmup=0)
    settings = pscd.TrainConfig(
        updates=250,
        batch_size=512,
        optimizer=pscd.OptimizerSettings(lr=0.03, ema=0.98),
        rows=pscd.RowSettings(standardise="none"),
    )
    model = pscd.fit(dirty, config=replace(settings, objective=objective), energy=pscd.Quadratic(0.0, 1.5))
    fits.append((float(model.network.mu), float(model.network.sigma)))
    weights = pscd.importance_weights(model.energy(dirty), gamma)
    effective.append(float(pscd.effective_sample_fraction(weights)))

# %%
# From about 0.5 on the outliers have no weight, and a larger gamma only reduces the effective share of the rows.

figure, (left, right) = plt.subplots(1, 2, sharex=True)
mean, deviation = zip(*fits, strict=True)
left.plot(gammas, mean, "o-", label="mean (clean: 0)")
left.plot(gammas, deviation, "s-", label="deviation (clean: 1)")
left.set(xlabel="gamma", title="Fitted parameters")
left.legend(loc="best")
right.plot(gammas, effective, "o-", color="#009E73")
right.set(xlabel="gamma", ylim=(0, 1.02), title="Effective share of the rows")
plt.show()
