"""EnergyDetector: density, samples and outlier scores for tables with junk in them, as scikit-learn does it."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Self, TypeGuard

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, OutlierMixin, TransformerMixin
from sklearn.utils import Tags, check_random_state, estimator_html_repr
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from pscd import fast
from pscd.detector.cells import CellModel
from pscd.detector.cleaning import CellMethods
from pscd.detector.gaussian import floors
from pscd.detector.kinds import empty_like, frame_like, named
from pscd.detector.neighbourhood import Neighbourhood
from pscd.detector.numbers import INSIDE, NumberEnergy, fit_numbers
from pscd.detector.reading import Reader, Rows, fitting_frame, has_text, native_frame
from pscd.detector.saving import read_detector, write_detector
from pscd.errors import UserError
from pscd.files import suffix_of
from pscd.html import facts_html
from pscd.mixtures.neighbours import NEIGHBOUR_ROWS
from pscd.model import SCORE_BLOCK
from pscd.rng import Stream, generator
from pscd.run_folder import RunFolder
from pscd.tables import as_frame, read_array, read_frame

Floats = NDArray[np.float64]

RANKS = ("energy", "neighbours", "both")
UPPER = 0.9  # quantile of the training rows that energies and costs are measured by, for rank="both"
SHARPNESS = 3.0  # of the soft maximum: the larger of two that differ by 1 hardly sees the other
N_REFERENCE = 4_000  # samples of the model that energies are compared with
IGNORED = 0.1  # rows that counted less than this are told to be ignored


class EnergyDetector(CellMethods, OutlierMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Outlier detector that ignores the junk among its own training rows.

    An energy-based model q(x), proportional to exp(-E(x)), is trained with pseudo-spherical contrastive
    divergence (Yu et al. 2021): a row counts in proportion to q(x)^gamma, so that rows unlike the majority
    hardly count, and the energy then finds them. E is that of a robust Gaussian, which maximises the gamma-score,
    plus a bounded correction by a network, trained with the same gamma. Columns are first standardised by quantiles,
    and their tails compressed by an asinh.

    Tables may have missing values, and data frames text, flags and dates. A robust mixture of Gaussians times tables of
    categories knows every cell given the others of its row: it marginalises missing cells, adds the energy of the
    categories given the numbers, and tells which cells are wrong (`explain`, `flag_cells`, `suspects`), what should
    stand there (`repair`) and what may stand in the gaps (`impute`, `transform`).

    Args:
        gamma: robustness; 0 is maximum likelihood, where every row counts alike. "auto" takes the largest
            gamma, up to 1, that leaves the rows an effective share of 0.75 under the Gaussian, so that groups
            up to about a fifth of the rows may be ignored; and 0 if hardly any row lies outside that Gaussian,
            or if the plain one is better at telling rows that stand apart.
        contamination: share of the training rows that `predict` calls outliers; "auto": rows with more energy
            than 99 % of the model's own samples, and in any case the strangest hundredth of the rows.
        bound: nats by which the network may correct the Gaussian, up or down. More gives a finer density, and
            lets small dense clusters of junk pass for normal.
        n_updates: updates of the network.
        rank: what `score_samples` ranks rows by.
            "energy": that of the whole row. A far group of up to about a fifth of the rows is strange.
            "neighbours": how far the row lies from the nearest others in the coordinates of the Gaussian, which suits
            tables whose good rows form several groups. A group of more than some 2 sqrt(n) rows is not strange.
            "both" also sees a single wrong cell among hundreds of good ones: a soft maximum of the energy and of the
            cost of the worst cell, each measured by how far training rows lie above their median. On tables whose
            anomalies are whole rows "energy" is better.
        kinds: what columns of a data frame are to be taken for where the look of them misleads, such as
            `{"zip": "category"}`; `pscd.tables.look` says what they are taken for.
        missing: spellings of a missing value beside the usual ones, such as `("999",)`.
        random_state: the same number gives the same result.
        verbose: whether to show a progress line with the time left.

    Attributes:
        gamma_: the gamma used.
        contamination_: estimated share of training rows that the model does not explain: those with more energy
            than 99 % of its samples, less what belongs there.
        sample_weight_: how much each training row counted, from 0 (ignored) to 1.
        offset_: the score below which a row is an outlier.
        n_features_in_: number of columns; `feature_names_in_` has their names if they are strings.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(200, 2))
    >>> x[:4] += 8  # junk
    >>> detector = EnergyDetector(n_updates=50).fit(x)
    >>> sorted(int(i) for i in np.argsort(detector.score_samples(x))[:4])
    [0, 1, 2, 3]
    """

    def __init__(
        self,
        *,
        gamma: float | str = "auto",
        contamination: float | str = "auto",
        bound: float = 2.0,
        n_updates: int = 200,
        rank: str = "energy",
        kinds: Mapping[str, str] | None = None,
        missing: Sequence[str] = (),
        random_state: int | np.random.RandomState | None = 0,
        verbose: bool = False,
    ) -> None:
        self.gamma = gamma
        self.contamination = contamination
        self.bound = bound
        self.n_updates = n_updates
        self.rank = rank
        self.kinds = kinds
        self.missing = missing
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Tags:
        """Missing values, text and categories are welcome."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Learn from rows, junk included.

        Args:
            X: `(n, d)`, at least two rows of numbers, NaN where a value is missing; or with columns of any kind, as a
                data frame of pandas, polars or pyarrow or as an array of objects.
            y: ignored, as scikit-learn has it for detectors.

        Returns:
            The detector itself.

        Raises:
            ValueError: a parameter is out of range, a number of an array is infinite, or all columns are constant.
        """
        self._check_parameters()
        rows = self._read(X, first=True)
        self._like = empty_like(X)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self.cells_ = CellModel.fit(rows.x, self.reader_.levels, seed=seed)
        self.n_rows_ = len(rows.x)
        self.stray_ = rows.stray.sum(0)
        self.numbers_ = self._fit_numbers(rows.x, seed)
        self.gamma_ = 0.0 if self.numbers_ is None else self.numbers_.gaussian.gamma
        self.neighbourhood_ = self._neighbourhood(rows.x, seed)
        energies = self._score(rows)
        self.yardstick_ = self._measure(-energies, rows.x)
        scores = energies if self.neighbourhood_ is None else self._score(rows, by_neighbours=True)
        self._weigh(energies, self._ranked(scores, rows.x))
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
            n_updates=self.n_updates,
            seed=seed,
            floor=floors(columns.spiked),
            verbose=self.verbose,
        )

    def _neighbourhood(self, x: Tensor, seed: int) -> Neighbourhood | None:
        """What rows are ranked by for rank="neighbours", if there are numbers."""
        if self.rank != "neighbours" or self.numbers_ is None:
            return None
        some = torch.randperm(len(x), generator=generator(seed, Stream.DETECTOR_ROWS))[:NEIGHBOUR_ROWS]
        return Neighbourhood.of(self.numbers_.whitened(self.cells_.forward(x[some])[:, self.cells_.numbers]))

    def _read(self, X: ArrayLike, *, first: bool = False) -> Rows:
        """The rows of a table; on the first, find out what its columns are."""
        if not first:
            if not hasattr(self, "offset_"):  # set last; scikit-learn's own check takes ten times as long
                check_is_fitted(self)
            if self._is_plain(X):
                return self.reader_.read(X, X)
        frame = native_frame(X)
        if first:
            if frame is not None and len(frame) < 2:
                raise ValueError(f"Found array with {len(frame)} sample(s) while a minimum of 2 is required")
            looked_at = frame is not None or has_text(X)
            self.reader_ = Reader.of(X, kinds=self.kinds, missing=self.missing) if looked_at else Reader(0)
        if self.reader_.schema is not None:
            if first:
                validate_data(self, X, skip_check_array=True)
            return self.reader_.read(X)
        numbers = validate_data(
            self,
            X,
            reset=first,
            dtype=[np.float64, np.float32],
            ensure_all_finite="allow-nan" if frame is None else False,  # in a frame an infinite number is a wrong cell
            ensure_min_samples=2 if first else 1,
        )
        self.reader_ = Reader(numbers.shape[1])
        return self.reader_.read(X, numbers)

    def _is_plain(self, X: ArrayLike) -> TypeGuard[NDArray[np.float64]]:
        """Whether scikit-learn would take the rows as they are; asking it takes longer than the score of a row."""
        return (
            type(X) is np.ndarray
            and X.dtype in (np.float64, np.float32)
            and X.ndim == 2
            and len(X) > 0
            and X.shape[1] == self.n_features_in_
            and self.reader_.schema is None
            and not hasattr(self, "feature_names_in_")
            and not np.isinf(X).any()
        )

    def _check_parameters(self) -> None:
        gamma, share = self.gamma, self.contamination
        counts = isinstance(self.n_updates, Integral) and not isinstance(self.n_updates, bool)
        checks = {
            "gamma": (gamma == "auto" or (_is_number(gamma) and gamma >= 0), '"auto" or a number from 0 on'),
            "contamination": (share == "auto" or (_is_number(share) and 0 < share <= 0.5), '"auto" or in (0, 0.5]'),
            "bound": (_is_number(self.bound) and self.bound > 0, "a number above 0"),
            "n_updates": (counts and self.n_updates >= 1, "a whole number from 1 on"),
            "rank": (self.rank in RANKS, " or ".join(f'"{rank}"' for rank in RANKS)),
        }
        for name, (right, wanted) in checks.items():
            if not right:
                raise ValueError(f"{name} must be {wanted}, got {getattr(self, name)!r}")

    def _measure(self, energy: Tensor, x: Tensor) -> tuple[float, ...]:
        """Median of energy and of the worst cell's cost among the training rows, and how far up a tenth of them lie."""
        if self.rank != "both":
            return ()
        found = []
        for values in (energy, self._worst_cost(x)):
            middle, upper = float(values.median()), float(values.quantile(UPPER))
            found += [middle, max(upper - middle, 1e-9)]
        return tuple(found)

    def _worst_cost(self, x: Tensor) -> Tensor:
        """What the worst cell of each row costs, `(n,)`."""
        z = self.cells_.forward(x)
        return self.cells_.mixture.cells(z, self.cells_.mixture.trusted(z)).cost.amax(1)

    def _ranked(self, score: Tensor, x: Tensor) -> Tensor:
        """What rows are ranked by: the scores as they are, or with rank="both" those of energy and worst cell."""
        if self.rank != "both":
            return score
        middle, width, cost_middle, cost_width = self.yardstick_
        above = torch.stack([(-score - middle) / width, (self._worst_cost(x) - cost_middle) / cost_width])
        return -(middle + width * (SHARPNESS * above).logsumexp(0) / SHARPNESS)

    @torch.no_grad()
    def _weigh(self, energies: Tensor, scores: Tensor) -> None:
        """Compare the scores of the training rows with those of the model's own samples."""
        drawn = self._draw(N_REFERENCE, seed=0)
        own = self._ranked(self._score_of(drawn, by_neighbours=True), self.cells_.inverse(drawn))
        edge = float(own.quantile(1 - INSIDE))
        # If a share of the rows is junk outside, and the others lie outside as often as the model's samples do:
        outside = float((scores < edge).double().mean())
        self.contamination_ = max(0.0, (outside - (1 - INSIDE)) / INSIDE)
        share = 1 - INSIDE if self.contamination == "auto" else float(self.contamination)
        threshold = float(np.percentile(scores.numpy(), 100 * share))
        self.offset_ = max(edge, threshold) if self.contamination == "auto" else threshold
        # The row in the middle, and whatever is more likely, counts fully.
        self.sample_weight_ = torch.exp(self.gamma_ * (energies - energies.median())).clamp_max(1).numpy()

    @torch.no_grad()
    def _score(self, rows: Rows, *, by_neighbours: bool = False) -> Tensor:
        """-E(x) of each row; cells that are new or stray cost what they cost by the rule of succession."""
        score = self._score_of(self.cells_.forward(rows.x), by_neighbours=by_neighbours)
        if not self.cells_.all_vary:
            score = score - math.log(self.n_rows_ + 1) * self.cells_.news(rows.x).sum(1)
        if rows.stray.any():
            rare = -((self.stray_ + 1) / (self.n_rows_ + 2)).log()
            score = score - (rare * rows.stray).sum(1)
        return score

    def _score_of(self, z: Tensor, *, by_neighbours: bool = False) -> Tensor:
        """-E of rows as the mixture sees them, `(n, V)`; that of the numbers by neighbours if asked for and fitted."""
        energy = self.cells_.category_energy(z)
        if self.numbers_ is not None:
            numbers = z[:, self.cells_.numbers]
            if by_neighbours and self.neighbourhood_ is not None:
                energy = energy + self.neighbourhood_.energy(self.numbers_.whitened(numbers))
            else:
                energy = energy + self.numbers_.energy(numbers)
        return -energy

    def _draw(self, n: int, seed: int) -> Tensor:
        """New rows as the mixture sees them, `(n, V)`: numbers from their energy, then categories given them."""
        z = torch.full((n, len(self.cells_.numbers)), torch.nan, dtype=torch.float64)
        if self.numbers_ is not None:
            z[:, self.cells_.numbers] = self.numbers_.sample(n, seed=seed)
        if self.cells_.numbers.all():
            return z
        return self.cells_.mixture.complete(z, generator(seed, Stream.MISSING_CELLS))

    def score_samples(self, X: ArrayLike) -> Floats:
        """-E(x) of each row of `(n, d)`, `(n,)`: the lower, the stranger, as scikit-learn has it (see `rank`)."""
        rows = self._read(X)
        if len(rows.x) <= SCORE_BLOCK:
            return self._scored(rows).numpy()
        return torch.cat(list(fast.in_order(self._scored, rows.blocks(SCORE_BLOCK)))).numpy()

    def score_batches(self, batches: Iterable[ArrayLike]) -> Iterator[Floats]:
        """The scores of a stream of rows, on all cores and in constant memory.

        Args:
            batches: rows as `score_samples` takes them; a few batches are taken ahead of the results.

        Yields:
            `score_samples` of each batch, in order.

        >>> import numpy as np
        >>> x = np.random.default_rng(0).normal(size=(200, 2))
        >>> detector = EnergyDetector(n_updates=50).fit(x)
        >>> [len(scores) for scores in detector.score_batches([x[:150], x[150:]])]
        [150, 50]
        """
        check_is_fitted(self)
        yield from fast.in_order(self.score_samples, batches)

    def _scored(self, rows: Rows) -> Tensor:
        """The scores that rows are ranked by, of a block of rows."""
        return self._ranked(self._score(rows, by_neighbours=True), rows.x)

    def decision_function(self, X: ArrayLike) -> Floats:
        """`score_samples(X) - offset_`, `(n,)`: negative for outliers."""
        return self.score_samples(X) - self.offset_

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """-1 for outliers and +1 for the others, `(n,)`."""
        return np.where(self.decision_function(X) < 0, -1, 1)

    @torch.no_grad()
    def log_density(self, X: ArrayLike) -> Floats:
        """Log density of each row in the units of the data, of the cells that are there; constant columns are left out.

        The normalising constant is estimated by importance sampling from the Gaussian. The estimate is good where the
        network is a small correction of it; in high dimension it has a large variance.

        Args:
            X: rows, `(n, d)`.

        Returns:
            Nats, `(n,)`.
        """
        x = self._read(X).x
        z = self.cells_.forward(x)
        log_density = self.cells_.category_log_prob(z)
        if self.numbers_ is not None and self.cells_.columns is not None:
            log_density = log_density + self.numbers_.log_density(z[:, self.cells_.numbers])
            log_density = log_density + self.cells_.columns.log_slope(x[:, self.cells_.levels == 0])
        return log_density.numpy()

    def sample(self, n_samples: int = 1, *, random_state: int | np.random.RandomState | None = 0) -> Any:
        """New rows of the model; columns that never varied keep their value.

        A detector is smooth on purpose: where columns depend on each other tightly, its rows do so more loosely than
        those of the table. `pscd.fit` learns a density whose samples keep such relations.

        Args:
            n_samples: number of rows.
            random_state: the same number gives the same rows.

        Returns:
            `(n_samples, d)`, in the units of the data: an array if the detector was fitted to one of numbers, otherwise
            a data frame of the library of the training rows, with their types if they are more than numbers. A detector
            that was loaded gives frames of pandas.
        """
        check_is_fitted(self)
        z = self._draw(n_samples, seed=int(check_random_state(random_state).randint(2**31 - 1)))
        # A file knows no more of the training rows than their names.
        like = self._like if hasattr(self, "_like") else named(getattr(self, "feature_names_in_", None))
        rows = self.reader_.decode(self.cells_.inverse(z), like)
        return frame_like(rows, like) if self.reader_.schema is None else rows

    def read_file(self, path: Path | str, **options: Any) -> Any:
        """A file with the columns that the detector was fitted to, as a pandas frame that its methods take.

        Args:
            path: a text file, `.parquet`, `.xlsx`, `.npy` or `.npz`.
            options: as `pscd.tables.read_frame` takes them.

        Returns:
            All columns of the file. Text stays text, where the detector knows what to make of it.

        Raises:
            UserError: the file cannot be read, or has other columns.
        """
        check_is_fitted(self)
        path = Path(path)
        array = suffix_of(path) in (".npy", ".npz")
        if array:
            x = read_array(path)
            frame = as_frame(x.reshape(len(x), -1)).to_native()
        else:
            frame = read_frame(path, **options)
        names = [str(name) for name in getattr(self, "feature_names_in_", range(self.n_features_in_))]
        try:
            return fitting_frame(frame, self.reader_, names, array=array)
        except UserError as error:
            raise UserError(f"{path}: {error}") from None

    def _repr_html_(self) -> str:
        """What a notebook shows: what was learnt, if anything was, above scikit-learn's own list of parameters."""
        if not hasattr(self, "cells_"):
            return str(estimator_html_repr(self))
        ignored = int((self.sample_weight_ < IGNORED).sum())
        facts = {
            "learnt from": f"{self.n_rows_:,} rows of {self.n_features_in_:,} columns",
            "gamma": f"{self.gamma_:.3g}",
            "ignored": f"{ignored:,} rows counted less than a tenth",
            "estimated contamination": f"{self.contamination_:.1%}",
            "outlier": f"energy above {-self.offset_:.4g}",
        }
        return facts_html("Detector of strange rows", facts) + str(estimator_html_repr(self))

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    def save(self, folder: Path | str) -> None:
        """Write the fitted detector to two files of a folder, without pickle; `EnergyDetector.load` reads them.

        The second file holds a checksum of the network in the first, so that files of two fits are not mixed up.
        """
        check_is_fitted(self)
        write_detector(self, RunFolder(Path(folder)))

    @classmethod
    def load(cls, folder: Path | str) -> Self:
        """The detector that `save` wrote.

        Returns:
            The fitted detector.

        Raises:
            UserError: there is none, a file is damaged, or the two files are of different fits.
        """
        run = RunFolder(Path(folder))
        if not run.detector.is_file():
            raise UserError(f"{folder}: holds no fitted detector; pscd detect makes one")
        return read_detector(cls, run)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
