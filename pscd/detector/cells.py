"""Single cells of a table: which are wrong or missing, and what is to be expected there."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import _check_feature_names_in
from torch import Tensor

from pscd.detector.cell_model import CellModel
from pscd.detector.frames import labels, row_labels
from pscd.detector.reading import EncodedRows, Reader
from pscd.mixtures.cells import Cells, trusted_cells
from pscd.rng import Stream, generator

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class CellSettings:
    """How cells are judged."""

    distrusted: float = 1e-3  # share of right cells that are not relied on for the other cells of their row
    prior: float = 0.01  # probability that a cell is wrong, before its value is looked at
    impossible: float = 50.0  # nats for a word among numbers: more than any value of a density costs in practice


SETTINGS = CellSettings()


def confidence_of(surprise: Tensor, prior: float = SETTINGS.prior) -> Tensor:
    """Probability that a cell is wrong, given its surprise -log p."""
    # The Bayes factor of a right against a wrong cell is at least -e p log p (Sellke, Bayarri and Berger 2001); it is 1
    # where p is larger than 1/e.
    log_factor = torch.where(surprise > 1, 1 + surprise.clamp(min=1).log() - surprise, 0.0)
    return torch.sigmoid(math.log(prior / (1 - prior)) - log_factor)


@dataclass(frozen=True)
class Judged:
    """The cells of rows as a detector sees them, `(n, d)` each; confidence and surprise of missing cells are 0."""

    cells: Cells  # the columns that the mixture sees, given the trusted others of their rows
    cost: Tensor  # nats by which a cell is less likely than the likeliest value
    confidence: Tensor  # probability that a cell is wrong
    surprise: Tensor  # minus the log of the probability of a value at least as unlikely


class CellMethods:
    """What a fitted detector computes of cells; a part of `EnergyDetector`."""

    cells_: CellModel
    reader_: Reader
    n_rows_: int

    def _read(self, X: Any) -> EncodedRows:
        raise NotImplementedError

    def cells(self, X: Any, *, confidence: float = 0.5, level: float = 0.9, id: str | None = None) -> "pd.DataFrame":
        """The wrong and the missing cells of a table, with what is to be expected there.

        A cell is judged given those cells of its row that can be trusted. The confidence is that of a Bayes factor of
        its surprise and a prior of one wrong cell in a hundred; a word among numbers is certainly wrong.

        Args:
            X: rows, `(n, d)`, a table or what `read` returned.
            confidence: least probability of a cell that is listed as wrong, between 0 and 1; 0 lists all cells.
            level: probability that a right value lies in its interval.
            id: column whose values name the rows; None: the index of a pandas frame, otherwise 0, 1, ...

        Returns:
            One row a cell: `row`, `column`, `value`, `problem` ("wrong" or "missing"), `suggestion` (the conditional
            mean, or the likeliest category), `low` and `high` (an interval that holds the suggestion, of numbers and
            dates) and `confidence` (that the cell is wrong; 1 for missing cells). Wrong cells come first, the surest at
            the top. Values are in the format of the table.

        Raises:
            ValueError: a probability is out of range, or there is no such column.

        >>> import numpy as np, pandas as pd
        >>> from pscd import EnergyDetector
        >>> frame = pd.DataFrame(np.random.default_rng(0).normal(size=(200, 1)) @ [[1.0, 1.0]], columns=["a", "b"])
        >>> frame.loc[7, "a"] = 50.0
        >>> EnergyDetector(updates=1).fit(frame).cells(frame)[["row", "column", "value", "problem"]]
           row column  value problem
        0    7      a   50.0   wrong
        """
        import pandas as pd

        _check_probability("level", level)
        rows = self._read(X)
        judged = self._judge(rows)
        wrong = self._wrong(judged, confidence)
        where = wrong | rows.missing
        some, i, j = self._places(where)
        suggestion = self._suggested(rows, judged, where)
        low, high = self._intervals(judged, where, suggestion, level)
        at = np.searchsorted(some, i)
        tables = [self.reader_.spelled(rows.table, x[some]) for x in (suggestion, low, high)]
        names, index = labels(rows.table, self.reader_.names(rows.table)), row_labels(rows.table, len(rows), id)
        chosen = [[table[c][r] for r, c in zip(at, j, strict=True)] for table in tables]
        missing = rows.missing[i, j].numpy()
        listed = pd.DataFrame(
            {
                "row": [index[r] for r in i],
                "column": [names[c] for c in j],
                "value": self.reader_.cells(rows, i, j),
                "problem": np.where(missing, "missing", "wrong").tolist(),
                **dict(zip(("suggestion", "low", "high"), chosen, strict=True)),
                "confidence": np.where(missing, 1.0, judged.confidence[i, j].numpy()),
            }
        )
        order = np.lexsort((-judged.surprise[i, j].numpy(), missing))
        return listed.iloc[order].reset_index(drop=True)

    def explain(self, X: Any) -> Any:
        """The contribution of each cell to the energy of its row, in nats, given the trusted other cells.

        It is log p(likeliest value | others) - log p(value | others) under the robust mixture: z^2 / 2 for a number z
        deviations away from its expectation.

        Args:
            X: rows, `(n, d)`, a table or what `read` returned.

        Returns:
            `(n, d)`, a data frame if the table is one; 0 for missing cells and for columns that are left out.
        """
        rows = self._read(X)
        return self.reader_.labelled(rows, self._judge(rows).cost.numpy())

    def repair(self, X: Any, *, confidence: float = 0.5) -> Any:
        """The table with the suggestions of `cells` in place of wrong cells.

        Args:
            X: rows, `(n, d)`, a table or what `read` returned.
            confidence: least probability of a cell that is replaced.

        Returns:
            A table of the same kind; missing cells stay missing (`transform` fills them).
        """
        rows = self._read(X)
        judged = self._judge(rows)
        wrong = self._wrong(judged, confidence)
        return self.reader_.replaced(rows, self._suggested(rows, judged, wrong), wrong)

    def impute(self, X: Any, *, n: int = 5, seed: int = 0) -> list[Any]:
        """Draw the missing cells given the trusted others: multiple imputation.

        Args:
            X: rows, `(n, d)`, a table or what `read` returned.
            n: number of completed tables.
            seed: the same number gives the same draws.

        Returns:
            Tables of the same kind. Words in columns of numbers are replaced too, all other cells are as they were.

        Raises:
            ValueError: n is not positive.
        """
        if n < 1:
            raise ValueError(f"n must be at least 1, got {n}")
        rows = self._read(X)
        where = rows.missing | rows.impossible
        if not where.any():
            return [self.reader_.replaced(rows, rows.x, where) for _ in range(n)]
        z = self.cells_.forward(rows.x)
        z = torch.where(trusted_cells(self.cells_.mixture, z, SETTINGS.distrusted), z, torch.nan)
        rng = generator(seed, Stream.MISSING_CELLS)
        return [
            self.reader_.replaced(rows, self.cells_.inverse(self.cells_.mixture.complete(z, rng)), where)
            for _ in range(n)
        ]

    def transform(self, X: Any) -> Any:
        """The table with its missing cells drawn once given the others, for a step of a `Pipeline`."""
        return self.impute(X, n=1)[0]

    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> NDArray[np.object_]:
        """Names of the columns that `transform` returns, which are those that it receives."""
        return _check_feature_names_in(self, input_features)

    @torch.no_grad()
    def _judge(self, rows: EncodedRows) -> Judged:
        """Cost and confidence of all cells."""
        model, by_column = self.cells_, self.reader_.by_column
        z = model.forward(rows.x)
        cells = Cells.of(model.mixture, z, trusted_cells(model.mixture, z, SETTINGS.distrusted))
        # By the rule of succession, a constant column has a new value with probability 1 / (n + 1).
        new = math.log(self.n_rows_ + 1) * model.is_new(rows.x)
        cost, surprise = (by_column(model.spread(values) + new) for values in (cells.cost, cells.surprise))
        confidence = confidence_of(surprise).masked_fill(rows.impossible, 1.0).masked_fill(rows.missing, 0.0)
        return Judged(
            cells,
            cost.masked_fill(rows.impossible, SETTINGS.impossible),
            confidence,
            surprise.masked_fill(rows.impossible, math.inf),
        )

    def _wrong(self, judged: Judged, confidence: float) -> Tensor:
        _check_probability("confidence", confidence)
        return (judged.confidence >= confidence) & self.reader_.is_learnt

    @staticmethod
    def _places(where: Tensor) -> tuple[NDArray[np.int_], NDArray[np.int_], NDArray[np.int_]]:
        """The rows with such cells, and row and column of each cell."""
        i, j = (index.numpy() for index in where.nonzero(as_tuple=True))
        return np.unique(i), i, j

    @torch.no_grad()
    def _suggested(self, rows: EncodedRows, judged: Judged, where: Tensor) -> Tensor:
        """Conditional means and likeliest categories of the rows, `(n, D)`, and what was meant by misspelt ones."""
        suggested = self.cells_.inverse(judged.cells.mean)
        if (where & rows.impossible).any():
            self.reader_.correct_spelling(rows, suggested)
        return suggested

    @torch.no_grad()
    def _intervals(self, judged: Judged, where: Tensor, suggested: Tensor, level: float) -> tuple[Tensor, Tensor]:
        """Lower and upper ends around the suggestions, `(n, D)`; NaN for categories and cells outside `where`."""
        # The other parts of a date, such as its weekday, are those of the suggestion.
        reader, model = self.reader_, self.cells_
        parts = where[:, reader.sources]
        ends = [model.inverse(end) for end in judged.cells.quantiles(level, parts[:, model.varies])]
        dates = torch.isin(reader.sources, reader.sources[reader.is_ordered & ~reader.plain_numbers])
        low, high = (
            torch.where(reader.is_ordered, pick(end, suggested), torch.where(dates, suggested, torch.nan))
            for pick, end in zip((torch.fmin, torch.fmax), ends, strict=True)
        )
        return low.masked_fill(~parts, torch.nan), high.masked_fill(~parts, torch.nan)


def _check_probability(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must be between 0 and 1, got {value}")
