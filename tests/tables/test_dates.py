import numpy as np
import pandas as pd
import pytest

from pscd.tables import Column, Schema, decode, encode, look
from pscd.tables.dates import (
    date_spelling,
    date_values,
    dates_from,
    guess_formats,
    parse_dates,
    parts_of,
    resolution_of,
)


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
    assert "is ambiguous" in notes[0]
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


@pytest.mark.parametrize(
    ("good", "bad", "other", "found"),
    [(4, 1, "never", True), (39, 10, "never", False), (8, 2, "2020-02-30", True), (7, 2, "2020-02-30", False)],
)
def test_four_cells_of_five_must_be_dates(good, bad, other, found):
    """The others are none by their look, or by the calendar."""
    formats, _ = guess_formats(texts("2020-01-01", other), np.array([good, bad]))
    assert formats == (("%Y-%m-%d",) if found else ())
    assert guess_formats(texts(), np.array([], int)) == ((), ())


@pytest.mark.parametrize(
    ("day", "month", "formats", "note"),
    [
        (1, 1, ("%d/%m/%Y", "%m/%d/%Y"), "mixed date orders: 1 day first, 1 month first"),
        (1, 2, ("%m/%d/%Y", "%d/%m/%Y"), "mixed date orders: 1 day first, 2 month first"),
        (18, 1, ("%d/%m/%Y", "%m/%d/%Y"), "mixed date orders: 18 day first, 1 month first"),
        (19, 1, ("%d/%m/%Y",), "1 with day and month the other way round"),
        (1, 19, ("%m/%d/%Y",), "1 with day and month the other way round"),
        (0, 1, ("%m/%d/%Y",), None),
        (1, 0, ("%d/%m/%Y",), None),
    ],
)
def test_the_order_of_day_and_month_goes_by_the_cells_that_have_one_reading(day, month, formats, note):
    words = [("31/01/2020", day), ("01/31/2020", month), ("01/02/2020", 50)]
    words = [(word, n) for word, n in words if n]
    found = guess_formats(texts(*(word for word, _ in words)), np.array([n for _, n in words]))
    assert found == (formats, (note,) if note else ())
    told = guess_formats(texts("31/01/2020", "01/02/2020"), np.array([1, 9]), day_first=False)
    assert told == (("%m/%d/%Y",), ())


def test_without_a_slash_the_day_is_taken_to_be_first():
    note = "day or month first is ambiguous; {} is assumed; state day_first"
    assert guess("01.02.2020") == (("%d.%m.%Y",), (note.format("the day"),))
    assert guess("01/02/2020") == (("%m/%d/%Y",), (note.format("the month"),))


def test_the_commonest_format_comes_first_and_times_among_dates_do_not_belong():
    found, _ = guess_formats(texts("2020-01-31", "31.01.2020", "10:15"), np.array([3, 6, 1]))
    assert found == ("%d.%m.%Y", "%Y-%m-%d")
    found, _ = guess_formats(texts("10:15", "2020-01-31", "10:15:20 PM"), np.array([8, 1, 2]))
    assert found == ("%H:%M", "%I:%M:%S %p")
    assert guess("10:15PM", "11:20am")[0] == ("%I:%M%p",)


def test_formats_are_guessed_from_some_of_many_values():
    """Every second of a thousand: those between look like no dates, but have no vote, only a say in the end."""
    many = [f"{1000 + i}-01-31" if i % 2 == 0 else "no date" for i in range(1000)]
    counts = np.array([100 if i % 2 == 0 else 1 for i in range(1000)])
    assert guess_formats(texts(*many), counts)[0] == ("%Y-%m-%d",)
    many[1::2] = ["31.01.2020"] * 500
    assert guess_formats(texts(*many), counts)[0] == ("%Y-%m-%d",)  # the others were not looked at
    assert guess_formats(texts(*many[:998]), counts[:998])[0] == ("%Y-%m-%d", "%d.%m.%Y")


def test_parts_of_dates_as_numbers():
    dates = np.array(["1970-01-02T18:00", "2021-07-02T14:32:43.2", "NaT"], dtype="datetime64[us]")
    np.testing.assert_array_equal(date_values(dates, "weekday"), [4, 4, np.nan])
    days = [1.75, 18810 + (14 * 3600 + 32 * 60 + 43.2) / 86400]
    np.testing.assert_allclose(date_values(dates, "days"), [*days, np.nan], rtol=1e-14)
    season = 2 * np.pi * (np.array([1.75, days[1] - 18628]) / 365.2425)
    np.testing.assert_allclose(date_values(dates, "season cos"), [*np.cos(season), np.nan], atol=1e-9)
    np.testing.assert_allclose(date_values(dates, "season sin"), [*np.sin(season), np.nan], atol=1e-9)
    clock = 2 * np.pi * np.array([0.75, days[1] % 1])
    np.testing.assert_allclose(date_values(dates, "clock cos"), [*np.cos(clock), np.nan], atol=1e-9)
    np.testing.assert_allclose(date_values(dates, "clock sin"), [*np.sin(clock), np.nan], atol=1e-9)


def moments(resolution, **parts):
    found = dates_from({name.replace("_", " "): np.array([value], float) for name, value in parts.items()}, resolution)
    return str(found[0])


@pytest.mark.parametrize(
    ("resolution", "days", "date"),
    [
        ("day", 18262.49, "2020-01-01T00:00:00.000000"),
        ("day", 18262.51, "2020-01-02T00:00:00.000000"),
        ("minute", 18262 + 90.4 / 1440, "2020-01-01T01:30:00.000000"),
        ("minute", 18262 + 90.6 / 1440, "2020-01-01T01:31:00.000000"),
        ("second", 18262 + 90.4 / 86400, "2020-01-01T00:01:30.000000"),
        ("second", 18262 + 90.6 / 86400, "2020-01-01T00:01:31.000000"),
        ("month", 18262 + 14.0, "2020-01-01T00:00:00.000000"),
        ("month", 18262 + 16.0, "2020-02-01T00:00:00.000000"),
        ("year", 18262 + 183.0, "2020-01-01T00:00:00.000000"),
        ("year", 18262 + 184.0, "2021-01-01T00:00:00.000000"),
        ("day", np.nan, "NaT"),
        ("month", np.nan, "NaT"),
        ("year", np.inf, "NaT"),
    ],
)
def test_dates_are_rounded_to_what_they_are_whole_numbers_of(resolution, days, date):
    assert moments(resolution, days=days) == date


@pytest.mark.parametrize(
    ("days", "weekday", "date"),
    [
        (18262.0, 2, "2020-01-01"),  # a Wednesday
        (18262.0, 5, "2020-01-04"),
        (18262.0, 6, "2019-12-29"),  # three days before, not four after
        (18262.4, 6, "2019-12-29"),
        (18262.6, 6, "2020-01-05"),  # by now the Sunday after is nearer
        (18262.0, np.nan, "2020-01-01"),
    ],
)
def test_the_nearest_day_of_the_week_is_taken(days, weekday, date):
    assert moments("day", days=days, weekday=weekday) == f"{date}T00:00:00.000000"


def test_the_nearest_moment_at_a_time_of_day_is_taken():
    evening = {"clock_cos": 0.0, "clock_sin": -1.0}  # 18:00
    assert moments("minute", days=18262.2, **evening) == "2019-12-31T18:00:00.000000"
    assert moments("minute", days=18262.3, **evening) == "2020-01-01T18:00:00.000000"
    assert moments("minute", days=18262.3, weekday=2, **evening) == "2020-01-01T18:00:00.000000"
    assert moments("minute", days=18262.3, weekday=6, **evening) == "2019-12-29T18:00:00.000000"
    assert moments("minute", days=18262.2, weekday=6, **evening) == "2019-12-29T18:00:00.000000"
    assert moments("minute", days=18262.0, clock_cos=np.nan, clock_sin=0.0) == "NaT"
    assert moments("minute", **evening) == "1900-01-01T18:00:00.000000"
    assert moments("minute", clock_cos=0.0, clock_sin=np.nan) == "NaT"


@pytest.mark.parametrize(
    ("dates", "resolution"),
    [
        (["2020-01-01", "2021-01-01"], "year"),
        (["2020-01-01", "2021-02-01"], "month"),
        (["2020-01-01", "2021-02-02"], "day"),
        (["2020-01-01T00:01", "2021-02-02"], "minute"),
        (["2020-01-01T00:00:01", "2021-02-02"], "second"),
        (["2020-01-01T00:00:00.5", "2021-02-02"], "microsecond"),
    ],
)
def test_the_coarsest_unit(dates, resolution):
    assert resolution_of(np.array(dates, dtype="datetime64[us]")) == resolution


def test_zones_and_names_of_days_are_left_out_where_they_are_in_the_way():
    words = texts("2020-01-31T22:15:03 UTC", "Fri 31 Jan 2020", "31 Jan 2020", "Friday, 31 Jan 2020", "x")
    found = parse_dates(words, ("%Y-%m-%dT%H:%M:%S", "%d %b %Y")).astype("datetime64[D]")
    assert [str(date) for date in found] == ["2020-01-31"] * 4 + ["NaT"]
    assert parse_dates(texts(), ("%Y",)).shape == (0,)
    assert np.isnat(parse_dates(texts("2020"), ())).all()


def test_dates_are_spelt_and_gaps_are_empty():
    dates = np.array(["2020-01-31", "NaT"], dtype="datetime64[us]")
    assert date_spelling(dates, "%d.%m.%Y").tolist() == ["31.01.2020", ""]
