"""What makes better images in the same time on a CPU, one change at a time.

    python -m studies image-ablation       # trains what is missing; writes image-ablation.json and .md
    python -m studies image-ablation --only "CD, learning rate 1e-3"

Each setting is trained on MNIST without 2,000 of its training images, and its samples are compared with these. What
wins is then trained on all of them, with three seeds, and compared with held-out images; and on images with junk.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pscd.config import TrainConfig
from pscd.data import to_bytes
from pscd.errors import Diverged
from pscd.images.features import FeatureMap
from pscd.metrics import aupr, frechet_distance, prdc
from pscd.model import Model
from pscd.recipes.configs import recovering
from pscd.training.fit import fit
from studies import ablation
from studies.ablation import add_only, key_of
from studies.engine.markdown import markdown_table
from studies.images.classifier import load_feature_map
from studies.images.contamination import junk
from studies.images.sets import load_dataset, load_images
from studies.paper.images import encode
from studies.presets import preset

NAME = "image-ablation"
SHOWN = 100  # samples of what was chosen
N = 2000  # training images that choose, and samples
# The preset as it was before: the settings that the changes are changes of.
CD = preset("mnist").changed({"objective.gamma": 0.0, "optimizer.lr": 3e-4, "objective.l2": 0.1, "optimizer.ema": 0.99})
RECOVERY = recovering(CD)
VARIANTS: dict[str, TrainConfig] = {
    "CD, as it was": CD,
    "CD, cosine": CD.changed({"optimizer.schedule": "cosine"}),
    "CD, average over 1,000 updates": CD.changed({"optimizer.ema": 0.999}),
    "CD, no squared energies": CD.changed({"objective.l2": 0.0}),
    "CD, learning rate 1e-3": CD.changed({"optimizer.lr": 1e-3}),
    "CD, learning rate 3e-3": CD.changed({"optimizer.lr": 3e-3}),
    "CD, learning rate 2e-3, average over 1,000 updates": CD.changed({"optimizer.lr": 2e-3, "optimizer.ema": 0.999}),
    "gamma 0.3, learning rate 3e-3": CD.changed({"optimizer.lr": 3e-3, "objective.gamma": 0.3}),
    "recovery, a step at each of 12 levels": RECOVERY.changed({"updates": 3000}),
}


WINNER = CD.changed({"optimizer.lr": 2e-3, "optimizer.ema": 0.999})
FINAL = {
    f"CD, learning rate 2e-3, average over 1,000 updates, seed {seed}": WINNER.changed({"seed": seed})
    for seed in range(3)
}
DIRTY = {
    "CD": WINNER,
    "gamma 0.3": WINNER.changed({"objective.gamma": 0.3}),
    "recovery": RECOVERY.changed({"updates": 3000}),
    "recovery, gamma 0.3": RECOVERY.changed({"updates": 3000, "objective.gamma": 0.3}),
}
N_JUDGING = 6000  # training images that a classifier of junk is fitted to, and others that energies are compared on
JUNK = {"noise": 0.1, "letters": 0.05}  # shares of the training images


def measure(config: TrainConfig, task: str, n: int = N) -> dict[str, Any]:
    """Train, sample, and compare with images that the model has not seen.

    Args:
        config: of the run.
        task: `choice` compares with training images that are kept aside, `final` with held-out ones, and `junk` trains
            on images of which some are junk.
        n: images to compare with, and samples.

    Returns:
        FID, PRDC and seconds of the processor, for training alone and with the sampling, and what became of junk; an
        `error` if training diverged.
    """
    data = load_dataset(config.rows.data, seed=0)
    features = load_feature_map("classifier", data)
    order = torch.randperm(len(data.train), generator=torch.Generator().manual_seed(5))
    kept, rest = (data.held_out[:n], data.train) if task == "final" else (data.train[order[:n]], data.train[order[n:]])
    rest, kinds = _dirty(rest) if task == "junk" else (rest, torch.zeros(len(rest), dtype=torch.long))
    start = time.process_time()
    try:
        model = fit(rest, config=config)
    except Diverged as error:
        return {"error": str(error), "config": config.to_dict()}
    trained = time.process_time()
    samples = to_bytes(model.sample(n, seed=config.seed))
    end = time.process_time()
    real, fake = features(kept), features(samples)
    return {
        **(_junk_found(model, rest, kinds, features, fake, real) if task == "junk" else {}),
        "fid": float(frechet_distance(real, fake)),
        **{name: float(value) for name, value in prdc(real, fake)._asdict().items()},
        "samples": encode(samples[:SHOWN]),
        "training": trained - start,
        "total": end - start,
        "config": config.to_dict(),
    }


def _dirty(x: Tensor) -> tuple[Tensor, Tensor]:
    """Images some of which are junk, and the kind of each, 0 for a digit."""
    x, kinds = x.clone(), torch.zeros(len(x), dtype=torch.long)
    for i, (kind, share) in enumerate(JUNK.items()):
        rng = torch.Generator().manual_seed(i)
        index = torch.randperm(len(x), generator=rng)[: int(share * len(x))]
        x[index], kinds[index] = _junk(kind, x, len(index), rng), i + 1
    return x, kinds


def _junk(kind: str, x: Tensor, n: int, rng: torch.Generator) -> Tensor:
    if kind == "noise":
        return junk("noise")(x, n, rng)
    letters = load_images("notmnist", train=False).x  # the smaller of its two files is enough
    return letters[torch.randperm(len(letters), generator=rng)[:n]]


def _junk_found(
    model: Model, x: Tensor, kinds: Tensor, features: FeatureMap, fake: Tensor, real: Tensor
) -> dict[str, float]:
    """How well the energy finds each kind of junk among digits, and the share of it among samples."""
    others = slice(N_JUDGING, 2 * N_JUDGING)
    e, kinds_here = model.energy(x[others]), kinds[others]
    digits = e[kinds_here == 0]
    found = {f"AP of {kind}": aupr(digits, e[kinds_here == i + 1]).value for i, kind in enumerate(JUNK)}
    return {**found, **_taken_for_junk(x, kinds, features, samples=fake, digits=real)}


def _taken_for_junk(x: Tensor, kinds: Tensor, features: FeatureMap, **sets: Tensor) -> dict[str, float]:
    """The share of each set of features that a linear classifier, fitted to training images, takes for junk."""
    from sklearn.linear_model import LogisticRegression

    judge = slice(N_JUDGING)
    told = LogisticRegression(max_iter=300).fit(features(x[judge]).numpy(), kinds[judge].numpy())
    seen = {name: told.predict(rows.numpy()) for name, rows in sets.items()}
    return {
        f"{name} like {kind}": float((rows == i + 1).mean())
        for i, kind in enumerate(JUNK)
        for name, rows in seen.items()
    }


def page(found: dict[str, Any]) -> str:
    """The page in Markdown."""

    def rows(task: str, settings: dict[str, TrainConfig], more: tuple[str, ...] = ()) -> list[list[str]]:
        runs = {name: found["runs"].get(key_of(config, task)) for name, config in settings.items()}
        return [
            [name, f"{settings[name].updates:,}", *_numbers(run), *(f"{run[k]:.3f}" for k in more if k in run)]
            for name, run in runs.items()
            if run is not None
        ]

    head = ["setting", "updates", "FID", "precision", "coverage", "seconds"]
    of_junk = tuple(f"{what} {kind}" for kind in JUNK for what in ("AP of", "samples like", "digits like"))
    return PAGE.format(
        choice=markdown_table(head, rows("choice", VARIANTS)),
        final=markdown_table(head, rows("final", FINAL)),
        junk=markdown_table([*head, *of_junk], rows("junk", DIRTY, of_junk)),
        n=N,
        machine=found["machine"],
    )


def _numbers(run: dict[str, Any]) -> list[str]:
    if "error" in run:
        return ["diverged", "", "", ""]
    return [f"{run['fid']:.1f}", f"{run['precision']:.2f}", f"{run['coverage']:.2f}", f"{run['total']:.0f}"]


PAGE = """\
# What makes better digits in the same time

Made by `python -m studies image-ablation`. {machine}.

One change at a time, one seed. FID, precision and coverage by the classifier's features, of {n:,} samples against {n:,}
training images that the model has not seen. Seconds are those of one core, for training and sampling.

{choice}

Samples of the chosen one, a learning rate of 2e-3 with an average over 1,000 updates:

![Digits](image-ablation.png)

What was chosen, on all training images, against {n:,} held-out images; training images against those have an FID of
30.4 ([images-fid-mnist](images-fid-mnist.md)):

{final}

The same on training images of which a tenth is uniform noise and a twentieth are letters, against clean images that
were kept aside. AP is that of finding one kind of junk among the digits of the training images by their energy; the
columns after it are the shares of samples, and of clean digits, that a linear classifier takes for that junk.

{junk}
"""


TASKS = {"final": FINAL, "junk": DIRTY, "choice": VARIANTS}


def flags(parser: argparse.ArgumentParser) -> None:
    """The flags of this study."""
    add_only(parser, TASKS)


def run(args: argparse.Namespace) -> Path:
    """Measure the settings that are missing; returns the page."""
    return ablation.run(args, TASKS, measure, page, {f"{NAME}.png": key_of(WINNER, "choice")})
