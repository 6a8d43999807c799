"""Mistakes as people and instruments make them, and values that go missing. Everything here is pure.

A mistake takes a clean column, the rows to spoil and a generator, and returns the values that then stand in those rows.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd

Mistake = Callable[[np.ndarray, np.ndarray, np.random.Generator], np.ndarray]
Mechanism = Literal["at random", "not at random"]
LARGER_GO_MISSING = 4.0  # how much likelier the upper half of a column goes missing, not at random


class Dirty(NamedTuple):
    """A table with mistakes.

    Attributes:
        frame: the table as it is seen.
        kind: for each cell the name of its mistake, empty where it is right; `(n, d)`.
    """

    frame: pd.DataFrame
    kind: np.ndarray

    @property
    def wrong(self) -> np.ndarray:
        """Which cells do not hold the truth, `(n, d)`."""
        return self.kind != ""


def shift(values: np.ndarray, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Off by 4 to 10 deviations, up or down; a column of whole numbers keeps whole numbers."""
    amount = rng.uniform(4, 10, len(rows)) * rng.choice([-1, 1], len(rows)) * np.nanstd(values)
    is_whole = np.all(values[np.isfinite(values)] % 1 == 0)
    return values[rows] + (np.ceil(np.abs(amount)) * np.sign(amount) if is_whole else amount)


def factor(values: np.ndarray, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A decimal point in the wrong place: 10, 100 or 1000 times as much or as little."""
    return values[rows] * 10.0 ** (rng.integers(1, 4, len(rows)) * rng.choice([-1, 1], len(rows)))


def flip(values: np.ndarray, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The other sign."""
    return -values[rows]


def permuted(values: np.ndarray, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The value of another row of the same column."""
    return rng.choice(_present(values), len(rows))


def stuck(values: np.ndarray, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One value of the column again and again, as an instrument that hangs writes it."""
    return np.repeat(rng.choice(_present(values)), len(rows))


def level(values: np.ndarray, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Another category of the same column."""
    levels = np.unique(_present(values))
    return np.array([rng.choice(levels[levels != values[row]]) if len(levels) > 1 else values[row] for row in rows])


def typo(values: np.ndarray, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A slip of the finger: a letter doubled, left out or swapped with the next."""
    return np.array([_misspell(str(values[row]), rng) for row in rows])


def _misspell(word: str, rng: np.random.Generator) -> str:
    at = int(rng.integers(len(word)))
    doubled = word[: at + 1] + word[at:]
    left_out = word[:at] + word[at + 1 :]
    swapped = word[:at] + word[at : at + 2][::-1] + word[at + 2 :]
    # A single letter left out would be an empty cell, and two equal letters swapped no slip.
    slips = [slip for slip in (doubled, left_out, swapped) if slip not in ("", word)]
    return slips[int(rng.integers(len(slips)))]


NUMBER_MISTAKES: dict[str, Mistake] = {
    "shift": shift,
    "factor": factor,
    "sign": flip,
    "other row": permuted,
    "stuck": stuck,
}
CATEGORY_MISTAKES: dict[str, Mistake] = {"level": level, "typo": typo, "other row": permuted, "stuck": stuck}
SWAP = "swap"  # of two cells, so not a function of one column
KINDS = (*NUMBER_MISTAKES, SWAP, "level", "typo")


def corrupt(clean: pd.DataFrame, share: float, rng: np.random.Generator) -> Dirty:
    """Spoil a share of the cells that are not missing, every kind of mistake equally often.

    Half of the mistakes of sign are swaps with the next column of numbers instead. A cell that a mistake leaves as it
    was, such as a zero whose sign is flipped, is not wrong and is not counted.
    """
    kind = _assign(clean, share, rng)
    frame = clean.copy()
    numeric = number_columns(clean)
    for j, name in enumerate(clean.columns):
        values = clean[name].to_numpy()
        mistakes = NUMBER_MISTAKES if j in numeric else CATEGORY_MISTAKES
        spoiled = values.copy()
        for mistake, spoil in mistakes.items():
            rows = np.flatnonzero(kind[:, j] == mistake)
            if len(rows):
                spoiled[rows] = spoil(values, rows, rng)
        frame[name] = pd.Series(spoiled, index=clean.index, dtype=clean[name].dtype)
    for row, j in zip(*np.nonzero(kind == SWAP), strict=True):  # so far only the left of each pair has the name
        right = _next(numeric, j)
        frame.iat[row, j], frame.iat[row, right] = clean.iat[row, right], clean.iat[row, j]
        kind[row, right] = SWAP
    # A missing cell was never spoiled; comparing it with itself would say that it differs.
    kind[(frame == clean).to_numpy() | clean.isna().to_numpy()] = ""
    return Dirty(frame, kind)


def _assign(clean: pd.DataFrame, share: float, rng: np.random.Generator) -> np.ndarray:
    """The mistake of each cell; the right cell of a swapped pair stays empty but counts, and is in no other mistake."""
    present = clean.notna().to_numpy()
    numeric = number_columns(clean)
    kind = np.full(clean.shape, "", dtype="<U10")
    taken = ~present
    left = round(share * present.sum())
    for cell in rng.permutation(clean.size):
        if left == 0:
            break
        row, j = divmod(int(cell), clean.shape[1])
        if taken[row, j]:
            continue
        chosen = str(rng.choice(list(NUMBER_MISTAKES if j in numeric else CATEGORY_MISTAKES)))
        right = _next(numeric, j) if j in numeric else j
        if chosen == "sign" and rng.random() < 0.5 and left >= 2 and right != j and not taken[row, right]:
            chosen = SWAP
            taken[row, right] = True
            left -= 1
        taken[row, j] = True
        kind[row, j] = chosen
        left -= 1
    return kind


def hide(frame: pd.DataFrame, share: float, mechanism: Mechanism, rng: np.random.Generator) -> np.ndarray:
    """Which cells go missing, `(n, d)`: the same share of every column's present cells, exactly.

    Not at random, cells above the column's median, or of its commonest category, are four times as likely to go.
    """
    hidden = np.zeros(frame.shape, bool)
    for j, name in enumerate(frame.columns):
        column = frame[name]
        rows = np.flatnonzero(column.notna())
        weights = np.ones(len(rows))
        if mechanism == "not at random":
            values = column.iloc[rows]
            is_number = pd.api.types.is_numeric_dtype(column)
            often = values > values.median() if is_number else values == values.mode()[0]
            weights[often.to_numpy()] = LARGER_GO_MISSING
        n_hidden = min(round(share * len(rows)), len(rows) - 2)  # a column without any value is another task
        hidden[rng.choice(rows, max(n_hidden, 0), replace=False, p=weights / weights.sum()), j] = True
    return hidden


def without(frame: pd.DataFrame, hidden: np.ndarray) -> pd.DataFrame:
    """The table with these cells missing."""
    return frame.mask(pd.DataFrame(hidden, frame.index, frame.columns))


def number_columns(frame: pd.DataFrame) -> list[int]:
    """Positions of the columns of numbers."""
    return [j for j, name in enumerate(frame.columns) if pd.api.types.is_numeric_dtype(frame[name])]


def _next(numeric: list[int], j: int) -> int:
    return numeric[(numeric.index(j) + 1) % len(numeric)]


def _present(values: np.ndarray) -> np.ndarray:
    return values[~pd.isna(values)]
