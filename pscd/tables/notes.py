"""What is odd about a column, in words: codes for missing values, slips of a factor, levels alike; and copied rows."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from pscd.tables.cells import number_text
from pscd.tables.levels import listed, misspellings


def copied_rows(frame: pd.DataFrame, *, fewest: int = 20, distinct: float = 0.9) -> tuple[str, ...]:
    """Rows that are exact copies of others, where that can hardly be chance."""
    # In a table of a few categories rows are equal by chance. They are not if, without the copies, some column has
    # hardly any value twice.
    try:
        is_copy = frame.duplicated().to_numpy()
    except TypeError:  # lists in cells
        return ()
    if not is_copy.any():
        return ()
    once = frame[~is_copy]
    if len(once) < fewest or not any(once[name].nunique() >= distinct * len(once) for name in frame.columns):
        return ()
    n, first = int(is_copy.sum()), int(is_copy.argmax()) + 1
    rows = "1 row is an exact copy of another" if n == 1 else f"{n:,} rows are exact copies of others"
    return (
        f"{rows} ({'' if n == 1 else 'the first: '}row {first:,}); remove {'it' if n == 1 else 'them'} if read twice",
    )


def odd_numbers(
    values: np.ndarray, counts: np.ndarray, words: Sequence[str], n_invalid: int, decimals: int | None
) -> tuple[str, ...]:
    """What is odd about a column of numbers."""
    notes = []
    if n_invalid:
        kind = "word" if n_invalid == 1 else "words"
        notes.append(f"{n_invalid} {kind}: {_first(words)}")
    order = np.argsort(values)
    values, counts = values[order], counts[order]
    code = missing_code(values, counts)
    if code is not None:
        count = int(counts[values == code].sum())
        notes.append(f"{number_text(code)} x {count} looks like a code for missing: missing={number_text(code)}")
        values, counts = values[values != code], counts[values != code]
    notes += _factors(values, counts)
    if decimals == 0:
        broken = values != np.round(values)
        if broken.any():
            n = int(counts[broken].sum())
            notes.append(f"{n} not whole: {listed([number_text(v) for v in values[broken]], 3)}")
    return tuple(notes)


def missing_code(values: np.ndarray, counts: np.ndarray) -> float | None:
    """A number such as 999 that repeats at the end of the range, far from all others."""
    order = np.argsort(values)
    values, counts = values[order], counts[order]
    for end, rest in ((-1, slice(None, -1)), (0, slice(1, None))):
        code, others = values[end], values[rest]
        is_code = code == -1 or set(number_text(abs(code))) == {"9"}  # as people write a missing value
        if not is_code or counts[end] < 2 or len(others) < 5:
            continue
        gap = abs(code - others[end])
        if gap > 0.5 * (others[-1] - others[0]) or (code < 0 <= others[0] and counts[end] > 5 * np.median(counts)):
            return float(code)
    return None


def _factors(values: np.ndarray, counts: np.ndarray, *, narrow: float = 0.8) -> list[str]:
    """Numbers that would fit if they were 10, 100 or 1000 times smaller or larger."""
    # Only where a gap parts them from a narrow bulk: a long tail has values of every size.
    if counts.sum() < 20 or values[0] <= 0:
        return []
    share = np.cumsum(counts) / counts.sum()
    low, middle, high = (values[np.searchsorted(share, q)] for q in (0.1, 0.5, 0.9))
    bulk = (values < middle * 5) & (values > middle / 5)
    if counts[bulk].sum() < narrow * counts.sum():
        return []
    notes = []
    for up in (True, False):
        far = values >= middle * 5 if up else values <= middle / 5
        size = values[far] / values[bulk][-1] if up else values[bulk][0] / values[far]
        for factor in (10.0, 100.0, 1000.0):
            back = values[far] / factor if up else values[far] * factor
            fits = (back >= low * 0.7) & (back <= high * 1.4)
            count = int(counts[far][fits].sum())
            if count >= max(2, 0.6 * counts[far].sum()) and size.min() > np.sqrt(factor):
                examples = listed([number_text(v) for v in values[far][fits]], 2)
                than = "" if up else "smaller than "
                notes.append(f"{count} values are {factor:.0f} times {than}the others: {examples}")
                break
    return notes


def odd_levels(texts: np.ndarray, counts: np.ndarray) -> tuple[str, ...]:
    """What is odd about the values of a category: some differ in case alone, some look misspelt."""
    notes = []
    by_fold: dict[str, list[str]] = {}
    for text in texts:
        by_fold.setdefault(" ".join(text.casefold().split()), []).append(text)
    same = [sorted(group) for group in by_fold.values() if len(group) > 1]
    if same:
        notes.append("differ in case or blanks alone: " + "; ".join(" / ".join(group) for group in same[:3]))
    often = dict(zip(texts, counts, strict=True))
    wrong = [f"{text} x {often[text]} (like {meant})" for text, meant in misspellings(texts.tolist(), counts).items()]
    if wrong:
        notes.append(f"misspelt: {_first(wrong)}")
    return tuple(notes)


def _first(words: Sequence[str]) -> str:
    return ", ".join(words[:3]) + ", ..." * (len(words) > 3)
