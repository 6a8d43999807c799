from datetime import datetime

import numpy as np
import pytest

from pscd.report.columns import DrawnColumn, column, shown


def test_dates_become_years_and_flags_words():
    dates = column("a", [datetime(2020, 1, 1), None], [datetime(2021, 7, 2)])
    assert dates.is_number
    assert dates.is_date
    assert dates.values[0] == 2020
    assert np.isnan(dates.values[1])
    assert dates.samples[0] == pytest.approx(2021.5, abs=0.01)
    assert (dates.number(dates.values[0]), dates.number(dates.samples[0])) == ("2020-01-01", "2021-07-02")
    flags = column("b", [True, False, None], [True])
    assert not flags.is_number
    assert flags.values.tolist() == ["True", "False", None]


def test_numbers_among_words_stay_words():
    assert column("a", [1.5, "x"], [2]).values.tolist() == ["1.5", "x"]
    assert column("a", [1.5, 2], ["x"]).samples.tolist() == ["x"]


def test_a_cell_of_numbers_is_short_and_a_word_is_what_it_is():
    numbers, words = (DrawnColumn("a", np.array(v), np.array(v)) for v in ([1.0], np.array(["x"], dtype=object)))
    assert numbers.text("16.739039719934468", 4) == "16.74"
    assert numbers.text("1,5") == "1,5"
    assert numbers.text("") == numbers.text(None) == numbers.text(np.nan) == "missing"
    assert words.text("007") == "007"
    assert shown(datetime(2020, 1, 2)) == "2020-01-02"
    assert shown("x" * 5007).endswith("(5,007 characters)")
