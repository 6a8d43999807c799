"""Our method, through the doors that its users have."""

from typing import Any

import numpy as np
import pandas as pd

from studies.cells.measures import DRAWS
from studies.cells.methods import Filled, Found, Method
from studies.cells.rivals import CHI2

NAME = "EnergyDetector"
# Where the numbers live that its defaults are made of; they are no parameters, so a change must be seen here.
MODULES = (
    "pscd.coordinates",
    "pscd.detector.cells",
    "pscd.detector.cleaning",
    "pscd.detector.estimator",
    "pscd.detector.gaussian",
    "pscd.detector.mistakes",
    "pscd.detector.numbers",
    "pscd.detector.reading",
    "pscd.detector.shifts",
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
CELLS_ALONE = {"n_updates": 1}


def _find(frame: pd.DataFrame, seed: int) -> Found:
    """Costs of cells, what is expected in each of them, and which are wrong at the rate of CellMCD and DDC."""
    detector = _fitted(frame, seed, **CELLS_ALONE)
    suggested = detector.expected(frame)
    # At the default, a tenth of that rate, `repair` would leave more of the wrong cells as they are.
    flagged = detector.flag_cells(frame, false_alarms=1 - CHI2).to_numpy()
    repaired = detector.repair(frame, false_alarms=1 - CHI2)
    suggested = suggested.mask(flagged, repaired)
    return Found(detector.explain(frame).to_numpy(), suggested.astype(frame.dtypes.to_dict()), flagged)


def _expected(detector: Any, frame: pd.DataFrame) -> pd.DataFrame:
    """The table with every gap at its conditional mean, or at its likeliest category."""
    filled = frame.astype("object")
    for name, gaps in detector.gaps(frame).groupby("column"):
        filled.iloc[gaps["row"].to_numpy(), filled.columns.get_loc(name)] = gaps["suggested"].to_numpy()
    return filled.astype(frame.dtypes.to_dict())


def _fill(frame: pd.DataFrame, seed: int) -> Filled:
    detector = _fitted(frame, seed, **CELLS_ALONE)
    return Filled(_expected(detector, frame), detector.impute(frame, n=DRAWS, random_state=seed))


def _rank(frame: pd.DataFrame, seed: int) -> np.ndarray:
    return -np.asarray(_fitted(frame, seed).score_samples(frame))


OURS: dict[str, Method] = {NAME: Method(_find, _fill, _rank, ("torch",), MODULES)}
