import os
import pickle
import shutil
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pscd import EnergyDetector, UserError
from pscd.tables import encode
from tests.detector.tables import people, with_gaps

CHECKS = """
import warnings
from sklearn.utils.estimator_checks import check_estimator
from pscd import EnergyDetector
import torch
torch.set_num_threads(1)
warnings.simplefilter("ignore")  # check_estimator provokes them
results = check_estimator(EnergyDetector(updates=5), on_fail=None, on_skip=None)
print([(r["check_name"], r["status"]) for r in results if r["status"] != "passed"], len(results) > 40)
"""


def table(n=600, d=4, junk=0.1, seed=0):
    """Correlated rows and a cluster of junk, and which rows are junk."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + 10
    y = np.arange(n) < junk * n
    centre, spread = x.mean(0), x.std(0)
    x[y] = centre + 4 * spread * np.array([1, -1] * d)[:d] + 0.2 * spread * rng.normal(size=(y.sum(), d))
    return x, y


@pytest.fixture(scope="module")
def fitted():
    x, y = table()
    return EnergyDetector(updates=60).fit(x), x, y


def test_passes_every_check_of_scikit_learn():
    """In a process of its own: one of the checks is skipped unless an environment variable is set at start."""
    environment = {**os.environ, "SCIPY_ARRAY_API": "1"}
    done = subprocess.run([sys.executable, "-c", CHECKS], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[] True", done.stdout + done.stderr


def test_finds_the_junk_that_it_was_trained_on(fitted):
    detector, x, y = fitted
    assert roc_auc_score(y, -detector.score_samples(x)) > 0.99
    assert detector.sample_weight_[y].max() < 0.01
    assert np.median(detector.sample_weight_[~y]) > 0.5
    assert detector.contamination_ == pytest.approx(0.1, abs=0.04)
    assert (detector.predict(x)[y] == -1).all()


def test_robustness_is_what_finds_it():
    x, y = table(junk=0.2)
    robust = EnergyDetector(updates=60).fit(x)
    plain = EnergyDetector(gamma=0.0, updates=60).fit(x)
    assert (plain.sample_weight_ == 1).all()
    assert roc_auc_score(y, -robust.score_samples(x)) > 0.99 > roc_auc_score(y, -plain.score_samples(x))


def test_clean_data_are_hardly_affected():
    x, _ = table(n=2000, junk=0.0)
    detector = EnergyDetector(updates=60).fit(x)
    plain = EnergyDetector(gamma=0.0, updates=60).fit(x)
    assert np.corrcoef(detector.score_samples(x), plain.score_samples(x))[0, 1] > 0.97
    assert detector.contamination_ < 0.05


def test_same_seed_same_scores(fitted):
    detector, x, _ = fitted
    again = clone(detector).fit(x)
    np.testing.assert_array_equal(again.score_samples(x), detector.score_samples(x))
    other = clone(detector).set_params(random_state=1).fit(x)
    assert not np.array_equal(other.score_samples(x), detector.score_samples(x))


def test_contamination_sets_the_threshold(fitted):
    detector, x, _ = fitted
    third = clone(detector).set_params(contamination=0.25).fit(x)
    assert (third.predict(x) == -1).mean() == pytest.approx(0.25, abs=0.005)
    np.testing.assert_allclose(third.decision_function(x), third.score_samples(x) - third.offset_)


def test_samples_look_like_the_majority(fitted):
    detector, x, y = fitted
    new = detector.sample(2000, seed=3)
    assert new.shape == (2000, x.shape[1])
    np.testing.assert_allclose(np.median(new, 0), np.median(x[~y], 0), atol=0.3 * x[~y].std(0).max())
    np.testing.assert_array_equal(new, detector.sample(2000, seed=3))


def test_the_column_that_was_spoilt_is_named(fitted):
    detector, x, y = fitted
    row = x[~y][:20].copy()
    row[:, 2] += 6 * x[~y, 2].std()
    blame = detector.explain(row)
    assert (blame.argmax(1) == 2).mean() > 0.8
    assert (blame[:, 2] > 0).all()


def test_tables_as_they_come(tmp_path):
    """Constant, duplicated, binary, discrete and heavy-tailed columns, integers and names."""
    x, y = table(n=400)
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(x, columns=list("abcd"))
    frame["constant"] = 3
    frame["again"] = frame["a"]
    frame["binary"] = rng.integers(0, 2, 400)
    frame["rare"] = (rng.uniform(size=400) < 0.01).astype(int)
    frame["tail"] = rng.standard_cauchy(400) ** 3
    detector = EnergyDetector(updates=60).fit(frame)
    assert list(detector.feature_names_in_) == list(frame.columns)
    assert roc_auc_score(y, -detector.score_samples(frame)) > 0.9
    assert (detector.explain(frame)["constant"] == 0).all()
    changed = frame.assign(constant=4)
    np.testing.assert_allclose(detector.explain(changed)["constant"], np.log(401))
    difference = detector.score_samples(frame) - detector.score_samples(changed)
    np.testing.assert_allclose(difference, np.log(401))
    assert (detector.sample(5).iloc[:, 4] == 3).all()
    with pytest.raises(ValueError, match="feature names"):
        detector.score_samples(frame.rename(columns={"a": "z"}))


def test_saved_loaded_and_pickled_are_the_same(fitted, tmp_path):
    detector, x, _ = fitted
    detector.save(tmp_path / "run")
    loaded = EnergyDetector.load(tmp_path / "run")
    for other in (loaded, pickle.loads(pickle.dumps(detector))):
        np.testing.assert_array_equal(other.decision_function(x), detector.decision_function(x))
        np.testing.assert_array_equal(other.sample(10), detector.sample(10))
        np.testing.assert_array_equal(other.sample_weight_, detector.sample_weight_)
    assert loaded.get_params() == detector.get_params()
    (tmp_path / "run" / "detector.safetensors").write_bytes(b"junk")
    with pytest.raises(UserError, match="damaged"):
        EnergyDetector.load(tmp_path / "run")
    with pytest.raises(UserError, match="no fitted detector"):
        EnergyDetector.load(tmp_path)


def test_files_of_two_fits_are_not_mixed_up(fitted, tmp_path):
    detector, x, _ = fitted
    other = EnergyDetector(updates=5, random_state=1).fit(x)
    detector.save(tmp_path / "one")
    other.save(tmp_path / "two")
    network = "network.safetensors"
    shutil.copy(tmp_path / "two" / network, tmp_path / "one" / network)
    with pytest.raises(UserError, match="not the network of the detector in this folder, but of another fit"):
        EnergyDetector.load(tmp_path / "one")
    (tmp_path / "one" / network).write_bytes(b"junk")
    with pytest.raises(UserError, match=r"network\.safetensors: damaged"):
        EnergyDetector.load(tmp_path / "one")
    (tmp_path / "one" / network).unlink()
    with pytest.raises(UserError, match="no such file"):
        EnergyDetector.load(tmp_path / "one")


def test_a_detector_does_not_claim_to_be_trained_on_a_toy(fitted):
    assert fitted[0].numbers_.model.config.rows.data == ""


def test_saved_files_have_the_permissions_that_the_umask_gives(fitted, tmp_path):
    before = os.umask(0o027)
    try:
        fitted[0].save(tmp_path)
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o640}


def test_works_in_a_pipeline():
    x, y = table()
    pipeline = make_pipeline(StandardScaler(), EnergyDetector(updates=20)).set_output(transform="pandas")
    assert roc_auc_score(y, -pipeline.fit(x).score_samples(x)) > 0.99


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.ones((30, 2)), "constant"),
        (np.array([[1.0, np.nan]] * 5), "constant"),
        (np.full((5, 2), np.nan), "constant"),
        (np.array([[1.0, np.inf], [2.0, 3.0]]), "infinity"),
        (np.arange(5.0), "2D array"),
        (np.ones((1, 3)), "minimum of 2"),
    ],
)
def test_bad_input(x, message):
    with pytest.raises(ValueError, match=message):
        EnergyDetector().fit(x)


@pytest.mark.parametrize(
    "settings",
    [
        {"gamma": -0.1},
        {"gamma": "auto"},
        {"gamma": True},
        {"gamma": float("nan")},
        {"bound": float("inf")},
        {"gamma": None},
        {"contamination": 0.7},
        {"contamination": 0},
        {"contamination": "some"},
        {"bound": 0},
        {"bound": "2"},
        {"updates": 0},
        {"updates": 2.5},
        {"updates": True},
        {"rank": "rows"},
    ],
)
def test_bad_parameters(settings):
    with pytest.raises(ValueError, match=f"^{next(iter(settings))} must be "):
        EnergyDetector(**settings).fit(table()[0])


@pytest.mark.parametrize(("reach", "share"), [(6, 0.05), (6, 0.1), (6, 0.2)])
def test_tight_clusters_of_junk_are_found(reach, share):
    rng = np.random.default_rng(0)
    x, n = rng.normal(size=(1000, 3)), int(1000 * share)
    x[:n] = 0.1 * rng.normal(size=(n, 3)) + [reach, 0, 0]
    detector = EnergyDetector(updates=60).fit(x)
    assert roc_auc_score(np.arange(1000) < n, -detector.score_samples(x)) > 0.95


def ring(n, seed):
    """A circle of radius 3 with a little noise: its Gaussian takes the empty middle for the most normal place."""
    rng = np.random.default_rng(seed)
    angle = rng.uniform(0, 2 * np.pi, n)
    return np.stack([3 * np.cos(angle), 3 * np.sin(angle)], 1) + 0.3 * rng.normal(size=(n, 2))


@pytest.fixture(scope="module")
def on_a_ring():
    return EnergyDetector(gamma=0.2, bound=4.0).fit(ring(1000, 0))


def of_the_gaussian(x, gamma):
    """A detector whose network may not say anything."""
    return EnergyDetector(gamma=gamma, bound=1e-9, updates=1).fit(x)


def test_the_network_sees_what_no_gaussian_can(on_a_ring):
    """Rows in the middle of a ring: the Gaussian ranks them as the most normal of all, the network as the strangest."""
    normal, strange = ring(500, 1), 0.6 * np.random.default_rng(2).normal(size=(200, 2))

    def found(detector):
        scores = detector.score_samples(np.concatenate([normal, strange]))
        return roc_auc_score(np.repeat([0, 1], [500, 200]), -scores)

    assert found(of_the_gaussian(ring(1000, 0), 0.2)) < 0.05
    assert found(on_a_ring) > 0.95


def groups(n, seed):
    """Two far groups of rows; the mean of all lies between them."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 4)) + 6 * rng.integers(0, 2, size=(n, 1)) * [1, 1, 1, 1]


def test_neighbours_see_rows_between_groups(tmp_path):
    """Rows between two groups are ordinary for the energy, which is a Gaussian's but for a little."""
    x = np.concatenate([groups(600, 0), 3 + 0.5 * np.random.default_rng(1).normal(size=(15, 4))])
    junk = np.repeat([0, 1], [600, 15])
    found = {rank: EnergyDetector(rank=rank).fit(x) for rank in ("energy", "neighbours")}
    assert roc_auc_score(junk, -found["energy"].score_samples(x)) < 0.9
    detector = found["neighbours"]
    assert roc_auc_score(junk, -detector.score_samples(x)) > 0.98
    detector.save(tmp_path)
    again = EnergyDetector.load(tmp_path)
    np.testing.assert_array_equal(again.score_samples(x), detector.score_samples(x))
    assert again.predict(x).tolist() == detector.predict(x).tolist()


def test_numbers_are_learnt_and_ranked_without_the_mixture_of_cells(tmp_path):
    """Most of the time of a fit would go into it; a question about cells, or a gap, brings it about."""
    x = np.random.default_rng(0).normal(size=(60, 2))
    detector = EnergyDetector(updates=2).fit(x)
    detector.predict(x)
    detector.sample(3)
    assert "mixture" not in vars(detector.cells_)
    other = pickle.loads(pickle.dumps(detector))
    detector.save(tmp_path / "saved")
    np.testing.assert_array_equal(EnergyDetector.load(tmp_path / "saved").explain(x), other.explain(x))
    assert "mixture" in vars(other.cells_)
    with_gap = EnergyDetector(updates=2).fit(np.vstack([x, [[np.nan, 0.0]]]))
    assert "mixture" in vars(with_gap.cells_)


@pytest.fixture(scope="module")
def contaminated():
    """A table, a tenth of it outliers, and its detector."""
    x = np.random.default_rng(0).normal(size=(150, 3))
    x[:15] += 9
    return x, EnergyDetector(updates=5).fit(x)


def test_threshold_contamination_and_weights_by_hand(contaminated):
    x, detector = contaminated
    energy = detector.energy(x)
    np.testing.assert_array_equal(detector.score_samples(x), -energy)
    samples = detector.energy(detector.sample(4_000, seed=0))
    edge = np.quantile(samples, 0.99)
    outside = (energy > edge).mean()
    assert detector.contamination_ == pytest.approx(max(0.0, (outside - 0.01) / 0.99))
    assert detector.offset_ == pytest.approx(max(-edge, np.percentile(-energy, 1)))
    weights = np.minimum(1, np.exp(-detector.gamma * (energy - np.quantile(energy, 0.5, method="lower"))))
    np.testing.assert_allclose(detector.sample_weight_, weights)
    assert detector.n_ignored == (weights < 0.1).sum() >= 15
    np.testing.assert_array_equal(detector.predict(x), np.where(-energy < detector.offset_, -1, 1))


def test_a_stated_contamination_is_the_threshold_and_gamma_0_weighs_all_rows_alike(contaminated):
    x, _ = contaminated
    detector = EnergyDetector(updates=2, contamination=0.2, gamma=0.0).fit(x)
    assert detector.offset_ == pytest.approx(np.percentile(detector.score_samples(x), 20))
    assert (detector.sample_weight_ == 1).all()


def test_a_table_is_encoded_once(monkeypatch):
    """What `read` returned stands for the table in every method, `fit` included."""
    frame = with_gaps(people(150), 0.1)
    plain = EnergyDetector(updates=2).fit(frame)
    expected = plain.score_samples(frame), plain.cells(frame), plain.transform(frame)
    calls = []
    monkeypatch.setattr("pscd.detector.reading.encode", lambda *a: calls.append(1) or encode(*a))
    detector = EnergyDetector(updates=2)
    rows = detector.read(frame)
    detector.fit(rows)
    assert list(detector.feature_names_in_) == list(frame.columns)
    np.testing.assert_array_equal(detector.score_samples(rows), expected[0])
    assert detector.cells(rows).equals(expected[1])
    assert detector.transform(rows).equals(expected[2])
    assert len(calls) == 1
    other = EnergyDetector(updates=1).fit(frame[["height", "weight"]])
    with pytest.raises(ValueError, match="other columns than those that the detector was fitted to"):
        other.score_samples(rows)


def test_what_a_notebook_shows_of_a_detector(contaminated):
    _, detector = contaminated
    html = detector._repr_html_()
    for text in ("150 rows of 3 columns", "energy above", "weight below 0.1"):
        assert text in html
    assert "rows of" not in EnergyDetector()._repr_html_()
    assert detector._repr_mimebundle_()["text/plain"] == repr(detector)


def test_what_a_plain_array_is_refused_for(contaminated):
    x, detector = contaminated
    np.testing.assert_allclose(detector.score_samples(x.astype(np.float32)), detector.score_samples(x), rtol=1e-4)
    np.testing.assert_array_equal(detector.score_samples(x.tolist()), detector.score_samples(x))
    infinite = x.copy()
    infinite[0, 0] = np.inf
    for bad, message in ((infinite, "infinity"), (x[:, :2], "2 features"), (x[:0], "0 sample"), (x[0], "2D array")):
        with pytest.raises(ValueError, match=message):
            detector.score_samples(bad)
