"""Why a row is strange, in words."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from pscd.detector.estimator import EnergyDetector

REASONS = 3  # columns named for each row
EXPLAINED_AT_ONCE = 4096  # rows: each takes a number for every cell and component of the mixture, several times


def reasons(names: Sequence[str], values: Sequence[Any], blame: np.ndarray) -> str:
    """The columns that pushed a row's energy up most.

    Args:
        names: of the columns.
        values: of the row.
        blame: what each column added to the energy.

    Returns:
        Text with name, value and share of the energy, the largest first.
    """
    order = [j for j in np.argsort(-blame)[:REASONS] if blame[j] > 0]
    return "; ".join(f"{names[j]} = {short_cell(values[j])} (+{blame[j]:.1f})" for j in order)


def short_cell(value: Any, most: int = 30) -> str:
    """A cell in a few characters.

    Args:
        value: of the cell.
        most: characters at most.

    Returns:
        Its text.
    """
    text = f"{value:.6g}" if isinstance(value, float) else str(value).strip().removesuffix(" 00:00:00")
    return text if len(text) <= most else f"{text[: most - 3]}..."


def reasons_of(detector: "EnergyDetector", rows: Any, frame: Any, some: np.ndarray) -> list[str]:
    """Why some rows of a block are strange.

    Args:
        detector: the fitted detector.
        rows: the block as the detector takes it.
        frame: the block as it was read, for the values that are told.
        some: indices of the rows.

    Returns:
        Text for each of them.
    """
    if len(some) > EXPLAINED_AT_ONCE:
        parts = np.split(some, range(EXPLAINED_AT_ONCE, len(some), EXPLAINED_AT_ONCE))
        return [text for part in parts for text in reasons_of(detector, rows, frame, part)]
    if not len(some):
        return []
    chosen = rows.iloc[some] if isinstance(rows, pd.DataFrame) else rows[some]
    blame = np.asarray(detector.explain(chosen))
    names = detector.reader_.names(rows)
    shown = frame.iloc[some]
    cells = shown.reindex(columns=names) if set(names) & set(frame.columns) else shown  # an array has no names
    values = cells.to_numpy(dtype=object)
    return [reasons(names, values[k], blame[k]) for k in range(len(some))]
