"""
A log density in nats
=====================

Without any settings `pscd.fit` uses a recipe that is robust from the first update. The model has a normalising constant
with a known error, so `log_density` is a density and not only a score. The data are synthetic eruptions of a geyser
with 10 % wrong entries.
"""

import matplotlib.pyplot as plt
import numpy as np

import pscd

rng = np.random.default_rng(0)
long = rng.random(1500) < 0.65
lasting = np.where(long, rng.normal(4.3, 0.4, 1500), rng.normal(2.0, 0.25, 1500))
waiting = np.where(long, 80, 54) + 6 * (lasting - np.where(long, 4.3, 2.0)) + rng.normal(0, 5, 1500)
rows = np.c_[lasting, waiting]
rows[:150] = np.c_[rng.uniform(0, 7, 150), rng.uniform(20, 120, 150)]  # wrong entries

model = pscd.fit(rows, updates=400)  # the recipe, shorter
print("\n".join(model.notes))
print(f"log Z = {model.log_z().value:.3f} +- {model.log_z().error:.1e}")

# %%
# Crosses mark the wrong entries, to which the model assigns almost no density.

x, y = np.meshgrid(np.linspace(0, 7, 150), np.linspace(20, 120, 150))
log_p = model.log_density(np.c_[x.ravel(), y.ravel()]).reshape(x.shape)
cell = (7 / 149) * (100 / 149)
print(f"the density integrates to {float(log_p.exp().sum()) * cell:.3f}")

figure, axis = plt.subplots(figsize=(7, 4.5))
image = axis.contourf(x, y, log_p.clamp(min=-20), levels=20)
axis.plot(*rows[150:].T, ".", color="white", markersize=1.5, alpha=0.5)
axis.plot(*rows[:150].T, "x", color="#D55E00", markersize=5, label="wrong entries")
axis.set(xlabel="lasted (minutes)", ylabel="waited (minutes)", xlim=(0, 7), ylim=(20, 120))
figure.colorbar(image, label="log density (nats)")
axis.legend(loc="lower right", bbox_to_anchor=(1, 0.98))
plt.show()
