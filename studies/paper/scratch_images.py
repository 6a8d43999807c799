"""scratch-images: junk among the images from the first update on, without a warm-up on clean ones.

Every line trains a new network: CD and PS-CD on images a share of which is junk, and both on clean images beside them.
PS-CD is shown with a long warm-up of gamma and with a short one. While gamma is small the network learns the junk like
everything else, and a proper score has no reason to forget it.
"""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from pscd.config import TrainConfig
from pscd.data import Dataset, to_bytes
from pscd.errors import Diverged
from pscd.images.features import FeatureMap
from pscd.metrics import frechet_distance
from pscd.rng import generator
from pscd.training import checkpoint
from pscd.training.fit import fit
from studies.engine import Experiment, Result, Row, Run, Settings, digest, mean_rows, objective_label
from studies.engine.streams import StudyStream
from studies.images.classifier import load_feature_map
from studies.images.contamination import junk
from studies.images.sets import load_dataset
from studies.paper.contamination_images import training_images, weights
from studies.paper.images import SHOWN, Choice, decode, encode

GAMMA = 0.3  # per spread
LONG, SHORT = 0.5, 0.05  # warm-ups, as shares of the run
LINES = ((0.0, 0.0), (GAMMA, LONG), (GAMMA, SHORT))  # gamma and warm-up
ROUGH = 1 / 6  # mean difference of neighbouring pixels, half that of uniform noise, from which on an image is noise
FALSE_ALARMS = 0.01  # share of clean images that count as junk
COLUMNS = {
    "fid": "FID",
    "noise": "share of noise among the samples",
    "like_junk": "share of samples that look like junk",
    "junk_seen": "share of junk that looks like junk",
    "auroc": "AUROC of junk among the images",
    "ap": "AP of junk among the images",
    "ess": "ESS of the data",
}


def roughness(images: Tensor) -> Tensor:
    """The mean absolute difference between neighbouring pixels, from 0 to 1; 1/3 for uniform noise.

    >>> roughness(torch.zeros(1, 1, 4, 4, dtype=torch.uint8))
    tensor([0.])
    """
    x = images.float() / 255
    across = (x.diff(dim=3).abs().flatten(1), x.diff(dim=2).abs().flatten(1))
    return torch.cat(across, 1).mean(1)


def looks_like_junk(samples: Tensor, data: Dataset, kind: str, feature_map: FeatureMap, seed: int) -> Result:
    """The share of samples that are nearer to junk than to clean images, by nearest neighbours in feature space.

    How much nearer is enough is set by clean images, `FALSE_ALARMS` of which are near enough, too. The neighbours are
    images that were held out, and junk that is made anew of such images.
    """
    half = min(len(samples), len(data.held_out)) // 2
    made = junk(kind)(data.held_out, 2 * half, generator(seed, StudyStream.FRESH_OUTLIERS))
    clean = feature_map(data.held_out[: 2 * half]).double()
    known = feature_map(made).double()

    def excess(x: Tensor) -> Tensor:
        """How much farther the next clean image is than the next junk."""
        to_clean, to_junk = (torch.cdist(x, other[:half]).amin(1) for other in (clean, known))
        return to_clean - to_junk

    enough = torch.quantile(excess(clean[half:]), 1 - FALSE_ALARMS)
    shares = (float((excess(x) > enough).double().mean()) for x in (feature_map(samples).double(), known[half:]))
    return dict(zip(("like_junk", "junk_seen"), shares, strict=True))


def run_settings(
    choice: Choice,
    gamma: float,
    warmup: float,
    seed: int,
    *,
    contaminated: bool,
    quick: bool,
    start: Literal["none", "glance"] = "none",
) -> Settings:
    """One run: all that decides its numbers."""
    config = choice.config(gamma, seed, quick=quick).changed({"objective.warmup": warmup, "rows.start": start})
    return {
        "gamma": gamma,
        "warmup": warmup,
        "contaminated": contaminated,
        "ratio": choice.ratio,
        "junk": choice.junk,
        "seed": seed,
        # Without labels, which junk has none of.
        "config": config.changed({"energy.classes": 0}).to_dict(),
        "features": choice.features,
        "n": 100 if quick else choice.n,
    }


def runs(choice: Choice, quick: bool, seeds: int) -> list[Settings]:
    """A run for each seed, line, and clean or dirty images."""
    return [
        run_settings(choice, gamma, warmup, seed, contaminated=contaminated, quick=quick)
        for seed in range(seeds)
        for contaminated in (True, False)
        for gamma, warmup in LINES
    ]


def compute(settings: Settings, checkpoints: Path) -> Result:
    """Train, from random weights or from a `warm` run, sample, and measure against clean images not trained on."""
    config = TrainConfig.from_dict(settings["config"])
    data = load_dataset(config.rows.data, seed=settings["seed"])
    x, is_junk = training_images(data, settings)
    of_a_run = ("config", "contaminated", "ratio", "junk", "warm")
    folder = checkpoints / digest(*(settings[name] for name in of_a_run if name in settings))
    try:
        if "warm" in settings:
            checkpoint.branch(_warm_run(TrainConfig.from_dict(settings["warm"]), data, checkpoints), folder)
        model = fit(x, config=config, folder=folder)
    except Diverged as error:
        return {"error": error.reason, **dict.fromkeys(COLUMNS)}
    samples = to_bytes(model.sample(settings["n"], seed=settings["seed"]))
    feature_map = load_feature_map(settings["features"], data)
    real = feature_map(data.held_out[: settings["n"]])
    return {
        "auroc": None,
        "ap": None,
        **weights(model, x, is_junk, settings["gamma"], "spread"),
        "fid": frechet_distance(real, feature_map(samples)),
        "noise": float((roughness(samples) > ROUGH).double().mean()),
        **looks_like_junk(samples, data, settings["junk"], feature_map, settings["seed"]),
        "samples": encode(samples[:SHOWN]),
        "feature_map": feature_map.name,
    }


def _warm_run(config: TrainConfig, data: Dataset, checkpoints: Path) -> Path:
    """The folder of a run on clean images, trained by the first run that asks for it."""
    folder = checkpoints / digest(config.to_dict())
    if not folder.is_dir():
        # Under a name of its own until it is done: another run may want the same run at the same time.
        own = folder.with_suffix(f".{os.getpid()}")
        fit(data.train, config=config, folder=own)
        try:
            own.rename(folder)
        except OSError:  # the other run was faster, and its run is the same
            shutil.rmtree(own)
    return folder


def label(settings: Settings) -> str:
    """What a table calls a line."""
    name = objective_label(settings["gamma"])
    warm = f", warm-up {settings['warmup']:g}" if settings["gamma"] else ""
    return f"{name}{warm}{'' if settings['contaminated'] else ', clean images'}"


def _rows(done: Sequence[Run]) -> list[Row]:
    rows: list[Row] = []
    for value, words in COLUMNS.items():
        kept = [d for d in done if value in d.result]
        rows += mean_rows(kept, lambda s, w=words: (label(s), w), value)  # type: ignore[misc]
    order = list(dict.fromkeys(label(d.settings) for d in done))
    return sorted(rows, key=lambda row: order.index(row.row))


def _draw(done: Sequence[Run], path: Path) -> list[Path]:
    from studies.paper import figures

    first = [d for d in done if d.settings["seed"] == 0 and "samples" in d.result]
    return [figures.image_grids({label(d.settings): decode(d.result["samples"]) for d in first}, path)]


def _notes(done: Sequence[Run]) -> str:
    settings, config = done[0].settings, TrainConfig.from_dict(done[0].settings["config"])
    name = next((d.result["feature_map"] for d in done if "feature_map" in d.result), settings["features"])
    lost = sum(d.result["fid"] is None for d in done)
    return f"""
{config.updates} updates from random weights on images {settings["ratio"]:.0%} of which are {settings["junk"]}, or on
clean ones. A {config.energy.name} of width {config.energy.width}, {config.sampler.n_steps} sampler steps an update,
batches of {config.batch_size}; gamma per spread. FID with {name}, {settings["n"]} samples against as many clean images
that were held out. A sample counts as noise if neighbouring pixels differ by more than {ROUGH:.2f} on average, half of
what uniform noise has. Of {len(done)} runs {lost} diverged.
"""


def scratch_images(choice: Choice) -> Experiment:
    """Junk from the first update on, which the paper has not."""
    name = f"scratch-images-{choice.data}" + ("" if choice.junk == Choice.junk else f"-{choice.junk}")
    return Experiment(
        name,
        f"Training from scratch on {choice.data} with {choice.ratio:.0%} of {choice.junk}",
        "50 minutes",
        3,
        lambda quick, seeds: runs(choice, quick, seeds),
        compute,
        _rows,
        lambda done, out: _draw(done, out / f"{name}.png"),
        _notes,
        store_name=f"scratch-images-{choice.data}",
        keeps_checkpoints=True,
        command=f"scratch-images {choice.options}",
    )
