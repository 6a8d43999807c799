"""Mixtures of Gaussians: proposals for jumps, and robust ones that an energy starts from."""

from pscd.mixtures.mixture import Mixture
from pscd.mixtures.robust import RobustMixture, fit_robust_mixture
from pscd.mixtures.ties import dequantise

__all__ = ["Mixture", "RobustMixture", "dequantise", "fit_robust_mixture"]
