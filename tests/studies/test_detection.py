"""The detection benchmark on small made tables, with detectors whose scores are known."""

import json

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.metrics import roc_auc_score

from pscd.errors import UserError
from studies.__main__ import main
from studies.detection import bounds, report, summary, tables, work
from studies.detection.detectors import AUTO, DETECTORS, FOREST, NOT_ROBUST, QUICK
from studies.detection.program import split_names
from studies.detection.rivals import RIVALS, Detector
from studies.detection.tables import Facts
from studies.detection.work import Key, Plan, make_plan, measure, settings_of

SEEN = []  # name, rows and seed of every fit of a stub


class Stub(BaseEstimator):
    """Scores rows by their distance from the origin, with noise by the seed."""

    def __init__(self, name="stub", noise=0.1, random_state=0):
        self.name, self.noise, self.random_state = name, noise, random_state

    def fit(self, x):
        SEEN.append((self.name, x, self.random_state))
        self.gamma_, self.contamination_ = 0.5, 0.01
        return self

    def score(self, x):
        rng = np.random.default_rng(self.random_state)
        return np.linalg.norm(x, axis=1) + self.noise * rng.normal(size=len(x))


class Broken(Stub):
    def score(self, x):
        raise RuntimeError(f"no luck\nwith {len(x)} rows")


def stub(name, kind=Stub, **flags):
    return Detector(lambda seed: kind(name, random_state=seed), lambda made, x: made.fit(x).score(x), **flags)


@pytest.fixture
def stubs(monkeypatch):
    """The detectors of a quick run, without their libraries; all other names are gone."""
    SEEN.clear()
    work._warm_up.cache_clear()
    known = {name: stub(name, own=name in (AUTO, NOT_ROBUST), random=name != "ECOD") for name in QUICK}
    for name in list(DETECTORS):
        monkeypatch.delitem(DETECTORS, name)
    for name, detector in known.items():
        monkeypatch.setitem(DETECTORS, name, detector)
    return SEEN


def fits(seen, name):
    """Rows and seed of a stub's fits, without the one that warms up."""
    return [(x, seed) for who, x, seed in seen if who == name and len(x) != 100]


def write(folder, name, n=60, d=3, anomalies=5, seed=0):
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(n, d)), np.zeros(n, int)
    x[:, -1] = 7.0
    y[rng.choice(n, anomalies, replace=False)] = 1
    x[y == 1, 0] += 3.0
    np.savez(folder / f"{name}.npz", X=x, y=y)
    return x, y


@pytest.fixture
def folder(tmp_path):
    """One small table, one that is cut, and one that curves are made of."""
    write(tmp_path / "data", "2_small", n=60)
    write(tmp_path / "data", "10_large", n=900, anomalies=90, seed=1)
    write(tmp_path / "data", "14_glass", n=1200, anomalies=30, seed=2)
    return tmp_path / "data"


# --- tables ---


def test_a_table_is_read_as_it_was_written(tmp_path):
    x, y = write(tmp_path, "a")
    read_x, read_y = tables.read(tmp_path / "a.npz")
    assert np.array_equal(read_x, x)
    assert np.array_equal(read_y, y)
    facts = tables.look(tmp_path / "a.npz", 1000, 1)
    assert (facts.name, facts.n, facts.d, facts.anomalies, facts.share) == ("a", 60, 3, 5, 5 / 60)


X, Y = np.ones((4, 2)), np.array([0, 0, 1, 0])


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"X": X}, "has no array y"),
        ({"y": Y}, "has no array X"),
        ({"Z": X}, "has no array X and no array y"),
        ({"X": X, "y": Y * 2}, "y must hold 0 or 1"),
        ({"X": X, "y": Y[:3]}, "y must hold 0 or 1 for each of the 4 rows"),
        ({"X": X, "y": Y * 0}, "y is 0 everywhere"),
        ({"X": X.astype(str), "y": Y}, "not numbers"),
        ({"X": X * np.nan, "y": Y}, "missing, infinite"),
        ({"X": X[None], "y": Y[:1]}, "rows and columns are needed"),
    ],
)
def test_what_is_wrong_with_a_table_is_told_in_one_line(tmp_path, capsys, stubs, arrays, words):
    np.savez(tmp_path / "bad.npz", **arrays)
    assert main(["detection", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("studies: ")
    assert "bad.npz" in line
    assert words in line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere"], "no such folder"),
        (["empty"], "no .npz file"),
        (["data", "--only", "3_no"], "no table 3_no; there are 2_small, 10_large, 14_glass"),
        (["data", "--detectors", "magic"], "unknown detector 'magic'"),
        (["data", "--seeds", "0"], "--seeds: must be a whole number of at least 1"),
        (["data", "--max-rows", "5"], "--max-rows must be at least 20"),
        (["data", "--jobs", "0"], "--jobs: must be a whole number of at least 1"),
    ],
)
def test_wrong_arguments_are_told_in_one_line(folder, capsys, stubs, monkeypatch, arguments, words):
    monkeypatch.chdir(folder.parent)
    (folder.parent / "empty").mkdir()
    assert main(["detection", *arguments, "--out", "out"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line
    assert not (folder.parent / "out").exists()


def test_a_file_that_is_no_npz_is_told(tmp_path):
    (tmp_path / "a.npz").write_text("x,y\n1,2\n")
    with pytest.raises(UserError, match=r"a\.npz: not a readable \.npz file"):
        tables.read(tmp_path / "a.npz")


def test_a_missing_library_is_named_with_what_to_install(folder, capsys, stubs, monkeypatch):
    def make(seed):
        raise ModuleNotFoundError("No module named 'pyod'", name="pyod")

    monkeypatch.setitem(DETECTORS, "ECOD", Detector(make, lambda made, x: x))
    assert main(["detection", str(folder), "--out", str(folder / "out")]) == 2
    assert (
        capsys.readouterr().err
        == "studies: ECOD needs pyod; from a clone of the repository: pip install '.[detection]'\n"
    )


def test_names_sort_by_their_numbers(folder):
    assert [path.stem for path in tables.list_tables(folder)] == ["2_small", "10_large", "14_glass"]
    assert [path.stem for path in tables.list_tables(folder, ["14_glass", "2_small"])] == ["2_small", "14_glass"]


def test_names_with_a_comma_are_found_in_a_list():
    known = [AUTO, NOT_ROBUST, "ECOD"]
    assert split_names("ECOD, EnergyDetector,gamma 0", known) == ["ECOD", NOT_ROBUST]
    assert split_names("EnergyDetector,ECOD,ECOD", known) == [AUTO, "ECOD"]


# --- drawing and adding rows ---


def test_drawn_rows_depend_on_the_seed_alone_and_are_in_order():
    y = np.zeros(1000, int)
    y[::10] = 1
    first = tables.draw(y, 100, seed=0)
    assert len(first) == 100
    assert (np.diff(first) > 0).all()
    assert np.array_equal(first, tables.draw(y, 100, seed=0))
    assert not np.array_equal(first, tables.draw(y, 100, seed=1))
    assert np.array_equal(tables.draw(y, 1000, seed=5), np.arange(1000))


def test_rows_are_drawn_until_three_anomalies_are_among_them():
    y = np.zeros(5000, int)
    y[:20] = 1  # 100 of 5000 rows hold three or more of them one time in 130
    for seed in range(5):
        assert y[tables.draw(y, 100, seed)].sum() >= 3
    y[1:] = 0  # the only one there is
    assert y[tables.draw(y, 100, 0)].sum() == 1


def test_rows_that_can_hardly_be_drawn_are_refused():
    y = np.zeros(10**6, int)
    y[:3] = 1
    with pytest.raises(UserError, match="no 3 of 3 anomalies among 20 of 1000000 rows"):
        tables.draw(y, 20, 0, most_draws=3)


def test_columns_are_standardised_and_constant_ones_dropped():
    x = np.array([[1.0, 0.1, 5.0], [3.0, 0.1, 9.0], [5.0, 0.1, 1.0]])
    z = tables.standardise(x)
    assert z.shape == (3, 2)
    assert z.mean(0) == pytest.approx(0, abs=1e-12)
    assert z.std(0) == pytest.approx(1)


def test_contamination_has_the_share_the_place_and_the_box_that_are_documented():
    rng = np.random.default_rng(3)
    x = np.concatenate([rng.normal(5.0, 2.0, size=(900, 4)), np.full((900, 1), 7.0)], 1)
    extra = tables.contamination(x, 0.1, seed=0)
    assert len(extra) == 100  # a tenth of 1000
    assert (extra[:, 4] == 7.0).all()
    z = ((extra - x.mean(0)) / np.where(x.std(0) > 0, x.std(0), 1))[:, :4]
    cluster, box = z[:50], z[50:]
    centre = cluster.mean(0)
    # The mean of 50 rows of deviation .3 strays by .3 / sqrt(50) = .042 in each column: five of that.
    assert np.linalg.norm(centre) == pytest.approx(4 * np.sqrt(4), abs=5 * 0.042)
    assert cluster.std(0) == pytest.approx(0.3, abs=5 * 0.3 / np.sqrt(100))
    low, high = x[:, :4].min(0), x[:, :4].max(0)
    assert (extra[50:, :4] >= low).all()
    assert (extra[50:, :4] <= high).all()
    assert np.ptp(box, 0).min() > 3
    assert len(tables.contamination(x, 0.0, 0)) == 0
    more = tables.contamination(x, 0.3, seed=0)
    assert len(more) == round(900 * 3 / 7)
    assert np.array_equal(extra[:50], more[:50])  # the cluster of a seed stays where it is
    assert not np.array_equal(extra, tables.contamination(x, 0.1, seed=1))


# --- runs ---


def test_every_detector_gets_the_same_rows_ours_as_they_are(folder, stubs):
    plan = make_plan(folder, seeds=2, max_rows=200, only=["10_large"])
    for settings in work.all_settings(plan):
        if settings["extra"] == 0:
            measure(folder, settings)
    x, y = tables.read(folder / "10_large.npz")
    for seed in (0, 1):
        rows = x[tables.draw(y, 200, seed)]
        for name in (AUTO, NOT_ROBUST):
            assert np.array_equal(fits(stubs, name)[seed][0], rows)
        for name in (FOREST, "ECOD"):
            assert np.array_equal(fits(stubs, name)[seed][0], tables.standardise(rows))


def test_a_detector_without_randomness_is_run_once_on_the_same_rows(folder, stubs):
    plan = make_plan(folder, seeds=3, max_rows=200)
    seeds = {
        (name, table): {s["seed"] for s in work.all_settings(plan) if (s["detector"], s["set"]) == (name, table)}
        for name in ("ECOD", FOREST)
        for table in ("2_small", "10_large")
    }
    assert seeds == {
        ("ECOD", "2_small"): {0},
        ("ECOD", "10_large"): {0, 1, 2},
        (FOREST, "2_small"): {0, 1, 2},
        (FOREST, "10_large"): {0, 1, 2},
    }
    assert settings_of(plan, Key("2_small", "ECOD", 2, 0.0)) == settings_of(plan, Key("2_small", "ECOD", 0, 0.0))


def test_injected_rows_are_fitted_but_not_scored(folder, stubs):
    plan = make_plan(folder, seeds=1, max_rows=500, only=["14_glass"])
    result = measure(folder, settings_of(plan, Key("14_glass", AUTO, 0, 0.2)))
    (fitted, seed), *_ = fits(stubs, AUTO)
    x, y = tables.read(folder / "14_glass.npz")
    rows = tables.draw(y, 500, 0)
    assert len(fitted) == 625
    assert np.array_equal(fitted[:500], x[rows])
    scores = Stub(AUTO, random_state=seed).score(fitted)[:500]
    assert result["auroc"] == roc_auc_score(y[rows], scores)
    assert result["n"] == 500
    assert result["anomaly_share"] == y[rows].mean()
    assert (result["gamma"], result["contamination"]) == (0.5, 0.01)


def test_what_decides_a_result_is_in_its_settings(folder, stubs):
    plan = make_plan(folder, seeds=1, max_rows=500)
    settings = settings_of(plan, Key("14_glass", FOREST, 0, 0.05))
    assert settings["configuration"] == {"name": FOREST, "noise": 0.1}
    assert settings["rows"] == 500
    assert settings["versions"]["numpy"] == np.__version__
    assert settings_of(plan, Key("2_small", FOREST, 0, 0.0))["rows"] == 60  # a larger cap would change nothing
    write(folder, "14_glass", n=1200, anomalies=30, seed=3)
    other = make_plan(folder, seeds=1, max_rows=500)
    assert settings_of(other, Key("14_glass", FOREST, 0, 0.05))["checksum"] != settings["checksum"]


def test_code_counts_without_comments_and_docstrings(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    texts = {"one": "def f():\n    return 1\n", "same": '"""Text."""\ndef f():\n    """More."""\n    return 1  # why\n'}
    for name, text in {**texts, "other": "def f():\n    return 2\n"}.items():
        (tmp_path / f"detection_{name}.py").write_text(text)
    one, same, other = (work.code_checksum(f"detection_{name}") for name in ("one", "same", "other"))
    assert one == same != other


@pytest.mark.parametrize("scores", [np.full(60, np.nan), np.zeros(3)])
def test_scores_that_are_none_count_as_a_failure(folder, stubs, monkeypatch, scores):
    monkeypatch.setitem(DETECTORS, FOREST, Detector(Stub, lambda made, x: scores))
    plan = make_plan(folder, seeds=1, max_rows=500)
    result = measure(folder, settings_of(plan, Key("2_small", FOREST, 0, 0.0)))
    assert result["error"].startswith("ValueError")
    assert result["auroc"] == 0.5
    assert result["ap"] == result["anomaly_share"]


def test_infinite_scores_are_ranked(folder, stubs, monkeypatch):
    y = tables.read(folder / "2_small.npz")[1]
    monkeypatch.setitem(DETECTORS, FOREST, Detector(Stub, lambda made, x: np.where(y == 1, np.inf, 0.0), own=True))
    monkeypatch.setattr(Stub, "gamma_", 0.0, raising=False)
    monkeypatch.setattr(Stub, "contamination_", 0.0, raising=False)
    plan = make_plan(folder, seeds=1, max_rows=500)
    assert measure(folder, settings_of(plan, Key("2_small", FOREST, 0, 0.0)))["auroc"] == 1.0


# --- numbers ---


def made_results(plan, auroc, seconds):
    """Results with these AUROC, by set, detector and seed; AP is half of it."""
    return {
        Key(facts.name, name, seed, 0.0): {
            "auroc": auroc[i][j][seed],
            "ap": auroc[i][j][seed] / 2,
            "fit_seconds": seconds[j],
            "anomaly_share": 0.1,
            **({"gamma": 0.25 * (seed + 1), "contamination": 0.02} if name == AUTO else {}),
        }
        for i, facts in enumerate(plan.sets)
        for j, name in enumerate(plan.detectors)
        for seed in range(plan.seeds)
    }


@pytest.fixture
def numbers(stubs):
    sets = tuple(Facts(name, 100, 2, 10, "") for name in ("a", "b", "14_glass"))
    names = {name: {"configuration": {}, "versions": {}, "code": {}} for name in (AUTO, NOT_ROBUST, FOREST)}
    plan = Plan(None, sets, names, 2, 1000, (), (0.0,))
    auroc = [
        [[0.8, 1.0], [0.7, 0.7], [0.6, 0.6]],
        [[0.5, 0.5], [0.5, 0.5], [0.9, 0.9]],
        [[0.6, 0.8], [0.8, 0.9], [0.1, 0.1]],
    ]
    results = made_results(plan, auroc, seconds=(6.0, 3.0, 1.5))
    return plan, results, summary.summarise(plan, results)


def test_summary_by_hand(numbers):
    _, _, found = numbers
    by_name = {row["detector"]: row for row in found["detectors"]}
    # Seed means: auto .9 .5 .7, gamma 0 .7 .5 .85, forest .6 .9 .1.
    assert [row["detector"] for row in found["detectors"]] == [AUTO, NOT_ROBUST, FOREST]
    assert by_name[AUTO]["mean_auroc"] == pytest.approx(0.7)
    assert by_name[NOT_ROBUST]["mean_auroc"] == pytest.approx(2.05 / 3)
    assert by_name[FOREST]["median_auroc"] == pytest.approx(0.6)
    assert by_name[AUTO]["mean_ap"] == pytest.approx(0.35)
    # Ranks: auto 1, 2.5 (a tie), 2; gamma 0 2, 2.5, 1; forest 3, 1, 3.
    assert [by_name[name]["mean_rank"] for name in (AUTO, NOT_ROBUST, FOREST)] == pytest.approx(
        [5.5 / 3, 5.5 / 3, 7 / 3]
    )
    assert [by_name[name]["best_on"] for name in (AUTO, NOT_ROBUST, FOREST)] == [1, 1, 1]
    assert [by_name[name]["times_forest"] for name in (AUTO, NOT_ROBUST, FOREST)] == [4.0, 2.0, 1.0]
    # Means of the seeds: auto 1.9 / 3 and 2.3 / 3; the forest does not vary.
    assert by_name[AUTO]["sd_over_seeds"] == pytest.approx(0.4 / 3 / np.sqrt(2))
    assert by_name[FOREST]["sd_over_seeds"] == 0


def test_auto_against_gamma_0_by_hand(numbers):
    _, _, found = numbers
    every, development, rest = found["auto_against_gamma_0"]
    assert (every["wins"], every["ties"], every["losses"]) == (1, 1, 1)
    assert every["auroc_difference"] == pytest.approx((0.2 + 0 - 0.15) / 3)
    assert every["ap_difference"] == pytest.approx(every["auroc_difference"] / 2)
    assert every["auroc_standard_error"] == pytest.approx(np.std([0.2, 0, -0.15], ddof=1) / np.sqrt(3))
    assert (development["wins"], development["ties"], development["losses"]) == (0, 0, 1)
    assert development["auroc_standard_error"] is None
    assert rest["auroc_difference"] == pytest.approx(0.1)


def test_groups_and_sets_by_hand(numbers):
    plan, results, found = numbers
    assert [(group["group"], group["sets"]) for group in found["groups"]] == [
        ("all", ["a", "b", "14_glass"]),
        ("development", ["14_glass"]),
        ("rest", ["a", "b"]),
    ]
    assert found["groups"][2]["mean_auroc"][AUTO] == pytest.approx(0.7)
    assert found["groups"][1]["mean_auroc"][FOREST] == pytest.approx(0.1)
    assert [row["best_rival"] for row in found["sets"]] == [FOREST] * 3
    assert found["sets"][0]["gamma"] == [0.25, 0.5]
    table = report.set_table(found["sets"], found["detectors"])
    assert "| a | 100 | 2 | 10 % | 0.900 | 0.700 | 0.600 | isolation forest | 0.25, 0.5 |" in table
    alone = Plan(None, plan.sets[:2], {FOREST: plan.detectors[FOREST]}, 2, 1000, (), (0.0,))
    few = summary.summarise(alone, results)
    assert [group["group"] for group in few["groups"]] == ["all"]
    assert few["auto_against_gamma_0"] == []
    assert few["contamination"]["curves"] == []


# --- the whole ---


def run(folder, out, *more):
    return main(["detection", str(folder), "--out", str(out), "--jobs", "1", *more])


def test_a_quick_run_writes_page_numbers_and_figures_and_resumes(folder, tmp_path, stubs, capsys):
    out = tmp_path / "out"
    assert run(folder, out, "--quick") == 0
    written = json.loads((out / "detection.json").read_text())
    # Three sets by four detectors, and one level of the curve by three of them.
    assert len(written["runs"]) == len(list((out / "detection.runs").glob("*.json"))) == 15
    assert {"auroc", "ap", "seconds", "n", "d", "anomaly_share"} <= written["runs"][0].keys()
    assert written["figures"] == ["detection.png", "detection-contamination.png"]
    assert written["summary"]["contamination"]["sets"] == ["14_glass"]
    page = (out / "detection.md").read_text()
    assert page in capsys.readouterr().out
    assert "python -m studies detection FOLDER --quick --seeds 1 --max-rows 500" in page
    assert "2 sets with more than 500 rows were cut" in page
    assert "How much was tuned" in page
    assert str(folder) not in page + json.dumps(written)
    for figure in written["figures"]:
        assert (out / figure).stat().st_size > 5000
        assert f"({figure})" in page
    best = max(written["summary"]["detectors"], key=lambda row: row["mean_auroc"])
    assert written["summary"]["detectors"][0] == best
    assert written["rows"][0]["row"] == best["detector"]

    stubs.clear()
    assert run(folder, out, "--quick") == 0
    assert not stubs
    assert run(folder, out, "--quick", "--max-rows", "300") == 0
    assert {len(x) for who, x, _ in stubs if who == AUTO} == {300, 375}  # the small table is known already


def test_a_detector_that_fails_is_counted_and_listed(folder, tmp_path, stubs, monkeypatch, capsys):
    monkeypatch.setitem(DETECTORS, "ECOD", stub("ECOD", Broken, random=False))
    only = ["--only", "2_small", "--detectors", "isolation forest,ECOD", "--seeds", "2"]
    assert run(folder, tmp_path / "out", *only) == 0
    page = (tmp_path / "out" / "detection.md").read_text()
    assert "Fits that failed: 2, listed at the end." in page
    assert "- ECOD on 2_small, 2 seeds: `RuntimeError: no luck`" in page
    row = json.loads((tmp_path / "out" / "detection.json").read_text())["summary"]["detectors"][-1]
    assert (row["detector"], row["mean_auroc"], row["mean_ap"]) == ("ECOD", 0.5, 5 / 60)
    assert "Contamination added" not in page
    assert "which chooses gamma" not in page


@pytest.mark.parametrize("name", [name for name in RIVALS if name != "autoencoder"])
def test_every_rival_finds_what_is_far_away(name):
    pytest.importorskip("isotree" if "extended" in name else "pyod")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 3))
    x[:4] += rng.choice([-8.0, 8.0], size=(4, 3))
    scores, known = work.detect(name, x, seed=0)
    assert set(np.argsort(scores)[-4:]) == {0, 1, 2, 3}
    assert known["fit_seconds"] > 0
    assert RIVALS[name].configuration()
    if not RIVALS[name].random:
        assert np.array_equal(scores, work.detect(name, x, seed=1)[0])


def test_bounds_by_hand(tmp_path, capsys):
    numbers = {("a", "EnergyDetector"): (0.6, 0.8), ("a", "kNN"): (0.9, 0.9), ("b", "EnergyDetector"): (0.5, 0.5)}
    made = [
        {"settings": {"set": table, "detector": name, "seed": seed, "extra": 0.0}, "auroc": value, "ap": value / 2}
        for (table, name), values in numbers.items()
        for seed, value in enumerate(values)
    ]
    made.append({"settings": {"set": "b", "detector": "kNN", "seed": 0, "extra": 0.1}, "auroc": 1.0, "ap": 1.0})
    made.append({"settings": {"set": "b", "detector": "LOF", "seed": 0, "extra": 0.0}, "auroc": None, "ap": None})
    tables_ = bounds.by_table(made, "auroc")
    assert tables_ == {"a": {"EnergyDetector": pytest.approx(0.7), "kNN": 0.9}, "b": {"EnergyDetector": 0.5}}
    assert bounds.bounds(tables_) == {
        "kNN": pytest.approx(0.7),  # .9, and .5 where it has no number
        bounds.BEST: pytest.approx(0.7),
        "EnergyDetector": pytest.approx(0.6),
    }
    path = tmp_path / "detection.json"
    path.write_text(json.dumps({"runs": made}))
    bounds.main([str(path)])
    assert "| EnergyDetector | 0.600 | 0.300 |" in capsys.readouterr().out
