"""
In a scikit-learn pipeline
==========================

The detector is a scikit-learn estimator. Here it follows a PCA with ten components of pictures of digits, and is fitted
to eights, 10 % of which are other digits.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.ensemble import IsolationForest
from sklearn.metrics import RocCurveDisplay
from sklearn.neighbors import LocalOutlierFactor
from sklearn.pipeline import make_pipeline

from pscd import EnergyDetector

x, digit = load_digits(return_X_y=True)
eights, others = np.flatnonzero(digit == 8), np.flatnonzero(digit != 8)
rows = np.r_[eights, np.random.default_rng(0).choice(others, 20, replace=False)]
x, is_other = x[rows], digit[rows] != 8

detectors = {
    "pscd": EnergyDetector(),
    "isolation forest": IsolationForest(random_state=0),
    "local outlier factor": LocalOutlierFactor(novelty=True),
}

# %%
# All three are fitted to the same rows, outliers included, without labels. One small table does not show which is best;
# the page :doc:`/results/detection` compares thirteen methods on 29 tables.

figure, axis = plt.subplots(figsize=(5, 4.2))
for name, detector in detectors.items():
    pipeline = make_pipeline(PCA(10, random_state=0), detector).fit(x)
    RocCurveDisplay.from_predictions(is_other, -pipeline.score_samples(x), name=name, ax=axis)
axis.set(xlabel="share of eights above the threshold", ylabel="share of other digits detected")
plt.show()
