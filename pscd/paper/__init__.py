"""The paper: its artefacts, one file per group, and its published numbers as data."""

from pathlib import Path

from pscd.errors import UserError
from pscd.paper.ablations_2d import ABLATIONS_2D
from pscd.paper.artefact import Artefact, run
from pscd.paper.blame_2d import BLAME_2D
from pscd.paper.contamination_2d import CONTAMINATION_2D
from pscd.paper.contamination_gaussian import CONTAMINATION_GAUSSIAN
from pscd.paper.contamination_images import contamination_images, robustness_images
from pscd.paper.contamination_tables import contamination_tables
from pscd.paper.discrete import DISCRETE
from pscd.paper.gamma_1d import GAMMA_1D
from pscd.paper.images import IMAGE_ARTEFACTS, OVER_GAMMA, Choice
from pscd.paper.junk_images import junk_images, warm_junk_images
from pscd.paper.landscapes import LANDSCAPES
from pscd.paper.objectives_1d import OBJECTIVES_1D
from pscd.paper.objectives_2d import OBJECTIVES_2D
from pscd.paper.path import PATH
from pscd.paper.rivals_images import rivals_images
from pscd.paper.scratch_images import scratch_images
from pscd.paper.theory import THEORY
from pscd.paper.toys_2d import TOYS_2D_TABLE
from pscd.parallel import Engine

__all__ = ["ARTEFACTS", "TABLES", "WITH_IMAGES", "Artefact", "Choice", "reproduce"]

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
        CONTAMINATION_2D,
        PATH,
    )
}


# Artefacts whose images are chosen by `--data`.
WITH_IMAGES = {
    **IMAGE_ARTEFACTS,
    "contamination-images": contamination_images,
    "robustness-images": robustness_images,
    "rivals-images": rivals_images,
    "scratch-images": scratch_images,
    "junk-images": junk_images,
    "warm-junk-images": warm_junk_images,
}


TABLES = "contamination-tables"  # its tables are a folder, given by `--data`


def reproduce(
    name: str,
    out: Path | str = "results",
    *,
    quick: bool = False,
    seeds: int | None = None,
    engine: Engine | None = None,
    images: Choice | None = None,
    hours: float | None = None,
) -> Path:
    """Make an artefact of the paper again. Cells that were computed before are reused.

    Args:
        name: of the artefact.
        out: folder for the page, its figures and the cells.
        quick: make it small: a test that everything runs, not a result.
        seeds: number of seeds (default: the artefact's own).
        engine: what computes the cells (default: the cores of this machine).
        images: which images, preset and feature map, for artefacts that have a choice.
        hours: after which no cell is begun any more.

    Returns:
        The artefact's page.

    Raises:
        UserError: there is no such artefact, it has no images to choose, or not both units of gamma.
    """
    if name == TABLES:
        if images is None or not Path(images.data).is_dir():
            raise UserError(f"{TABLES} needs --data, a folder of .npz tables with X and y")
        artefact = contamination_tables(Path(images.data))
    elif name in WITH_IMAGES:
        if images is not None and images.unit == "both" and name not in OVER_GAMMA:
            raise UserError(f"{name} has one unit of gamma; --unit both is for {', '.join(OVER_GAMMA)}")
        artefact = WITH_IMAGES[name](images or Choice())
    elif name not in ARTEFACTS:
        raise UserError(f"unknown artefact {name!r}; there are: {', '.join([*ARTEFACTS, *WITH_IMAGES, TABLES])}")
    elif images is not None:
        raise UserError(f"{name} has no images to choose; leave --data, --preset, --features and --n out")
    else:
        artefact = ARTEFACTS[name]
    return run(artefact, Path(out), quick=quick, seeds=seeds, engine=engine, hours=hours)
