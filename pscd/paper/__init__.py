"""The paper: its artefacts, one file per group, and its published numbers as data."""

from pathlib import Path

from pscd.errors import UserError
from pscd.paper.ablations import ABLATIONS_2D
from pscd.paper.artefact import Artefact, run
from pscd.paper.blame import BLAME_2D
from pscd.paper.discrete_models import DISCRETE
from pscd.paper.one_dimension import CONTAMINATION_GAUSSIAN, GAMMA_1D, LANDSCAPES
from pscd.paper.rivals import OBJECTIVES_2D
from pscd.paper.rivals_1d import OBJECTIVES_1D
from pscd.paper.theory_checks import THEORY
from pscd.paper.two_dimensions import TOYS_2D_TABLE

__all__ = ["ARTEFACTS", "Artefact", "reproduce"]

ARTEFACTS: dict[str, Artefact] = {
    a.name: a
    for a in (
        GAMMA_1D,
        LANDSCAPES,
        CONTAMINATION_GAUSSIAN,
        THEORY,
        TOYS_2D_TABLE,
        ABLATIONS_2D,
        BLAME_2D,
        DISCRETE,
        OBJECTIVES_1D,
        OBJECTIVES_2D,
    )
}


def reproduce(
    name: str, out: Path | str = "results", *, quick: bool = False, seeds: int | None = None, n_jobs: int = -1
) -> Path:
    """Make an artefact of the paper again; returns its page. What was computed before is kept."""
    if name not in ARTEFACTS:
        raise UserError(f"unknown artefact {name!r}; there are: {', '.join(ARTEFACTS)}")
    return run(ARTEFACTS[name], Path(out), quick=quick, seeds=seeds, n_jobs=n_jobs)
