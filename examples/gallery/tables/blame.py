"""
Which cells make a row an outlier
=================================

A row can be an outlier by a single value, or by a combination of values that are ordinary by themselves. ``explain``
returns the cost of each cell, given the other cells of its row that are consistent.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine

import pscd

wine = load_wine(as_frame=True)
table = wine.data.iloc[:, :8].copy()
table.loc[20, "malic_acid"] *= 10  # a misplaced decimal point
table.loc[90, ["total_phenols", "flavanoids"]] = [3.5, 0.6]  # ordinary by themselves, but not together

detector = pscd.EnergyDetector().fit(table)
outliers = np.argsort(detector.score_samples(table))[:8]
blame = detector.explain(table.iloc[outliers]).to_numpy()

# %%
# One line for each of the rows with the highest energies, the highest at the top. A dark cell has a value that is
# unlikely given the rest of its row.

figure, axis = plt.subplots(figsize=(8, 4))
image = axis.imshow(np.clip(blame, 0, 15), cmap="Blues", aspect="auto")
axis.set_xticks(range(table.shape[1]), table.columns, rotation=30, ha="right")
axis.set_yticks(range(len(outliers)), [f"row {i}" for i in outliers])
axis.spines[:].set_visible(False)
for (i, j), nats in np.ndenumerate(blame):
    if nats > 3:
        value = table.iloc[outliers[i], j]
        axis.text(j, i, f"{value:g}", ha="center", va="center", color="white" if nats > 8 else "black")
figure.colorbar(image, label="cost of the cell (nats)")
plt.show()
