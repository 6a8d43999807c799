"""What a method is here, and the table in numbers for those that know nothing else."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from studies.cells.corruptions import number_columns


class Found(NamedTuple):
    """What a method says about every cell of a table, `(n, d)` each.

    Attributes:
        scores: higher for a cell that is more likely wrong.
        suggested: what should stand there, given the other cells of its row.
        flagged: cells that it would repair, if it has a threshold of its own.
    """

    scores: np.ndarray
    suggested: pd.DataFrame
    flagged: np.ndarray | None = None


class Filled(NamedTuple):
    """Completed tables: the best guess, and 19 draws if the method makes draws."""

    best: pd.DataFrame
    draws: list[pd.DataFrame] | None = None


@dataclass(frozen=True)
class Method:
    """A method, with what it can do; what it cannot is None.

    Attributes:
        find: wrong cells of a table, for a seed.
        fill: missing cells of a table, for a seed.
        rank: rows of a table with missing cells, stranger is higher, for a seed.
        libraries: distributions whose versions decide its results.
        modules: modules whose code does.
        seeds: at most so many are run, where one takes long.
    """

    find: Callable[[pd.DataFrame, int], Found] | None = None
    fill: Callable[[pd.DataFrame, int], Filled] | None = None
    rank: Callable[[pd.DataFrame, int], np.ndarray] | None = None
    libraries: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    seeds: int | None = None


class Numbers:
    """A table as standardised numbers, and the way back; missing cells stay NaN.

    Categories become indicators, all but the commonest: with all of them, a regression of one on the others is exact
    and fills in what it began with.
    """

    def __init__(self, frame: pd.DataFrame) -> None:
        self.frame = frame
        self.numeric = number_columns(frame)
        self.levels = {
            j: frame.iloc[:, j].value_counts().sort_index().sort_values(ascending=False, kind="stable").index.to_numpy()
            for j in range(frame.shape[1])
            if j not in self.numeric
        }
        x = frame.iloc[:, self.numeric].to_numpy(np.float64)
        self.mean, self.deviation = np.nanmean(x, 0), np.nanstd(x, 0)
        self.deviation[self.deviation == 0] = 1.0

    def encode(self) -> np.ndarray:
        """Rows of numbers: first the columns of numbers, then indicators."""
        parts = [(self.frame.iloc[:, self.numeric].to_numpy(np.float64) - self.mean) / self.deviation]
        for j, levels in self.levels.items():
            column = self.frame.iloc[:, j].to_numpy()
            indicators = (column[:, None] == levels[1:]).astype(np.float64)
            indicators[pd.isna(column)] = np.nan
            parts.append(indicators)
        return np.concatenate(parts, 1)

    def decode(self, x: np.ndarray) -> pd.DataFrame:
        """The table that rows of numbers stand for: of a column's categories the likeliest."""
        columns: dict[int, pd.Series] = {}
        for at, j in enumerate(self.numeric):
            columns[j] = pd.Series(x[:, at] * self.deviation[at] + self.mean[at])
        at = len(self.numeric)
        for j, levels in self.levels.items():
            others = x[:, at : at + len(levels) - 1]
            likeliest = np.concatenate([1 - others.sum(1, keepdims=True), others], 1).argmax(1)
            columns[j] = pd.Series(levels[likeliest], dtype=self.frame.dtypes.iloc[j])
            at += len(levels) - 1
        decoded = pd.DataFrame({self.frame.columns[j]: columns[j] for j in range(self.frame.shape[1])})
        return decoded.set_axis(self.frame.index)

    def fill(self, x: np.ndarray) -> pd.DataFrame:
        """The table with its missing cells taken from rows of numbers."""
        return self.frame.where(self.frame.notna(), self.decode(x))
