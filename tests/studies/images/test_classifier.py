from dataclasses import replace

import pytest
import torch

from pscd.data import Dataset, load_dataset
from pscd.errors import UserError
from pscd.files import read_tensors, write_tensors
from pscd.images.features import Pixels
from studies.images.classifier import SmallClassifier, load_classifier, load_feature_map
from tests.images.test_features import images


@pytest.fixture(scope="module")
def digits():
    return load_dataset("digits", seed=0)


@pytest.fixture(scope="module")
def classifier(digits, tmp_path_factory):
    return load_feature_map("classifier", digits, cache=tmp_path_factory.mktemp("cache"))


def test_the_classifier_of_the_digits_is_good(classifier, digits):
    assert classifier.accuracy >= 0.97
    assert f"{100 * classifier.accuracy:.2f} % right on 297 test images" in classifier.name
    with torch.no_grad():
        guess = torch.cat([classifier.network.head(classifier(part)) for part in digits.held_out.split(100)]).argmax(1)
    right = (guess == digits.held_out_labels).double().mean().item()
    assert right == pytest.approx(classifier.accuracy, abs=1e-12)  # of the features it gives


def test_its_features_are_as_long_and_tell_classes_apart(classifier, digits):
    features = classifier(digits.held_out)
    assert features.shape == (297, 128)
    assert features.dtype == torch.float32
    assert not features.requires_grad
    distance = torch.cdist(features, features).fill_diagonal_(torch.inf)
    nearest = digits.held_out_labels[distance.argmin(1)]
    pixels = Pixels()(digits.held_out)
    nearest_by_pixels = digits.held_out_labels[torch.cdist(pixels, pixels).fill_diagonal_(torch.inf).argmin(1)]
    right, right_by_pixels = ((n == digits.held_out_labels).float().mean() for n in (nearest, nearest_by_pixels))
    assert right > right_by_pixels


def small_set(n=64, seed=0):
    """Two classes, bright and dark, of grey images."""
    label = torch.arange(n) % 2
    x = images(n, channels=1, seed=seed) // 4 + (label * 150).to(torch.uint8)[:, None, None, None]
    return Dataset(x, x.clone(), None, label, label.clone())


def test_it_is_trained_once_and_kept_with_its_accuracy(tmp_path, monkeypatch):
    data = small_set()
    first = load_classifier(data, cache=tmp_path / "new" / "cache", min_updates=40)
    (path,) = (tmp_path / "new" / "cache").iterdir()
    assert path.name == f"{data.fingerprint}.safetensors"
    _, metadata = read_tensors(path)
    assert float(metadata["accuracy"]) == first.accuracy == 1.0
    state = torch.get_rng_state()
    monkeypatch.setattr("studies.images.classifier.train_classifier", None)  # cannot be called
    again = load_classifier(data, cache=tmp_path / "new" / "cache", min_updates=40)
    assert torch.equal(state, torch.get_rng_state())
    assert again.name == first.name
    assert torch.equal(again(data.train), first(data.train))


def test_other_data_and_damaged_files_are_trained_anew(tmp_path):
    data = small_set()
    features = load_classifier(data, cache=tmp_path, min_updates=40)(data.train)
    load_classifier(replace(data, train_labels=1 - data.train_labels), cache=tmp_path, min_updates=40)
    assert len(list(tmp_path.iterdir())) == 2
    path = tmp_path / f"{data.fingerprint}.safetensors"
    tensors, metadata = read_tensors(path)
    whole = path.read_bytes()
    write_tensors(path, tensors, {**metadata, "version": "0"})
    other_version = path.read_bytes()
    for content in (whole[:100], b"", other_version):
        path.write_bytes(content)
        torch.testing.assert_close(load_classifier(data, cache=tmp_path, min_updates=40)(data.train), features)
        assert read_tensors(path)[1] == metadata


def test_training_leaves_the_global_generator_alone(tmp_path):
    state = torch.get_rng_state()
    load_classifier(small_set(seed=3), cache=tmp_path, min_updates=40)
    assert torch.equal(state, torch.get_rng_state())


def test_the_cache_is_beside_the_image_sets_by_default(tmp_path, monkeypatch):
    monkeypatch.setenv("PSCD_DATA", str(tmp_path))
    load_classifier(small_set(), min_updates=40)
    assert len(list((tmp_path / "classifiers").glob("*.safetensors"))) == 1
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write to"):
        load_classifier(small_set(), cache=tmp_path / "file" / "cache", min_updates=40)


def test_a_classifier_needs_labels_and_images_of_its_shape(classifier):
    x = images(30)
    for data in (None, Dataset(x, x), Dataset(x, x, None, torch.zeros(30).long())):
        with pytest.raises(UserError, match="needs labelled data"):
            load_feature_map("classifier", data)
    with pytest.raises(ValueError, match=r"shape \(3, 8, 8\), the classifier was trained on \(1, 8, 8\)"):
        classifier(x)


@pytest.mark.parametrize(("channels", "size"), [(1, 8), (1, 28), (3, 32), (3, 64), (1, 5)])
def test_the_network_fits_images_of_any_size(channels, size):
    network = SmallClassifier((channels, size, size), 7).eval()
    assert network.features(images(2, channels, size)).shape == (2, 128)
    assert network(images(2, channels, size)).shape == (2, 7)
    assert sum(p.numel() for p in network.parameters()) < 300_000
