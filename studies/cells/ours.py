"""Our method, through the doors that its users have."""

from typing import Any

import numpy as np
import pandas as pd
import torch

from pscd.detector.cells import confidence_of
from studies.cells.measures import DRAWS
from studies.cells.methods import Filled, Found, Method
from studies.cells.rivals import CHI2

NAME = "EnergyDetector"
# Where the numbers live that its defaults are made of; they are no parameters, so a change must be seen here.
MODULES = (
    "pscd.coordinates",
    "pscd.detector.cells",
    "pscd.detector.cell_model",
    "pscd.detector.estimator",
    "pscd.detector.gaussian",
    "pscd.detector.numbers",
    "pscd.detector.reading",
    "pscd.tables.encode",
    "pscd.tables.levels",
    "pscd.tables.infer",
    "pscd.mixtures.background",
    "pscd.mixtures.cells",
    "pscd.mixtures.missing",
    "pscd.mixtures.em",
    "pscd.mixtures.robust",
    "pscd.mixtures.table_mixture",
    "pscd.mixtures.ties",
)


def _fitted(frame: pd.DataFrame, seed: int, **settings: Any) -> Any:
    from pscd import EnergyDetector

    return EnergyDetector(random_state=seed, **settings).fit(frame)


# The network has a part in the energy of rows alone: what is said of cells is the same after one update.
CELLS_ALONE = {"updates": 1}


def _find(frame: pd.DataFrame, seed: int) -> Found:
    """Costs of cells, what is expected in each of them, and which are wrong at the rate of CellMCD and DDC."""
    detector = _fitted(frame, seed, **CELLS_ALONE)
    cells = detector.cells(frame, confidence=0)
    confidence = _placed(cells, frame, "confidence").astype(float) * frame.notna()
    # The default of `repair` leaves more of the wrong cells as they are.
    flagged = (confidence >= confidence_of(-torch.tensor(1 - CHI2).double().log()).item()).to_numpy()
    suggested = _placed(cells, frame, "suggestion").astype(frame.dtypes.to_dict())
    return Found(detector.explain(frame).to_numpy(), suggested, flagged)


def _placed(cells: pd.DataFrame, frame: pd.DataFrame, what: str) -> pd.DataFrame:
    """A column of the list of cells where the cells are in the table; other cells are those of the table."""
    placed = frame.astype("object")
    for name, of_column in cells.groupby("column"):
        placed.iloc[frame.index.get_indexer(of_column["row"]), frame.columns.get_loc(name)] = of_column[what].to_numpy()
    return placed


def _expected(detector: Any, frame: pd.DataFrame) -> pd.DataFrame:
    """The table with every gap at its conditional mean, or at its likeliest category."""
    cells = detector.cells(frame)
    return _placed(cells[cells["problem"] == "missing"], frame, "suggestion").astype(frame.dtypes.to_dict())


def _fill(frame: pd.DataFrame, seed: int) -> Filled:
    detector = _fitted(frame, seed, **CELLS_ALONE)
    return Filled(_expected(detector, frame), detector.impute(frame, n=DRAWS, seed=seed))


def _rank(frame: pd.DataFrame, seed: int) -> np.ndarray:
    return -np.asarray(_fitted(frame, seed).score_samples(frame))


OURS: dict[str, Method] = {NAME: Method(_find, _fill, _rank, ("torch",), MODULES)}
