"""What makes better photographs in the same time on a CPU, one change at a time.

    python -m studies photo-ablation       # trains what is missing; writes photo-ablation.json and .md

Each setting is trained on CIFAR-10 without 2,000 of its training images, and its samples are compared with half of
these. What wins is then trained on all training images, with two seeds, and compared with held-out images, beside the
preset as it was.
"""

import argparse
import time
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from pscd.config import TrainConfig
from pscd.data import to_bytes
from pscd.errors import Diverged
from pscd.metrics import frechet_distance
from pscd.training.fit import fit
from studies import ablation
from studies.ablation import add_only, key_of
from studies.engine.markdown import markdown_table
from studies.images.cache import cached_features
from studies.images.classifier import load_feature_map
from studies.images.sets import load_dataset
from studies.paper.images import encode
from studies.presets import preset

NAME = "photo-ablation"
FEATURES = "inception/fid-inception-2015.pt@bfloat16"
ASIDE, CHOOSING, N_CHOICE, N_FINAL = 2000, 1000, 200, 5000  # images kept aside, those that choose; samples
SHOWN = 100
UPDATES = 600  # of a choice
CD = preset("cifar10-small").changed({"objective.gamma": 0.0})
SHORT = CD.changed({"updates": UPDATES})
FAST = SHORT.changed({"optimizer.lr": 1e-3})
CHOSEN = preset("cifar10-spectrum")
VARIANTS: dict[str, TrainConfig] = {
    "CD, as it was": SHORT,
    "learning rate 1e-3": FAST,
    "learning rate 1e-3, steps by the spectrum": CHOSEN.changed({"updates": UPDATES}),
}
FINAL = {
    f"{name}, seed {seed}": config.changed({"seed": seed})
    for seed in range(2)
    for name, config in (("steps by the spectrum", CHOSEN), ("CD, as it was", CD))
}
LAST = f"final, {N_FINAL} samples"
TASKS = {"choice": VARIANTS, LAST: FINAL}


def measure(
    config: TrainConfig, task: str, n: int | None = None, *, aside: int = ASIDE, choosing: int = CHOOSING
) -> dict[str, Any]:
    """Train, sample, and compare with images that the model has not seen.

    Args:
        config: of the run.
        task: `choice` compares with training images that are kept aside, `LAST` with held-out ones.
        n: samples (default: those of the task).
        aside: training images that are not trained on.
        choosing: those of them that samples are compared with.

    Returns:
        FID and seconds of the processor, for training alone and with the sampling; an `error` if training diverged.
    """
    n = n or (N_FINAL if task == LAST else N_CHOICE)
    data = load_dataset(config.rows.data, seed=0)
    features = load_feature_map(FEATURES, data)
    order = torch.randperm(len(data.train), generator=torch.Generator().manual_seed(5))
    rest = order if task == LAST else order[aside:]
    kept = data.held_out[:n] if task == LAST else data.train[order[:choosing]]
    label = None if data.train_labels is None else data.train_labels[rest]
    start = time.process_time()
    try:
        model = fit(data.train[rest], config=config, label=label)
    except Diverged as error:
        return {"error": str(error), "config": config.to_dict()}
    trained = time.process_time()
    samples = to_bytes(model.sample(n, seed=config.seed))
    end = time.process_time()
    return {
        "fid": float(frechet_distance(cached_features(features, kept), features(samples))),
        "features": features.name,
        **({"samples": encode(samples[:SHOWN])} if task == LAST else {}),
        "training": trained - start,
        "total": end - start,
        "config": config.to_dict(),
    }


def page(found: dict[str, Any]) -> str:
    """The page in Markdown."""

    def rows(task: str) -> list[list[str]]:
        runs = {name: found["runs"].get(key_of(config, task)) for name, config in TASKS[task].items()}
        return [
            [name, f"{run['config']['updates']:,}", *_numbers(run)] for name, run in runs.items() if run is not None
        ]

    head = ["setting", "updates", "FID", "seconds"]
    return PAGE.format(
        choice=markdown_table(head, rows("choice")),
        final=markdown_table(head, rows(LAST)),
        change=_change(found["runs"]),
        machine=found["machine"],
        n_choice=N_CHOICE,
        choosing=CHOOSING,
        n_final=N_FINAL,
    )


def _change(runs: dict[str, Any]) -> str:
    """By how much the FID of what was chosen is lower, on average over the seeds that are there."""
    fids: dict[bool, list[float]] = {True: [], False: []}
    for name, config in FINAL.items():
        fids[name.startswith("CD")] += [run["fid"] for run in [runs.get(key_of(config, LAST), {})] if "fid" in run]
    if not all(fids.values()):
        return "Not run to the end."
    return f"On average the FID is {1 - fmean(fids[False]) / fmean(fids[True]):.0%} lower."


def _numbers(run: dict[str, Any]) -> list[str]:
    return ["diverged", ""] if "error" in run else [f"{run['fid']:.1f}", f"{run['total']:.0f}"]


PAGE = """\
# What makes better photographs in the same time

Made by `python -m studies photo-ablation`. {machine}.

One change at a time, one seed, on CIFAR-10. FID by Inception features in bfloat16, of {n_choice:,} samples against
{choosing:,} training images that the model has not seen; with so few samples it is too large by some tens, in all rows
alike. Seconds are those of the processor, one thread, for training and sampling.

{choice}

What was chosen, on all training images, against {n_final:,} held-out images, {n_final:,} samples. It makes fewer
updates than the preset as it was, in about the same time:

{final}

{change} Samples of the preset as it was, and of what was chosen:

![as it was](photo-ablation-before.png) ![chosen](photo-ablation.png)
"""


def flags(parser: argparse.ArgumentParser) -> None:
    """The flags of this study."""
    add_only(parser, TASKS)


def run(args: argparse.Namespace) -> Path:
    """Measure the settings that are missing; returns the page."""
    pictures = {f"{NAME}-before.png": key_of(CD, LAST), f"{NAME}.png": key_of(CHOSEN, LAST)}
    return ablation.run(args, TASKS, measure, page, pictures)
