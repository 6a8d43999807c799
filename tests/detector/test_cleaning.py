import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline

from pscd import EnergyDetector
from pscd.detector import cleaning as module
from pscd.detector.cleaning import IMPOSSIBLE
from tests.detector.tables import people, with_gaps


@pytest.fixture(scope="module")
def dirty():
    frame = people()
    frame["weight"] = frame["weight"].astype(object)
    frame.loc[3, "height"] *= 100
    frame.loc[40, "height"] *= 100
    frame.loc[7, "weight"] = "heavy"
    frame.loc[11, "age"] = 430
    frame.loc[[20, 21], "weight"] = None
    frame.loc[[22, 23], "sex"] = None
    return frame


@pytest.fixture(scope="module")
def detector(dirty):
    return EnergyDetector(n_updates=20).fit(dirty)


def test_the_wrong_cells_cost_most(detector, dirty):
    cost = detector.explain(dirty)
    assert list(cost.columns) == list(dirty.columns)
    worst = cost.stack().sort_values(ascending=False).index[:4]
    assert set(worst) == {(3, "height"), (40, "height"), (7, "weight"), (11, "age")}
    assert cost.loc[7, "weight"] == IMPOSSIBLE
    assert cost.loc[20, "weight"] == 0
    assert (cost.to_numpy() >= 0).all()


def test_wrong_cells_are_flagged_and_few_others(detector, dirty):
    wrong = detector.flag_cells(dirty)
    planted = {(3, "height"), (40, "height"), (7, "weight"), (11, "age")}
    assert all(wrong.loc[cell] for cell in planted)
    assert wrong.to_numpy().sum() - len(planted) <= 5  # of 1,600 cells, at a rate of one in a thousand
    assert not wrong.loc[20, "weight"]
    with pytest.raises(ValueError, match="between 0 and 1"):
        detector.flag_cells(dirty, false_alarms=0)
    with pytest.raises(ValueError, match="false_alarms must be between 0 and 1, got 1"):
        detector.flag_cells(dirty, false_alarms=1.0)


def test_common_mistakes_are_looked_for_in_wrong_cells_alone(detector, dirty, monkeypatch):
    seen, find = [], module.find_mistakes
    monkeypatch.setattr(module, "find_mistakes", lambda expected, names: seen.append(expected) or find(expected, names))
    found = detector.suspects(dirty)
    (expected,) = seen
    looked_at = sorted(expected.found[expected.wrong])
    assert expected.wrong.sum() < expected.wrong.size
    assert looked_at == sorted(pd.to_numeric(found["found"], errors="coerce").dropna())


def test_suspects_say_what_should_stand_there(detector, dirty):
    found = detector.suspects(dirty).set_index(["row", "column"])
    height = found.loc[(3, "height")]
    assert height["mistake"] == "100 times too large"
    assert height["suggested"] == pytest.approx(people()["height"][3])
    assert height["found"] == dirty["height"][3]
    assert height["lower"] < height["suggested"] < height["upper"]
    word = found.loc[(7, "weight")]
    assert word["found"] == "heavy"
    assert word["lower"] < people()["weight"][7] < word["upper"]
    assert found["cost"].is_monotonic_decreasing


def test_findings_are_suspects_and_gaps(detector, dirty):
    found = detector.findings(dirty)
    for what, alone in (("wrong", detector.suspects(dirty)), ("missing", detector.gaps(dirty))):
        assert len(alone) >= 4
        some = found[found["what"] == what].drop(columns="what").reset_index(drop=True)
        pd.testing.assert_frame_equal(some.astype(object), alone.astype(object))
    whole = dirty.drop(index=[20, 21, 22, 23])
    assert set(detector.findings(whole)["what"]) == {"wrong"}


def test_a_misspelt_category_is_wrong_and_what_was_meant_is_suggested():
    frame = people().assign(sex=lambda f: f["sex"].map({"m": "male", "f": "female"}))
    frame.loc[5, "sex"], frame.loc[6, "sex"] = "femal", "mlae"
    found = EnergyDetector(n_updates=1).fit(frame).suspects(frame).set_index(["row", "column"])
    assert found.loc[(5, "sex"), ["suggested", "mistake", "cost"]].tolist() == ["female", "misspelt", IMPOSSIBLE]
    assert found.loc[(6, "sex"), "suggested"] == "male"  # whatever height and weight say


def test_expected_values_are_those_of_the_suggestions_and_of_the_gaps(detector, dirty):
    expected, suspects = detector.expected(dirty), detector.suspects(dirty)
    for cell in suspects.to_dict("records"):
        assert expected.loc[cell["row"], cell["column"]] == cell["suggested"]
    gap = detector.gaps(dirty).iloc[0]
    assert expected.loc[gap["row"], gap["column"]] == gap["suggested"]
    assert expected.shape == dirty.shape


def test_repaired_cells_and_no_others(detector, dirty):
    made, wrong = detector.repair(dirty), detector.flag_cells(dirty)
    pd.testing.assert_frame_equal(made.mask(wrong), dirty.mask(wrong), check_dtype=False)
    assert made.loc[3, "height"] == pytest.approx(people()["height"][3])
    assert 18 <= made.loc[11, "age"] <= 80
    assert pd.isna(made.loc[20, "weight"])


def test_gaps_have_intervals_that_cover():
    """Nine in ten, of some 240 cells: a binomial deviate of 2 %, and the model is not the truth."""
    truth = people(1000)
    frame = with_gaps(truth, 0.1)
    gaps = EnergyDetector(n_updates=5).fit(frame).gaps(frame)
    numbers = gaps[gaps["column"].isin(["height", "weight"])]
    right = np.array([truth.loc[row, column] for row, column in zip(numbers["row"], numbers["column"], strict=True)])
    inside = (right >= numbers["lower"].astype(float)) & (right <= numbers["upper"].astype(float))
    assert 0.82 < inside.mean() < 0.97
    assert len(gaps) == frame.isna().to_numpy().sum()


def test_imputation_knows_the_other_cells():
    truth = people(1000)
    frame = with_gaps(truth, 0.1)
    detector = EnergyDetector(n_updates=5).fit(frame)
    several = detector.impute(frame, n=8)
    gap = frame["weight"].isna() & frame["height"].notna()
    draws = np.array([made.loc[gap, "weight"].astype(float) for made in several])
    error = (draws.mean(0) - truth.loc[gap, "weight"]).std()
    assert error < 0.7 * truth["weight"].std()  # the height tells about half of the variance
    assert draws.std(0).mean() > 0.5 * error  # draws, not one guess
    for made in several:
        assert not made.isna().to_numpy().any()
        pd.testing.assert_frame_equal(made.where(frame.notna()), frame.where(frame.notna()), check_dtype=False)
    assert set(several[0]["sex"]) == {"m", "f"}
    again = detector.impute(frame, n=8)
    pd.testing.assert_frame_equal(several[3], again[3])
    other = detector.impute(frame, n=1, random_state=7)[0]
    assert not other.equals(several[0])
    with pytest.raises(ValueError, match="at least 1"):
        detector.impute(frame, n=0)


def test_a_step_of_a_pipeline():
    truth = people(300)
    frame = with_gaps(truth[["height", "weight"]], 0.2)
    detector = EnergyDetector(n_updates=5)
    model = make_pipeline(detector, LinearRegression()).fit(frame, truth["age"])
    assert np.isfinite(model.predict(frame)).all()
    columns = ColumnTransformer([("gaps", clone(detector), ["height", "weight"])], remainder="drop")
    made = columns.set_output(transform="pandas").fit_transform(frame)
    assert list(made.columns) == ["gaps__height", "gaps__weight"]
    assert not made.isna().to_numpy().any()
    array = clone(detector).fit(frame.to_numpy()).transform(frame.to_numpy())
    assert isinstance(array, np.ndarray)
    assert np.isfinite(array).all()


def test_polars_in_polars_out(dirty):
    table = pl.from_pandas(dirty.astype(str).where(dirty.notna(), None))
    detector = EnergyDetector(n_updates=5).fit(table)
    assert isinstance(detector.explain(table), pl.DataFrame)
    assert isinstance(detector.transform(table), pl.DataFrame)
    assert detector.flag_cells(table)["height"][3]


def test_single_wrong_cells_in_a_wide_table():
    """Errors of six deviations in 40 columns: the chance of a right cell as far out is 2e-9."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 3)) @ rng.normal(size=(3, 40)) + rng.normal(size=(600, 40))
    spread = x.std(0)
    i, j = rng.choice(600, 30, replace=False), rng.integers(0, 40, 30)
    x[i, j] += 6 * spread[j]
    cost = EnergyDetector(n_updates=5).fit(x).explain(x)
    top = np.argsort(-cost, axis=None)[:30]
    assert len(set(top.tolist()) & set((i * 40 + j).tolist())) >= 28


def test_columns_that_are_numbered_are_listed_and_mended_by_their_numbers():
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(100, 2)), columns=[2020, 2019])
    frame.iloc[7, 0] = 500.0
    detector = EnergyDetector(n_updates=5).fit(frame)
    worst = detector.suspects(frame).iloc[0]
    assert (worst["row"], worst["column"], worst["found"]) == (7, 2020, 500.0)
    mended = detector.repair(frame)
    assert list(mended.columns) == [2020, 2019]
    assert abs(mended.loc[7, 2020]) < 5


def test_an_infinite_number_is_a_wrong_cell_of_a_frame_and_an_error_of_an_array():
    x = np.random.default_rng(0).normal(size=(100, 2))
    clean = EnergyDetector(n_updates=5).fit(pd.DataFrame(x, columns=["a", "b"]))
    x[7, 1] = -np.inf
    frame = pd.DataFrame(x, columns=["a", "b"])
    for detector in (EnergyDetector(n_updates=5).fit(frame), clean):
        worst = detector.suspects(frame).iloc[0]
        assert (worst["row"], worst["column"], worst["found"], worst["cost"]) == (7, "b", -np.inf, IMPOSSIBLE)
        assert np.isfinite(detector.score_samples(frame)).all()
        assert np.isfinite(detector.repair(frame)).all(axis=None)
    with pytest.raises(ValueError, match="infinity"):
        EnergyDetector(n_updates=5).fit(x)


def test_no_suggestion_stands_beside_an_interval_that_it_is_not_in():
    """Of 100 +- 10, 120 is plausible and outside of the interval to 116, and 101 inside."""
    frame = pd.DataFrame(np.random.default_rng(0).normal(100, 10, size=(400, 2)), columns=["a", "b"])
    frame.loc[0, "a"], frame.loc[1, "a"] = 12_000.0, 10_100.0
    found = EnergyDetector(n_updates=5).fit(frame).suspects(frame).set_index("row").loc[[0, 1]]
    assert found["mistake"].tolist() == ["100 times too large"] * 2
    assert found["suggested"].tolist() == [120.0, 101.0]
    assert found["lower"].isna().tolist() == found["upper"].isna().tolist() == [True, False]
    assert found["lower"][1] < 101 < found["upper"][1]


def test_a_wrong_cell_of_a_table_of_one_column_is_found():
    x = np.random.default_rng(0).normal(5, 1, size=(200, 1))
    x[51] = 99.0
    for table in (x, pd.DataFrame(x, columns=["a"])):
        detector = EnergyDetector(n_updates=5).fit(table)
        worst = detector.suspects(table).iloc[0]
        assert (worst["row"], worst["found"]) == (51, 99.0)
        assert 4 < worst["suggested"] < 6
        assert np.asarray(detector.repair(table))[51] < 10
