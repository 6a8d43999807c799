"""Every detector by name: ours, at the gamma it chooses, without robustness and by neighbours, and the rivals."""

from typing import Any

import numpy as np

from studies.detection.rivals import RIVALS, Detector

AUTO = "EnergyDetector"
NOT_ROBUST = "EnergyDetector, gamma 0"
NEIGHBOURS = "EnergyDetector, neighbours"
FOREST = "isolation forest"

# Where the numbers live that its defaults are made of; they are no parameters, so a change must be seen here.
MODULES = (
    "pscd.detector.estimator",
    "pscd.coordinates",
    "pscd.detector.gaussian",
    "pscd.detector.numbers",
    "pscd.detector.neighbourhood",
)

QUICK = (AUTO, NOT_ROBUST, FOREST, "ECOD")
CURVES = (AUTO, NOT_ROBUST, FOREST)


def _energy(**settings: Any) -> Detector:
    def make(seed: int) -> Any:
        from pscd.detector.estimator import EnergyDetector

        return EnergyDetector(**settings, random_state=seed)

    return Detector(make, _energy_scores, ("torch",), MODULES, own=True)


def _energy_scores(detector: Any, x: np.ndarray) -> np.ndarray:
    # scikit-learn's scores are higher for the more normal.
    return -np.asarray(detector.fit(x).score_samples(x))


DETECTORS: dict[str, Detector] = {
    AUTO: _energy(),
    NEIGHBOURS: _energy(rank="neighbours"),
    NOT_ROBUST: _energy(gamma=0.0),
    **RIVALS,
}
