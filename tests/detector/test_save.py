import json
import shutil

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
    detector = EnergyDetector(updates=5, kinds={"age": "number"}, missing=("999",)).fit(frame)
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


@pytest.mark.parametrize("name", ["cells.mixture.weights", "cells.varies", "mean", "sample_weight"])
def test_what_is_not_there_is_told(name, frame, tmp_path):
    EnergyDetector(updates=5).fit(frame).save(tmp_path)
    path = tmp_path / "detector.safetensors"
    tensors, metadata = read_tensors(path)
    del tensors[name]
    write_tensors(path, tensors, metadata)
    with pytest.raises(UserError, match="damaged"):
        EnergyDetector.load(tmp_path)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A detector of three columns of numbers, one of them constant, and its files."""
    x = np.random.default_rng(0).normal(size=(120, 3))
    x[:, 1] = 4.0
    detector = EnergyDetector(updates=5, random_state=3).fit(x)
    folder = tmp_path_factory.mktemp("detector")
    detector.save(folder)
    return detector, folder


def changed(folder, to, tensors=None, facts=None, metadata=None):
    """A copy of a saved detector, of which some parts are others."""
    shutil.copytree(folder, to, dirs_exist_ok=True)
    old, about = read_tensors(folder / "detector.safetensors")
    told = json.loads(about["facts"])
    for name, value in (facts or {}).items():
        *path, last = name.split(".")
        inner = told
        for part in path:
            inner = inner[part]
        inner.pop(last) if value is None else inner.update({last: value})
    about = about | {"facts": json.dumps(told)} | (metadata or {})
    old = {name: t for name, t in (old | (tensors or {})).items() if t is not None}
    write_tensors(to / "detector.safetensors", old, {name: t for name, t in about.items() if t is not None})
    return to


def test_everything_that_was_fitted_comes_back(saved):
    detector, folder = saved
    again = EnergyDetector.load(folder)
    for name in ("contamination_", "offset_", "n_rows_", "n_features_in_"):
        assert getattr(again, name) == getattr(detector, name)
    assert torch.equal(again.impossible_, detector.impossible_)
    assert again.reader_ == detector.reader_
    np.testing.assert_array_equal(again.sample_weight_, detector.sample_weight_)
    for name, t in detector.cells_.tensors().items():
        assert torch.equal(again.cells_.tensors()[name].nan_to_num(9.5), t.nan_to_num(9.5)), name
    for name in ("mean", "covariance"):
        assert torch.equal(getattr(again.numbers_.gaussian, name), getattr(detector.numbers_.gaussian, name))
    assert not hasattr(again, "feature_names_in_")
    assert again.random_state == 3


@pytest.mark.parametrize("name", ["contamination_", "offset_", "n_rows_"])
def test_what_was_fitted_must_be_there_and_a_number(saved, tmp_path, name):
    for value in ("much", [1.0], None):
        with pytest.raises(UserError, match="damaged, or not a detector of pscd"):
            EnergyDetector.load(changed(saved[1], tmp_path, facts={f"fitted.{name}": value}))


@pytest.mark.parametrize("count", [400, -1, "many"])
def test_the_number_of_neighbours_must_fit_the_rows(tmp_path, count):
    x = np.random.default_rng(0).normal(size=(60, 2))
    detector = EnergyDetector(rank="neighbours", updates=2).fit(x)
    detector.save(tmp_path / "saved")
    with pytest.raises(UserError, match="damaged, or not a detector of pscd"):
        EnergyDetector.load(changed(tmp_path / "saved", tmp_path / "changed", facts={"neighbours": count}))


def test_the_network_of_another_fit_is_told(saved, tmp_path):
    with pytest.raises(UserError, match="not the network of the detector in this folder, but of another fit"):
        EnergyDetector.load(changed(saved[1], tmp_path, metadata={"network": "f00d"}))


def test_a_generator_is_not_saved_as_a_seed(tmp_path):
    x = np.random.default_rng(0).normal(size=(60, 2))
    EnergyDetector(updates=2, random_state=np.random.RandomState(0)).fit(x).save(tmp_path)
    assert EnergyDetector.load(tmp_path).random_state is None
