"""Feature maps for the image metrics: bytes `(n, channels, height, width)` in, `(n, d)` numbers out.

Each has a `name` to print beside the numbers that it leads to: Fréchet distances of two maps are not comparable.
"""

import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from pscd.data import Dataset, data_root, to_unit
from pscd.errors import UserError
from pscd.fast import threads_set
from pscd.files import read_tensors, write_tensors
from pscd.progress import progress_bar
from pscd.rng import Stream, generator, integer_seed

BFLOAT16 = "@bfloat16"  # suffix of the path of a TorchScript file
CLASSIFIER_VERSION = "1"  # changes with the network or its training, which makes old files useless


class FeatureMap(Protocol):
    """A callable with a name."""

    @property
    def name(self) -> str:
        """A short description of the features."""
        ...

    def __call__(self, x: Tensor) -> Tensor:
        """Features, float32 `(n, d)`, of `(n, channels, height, width)` bytes."""
        ...


def load_feature_map(
    spec: str,
    data: Dataset | None = None,
    *,
    cache: Path | str | None = None,
    threads: int | None = None,
    progress: bool = False,
) -> FeatureMap:
    """The feature map that a word or a path describes.

    Args:
        spec: `pixels`; `classifier`, a small network trained on the labels of `data`; or the path of a TorchScript
            file, such as the Inception network of the FID, as it is or below the folder of image sets; with
            `@bfloat16` after it, computed in bfloat16.
        data: images with labels, for the classifier.
        cache: folder where trained classifiers are kept (default: `classifiers` in the folder of image sets).
        threads: processor threads while features are computed (default: as set).
        progress: whether to show a progress bar.

    Returns:
        The feature map.

    Raises:
        UserError: there is no such map, the data have no labels for a classifier, or the file is not readable.

    >>> load_feature_map("pixels")(torch.zeros(2, 1, 8, 8, dtype=torch.uint8)).shape
    torch.Size([2, 64])
    """
    if spec == "pixels":
        return Pixels()
    if spec == "classifier":
        if data is None or data.train_labels is None or data.held_out_labels is None:
            raise UserError("a classifier needs labelled data; use pixels or a TorchScript file")
        return load_classifier(data, cache=cache, threads=threads, progress=progress)
    file = spec.removesuffix(BFLOAT16)
    for path in (Path(file), data_root() / file):
        if path.is_file():
            return Scripted(path, half=spec != file, threads=threads, progress=progress)
    raise UserError(f"unknown features {spec!r}; give pixels, classifier or the path of a TorchScript file")


class Pixels:
    """The pixels in [0, 1]. Distances do not match human perception, but need no network."""

    name = "raw pixels"

    def __call__(self, x: Tensor) -> Tensor:
        """One number for each byte."""
        return to_unit(_checked(x).flatten(1))


# --- TorchScript ---


class Scripted:
    """A network in a TorchScript file, such as the Inception of 2015 that defines the FID.

    A network that takes bytes of any size gets them as they are. Any other gets the input that defines the FID: 299 x
    299 pixels, scaled as in TensorFlow 1, as (x - 128) / 128. Grey images are repeated to three channels. The first of
    several outputs is used. A network with the option `return_features`, such as inception-2015-12-05.pt, is called
    with it. In bfloat16 (`half`) features differ by a few per cent, so the name contains the precision.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        half: bool = False,
        batch_size: int = 50,
        input_size: int = 299,
        threads: int | None = None,
        progress: bool = False,
    ) -> None:
        path = Path(path)
        try:
            self.module = torch.jit.load(path, map_location="cpu").eval()
        except (RuntimeError, ValueError, OSError) as error:
            raise UserError(f"{path}: not a readable TorchScript file ({str(error).splitlines()[0]})") from None
        self.half = half
        if half:
            self.module = self.module.to(torch.bfloat16)
        arguments = [argument.name for argument in self.module.forward.schema.arguments]
        self.options = {"return_features": True} if "return_features" in arguments else {}
        self.batch_size, self.input_size, self.threads, self.progress = batch_size, input_size, threads, progress
        self.takes_bytes = True
        size = f"{input_size} x {input_size}"
        if not self._works():
            self.takes_bytes = False
            if not self._works():
                raise UserError(
                    f"{path}: takes neither bytes (n, 3, 32, 32) nor numbers (n, 3, {size}) for (n, d) features"
                )
        how = "bytes" if self.takes_bytes else f"{size} as in TensorFlow 1"
        self.name = f"{path.name} ({zlib.crc32(path.read_bytes()):08x}), {how}{', in bfloat16' if half else ''}"

    def _works(self) -> bool:
        try:
            features = self._features(torch.zeros(2, 3, 32, 32, dtype=torch.uint8))
        except (RuntimeError, TypeError, ValueError, IndexError):
            return False
        return features.ndim == 2 and len(features) == 2

    @torch.inference_mode()
    def _features(self, x: Tensor) -> Tensor:
        x = x.repeat(1, 3, 1, 1) if x.shape[1] == 1 else x
        if not self.takes_bytes:
            x = (scale_as_tensorflow(x.float(), self.input_size) - 128) / 128
            x = x.contiguous(memory_format=torch.channels_last)  # about 15 % faster
            x = x.bfloat16() if self.half else x
        output = self.module(x, **self.options)
        return (output if isinstance(output, Tensor) else output[0]).flatten(1).float()

    def __call__(self, x: Tensor) -> Tensor:
        """The network's features, in batches."""
        parts = []
        with threads_set(self.threads), progress_bar(len(x), show=self.progress, unit="image") as bar:
            for part in _checked(x).split(self.batch_size):
                parts.append(self._features(part).clone())
                bar.update(len(part))
        return torch.cat(parts)


def scale_as_tensorflow(x: Tensor, size: int) -> Tensor:
    """Bilinear scaling to a square as in TensorFlow 1: pixel i of the result lies at i * (old / new) of the source.

    Other libraries align the centres of pixels instead, which shifts the image by up to half a pixel and changes the
    FID.
    """
    rows, columns = (_interpolation(old, size).to(x.dtype) for old in x.shape[2:])
    return rows @ x @ columns.T


def _interpolation(old: int, new: int) -> Tensor:
    """The `(new, old)` matrix of weights."""
    at = torch.arange(new, dtype=torch.float64) * (old / new)
    low = at.floor().long().clamp(max=old - 1)
    high = (low + 1).clamp(max=old - 1)
    share = at - low
    weights = torch.zeros(new, old, dtype=torch.float64)
    weights.scatter_add_(1, low[:, None], (1 - share)[:, None])
    return weights.scatter_add_(1, high[:, None], share[:, None])


# --- a classifier ---


class SmallClassifier(nn.Module):
    """Convolutions and halvings until fewer than 8 pixels are left on a side, then features, then classes."""

    def __init__(self, shape: Sequence[int], n_classes: int, n_features: int = 128) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        n_in, height, width = shape
        n_out = 16
        while min(height, width) >= 8:
            layers += [nn.Conv2d(n_in, n_out, 3, padding=1), nn.BatchNorm2d(n_out), nn.ReLU(), nn.MaxPool2d(2)]
            height, width, n_in, n_out = height // 2, width // 2, n_out, min(2 * n_out, 64)
        self.body = nn.Sequential(*layers, nn.Flatten(), nn.Linear(n_in * height * width, n_features), nn.ReLU())
        self.head = nn.Linear(n_features, n_classes)

    def features(self, x: Tensor) -> Tensor:
        """The last layer before the classes, of bytes."""
        return self.body(x.float() / 127.5 - 1)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        return self.head(self.features(x))


class ClassifierFeatures:
    """The penultimate layer of a trained classifier; `accuracy` is that on `n_test` held-out images."""

    def __init__(
        self, network: SmallClassifier, shape: tuple[int, ...], accuracy: float, n_test: int, threads: int | None = None
    ) -> None:
        self.network, self.shape, self.accuracy, self.threads = network.eval(), shape, accuracy, threads
        n_features = network.head.in_features
        self.name = f"classifier's {n_features} features ({100 * accuracy:.2f} % right on {n_test} test images)"

    def __call__(self, x: Tensor) -> Tensor:
        """The features, in blocks."""
        if tuple(_checked(x).shape[1:]) != self.shape:
            raise ValueError(f"images have shape {tuple(x.shape[1:])}, the classifier was trained on {self.shape}")
        with threads_set(self.threads), torch.inference_mode():
            features = torch.cat([self.network.features(part) for part in x.split(500)])
        return features.clone()


def load_classifier(
    data: Dataset,
    *,
    cache: Path | str | None = None,
    threads: int | None = None,
    progress: bool = False,
    min_updates: int = 400,
) -> ClassifierFeatures:
    """The classifier of a data set's labels, read from the cache, or trained and kept there."""
    x, label, test_label = data.train, data.train_labels, data.held_out_labels
    assert label is not None
    assert test_label is not None
    shape = tuple(_checked(x).shape[1:])
    network = _new_classifier(shape, label, seed=0)
    path = (Path(cache) if cache is not None else data_root() / "classifiers") / f"{data.fingerprint}.safetensors"
    accuracy = _read_classifier(path, network)
    if accuracy is None:
        with threads_set(threads):
            network = train_classifier(x, label, min_updates=min_updates, progress=progress)
            accuracy = _accuracy(network, data.held_out, test_label)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_tensors(path, network.state_dict(), {"version": CLASSIFIER_VERSION, "accuracy": repr(accuracy)})
        except OSError as error:
            raise UserError(f"cannot write to {path.parent}: {error.strerror}; give another cache") from None
    return ClassifierFeatures(network, shape, accuracy, len(test_label), threads)


def train_classifier(
    x: Tensor, label: Tensor, *, min_updates: int = 400, seed: int = 0, progress: bool = False
) -> SmallClassifier:
    """Train a classifier of bytes `(n, 1 or 3, height, width)` with Adam: four epochs, or `min_updates` if larger."""
    rng = generator(seed, Stream.CLASSIFIER)
    network = _new_classifier(x.shape[1:], label, integer_seed(rng))
    batch_size = min(128, len(x))
    n_updates = max(min_updates, 4 * len(x) // batch_size)
    optimizer = torch.optim.Adam(network.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=5e-3, total_steps=n_updates)
    with progress_bar(n_updates, show=progress, unit="update") as bar:
        for index in _batches(len(x), batch_size, n_updates, rng):
            optimizer.zero_grad()
            cross_entropy(network(x[index]), label[index]).backward()
            optimizer.step()
            schedule.step()
            bar.update()
    return network.eval()


def _new_classifier(shape: Sequence[int], label: Tensor, seed: int) -> SmallClassifier:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return SmallClassifier(shape, int(label.max()) + 1)


def _batches(n: int, size: int, n_batches: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Indices of every batch: epochs in random order, without the last incomplete batch."""
    left = n_batches
    while left > 0:
        for index in torch.randperm(n, generator=generator)[: n - n % size].split(size)[:left]:
            left -= 1
            yield index


@torch.inference_mode()
def _accuracy(network: SmallClassifier, x: Tensor, label: Tensor) -> float:
    guess = torch.cat([network(part).argmax(1) for part in x.split(500)])
    return float((guess == label).double().mean())


def _read_classifier(path: Path, network: SmallClassifier) -> float | None:
    """Fill the network from a file and return its accuracy; None if there is no readable file of this version."""
    try:
        tensors, metadata = read_tensors(path)
        if metadata["version"] != CLASSIFIER_VERSION:
            return None
        network.load_state_dict(tensors)
        return float(metadata["accuracy"])
    except (OSError, SafetensorError, KeyError, RuntimeError, ValueError, TypeError):
        return None


def _checked(x: Tensor) -> Tensor:
    if x.ndim != 4 or x.dtype != torch.uint8 or x.shape[1] not in (1, 3):
        raise ValueError(f"give bytes (n, 1 or 3, height, width), not {x.dtype} {tuple(x.shape)}")
    return x
