"""Rows some of whose cells stand one column too far to the right or to the left.

A field too many or too few makes every cell after it wrong at once, and none of them by itself says why. Each block of
columns, moved back by one, is a hypothesis about the row, and weighed against "so many cells are just wrong":

    odds = share of the hypothesis * p(row moved back) p(cell left over)  /  p(trusted cells) * broad densities.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pscd.detector.cells import CellModel
from pscd.detector.mistakes import BROAD
from pscd.detector.reading import Reader, Rows

if TYPE_CHECKING:
    import pandas as pd

FEWEST_WRONG = 2  # cells of a row for it to be looked at, or one that cannot be: others may pass for right
SHORTEST = 3  # columns of a block: two are a swap
MOST_ROWS = 50  # that are looked at, those with the most wrong cells
MOST_COLUMNS = 24  # of a table in which a block may end anywhere; in wider ones it ends at the last column
RARE = 5.0  # nats that speak against any shift at all


@dataclass(frozen=True)
class Block:
    """Neighbouring columns of a table, the cells of which stand one column too far to the right or to the left.

    Args:
        first: its first column.
        last: its last column.
        step: 1: too far to the right; -1: to the left.
    """

    first: int
    last: int
    step: int

    @property
    def moves(self) -> Iterator[tuple[int, int]]:
        """Where each cell belongs, and where it stands."""
        columns = range(self.first, self.last + 1)
        return pairwise(columns) if self.step > 0 else ((to, place) for place, to in pairwise(columns))

    @property
    def emptied(self) -> int:
        """The column whose own cell is lost."""
        return self.last if self.step > 0 else self.first

    @property
    def surplus(self) -> int:
        """The column in which a cell stands that belongs nowhere."""
        return self.first if self.step > 0 else self.last

    @property
    def words(self) -> str:
        """What is said of its cells."""
        return f"shifted by one column to the {'right' if self.step > 0 else 'left'}"


@dataclass(frozen=True)
class Shift:
    """A row with shifted cells, and how it was before.

    Args:
        row: its number.
        block: the columns.
        x: the row with the cells moved back, `(D,)`; NaN where a cell is lost.
    """

    row: int
    block: Block
    x: Tensor


def blocks(learnt: Sequence[bool]) -> list[Block]:
    """All blocks that may be shifted; the model must know all of their columns, or cells would get lost between them.

    Args:
        learnt: for each column of the table whether the model sees it.

    Returns:
        Blocks of either direction.

    >>> len(blocks([True] * 4)), blocks([True, False, True, True])
    (6, [])
    """
    n = len(learnt)
    pairs = [(a, b) for a in range(n) for b in range(a + SHORTEST - 1, n) if n <= MOST_COLUMNS or b == n - 1]
    return [Block(a, b, step) for a, b in pairs if all(learnt[a : b + 1]) for step in (1, -1)]


def find_shifts(reader: Reader, model: CellModel, rows: Rows, wrong: Tensor, n_seen: int) -> list[Shift]:
    """The rows whose wrong cells are explained by a shift.

    Args:
        reader: of the table.
        model: of its cells.
        rows: the rows.
        wrong: which cells look wrong, `(n, d)`.
        n_seen: rows that the model was fitted to.

    Returns:
        The shifts, by row.
    """
    count = wrong.sum(1)
    some = ((count >= FEWEST_WRONG) | rows.stray.any(1)).nonzero().flatten()
    some = some[count[some].argsort(descending=True, stable=True)[:MOST_ROWS]].sort().values
    seen = set(reader.sources.tolist())
    tried = blocks([c in seen for c in range(reader.n_columns)])
    if not len(some) or not tried:
        return []
    never = math.log(n_seen + 2)  # against a cell that cannot be, by the rule of succession
    cells = _Cells(reader, model, rows, some.tolist())
    broad = cells.log_broad(never)
    as_it_is = cells.log_prob(torch.where(wrong[some][:, reader.sources], torch.nan, rows.x[some]), never)
    as_it_is = as_it_is + torch.where(wrong[some], broad, 0.0).sum(1)
    moved, stray = cells.moved(tried)
    found = []
    for k, row in enumerate(some.tolist()):
        x = moved[k * len(tried) : (k + 1) * len(tried)]
        score = cells.log_prob(x, never) - never * stray[k * len(tried) : (k + 1) * len(tried)].sum(1)
        score = score + cells.log_surplus(broad, never)[k, [block.surplus for block in tried]]
        best = int(score.argmax())
        if score[best] - as_it_is[k] > RARE + math.log(len(tried)):
            found.append(Shift(row, tried[best], x[best]))
    return found


@dataclass(frozen=True)
class _Cells:
    """Some rows of a table, by the densities that hypotheses about them need."""

    reader: Reader
    model: CellModel
    rows: Rows
    index: list[int]

    def log_prob(self, x: Tensor, never: float) -> Tensor:
        """Log density of rows `(m, D)` in the units of the table, `(m,)`."""
        columns = self.model.columns
        density = self.model.mixture.log_prob(self.model.forward(x)) - never * self.model.news(x).sum(1)
        return density if columns is None else density + columns.log_slope(x[:, self.model.levels == 0])

    def log_broad(self, never: float) -> Tensor:
        """Log density of each cell of the table if it is just wrong, `(m, d)`; 0 where there is nothing."""
        x, model = self.rows.x[self.index], self.model
        width = BROAD * model.scale
        centre = torch.zeros_like(width)
        if model.columns is not None:
            centre[model.varies & (model.levels == 0)] = model.columns.shift
        number = -(math.pi * width).log() - torch.log1p(((x - centre) / width).square())
        level = -model.levels.clamp(min=1).double().log().expand_as(x)
        each = torch.where(model.levels == 0, number, level).masked_fill(x.isnan() | ~model.varies, 0.0)
        whole = each.new_zeros(len(x), self.reader.n_columns).index_add_(1, self.reader.sources, each)
        return torch.where(self.rows.stray[self.index], -never, whole)

    def log_surplus(self, broad: Tensor, never: float) -> Tensor:
        """Log density of each cell if it belongs nowhere, `(m, d)`: of a text of any kind, where it is no number."""
        text = torch.zeros(self.reader.n_columns, dtype=torch.bool)
        text[self.reader.sources[self.model.levels > 0]] = True
        return torch.where(text & (broad != 0), -never, broad)

    def moved(self, tried: list[Block]) -> tuple[Tensor, Tensor]:
        """Each row with each block moved back, `(m * blocks, D)`, and which of its cells cannot be, `(..., d)`."""
        reader, table = self.reader, self.rows.table
        learnt, nothing = set(reader.sources.tolist()), [None] * len(self.index)  # others need not be there
        found = [reader.found(self.rows, c, self.index) if c in learnt else nothing for c in range(reader.n_columns)]
        made = []
        for k in range(len(self.index)):
            row = [column[k] for column in found]
            for block in tried:
                new = list(row)
                for to, place in block.moves:
                    new[to] = row[place]
                new[block.emptied] = None
                made.append(new)
        read = reader.read(_texts(made, reader.names(table)) if reader.schema is not None else _numbers(made))
        return read.x, read.stray


def _texts(rows: list[list[Any]], names: list[str]) -> "pd.DataFrame":
    """Cells of any kind as texts, which any column can be read from."""
    import pandas as pd

    from pscd.tables.cells import number_text

    def text(cell: Any) -> str | None:
        if pd.isna(cell):
            return None
        return number_text(cell) if isinstance(cell, float) else str(cell)

    return pd.DataFrame([[text(cell) for cell in row] for row in rows], columns=names, dtype=object)


def _numbers(rows: list[list[Any]]) -> Any:
    import numpy as np

    return np.array([[math.nan if cell is None else cell for cell in row] for row in rows], dtype=np.float64)
