"""Energies, densities and samples of whole rows: a part of `EnergyDetector`."""

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from pscd import fast
from pscd.detector.cell_model import CellModel
from pscd.detector.frames import empty_frame, frame_like
from pscd.detector.neighbourhood import Neighbourhood
from pscd.detector.numbers import NumberEnergy
from pscd.detector.reading import EncodedRows, Reader
from pscd.model import SCORE_BLOCK
from pscd.rng import Stream, generator
from pscd.tables import decode

Floats = NDArray[np.float64]


class RowMethods:
    """What a fitted detector computes of rows; a part of `EnergyDetector`."""

    cells_: CellModel
    reader_: Reader
    numbers_: NumberEnergy | None
    neighbourhood_: Neighbourhood | None
    impossible_: Tensor
    n_rows_: int
    offset_: float

    def _read(self, X: Any) -> EncodedRows:
        raise NotImplementedError

    @torch.no_grad()
    def _energy(self, rows: EncodedRows, *, by_neighbours: bool = False) -> Tensor:
        """E(x) of each row; new and impossible cells cost what they cost by the rule of succession."""
        energy = self._energy_of(self.cells_.forward(rows.x), by_neighbours=by_neighbours)
        if not self.cells_.all_vary:
            energy = energy + math.log(self.n_rows_ + 1) * self.cells_.is_new(rows.x).sum(1)
        if rows.impossible.any():
            rare = -((self.impossible_ + 1) / (self.n_rows_ + 2)).log()
            energy = energy + (rare * rows.impossible).sum(1)
        return energy

    def _energy_of(self, z: Tensor, *, by_neighbours: bool = False) -> Tensor:
        """E of rows as the mixture sees them, `(n, V)`; that of the numbers by neighbours if asked for and fitted."""
        energy = self.cells_.category_energy(z)
        if self.numbers_ is None:
            return energy
        numbers = z[:, self.cells_.numbers]
        if by_neighbours and self.neighbourhood_ is not None:
            return energy + self.neighbourhood_.energy(self.numbers_.whitened(numbers))
        return energy + self.numbers_.energy(numbers)

    def _draw(self, n: int, seed: int) -> Tensor:
        """New rows as the mixture sees them, `(n, V)`: numbers from their energy, then categories given them."""
        z = torch.full((n, len(self.cells_.numbers)), torch.nan, dtype=torch.float64)
        if self.numbers_ is not None:
            z[:, self.cells_.numbers] = self.numbers_.sample(n, seed=seed)
        if self.cells_.numbers.all():
            return z
        return self.cells_.mixture.complete(z, generator(seed, Stream.MISSING_CELLS))

    def _energies(self, X: Any, *, by_neighbours: bool) -> Floats:
        """The energies of rows of any number, in blocks on all cores."""
        rows = self._read(X)
        if len(rows) <= SCORE_BLOCK:
            return self._energy(rows, by_neighbours=by_neighbours).numpy()
        blocks = rows.blocks(SCORE_BLOCK)
        return torch.cat(
            list(fast.in_order(lambda block: self._energy(block, by_neighbours=by_neighbours), blocks))
        ).numpy()

    def energy(self, X: Any) -> Floats:
        """The energy E(x) of each row of `(n, d)`, `(n,)`: low energy is likely."""
        return self._energies(X, by_neighbours=False)

    def score_samples(self, X: Any) -> Floats:
        """Minus the energy that rows are ranked by (see `rank`), `(n,)`: lower is more anomalous."""
        return -self._energies(X, by_neighbours=True)

    def score_batches(self, batches: Iterable[ArrayLike]) -> Iterator[Floats]:
        """The scores of a stream of rows, on all cores and in constant memory.

        Args:
            batches: rows as `score_samples` takes them; a few batches are taken ahead of the results.

        Yields:
            `score_samples` of each batch, in order.

        >>> import numpy as np
        >>> from pscd import EnergyDetector
        >>> x = np.random.default_rng(0).normal(size=(200, 2))
        >>> detector = EnergyDetector(updates=50).fit(x)
        >>> [len(scores) for scores in detector.score_batches([x[:150], x[150:]])]
        [150, 50]
        """
        check_is_fitted(self)
        yield from fast.in_order(self.score_samples, batches)

    def decision_function(self, X: Any) -> Floats:
        """`score_samples(X) - offset_`, `(n,)`: negative for outliers."""
        return self.score_samples(X) - self.offset_

    def predict(self, X: Any) -> NDArray[np.int64]:
        """-1 for outliers and +1 for the others, `(n,)`."""
        return np.where(self.decision_function(X) < 0, -1, 1)

    @torch.no_grad()
    def log_density(self, X: Any) -> Floats:
        """Log density of each row in the units of the data, of its observed cells; constant columns are left out.

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

    def sample(self, n: int = 1, *, seed: int = 0) -> Any:
        """Draw new rows from the model; columns that never varied keep their value.

        The density is smooth: where columns depend on each other tightly, its samples do so more loosely. `pscd.fit`
        learns a density that keeps such relations.

        Args:
            n: number of rows.
            seed: the same number gives the same rows.

        Returns:
            `(n, d)`, in the units of the data: an array if the detector was fitted to one of numbers, otherwise a data
            frame of the library of the training rows, with their types. A detector that was loaded returns frames of
            pandas.
        """
        check_is_fitted(self)
        # A file holds no more of the training rows than their names.
        like = self._like if hasattr(self, "_like") else empty_frame(getattr(self, "feature_names_in_", None))
        x = self.cells_.inverse(self._draw(n, seed)).numpy()
        return frame_like(x, like) if self.reader_.is_plain else decode(x, self.reader_.schema, like=like)
