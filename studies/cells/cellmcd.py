"""robpy's CellMCD with its two inner loops over patterns of flagged cells as one batch of linear systems.

The released 0.0.5 stops with an error under numpy 2.4 and takes minutes for 1,000 rows and 20 columns. The steps, and
up to rounding the results, are those of the released code, which a test compares.
"""

from typing import Any

import numpy as np


def fast_cellmcd(**settings: Any) -> Any:
    """An unfitted CellMCD; `calculate_covariance(x)` fits it."""
    from robpy.covariance import CellMCD

    class FastCellMCD(CellMCD):
        def _calculate_delta(self, X, W, sigma, sigma_inv, mu, j):  # noqa: N803
            expected, variance = given_others(X, W, sigma, mu, j)
            delta = (X[:, j] - expected) ** 2 / variance + np.log(variance) + np.log(2 * np.pi)
            return np.where(np.isfinite(X[:, j]), delta, np.inf)

        def _make_predictions(self, X, sigma, sigma_inv, mu, W):  # noqa: N803
            parts = [given_others(X, W, sigma, mu, j) for j in range(X.shape[1])]
            return np.stack([p[0] for p in parts], 1), np.stack([p[1] for p in parts], 1)

    return FastCellMCD(**settings)


def given_others(
    x: np.ndarray, trusted: np.ndarray, covariance: np.ndarray, mean: np.ndarray, j: int
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of column j in each row of a Gaussian, given the row's other cells that are trusted."""
    seen = trusted.astype(bool)
    seen[:, j] = False
    # Cells that are not seen get a row and a column of the identity: they solve for nothing.
    system = np.where(seen[:, :, None] & seen[:, None, :], covariance, np.eye(len(mean)))
    towards = np.where(seen, covariance[j], 0.0)
    weights = np.linalg.solve(system, towards[:, :, None])[:, :, 0]
    expected = mean[j] + (weights * np.where(seen, x - mean, 0.0)).sum(1)
    return expected, covariance[j, j] - (weights * towards).sum(1)
