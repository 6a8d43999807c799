"""Single cells of a table: which are wrong, what should stand there, and what may stand in the gaps."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_feature_names_in
from torch import Tensor

from pscd.detector.cells import CellModel
from pscd.detector.mistakes import Expected, find_mistakes
from pscd.detector.reading import Reader, Rows
from pscd.detector.shifts import Shift, find_shifts
from pscd.mixtures.cells import Cells
from pscd.rng import Stream, generator

if TYPE_CHECKING:
    import pandas as pd

FALSE_ALARMS = 0.001  # share of right cells that may be flagged
ONE_DEVIATION = 0.6827  # probability within one deviation of the mean, for a Gaussian
MISSPELT = "misspelt"
IMPOSSIBLE = 50.0  # nats for a cell that cannot be, such as a word among numbers: more than any that can


@dataclass(frozen=True)
class Judged:
    """The cells of rows as a detector sees them.

    Args:
        cells: given the trusted others of their rows.
        wrong: which cells of the table look wrong, `(n, d)`.
        shifts: rows in which all cells of a block do, and how they were.
    """

    cells: Cells
    wrong: Tensor
    shifts: list[Shift]


class CellMethods:
    """What a fitted detector says about cells; a part of `EnergyDetector`."""

    cells_: CellModel
    reader_: Reader
    n_rows_: int
    random_state: int | np.random.RandomState | None

    def _read(self, X: ArrayLike, *, first: bool = False) -> Rows:
        raise NotImplementedError

    def explain(self, X: ArrayLike) -> Any:
        """What each cell costs given the trusted others of its row, in nats.

        The cost is log p(best value | others) - log p(value | others) under the robust mixture: 0 for the value that
        the other cells suggest, z^2 / 2 for a number z deviations away from it. Cells that look wrong are not relied
        on. A new value in a column that never varied costs log(n + 1), a word in a column of numbers 50 nats.

        Args:
            X: rows, `(n, d)`.

        Returns:
            `(n, d)`, a data frame if `X` is one; 0 for missing cells and for columns that are left out.
        """
        rows = self._read(X)
        return self.reader_.labelled(rows, self._costs(rows, self._cells(rows, FALSE_ALARMS)[0]).numpy())

    def flag_cells(self, X: ArrayLike, *, false_alarms: float = FALSE_ALARMS) -> Any:
        """Which cells look wrong.

        Args:
            X: rows, `(n, d)`.
            false_alarms: share of right cells that may be flagged, if the model is right about them.

        Returns:
            `(n, d)`, true for cells that look wrong, a data frame if `X` is one. Missing cells are not wrong, unless
            they stand where the cells of their row are shifted by a column.

        Raises:
            ValueError: the share is not between 0 and 1.
        """
        rows = self._read(X)
        return self.reader_.labelled(rows, self._judge(rows, false_alarms).wrong.numpy())

    def expected(self, X: ArrayLike) -> Any:
        """What should stand in each cell, given the trusted others of its row.

        Args:
            X: rows, `(n, d)`.

        Returns:
            `(n, d)`, a data frame if `X` is one: conditional means, the likeliest categories, and what undoes a common
            mistake in cells that look wrong; None for columns that are left out.
        """
        rows = self._read(X)
        judged = self._judge(rows, FALSE_ALARMS)
        x = self._suggested(rows, judged, judged.wrong)[0]
        if self.reader_.schema is None:
            return self.reader_.labelled(rows, x.numpy())
        values = np.empty((len(x), self.reader_.n_columns), dtype=object)
        for j, column in enumerate(self.reader_.values(x)):
            values[:, j] = column
        return self.reader_.labelled(rows, values)

    def suspects(self, X: ArrayLike, *, false_alarms: float = FALSE_ALARMS, level: float = 0.9) -> "pd.DataFrame":
        """The cells that look wrong, the worst first, with what should stand there.

        Args:
            X: rows, `(n, d)`.
            false_alarms: share of right cells that may be flagged.
            level: probability that a right value lies in its interval.

        Returns:
            One row for each cell: `row` (from 0), `column`, `found`, `suggested`, `lower` and `upper` (numbers and
            dates only), `cost` in nats and, where a common one explains the cell, the `mistake`, such as "100 times too
            large"; the suggestion is then what undoes it, without an interval if it lies outside.
        """
        rows = self._read(X)
        judged = self._judge(rows, false_alarms)
        return self._listed(rows, judged, judged.wrong, level)

    def gaps(self, X: ArrayLike, *, level: float = 0.9) -> "pd.DataFrame":
        """All missing cells with what is to be expected there, as the row stands: as `suspects`, with `cost` 0.

        Args:
            X: rows, `(n, d)`.
            level: probability that the right value lies in its interval.

        Returns:
            One row for each missing cell, as for `suspects`.
        """
        rows = self._read(X)
        judged = Judged(*self._cells(rows, FALSE_ALARMS), [])
        return self._listed(rows, judged, rows.missing(self.reader_.sources), level)

    def findings(self, X: ArrayLike, *, false_alarms: float = FALSE_ALARMS, level: float = 0.9) -> "pd.DataFrame":
        """The cells that look wrong and those that are missing, in one list and for the time of one.

        Args:
            X: rows, `(n, d)`.
            false_alarms: share of right cells that may be flagged; what a missing cell should hold is told by those
                that are not.
            level: probability that a right value lies in its interval.

        Returns:
            What `suspects` lists, then what `gaps` lists beyond it, with a column `what`: "wrong" or "missing". A
            missing cell of a row that is shifted is wrong.
        """
        import pandas as pd

        rows = self._read(X)
        judged = self._judge(rows, false_alarms)
        missing = rows.missing(self.reader_.sources) & ~judged.wrong
        found = [("wrong", judged.wrong), *[("missing", missing)] * bool(missing.any())]
        lists = [self._listed(rows, judged, where, level).assign(what=what) for what, where in found]
        return pd.concat(lists, ignore_index=True) if len(lists) > 1 else lists[0]

    def repair(self, X: ArrayLike, *, false_alarms: float = FALSE_ALARMS) -> Any:
        """The table with cells that look wrong as they should be.

        A common mistake, such as a misplaced decimal point, is undone; other numbers are set to their conditional mean
        given the trusted cells of the row, other categories to the likeliest one.

        Args:
            X: rows, `(n, d)`.
            false_alarms: share of right cells that may be flagged.

        Returns:
            A table of the same kind as `X`; missing cells stay missing (`transform` fills them), all others are as
            they were. `suspects` gives the intervals.
        """
        rows = self._read(X)
        judged = self._judge(rows, false_alarms)
        return self.reader_.replaced(rows, self._suggested(rows, judged, judged.wrong)[0], judged.wrong)

    def impute(self, X: ArrayLike, *, n: int = 5, random_state: int | np.random.RandomState | None = None) -> list[Any]:
        """Draws of the missing cells given the trusted others: multiple imputation.

        Args:
            X: rows, `(n, d)`.
            n: number of completed tables.
            random_state: the same number gives the same draws; None: the detector's own.

        Returns:
            Tables of the same kind as `X`. Words in columns of numbers are replaced too, all other cells are as they
            were.

        Raises:
            ValueError: n is not positive.
        """
        if n < 1:
            raise ValueError(f"n must be at least 1, got {n}")
        rows = self._read(X)
        seed = int(check_random_state(self.random_state if random_state is None else random_state).randint(2**31 - 1))
        where = rows.missing(self.reader_.sources) | rows.stray
        if not where.any():
            return [self.reader_.replaced(rows, rows.x, where) for _ in range(n)]
        z = self.cells_.forward(rows.x)
        z = torch.where(self.cells_.mixture.trusted(z, FALSE_ALARMS), z, torch.nan)
        draw = generator(seed, Stream.MISSING_CELLS)
        return [
            self.reader_.replaced(rows, self.cells_.inverse(self.cells_.mixture.complete(z, draw)), where)
            for _ in range(n)
        ]

    def transform(self, X: ArrayLike) -> Any:
        """The table with its missing cells drawn once given the others, for a step of a `Pipeline`."""
        return self.impute(X, n=1)[0]

    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> NDArray[np.object_]:
        """Names of the columns that `transform` gives, which are those that it takes."""
        return _check_feature_names_in(self, input_features)

    @torch.no_grad()
    def _cells(self, rows: Rows, false_alarms: float) -> tuple[Cells, Tensor]:
        """The cells as the mixture sees them, and which cells of the table look wrong one by one, `(n, d)`."""
        if not 0 < false_alarms < 1:
            raise ValueError(f"false_alarms must be between 0 and 1, got {false_alarms}")
        z = self.cells_.forward(rows.x)
        trusted = self.cells_.mixture.trusted(z, false_alarms)
        wrong = self.cells_.spread(~trusted & ~z.isnan(), False) | self.cells_.news(rows.x)
        return self.cells_.mixture.cells(z, trusted), self._by_column(wrong.double()).bool() | rows.stray

    @torch.no_grad()
    def _judge(self, rows: Rows, false_alarms: float) -> Judged:
        """The cells, which of them look wrong, and which rows are shifted."""
        cells, wrong = self._cells(rows, false_alarms)
        shifts = find_shifts(self.reader_, self.cells_, rows, wrong, self.n_rows_)
        for shift in shifts:
            wrong[shift.row, shift.block.first : shift.block.last + 1] = True
        return Judged(cells, wrong, shifts)

    def _costs(self, rows: Rows, cells: Cells) -> Tensor:
        """What each cell of the table costs, `(n, d)`."""
        cost = self.cells_.spread(cells.cost) + np.log(self.n_rows_ + 1) * self.cells_.news(rows.x)
        return torch.where(rows.stray, IMPOSSIBLE, self._by_column(cost))

    def _by_column(self, values: Tensor) -> Tensor:
        """The largest of the values `(n, D)` of the parts of each column of the table, `(n, d)`."""
        whole = values.new_zeros(len(values), self.reader_.n_columns)
        return whole.scatter_reduce_(1, self.reader_.sources.expand(len(values), -1), values, "amax")

    @torch.no_grad()
    def _suggested(self, rows: Rows, judged: Judged, wrong: Tensor) -> tuple[Tensor, NDArray[np.object_]]:
        """What should stand in each cell of the rows, `(n, D)`, and the mistakes that explain wrong ones, `(n, d)`."""
        reader, model, cells = self.reader_, self.cells_, judged.cells
        suggested = model.inverse(cells.mean)
        words = np.full(tuple(wrong.shape), None, dtype=object)
        for i, j, code in reader.misspelt(rows, suggested):
            suggested[i, reader.sources == j], words[i, j] = code, MISSPELT
        numbers = (reader.plain_numbers & model.varies).nonzero().flatten()
        mistaken = wrong & judged.wrong  # a gap is no mistake that could be undone
        some = mistaken[:, reader.sources[numbers]].any(1).nonzero().flatten()
        if len(some):
            self._undo_mistakes(rows, judged, wrong, suggested, words, some, numbers)
        for shift in judged.shifts:
            block = torch.arange(shift.block.first, shift.block.last + 1)
            parts = torch.isin(reader.sources, block)
            before = model.inverse(model.mixture.expected(model.forward(shift.x[None])))[0]
            suggested[shift.row, parts] = torch.where(shift.x.isnan(), before, shift.x)[parts]
            words[shift.row, block[wrong[shift.row, block]].numpy()] = shift.block.words
        return suggested, words

    def _undo_mistakes(
        self,
        rows: Rows,
        judged: Judged,
        wrong: Tensor,
        suggested: Tensor,
        words: NDArray[np.object_],
        some: Tensor,
        numbers: Tensor,
    ) -> None:
        """Put what undoes a common mistake into `suggested` and `words`, for some rows and the columns of numbers."""
        reader, model, cells = self.reader_, self.cells_, judged.cells
        columns = reader.sources[numbers]
        where = torch.zeros_like(cells.trusted)
        where[some] = True
        lower, upper = (model.inverse(z)[some][:, numbers] for z in cells.quantiles(ONE_DEVIATION, where))
        expected = Expected(
            rows.x[some][:, numbers].numpy(),
            suggested[some][:, numbers].numpy(),
            ((upper - lower) / 2).numpy(),
            (wrong & ~rows.stray)[some][:, columns].numpy(),
            model.scale[numbers].numpy(),
        )
        names = reader.names(rows.table)
        value, said = find_mistakes(expected, [names[c] for c in columns.tolist()])
        right = torch.from_numpy(value)
        place = (some[:, None], numbers)
        suggested[place] = torch.where(right.isnan(), suggested[place], right)
        words[np.ix_(some.numpy(), columns.numpy())] = said

    @torch.no_grad()
    def _listed(self, rows: Rows, judged: Judged, where: Tensor, level: float) -> "pd.DataFrame":
        """One row for each of the cells of the table, with what should stand there."""
        import pandas as pd

        reader, model = self.reader_, self.cells_
        parts = where[:, reader.sources][:, model.varies]
        lower, upper = (model.inverse(bound) for bound in judged.cells.quantiles(level, parts))
        for shift in judged.shifts:  # what was moved back is known; the interval would be that of the row as it stands
            lower[shift.row] = upper[shift.row] = torch.nan
        i, j = where.T.nonzero(as_tuple=True)[::-1]
        some, at = torch.unique(i, return_inverse=True)
        suggested, mistakes = self._suggested(rows, judged, where)
        cells = reader.cells(rows.table, suggested[some], set(j.tolist()))
        tables = [cells, reader.values(lower[some]), reader.values(upper[some])]
        labels = reader.labels(rows.table)
        columns: dict[str, Any] = {"row": i.numpy(), "column": [labels[c] for c in j.tolist()]}
        columns["found"] = [cell for c in j.unique().tolist() for cell in reader.found(rows, c, i[j == c].tolist())]
        for name, values in zip(("suggested", "lower", "upper"), tables, strict=True):
            columns[name] = [values[c][r] for r, c in zip(at.tolist(), j.tolist(), strict=True)]
        columns["cost"] = self._costs(rows, judged.cells)[i, j].numpy()
        columns["mistake"] = mistakes[i.numpy(), j.numpy()]
        right = reader.values(suggested[some])
        _drop_outside(columns, [right[c][r] for r, c in zip(at.tolist(), j.tolist(), strict=True)])
        return pd.DataFrame(columns).sort_values("cost", ascending=False, kind="stable", ignore_index=True)


def _drop_outside(columns: dict[str, Any], right: list[Any]) -> None:
    """Take away the intervals of cells that a mistake explains, if what undoes it lies outside.

    There it is the mistake that tells the right value, and not the row as the model sees it.
    """
    lower, upper = columns["lower"], columns["upper"]
    for k, said in enumerate(columns["mistake"]):
        if said is not None and lower[k] is not None and not lower[k] <= right[k] <= upper[k]:
            lower[k] = upper[k] = None
