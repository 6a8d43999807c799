import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from pscd import EnergyDetector

X = np.random.default_rng(0).normal(size=(60, 2))
NUMBERS = pd.DataFrame(X, columns=["a", "b"])
MIXED = NUMBERS.assign(c=["u", "v", "w"] * 20)


@pytest.mark.parametrize("table", [NUMBERS, MIXED], ids=["numbers", "mixed"])
@pytest.mark.parametrize("convert", [pd.DataFrame, pl.from_pandas, pa.Table.from_pandas])
def test_samples_are_a_frame_of_the_library_that_the_rows_came_in(table, convert):
    frame = convert(table)
    samples = EnergyDetector(n_updates=5).fit(frame).sample(7)
    assert type(samples) is type(frame)
    names = samples.column_names if isinstance(samples, pa.Table) else list(samples.columns)
    assert names == list(table.columns)
    assert samples.shape == (7, table.shape[1])


def test_samples_of_an_array_are_an_array_and_of_a_frame_the_same_numbers():
    array, frame = (EnergyDetector(n_updates=5).fit(rows).sample(7) for rows in (X, NUMBERS))
    assert type(array) is np.ndarray
    np.testing.assert_array_equal(frame.to_numpy(), array)


def test_names_of_columns_need_not_be_texts():
    samples = EnergyDetector(n_updates=5).fit(pd.DataFrame(X, columns=[2019, 2021])).sample(3)
    assert list(samples.columns) == [2019, 2021]


def test_a_detector_that_was_loaded_gives_frames_of_pandas(tmp_path):
    EnergyDetector(n_updates=5).fit(pl.from_pandas(NUMBERS)).save(tmp_path / "frame")
    samples = EnergyDetector.load(tmp_path / "frame").sample(3)
    assert isinstance(samples, pd.DataFrame)
    assert list(samples.columns) == ["a", "b"]
    EnergyDetector(n_updates=5).fit(X).save(tmp_path / "array")
    assert type(EnergyDetector.load(tmp_path / "array").sample(3)) is np.ndarray
