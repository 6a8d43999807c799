"""The columns that make a row anomalous, in words."""

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from pscd.detector.estimator import EnergyDetector
    from pscd.detector.reading import EncodedRows


def short_cell(value: Any, most: int = 30) -> str:
    """A cell in at most so many characters."""
    text = f"{value:.6g}" if isinstance(value, float) else str(value).strip().removesuffix(" 00:00:00")
    return text if len(text) <= most else f"{text[: most - 3]}..."


def reasons_of(
    detector: "EnergyDetector", rows: "EncodedRows", index: np.ndarray, *, most: int = 3, size: int = 4096
) -> list[str]:
    """For some rows the columns that contribute most to their energy, with values and nats; `size` rows at a time."""
    texts: list[str] = []
    for start in range(0, len(index), size):  # each row takes a number for every cell and component of the mixture
        part = rows.take(index[start : start + size])
        cost, names = np.asarray(detector.explain(part)), detector.reader_.names(part.table)
        j = np.argsort(-cost, axis=1, kind="stable")[:, :most]
        i = np.repeat(np.arange(len(j))[:, None], j.shape[1], 1)
        is_cause = cost[i, j] > 0
        cells = iter(detector.reader_.cells(part, i[is_cause], j[is_cause]))
        texts += [
            "; ".join(f"{names[c]} = {short_cell(next(cells))} (+{cost[r, c]:.1f})" for c in j[r] if cost[r, c] > 0)
            for r in range(len(j))
        ]
    return texts
