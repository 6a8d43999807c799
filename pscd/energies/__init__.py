"""Energies: modules that map `(B, *shape)` to `(B,)`; low energy is likely.

`dense` has those for tables, `images` those for images, `wrappers` modifies a given energy. `Architecture` describes a
network in a configuration, and `ENERGIES` is the dictionary of all networks.
"""

from pscd.energies.architecture import CONDITIONAL, ENERGIES, Architecture
from pscd.energies.corrected import BoundedNetwork, CorrectedEnergy, local_waves
from pscd.energies.dense import MLP, Correction, Quadratic
from pscd.energies.images import ConvNet, PlainCNN, ResNet
from pscd.energies.levels import LevelEnergy, NoisyEnergies
from pscd.energies.wrappers import BFloat16Energy, LabelledEnergy, MaskedEnergy, TemperedEnergy, as_function

__all__ = [
    "CONDITIONAL",
    "ENERGIES",
    "MLP",
    "Architecture",
    "BFloat16Energy",
    "BoundedNetwork",
    "ConvNet",
    "CorrectedEnergy",
    "Correction",
    "LabelledEnergy",
    "LevelEnergy",
    "MaskedEnergy",
    "NoisyEnergies",
    "PlainCNN",
    "Quadratic",
    "ResNet",
    "TemperedEnergy",
    "as_function",
    "local_waves",
]
