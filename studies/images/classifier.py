"""A small classifier of labelled images, whose last hidden layer is a feature map for the image metrics."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from pscd.data import Dataset, data_root
from pscd.errors import UserError
from pscd.fast import threads_set
from pscd.files import read_tensors, write_tensors
from pscd.images import features
from pscd.images.features import FeatureMap, check_bytes
from pscd.progress import progress_bar
from pscd.rng import generator, integer_seed
from studies.engine.streams import StudyStream

CLASSIFIER_VERSION = "1"  # changes with the network or its training, which makes old files useless


def load_feature_map(
    spec: str,
    data: Dataset | None = None,
    *,
    cache: Path | str | None = None,
    threads: int | None = None,
    progress: bool = False,
) -> FeatureMap:
    """That of `pscd.images.load_feature_map`, or `classifier`: a network trained on the labels of `data`."""
    if spec != "classifier":
        return features.load_feature_map(spec, threads=threads, progress=progress)
    if data is None or data.train_labels is None or data.held_out_labels is None:
        raise UserError("a classifier needs labelled data; use pixels or a TorchScript file")
    return load_classifier(data, cache=cache, threads=threads, progress=progress)


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
        if tuple(check_bytes(x).shape[1:]) != self.shape:
            raise ValueError(f"images have shape {tuple(x.shape[1:])}, the classifier was trained on {self.shape}")
        with threads_set(self.threads), torch.inference_mode():
            found = torch.cat([self.network.features(part) for part in x.split(500)])
        return found.clone()


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
    shape = tuple(check_bytes(x).shape[1:])
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
    rng = generator(seed, StudyStream.CLASSIFIER)
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
