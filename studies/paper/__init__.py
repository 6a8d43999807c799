"""The paper: its experiments, one file per group, and its published numbers as data."""

from pathlib import Path

from pscd.errors import UserError
from studies.engine.experiment import Experiment, run
from studies.paper.ablations_2d import ABLATIONS_2D
from studies.paper.blame_2d import BLAME_2D
from studies.paper.contamination_2d import CONTAMINATION_2D
from studies.paper.contamination_gaussian import CONTAMINATION_GAUSSIAN
from studies.paper.contamination_images import contamination_images, robustness_images
from studies.paper.contamination_tables import contamination_tables
from studies.paper.discrete import DISCRETE
from studies.paper.gamma_1d import GAMMA_1D
from studies.paper.images import IMAGE_EXPERIMENTS, OVER_GAMMA, Choice
from studies.paper.junk_images import junk_images, warm_junk_images
from studies.paper.landscapes import LANDSCAPES
from studies.paper.objectives_1d import OBJECTIVES_1D
from studies.paper.objectives_2d import OBJECTIVES_2D
from studies.paper.path import PATH
from studies.paper.rivals_images import rivals_images
from studies.paper.scratch_images import scratch_images
from studies.paper.theory import THEORY
from studies.paper.toys_2d import TOYS_2D_TABLE

__all__ = ["EXPERIMENTS", "TABLES", "WITH_IMAGES", "Choice", "Experiment", "reproduce"]

EXPERIMENTS: dict[str, Experiment] = {
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


# Experiments whose images are chosen by `--data`.
WITH_IMAGES = {
    **IMAGE_EXPERIMENTS,
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
    jobs: int = -1,
    images: Choice | None = None,
    hours: float | None = None,
) -> Path:
    """Make an experiment of the paper again. Cells that were computed before are reused.

    Args:
        name: of the experiment.
        out: folder for the page, its figures and the cells.
        quick: make it small: a test that everything runs, not a result.
        seeds: number of seeds (default: the experiment's own).
        jobs: runs at a time; -1 for one per core.
        images: which images, preset and feature map, for experiments that have a choice.
        hours: after which no cell is begun any more.

    Returns:
        The experiment's page.

    Raises:
        UserError: there is no such experiment, it has no images to choose, or not both units of gamma.
    """
    if name == TABLES:
        if images is None or not Path(images.data).is_dir():
            raise UserError(f"{TABLES} needs --data, a folder of .npz tables with X and y")
        experiment = contamination_tables(Path(images.data))
    elif name in WITH_IMAGES:
        if images is not None and images.unit == "both" and name not in OVER_GAMMA:
            raise UserError(f"{name} has one unit of gamma; --unit both is for {', '.join(OVER_GAMMA)}")
        experiment = WITH_IMAGES[name](images or Choice())
    elif name not in EXPERIMENTS:
        raise UserError(f"unknown experiment {name!r}; there are: {', '.join([*EXPERIMENTS, *WITH_IMAGES, TABLES])}")
    elif images is not None:
        raise UserError(f"{name} has no images to choose; leave --data, --preset, --features and --n out")
    else:
        experiment = EXPERIMENTS[name]
    return run(experiment, Path(out), quick=quick, seeds=seeds, jobs=jobs, hours=hours)
