"""What a finished run can do: sample, score, and be measured against data it has not seen."""

from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from pscd.data import Dataset, Rows, as_rows, find_toy, to_bytes
from pscd.errors import UserError
from pscd.files import sealed, write_json, writing_to
from pscd.html import table_html
from pscd.images.features import load_feature_map
from pscd.metrics import frechet_distance, mmd, prdc
from pscd.model import Model
from pscd.rng import Stream, generator
from pscd.run_folder import RunFolder
from pscd.runs import load_config_data

FEWEST_IMAGES = 10  # a tenth of a folder, and more than the neighbours that PRDC looks at
N_ROWS, N_IMAGES = 10_000, 2_000  # to measure by, unless said


@dataclass(frozen=True)
class Measurement:
    """MMD^2 between two sets of points.

    Args:
        name: what is compared with the real points: `samples` of the model, or other `data`, the floor.
        mmd: unbiased MMD^2, which may be below 0.
        n_real: number of real points.
        n_fake: number of points that are compared with them.
    """

    name: str
    mmd: float
    n_real: int
    n_fake: int


@dataclass(frozen=True)
class ImageMeasurement:
    """Frechet distance and PRDC between two sets of images.

    Args:
        name: what is compared with the real images: `samples` of the model, or training `data`.
        frechet: Frechet distance of the features; the FID where they are those of the Inception network.
        precision: share of the compared images that lie among the real ones.
        recall: share of the real images that lie among the others.
        density: how densely real images surround the others.
        coverage: share of the real images with one of the others nearby.
        features: what the images were seen through; numbers of two maps cannot be compared.
        n_real: number of real images.
        n_fake: number of images that are compared with them.
    """

    name: str
    frechet: float
    precision: float
    recall: float
    density: float
    coverage: float
    features: str
    n_real: int
    n_fake: int


M = TypeVar("M", Measurement, ImageMeasurement)


class Measurements(list[M]):
    """Measurements side by side: a list that a notebook shows as a table."""

    def _repr_html_(self) -> str:
        rows = [asdict(measurement) for measurement in self]
        shown = ([f"{v:.4g}" if isinstance(v, float) else v for v in row.values()] for row in rows)
        return table_html([name.replace("_", " ") for name in rows[0]] if rows else [], shown)


def keep(measurements: Measurements[Any], run: RunFolder, *, seed: int = 0) -> None:
    """Write measurements to the run folder, as `evaluation.json`.

    Args:
        measurements: what `evaluate` or `evaluate_images` returned.
        run: the folder.
        seed: they were made with.

    Raises:
        UserError: it cannot be written.
    """
    with writing_to(run.evaluation):
        write_json(run.evaluation, sealed({"seed": seed, "rows": [asdict(m) for m in measurements]}))


def load_run_data(model: Model) -> Dataset:
    """The data that a model was trained on, split as they were.

    Args:
        model: from a run folder.

    Returns:
        Training and held-out rows.

    Raises:
        UserError: they were rows in memory, which are not kept, or have changed since.
    """
    config = model.config
    if not config.data:
        raise UserError("the model was fitted to rows in memory, which are not kept with it")
    data = load_config_data(config)
    if model.fingerprint is not None and data.fingerprint != model.fingerprint:
        raise UserError(f"{config.data} is not what the run was trained on: it has changed since")
    return data


def evaluate(
    model: Model, *, n: int = N_ROWS, seed: int = 0, samples: Tensor | None = None, real: Rows | None = None
) -> Measurements[Measurement]:
    """MMD^2 of samples against held-out data, beside data against data: the floor that noise sets.

    Toys are drawn afresh and compared in their own coordinates with the paper's kernel, exp(-|x - y|^2 / 4) in two
    dimensions. Other rows are standardised as for training, and the kernel is exp(-|x - y|^2 / (2 d)), the same in two
    dimensions.

    Args:
        model: what training returned, or `load`.
        n: number of samples, and of rows at most, on each side.
        seed: of the samples and the draws.
        samples: rows `(m, *shape)` that the model has drawn already.
        real: rows `(m, *shape)` that training has not seen, at least four. By default those that the run held out, junk
            included; a model fitted to rows in memory has none. The floor then is one half of them against the other.

    Returns:
        Samples against held-out data, and data against data.

    Raises:
        UserError: the model was fitted to rows in memory and no `real` rows are given, or they have another shape.

    >>> import pscd
    >>> x = torch.randn(300, 2, generator=torch.Generator().manual_seed(0))
    >>> config = pscd.TrainConfig(steps=10, batch_size=32, buffer_size=100, energy=pscd.Architecture("quadratic"))
    >>> model = pscd.fit(x[:200], config)
    >>> samples, floor = pscd.evaluate(model, n=50, real=x[200:])
    >>> samples.name, samples.n_real, floor.name
    ('samples', 50, 'data')
    """
    toy = find_toy(model.config.data) if model.config.data else None
    coordinates = model.coordinates.to(torch.device("cpu"))
    dim = model.shift.numel()  # columns that never vary are left out
    if real is not None:
        rows = as_rows(real)[: 2 * n]
        if tuple(rows.shape[1:]) != model.shape or len(rows) < 4:
            shape = " x ".join(map(str, rows.shape))
            raise UserError(f"give four or more rows of shape {model.shape} to measure by; these are {shape}")
        held_out, (floor, other) = rows[:n], (rows[::2], rows[1::2])
    elif toy is not None:
        held_out, other = toy(n, generator(seed, Stream.FRESH_REAL)), toy(n, generator(seed, Stream.FRESH_OTHER))
        floor = held_out
    elif not model.config.data:
        raise UserError(
            "the model was fitted to rows in memory, which are not kept with it; give rows that it has not seen: "
            "evaluate(model, real=rows)"
        )
    else:
        data = load_run_data(model)
        held_out, other = data.held_out[:n], data.train[: len(data.held_out)][:n]
        floor = held_out
    samples = model.sample(n, seed=seed) if samples is None else samples
    is_raw = real is None and toy is not None

    def measure(name: str, real: Tensor, fake: Tensor) -> Measurement:
        if not is_raw:
            real, fake = (coordinates.forward(x, torch.float64) for x in (real, fake))
        distance = mmd(real, fake, bandwidth=dim**0.5)
        return Measurement(name, distance, len(real), len(fake))

    return Measurements([measure("samples", held_out, samples), measure("data", floor, other)])


def evaluate_images(
    model: Model, *, n: int = N_IMAGES, seed: int = 0, features: str = "pixels", samples: Tensor | None = None
) -> Measurements[ImageMeasurement]:
    """Samples against held-out images, beside training images against them: the level of a perfect model.

    Args:
        model: of images, from a run folder.
        n: number of samples, and of real images at most.
        seed: of the samples, and of the choice of training images.
        features: `pixels`, `classifier` or the path of a TorchScript Inception (see `pscd.images.features`).
        samples: images in [0, 1] drawn already.

    Returns:
        Samples against held-out images, and training images against them.

    Raises:
        UserError: the data have changed since, or hold fewer than 10 images to measure by.
    """
    data = load_run_data(model)
    if len(data.held_out) < FEWEST_IMAGES:
        raise UserError(f"{len(data.held_out)} held-out images are too few to measure by; {FEWEST_IMAGES} are needed")
    feature_map = load_feature_map(features, data, progress=True)
    samples = model.sample(n, seed=seed, progress=True) if samples is None else samples
    order = torch.randperm(len(data.train), generator=generator(seed, Stream.IMAGES_SHOWN))[:n]
    real = feature_map(data.held_out[:n])

    def measure(name: str, x: Tensor) -> ImageMeasurement:
        fake = feature_map(x)
        shape = prdc(real, fake)._asdict()
        distance = frechet_distance(real, fake)
        return ImageMeasurement(name, distance, **shape, features=feature_map.name, n_real=len(real), n_fake=len(fake))

    return Measurements([measure("samples", to_bytes(samples[:n])), measure("data", data.train[order])])
