"""scratch-images: junk among the images from the first update on, without a warm-up on clean ones.

Every line trains a new network: CD and PS-CD on images a share of which is junk, and both on clean images beside them.
PS-CD is shown with a long warm-up of gamma and with a short one. While gamma is small the network learns the junk like
everything else, and a proper score has no reason to forget it.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from pscd.config import TrainConfig
from pscd.data import load_dataset, to_bytes
from pscd.errors import Diverged
from pscd.images.features import load_feature_map
from pscd.metrics import frechet_distance
from pscd.paper.artefact import Artefact, CellResult, Row, mean_rows, objective_label
from pscd.paper.contamination_images import training_images, weights
from pscd.paper.images import SHOWN, Choice, decode, encode
from pscd.parallel import Result, Settings, digest
from pscd.training.loop import fit

GAMMA = 0.3  # per spread
LONG, SHORT = 0.5, 0.05  # warm-ups, as shares of the run
LINES = ((0.0, 0.0), (GAMMA, LONG), (GAMMA, SHORT))  # gamma and warm-up
ROUGH = 1 / 6  # mean difference of neighbouring pixels, half that of uniform noise, from which on an image is noise
COLUMNS = {
    "fid": "FID",
    "noise": "share of noise among the samples",
    "auroc": "AUROC of junk among the images",
    "ap": "AP of junk among the images",
    "ess": "ESS of the data",
}


def roughness(images: Tensor) -> Tensor:
    """The mean absolute difference between neighbouring pixels, from 0 to 1; 1/3 for uniform noise.

    Args:
        images: bytes, `(n, channels, height, width)`.

    Returns:
        `(n,)`.

    >>> roughness(torch.zeros(1, 1, 4, 4, dtype=torch.uint8))
    tensor([0.])
    """
    x = images.float() / 255
    across = (x.diff(dim=3).abs().flatten(1), x.diff(dim=2).abs().flatten(1))
    return torch.cat(across, 1).mean(1)


def cells(choice: Choice, quick: bool, seeds: int) -> list[Settings]:
    """A run for each seed, line, and clean or dirty images.

    Args:
        choice: of images, preset, features and junk.
        quick: whether to make it small.
        seeds: number of seeds.

    Returns:
        The settings of each cell; what matters most comes first.
    """
    made = []
    for seed in range(seeds):
        for contaminated in (True, False):
            for gamma, warmup in LINES:
                config = choice.config(gamma, seed, quick=quick).changed({"objective.warmup": warmup})
                made.append(
                    {
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
                )
    return made


def compute(settings: Settings, runs: Path) -> Result:
    """Train from random weights, sample, and measure against clean images that training has not seen."""
    config = TrainConfig.from_dict(settings["config"])
    data = load_dataset(config.data, seed=config.seed)
    x, is_junk = training_images(data, settings)
    folder = runs / digest(*(settings[name] for name in ("config", "contaminated", "ratio", "junk")))
    try:
        model = fit(x, config, folder=folder)
    except Diverged as error:
        return {"error": error.reason, **dict.fromkeys(COLUMNS)}
    samples = to_bytes(model.sample(settings["n"], seed=config.seed))
    feature_map = load_feature_map(settings["features"], data)
    real = feature_map(data.held_out[: settings["n"]])
    return {
        "auroc": None,
        "ap": None,
        **weights(model, x, is_junk, settings["gamma"], "spread"),
        "fid": frechet_distance(real, feature_map(samples)),
        "noise": float((roughness(samples) > ROUGH).double().mean()),
        "samples": encode(samples[:SHOWN]),
        "feature_map": feature_map.name,
    }


def label(settings: Settings) -> str:
    """What a table calls a line."""
    name = objective_label(settings["gamma"])
    warm = f", warm-up {settings['warmup']:g}" if settings["gamma"] else ""
    return f"{name}{warm}{'' if settings['contaminated'] else ', clean images'}"


def _rows(done: Sequence[CellResult]) -> list[Row]:
    rows: list[Row] = []
    for value, words in COLUMNS.items():
        rows += mean_rows(done, lambda s, w=words: (label(s), w), value)  # type: ignore[misc]
    order = list(dict.fromkeys(label(d.settings) for d in done))
    return sorted(rows, key=lambda row: order.index(row.row))


def _draw(done: Sequence[CellResult], path: Path) -> list[Path]:
    from pscd.paper import figures

    first = [d for d in done if d.settings["seed"] == 0 and "samples" in d.result]
    return [figures.image_grids({label(d.settings): decode(d.result["samples"]) for d in first}, path)]


def _notes(done: Sequence[CellResult]) -> str:
    settings, config = done[0].settings, TrainConfig.from_dict(done[0].settings["config"])
    name = next((d.result["feature_map"] for d in done if "feature_map" in d.result), settings["features"])
    lost = sum(d.result["fid"] is None for d in done)
    return f"""
{config.steps} updates from random weights on images {settings["ratio"]:.0%} of which are {settings["junk"]}, or on
clean ones. A {config.energy.name} of width {config.energy.width}, {config.sampler.n_steps} sampler steps an update,
batches of {config.batch_size}; gamma per spread. FID with {name}, {settings["n"]} samples against as many clean images
that were held out. A sample counts as noise if neighbouring pixels differ by more than {ROUGH:.2f} on average, half of
what uniform noise has. Of {len(done)} runs {lost} diverged.
"""


def scratch_images(choice: Choice) -> Artefact:
    """Junk from the first update on, which the paper has not."""
    name = f"scratch-images-{choice.data}" + ("" if choice.junk == Choice.junk else f"-{choice.junk}")
    return Artefact(
        name,
        f"Training from scratch on {choice.data} with {choice.ratio:.0%} of {choice.junk}",
        "50 minutes",
        3,
        lambda quick, seeds: cells(choice, quick, seeds),
        compute,
        _rows,
        lambda done, out: _draw(done, out / f"{name}.png"),
        _notes,
        keeps_runs=True,
        command=f"scratch-images {choice.options}",
    )
