import math

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline

from pscd import EnergyDetector
from pscd.detector.cells import confidence_of
from tests.detector.tables import people, with_gaps

COLUMNS = ["row", "column", "value", "problem", "suggestion", "low", "high", "confidence"]
PLANTED = {(3, "height"), (40, "height"), (7, "weight"), (11, "age")}


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
    return EnergyDetector(updates=20).fit(dirty)


def places(cells, problem):
    return set(cells.loc[cells["problem"] == problem, ["row", "column"]].itertuples(index=False, name=None))


def test_confidence_rises_with_surprise_from_the_prior_to_one():
    surprise = torch.linspace(0, 60, 2000).double()
    confidence = confidence_of(surprise, prior=0.02)
    assert (confidence.diff() >= 0).all()
    assert confidence[surprise <= 1].tolist() == pytest.approx([0.02] * int((surprise <= 1).sum()))
    assert float(confidence[-1]) == pytest.approx(1)
    factor = math.e * 0.001 * -math.log(0.001)
    by_hand = 0.01 / (0.01 + 0.99 * factor)
    assert float(confidence_of(-torch.tensor(0.001).double().log(), 0.01)) == pytest.approx(by_hand)


def test_wrong_and_missing_cells_in_one_list(detector, dirty):
    cells = detector.cells(dirty)
    assert list(cells.columns) == COLUMNS
    assert places(cells, "wrong") >= PLANTED
    assert len(places(cells, "wrong") - PLANTED) <= 5  # of 1,600 cells
    assert places(cells, "missing") == {(20, "weight"), (21, "weight"), (22, "sex"), (23, "sex")}
    wrong = cells[cells["problem"] == "wrong"]
    assert cells["problem"].tolist() == ["wrong"] * len(wrong) + ["missing"] * 4
    assert wrong["confidence"].is_monotonic_decreasing
    assert wrong["confidence"].between(0.5, 1).all()
    assert (cells["confidence"][len(wrong) :] == 1).all()
    height = cells.set_index(["row", "column"]).loc[(3, "height")]
    assert height["value"] == dirty["height"][3]
    assert height["low"] < people()["height"][3] < height["high"]
    assert cells.iloc[0][["row", "column", "value", "confidence"]].tolist() == [7, "weight", "heavy", 1.0]


def test_more_confidence_is_a_part_of_the_list(detector, dirty):
    every, some = (detector.cells(dirty, confidence=c) for c in (0, 0.9))
    assert len(every) == dirty.size
    sure = every[(every["confidence"] >= 0.9)].reset_index(drop=True)
    pd.testing.assert_frame_equal(some.astype(object), sure.astype(object))
    for name in ("confidence", "level"):
        with pytest.raises(ValueError, match=f"{name} must be between 0 and 1, got 1.5"):
            detector.cells(dirty, **{name: 1.5})


def test_a_suggestion_lies_in_its_interval():
    """Numbers, whole numbers, dates with weekday and time, in text and typed; a skewed and a two-valued column."""
    rng = np.random.default_rng(0)
    n = 300
    days = pd.Timestamp("2020-01-01 09:30") + pd.to_timedelta(rng.integers(0, 900, n), unit="D")
    frame = pd.DataFrame(
        {
            "number": rng.normal(5, 1, n).round(2),
            "skewed": np.exp(2 * rng.normal(size=n)).round(3),
            "far": np.where(rng.uniform(size=n) < 0.04, 100.0, 0.0) + rng.normal(size=n),
            "whole": rng.integers(0, 50, n),
            "when": days,
            "text": [f"{value:.2f} EUR" for value in rng.gamma(2, 20, n)],
        }
    )
    frame = with_gaps(frame, 0.15)
    cells = EnergyDetector(updates=1).fit(frame).cells(frame, confidence=0, level=0.5)
    for name, found in cells.groupby("column"):
        low, suggestion, high = (
            found[c].str.removesuffix(" EUR").astype(float) if name == "text" else found[c]
            for c in ("low", "suggestion", "high")
        )
        assert (low <= suggestion).all(), name
        assert (suggestion <= high).all(), name
        assert (low < high).any(), name


def test_rare_values_are_never_suggested():
    """Of 200 names most are rare and share a code; the model treats them as unknown."""
    rng = np.random.default_rng(0)
    frame = people(600).assign(name=[f"name {int(i)}" for i in np.minimum(rng.geometric(0.05, 600), 200)])
    frame.loc[rng.choice(600, 60, replace=False), "name"] = None
    rare = frame["name"].value_counts().index[64:]
    frame.loc[:5, "name"] = rare[:6]
    detector = EnergyDetector(updates=1, kinds={"name": "category"}).fit(frame)
    column = detector.reader_.schema.columns[4]
    assert column.others
    cells = detector.cells(frame)
    assert set(cells.loc[cells["column"] == "name", "suggestion"]) <= set(column.levels)
    assert set(detector.sample(300)["name"]) <= set(column.levels)
    completed = detector.transform(frame)
    assert set(completed.loc[frame["name"].isna(), "name"]) <= set(column.levels)
    assert completed.loc[frame["name"].notna(), "name"].equals(frame["name"].dropna())


def test_a_misspelt_category_is_wrong_and_what_was_meant_is_suggested():
    frame = people().assign(sex=lambda f: f["sex"].map({"m": "male", "f": "female"}))
    frame.loc[5, "sex"], frame.loc[6, "sex"] = "femal", "mlae"
    cells = EnergyDetector(updates=1).fit(frame).cells(frame).set_index(["row", "column"])
    assert cells.loc[(5, "sex"), ["suggestion", "confidence"]].tolist() == ["female", 1.0]
    assert cells.loc[(6, "sex"), "suggestion"] == "male"  # whatever height and weight are


def test_rows_have_their_own_names(dirty, detector):
    named = dirty.set_axis([f"row {i}" for i in range(len(dirty))], axis=0)
    assert detector.cells(named)["row"][0] == "row 7"
    ids = detector.cells(dirty.assign(id=lambda f: f.index + 1000), id="id")
    assert ids["row"][0] == 1007


def test_explain_gives_the_contribution_of_each_cell(detector, dirty):
    cost = detector.explain(dirty)
    assert list(cost.columns) == list(dirty.columns)
    assert set(cost.stack().sort_values(ascending=False).index[:4]) == PLANTED
    assert cost.loc[20, "weight"] == 0
    assert (cost.to_numpy() >= 0).all()


def test_repair_applies_the_suggestions_and_changes_no_other_cell(detector, dirty):
    for confidence in (0.5, 0.999):
        repaired, cells = detector.repair(dirty, confidence=confidence), detector.cells(dirty, confidence=confidence)
        wrong = cells[cells["problem"] == "wrong"]
        expected = dirty.astype(object)
        for cell in wrong.itertuples():
            expected.loc[cell.row, cell.column] = cell.suggestion
        pd.testing.assert_frame_equal(repaired.astype(object), expected, check_dtype=False)
    assert pd.isna(repaired.loc[20, "weight"])


def test_intervals_of_missing_cells_cover():
    """Nine in ten, of some 240 cells: a binomial deviate of 2 %, and the model is not the truth."""
    truth = people(1000)
    frame = with_gaps(truth, 0.1)
    cells = EnergyDetector(updates=5).fit(frame).cells(frame)
    missing = cells[cells["problem"] == "missing"]
    assert len(missing) == frame.isna().to_numpy().sum()
    numbers = missing[missing["column"].isin(["height", "weight"])]
    right = np.array([truth.loc[row, column] for row, column in zip(numbers["row"], numbers["column"], strict=True)])
    inside = (right >= numbers["low"].astype(float)) & (right <= numbers["high"].astype(float))
    assert 0.82 < inside.mean() < 0.97


def test_imputation_uses_the_other_cells():
    truth = people(1000)
    frame = with_gaps(truth, 0.1)
    detector = EnergyDetector(updates=5).fit(frame)
    several = detector.impute(frame, n=8)
    gap = frame["weight"].isna() & frame["height"].notna()
    draws = np.array([made.loc[gap, "weight"].astype(float) for made in several])
    error = (draws.mean(0) - truth.loc[gap, "weight"]).std()
    assert error < 0.7 * truth["weight"].std()  # the height explains about half of the variance
    assert draws.std(0).mean() > 0.5 * error  # draws, not one guess
    for made in several:
        assert not made.isna().to_numpy().any()
        pd.testing.assert_frame_equal(made.where(frame.notna()), frame.where(frame.notna()), check_dtype=False)
    pd.testing.assert_frame_equal(several[3], detector.impute(frame, n=8)[3])
    assert not detector.impute(frame, n=1, seed=7)[0].equals(several[0])
    with pytest.raises(ValueError, match="at least 1"):
        detector.impute(frame, n=0)


def test_a_step_of_a_pipeline():
    truth = people(300)
    frame = with_gaps(truth[["height", "weight"]], 0.2)
    detector = EnergyDetector(updates=5)
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
    detector = EnergyDetector(updates=5).fit(table)
    assert isinstance(detector.explain(table), pl.DataFrame)
    assert isinstance(detector.transform(table), pl.DataFrame)
    assert (3, "height") in places(detector.cells(table), "wrong")


def test_single_wrong_cells_in_a_wide_table():
    """Errors of six deviations in 40 columns: the chance of a right cell as far out is 2e-9."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 3)) @ rng.normal(size=(3, 40)) + rng.normal(size=(600, 40))
    spread = x.std(0)
    i, j = rng.choice(600, 30, replace=False), rng.integers(0, 40, 30)
    x[i, j] += 6 * spread[j]
    cost = EnergyDetector(updates=5).fit(x).explain(x)
    top = np.argsort(-cost, axis=None)[:30]
    assert len(set(top.tolist()) & set((i * 40 + j).tolist())) >= 28


def test_names_of_columns_may_be_numbers():
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(100, 2)), columns=[2020, 2019])
    frame.iloc[7, 0] = 500.0
    detector = EnergyDetector(updates=5).fit(frame)
    assert detector.cells(frame).iloc[0][["row", "column", "value"]].tolist() == [7, 2020, 500.0]
    repaired = detector.repair(frame)
    assert list(repaired.columns) == [2020, 2019]
    assert abs(repaired.loc[7, 2020]) < 5


def test_an_infinite_number_is_a_wrong_cell_of_a_frame_and_an_error_of_an_array():
    x = np.random.default_rng(0).normal(size=(100, 2))
    clean = EnergyDetector(updates=5).fit(pd.DataFrame(x, columns=["a", "b"]))
    x[7, 1] = -np.inf
    frame = pd.DataFrame(x, columns=["a", "b"])
    for detector in (EnergyDetector(updates=5).fit(frame), clean):
        worst = detector.cells(frame).iloc[0]
        assert worst[["row", "column", "value", "confidence"]].tolist() == [7, "b", -np.inf, 1.0]
        assert np.isfinite(detector.score_samples(frame)).all()
        assert np.isfinite(detector.repair(frame)).all(axis=None)
    with pytest.raises(ValueError, match="infinity"):
        EnergyDetector(updates=5).fit(x)


def test_a_wrong_cell_of_a_table_of_one_column():
    x = np.random.default_rng(0).normal(5, 1, size=(200, 1))
    x[51] = 99.0
    for table in (x, pd.DataFrame(x, columns=["a"])):
        detector = EnergyDetector(updates=5).fit(table)
        worst = detector.cells(table).iloc[0]
        assert (worst["row"], worst["value"]) == (51, 99.0)
        assert 4 < worst["suggestion"] < 6
        assert np.asarray(detector.repair(table))[51] < 10


def test_a_new_value_in_a_constant_column_is_as_surprising_as_the_rows_are_many():
    for n in (50, 5_000):
        frame = pd.DataFrame(np.random.default_rng(0).normal(size=(n, 1)), columns=["a"]).assign(b=7.0)
        detector = EnergyDetector(updates=1).fit(frame)
        frame.loc[3, "b"] = 8.0
        assert ((3, "b") in places(detector.cells(frame), "wrong")) == (n > 1000)
        assert detector.explain(frame).loc[3, "b"] == pytest.approx(math.log(n + 1))
