import math
import os
import pickle
import shutil
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pscd import EnergyDetector, UserError
from pscd.detector import estimator
from pscd.files import read_tensors, write_tensors
from pscd.model import SCORE_BLOCK

CHECKS = """
import warnings
from sklearn.utils.estimator_checks import check_estimator
from pscd import EnergyDetector
from pscd.detector import estimator
import torch
torch.set_num_threads(1)
estimator.N_REFERENCE = 100  # a hundred fits in which no contamination is estimated
warnings.simplefilter("ignore")  # check_estimator provokes them
results = check_estimator(EnergyDetector(n_updates=5), on_fail=None, on_skip=None)
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
    return EnergyDetector(n_updates=60).fit(x), x, y


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
    robust = EnergyDetector(n_updates=60).fit(x)
    plain = EnergyDetector(gamma=0.0, n_updates=60).fit(x)
    assert plain.gamma_ == 0
    assert (plain.sample_weight_ == 1).all()
    assert roc_auc_score(y, -robust.score_samples(x)) > 0.99 > roc_auc_score(y, -plain.score_samples(x))


def test_clean_data_are_hardly_affected():
    x, _ = table(n=2000, junk=0.0)
    detector = EnergyDetector(n_updates=60).fit(x)
    plain = EnergyDetector(gamma=0.0, n_updates=60).fit(x)
    assert np.corrcoef(detector.score_samples(x), plain.score_samples(x))[0, 1] > 0.97
    assert detector.contamination_ < 0.05


def test_numbers_without_gaps_are_scored_as_ever(monkeypatch):
    """Computed once and kept; another BLAS may round the last digits.

    Scores have a common constant that nothing decides: its gradient is 0 but for rounding, which Adam makes steps of.
    """
    monkeypatch.setattr(estimator, "N_REFERENCE", 4_000)
    x = load_wine().data[:120]
    detector = EnergyDetector(gamma=0.3, n_updates=20, random_state=3).fit(x)
    scores = detector.score_samples(x)
    middle = scores.mean()
    kept = [15.034769097801964, 13.720777202571377, 9.634733951735683, 11.401863438740479]
    np.testing.assert_allclose(scores[:4] - middle, kept, rtol=1e-6)
    assert detector.offset_ - middle == pytest.approx(5.559991642974997)
    assert middle == pytest.approx(
        -19.752821731400942, abs=20 * detector.numbers_.model.config.optimizer.lr
    )  # 20 updates
    assert detector.sample_weight_.mean() == pytest.approx(0.5734402088203148)
    np.testing.assert_allclose(detector.sample(2)[:, 0], [13.91242173720458, 13.493955772055788], rtol=1e-6)


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


def test_log_density_integrates_to_one():
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=(500, 1)) - 3, rng.normal(size=(500, 1)) * 0.5 + 3])
    detector = EnergyDetector(gamma=0.0, n_updates=200).fit(x)
    points = np.linspace(-60, 60, 20_001)[:, None]
    mass = np.trapezoid(np.exp(detector.log_density(points)), points[:, 0])
    assert mass == pytest.approx(1.0, abs=0.03)  # 20,000 draws for the constant


def test_samples_look_like_the_majority(fitted):
    detector, x, y = fitted
    new = detector.sample(2000, random_state=3)
    assert new.shape == (2000, x.shape[1])
    np.testing.assert_allclose(np.median(new, 0), np.median(x[~y], 0), atol=0.3 * x[~y].std(0).max())
    np.testing.assert_array_equal(new, detector.sample(2000, random_state=3))


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
    detector = EnergyDetector(n_updates=60).fit(frame)
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
    other = EnergyDetector(n_updates=5, random_state=1).fit(x)
    detector.save(tmp_path / "one")
    other.save(tmp_path / "two")
    network = "network.safetensors"
    shutil.copy(tmp_path / "two" / network, tmp_path / "one" / network)
    with pytest.raises(UserError, match="not the network of the detector beside it, but of another fit"):
        EnergyDetector.load(tmp_path / "one")
    (tmp_path / "one" / network).write_bytes(b"junk")
    with pytest.raises(UserError, match=r"network\.safetensors: damaged"):
        EnergyDetector.load(tmp_path / "one")
    (tmp_path / "one" / network).unlink()
    with pytest.raises(UserError, match="no such file"):
        EnergyDetector.load(tmp_path / "one")


def test_a_detector_saved_without_a_link_still_loads(fitted, tmp_path):
    detector, x, _ = fitted
    detector.save(tmp_path)
    tensors, metadata = read_tensors(tmp_path / "detector.safetensors")
    write_tensors(tmp_path / "detector.safetensors", tensors, {"facts": metadata["facts"]})
    np.testing.assert_array_equal(EnergyDetector.load(tmp_path).score_samples(x), detector.score_samples(x))


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
    pipeline = make_pipeline(StandardScaler(), EnergyDetector(n_updates=20)).set_output(transform="pandas")
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
        {"gamma": "much"},
        {"gamma": float("nan")},
        {"bound": float("inf")},
        {"gamma": None},
        {"contamination": 0.7},
        {"contamination": 0},
        {"contamination": "some"},
        {"bound": 0},
        {"bound": "2"},
        {"n_updates": 0},
        {"n_updates": 2.5},
        {"n_updates": True},
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
    detector = EnergyDetector(n_updates=60).fit(x)
    assert detector.gamma_ > 0
    assert roc_auc_score(np.arange(1000) < n, -detector.score_samples(x)) > 0.95


@pytest.mark.parametrize("shape", [(1000, 3), (300, 30)])
def test_samples_are_as_wide_as_clean_rows(shape):
    x = np.random.default_rng(0).normal(size=shape)
    new = EnergyDetector(n_updates=60).fit(x).sample(2000)
    assert new.std(0).mean() == pytest.approx(1.0, abs=0.15)


def test_rank_both_sees_a_single_cell_and_a_whole_row(tmp_path):
    """Sixty columns: one cell six deviations out drowns in the energy of its row; whole rows are seen by either."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(500, 2)) @ rng.normal(size=(2, 60)) + rng.normal(size=(500, 60))
    cells, rows = np.arange(10), np.arange(10, 20)
    x[cells, rng.integers(0, 60, 10)] += 8
    x[rows] = 2 * rng.normal(size=(10, 60))
    energy = EnergyDetector(n_updates=5).fit(x)
    both = EnergyDetector(n_updates=5, rank="both").fit(x)
    others = np.arange(20, 500)

    def found(detector, wrong):
        score = detector.score_samples(x)
        return roc_auc_score(np.r_[np.ones(10), np.zeros(480)], -score[np.r_[wrong, others]])

    assert found(energy, cells) < 0.9 < 0.97 < found(both, cells)
    assert min(found(energy, rows), found(both, rows)) > 0.97
    both.save(tmp_path)
    np.testing.assert_array_equal(EnergyDetector.load(tmp_path).score_samples(x), both.score_samples(x))
    np.testing.assert_array_equal(energy.sample_weight_, both.sample_weight_)


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
    return EnergyDetector(gamma=gamma, bound=1e-9, n_updates=1).fit(x)


def test_the_network_sees_what_no_gaussian_can(on_a_ring):
    """Rows in the middle of a ring: the Gaussian ranks them as the most normal of all, the network as the strangest."""
    normal, strange = ring(500, 1), 0.6 * np.random.default_rng(2).normal(size=(200, 2))

    def found(detector):
        scores = detector.score_samples(np.concatenate([normal, strange]))
        return roc_auc_score(np.repeat([0, 1], [500, 200]), -scores)

    assert found(of_the_gaussian(ring(1000, 0), 0.2)) < 0.05
    assert found(on_a_ring) > 0.95


def test_the_network_is_trained_with_the_gamma_of_the_gaussian():
    """A far cluster of a tenth of the rows: at gamma 0 the network makes room for it, at gamma 1 it does not."""
    x = np.concatenate([ring(450, 3), 0.2 * np.random.default_rng(4).normal(size=(50, 2)) + [9.0, 9.0]])
    corrections = []
    for gamma in (0.0, 1.0):
        detector = EnergyDetector(gamma=gamma, bound=4.0, n_updates=150).fit(x)
        assert detector.gamma_ == gamma
        corrected = of_the_gaussian(x, gamma).score_samples(x) - detector.score_samples(x)
        corrections.append(corrected[450:].mean() - corrected[:450].mean())
    assert corrections[0] < -0.5
    assert corrections[1] > corrections[0] + 1


def groups(n, seed):
    """Two far groups of rows; the mean of all lies between them."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 4)) + 6 * rng.integers(0, 2, size=(n, 1)) * [1, 1, 1, 1]


def test_neighbours_see_rows_between_groups(tmp_path):
    """Rows between two groups are ordinary for the energy, which is a Gaussian's but for a little."""
    x = np.concatenate([groups(600, 0), 3 + 0.5 * np.random.default_rng(1).normal(size=(15, 4))])
    junk = np.repeat([0, 1], [600, 15])
    found = {rank: EnergyDetector(rank=rank).fit(x) for rank in ("energy", "neighbours")}
    assert roc_auc_score(junk, -found["energy"].score_samples(x)) < 0.8
    detector = found["neighbours"]
    assert roc_auc_score(junk, -detector.score_samples(x)) > 0.98
    detector.save(tmp_path)
    again = EnergyDetector.load(tmp_path)
    np.testing.assert_array_equal(again.score_samples(x), detector.score_samples(x))
    assert again.predict(x).tolist() == detector.predict(x).tolist()


def test_rows_by_neighbours_by_hand():
    """The energy with that of the neighbourhood in place of the numbers'; gaps, categories and all."""
    frame = pd.DataFrame(groups(200, 2), columns=list("abcd")).assign(e=np.where(np.arange(200) % 3, "x", "y"))
    frame.loc[5, "b"] = np.nan
    detector = EnergyDetector(rank="neighbours").fit(frame)
    rows = detector._read(frame)
    z = detector.cells_.forward(rows.x)[:, detector.cells_.numbers]
    own = detector.neighbourhood_.energy(detector.numbers_.whitened(z))
    expected = detector._score(rows) + detector.numbers_.energy(z) - own
    np.testing.assert_allclose(detector.score_samples(frame), expected)
    assert detector.yardstick_ == ()
    assert EnergyDetector().fit(frame).neighbourhood_ is None
    words = frame[["e"]].assign(f=np.where(np.arange(200) % 5, "u", "v"))
    assert EnergyDetector(rank="neighbours").fit(words).neighbourhood_ is None


@pytest.mark.parametrize("rank", ["energy", "neighbours", "both"])
def test_scores_of_a_stream_are_those_of_the_rows(rank):
    x, _ = table(300)
    detector = EnergyDetector(n_updates=5, rank=rank).fit(x)
    rows = np.tile(x, (SCORE_BLOCK // len(x) + 2, 1))
    rows[5, 1] = np.nan
    blocks = [detector.score_samples(part) for part in (rows[:SCORE_BLOCK], rows[SCORE_BLOCK:])]
    np.testing.assert_array_equal(detector.score_samples(rows), np.concatenate(blocks))
    batches = detector.score_batches(iter([rows[:SCORE_BLOCK], rows[SCORE_BLOCK:]]))
    np.testing.assert_array_equal(np.concatenate(list(batches)), np.concatenate(blocks))


def test_plain_arrays_are_not_examined_at_length(fitted, monkeypatch):
    """That takes ten times as long as the score of a row; whatever it would refuse still goes that way."""
    detector, x, _ = fitted

    def examine(*_, **__):
        raise RuntimeError("examined")

    for rows in (x[:1], x[:1].astype(np.float32)):
        np.testing.assert_allclose(detector.score_samples(rows), detector.score_samples(rows.tolist()), rtol=1e-6)
    monkeypatch.setattr("pscd.detector.estimator.validate_data", examine)
    detector.score_samples(x[:1])
    infinite, narrow, none = np.full_like(x[:1], np.inf), x[:1, :2], x[:0]
    for rows in (infinite, narrow, none, x[0], x[:1].astype(int), x[:1].tolist()):
        with pytest.raises(RuntimeError, match="examined"):
            detector.score_samples(rows)


def test_numbers_are_learnt_and_ranked_without_the_mixture_of_cells(tmp_path):
    """Most of the time of a fit would go into it; a question about cells, or a gap, brings it about."""
    x = np.random.default_rng(0).normal(size=(60, 2))
    detector = EnergyDetector(n_updates=2).fit(x)
    detector.predict(x)
    detector.sample(3)
    assert "mixture" not in vars(detector.cells_)
    other = pickle.loads(pickle.dumps(detector))
    detector.save(tmp_path / "saved")
    np.testing.assert_array_equal(EnergyDetector.load(tmp_path / "saved").explain(x), other.explain(x))
    assert "mixture" in vars(other.cells_)
    with_gap = EnergyDetector(n_updates=2).fit(np.vstack([x, [[np.nan, 0.0]]]))
    assert "mixture" in vars(with_gap.cells_)


@pytest.fixture(scope="module")
def both_ranks():
    """Detectors of one table, a tenth of it junk, that rank rows in either way."""
    x = np.random.default_rng(0).normal(size=(150, 3))
    x[:15] += 9
    return x, {rank: EnergyDetector(n_updates=5, rank=rank).fit(x) for rank in ("energy", "both")}


def test_defaults():
    assert EnergyDetector().get_params() == {
        "gamma": "auto", "contamination": "auto", "bound": 2.0, "n_updates": 200, "rank": "energy", "kinds": None,
        "missing": (), "random_state": 0, "verbose": False,
    }  # fmt: skip


def test_rows_by_both_ranks_by_hand(both_ranks):
    x, detectors = both_ranks
    plain, detector = detectors["energy"], detectors["both"]
    assert plain.yardstick_ == ()
    energy = -detector._score(detector._read(x))
    torch.testing.assert_close(energy, -torch.from_numpy(plain.score_samples(x)))
    z = detector.cells_.forward(torch.from_numpy(x))
    cost = detector.cells_.mixture.cells(z, detector.cells_.mixture.trusted(z)).cost.amax(1)
    yardstick = []
    for values in (energy, cost):
        yardstick += [float(values.median()), float(values.quantile(0.9) - values.median())]
    assert detector.yardstick_ == pytest.approx(yardstick)
    above = [(energy - yardstick[0]) / yardstick[1], (cost - yardstick[2]) / yardstick[3]]
    soft = torch.logsumexp(3.0 * torch.stack(above), 0) / 3.0
    np.testing.assert_allclose(detector.score_samples(x), -(yardstick[0] + yardstick[1] * soft))


@pytest.mark.parametrize("rank", ["energy", "both"])
def test_threshold_contamination_and_weights_by_hand(both_ranks, rank):
    x, detectors = both_ranks
    detector = detectors[rank]
    scores = torch.from_numpy(detector.score_samples(x))
    drawn = detector._draw(estimator.N_REFERENCE, seed=0)
    own = detector._ranked(detector._score_of(drawn), detector.cells_.inverse(drawn))
    edge = float(own.quantile(0.01))
    outside = float((scores < edge).double().mean())
    assert detector.contamination_ == pytest.approx(max(0.0, (outside - 0.01) / 0.99))
    assert detector.offset_ == pytest.approx(max(edge, float(np.percentile(scores, 1.0))))
    energies = torch.from_numpy(detectors["energy"].score_samples(x))
    weights = torch.exp(detector.gamma_ * (energies - energies.median())).clamp_max(1)
    np.testing.assert_allclose(detector.sample_weight_, weights)
    assert detector.gamma_ == detector.numbers_.gaussian.gamma > 0
    np.testing.assert_array_equal(detector.predict(x), np.where(scores < detector.offset_, -1, 1))


def test_a_share_of_one_s_own_is_the_threshold(both_ranks):
    x, _ = both_ranks
    detector = EnergyDetector(n_updates=2, contamination=0.2, gamma=0.0).fit(x)
    scores = detector.score_samples(x)
    assert detector.offset_ == pytest.approx(np.percentile(scores, 20))
    assert (detector.sample_weight_ == 1).all()
    assert (detector.n_rows_, detector.n_features_in_, detector.stray_.tolist()) == (150, 3, [0, 0, 0])


def test_new_and_stray_cells_cost_by_the_rule_of_succession():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=90).astype(object), "b": rng.normal(size=90), "c": [7.0] * 90})
    frame.loc[:2, "a"] = ["x", "y", "z"]
    detector = EnergyDetector(n_updates=2).fit(frame)
    rows = detector._read(frame)
    assert detector.stray_.tolist() == [3, 0, 0]
    base = detector._score_of(detector.cells_.forward(rows.x))
    expected = base.clone()
    expected[:3] -= math.log((90 + 2) / (3 + 1))
    torch.testing.assert_close(detector._score(rows), expected)
    plain = EnergyDetector(n_updates=2).fit(frame[["b", "c"]])
    new = frame[["b", "c"]].assign(c=8.0)
    gone = plain.score_samples(frame[["b", "c"]]) - plain.score_samples(new)
    np.testing.assert_allclose(gone, math.log(91))


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("gamma", (0, 0.0, 2.5, "auto"), (-1e-9, math.nan, math.inf, "much", None, True)),
        ("contamination", (1e-9, 0.5, "auto"), (0.0, 0.5 + 1e-9, math.nan, "some", True)),
        ("bound", (1e-9, 3), (0.0, -1.0, math.nan, "2")),
        ("n_updates", (1, np.int64(3)), (0, 1.5, True, "5")),
        ("rank", ("energy", "neighbours", "both"), ("cell", None)),
    ],
)
def test_parameters_include_their_ends_as_they_say(name, good, bad):
    for value in good:
        EnergyDetector(**{name: value})._check_parameters()
    for value in bad:
        with pytest.raises(ValueError, match=f"{name} must be"):
            EnergyDetector(**{name: value})._check_parameters()


def test_which_arrays_need_no_examination(both_ranks):
    x, detectors = both_ranks
    detector = detectors["energy"]
    assert detector._is_plain(x)
    assert detector._is_plain(x[:1].astype(np.float32))
    infinite = x.copy()
    infinite[0, 0] = np.inf
    for other in (x.tolist(), x.astype(int), x[0], x[:0], x[:, :2], infinite, pd.DataFrame(x), x[None]):
        assert not detector._is_plain(other)
    named = EnergyDetector(n_updates=1).fit(pd.DataFrame(x, columns=list("abc")))
    assert not named._is_plain(x)


def test_what_a_notebook_shows_of_a_detector(both_ranks):
    _, detectors = both_ranks
    detector = detectors["energy"]
    html = detector._repr_html_()
    ignored = int((detector.sample_weight_ < 0.1).sum())
    assert ignored > 0
    for text in ("150 rows of 3 columns", f"{detector.gamma_:.3g}", f"{ignored} rows counted less than a tenth",
                 f"{detector.contamination_:.1%}", f"energy above {-detector.offset_:.4g}"):  # fmt: skip
        assert text in html
    assert "rows of" not in EnergyDetector()._repr_html_()
    assert detector._repr_mimebundle_()["text/plain"] == repr(detector)
    tags = EnergyDetector().__sklearn_tags__().input_tags
    assert (tags.allow_nan, tags.string, tags.categorical) == (True, True, True)


def test_samples_go_by_their_seed(both_ranks):
    _, detectors = both_ranks
    detector = detectors["energy"]
    seed = int(np.random.RandomState(0).randint(2**31 - 1))
    expected = detector.cells_.inverse(detector._draw(4, seed=seed)).numpy()
    np.testing.assert_array_equal(detector.sample(4), expected)
    assert detector.sample().shape == (1, 3)
    assert not np.array_equal(detector.sample(4, random_state=1), expected)
