"""How far samples of a model are from data that it has not seen."""

from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from pscd.data import Dataset, Rows, as_rows, find_toy, to_bytes
from pscd.errors import UserError
from pscd.files import sealed, write_json, writing_to
from pscd.html import table_html
from pscd.images.features import FeatureMap, load_feature_map
from pscd.metrics import frechet_distance, mmd, prdc
from pscd.model import Model
from pscd.rng import Stream, generator
from pscd.run_folder import RunFolder
from pscd.runs import load_config_data


@dataclass(frozen=True)
class Measurement:
    """Unbiased MMD^2 between real points and `samples` of the model, or other `data` as a baseline."""

    name: str
    mmd: float
    n_real: int
    n_fake: int


@dataclass(frozen=True)
class ImageMeasurement:
    """Fréchet distance and PRDC between real images and `samples` of the model, or training `data` as a baseline.

    Numbers of two feature maps (`features`) are not comparable; with those of the Inception network the Fréchet
    distance is the FID.
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
    """A list of measurements that a notebook shows as a table."""

    def _repr_html_(self) -> str:
        rows = [asdict(measurement) for measurement in self]
        shown = ([f"{v:.4g}" if isinstance(v, float) else v for v in row.values()] for row in rows)
        return table_html([name.replace("_", " ") for name in rows[0]] if rows else [], shown)


def write_measurements(measurements: Measurements[Any], run: RunFolder, *, seed: int = 0) -> None:
    """Write measurements, and the seed that they were made with, to `evaluation.json` of a run folder."""
    with writing_to(run.evaluation):
        write_json(run.evaluation, sealed({"seed": seed, "rows": [asdict(m) for m in measurements]}))


def load_run_data(model: Model) -> Dataset:
    """The data that a model of a run folder was trained on, split as for training.

    Raises:
        UserError: they were rows in memory, which are not kept, or have changed since.
    """
    config = model.config
    if not config.rows.data:
        raise UserError("the model was fitted to rows in memory, which are not kept with it")
    data = load_config_data(config)
    if model.fingerprint is not None and data.fingerprint != model.fingerprint:
        raise UserError(f"{config.rows.data} has changed since the run was trained on it")
    return data


def evaluate(
    model: Model,
    *,
    n: int | None = None,
    seed: int = 0,
    samples: Tensor | None = None,
    real: Rows | None = None,
    features: str | FeatureMap = "pixels",
    data: Dataset | None = None,
) -> Measurements[Any]:
    """Compare samples with held-out data, and data with data: the level of a perfect model.

    Rows are compared by the unbiased MMD^2. Toys are drawn afresh and compared in their own coordinates with the
    paper's kernel, exp(-|x - y|^2 / 4) in two dimensions. Other rows are standardised as for training, and the kernel
    is exp(-|x - y|^2 / (2 d)), the same in two dimensions. Images are compared by Fréchet distance and PRDC.

    Args:
        model: what `fit` or `load` returned.
        n: number of samples, and of real rows at most; by default 10,000, of images 2,000.
        seed: of the samples and the draws.
        samples: rows `(m, *shape)` of the model; drawn if None.
        real: at least four rows `(m, *shape)` that training has not seen. By default those that the run held out,
            contamination included; a model fitted to rows in memory has none. The baseline then compares one half of
            them with the other. Not for images.
        features: of images: `pixels`, the path of a TorchScript Inception, or a feature map.
        data: the data of the run, if they are read already.

    Returns:
        Samples against held-out data, and data against data.

    Raises:
        UserError: there are no or too few real rows, or they have another shape.

    >>> import pscd
    >>> x = torch.randn(300, 2, generator=torch.Generator().manual_seed(0))
    >>> config = pscd.TrainConfig(updates=10, batch_size=32, energy=pscd.Architecture("quadratic"))
    >>> model = pscd.fit(x[:200], config=config)
    >>> samples, floor = pscd.evaluate(model, n=50, real=x[200:])
    >>> samples.name, samples.n_real, floor.name
    ('samples', 50, 'data')
    """
    if model.is_image:
        if real is not None:
            raise UserError("real is for models of rows; images are compared with those that the run held out")
        return _evaluate_images(
            model, n or 2_000, seed, features, samples, load_run_data(model) if data is None else data
        )
    n = n or 10_000
    toy = find_toy(model.config.rows.data) if model.config.rows.data else None
    if real is not None:
        rows = as_rows(real)[: 2 * n]
        if tuple(rows.shape[1:]) != model.shape or len(rows) < 4:
            shape = " x ".join(map(str, rows.shape))
            raise UserError(f"real must be four or more rows of shape {model.shape}; its shape is {shape}")
        held_out, (floor, other) = rows[:n], (rows[::2], rows[1::2])
    elif toy is not None:
        held_out, other = toy(n, generator(seed, Stream.FRESH_REAL)), toy(n, generator(seed, Stream.FRESH_OTHER))
        floor = held_out
    elif not model.config.rows.data:
        raise UserError(
            "the model was fitted to rows in memory, which are not kept with it; give held-out rows: "
            "evaluate(model, real=rows)"
        )
    else:
        data = load_run_data(model) if data is None else data
        train = data.train[~data.train.isnan().flatten(1).any(1)]  # rows with missing values cannot be compared
        held_out, other = data.held_out[:n], train[: len(data.held_out)][:n]
        floor = held_out
    samples = model.sample(n, seed=seed) if samples is None else samples
    coordinates = model.coordinates.to(torch.device("cpu"))
    bandwidth = model.shift.numel() ** 0.5  # columns that never vary are left out

    def measure(name: str, x: Tensor, y: Tensor) -> Measurement:
        if real is not None or toy is None:
            x, y = (coordinates.forward(rows, torch.float64) for rows in (x, y))
        return Measurement(name, mmd(x, y, bandwidth=bandwidth), len(x), len(y))

    return Measurements([measure("samples", held_out, samples), measure("data", floor, other)])


def _evaluate_images(
    model: Model,
    n: int,
    seed: int,
    features: str | FeatureMap,
    samples: Tensor | None,
    data: Dataset,
    min_held_out: int = 10,
) -> Measurements[ImageMeasurement]:
    if len(data.held_out) < min_held_out:  # PRDC compares with five neighbours
        raise UserError(f"evaluation needs at least {min_held_out} held-out images, this run has {len(data.held_out)}")
    feature_map = load_feature_map(features, progress=True) if isinstance(features, str) else features
    samples = model.sample(n, seed=seed, progress=True) if samples is None else samples
    order = torch.randperm(len(data.train), generator=generator(seed, Stream.IMAGES_SHOWN))[:n]
    real = feature_map(data.held_out[:n])

    def measure(name: str, x: Tensor) -> ImageMeasurement:
        fake = feature_map(x)
        shares, distance = prdc(real, fake)._asdict(), frechet_distance(real, fake)
        return ImageMeasurement(name, distance, **shares, features=feature_map.name, n_real=len(real), n_fake=len(fake))

    return Measurements([measure("samples", to_bytes(samples[:n])), measure("data", data.train[order])])
