"""Numbers in text: decimal commas, thousands separators, currencies, units and percent signs."""

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pscd.errors import UserError

if TYPE_CHECKING:
    from pscd.tables.schema import Column

CURRENCY = "$€£¥₹₽₩₺₫₴"
CURRENCIES = "USD|EUR|GBP|CHF|JPY|CNY|INR|CAD|AUD|NZD|SEK|NOK|DKK|PLN|CZK|HUF|BRL|MXN|ZAR|KRW|TRY|RUB"
LARGEST = 1e30  # squares of columns are summed on the way, in float64

SIGN = r"[-+\u2212]?"
DRESSED = re.compile(  # a number with what stands before and after it
    rf"\(?{SIGN}\s*(?P<prefix>[{CURRENCY}]|{CURRENCIES})?\s*{SIGN}"
    r"(?:\d[\d.,'\u2019\u00a0\u202f _]*|[.,]\d+)(?:[eE][-+]?\d+)?"
    rf"\s*(?P<suffix>[{CURRENCY}%‰°\u00b5A-Za-z²³/\"']{{0,8}})\)?"
)
GAP = re.compile(r"(?<=\d)['\u2019\u00a0\u202f _](?=\d{3})")  # between thousands, never a decimal sign
THOUSANDS = re.compile(r"(?<!\d)[1-9]\d{0,2}(?P<gap>[.,'\u2019\u00a0\u202f _])\d{3}(?!\d)")
# A sign that can only be the decimal one: "3,5", "0,125", "1234,567", "1.234,5", "1.234.567".
ONLY_COMMA = re.compile(
    r"\D*(?:\d*,\d{1,2}|\d*,\d{4,}|0,\d+|\d{4,},\d+|\d{1,3}(?:\.\d{3})+,\d+|\d{1,3}(?:\.\d{3}){2,})\D*"
)
ONLY_POINT = re.compile(
    r"\D*(?:\d*\.\d{1,2}|\d*\.\d{4,}|0\.\d+|\d{4,}\.\d+|\d{1,3}(?:,\d{3})+\.\d+|\d{1,3}(?:,\d{3}){2,})\D*"
)


@dataclass(frozen=True)
class NumberFormat:
    """How the numbers of a column are written."""

    decimal: str = "."  # the decimal sign
    thousands: str = ""  # what separates thousands; empty: nothing
    prefix: str = ""  # what stands before a number
    suffix: str = ""  # what stands after it

    def pattern(self) -> re.Pattern[str]:
        """What a number looks like. Currencies and blanks are let through even where none were seen."""
        point = re.escape(self.decimal)
        other = "." if self.decimal == "," else ","
        separator = rf"[{other}'\u2019\u00a0\u202f _{re.escape(self.thousands)}]"
        before = "|".join(filter(None, (re.escape(self.prefix.strip()), f"[{CURRENCY}]")))
        after = "|".join(filter(None, (re.escape(self.suffix.strip()), f"[{CURRENCY}]")))
        whole = rf"[1-9]\d{{0,2}}(?P<gap>{separator})\d{{3}}(?:(?P=gap)\d{{3}})*|\d+"
        number = rf"(?P<whole>{whole})?(?:{point}(?P<part>\d*))?(?P<power>[eE][-+]?\d+)?"
        return re.compile(
            rf"(?P<open>\()?(?P<a>{SIGN})\s*(?:{before})?\s*(?P<b>{SIGN}){number}\s*(?:{after})?(?P<close>\))?"
        )

    def parse(self, texts: np.ndarray) -> np.ndarray:
        """The numbers in these texts, NaN where there is none.

        >>> NumberFormat(",", ".", suffix=" €").parse(np.array(["1.234,5 €", "-3", "unknown"], dtype=object))
        array([1234.5,   -3. ,    nan])
        """
        series = pd.Series(texts, dtype=object)
        if self.decimal == ",":
            # A point would be a separator of thousands, and is left to the pattern.
            plain = series.where(~series.str.contains(".", regex=False)).str.replace(",", ".", regex=False)
        else:
            plain = series
        numbers = pd.to_numeric(plain, errors="coerce").to_numpy(np.float64, na_value=np.nan).copy()
        rest = np.flatnonzero(np.isnan(numbers))
        pattern = self.pattern()
        for i in rest:
            numbers[i] = _matched(pattern.fullmatch(texts[i]))
        numbers[~(np.abs(numbers) < LARGEST)] = np.nan
        return numbers


def _matched(match: re.Match[str] | None) -> float:
    if match is None or not (match["whole"] or match["part"]) or bool(match["open"]) != bool(match["close"]):
        return np.nan
    whole = (match["whole"] or "0").replace(match["gap"] or "\0", "")
    negative = (match["a"] in ("-", "\u2212")) ^ (match["b"] in ("-", "\u2212")) ^ bool(match["open"])  # (3) is -3
    size = float(f"{whole}.{match['part'] or 0}{match['power'] or ''}")
    return -size if negative else size


def decimal_votes(texts: np.ndarray, counts: np.ndarray) -> tuple[int, int]:
    """How many cells can only be read with a decimal point, and how many only with a comma."""
    points = commas = 0
    for i in _spaced(len(texts)):
        text = GAP.sub("", texts[i])
        if ("," in text or "." in text) and ONLY_COMMA.fullmatch(text):  # no text fits both
            commas += int(counts[i])
        elif ("," in text or "." in text) and ONLY_POINT.fullmatch(text):
            points += int(counts[i])
    return points, commas


def stated_marks(decimal: str | None, thousands: str | None) -> tuple[str | None, str | None]:
    """The decimal sign and the separator of thousands that the user stated.

    >>> stated_marks(None, ".")
    (',', '.')
    """
    if decimal is not None and decimal == thousands:
        raise UserError(f"{decimal!r} cannot be both the decimal sign and the separator of thousands")
    if decimal is None and thousands in (".", ","):
        decimal = "," if thousands == "." else "."
    return decimal, thousands


def stated_or_shown(
    stated: NumberFormat, shown: NumberFormat, texts: np.ndarray, counts: np.ndarray, *, enough: float = 0.9
) -> tuple[NumberFormat, str]:
    """The format that the user stated, unless a column can hardly be read with it, and better otherwise."""
    by_stated, by_shown = np.isfinite(stated.parse(texts)), np.isfinite(shown.parse(texts))
    only_shown = np.flatnonzero(by_shown & ~by_stated)
    if counts[by_stated].sum() >= enough * counts[by_shown].sum() or not len(only_shown):
        return stated, ""
    return shown, str(texts[only_shown[0]])


def guess_format(
    texts: np.ndarray, counts: np.ndarray, decimal: str, thousands: str | None = None, *, stated: bool = False
) -> NumberFormat:
    """How the numbers among these texts are written."""
    points, commas = decimal_votes(texts, counts)
    if points != commas and not stated:
        decimal = "." if points > commas else ","
    if thousands == decimal:
        thousands = None
    prefixes: Counter[str] = Counter()
    suffixes: Counter[str] = Counter()
    gaps: Counter[str] = Counter()
    total = 0
    for i in _spaced(len(texts)):
        match = DRESSED.fullmatch(texts[i])
        if match is not None:
            count = int(counts[i])
            total += count
            prefixes[match["prefix"] or ""] += count
            suffixes[match["suffix"]] += count
            separated = THOUSANDS.search(texts[i])
            if separated is not None and separated["gap"] != decimal:
                gaps[separated["gap"]] += count
            elif re.search(rf"(?<![\d{decimal}])\d{{4}}", texts[i]):
                gaps[""] += count
    if total == 0:
        return NumberFormat(decimal, thousands or "")
    prefix, suffix = (_common(counter, total) for counter in (prefixes, suffixes))
    spaced = sum(int(counts[i]) for i in _spaced(len(texts)) if texts[i].endswith(f" {suffix}"))
    space = " " if suffix and 2 * spaced >= suffixes[suffix] else ""
    apart = sum(int(counts[i]) for i in _spaced(len(texts)) if f"{prefix} " in texts[i])
    prefix += " " if prefix and 2 * apart >= prefixes[prefix] else ""
    gap = gaps.most_common(1)[0][0] if gaps else ""
    return NumberFormat(decimal, thousands if thousands is not None else gap, prefix, space + suffix)


def _common(counter: Counter[str], total: int) -> str:
    word, count = counter.most_common(1)[0]
    if word == "" and len(counter) > 1 and counter.most_common(2)[1][0] in ("%", *CURRENCY):
        word, count = counter.most_common(2)[1]
    return word if count >= total / 2 and word not in ("st", "nd", "rd", "th") else ""


def decimals_of(values: np.ndarray, counts: np.ndarray, *, most: int = 8, share: float = 0.99) -> int | None:
    """Places after the decimal point that suffice for nearly all cells.

    >>> decimals_of(np.array([0.25, 3.0, 1.5]), np.array([1, 1, 1]))
    2
    """
    for places in range(most + 1):
        scaled = values * 10.0**places
        fits = np.abs(scaled - np.round(scaled)) <= 1e-9 * np.maximum(1.0, np.abs(scaled))
        if counts[fits].sum() >= share * counts.sum():
            return places
    return None


def least_decimals(texts: np.ndarray, form: NumberFormat) -> int:
    """Places after the decimal sign that nearly every number has, as in 2.50."""
    digits = re.compile(rf"{re.escape(form.decimal)}(\d*)[^\d.,]*$")
    matches = [digits.search(texts[i]) for i in _spaced(len(texts))]
    places = sorted(len(match[1]) if match else 0 for match in matches)
    return places[len(places) // 10] if places else 0


def number_spelling(value: float, column: "Column") -> str:
    """A number as the column writes its numbers.

    >>> from pscd.tables.schema import Column
    >>> euros = Column("price", "number", decimals=2, least_decimals=2, decimal=",", thousands=".", suffix=" €")
    >>> number_spelling(1234.5, euros)
    '1.234,50 €'
    """
    if column.decimals is None:
        text = f"{abs(value):.7g}"
    else:
        most, gap = max(column.decimals, column.least_decimals), "," if column.thousands else ""
        text = f"{abs(value):{gap}.{most}f}"
        spare = min(len(text) - len(text.rstrip("0")), most - column.least_decimals)
        text = text[: len(text) - spare].rstrip(".")
    text = text.translate({ord(","): column.thousands, ord("."): column.decimal})
    return f"{'-' if value < 0 and text.strip('0.,') else ''}{column.prefix}{text}{column.suffix}"


def _spaced(n: int, most: int = 2000) -> np.ndarray:
    """Indices of at most `most` values, spaced evenly."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).astype(int)) if n else np.empty(0, int)
