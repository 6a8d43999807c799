"""The methods to be measured against, with their libraries' defaults unless the comment says why not."""

import logging

import numpy as np
import pandas as pd

from studies.cells.cellmcd import fast_cellmcd
from studies.cells.corruptions import number_columns
from studies.cells.measures import DRAWS, centre
from studies.cells.methods import Filled, Found, Method, Numbers

SIMPLE = "one column at a time"
CHI2 = 0.99  # quantile beyond which DDC and CellMCD flag a cell


# --- wrong cells ---


def one_column(frame: pd.DataFrame, seed: int) -> Found:
    """|x - median| / MAD, and for a category the normal deviate that is as rare; suggests median and commonest."""
    from scipy.stats import norm

    scores = np.zeros(frame.shape)
    suggested = {}
    for j, name in enumerate(frame.columns):
        column = frame[name]
        if j in number_columns(frame):
            distance = (column - column.median()).abs()
            # More than half of a column may be one value; the deviation is then all there is.
            scale = 1.4826 * distance.median() or column.std() or 1.0
            scores[:, j] = distance / scale
            suggested[name] = column.median()
        else:
            share = column.map(column.value_counts(normalize=True)).to_numpy(np.float64)
            scores[:, j] = norm.isf(share / 2)
            suggested[name] = column.mode()[0]
    table = pd.DataFrame({name: [value] * len(frame) for name, value in suggested.items()}, index=frame.index)
    return Found(scores, table.astype(frame.dtypes.to_dict()), scores > threshold())


def threshold() -> float:
    """Of a standardised residual."""
    from scipy.stats import chi2

    return float(np.sqrt(chi2.ppf(CHI2, 1)))


def _where_it_can(frame: pd.DataFrame, columns: list[int], residuals: np.ndarray, expected: np.ndarray) -> Found:
    """Residuals and expectations for these columns, and for all others what one column alone says.

    Both are standardised residuals, so they rank together.
    """
    found = one_column(frame, 0)
    found.scores[:, columns] = np.abs(residuals)
    suggested = found.suggested.copy()
    for at, j in enumerate(columns):
        suggested[frame.columns[j]] = expected[:, at]
    return Found(found.scores, suggested, found.scores > threshold())


def _cleaned(frame: pd.DataFrame) -> list[int]:
    """Columns that robpy's own cleaner keeps: of numbers, with more than three values and a spread."""
    from robpy.preprocessing import DataCleaner

    numbers = frame.iloc[:, number_columns(frame)]
    kept = set(DataCleaner().fit_transform(numbers).columns)
    return [j for j in number_columns(frame) if frame.columns[j] in kept]


def _ddc(frame: pd.DataFrame, seed: int) -> Found:
    from robpy.outliers import DDC

    columns = _cleaned(frame)
    fitted = DDC().fit(frame.iloc[:, columns])
    return _where_it_can(frame, columns, fitted.standardized_residuals_, np.asarray(fitted.rescaled_predictions_))


def _cellmcd(frame: pd.DataFrame, seed: int) -> Found:
    columns = _unspoiled(frame, _cleaned(frame))
    if len(columns) < 2:
        raise ValueError("fewer than two columns have under 25 % of missing cells and marginal outliers")
    fitted = fast_cellmcd(verbosity=logging.ERROR)
    fitted.calculate_covariance(frame.iloc[:, columns].to_numpy(np.float64))
    return _where_it_can(frame, columns, fitted.residuals, fitted.predictions)


def _unspoiled(frame: pd.DataFrame, columns: list[int]) -> list[int]:
    """Columns that CellMCD does not refuse: it stops where a quarter is missing or far out, by its own scaling."""
    from robpy.preprocessing.scaling import RobustScaler
    from robpy.univariate.onestep_m import OneStepWrapping

    x = frame.iloc[:, columns].to_numpy(np.float64)
    scaler = RobustScaler(scale_estimator=OneStepWrapping())
    scaler.fit(x, ignore_nan=True)
    bad = ~(np.abs(scaler.transform(x)) <= threshold())
    return [j for j, share in zip(columns, bad.mean(0), strict=True) if share <= 0.25]


# --- isotree: cells, missing values and rows ---


def _forest(frame: pd.DataFrame, seed: int, **settings: object) -> tuple[object, pd.DataFrame]:
    from isotree import IsolationForest

    categories = frame.copy()
    for j, name in enumerate(frame.columns):
        if j not in number_columns(frame):
            categories[name] = frame[name].astype("object").astype("category")
    forest = IsolationForest(nthreads=1, random_seed=seed + 1, **settings)
    return forest.fit(categories), categories


def _isotree_cells(frame: pd.DataFrame, seed: int) -> Found:
    """What the row's score loses when the cell is taken for missing; the forest then imputes it."""
    forest, categories = _forest(frame, seed, build_imputer=True, missing_action="impute")
    whole = forest.predict(categories)
    scores = np.zeros(frame.shape)
    suggested = frame.copy()
    for j, name in enumerate(frame.columns):
        without = categories.copy()
        without[name] = pd.Series(np.nan, index=frame.index, dtype=categories[name].dtype)
        scores[:, j] = whole - forest.predict(without)
        suggested[name] = pd.Series(forest.transform(without)[name].to_numpy(), frame.index).astype(frame[name].dtype)
    return Found(scores, suggested)


def _isotree_fill(frame: pd.DataFrame, seed: int) -> Filled:
    forest, categories = _forest(frame, seed, build_imputer=True, missing_action="impute")
    filled = forest.transform(categories)
    restored = {name: pd.Series(filled[name].to_numpy(), frame.index).astype(frame[name].dtype) for name in frame}
    return Filled(pd.DataFrame(restored))


def _isotree_rank(frame: pd.DataFrame, seed: int) -> np.ndarray:
    forest, categories = _forest(frame, seed)
    return np.asarray(forest.predict(categories))


# --- missing values ---


def _mean_fill(frame: pd.DataFrame, seed: int) -> Filled:
    centres = {
        name: frame[name].mean() if j in number_columns(frame) else frame[name].mode()[0]
        for j, name in enumerate(frame.columns)
    }
    return Filled(frame.fillna(centres))


def _knn_fill(frame: pd.DataFrame, seed: int) -> Filled:
    from sklearn.impute import KNNImputer

    numbers = Numbers(frame)
    return Filled(numbers.fill(KNNImputer().fit_transform(numbers.encode())))


def _iterative_fill(frame: pd.DataFrame, seed: int) -> Filled:
    """The conditional means for the best guess; draws of the posterior for the intervals."""
    numbers = Numbers(frame)
    x = numbers.encode()
    best = numbers.fill(_iterative(seed).fit_transform(x))
    sampler = _iterative(seed, sample_posterior=True).fit(x)
    # Each call draws anew through the whole chain of regressions.
    return Filled(best, [numbers.fill(sampler.transform(x)) for _ in range(DRAWS)])


def _iterative(seed: int, **settings: object) -> object:
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer

    return IterativeImputer(random_state=seed, **settings)


def _miceforest_fill(frame: pd.DataFrame, seed: int) -> Filled:
    """Three data sets of two iterations: a fit takes a second, and there is one for each column of each."""
    import miceforest

    renamed = frame.copy()
    for j, name in enumerate(frame.columns):
        if j not in number_columns(frame):
            renamed[name] = frame[name].astype("object").astype("category")
    kernel = miceforest.ImputationKernel(renamed, num_datasets=3, random_state=seed)
    kernel.mice(2, num_threads=1)
    draws = [kernel.complete_data(k) for k in range(3)]
    best = centre([draw.astype(frame.dtypes.to_dict()) for draw in draws])
    return Filled(frame.where(frame.notna(), best))


# --- strange rows with missing cells ---


def _forest_after_mean(frame: pd.DataFrame, seed: int) -> np.ndarray:
    return _isolation_forest(Numbers(_mean_fill(frame, seed).best).encode(), seed)


def _forest_after_iterative(frame: pd.DataFrame, seed: int) -> np.ndarray:
    return _isolation_forest(_iterative(seed).fit_transform(Numbers(frame).encode()), seed)


def _isolation_forest(x: np.ndarray, seed: int) -> np.ndarray:
    from sklearn.ensemble import IsolationForest

    return -IsolationForest(random_state=seed, n_jobs=1).fit(x).score_samples(x)


FOREST_MEAN = "isolation forest, mean filled in"
RIVALS: dict[str, Method] = {
    SIMPLE: Method(find=one_column, fill=_mean_fill),
    "DDC": Method(find=_ddc, libraries=("robpy",)),
    "CellMCD": Method(find=_cellmcd, libraries=("robpy",), modules=("studies.cells.cellmcd",)),
    "isotree": Method(find=_isotree_cells, fill=_isotree_fill, rank=_isotree_rank, libraries=("isotree",)),
    "KNNImputer": Method(fill=_knn_fill),
    "IterativeImputer": Method(fill=_iterative_fill),
    "miceforest": Method(fill=_miceforest_fill, libraries=("miceforest", "lightgbm"), seeds=1),
    FOREST_MEAN: Method(rank=_forest_after_mean),
    "isolation forest, IterativeImputer": Method(rank=_forest_after_iterative),
}
