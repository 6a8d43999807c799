"""EnergyDetector: density, samples and outlier scores for contaminated tables, as a scikit-learn estimator."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Self, TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, OutlierMixin, TransformerMixin
from sklearn.utils import Tags, check_random_state, estimator_html_repr
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from pscd.detector.cell_model import CellModel
from pscd.detector.cells import CellMethods
from pscd.detector.frames import empty_like, has_text, native_frame
from pscd.detector.neighbourhood import Neighbourhood
from pscd.detector.numbers import NumberEnergy, fit_numbers
from pscd.detector.reading import EncodedRows, Reader
from pscd.detector.rows import RowMethods
from pscd.detector.save import read_detector, write_detector
from pscd.errors import UserError
from pscd.html import facts_html
from pscd.mixtures.neighbours import NEIGHBOUR_ROWS
from pscd.rng import Stream, generator
from pscd.run_folder import RunFolder
from pscd.tables import TableFile

Floats = NDArray[np.float64]

RANKS = ("energy", "neighbours")


@dataclass(frozen=True)
class ThresholdSettings:
    """How the threshold of outliers is chosen."""

    n_samples: int = 4_000  # of the model, that the training rows are compared with
    inside: float = 0.99  # share of these samples that are not outliers
    ignored: float = 0.1  # weight of a row below which it is reported as ignored


THRESHOLD = ThresholdSettings()


class EnergyDetector(RowMethods, CellMethods, OutlierMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Outlier detector for tables, robust to outliers and wrong cells in its training rows.

    An energy-based model q(x), proportional to exp(-E(x)), is trained with pseudo-spherical contrastive
    divergence (Yu et al. 2021): a row is weighted in proportion to q(x)^gamma, so that rows unlike the majority hardly
    count, and their energy is high. E is that of a Gaussian, fitted beside a background of outliers, plus a bounded
    correction by a network, trained with gamma. Columns are first standardised by quantiles, and their tails
    compressed by an asinh.

    Tables may have missing values, and data frames text, booleans and dates. A robust mixture of Gaussians times tables
    of categories gives the distribution of every cell given the others of its row: it marginalises missing cells, adds
    the energy of the categories given the numbers, and judges single cells (`cells`, `explain`, `repair`, `impute`,
    `transform`).

    Methods that take rows accept an array, a data frame of pandas, polars or pyarrow, or what `read` returned.

    Args:
        gamma: robustness; 0 is maximum likelihood, where every row has the same weight. Above 0, groups of up to about
            a fifth of the rows may be ignored.
        contamination: share of the training rows that `predict` calls outliers; "auto": rows with more energy
            than 99 % of the model's own samples, and in any case the 1 % of highest energy.
        bound: nats by which the network may correct the Gaussian, up or down. More gives a finer density, and
            lets small dense clusters of outliers pass for normal.
        updates: updates of the network.
        rank: what `score_samples` ranks rows by.
            "energy": that of the whole row. A far group of up to about a fifth of the rows is anomalous.
            "neighbours": how far the row lies from the nearest others in the coordinates of the Gaussian, which suits
            tables whose good rows form several groups. A group of more than some 2 sqrt(n) rows is not anomalous.
        kinds: corrections of the inferred kinds of columns, such as `{"zip": "category"}`; see `pscd.tables.look`.
        missing: spellings of a missing value beside the usual ones, such as `("999",)`.
        random_state: the same number gives the same result.
        verbose: whether to show a progress bar.

    Attributes:
        contamination_: estimated share of training rows that the model does not explain: those with more energy
            than 99 % of its samples, less what belongs there.
        sample_weight_: weight of each training row, from 0 (ignored) to 1.
        offset_: the score below which a row is an outlier.
        n_features_in_: number of columns; `feature_names_in_` has their names if they are strings.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(200, 2))
    >>> x[:4] += 8  # outliers
    >>> detector = EnergyDetector(updates=50).fit(x)
    >>> sorted(int(i) for i in np.argsort(detector.score_samples(x))[:4])
    [0, 1, 2, 3]
    """

    def __init__(
        self,
        *,
        gamma: float = 0.5,
        contamination: float | str = "auto",
        bound: float = 2.0,
        updates: int = 200,
        rank: str = "energy",
        kinds: Mapping[str, str] | None = None,
        missing: Sequence[str] = (),
        random_state: int | np.random.RandomState | None = 0,
        verbose: bool = False,
    ) -> None:
        self.gamma = gamma
        self.contamination = contamination
        self.bound = bound
        self.updates = updates
        self.rank = rank
        self.kinds = kinds
        self.missing = missing
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Tags:
        """Missing values, text and categories are allowed."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags

    def fit(self, X: Any, y: object = None) -> Self:
        """Learn from rows, outliers included.

        Args:
            X: `(n, d)`, at least two rows of numbers, NaN where a value is missing; or with columns of any kind, as a
                data frame or as an array of objects.
            y: ignored.

        Returns:
            The detector itself.

        Raises:
            ValueError: a parameter is out of range, a number of an array is infinite, or all columns are constant.
        """
        self._check_parameters()
        rows = X if isinstance(X, EncodedRows) else self._inspect(X)
        validate_data(self, rows.table, skip_check_array=True)  # sets names and number of columns
        self.reader_ = rows.reader
        self._like = empty_like(rows.table)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self.cells_ = CellModel.fit(rows.x, self.reader_.levels, seed=seed)
        self.n_rows_ = len(rows)
        self.impossible_ = rows.impossible.sum(0)
        self.numbers_ = self._fit_numbers(rows.x, seed)
        self.neighbourhood_ = self._neighbourhood(rows.x, seed)
        energies = self._energy(rows)
        self._weigh(energies, energies if self.neighbourhood_ is None else self._energy(rows, by_neighbours=True))
        return self

    def _fit_numbers(self, x: Tensor, seed: int) -> NumberEnergy | None:
        """The energy of the numbers; None if none varies."""
        columns = self.cells_.columns
        if columns is None:
            return None
        z = self.cells_.forward(x)
        if z.isnan().any():
            # Draws, not means: means would make the rows look less varied than they are.
            z = self.cells_.mixture.complete(z, generator(seed, Stream.MISSING_CELLS))
        return fit_numbers(
            z[:, self.cells_.numbers],
            gamma=self.gamma,
            bound=self.bound,
            updates=self.updates,
            seed=seed,
            spiked=columns.spiked,
            verbose=self.verbose,
        )

    def _neighbourhood(self, x: Tensor, seed: int) -> Neighbourhood | None:
        """What rows are ranked by for rank="neighbours", if there are numbers."""
        if self.rank != "neighbours" or self.numbers_ is None:
            return None
        some = torch.randperm(len(x), generator=generator(seed, Stream.DETECTOR_ROWS))[:NEIGHBOUR_ROWS]
        return Neighbourhood.of(self.numbers_.whitened(self.cells_.forward(x[some])[:, self.cells_.numbers]))

    def read(self, X: Any) -> EncodedRows:
        """Encode a table once, for several calls of methods, `fit` among them.

        Args:
            X: a table; the kinds of its columns are those of the training rows, or inferred before `fit`.

        Returns:
            Rows that all methods accept in place of the table.

        >>> import numpy as np
        >>> detector = EnergyDetector(updates=1)
        >>> rows = detector.read(np.random.default_rng(0).normal(size=(20, 2)))
        >>> detector.fit(rows).predict(rows).shape
        (20,)
        """
        return self._read(X) if hasattr(self, "offset_") else self._inspect(X)

    def _inspect(self, X: Any) -> EncodedRows:
        """The rows of a table whose columns are not known yet."""
        frame = native_frame(X)
        if frame is not None and len(frame) < 2:
            raise ValueError(f"Found array with {len(frame)} sample(s) while a minimum of 2 is required")
        if frame is not None or has_text(X):
            reader = Reader.of(X, kinds=self.kinds, missing=self.missing)
            return reader.read(X, self._numbers(X, reset=True) if reader.is_plain else None)
        numbers = self._numbers(X, reset=True)
        reader = Reader.of(numbers, kinds=self.kinds, missing=self.missing)
        return reader.read(numbers if reader.is_plain else X)

    def _read(self, X: Any) -> EncodedRows:
        """The rows of a table with the columns of the training rows."""
        if isinstance(X, EncodedRows):
            check_is_fitted(self)
            if X.reader.schema.n_levels != self.reader_.schema.n_levels:
                raise ValueError("these rows have other columns than those that the detector was fitted to")
            return X
        if not hasattr(self, "offset_"):  # set last; scikit-learn's own check takes ten times as long
            check_is_fitted(self)
        if not self.reader_.is_plain:
            return self.reader_.read(X)
        return self.reader_.read(X, None if self._is_plain(X) else self._numbers(X, reset=False))

    def _numbers(self, X: Any, *, reset: bool) -> NDArray[np.float64]:
        """A table of numbers alone, checked by scikit-learn."""
        numbers: NDArray[np.float64] = validate_data(
            self,
            X,
            reset=reset,
            dtype=[np.float64, np.float32],
            # In a frame an infinite number is a wrong cell.
            ensure_all_finite="allow-nan" if native_frame(X) is None else False,
            ensure_min_samples=2 if reset else 1,
        )
        return numbers

    def _is_plain(self, X: Any) -> TypeGuard[NDArray[np.float64]]:
        """Whether scikit-learn would take the rows as they are; asking it takes longer than the score of a row."""
        return (
            type(X) is np.ndarray
            and X.dtype in (np.float64, np.float32)
            and X.ndim == 2
            and len(X) > 0
            and X.shape[1] == self.n_features_in_
            and not hasattr(self, "feature_names_in_")
            and not np.isinf(X).any()
        )

    def _check_parameters(self) -> None:
        share = self.contamination
        is_whole = isinstance(self.updates, Integral) and not isinstance(self.updates, bool)
        checks = {
            "gamma": (_is_number(self.gamma) and self.gamma >= 0, "a number from 0 on"),
            "contamination": (share == "auto" or (_is_number(share) and 0 < share <= 0.5), '"auto" or in (0, 0.5]'),
            "bound": (_is_number(self.bound) and self.bound > 0, "a number above 0"),
            "updates": (is_whole and self.updates >= 1, "a whole number from 1 on"),
            "rank": (self.rank in RANKS, " or ".join(f'"{rank}"' for rank in RANKS)),
        }
        for name, (is_right, wanted) in checks.items():
            if not is_right:
                raise ValueError(f"{name} must be {wanted}, got {getattr(self, name)!r}")

    @torch.no_grad()
    def _weigh(self, energies: Tensor, ranking: Tensor) -> None:
        """Compare the training rows with the model's own samples: contamination, threshold and weights."""
        own = self._energy_of(self._draw(THRESHOLD.n_samples, seed=0), by_neighbours=True)
        edge = float(own.quantile(THRESHOLD.inside))
        # If a share of the rows is contamination outside, and the others lie outside as often as the model's samples:
        outside = float((ranking > edge).double().mean())
        self.contamination_ = max(0.0, (outside - (1 - THRESHOLD.inside)) / THRESHOLD.inside)
        share = 1 - THRESHOLD.inside if self.contamination == "auto" else float(self.contamination)
        offset = float(np.percentile(-ranking.numpy(), 100 * share))
        self.offset_ = max(-edge, offset) if self.contamination == "auto" else offset
        # The row of median energy, and whatever is more likely, has full weight.
        self.sample_weight_ = torch.exp(-self.gamma * (energies - energies.median())).clamp_max(1).numpy()

    def reader_for(self, file: TableFile) -> Reader:
        """How to read a file, at once or in blocks.

        Args:
            file: what `pscd.tables.open_table` returned.

        Returns:
            A reader; its method `read` encodes data frames with the columns of the file.

        Raises:
            UserError: the file has other columns.
        """
        check_is_fitted(self)
        return self.reader_.for_file(file, by_place=not hasattr(self, "feature_names_in_"))

    @property
    def columns(self) -> list[str]:
        """Names of the columns that a table needs; x0, x1, ... for a detector that was fitted to an array."""
        return self.reader_.columns

    @property
    def n_ignored(self) -> int:
        """Number of training rows with hardly any weight."""
        return int((self.sample_weight_ < THRESHOLD.ignored).sum())

    def _repr_html_(self) -> str:
        """A summary of the fit for notebooks, above scikit-learn's list of parameters."""
        if not hasattr(self, "cells_"):
            return str(estimator_html_repr(self))
        facts = {
            "learnt from": f"{self.n_rows_:,} rows of {self.n_features_in_:,} columns",
            "gamma": f"{self.gamma:.3g}",
            "ignored": f"{self.n_ignored:,} rows with a weight below {THRESHOLD.ignored:g}",
            "estimated contamination": f"{self.contamination_:.1%}",
            "outlier": f"energy above {-self.offset_:.4g}",
        }
        return facts_html("Outlier detector", facts) + str(estimator_html_repr(self))

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    def save(self, folder: Path | str) -> None:
        """Write the fitted detector to two files of a folder, without pickle; `EnergyDetector.load` reads them.

        Args:
            folder: is made if it does not exist.

        Raises:
            UserError: it cannot be written.
        """
        check_is_fitted(self)
        write_detector(self, RunFolder(Path(folder)))

    @classmethod
    def load(cls, folder: Path | str) -> Self:
        """Read the detector that `save` wrote.

        Returns:
            The fitted detector.

        Raises:
            UserError: the folder holds no detector, a file is damaged, or the two files are of different fits.
        """
        run = RunFolder(Path(folder))
        if not run.detector.is_file():
            raise UserError(f"{folder}: holds no fitted detector; pscd detect makes one")
        detector: Self = read_detector(cls, run)
        return detector


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
