import numpy as np
import pandas as pd
import polars as pl
import pytest

from pscd import EnergyDetector
from pscd.cli.main import main
from pscd.tables import decode, encode, look, spell
from pscd.tables.dates import date_spelling, in_zone, offsets_of, parse_dates

ZURICH = "Europe/Zurich"
FORM = "%Y-%m-%d %H:%M"


def texts(*words):
    return np.array(words, dtype=object)


def offsets(*words):
    found = texts(*words)
    return offsets_of(found, parse_dates(found, (FORM,)), np.ones(len(found), int))


def test_what_stands_after_dates_is_told_by_month_if_it_differs():
    assert offsets("2020-01-01 12:00", "2020-07-01 12:00") == ()
    assert offsets("2020-01-01 12:00Z", "2020-07-01 12:00") == ()  # no more than half
    assert offsets("2020-01-01 12:00 UTC", "2020-07-01 12:00 UTC") == (" UTC",)
    found = offsets("2020-01-01 12:00+01:00", "2020-07-01 12:00+02:00", "2020-08-01 12:00+02:00", "never")
    assert found == ("+01:00", *["+02:00"] * 11)  # months without a date have the commonest
    dates = np.array(["2021-01-05T10:30", "2021-02-05T10:30", "NaT"], dtype="datetime64[us]")
    assert date_spelling(dates, FORM, found).tolist() == ["2021-01-05 10:30+01:00", "2021-02-05 10:30+02:00", ""]
    assert date_spelling(dates, FORM, ("Z",)).tolist() == ["2021-01-05 10:30Z", "2021-02-05 10:30Z", ""]


def test_the_clock_shows_the_same_in_every_zone():
    clock = ["2020-07-01 12:00", "2020-10-25 02:30", "2020-03-29 02:30"]  # the second is there twice, the third never
    plain = pd.Series(pd.to_datetime(clock))
    zoned = in_zone(plain, ZURICH)
    assert [str(moment) for moment in zoned] == [
        "2020-07-01 12:00:00+02:00",
        "2020-10-25 02:30:00+02:00",
        "2020-03-29 03:00:00+02:00",
    ]
    assert in_zone(zoned, None).tolist()[:2] == plain.tolist()[:2]
    assert in_zone(zoned, "UTC").tolist()[0] == pd.Timestamp("2020-07-01 12:00", tz="UTC")


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    when = pd.Series(pd.Timestamp("2020-01-01", tz=ZURICH) + pd.to_timedelta(rng.integers(0, 200 * 24, 60), unit="h"))
    made = pd.DataFrame({"when": when, "x": rng.normal(size=60)})
    made.loc[[3, 7], "when"] = pd.NaT
    return made


@pytest.fixture(scope="module")
def detector(frame):
    return EnergyDetector(updates=5).fit(frame)


def test_typed_dates_keep_their_zone(frame):
    schema = look(frame)
    assert schema.columns[0].zones == (ZURICH,)
    back = decode(encode(frame, schema).x, schema)
    pd.testing.assert_series_equal(back["when"], frame["when"], check_dtype=False)
    assert back["when"].dt.tz.key == ZURICH
    assert spell(back[:1], schema)["when"][0] == str(frame["when"][0])[:-6]  # the clock on the wall


def test_dates_in_text_keep_what_stands_after_them(frame):
    written = frame[["when"]].assign(when=frame["when"].map(str).where(frame["when"].notna(), ""))
    schema = look(written)
    back = spell(decode(encode(written, schema).x, schema), schema)
    assert back["when"].tolist()[:3] == written["when"].tolist()[:3]


@pytest.mark.parametrize("zone", [ZURICH, "UTC", None])
def test_gaps_of_any_zone_are_filled(frame, detector, zone):
    table = frame.assign(when=in_zone(frame["when"], zone))
    for made in (detector.transform(table), detector.impute(table, n=1)[0], detector.repair(table)):
        assert made["when"].dtype == table["when"].dtype
    for made in (detector.transform(table), detector.impute(table, n=1)[0]):
        pd.testing.assert_series_equal(made["when"].drop([3, 7]), table["when"].drop([3, 7]))
    assert detector.transform(table)["when"].notna().all()
    cells = detector.cells(table)
    suggested = cells.loc[(cells["problem"] == "missing") & (cells["column"] == "when"), "suggestion"]
    assert [str(moment.tz) for moment in suggested] == [str(zone)] * 2


def test_gaps_of_polars_are_filled(frame, detector):
    table = pl.from_pandas(frame)
    assert table["when"].dtype.time_zone == ZURICH
    made = detector.transform(table)
    assert made["when"].dtype == table["when"].dtype
    assert made["when"].null_count() == 0


def test_samples_have_the_zone(detector):
    assert detector.sample(3)["when"].dt.tz.key == ZURICH


def test_a_mended_copy_keeps_the_zone(frame, tmp_path):
    path, out = tmp_path / "a.parquet", tmp_path / "b.parquet"
    frame.to_parquet(path)
    assert main(["clean", str(path), "--fill", "--out", str(out), "--updates", "5"]) == 0
    made = pd.read_parquet(out)
    assert made["when"].notna().all()
    assert str(made["when"].dt.tz) == ZURICH
