"""The paper: its experiments, one file per group, and its published numbers as data."""

import argparse
from collections.abc import Iterator
from pathlib import Path

from pscd.errors import UserError
from studies.engine import Experiment, run_experiment
from studies.images.contamination import JUNK
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
from studies.presets import PRESETS

__all__ = ["EXPERIMENTS", "TABLES", "WITH_IMAGES", "Choice", "Experiment", "flags", "listed", "reproduce", "run"]

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


def listed() -> Iterator[tuple[str, str, str]]:
    """Name, title and cost of every experiment."""
    for name, experiment in EXPERIMENTS.items():
        yield name, experiment.title, experiment.cost
    for name, make in WITH_IMAGES.items():
        experiment = make(Choice())
        yield name, experiment.title, experiment.cost
    yield TABLES, "Contamination in real tables, --data FOLDER of .npz files with X and y", "6 hours"


def flags(parser: argparse.ArgumentParser) -> None:
    """Flags of the experiments with images or tables."""
    images = parser.add_argument_group("experiments with images or tables")
    images.add_argument("--data", help="set of images (default: mnist), or a folder of .npz tables")
    images.add_argument("--preset", choices=PRESETS, help="settings of the runs (default: those for the data)")
    images.add_argument(
        "--features",
        help="feature map: pixels, classifier (default) or the path of a TorchScript Inception; append @bfloat16 "
        "to compute in bfloat16, twice as fast",
    )
    images.add_argument("--n", type=int, help="samples to measure (default: 5000)")
    images.add_argument("--junk", help=f"contamination: {', '.join(JUNK)}, or another set of images (default: noise)")
    images.add_argument("--ratio", type=float, help="share of contamination (default: 0.1)")
    images.add_argument("--unit", choices=("nats", "spread", "both"), help="unit of gamma (default: the preset's)")
    images.add_argument("--updates", type=int, help="updates of each run (default: the preset's)")


def run(args: argparse.Namespace) -> Path:
    """Reproduce the experiment `args.name`; returns its page."""
    names = ("data", "preset", "features", "n", "junk", "ratio", "unit", "updates")
    chosen = {name: value for name in names if (value := getattr(args, name)) is not None}
    if (updates := chosen.get("updates", 1)) < 1:
        raise UserError(f"--updates must be at least 1, got {updates}")
    return reproduce(
        args.name,
        args.out,
        quick=args.quick,
        seeds=args.seeds,
        jobs=args.jobs,
        images=Choice(**chosen) if chosen else None,
        hours=args.hours,
    )


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
    """Make an experiment of the paper again. Runs that were computed before are reused."""
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
    return run_experiment(experiment, Path(out), quick=quick, seeds=seeds, jobs=jobs, hours=hours)
