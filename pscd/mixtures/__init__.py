"""Mixtures of Gaussians: proposals for jumps, and the robust model of a table with missing values and categories."""

from pscd.mixtures.cells import Cells
from pscd.mixtures.em import MixtureSettings
from pscd.mixtures.mixture import Mixture
from pscd.mixtures.robust import RobustMixture, fit_mixture
from pscd.mixtures.table_mixture import TableMixture, imputed
from pscd.mixtures.ties import Ties, dequantise

__all__ = [
    "Cells",
    "Mixture",
    "MixtureSettings",
    "RobustMixture",
    "TableMixture",
    "Ties",
    "dequantise",
    "fit_mixture",
    "imputed",
]
