"""Objectives: frozen dataclasses that bind a loss to the trainer."""

from pscd.objectives.f_ebm import FEBM
from pscd.objectives.gamma import DensityPower, PseudoSpherical, WeightedNegatives
from pscd.objectives.nce import NoiseContrastive
from pscd.objectives.protocol import Objective, both_phases, phase_stats, weighted_median
from pscd.objectives.recovery import Recovery
from pscd.objectives.score_matching import DenoisingScoreMatching, ScoreMatching, SlicedScoreMatching
from pscd.objectives.trimmed import Trimmed

# Contrastive divergence (Hinton 2002) is the member gamma = 0 of the first family.
OBJECTIVES: dict[str, Objective] = {
    "ps-cd": PseudoSpherical(),
    "cd": PseudoSpherical(gamma=0.0),
    "f-ebm": FEBM(),
    "nce": NoiseContrastive(),
    "sm": ScoreMatching(),
    "dsm": DenoisingScoreMatching(),
    "ssm": SlicedScoreMatching(),
    "beta": DensityPower(),
    "recovery": Recovery(),
    "trim": Trimmed(),
    "negatives-only": WeightedNegatives(),
}


def name_of(objective: Objective) -> str | None:
    """The name in `OBJECTIVES` of an objective of this class; None for a class of the user's own."""
    if type(objective) is PseudoSpherical:
        return "cd" if objective.gamma == 0 else "ps-cd"
    return next((name for name, known in OBJECTIVES.items() if type(objective) is type(known)), None)


__all__ = [
    "FEBM",
    "OBJECTIVES",
    "DenoisingScoreMatching",
    "DensityPower",
    "NoiseContrastive",
    "Objective",
    "PseudoSpherical",
    "Recovery",
    "ScoreMatching",
    "SlicedScoreMatching",
    "Trimmed",
    "WeightedNegatives",
    "both_phases",
    "name_of",
    "phase_stats",
    "weighted_median",
]
