"""Slips of the finger: which rare values of a category are misspelt common ones, and which was meant."""

from collections.abc import Iterable, Sequence

import numpy as np

RARE = 0.01  # share of the cells that a misspelt value has at most
TIMES = 10  # what was meant is at least so many times as common
SHORTEST = 3  # characters of a value that can be misspelt
MOST_VALUES = 2_000  # different ones of a column beyond which nothing is called misspelt: so many are no category
SURE = 5  # characters from which another letter is a slip too: Iran and Iraq are two countries


def is_slip(text: str, meant: str) -> bool:
    """Whether a text is another one with a single slip of the finger.

    A letter doubled, left out or exchanged with the next one; in longer words also any letter too many or another
    letter; and in any word differences of case and blanks. What differs in its digits is another thing.

    Args:
        text: as it is written.
        meant: as it should be.

    Returns:
        True if it can be; false for equal texts.

    >>> is_slip("Torgesen", "Torgersen"), is_slip("Room 12", "Room 13"), is_slip("Iraq", "Iran")
    (True, False, False)
    """
    if text == meant:
        return False
    short, long = _plain(text), _plain(meant)
    if short == long:
        return True
    if len(meant) < SHORTEST or _digits(short) != _digits(long) or abs(len(short) - len(long)) > 1:
        return False
    start = next((i for i, (a, b) in enumerate(zip(short, long, strict=False)) if a != b), min(len(short), len(long)))
    if len(short) == len(long):
        swapped = short[start] + short[start + 1 : start + 2] == long[start : start + 2][::-1]
        rest = start + 2 if swapped else start + 1
        return short[rest:] == long[rest:] and (swapped or len(meant) >= SURE)
    if len(short) < len(long):  # a letter left out
        return short[start:] == long[start + 1 :]
    too_many = short[start:][1:] == long[start:]
    return too_many and (len(meant) >= SURE or short[start] == short[start - 1 : start])


def _plain(text: str) -> str:
    return "".join(text.casefold().split())


def _digits(text: str) -> str:
    return "".join(ch for ch in text if ch.isdigit())


def meant(text: str, levels: Iterable[str]) -> list[str]:
    """The levels of which a text is a slip.

    Args:
        text: as it is written.
        levels: right ones.

    Returns:
        Those that it may stand for, mostly none or one.
    """
    return [level for level in levels if is_slip(text, level)]


def slips(texts: Sequence[str], counts: np.ndarray) -> dict[str, str]:
    """The rare values of a column that are misspelt common ones.

    Args:
        texts: distinct values.
        counts: how often each occurs.

    Returns:
        For each misspelt value the common one that is meant.

    >>> slips(["Male", "Female", "Femal"], np.array([100, 90, 1]))
    {'Femal': 'Female'}
    """
    if len(texts) > MOST_VALUES:
        return {}
    order = np.argsort(-np.asarray(counts), kind="stable")
    total, found = int(np.sum(counts)), {}
    common = [(str(texts[i]), int(counts[i])) for i in order if counts[i] >= TIMES]
    for i in order[::-1]:
        text, count = str(texts[i]), int(counts[i])
        if count > max(2, RARE * total) or TIMES * count > (common[0][1] if common else 0):
            continue
        right = meant(text, (level for level, times in common if times >= TIMES * count))
        if right:
            found[text] = right[0]
    return found
