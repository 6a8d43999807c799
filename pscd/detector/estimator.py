"""EnergyDetector: density, samples and outlier scores for tables with junk in them, as scikit-learn does it."""

import copy
import json
import math
from numbers import Integral, Real
from pathlib import Path
from typing import Self, TypeGuard

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, OutlierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from pscd.config import TrainConfig
from pscd.coordinates import LINEAR, SPIKED_LINEAR, Coordinates
from pscd.detector.gaussian import Gaussian, fit_gaussian, floors, majority, silverman
from pscd.energies import Correction
from pscd.errors import UserError
from pscd.files import locked, read_tensors, reading, tensors_digest, under, write_tensors, writing_to
from pscd.mixtures import Mixture
from pscd.model import SCORE_BLOCK, Model
from pscd.objectives import PseudoSpherical
from pscd.rng import Stream, generator
from pscd.run_folder import RunFolder
from pscd.training.loop import fit

Floats = NDArray[np.float64]

AUTO_SHARE = 0.75  # effective share of the rows that gamma="auto" keeps
GAUSSIAN_ROWS = 20_000  # rows that the Gaussian base is fitted to, at most
N_REFERENCE = 4_000  # samples of the model that energies are compared with
N_NORMALISER = 20_000  # draws for the normalising constant
CLEAN = 0.05  # share of rows outside the Gaussian of the majority below which gamma="auto" is 0
FITTED = ("gamma_", "contamination_", "offset_", "n_rows_")  # numbers that a file keeps
INSIDE = 0.99  # share of the model's samples that counts as its inside


class EnergyDetector(OutlierMixin, BaseEstimator):  # type: ignore[misc]
    """Outlier detector that ignores the junk among its own training rows.

    An energy-based model q(x), proportional to exp(-E(x)), is trained with pseudo-spherical contrastive
    divergence (Yu et al. 2021): a row counts in proportion to q(x)^gamma, so that rows unlike the majority
    hardly count, and the energy then finds them. E is that of a robust Gaussian, which maximises the gamma-score,
    plus a bounded correction by a network, trained with the same gamma. Columns are first standardised by quantiles,
    and their tails compressed by an asinh.

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
        n_updates: int = 600,
        random_state: int | np.random.RandomState | None = 0,
        verbose: bool = False,
    ) -> None:
        self.gamma = gamma
        self.contamination = contamination
        self.bound = bound
        self.n_updates = n_updates
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Learn from rows, junk included.

        Args:
            X: `(n, d)`, at least two rows of finite numbers.
            y: ignored, as scikit-learn has it for detectors.

        Returns:
            The detector itself.

        Raises:
            ValueError: a parameter is out of range, a row has missing values, or all columns are constant.
        """
        self._check_parameters()
        array = validate_data(self, X, dtype=[np.float64, np.float32], ensure_min_samples=2)
        x = torch.from_numpy(array.astype(np.float64))
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self.columns_ = Coordinates.robust(x)
        z = self.columns_.forward(x, torch.float64)
        some = z[torch.randperm(len(z), generator=generator(seed, Stream.DETECTOR_ROWS))[:GAUSSIAN_ROWS]]
        n, k = z.shape
        floor = floors(self.columns_.spiked)
        base = (
            majority(some, AUTO_SHARE, inside=INSIDE, clean=CLEAN, floor=floor)
            if self.gamma == "auto"
            else fit_gaussian(some, gamma=float(self.gamma), floor=floor)
        )
        self.gaussian_, self.gamma_, self.n_rows_ = base, base.gamma, n
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            energy = Correction(k, bound=self.bound)
        # Add Silverman noise (more for fewer rows), and rescale so that the variance is unchanged.
        width = silverman(n, k)
        narrow = (1 + width**2) ** -0.5
        self.model_ = fit(
            narrow * base.whiten(z),
            settings(self.gamma_, self.n_updates, seed, noise=narrow * width),
            energy=energy,
            proposal=Mixture.standard(k),
            progress=self.verbose,
        )
        self._weigh(self._score(x))
        return self

    def _check_parameters(self) -> None:
        gamma, share = self.gamma, self.contamination
        counts = isinstance(self.n_updates, Integral) and not isinstance(self.n_updates, bool)
        checks = {
            "gamma": (gamma == "auto" or (_is_number(gamma) and gamma >= 0), '"auto" or a number from 0 on'),
            "contamination": (share == "auto" or (_is_number(share) and 0 < share <= 0.5), '"auto" or in (0, 0.5]'),
            "bound": (_is_number(self.bound) and self.bound > 0, "a number above 0"),
            "n_updates": (counts and self.n_updates >= 1, "a whole number from 1 on"),
        }
        for name, (right, wanted) in checks.items():
            if not right:
                raise ValueError(f"{name} must be {wanted}, got {getattr(self, name)!r}")

    @torch.no_grad()
    def _weigh(self, scores: Tensor) -> None:
        """Compare the scores of the training rows with those of the model's own samples."""
        own = -self._energy()(self.model_.sample(N_REFERENCE))
        edge = float(own.quantile(1 - INSIDE))
        # If a share of the rows is junk outside, and the others lie outside as often as the model's samples do:
        outside = float((scores < edge).double().mean())
        self.contamination_ = max(0.0, (outside - (1 - INSIDE)) / INSIDE)
        share = 1 - INSIDE if self.contamination == "auto" else float(self.contamination)
        threshold = float(np.percentile(scores.numpy(), 100 * share))
        self.offset_ = max(edge, threshold) if self.contamination == "auto" else threshold
        # The row in the middle, and whatever is more likely, counts fully.
        self.sample_weight_ = torch.exp(self.gamma_ * (scores - scores.median())).clamp_max(1).numpy()

    def _energy(self) -> nn.Module:
        """The trained energy in whitened coordinates, in float64, so that blocks of any size agree."""
        return copy.deepcopy(self.model_.energy).double()

    @torch.no_grad()
    def _score(self, x: Tensor) -> Tensor:
        energy = self._energy()
        parts = [
            energy(self.gaussian_.whiten(self.columns_.forward(part, torch.float64))) for part in x.split(SCORE_BLOCK)
        ]
        return -torch.cat(parts) - self._news(x).sum(1)

    def _news(self, x: Tensor) -> Tensor:
        """Energy of a new value in a column that never varied: log(n + 1), by the rule of succession."""
        return math.log(self.n_rows_ + 1) * ((x != self.columns_.constants) & ~self._varies())

    def _varies(self) -> Tensor:
        """Which columns the model sees, `(d,)`."""
        assert self.columns_.kept is not None
        return self.columns_.kept

    def _check(self, X: ArrayLike) -> Tensor:
        check_is_fitted(self)
        return torch.from_numpy(validate_data(self, X, dtype=[np.float64, np.float32], reset=False).astype(np.float64))

    def score_samples(self, X: ArrayLike) -> Floats:
        """-E(x) of each row of `(n, d)`, `(n,)`: the lower, the stranger, as scikit-learn has it."""
        return self._score(self._check(X)).numpy()

    def decision_function(self, X: ArrayLike) -> Floats:
        """`score_samples(X) - offset_`, `(n,)`: negative for outliers."""
        return self.score_samples(X) - self.offset_

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """-1 for outliers and +1 for the others, `(n,)`."""
        return np.where(self.decision_function(X) < 0, -1, 1)

    @torch.no_grad()
    def log_density(self, X: ArrayLike) -> Floats:
        """Log density of each row in the units of the data; constant columns are left out.

        The normalising constant is estimated by importance sampling from the Gaussian. The estimate is good where the
        network is a small correction of it; in high dimension it has a large variance.

        Args:
            X: rows, `(n, d)`.

        Returns:
            Nats, `(n,)`.
        """
        x = self._check(X)
        energy, k = self._energy(), len(self.gaussian_.mean)
        u = torch.randn(N_NORMALISER, k, generator=generator(0, Stream.NORMALISER), dtype=torch.float64)
        log_z = torch.logsumexp(0.5 * u.square().sum(1) - energy(u), 0) - np.log(len(u)) + 0.5 * k * np.log(2 * np.pi)
        log_det = self.gaussian_.factor.diagonal().log().sum()
        return (self._score(x) + self._news(x).sum(1) - log_z - log_det + self.columns_.log_slope(x)).numpy()

    def sample(self, n_samples: int = 1, *, random_state: int | np.random.RandomState | None = 0) -> Floats:
        """New rows of the model; columns that never varied keep their value.

        Args:
            n_samples: number of rows.
            random_state: the same number gives the same rows.

        Returns:
            `(n_samples, d)`, in the units of the data.
        """
        check_is_fitted(self)
        u = self.model_.sample(n_samples, seed=int(check_random_state(random_state).randint(2**31 - 1)))
        return self.columns_.inverse(self.gaussian_.colour(u)).numpy()

    @torch.no_grad()
    def explain(self, X: ArrayLike) -> Floats:
        """How much of each row's energy is due to each column: E(x) - E(x with the column's conditional mean).

        A column that never varied is to blame for a new value in it.

        Args:
            X: `(n, d)`.

        Returns:
            `(n, d)`; a column's entry is the energy that the row loses when the column takes the value that the other
            columns suggest.
        """
        x = self._check(X)
        energy = self._energy()
        blame = self._news(x)
        kept = self._varies().nonzero().flatten().tolist()
        for start in range(0, len(x), SCORE_BLOCK):
            z = self.columns_.forward(x[start : start + SCORE_BLOCK], torch.float64)
            full = energy(self.gaussian_.whiten(z))
            for j, column in enumerate(kept):
                without = energy(self.gaussian_.whiten(self.gaussian_.without_column(z, j)))
                blame[start : start + SCORE_BLOCK, column] = full - without
        return blame.numpy()

    def save(self, folder: Path | str) -> None:
        """Write the fitted detector to two files of a folder, without pickle; `EnergyDetector.load` reads them.

        The second file holds a checksum of the network in the first, so that files of two fits are not mixed up.
        """
        check_is_fitted(self)
        run = RunFolder(Path(folder))
        run.make()
        with locked(run.lock), writing_to(run.path):
            self._save(run)

    def _save(self, run: RunFolder) -> None:
        self.model_.save(run.network, step=self.n_updates)
        tensors = {f"columns.{name}": t for name, t in self.columns_.tensors().items()}
        tensors |= {
            "mean": self.gaussian_.mean,
            "covariance": self.gaussian_.covariance,
            "scatter": self.gaussian_.scatter,
        }
        tensors["sample_weight"] = torch.from_numpy(self.sample_weight_)
        facts = {
            "parameters": {
                **self.get_params(),
                "random_state": None if not _plain(self.random_state) else self.random_state,
            },
            "fitted": {name: getattr(self, name) for name in FITTED},
            "names": [str(name) for name in getattr(self, "feature_names_in_", [])],
        }
        network = tensors_digest(read_tensors(run.network)[0])
        write_tensors(run.detector, tensors, {"facts": json.dumps(facts), "network": network})

    @classmethod
    def load(cls, folder: Path | str) -> Self:
        """The detector that `save` wrote.

        Returns:
            The fitted detector.

        Raises:
            UserError: there is none, a file is damaged, or the two files are of different fits.
        """
        run = RunFolder(Path(folder))
        path = run.detector
        if not path.is_file():
            raise UserError(f"{folder}: holds no fitted detector; pscd fit makes one")
        with reading(path, "damaged, or not a detector of pscd"):
            tensors, metadata = read_tensors(path)
            facts = json.loads(metadata["facts"])
            detector = cls(**facts["parameters"])
            detector._check_parameters()
            detector.columns_ = _columns(under(tensors, "columns."), tensors)
            detector.gaussian_ = Gaussian(
                tensors["mean"], tensors["covariance"], facts["fitted"]["gamma_"], tensors["scatter"]
            )
            detector.sample_weight_ = tensors["sample_weight"].numpy()
            for name in FITTED:
                setattr(detector, name, _number(facts["fitted"][name]))
            detector.n_features_in_ = len(detector._varies())
            if facts["names"]:
                detector.feature_names_in_ = np.array([str(name) for name in facts["names"]], dtype=object)
        _check_network(run.network, metadata.get("network"))
        detector.model_ = Model.load(run.network, energy=Correction(len(detector.gaussian_.mean), bound=detector.bound))
        with reading(path, "damaged, or not a detector of pscd"):
            detector._score(detector.columns_.inverse(detector.gaussian_.mean[None]))  # everything fits together
        return detector


def _check_network(path: Path, digest: str | None) -> None:
    """A `UserError` if the network is not the one that a detector was saved with; old detectors do not know theirs."""
    if digest is None or not path.is_file():
        return
    with reading(path, "damaged"):
        found = tensors_digest(read_tensors(path)[0])
    if found != digest:
        raise UserError(
            f"{path}: not the network of the detector beside it, but of another fit; save the detector again"
        )


def settings(gamma: float, n_updates: int, seed: int, noise: float) -> TrainConfig:
    """How the network is trained on whitened rows: as a correction of the standard Gaussian, without warm-up of gamma.

    Elsewhere gamma warms up from 0, since an untrained network takes all data for junk. Here the Gaussian knows the
    majority from the start; a warm-up would only teach the network the junk.

    Args:
        gamma: of the pseudo-spherical objective.
        n_updates: updates of the network.
        seed: of the training.
        noise: deviation of the noise that is added to each batch.

    Returns:
        The configuration of the training.
    """
    return TrainConfig(
        data="",  # rows in memory
        objective=PseudoSpherical(gamma=gamma, warmup=0.0),
        steps=n_updates,
        lr=2e-3,
        data_noise=noise,
        standardise="none",
        max_gap=1e6,  # the median row may be far from what the weights keep
        seed=seed,
    )


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def _number(value: object) -> float:
    if not _is_number(value):
        raise ValueError(f"{value!r} is not a number")
    return value


def _plain(value: object) -> bool:
    return value is None or isinstance(value, int)


def _columns(tensors: dict[str, Tensor], others: dict[str, Tensor]) -> Coordinates:
    """The coordinates of a file, or of one written before coordinates had a room of their own."""
    if "spiked" not in tensors:
        return Coordinates(**tensors)
    linear = torch.where(tensors["spiked"], SPIKED_LINEAR, LINEAR).double()
    return Coordinates(tensors["centre"], tensors["scale"], linear, tensors["kept"], others["constants"])
