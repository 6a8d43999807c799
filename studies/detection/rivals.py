"""The detectors to be measured against, each with its library's defaults, and what a detector is here."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Detector:
    """How to make a detector, and how to have it score the rows that it is fitted on.

    Attributes:
        make: an unfitted detector for a seed; its libraries are imported here, not at the top.
        score: fits on `(n, d)` rows and returns `(n,)` scores; more unusual is higher.
        libraries: distributions whose versions decide the scores.
        modules: modules whose code does, for what has no version between two releases.
        random: whether two seeds give two results on the same rows.
        own: one of ours. It gets the rows as they are, and its warnings are shown.
    """

    make: Callable[[int], Any]
    score: Callable[[Any, np.ndarray], np.ndarray]
    libraries: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    random: bool = True
    own: bool = False

    def configuration(self) -> dict[str, Any]:
        """All settings but the seed, as JSON can hold them."""
        settings = self.make(0).get_params()
        plain = (str, int, float, bool, type(None))
        return {
            name: value if isinstance(value, plain) else repr(value)
            for name, value in sorted(settings.items())
            if name not in ("random_state", "random_seed")
        }


def _pyod_scores(detector: Any, x: np.ndarray) -> np.ndarray:
    return np.asarray(detector.fit(x).decision_scores_)


def _pyod(
    module: str, name: str, *, random: bool = False, libraries: tuple[str, ...] = (), **settings: Any
) -> Detector:
    def make(seed: int) -> Any:
        kind = getattr(import_module(f"pyod.models.{module}"), name)
        return kind(**settings, **({"random_state": seed} if random else {}))

    return Detector(make, _pyod_scores, ("pyod", *libraries), random=random)


def _extended_forest(seed: int) -> Any:
    from isotree import IsolationForest

    # The package's own defaults are another model; these are what its manual gives for Hariri et al. (2018).
    return IsolationForest(
        ndim=2,
        ntrees=100,
        sample_size=256,
        max_depth=8,
        missing_action="fail",
        coefs="uniform",
        standardize_data=False,
        nthreads=1,
        random_seed=seed,
    )


def _isotree_scores(detector: Any, x: np.ndarray) -> np.ndarray:
    return np.asarray(detector.fit(x).predict(x))


RIVALS: dict[str, Detector] = {
    "isolation forest": _pyod("iforest", "IForest", random=True),
    "extended isolation forest": Detector(_extended_forest, _isotree_scores, ("isotree",)),
    "ECOD": _pyod("ecod", "ECOD"),
    "COPOD": _pyod("copod", "COPOD"),
    "HBOS": _pyod("hbos", "HBOS"),
    "kNN": _pyod("knn", "KNN"),
    "LOF": _pyod("lof", "LOF"),
    "one-class SVM": _pyod("ocsvm", "OCSVM"),
    "PCA": _pyod("pca", "PCA"),
    # One component by default, whose fit does not depend on where it starts.
    "GMM": _pyod("gmm", "GMM"),
    "KDE": _pyod("kde", "KDE"),
    "autoencoder": _pyod("auto_encoder", "AutoEncoder", random=True, libraries=("torch",), verbose=0),
}
