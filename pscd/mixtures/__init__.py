"""Mixtures of Gaussians: proposals for jumps, robust ones that an energy starts from, and those of mixed tables."""

from pscd.mixtures.cells import Cells
from pscd.mixtures.evidence import edge_of_reach, stands_out
from pscd.mixtures.mixed import MixedMixture
from pscd.mixtures.mixed_fit import fit_mixed
from pscd.mixtures.mixture import Mixture
from pscd.mixtures.robust import RobustMixture, fit_robust_mixture, refit
from pscd.mixtures.ties import Ties, dequantise

__all__ = [
    "Cells",
    "MixedMixture",
    "Mixture",
    "RobustMixture",
    "Ties",
    "dequantise",
    "edge_of_reach",
    "fit_mixed",
    "fit_robust_mixture",
    "refit",
    "stands_out",
]
