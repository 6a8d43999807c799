"""Dates and times: how a column writes them, and what a model sees of them."""

import re
from collections import Counter
from collections.abc import Mapping

import numpy as np
import pandas as pd

from pscd.tables.cells import objects

DAY = np.timedelta64(1, "D") / np.timedelta64(1, "us")  # in microseconds
YEAR = 365.2425

ZONE = re.compile(r"(?<=\d)\s*(?:Z|UTC|GMT|[+-]\d{2}:?\d{2})$")
NAMED_DAY = re.compile(r"^(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*\.?,?\s+", re.IGNORECASE)
TIME = re.compile(r"(?P<gap>^|[T ]+)\d{1,2}:\d{2}(?P<seconds>:\d{2}(?P<part>\.\d{1,6})?)?(?P<half>\s?[AaPp][Mm])?$")
MONTH = r"(?P<month>[A-Za-z]{3,9})(?P<dot>\.?)"
SHAPES = [
    (re.compile(r"\d{4}(?P<s>[-/.])\d{1,2}(?P=s)\d{1,2}"), ("%Y{s}%m{s}%d",)),
    (re.compile(r"\d{1,2}(?P<s>[-/.])\d{1,2}(?P=s)\d{4}"), ("%d{s}%m{s}%Y", "%m{s}%d{s}%Y")),
    (re.compile(r"\d{1,2}(?P<s>[-/.])\d{1,2}(?P=s)\d{2}"), ("%d{s}%m{s}%y", "%m{s}%d{s}%y")),
    (re.compile(rf"\d{{1,2}}(?P<s>\.? |[-/]){MONTH}(?P<t>,? |[-/])\d{{4}}"), ("%d{s}{month}{t}%Y",)),
    (re.compile(rf"\d{{1,2}}(?P<s>\.? |[-/]){MONTH}(?P<t>,? |[-/])\d{{2}}"), ("%d{s}{month}{t}%y",)),
    (re.compile(rf"{MONTH}(?P<s>[ -])\d{{1,2}}(?P<t>,? |-)\d{{4}}"), ("{month}{s}%d{t}%Y",)),
    (re.compile(rf"\d{{4}}(?P<s>[ -]){MONTH}(?P<t>[ -])\d{{1,2}}"), ("%Y{s}{month}{t}%d",)),
    (re.compile(rf"{MONTH}(?P<s>[ -])\d{{4}}"), ("{month}{s}%Y",)),
    (re.compile(r"(?:19|20)\d{2}(?P<s>[-/])\d{1,2}"), ("%Y{s}%m",)),
    (re.compile(r"(?:19|20)\d{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])"), ("%Y%m%d",)),
]


def parse_dates(texts: np.ndarray, formats: tuple[str, ...]) -> np.ndarray:
    """The dates in these texts.

    >>> parse_dates(np.array(["31.12.2020", "30.02.2020"], dtype=object), ("%d.%m.%Y",)).astype("datetime64[D]")
    array(['2020-12-31',        'NaT'], dtype='datetime64[D]')
    """
    dates = np.full(len(texts), np.datetime64("NaT"), dtype="datetime64[us]")
    rest = np.arange(len(texts))
    # As they are first, since most need nothing else, and then without the zone and the name of the day.
    for attempt in (texts, None):
        plain = texts[rest] if attempt is not None else objects(map(_plain, texts[rest]))
        for form in formats if len(rest) else ():
            parsed = pd.to_datetime(pd.Series(plain, dtype=object), format=form, errors="coerce")
            dates[rest] = parsed.to_numpy().astype("datetime64[us]")
            still = np.isnat(dates[rest])
            rest, plain = rest[still], plain[still]
    return dates


def guess_formats(
    texts: np.ndarray, counts: np.ndarray, day_first: bool | None = None, *, enough: float = 0.8, sample: int = 500
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """How the dates among these texts are written."""
    votes: Counter[tuple[str, ...]] = Counter()
    step = max(1, len(texts) // sample)
    for text, count in zip(texts[::step], counts[::step], strict=True):
        votes[_candidates(text)] += int(count)
    total = sum(votes.values())
    if total == 0 or total - votes[()] < enough * total:
        return (), ()
    formats: list[str] = []
    notes: list[str] = []
    for candidates, _ in votes.most_common():
        if len(candidates) == 2:
            chosen, odd = _order(texts, counts, candidates, day_first)
            formats += chosen
            notes += odd
        else:
            formats += candidates
    # A time of day among dates, or a date among times, does not belong.
    formats = [form for form in dict.fromkeys(formats) if has_year(form) == has_year(formats[0])]
    parsed = ~np.isnat(parse_dates(texts, tuple(formats)))
    if counts[parsed].sum() < enough * counts.sum():
        return (), ()
    return tuple(formats), tuple(notes)


def _order(
    texts: np.ndarray,
    counts: np.ndarray,
    candidates: tuple[str, ...],
    day_first: bool | None,
    few_share: float = 0.05,
) -> tuple[list[str], list[str]]:
    """Whether the day or the month comes first, from the dates that have only one reading."""
    by_day, by_month = (~np.isnat(parse_dates(texts, (form,))) for form in candidates)
    only_day, only_month = int(counts[by_day & ~by_month].sum()), int(counts[by_month & ~by_day].sum())
    both = only_day + only_month
    day, month = candidates
    if day_first is not None:
        return [day if day_first else month], []
    if both == 0:
        guess = month if "/" in month else day
        first = "the month" if guess == month else "the day"
        return [guess], [f"day or month first is ambiguous; {first} is assumed; state day_first"]
    first, second = (day, month) if only_day >= only_month else (month, day)
    few = min(only_day, only_month)
    if few == 0:
        return [first], []
    if few <= few_share * both:
        return [first], [f"{few} with day and month the other way round"]
    return [first, second], [f"mixed date orders: {only_day} day first, {only_month} month first"]


def _candidates(text: str) -> tuple[str, ...]:
    """The formats that a text may be written in: none, one, or two if day and month may be exchanged."""
    text = _plain(text)
    time, match = "", TIME.search(text)
    if match is not None:
        clock = "%I:%M" if match["half"] else "%H:%M"
        clock += (":%S" if match["seconds"] else "") + (".%f" if match["part"] else "")
        clock += f"{' ' if match['half'][0].isspace() else ''}%p" if match["half"] else ""
        if match.start() == 0:
            return (clock,)
        time, text = match["gap"] + clock, text[: match.start()]
    for shape, formats in SHAPES:
        match_of_shape = shape.fullmatch(text)
        if match_of_shape is not None:
            groups = match_of_shape.groupdict()
            if "month" in groups:
                word = groups["month"]
                groups["month"] = ("%b" if len(word) == 3 else "%B") + groups.pop("dot")
            return tuple(form.format(**groups) + time for form in formats)
    return ()


def _plain(text: str) -> str:
    """A date without the name of its day and without its time zone."""
    if ":" in text:
        text = ZONE.sub("", text)
    return NAMED_DAY.sub("", text) if text[:1].isalpha() else text


def has_year(form: str) -> bool:
    """Whether a format is one of dates, and not of times of day."""
    return "%Y" in form or "%y" in form


def offsets_of(texts: np.ndarray, dates: np.ndarray, counts: np.ndarray) -> tuple[str, ...]:
    """What stands after dates in text: an offset, or Z.

    >>> some = np.array(["2020-01-01 12:00Z", "2020-01-02 12:00Z"], dtype=object)
    >>> offsets_of(some, parse_dates(some, ("%Y-%m-%d %H:%M",)), np.array([1, 1]))
    ('Z',)
    """
    every: Counter[str] = Counter()
    by_month: list[Counter[str]] = [Counter() for _ in range(12)]
    for text, date, count in zip(texts, dates, counts.tolist(), strict=True):
        if not np.isnat(date):
            zone = ZONE.search(text) if ":" in text else None
            every[zone[0] if zone else ""] += count
            by_month[date.astype("datetime64[M]").astype(int) % 12][zone[0] if zone else ""] += count
    if not every or 2 * every[""] >= sum(every.values()):
        return ()
    commonest = every.most_common(1)[0][0]
    if len(every) == 1:
        return (commonest,)
    return tuple(month.most_common(1)[0][0] if month else commonest for month in by_month)


def in_zone(dates: pd.Series, zone: str | None) -> pd.Series:
    """Dates that show the same time on a clock in a time zone."""
    plain = dates.dt.tz_localize(None)
    if zone is None:
        return plain
    return plain.dt.tz_localize(zone, ambiguous=np.ones(len(plain), bool), nonexistent="shift_forward")


def resolution_of(dates: np.ndarray) -> str:
    """The coarsest unit that all dates are whole numbers of."""
    for name, unit in (("year", "Y"), ("month", "M"), ("day", "D"), ("minute", "m"), ("second", "s")):
        if (dates.astype(f"datetime64[{unit}]").astype("datetime64[us]") == dates).all():
            return name
    return "microsecond"


def parts_of(dates: np.ndarray, formats: tuple[str, ...], resolution: str) -> tuple[str, ...]:
    """What a model should see of these dates."""
    if formats and not has_year(formats[0]):
        return ("clock",)
    span = float((dates.max() - dates.min()) / np.timedelta64(1, "D"))
    timed = resolution in ("minute", "second", "microsecond")
    season = span > 1.1 * YEAR and resolution != "year"
    days = dates.astype("datetime64[D]").astype(np.int64)
    weekday = span >= 21 and resolution not in ("year", "month") and len(np.unique(days % 7)) > 1
    clock = timed and span > 2
    return ("days", *(n for n, wanted in (("season", season), ("weekday", weekday), ("clock", clock)) if wanted))


def date_values(dates: np.ndarray, role: str) -> np.ndarray:
    """One part of dates as numbers."""
    missing = np.isnat(dates)
    days = dates.astype("datetime64[D]").astype(np.int64)
    name, _, function = role.partition(" ")
    values: np.ndarray
    if role == "days":
        values = np.where(missing, 0, dates.astype(np.int64)) / DAY
    elif role == "weekday":
        values = (days + 3) % 7  # 1970 began on a Thursday
    else:
        unit = "datetime64[Y]" if name == "season" else "datetime64[D]"
        since = np.where(missing, 0, (dates - dates.astype(unit)).astype(np.int64)) / DAY
        angle = 2 * np.pi * since / (YEAR if name == "season" else 1.0)
        values = np.cos(angle) if function == "cos" else np.sin(angle)
    return np.where(missing, np.nan, values.astype(np.float64))


def dates_from(values: Mapping[str, np.ndarray], resolution: str) -> np.ndarray:
    """Dates from their parts: the moment nearest to `days` on that weekday and at that time of day."""
    clock = None
    if "clock cos" in values:
        clock = np.arctan2(values["clock sin"], values["clock cos"]) / (2 * np.pi) % 1.0
    days = values.get("days")
    if days is None:  # times of day; 1900 is where strptime puts them
        assert clock is not None
        days = clock + float(np.datetime64("1900-01-01").astype(np.int64))
        clock = None
    missing = ~np.isfinite(days)
    if clock is not None:
        missing |= ~np.isfinite(clock)
    exact = np.where(missing, 0.0, days)
    if resolution in ("year", "month"):
        return np.where(missing, np.datetime64("NaT"), _whole_months(exact, resolution))
    # Whole days, or whole days and a given time, that are nearest.
    time = np.where(missing, 0.0, clock) if clock is not None else np.zeros_like(exact)
    moved = np.round(exact - time) + time if clock is not None or resolution == "day" else exact
    weekday = values.get("weekday")
    if weekday is not None:
        start = np.floor(moved + 1e-9)
        shift = np.where(np.isfinite(weekday), (np.nan_to_num(weekday) - (start + 3)) % 7, 0)
        before = shift - 7
        up = np.abs(start + shift + time - exact) <= np.abs(start + before + time - exact)
        moved = moved + np.where(shift == 0, 0, np.where(up, shift, before))
    step = {"day": 1.0, "minute": 1 / 1440, "second": 1 / 86400, "microsecond": 1 / DAY}[resolution]
    micro = np.round(np.round(moved / step) * (step * DAY)).astype(np.int64).astype("datetime64[us]")
    return np.where(missing, np.datetime64("NaT"), micro)


def _whole_months(days: np.ndarray, resolution: str) -> np.ndarray:
    unit = "datetime64[Y]" if resolution == "year" else "datetime64[M]"
    half = YEAR / 2 if resolution == "year" else YEAR / 24
    exact = np.round((days + half) * DAY).astype(np.int64).astype("datetime64[us]")
    return exact.astype(unit).astype("datetime64[us]")


def date_spelling(dates: np.ndarray, form: str, offsets: tuple[str, ...] = ()) -> np.ndarray:
    """Dates as text."""
    texts = pd.Series(dates).dt.strftime(form).fillna("").to_numpy(object)
    if not offsets:
        return texts
    months = dates.astype("datetime64[M]").astype(np.int64) % len(offsets)
    return objects(text and text + offsets[month] for text, month in zip(texts, months.tolist(), strict=True))
