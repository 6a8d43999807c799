import numpy as np
import pandas as pd
import pytest

from pscd.frames import Column, Schema, decode, encode, look
from pscd.frames.dates import guess_formats, parse_dates, parts_of


def texts(*words):
    return np.array([*words, ""], dtype=object)[:-1]


def guess(*words, **options):
    return guess_formats(texts(*words), np.ones(len(words), int), **options)


@pytest.mark.parametrize(
    ("words", "formats"),
    [
        (["2020-01-31", "2021-2-3"], ("%Y-%m-%d",)),
        (["2020/01/31"], ("%Y/%m/%d",)),
        (["31.01.2020", "1.2.2020"], ("%d.%m.%Y",)),
        (["31/01/2020", "01/02/2020"], ("%d/%m/%Y",)),
        (["01/31/2020", "01/02/2020"], ("%m/%d/%Y",)),
        (["31-01-20", "01-02-21"], ("%d-%m-%y",)),
        (["Jun 12 1998", "Feb 1 1946"], ("%b %d %Y",)),
        (["June 12, 1998", "February 1, 1946"], ("%B %d, %Y",)),
        (["12-Jun-98"], ("%d-%b-%y",)),
        (["12 June 1998", "1 May 1998"], ("%d %B %Y", "%d %b %Y")),
        (["Fri, 12 Jun 1998"], ("%d %b %Y",)),
        (["2020-01"], ("%Y-%m",)),
        (["20200131", "19991231"], ("%Y%m%d",)),
        (["10:15", "23:59"], ("%H:%M",)),
        (["2020-01-31 10:15", "2020-01-31 23:59"], ("%Y-%m-%d %H:%M",)),
        (["2020-01-31T10:15:03Z", "2020-01-31T10:15:03+02:00"], ("%Y-%m-%dT%H:%M:%S",)),
        (["01/31/2020 10:15 PM"], ("%m/%d/%Y %I:%M %p",)),
        (["2020-01-31 10:15:03.250"], ("%Y-%m-%d %H:%M:%S.%f",)),
        (["Model 2020", "Model 2021"], ()),
        (["1.5", "2.5"], ()),
        (["5-1", "3/4"], ()),
    ],
)
def test_formats_are_found(words, formats):
    found, _ = guess(*words)
    assert found == formats
    assert not np.isnat(parse_dates(texts(*words), found)).any() or not formats


def test_the_clock_on_the_wall_counts():
    dates = parse_dates(texts("2020-01-31T22:15:03+02:00"), ("%Y-%m-%dT%H:%M:%S",))
    assert dates[0] == np.datetime64("2020-01-31T22:15:03")


def test_day_or_month_first():
    formats, notes = guess("01/02/2020", "03/04/2020")
    assert formats == ("%m/%d/%Y",)
    assert "cannot be told" in notes[0]
    assert guess("01/02/2020", "03/04/2020", day_first=True) == (("%d/%m/%Y",), ())
    formats, notes = guess("31/01/2020", "01/31/2020", "30/01/2020")
    assert formats == ("%d/%m/%Y", "%m/%d/%Y")
    assert notes == ("mixed date orders: 2 day first, 1 month first",)
    words = [f"{d}/01/2020" for d in range(13, 32)] * 2 + ["01/31/2020"]
    formats, notes = guess_formats(texts(*words), np.ones(len(words), int))
    assert formats == ("%d/%m/%Y",)
    assert notes == ("1 with day and month the other way round",)


def test_what_a_model_sees_of_dates():
    days = pd.date_range("2020-01-01", periods=800, freq="D")
    schema = look(pd.DataFrame({"d": days.strftime("%d.%m.%Y")}))
    assert [part.role for part in schema.parts] == ["days", "season cos", "season sin", "weekday"]
    x = encode(pd.DataFrame({"d": days}), schema).x
    assert x[0, 0] == 18262
    assert x[:7, 3].tolist() == [2, 3, 4, 5, 6, 0, 1]  # a Wednesday
    np.testing.assert_allclose(x[0, 1:3], [1, 0], atol=1e-9)
    spring = x[91, 1:3]  # the first of April
    np.testing.assert_allclose(np.arctan2(spring[1], spring[0]), np.pi / 2, atol=0.02)
    hours = pd.DataFrame({"d": pd.date_range("2020-01-01", periods=500, freq="7h")})
    schema = look(hours)
    assert schema.columns[0].date_parts == ("days", "weekday", "clock")
    x = encode(hours, schema).x
    np.testing.assert_allclose(x[1, 2:], [np.cos(2 * np.pi * 7 / 24), np.sin(2 * np.pi * 7 / 24)])


@pytest.mark.parametrize(
    "dates",
    [
        pd.date_range("1995-05-17", periods=900, freq="D"),
        pd.date_range("1995-05-17 10:31", periods=900, freq="37min"),
        pd.date_range("1995-05-17 10:31:07", periods=900, freq="7h3s"),
        pd.date_range("1995-05-17 10:31:07.123457", periods=900, freq="7h3s"),
        pd.date_range("1950-01-01", periods=100, freq="MS"),
        pd.date_range("1900-01-01", periods=100, freq="YS"),
        pd.date_range("2020-01-01 10:00", periods=50, freq="min"),
    ],
)
def test_dates_come_back_from_their_parts(dates):
    frame = pd.DataFrame({"d": dates})
    schema = look(frame)
    back = decode(encode(frame, schema).x, schema)["d"]
    assert (back.to_numpy().astype("datetime64[us]") == dates.to_numpy().astype("datetime64[us]")).all()


def test_samples_of_dates_keep_the_weekday_and_the_time_of_day():
    column = Column("d", "date", date_parts=("days", "weekday", "clock"), resolution="minute")
    noon = [np.cos(np.pi), np.sin(np.pi)]
    rows = np.array([[18262.4, 0, *noon], [18262.4, 2, *noon], [18262.4, 6, *noon], [np.nan, 0, *noon]])
    back = decode(rows, Schema((column,)))["d"]
    assert back[0] == pd.Timestamp("2019-12-30 12:00")  # the Monday before
    assert back[1] == pd.Timestamp("2020-01-01 12:00")
    assert back[2] == pd.Timestamp("2019-12-29 12:00") or back[2] == pd.Timestamp("2020-01-05 12:00")
    assert pd.isna(back[3])


def test_times_of_day():
    frame = pd.DataFrame({"t": [f"{h}:{m:02d}" for h in range(24) for m in (0, 13)]})
    schema = look(frame)
    assert schema.names_out == ("t (clock cos)", "t (clock sin)")
    back = decode(encode(frame, schema).x, schema)
    assert back["t"][3] == pd.Timestamp("1900-01-01 01:13")


@pytest.mark.parametrize(
    ("days", "resolution", "parts"),
    [
        (2.0, "second", ("days",)),
        (2.1, "second", ("days", "clock")),
        (2.1, "minute", ("days", "clock")),
        (2.1, "hour", ("days",)),
        (20.0, "day", ("days",)),
        (21.0, "day", ("days", "weekday")),
        (22.0, "month", ("days",)),
        (28.0, "day", ("days",)),  # on the same day of the week
        (401.0, "day", ("days", "weekday")),
        (402.0, "day", ("days", "season", "weekday")),  # 1.1 years
        (402.0, "month", ("days", "season")),
        (402.0, "year", ("days",)),
    ],
)
def test_what_dates_consist_of_depends_on_how_long_they_span(days, resolution, parts):
    second = np.datetime64("2021-03-05T00:00:00", "us")
    first = second - np.timedelta64(round(days * 86_400_000_000), "us")
    between = [] if days == 28.0 else [second - np.timedelta64(1, "D")]
    assert parts_of(np.array([first, *between, second]), (), resolution) == parts
    assert parts_of(np.array([first, second]), ("%H:%M",), resolution) == ("clock",)
