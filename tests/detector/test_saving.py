import numpy as np
import pytest
import torch

from pscd import EnergyDetector, UserError
from pscd.files import read_tensors, write_tensors
from tests.detector.tables import people, with_gaps


@pytest.fixture(scope="module")
def frame():
    return with_gaps(people(200), 0.1)


def test_a_detector_of_a_dirty_table_is_the_same_again(frame, tmp_path):
    detector = EnergyDetector(n_updates=5, kinds={"age": "number"}, missing=("999",)).fit(frame)
    detector.save(tmp_path)
    again = EnergyDetector.load(tmp_path)
    np.testing.assert_array_equal(again.score_samples(frame), detector.score_samples(frame))
    assert again.explain(frame).equals(detector.explain(frame))
    assert again.sample(20).equals(detector.sample(20))
    assert again.impute(frame, n=1)[0].equals(detector.impute(frame, n=1)[0])
    assert again.get_params() == detector.get_params()
    assert list(again.feature_names_in_) == list(frame.columns)


def test_categories_alone_need_no_network(tmp_path):
    frame = people(200)[["sex"]].assign(group=lambda f: np.where(np.arange(200) % 3 > 0, f["sex"], "other"))
    detector = EnergyDetector().fit(frame)
    detector.save(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["detector.safetensors"]
    again = EnergyDetector.load(tmp_path)
    np.testing.assert_array_equal(again.score_samples(frame), detector.score_samples(frame))
    assert set(again.sample(50)["sex"]) == {"m", "f"}


def test_a_detector_without_a_mixture_explains_by_its_gaussian(tmp_path):
    """As detectors were saved before cells had a model of their own."""
    x = np.random.default_rng(0).normal(size=(200, 3))
    detector = EnergyDetector(n_updates=5).fit(x)
    detector.save(tmp_path)
    path = tmp_path / "detector.safetensors"
    tensors, metadata = read_tensors(path)
    write_tensors(path, {name: t for name, t in tensors.items() if not name.startswith("cells.")}, metadata)
    again = EnergyDetector.load(tmp_path)
    np.testing.assert_array_equal(again.score_samples(x), detector.score_samples(x))
    gaussian = again.numbers_.gaussian
    z = again.cells_.forward(torch.from_numpy(x))
    cost = ((z - gaussian.mean) @ gaussian.precision).square() / gaussian.precision.diagonal() / 2
    trusted = np.asarray(~again.flag_cells(x)).all(1)
    np.testing.assert_allclose(again.explain(x)[trusted], cost.numpy()[trusted], rtol=1e-6)


@pytest.mark.parametrize("name", ["cells.mixture.weights", "cells.varies", "mean", "sample_weight"])
def test_what_is_not_there_is_told(name, frame, tmp_path):
    EnergyDetector(n_updates=5).fit(frame).save(tmp_path)
    path = tmp_path / "detector.safetensors"
    tensors, metadata = read_tensors(path)
    del tensors[name]
    write_tensors(path, tensors, metadata)
    with pytest.raises(UserError, match="damaged"):
        EnergyDetector.load(tmp_path)
