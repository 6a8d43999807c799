"""
Which cell is to blame
======================

A row can be strange by a single value, or by values that do not go together although each is ordinary. `explain` says
how much energy the row would lose if a column took the value that the other columns suggest.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine

import pscd

wine = load_wine(as_frame=True)
table = wine.data.iloc[:, :8].copy()
table.loc[20, "malic_acid"] *= 10  # a slip of the decimal point
table.loc[90, ["total_phenols", "flavanoids"]] = [3.5, 0.6]  # each has been seen, but never together

detector = pscd.EnergyDetector().fit(table)
strangest = np.argsort(detector.score_samples(table))[:8]
blame = detector.explain(table.iloc[strangest])

# %%
# One line for each of the strangest rows, the strangest at the top. A dark cell is a value that the rest of its row
# does not explain.

figure, axis = plt.subplots(figsize=(8, 4))
image = axis.imshow(np.clip(blame, 0, 15), cmap="Blues", aspect="auto")
axis.set_xticks(range(table.shape[1]), table.columns, rotation=30, ha="right")
axis.set_yticks(range(len(strangest)), [f"row {i}" for i in strangest])
axis.spines[:].set_visible(False)
for (i, j), nats in np.ndenumerate(blame):
    if nats > 3:
        value = table.iloc[strangest[i], j]
        axis.text(j, i, f"{value:g}", ha="center", va="center", color="white" if nats > 8 else "black")
figure.colorbar(image, label="energy due to the cell (nats)")
plt.show()
