"""Common mistakes that explain a wrong number: the decimal point, the sign, the unit, two cells swapped.

A wrong cell says nothing about the right value if it is just wrong, but everything if it is 100 times too large. Each
mistake is a hypothesis about the right value v = T(found), and weighed against "just wrong":

    odds = share of the mistake * p(T(found) | other cells) |T'(found)|  /  share of the rest * a broad density,

where the shares are those in the column: a mistake that explains several cells is more believable for the next one. A
cell far enough out would make any mistake likelier than "just wrong"; hence v must also be plausible in itself, unless
another cell of the column shows the same mistake.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

COMMON, RARE = 0.05, 0.01  # share of a mistake among the wrong cells of a column, before any is seen
PSEUDO_CELLS = 2.0  # wrong cells that this first guess is worth
ROUNDS = 3  # of weighing the hypotheses and counting them
BROAD = 3.0  # deviations of the column: half-width at half-maximum of the density of cells that are just wrong
PLAUSIBLE = 2.576  # deviations from its mean within which 99 % of a Gaussian lies: farther out nothing is explained
WIDEST = 1e-9  # least deviation, relative to the column's


@dataclass(frozen=True)
class Mistake:
    """A way in which a number goes wrong: the right value is `factor * found + shift`.

    Args:
        words: what is said of the cell.
        factor: see above.
        share: how common it is, before any is seen.
        shift: see above.
    """

    words: str
    factor: float
    share: float = RARE
    shift: float = 0.0


MISTAKES = (
    Mistake("10 times too large", 0.1, COMMON),
    Mistake("100 times too large", 0.01, COMMON),
    Mistake("1000 times too large", 0.001, COMMON),
    Mistake("10 times too small", 10.0, COMMON),
    Mistake("100 times too small", 100.0, COMMON),
    Mistake("1000 times too small", 1000.0, COMMON),
    Mistake("wrong sign", -1.0, COMMON),
    Mistake("inches, not centimetres", 2.54),
    Mistake("centimetres, not inches", 1 / 2.54),
    Mistake("feet, not metres", 0.3048),
    Mistake("pounds, not kilograms", 0.45359237),
    Mistake("kilograms, not pounds", 1 / 0.45359237),
    Mistake("miles, not kilometres", 1.609344),
    Mistake("Fahrenheit, not Celsius", 5 / 9, shift=-160 / 9),
    Mistake("Celsius, not Fahrenheit", 9 / 5, shift=32.0),
)


@dataclass(frozen=True)
class Expected:
    """Rows with wrong cells, and what is expected in each cell given the trusted others of its row.

    Args:
        found: `(n, d)`, NaN where there is nothing.
        mean: `(n, d)`.
        deviation: `(n, d)`.
        wrong: which cells look wrong, `(n, d)`.
        scale: deviations of the columns, `(d,)`.
    """

    found: Floats
    mean: Floats
    deviation: Floats
    wrong: NDArray[np.bool_]
    scale: Floats

    def log_density(self, value: Floats, columns: slice | NDArray[np.int_] = np.s_[:]) -> Floats:
        """Log density of values `(n, d')` of some columns, as if Gaussian."""
        deviation = self._deviation()[:, columns]
        away = (value - self.mean[:, columns]) / deviation
        return -0.5 * away**2 - np.log(deviation) - 0.5 * np.log(2 * np.pi)

    def is_plausible(self, value: Floats) -> NDArray[np.bool_]:
        """Whether values `(..., n, d)` are among the 99 % that lie nearest to their means."""
        near: NDArray[np.bool_] = np.abs(value - self.mean) <= PLAUSIBLE * self._deviation()
        return near

    def _deviation(self) -> Floats:
        return np.maximum(self.deviation, WIDEST * self.scale)

    def log_broad(self) -> Floats:
        """Log density of cells that are just wrong, `(n, d)`: a Cauchy density, since they may be far out."""
        width = BROAD * self.scale
        return -np.log(np.pi * width) - np.log1p(((self.found - self.mean) / width) ** 2)


def find_mistakes(expected: Expected, names: list[str]) -> tuple[Floats, NDArray[np.object_]]:
    """What the wrong cells should be, where a common mistake explains them.

    Args:
        expected: the rows.
        names: of the columns.

    Returns:
        The right values, `(n, d)`, NaN where no mistake explains the cell; and the mistakes in words, None there.

    >>> one = np.ones((1, 1))
    >>> height = Expected(found=178 * one, mean=1.74 * one, deviation=0.06 * one, wrong=one > 0, scale=0.1 * one[0])
    >>> find_mistakes(height, ["height"])
    (array([[1.78]]), array([['100 times too large']], dtype=object))
    """
    n, d = expected.found.shape
    values = [m.factor * expected.found + m.shift for m in MISTAKES]
    scores = [
        expected.log_density(value) + np.log(abs(m.factor)) - expected.log_broad()
        for m, value in zip(MISTAKES, values, strict=True)
    ]
    words: list[NDArray[np.object_]] = [np.full((n, d), m.words, dtype=object) for m in MISTAKES]
    for step in (-1, 1):
        value, score, said = _swapped(expected, names, step)
        values.append(value)
        scores.append(score)
        words.append(said)
    # (hypotheses, n, d); what is no wrong number is explained by nothing.
    score = np.where(expected.wrong, np.nan_to_num(np.stack(scores), nan=-np.inf), -np.inf)
    score = np.where(np.isclose(np.stack(values), expected.found), -np.inf, score)
    plausible = expected.is_plausible(np.stack(values))
    first = np.array([*(m.share for m in MISTAKES), COMMON, COMMON])[:, None, None]
    chance, total = np.zeros_like(score), expected.wrong.sum(0)
    for _ in range(ROUNDS):
        # A cell is no evidence for its own mistake, so that the others are counted.
        others = chance.sum(1, keepdims=True) - chance
        share = (others + PSEUDO_CELLS * first) / (np.maximum(total - 1, 0) + PSEUDO_CELLS)
        odds = np.exp(np.minimum(score, 700.0)) * share / np.maximum(1 - share.sum(0), 1e-3)
        odds = np.where(plausible | (others > 0.5), odds, 0.0)
        chance = odds / (1 + odds.sum(0))
    best = chance.argmax(0)[None]
    explained = np.take_along_axis(chance, best, 0)[0] > 0.5
    value = np.take_along_axis(np.stack(values), best, 0)[0]
    said = np.take_along_axis(np.stack(words), best, 0)[0]
    said[~explained] = None
    return np.where(explained, value, np.nan), said


def _swapped(expected: Expected, names: list[str], step: int) -> tuple[Floats, Floats, NDArray[np.object_]]:
    """The hypothesis that a cell was swapped with the one in the next column: its value, score and words."""
    n, d = expected.found.shape
    value, score = np.full((n, d), np.nan), np.full((n, d), -np.inf)
    words = np.empty((n, d), dtype=object)
    own = np.where(expected.wrong, expected.log_broad(), expected.log_density(expected.found))
    for j in range(d):
        k = j + step
        if 0 <= k < d:
            here, there = np.array([j]), np.array([k])
            both = expected.log_density(expected.found[:, there], here) + expected.log_density(
                expected.found[:, here], there
            )
            value[:, j] = expected.found[:, k]
            score[:, j] = both[:, 0] - own[:, j] - own[:, k]
            words[:, j] = f"swapped with {names[k]}"
    return value, score, words
