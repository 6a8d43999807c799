"""What a finished run can do: sample, score, and be measured against data it has not seen."""

from dataclasses import dataclass

import torch
from torch import Tensor

from pscd.data import TOYS, Dataset
from pscd.data.toys import Draw
from pscd.errors import UserError
from pscd.images.features import load_feature_map
from pscd.metrics import frechet_distance, mmd, prdc
from pscd.model import Model
from pscd.rng import generator
from pscd.runs import load_config_data

FEWEST_IMAGES = 10  # a tenth of a folder, and more than the neighbours that PRDC looks at


@dataclass(frozen=True)
class Measurement:
    """MMD^2 between two sets of points, with how many there were of each."""

    name: str
    mmd: float
    n_real: int
    n_fake: int


@dataclass(frozen=True)
class ImageMeasurement:
    """Frechet distance and PRDC between two sets of images, by the features they were seen through."""

    name: str
    frechet: float
    precision: float
    recall: float
    density: float
    coverage: float
    features: str
    n_real: int
    n_fake: int


def load_run_data(model: Model) -> Dataset:
    """The data a run was trained on, split as it was; a `UserError` if they have changed since."""
    config = model.config
    data = load_config_data(config)
    if model.fingerprint is not None and data.fingerprint != model.fingerprint:
        raise UserError(f"{config.data} is not what the run was trained on: it has changed since")
    return data


def evaluate(model: Model, *, n: int = 10_000, seed: int = 0, samples: Tensor | None = None) -> list[Measurement]:
    """MMD^2 of samples against held-out data, beside data against data: the floor that noise sets.

    Toys are drawn afresh, `n` points, and compared in their own coordinates with the paper's kernel,
    exp(-|x - y|^2 / 4) in two dimensions. Of a file, the held-out rows are what there is, junk included;
    its columns are standardised, and the kernel is exp(-|x - y|^2 / (2 d)), the same in two dimensions.
    `samples` drawn already save drawing them again.
    """
    config = model.config
    if config.data in TOYS:
        draw: Draw = TOYS[config.data]
        real, other = draw(n, generator(seed, 6)), draw(n, generator(seed, 7))
        shift, scale = torch.tensor(0.0), torch.tensor(1.0)
    else:
        data = load_run_data(model)
        real, other = data.held_out[:n], data.train[: len(data.held_out)][:n]
        shift, scale = model.shift.cpu(), model.scale.cpu()
    if samples is None:
        samples = model.sample(n, seed=seed)
    bandwidth = real[0].numel() ** 0.5

    def measure(name: str, fake: Tensor) -> Measurement:
        distance = mmd((real - shift) / scale, (fake - shift) / scale, bandwidth=bandwidth)
        return Measurement(name, distance, len(real), len(fake))

    return [measure("samples", samples), measure("data", other)]


def evaluate_images(
    model: Model, *, n: int = 2000, seed: int = 0, features: str = "pixels", samples: Tensor | None = None
) -> list[ImageMeasurement]:
    """Samples against held-out images, beside training images against them: the level of a perfect model.

    Args:
        features: `pixels`, `classifier` or the path of a TorchScript Inception (see `pscd.images.features`).
        samples: images in [0, 1] drawn already.
    """
    data = load_run_data(model)
    if len(data.held_out) < FEWEST_IMAGES:
        raise UserError(f"{len(data.held_out)} held-out images are too few to measure by; {FEWEST_IMAGES} are needed")
    feature_map = load_feature_map(features, data, progress=True)
    samples = model.sample(n, seed=seed, progress=True) if samples is None else samples
    order = torch.randperm(len(data.train), generator=generator(seed, 23))[:n]
    real = feature_map(data.held_out[:n])

    def measure(name: str, x: Tensor) -> ImageMeasurement:
        fake = feature_map(x)
        shape = prdc(real, fake)._asdict()
        distance = frechet_distance(real, fake)
        return ImageMeasurement(name, distance, **shape, features=feature_map.name, n_real=len(real), n_fake=len(fake))

    return [measure("samples", as_bytes(samples[:n])), measure("data", data.train[order])]


def as_bytes(x: Tensor) -> Tensor:
    """Images in [0, 1] as bytes."""
    return (x * 255).round().clamp(0, 255).to(torch.uint8)
