"""Train energy-based models with pseudo-spherical contrastive divergence."""

from typing import TYPE_CHECKING

from pscd.config import TrainConfig
from pscd.data import contaminate, load_dataset, read_table
from pscd.data.toys import TOYS
from pscd.energies import MLP, Architecture, Quadratic
from pscd.errors import Diverged, UserError
from pscd.evaluation import evaluate
from pscd.losses import contrastive_divergence, effective_sample_fraction, importance_weights, pseudo_spherical
from pscd.metrics import mmd
from pscd.model import Model
from pscd.objectives import (
    FEBM,
    DenoisingScoreMatching,
    DensityPower,
    NoiseContrastive,
    PseudoSpherical,
    ScoreMatching,
    SlicedScoreMatching,
    Trimmed,
    WeightedNegatives,
)
from pscd.runs import load, train
from pscd.sampling import Langevin, Mala, langevin, mala
from pscd.training.loop import fit
from pscd.version import __version__

if TYPE_CHECKING:
    from pscd.detector.estimator import EnergyDetector

__all__ = [
    "FEBM",
    "MLP",
    "TOYS",
    "Architecture",
    "DenoisingScoreMatching",
    "DensityPower",
    "Diverged",
    "EnergyDetector",
    "Langevin",
    "Mala",
    "Model",
    "NoiseContrastive",
    "PseudoSpherical",
    "Quadratic",
    "ScoreMatching",
    "SlicedScoreMatching",
    "TrainConfig",
    "Trimmed",
    "UserError",
    "WeightedNegatives",
    "__version__",
    "contaminate",
    "contrastive_divergence",
    "effective_sample_fraction",
    "evaluate",
    "fit",
    "importance_weights",
    "langevin",
    "load",
    "load_dataset",
    "mala",
    "mmd",
    "pseudo_spherical",
    "read_table",
    "train",
]


def __getattr__(name: str) -> object:
    """Import the detector only when it is used: it needs scikit-learn, which takes seconds to load."""
    if name == "EnergyDetector":
        from pscd.detector.estimator import EnergyDetector

        return EnergyDetector
    raise AttributeError(f"module 'pscd' has no attribute {name!r}")
