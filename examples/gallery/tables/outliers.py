"""
The outliers of a table
=======================

Measurements of 357 benign tumours and 15 malignant ones, without labels. The detector is fitted to all of them, and
must not learn that the malignant ones are normal.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import roc_auc_score

import pscd

x, benign = load_breast_cancer(return_X_y=True)
rows = np.r_[np.flatnonzero(benign), np.flatnonzero(1 - benign)[:15]]
x, malignant = x[rows], benign[rows] == 0

detector = pscd.EnergyDetector(random_state=0).fit(x)
energy = -detector.score_samples(x)  # scikit-learn's sign is the other way round
print(f"estimated contamination: {detector.contamination_:.1%}")
print(f"AUROC of the energy: {roc_auc_score(malignant, energy):.2f}")

# %%
# The energies of benign rows form a bulk with a tail; most malignant ones lie in the tail or beyond it. The dotted line
# is the detector's threshold, which uses neither the labels nor the number of malignant rows.

bins = np.linspace(energy.min(), np.quantile(energy, 0.99), 40)
plt.hist(energy[~malignant].clip(max=bins[-1]), bins, label="benign")
plt.plot(energy[malignant].clip(max=bins[-1]), np.full(malignant.sum(), 1.5), "v", label="malignant")
plt.axvline(-detector.offset_, color="black", linestyle=":", label="threshold")
plt.gca().set(xlabel="energy (the last bin holds all beyond)", ylabel="rows", title="The higher, the more anomalous")
plt.legend(loc="best")
plt.show()
