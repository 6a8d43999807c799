"""The benchmark of cells on small made tables, with methods whose answers are known."""

import json
import time
import warnings

import numpy as np
import pandas as pd
import pytest

from studies.__main__ import main
from studies.cells import corruptions, measures, ours, report, speed, summary, tables, work
from studies.cells.cellmcd import given_others
from studies.cells.corruptions import KINDS, SWAP, Dirty, corrupt, hide, number_columns, without
from studies.cells.goals import goals
from studies.cells.measures import centre, coverage, ranking, value_errors
from studies.cells.methods import Filled, Found, Method, Numbers
from studies.cells.ours import OURS
from studies.cells.rivals import RIVALS, SIMPLE, _mean_fill, one_column
from studies.cells.tables import LABELLED, MIXED, NUMERIC, Table
from studies.engine import Run


def rng(seed=0):
    return np.random.default_rng(seed)


def made(n=200, seed=0, missing=0.0):
    """Two columns of measurements, one of counts, one of categories."""
    r = rng(seed)
    frame = pd.DataFrame(
        {
            "a": r.normal(5, 2, n),
            "b": r.normal(-100, 30, n),
            "count": r.integers(1, 30, n).astype(float),
            "colour": pd.Series(r.choice(["red", "green", "blue"], n), dtype="str"),
        }
    )
    return frame.mask(r.random(frame.shape) < missing) if missing else frame


# --- mistakes ---

NUMBERS = np.array([1.5, -2.0, np.nan, 4.0, 0.0, 7.5])


def test_a_shift_is_four_to_ten_deviations_either_way():
    rows = np.repeat([0, 1], 200)
    off = (corruptions.shift(NUMBERS, rows, rng()) - NUMBERS[rows]) / np.nanstd(NUMBERS)
    assert (np.abs(off) >= 4).all()
    assert (np.abs(off) <= 10).all()
    assert (off > 0).any()
    assert (off < 0).any()


def test_a_shifted_count_is_still_whole():
    counts = np.array([1.0, 2.0, 3.0, 9.0])
    shifted = corruptions.shift(counts, np.repeat([0], 50), rng())
    assert (shifted % 1 == 0).all()
    assert (np.abs(shifted - 1) >= 4 * counts.std()).all()


def test_a_factor_moves_the_decimal_point():
    powers = np.log10(corruptions.factor(NUMBERS, np.repeat([0], 200), rng()) / 1.5)
    assert np.array_equal(np.unique(powers.round(9)), [-3, -2, -1, 1, 2, 3])


def test_values_of_other_rows_and_stuck_ones_are_values_of_the_column():
    rows = np.arange(6)
    for mistake in (corruptions.permuted, corruptions.stuck):
        assert np.isin(mistake(NUMBERS, rows, rng()), NUMBERS[~np.isnan(NUMBERS)]).all()
    assert len(np.unique(corruptions.stuck(NUMBERS, rows, rng()))) == 1
    assert np.array_equal(corruptions.flip(NUMBERS, np.array([0, 1]), rng()), [-1.5, 2.0])


def test_another_level_is_another_and_a_typo_is_none():
    words = np.array(["red", "green", "oo", "x"], dtype=object)
    rows = np.repeat(np.arange(4), 50)
    other, misspelt = corruptions.level(words, rows, rng()), corruptions.typo(words, rows, rng())
    assert (other != words[rows]).all()
    assert np.isin(other, words).all()
    assert (misspelt != words[rows]).all()
    assert (misspelt != "").all()


@pytest.mark.parametrize("share", [0.01, 0.05, 0.2])
@pytest.mark.parametrize("missing", [0.0, 0.1])
def test_the_mask_tells_the_truth_and_the_share_is_exact(share, missing, monkeypatch):
    # Without the mistakes that may leave a cell as it was, every chosen cell is wrong.
    for mistakes in (corruptions.NUMBER_MISTAKES, corruptions.CATEGORY_MISTAKES):
        for kind in ("other row", "stuck"):
            monkeypatch.delitem(mistakes, kind)
    clean = made(missing=missing)
    dirty = corrupt(clean, share, rng(1))
    differs = (dirty.frame != clean).to_numpy() & clean.notna().to_numpy()
    assert np.array_equal(dirty.wrong, differs)
    assert dirty.wrong.sum() == round(share * clean.notna().sum().sum())
    assert dirty.frame.isna().equals(clean.isna())


def test_a_cell_that_comes_out_as_it_was_is_not_wrong():
    clean = pd.DataFrame({"a": [0.0, 0.0, 1.0] * 100, "flag": pd.Series(["yes", "yes", "no"] * 100, dtype="str")})
    dirty = corrupt(clean, 1.0, rng())
    assert np.array_equal(dirty.wrong, (dirty.frame != clean).to_numpy())
    assert 0 < dirty.wrong.mean() < 0.9


def test_every_kind_is_made_and_swapped_cells_are_pairs():
    clean = made(1000)
    dirty = corrupt(clean, 0.2, rng())
    assert {kind for kind in KINDS if (dirty.kind == kind).any()} == set(KINDS)
    swapped = dirty.kind == SWAP
    numeric = number_columns(clean)
    for row in np.flatnonzero(swapped.any(1)):
        assert swapped[row].sum() == 2
        j, k = np.flatnonzero(swapped[row])
        assert (dirty.frame.iat[row, j], dirty.frame.iat[row, k]) == (clean.iat[row, k], clean.iat[row, j])
        assert {j, k} <= set(numeric)


def test_the_same_seed_makes_the_same_dirt_and_leaves_the_table_alone():
    clean = made()
    before = clean.copy()
    one, two, other = corrupt(clean, 0.1, rng(3)), corrupt(clean, 0.1, rng(3)), corrupt(clean, 0.1, rng(4))
    assert one.frame.equals(two.frame)
    assert not one.frame.equals(other.frame)
    assert clean.equals(before)


@pytest.mark.parametrize("mechanism", ["at random", "not at random"])
def test_exactly_the_share_of_every_column_goes_missing(mechanism):
    clean = made(missing=0.1)
    hidden = hide(clean, 0.3, mechanism, rng())
    present = clean.notna().to_numpy()
    assert not (hidden & ~present).any()
    assert np.array_equal(hidden.sum(0), (0.3 * present.sum(0)).round())
    assert np.array_equal(without(clean, hidden).isna().to_numpy(), hidden | ~present)


def test_not_at_random_large_values_go_more_often():
    clean = made(20_000)
    hidden = hide(clean, 0.1, "not at random", rng())
    upper = (clean["a"] > clean["a"].median()).to_numpy()
    # Four to one, a little less because the likelier ones run out; 2,000 cells, so five deviations are .045.
    assert hidden[upper, 0].sum() / hidden[:, 0].sum() == pytest.approx(0.8, abs=0.05)
    at_random = hide(clean, 0.1, "at random", rng())
    assert at_random[upper, 0].sum() / at_random[:, 0].sum() == pytest.approx(0.5, abs=0.06)


# --- measures ---


def test_ranking_by_hand():
    frame = pd.DataFrame({"a": [1.0, 2.0, np.nan], "b": [3.0, 4.0, 5.0]})
    kind = np.array([["", "shift"], ["sign", ""], ["", ""]])
    scores = np.array([[0.0, np.inf], [1.0, 2.0], [9.0, np.nan]])  # the missing cell's 9 does not count
    result = ranking(scores, Dirty(frame, kind))
    assert result["ap"] == pytest.approx((1 + 2 / 3) / 2)
    assert result["cell_auroc"] == pytest.approx(5 / 6)
    assert result["ap shift"] == 1.0
    assert result["ap sign"] == pytest.approx(1 / 2)
    assert "ap factor" not in result


def test_errors_are_in_deviations_of_the_column_without_its_tails():
    clean = pd.DataFrame({"a": [*np.tile([0.0, 2.0], 500)], "c": pd.Series(["x"] * 1000, dtype="str")})
    clean.iat[0, 0] = 1e9  # one far value in a thousand changes nothing
    guess = clean.copy()
    cells = np.zeros(clean.shape, bool)
    cells[1:5] = True
    guess.iloc[1:5, 0] = 1.0
    guess.iloc[1, 1] = "y"
    result = value_errors(clean, guess, cells)
    assert result["nrmse"] == pytest.approx(1.0, rel=1e-3)
    assert result["right"] == 0.75
    guess.iloc[1:5, 0] = 1e12  # and a guess far out counts as one at the edge
    assert value_errors(clean, guess, cells)["nrmse"] == pytest.approx(np.sqrt(2), rel=1e-3)
    guess.iloc[1, 0] = np.nan
    with pytest.raises(ValueError, match="1 values of a are not finite"):
        value_errors(clean, guess, cells)


def test_nineteen_draws_of_the_same_distribution_cover_nine_tenths():
    r = rng()
    frames = [pd.DataFrame({"a": r.normal(size=4000)}) for _ in range(20)]
    cells = np.ones((4000, 1), bool)
    # Five deviations of a share of 4,000 cells: 5 sqrt(.09 / 4000) = .024.
    assert coverage(frames[0], frames[1:], cells) == pytest.approx(0.9, abs=0.024)
    with pytest.raises(ValueError, match="18 draws"):
        coverage(frames[0], frames[2:], cells)


def test_the_centre_of_draws_is_mean_and_commonest():
    draws = [
        pd.DataFrame({"a": [v, 0.0], "c": pd.Series([w, "z"], dtype="str")}) for v, w in ((1, "x"), (2, "y"), (6, "y"))
    ]
    assert centre(draws)["a"].tolist() == [3.0, 0.0]
    assert centre(draws)["c"].tolist() == ["y", "z"]


# --- methods ---


def test_a_table_goes_to_numbers_and_back():
    frame = made(50, missing=0.2)
    numbers = Numbers(frame)
    x = numbers.encode()
    assert x.shape == (50, 3 + 2)
    np.testing.assert_allclose(np.nanmean(x[:, :3], 0), 0, atol=1e-12)
    back = numbers.decode(np.nan_to_num(x))
    known = frame.notna()
    np.testing.assert_allclose(back["b"][known["b"]], frame["b"][known["b"]])
    assert (back["colour"][known["colour"]] == frame["colour"][known["colour"]]).all()
    filled = numbers.fill(np.nan_to_num(x))
    assert filled.where(known).equals(frame)
    assert (filled["colour"][~known["colour"]] == frame["colour"].mode()[0]).all()


def test_one_column_at_a_time_by_hand():
    frame = pd.DataFrame({"a": [1.0, 2, 3, 4, 100], "c": pd.Series(["x", "x", "x", "x", "y"], dtype="str")})
    found = one_column(frame, 0)
    assert found.scores[4, 0] == pytest.approx(97 / 1.4826)
    assert found.scores[4, 1] > found.scores[0, 1]
    assert found.suggested.iloc[0].tolist() == [3.0, "x"]
    assert found.flagged.tolist() == [[False, False]] * 4 + [[True, False]]


def test_given_others_is_the_gaussian_conditional():
    r = rng()
    a = r.normal(size=(4, 4))
    covariance, mean = a @ a.T + np.eye(4), r.normal(size=4)
    x = r.normal(size=(3, 4))
    trusted = np.array([[1, 1, 0, 1], [0, 0, 0, 0], [1, 0, 0, 0]])
    expected, variance = given_others(np.where(trusted, x, np.nan), trusted, covariance, mean, 0)
    seen = [1, 3]
    weights = np.linalg.solve(covariance[np.ix_(seen, seen)], covariance[seen, 0])
    assert expected[0] == pytest.approx(mean[0] + weights @ (x[0, seen] - mean[seen]))
    assert variance[0] == pytest.approx(covariance[0, 0] - weights @ covariance[seen, 0])
    assert expected[1:].tolist() == pytest.approx([mean[0]] * 2)
    assert variance[1:].tolist() == pytest.approx([covariance[0, 0]] * 2)


def test_the_fast_cellmcd_steps_as_the_released_one():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        released = pytest.importorskip("robpy.covariance").CellMCD()
        from studies.cells.cellmcd import fast_cellmcd

        fast = fast_cellmcd()
    r = rng()
    a = r.normal(size=(4, 4))
    sigma, mu = a @ a.T + np.eye(4), r.normal(size=4)
    x = r.normal(size=(30, 4))
    x[r.random(x.shape) < 0.1] = np.nan
    w = ((r.random(x.shape) < 0.8) & np.isfinite(x)).astype(float)
    w[0] = 0
    for j in range(4):
        arguments = (x, w, sigma, np.linalg.inv(sigma), mu, j)
        np.testing.assert_allclose(fast._calculate_delta(*arguments), released._calculate_delta(*arguments))
    whole, ones = np.nan_to_num(x), np.ones_like(w)
    # Rows with flagged cells are where the released code stops under numpy 2.4.
    for own, theirs in zip(
        fast._make_predictions(whole, sigma, np.linalg.inv(sigma), mu, ones),
        released._make_predictions(whole, sigma, np.linalg.inv(sigma), mu, ones),
        strict=True,
    ):
        np.testing.assert_allclose(own, theirs)


def check(name, method, needed=()):
    """A method says something about every cell, and fills the gaps and nothing else."""
    for library in needed:
        pytest.importorskip(library)
    clean = made(60, seed=7)
    dirty, hidden = work.spoil(Table("made", MIXED, clean), work.Dirt(work.FILL, 0.0, 0.2), 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the rivals
        if method.find:
            found = method.find(clean.copy(), 0)
            assert found.scores.shape == clean.shape
            assert np.isfinite(found.scores).all()
            assert found.suggested.notna().all().all()
            assert (found.suggested.dtypes == clean.dtypes).all()
            assert not found.suggested["a"].equals(clean["a"])  # what the others suggest, not what stands there
        if method.fill:
            filled = method.fill(dirty.frame.copy(), 0)
            for frame in (filled.best, *(filled.draws or ())):
                assert frame.notna().all().all()
                assert (frame.dtypes == clean.dtypes).all()
                assert ((frame == clean).to_numpy() | hidden).all()
            assert filled.draws is None or len(filled.draws) == measures.DRAWS
        if method.rank:
            assert np.isfinite(method.rank(dirty.frame.copy(), 0)).all()


@pytest.mark.slow
def test_ours_answers_for_every_cell(monkeypatch):
    from pscd import EnergyDetector

    monkeypatch.setattr(ours, "_fitted", lambda frame, seed, **_: EnergyDetector(updates=1).fit(frame))
    check(ours.NAME, OURS[ours.NAME])


@pytest.mark.slow
@pytest.mark.parametrize("name", list(RIVALS))
def test_rivals_answer_for_every_cell(name):
    check(name, RIVALS[name], RIVALS[name].libraries)


# --- tables ---


def test_tidy_keeps_numbers_and_text_and_drops_what_says_nothing():
    frame = pd.DataFrame({"n": [1, 2, 3], "b": [True, False, True], "t": ["x", None, "y"], "same": [1, 1, 1]})
    tidied = tables.tidy(frame)
    assert list(tidied.columns) == ["n", "b", "t"]
    assert number_columns(tidied) == [0]
    assert tidied["t"].isna().tolist() == [False, True, False]
    assert tidied["b"].tolist() == ["True", "False", "True"]


def test_tables_of_adbench_give_normal_rows_and_labelled_ones(tmp_path):
    x = rng().normal(size=(300, 8))
    x[:, 3] = x[:, 3] > 0  # a code
    y = (np.arange(300) < 20).astype(int)
    for name in ("1_new", "14_glass"):
        np.savez(tmp_path / f"{name}.npz", X=x, y=y)
    names = tables.table_names(tmp_path)
    assert (NUMERIC, "1_new") in names
    assert (LABELLED, "1_new") in names
    assert not [name for _, name in names if name == "14_glass"]
    trial = tables.table_names(tmp_path, trial=True)
    assert trial == [(NUMERIC, "14_glass"), *((MIXED, name) for name in tables.MIXED_TRIAL), (LABELLED, "14_glass")]
    assert not set(tables.MIXED_TRIAL) & set(tables.PACKAGES)
    table = tables.load(NUMERIC, "1_new", tmp_path, rows=100, columns=5, seed=0)
    assert table.frame.shape == (100, 5)
    assert np.isin(table.frame["x0"], x[20:, 0]).all()
    assert table.checksum == tables.load(NUMERIC, "1_new", tmp_path, rows=100, columns=5, seed=0).checksum
    assert table.checksum != tables.load(NUMERIC, "1_new", tmp_path, rows=100, columns=5, seed=1).checksum
    labelled = tables.load(LABELLED, "1_new", tmp_path, rows=50, columns=5, seed=0)
    assert labelled.frame.shape == (100, 8)
    assert labelled.labels.sum() >= 3


# --- the whole run, with methods that know the truth or nothing ---

CLEAN = {"tiny": made(80, seed=5), "other": made(80, seed=6)}


def knows(frame, seed):
    """Scores by the true mask; suggests the truth."""
    clean = next(c for c in CLEAN.values() if (c == frame).to_numpy().mean() > 0.5)
    wrong = ((frame != clean) & frame.notna()).to_numpy()
    return Found(wrong.astype(float), clean, wrong)


def fills_truth(frame, seed):
    clean = next(c for c in CLEAN.values() if (c == frame).to_numpy().mean() > 0.3)
    return Filled(clean, [clean] * measures.DRAWS)


def breaks(frame, seed):
    raise RuntimeError(f"no luck\nwith {len(frame)} rows")


def sleeps(frame, seed):
    while True:
        time.process_time()


@pytest.fixture
def small(monkeypatch, tmp_path):
    """Two mixed tables and one of labelled rows; ours knows the truth, a rival breaks, another never ends."""
    one_column(CLEAN["tiny"], 0)  # loads scipy before a clock runs
    methods = {
        "EnergyDetector": Method(knows, fills_truth, lambda frame, seed: np.abs(frame["x0"].fillna(0).to_numpy())),
        SIMPLE: Method(find=one_column, fill=_mean_fill),
        "CellMCD": Method(find=breaks, rank=breaks),
        "DDC": Method(find=sleeps),
    }
    for known in list(work.METHODS):
        monkeypatch.delitem(work.METHODS, known)
    work.METHODS.update(methods)
    monkeypatch.setattr(tables, "PACKAGES", {name: lambda name=name: CLEAN[name] for name in CLEAN})
    monkeypatch.setattr(tables, "SCIKIT_LEARN", {})
    monkeypatch.setattr(work, "LONGEST", 0.25)
    monkeypatch.setattr(work, "QUICK_TABLES", (*CLEAN, "1_rows"))
    x = rng().normal(size=(120, 4))
    x[:10, 0] += 9
    np.savez(tmp_path / "1_rows.npz", X=np.sign(x) * np.abs(x).round(), y=(np.arange(120) < 10).astype(int))
    yield tmp_path
    for known in methods:
        work.METHODS.pop(known, None)


def test_a_quick_run_writes_page_numbers_and_figure_and_goes_on(small, capsys):
    out = small / "out"
    assert main(["cells", "--data", str(small), "--quick", "--jobs", "1", "--out", str(out)]) == 0
    page = (out / "cells.md").read_text()
    report = json.loads((out / "cells.json").read_text())
    assert (out / "cells.png").stat().st_size > 10_000
    assert str(small) not in page
    (finding,) = [case for case in report["summary"]["cases"] if case["task"] == "find"]
    by_method = {line["method"]: line for line in finding["methods"]}
    assert by_method["EnergyDetector"]["ap"]["mean"] == 1.0
    assert by_method["EnergyDetector"]["nrmse"]["mean"] == 0.0
    assert by_method["EnergyDetector"]["found"]["mean"] == 1.0
    # What fails counts with what one column at a time gives.
    assert by_method["CellMCD"]["failed"] == by_method["CellMCD"]["runs"] == 2
    assert by_method["CellMCD"]["ap"] == by_method["DDC"]["ap"] == by_method[SIMPLE]["ap"]
    assert by_method[SIMPLE]["against_ours"]["wins"] == 2
    assert "`RuntimeError: no luck with 80 rows`" in page
    assert "`TimeoutError: stopped after 0.25 s of the processor`" in page
    assert "| AP above every rival's on mixed tables at every rate | yes |" in page
    (ranked,) = [case for case in report["summary"]["cases"] if case["task"] == "rank"]
    assert {line["method"]: line["auroc"]["mean"] for line in ranked["methods"]}["CellMCD"] == 0.5

    capsys.readouterr()
    work.METHODS["EnergyDetector"] = Method(breaks, breaks, breaks)  # nothing is computed again
    assert main(["cells", "--data", str(small), "--quick", "--jobs", "1", "--out", str(out)]) == 0
    assert json.loads((out / "cells.json").read_text())["runs_computed_in_that_time"] == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--data", "nowhere"], "no such folder"),
        (["--only", "magic"], "no table magic; there are: tiny, other"),
        (["--methods", "magic"], "no method 'magic'; there are: EnergyDetector; "),
        (["--seeds", "0"], "--seeds: must be a whole number of at least 1"),
        (["--max-rows", "5"], "--max-rows must be at least 50"),
        (["--max-columns", "1"], "--max-columns must be at least 3"),
        (["--jobs", "0"], "--jobs: must be a whole number of at least 1"),
    ],
)
def test_wrong_arguments_are_told_in_one_line(small, capsys, monkeypatch, arguments, words):
    monkeypatch.chdir(small)
    assert main(["cells", *arguments, "--out", "new"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line
    assert not (small / "new").exists()


def test_every_method_meets_the_same_dirt_and_other_dirt_is_other():
    table = Table("tiny", MIXED, CLEAN["tiny"])
    dirt = work.Dirt(work.FIND, 0.1, 0.3)
    one, hidden = work.spoil(table, dirt, 0)
    two, again = work.spoil(table, dirt, 0)
    assert one.frame.equals(two.frame)
    assert np.array_equal(hidden, again)
    assert not (one.wrong & hidden).any()
    assert not one.frame.equals(work.spoil(table, dirt, 1)[0].frame)
    assert not one.frame.equals(work.spoil(table, dirt._replace(wrong=0.2), 0)[0].frame)


def test_a_run_that_is_stopped_has_met_every_kind_of_table_and_of_dirt(small):
    plan = work.make_plan(small, seeds=2, rows=80, columns=5)
    keys = [(seed, dirt in work.QUICK, group, name) for dirt, group, name, _, seed in plan.wanted()]
    assert list(dict.fromkeys(keys))[:4] == [
        (0, True, MIXED, "tiny"),
        (0, True, LABELLED, "1_rows"),
        (0, True, MIXED, "other"),
        (0, False, MIXED, "tiny"),
    ]
    assert [seed for seed, *_ in keys] == sorted(seed for seed, *_ in keys)
    assert len(set(plan.wanted())) == len(keys) == 2 * (2 * (5 * 4 + 7 * 2) + 4 * 2)


# --- summary ---


def result(method, table, seed, ap=None, wrong=0.05, group=NUMERIC, task="find", **more):
    settings = {"task": task, "group": group, "wrong": wrong, "missing": 0.0, "mechanism": "at random"}
    values = {"n": 10, "d": 2, "method_seconds": 1.0, **({} if ap is None else {"ap": ap}), **more}
    return Run({**settings, "method": method, "table": table, "seed": seed}, values)


def test_means_are_over_tables_and_deviations_over_seeds():
    done = [result("DDC", t, s, ap) for t, s, ap in (("a", 0, 0.1), ("a", 1, 0.3), ("b", 0, 0.5), ("b", 1, 0.9))]
    done += [result("EnergyDetector", t, s, 0.6) for t in "ab" for s in (0, 1)]
    done.append(result("DDC", "c", 0, 1.0))  # ours has not met this table yet,
    done.append(result("DDC", "a", 0, 1.0, wrong=0.2))  # and this dirt on no table,
    done += [result(method, "a", 0, 1.0, wrong=0.1) for method in ("DDC", "EnergyDetector")]  # and this on one alone
    (case,) = summary.summarise(done)["cases"]
    own, ddc = case["methods"]
    assert own["method"] == "EnergyDetector"
    assert case["tables"] == 2
    assert ddc["ap"]["mean"] == pytest.approx(0.45)
    assert ddc["ap"]["sd"] == pytest.approx(np.std([0.3, 0.6], ddof=1))
    assert ddc["against_ours"]["wins"] == 1
    assert ddc["against_ours"]["losses"] == 1
    assert ddc["against_ours"]["better_by"] == pytest.approx(0.15)


def test_falls_are_compared_table_by_table():
    """Ours falls by .1 and .3, theirs by .2 and .1: less by .1 on one table, more by .2 on the other."""
    aurocs = {
        ("EnergyDetector", 0.0): (0.9, 0.8),
        ("EnergyDetector", 0.3): (0.2, 0.1),  # what lies between does not count
        ("EnergyDetector", 0.5): (0.8, 0.5),
        ("isotree", 0.0): (0.7, 0.6),
        ("isotree", 0.3): (0.6, 0.6),
        ("isotree", 0.5): (0.5, 0.5),
    }
    done = []
    for (method, missing), values in aurocs.items():
        for table, auroc in zip("ab", values, strict=True):
            found = result(method, table, 0, wrong=0.0, group=LABELLED, task="rank", auroc=auroc)
            done.append(Run({**found.settings, "missing": missing}, found.result))
    (fall,) = summary.summarise(done)["falls"]
    assert fall["method"] == "isotree"
    assert (fall["wins"], fall["losses"]) == (1, 1)
    assert fall["better_by"] == pytest.approx(-0.05)
    assert fall["standard_error"] == pytest.approx(0.15)
    assert "| isotree | 1 : 1 | -0.050 ± 0.150 |" in report.falls_part([fall])[1]
    assert summary.summarise(done[:2] + done[6:8])["falls"] == []  # one share alone


def test_a_goal_is_reached_at_every_rate_or_not_at_all():
    done = [
        result(method, "a", 0, ap, wrong)
        for wrong, theirs in ((0.05, 0.5), (0.1, 0.8))
        for method, ap in (("EnergyDetector", 0.7), ("DDC", theirs), ("CellMCD", 0.1), (SIMPLE, 0.9))
    ]
    (goal,) = goals(summary.summarise(done)["cases"])
    assert not goal.reached
    assert goal.shown == "5 %: 0.700 against 0.500 (DDC); 10 %: 0.700 against 0.800 (DDC)"
    (goal,) = goals(summary.summarise(done[:4])["cases"])
    assert goal.reached


def test_the_wide_table_has_the_wrong_cells_that_it_says():
    dirty, wrong = speed.wide_table(200, 100)
    assert wrong.sum() == 200 * 100 // speed.ONE_IN
    clean = dirty.copy()
    column = wrong.any(0)
    clean[wrong] = np.nan
    assert np.nanmax(np.abs(clean)) < 5 < np.abs(dirty[wrong]).max() + 3
    np.testing.assert_allclose(np.nanstd(clean[:, ~column], 0), 1)
