"""Energy-based models of contaminated data, trained with pseudo-spherical contrastive divergence.

    model = pscd.fit(rows)                        # the recipe for rows of this shape; keywords change one setting each
    model.energy(rows), model.sample(1000)        # a higher energy is more anomalous
    detector = pscd.EnergyDetector().fit(table)   # outliers and wrong cells of a table
    pscd.train(config, "runs/moon")               # the same as `fit` in a folder, which resumes
    pscd.load("runs/moon")                        # a run, a model or a detector

Names are loaded when they are first used, so `pscd --version` does not import torch, nor a model scikit-learn.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from pscd.version import __version__

if TYPE_CHECKING:
    from pscd.config import (
        ChainSettings,
        ComputeSettings,
        GuardSettings,
        OptimizerSettings,
        RowSettings,
        TrainConfig,
    )
    from pscd.data import contaminate, load_dataset, read_table
    from pscd.data.toys import TOYS, Toy
    from pscd.detector.estimator import EnergyDetector
    from pscd.energies import MLP, Architecture, Quadratic
    from pscd.errors import Diverged, UserError
    from pscd.evaluation import evaluate
    from pscd.loading import load
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
    from pscd.runs import train
    from pscd.sampling.jumps import Jumps, jumps
    from pscd.sampling.langevin import Langevin, langevin
    from pscd.sampling.mala import Mala, mala
    from pscd.training.fit import fit

# Where each name lives; the same as above, for the interpreter.
_HOMES = {
    "pscd.config": (
        "ChainSettings",
        "ComputeSettings",
        "GuardSettings",
        "OptimizerSettings",
        "RowSettings",
        "TrainConfig",
    ),
    "pscd.data": ("contaminate", "load_dataset", "read_table"),
    "pscd.data.toys": ("TOYS", "Toy"),
    "pscd.detector.estimator": ("EnergyDetector",),
    "pscd.energies": ("MLP", "Architecture", "Quadratic"),
    "pscd.errors": ("Diverged", "UserError"),
    "pscd.evaluation": ("evaluate",),
    "pscd.losses": (
        "contrastive_divergence",
        "effective_sample_fraction",
        "importance_weights",
        "pseudo_spherical",
    ),
    "pscd.metrics": ("mmd",),
    "pscd.model": ("Model",),
    "pscd.objectives": (
        "FEBM",
        "DenoisingScoreMatching",
        "DensityPower",
        "NoiseContrastive",
        "PseudoSpherical",
        "ScoreMatching",
        "SlicedScoreMatching",
        "Trimmed",
        "WeightedNegatives",
    ),
    "pscd.loading": ("load",),
    "pscd.runs": ("train",),
    "pscd.sampling": ("Jumps", "Langevin", "Mala", "jumps", "langevin", "mala"),
    "pscd.training.fit": ("fit",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "FEBM",
    "MLP",
    "TOYS",
    "Architecture",
    "ChainSettings",
    "ComputeSettings",
    "DenoisingScoreMatching",
    "DensityPower",
    "Diverged",
    "EnergyDetector",
    "GuardSettings",
    "Jumps",
    "Langevin",
    "Mala",
    "Model",
    "NoiseContrastive",
    "OptimizerSettings",
    "PseudoSpherical",
    "Quadratic",
    "RowSettings",
    "ScoreMatching",
    "SlicedScoreMatching",
    "Toy",
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
    "jumps",
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
    """A public name, or a module such as `pscd.exact`, loaded on first use."""
    if name in _HOME_OF:
        value = getattr(import_module(_HOME_OF[name]), name)
        globals()[name] = value
        return value
    if not name.startswith("_") and find_spec(f"pscd.{name}") is not None:
        return import_module(f"pscd.{name}")
    raise AttributeError(f"module 'pscd' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names, loaded or not."""
    return sorted(__all__)
