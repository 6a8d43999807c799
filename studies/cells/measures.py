"""The numbers by which methods are judged: ranking of cells, error of values, and what intervals cover."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from studies.cells.corruptions import KINDS, Dirty, number_columns

TAILS = 0.01  # of a clean column, on each side, that are drawn in before errors are taken
COVERS = 0.9
DRAWS = 19  # truth lies between the least and the greatest of 19 such draws with probability 18 / 20


def ranking(scores: np.ndarray, dirty: Dirty) -> dict[str, Any]:
    """Average precision and AUROC of wrong cells among all present ones, and the AP of each kind of mistake alone.

    The other kinds' wrong cells are left out there. A score that is not a number ranks last.
    """
    from sklearn.metrics import average_precision_score, roc_auc_score

    present = dirty.frame.notna().to_numpy()
    usable = np.nan_to_num(np.asarray(scores, np.float64), nan=-np.inf, posinf=np.inf, neginf=-np.inf)
    # scikit-learn takes finite scores alone; ranks keep the order.
    ranked = np.unique(usable, return_inverse=True)[1].reshape(usable.shape)
    wrong = dirty.wrong
    result: dict[str, Any] = {
        "ap": float(average_precision_score(wrong[present], ranked[present])),
        "cell_auroc": float(roc_auc_score(wrong[present], ranked[present])),
    }
    for kind in KINDS:
        of_kind = dirty.kind == kind
        counted = present & (of_kind | ~wrong)
        if of_kind.any():
            result[f"ap {kind}"] = float(average_precision_score(of_kind[counted], ranked[counted]))
    return result


def value_errors(clean: pd.DataFrame, guess: pd.DataFrame, cells: np.ndarray) -> dict[str, float | None]:
    """Normalised RMSE over the cells of numbers among `cells`, and the share of categories that are right.

    Truth and guess are drawn in to the clean column's quantiles of 1 % and 99 %, and their difference is divided by
    the deviation of the column drawn in like this, so that neither a heavy tail nor a factor of 1000 decides for all:
    the column's mean scores about 1. A column that is constant between these quantiles is taken as it is.
    """
    squares, right = [], []
    numeric = number_columns(clean)
    for j, name in enumerate(clean.columns):
        rows = cells[:, j] & clean[name].notna().to_numpy()
        if not rows.any():
            continue
        truth, guessed = clean[name].to_numpy()[rows], guess[name].to_numpy()[rows]
        if j in numeric:
            low, high, deviation = _range(clean[name].dropna().to_numpy())
            guessed = guessed.astype(np.float64)
            if not np.isfinite(guessed).all():
                raise ValueError(f"{(~np.isfinite(guessed)).sum()} values of {name} are not finite numbers")
            squares.append(((truth.clip(low, high) - guessed.clip(low, high)) / deviation) ** 2)
        else:
            right.append(truth == guessed)
    return {
        "nrmse": float(np.sqrt(np.concatenate(squares).mean())) if squares else None,
        "right": float(np.concatenate(right).mean()) if right else None,
    }


def _range(values: np.ndarray) -> tuple[float, float, float]:
    low, high = np.quantile(values, [TAILS, 1 - TAILS])
    if low == high:
        low, high = values.min(), values.max()
    return float(low), float(high), float(values.clip(low, high).std())


def coverage(clean: pd.DataFrame, draws: Sequence[pd.DataFrame], cells: np.ndarray) -> float | None:
    """Share of the cells of numbers whose truth lies within 19 draws: .9 if draws and truth are of one distribution."""
    if len(draws) != DRAWS:
        raise ValueError(f"{len(draws)} draws; the least and the greatest of {DRAWS} make an interval of 90 %")
    inside = []
    for j in number_columns(clean):
        rows = cells[:, j] & clean.iloc[:, j].notna().to_numpy()
        truth = clean.iloc[:, j].to_numpy()[rows]
        drawn = np.stack([draw.iloc[:, j].to_numpy(np.float64)[rows] for draw in draws])
        inside.append((truth >= drawn.min(0)) & (truth <= drawn.max(0)))
    return float(np.concatenate(inside).mean()) if inside else None


def centre(draws: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """One completed table of several: the mean of numbers, the commonest category."""
    centred = draws[0].copy()
    for j, name in enumerate(centred.columns):
        drawn = pd.concat([draw.iloc[:, j] for draw in draws], axis=1)
        if j in number_columns(draws[0]):
            centred[name] = drawn.mean(axis=1)
        else:
            # Of equally common ones the first by name, whatever the order of the draws.
            codes, levels = pd.factorize(drawn.to_numpy().ravel(), sort=True)
            votes = np.zeros((len(centred), len(levels)))
            np.add.at(votes, (np.repeat(np.arange(len(centred)), len(draws)), codes), 1)
            centred[name] = pd.Series(levels[votes.argmax(1)], index=centred.index, dtype=centred[name].dtype)
    return centred
