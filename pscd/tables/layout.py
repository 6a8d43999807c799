"""The layout of a text file: delimiter, header, and lines that do not belong to the table."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pscd.errors import UserError
from pscd.tables.levels import listed

DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "\\t": "\t", "bar": "|", "pipe": "|", "space": " "}
NUMBER = re.compile(r"[-+]?(?:\d[\d.,' ]*|[.,]\d+)(?:[eE][-+]?\d+)?%?")
SUMMARY = re.compile(r"(?:grand |sub)?(?:total|totals|sum|average|mean|summe|gesamt|count)[.:]?", re.IGNORECASE)


@dataclass(frozen=True)
class Layout:
    """Where the table is in a text file."""

    encoding: str  # as Python calls it
    delimiter: str  # between fields
    quoted: bool  # whether quotation marks hold fields together
    header: bool  # whether the first record has the names
    skip: int  # records before the header, or before the first row
    width: int  # fields of a row


Split = Callable[[str], list[list[str]]]


def infer_layout(
    split: Split, encoding: str, *, delimiter: str | None = None, header: bool | None = None, quoted: bool = True
) -> tuple[Layout, tuple[str, ...]]:
    """Infer the layout from the first records, which `split` gives for a delimiter, with notes on what was assumed."""
    notes = []
    if encoding in ("cp1252", "latin-1"):
        notes.append(f"not UTF-8: read as {encoding}")
    if not quoted:
        notes.append("a quotation mark is never closed: all are taken as text")
    if delimiter is None:
        delimiter = _find_delimiter(split)
    delimiter = DELIMITERS.get(delimiter, delimiter)
    if len(delimiter) != 1:
        raise UserError(f"delimiter must be one character, or one of {', '.join(DELIMITERS)}; got {delimiter!r}")
    head = split(delimiter)
    widths = Counter(len(record) for record in head)
    width = max(widths, key=lambda w: (widths[w], w))
    skip = 0
    while skip < len(head) - 1 and (head[skip][0].startswith("#") or (len(head[skip]) == 1 < width)):
        skip += 1
    if skip:
        notes.append(f"{skip} {'line' if skip == 1 else 'lines'} before the table skipped")
    numbered = _counts_columns(head[skip], head[skip + 1 :])
    has_names = numbered or _is_header(head[skip], head[skip + 1 :]) if header is None else header
    if not has_names and header is None:
        notes.append("no header: columns are called x0, x1, ...; state header=True if there is one")
    elif header is None and numbered:
        notes.append(f"header: the first line, {_shown(head[skip])}; state header=False if it is a row")
    # One name too few is how R writes row names, unless each line ends with a delimiter.
    ends = all(not record[-1].strip() for record in head[skip + 1 :] if len(record) == width)
    if has_names and (len(head[skip]) != width - 1 or ends):
        width = len(head[skip])
    return Layout(encoding, delimiter, quoted, has_names, skip, width), tuple(notes)


def find_footer(rows: Sequence[Sequence[str]], width: int) -> int:
    """How many of the last records, at most three, are no rows: short ones with at most one field that is not empty."""
    n = 0
    while n < min(3, len(rows) - 1) and width > 2 and len(rows[-1 - n]) < width and sum(map(bool, rows[-1 - n])) <= 1:
        n += 1
    return n


def is_summary(row: Sequence[str]) -> str | None:
    """The word of a row that says it is a total, if there is one."""
    return next((field for field in row if SUMMARY.fullmatch(field.strip())), None)


def column_names(first: Sequence[str], width: int, *, header: bool) -> tuple[list[str], list[str]]:
    """Distinct names for the columns, numbered where one is there twice or not at all; and notes on that."""
    if not header:
        return [f"x{j}" for j in range(width)], []
    stated = [name.strip() for name in first]
    notes = []
    if len(stated) == width - 1:  # as R writes row names
        stated = ["row", *stated]
        notes.append("the header is one name short: the first column is called 'row'")
    stated += [""] * (width - len(stated))
    unnamed = [j for j in range(width) if not stated[j]]
    if unnamed:
        notes.append(f"{len(unnamed)} without a name: called unnamed {unnamed[0] + 1}" + (", ..." * (len(unnamed) > 1)))
    names: list[str] = []
    for j, name in enumerate(stated[:width]):
        base, count, unique = name or f"unnamed {j + 1}", 1, name or f"unnamed {j + 1}"
        while unique in names:
            count += 1
            unique = f"{base} ({count})"
        names.append(unique)
    twice = sorted({name for name in stated if name and stated.count(name) > 1})
    if twice:
        notes.append(f"there twice: {listed(twice, 3)}; the second is called '{twice[0]} (2)'")
    return names, notes


def _find_delimiter(split: Split, steady: float = 0.8) -> str:
    """The delimiter that splits most records into the same number of fields, titles and footers of one field apart."""
    best, best_score = ",", (0.0, 0.0)
    for delimiter in dict.fromkeys(DELIMITERS.values()):
        split_records = split(delimiter)
        several = [record for record in split_records if len(record) > 1]
        if not several or 2 * len(several) < len(split_records) or (delimiter == " " and best_score[0] > 0):
            continue
        widths = Counter(map(len, several))
        width = max(widths, key=lambda w: (widths[w], w))
        share = widths[width] / len(several)
        if share < steady:
            continue
        # Between two that are as steady, that one is right whose fields hold no other delimiter but a decimal comma.
        others = [mark for mark in DELIMITERS.values() if mark not in (delimiter, " ")]
        fields = [field.strip() for record in several for field in record]
        clean = sum(NUMBER.fullmatch(field) is not None or not any(d in field for d in others) for field in fields)
        score = (round(share * len(several) / len(split_records), 1), clean / len(fields))
        if score > best_score:
            best, best_score = delimiter, score
    return best


def _counts_columns(first: list[str], below: list[list[str]], years: tuple[int, int] = (1900, 2100)) -> bool:
    """Whether a line of whole numbers names the columns: 0, 1, 2, ... as pandas writes them, or years in order."""
    names = first[1:] if first and not first[0].strip() else first  # pandas leaves the index without a name
    run = _run(names)
    if run is None or not (run[0] == 0 or (years[0] <= run[0] and run[-1] <= years[1])) or len(names) < 2:
        return False
    rows = [row[len(first) - len(names) :] for row in below]
    if not rows or any(_run(row) is not None for row in rows):
        return False  # a row is like this one
    # Among whole numbers 0, 1 may well be the first row; 0, 1, 2 hardly.
    return len(names) > 2 or not any(field.strip().isdigit() for row in rows for field in row)


def _shown(fields: Sequence[str]) -> str:
    return ",".join(fields[:3]) + ",..." * (len(fields) > 3)


def _run(fields: Sequence[str]) -> list[int] | None:
    """The whole numbers in these fields, if each is one more than the one before."""
    if not fields or not all(field.strip().isdecimal() for field in fields):
        return None
    numbers = [int(field) for field in fields]
    return numbers if numbers == list(range(numbers[0], numbers[0] + len(numbers))) else None


def _is_header(first: list[str], below: list[list[str]]) -> bool:
    """Names, unless all fields are numbers, or some are and a text comes again further down in its column."""
    fields = [field.strip() for field in first]
    numbers = [NUMBER.fullmatch(field) is not None for field in fields]
    if all(number or not field for number, field in zip(numbers, fields, strict=True)):
        return not any(numbers)
    again = any(
        not numbers[j] and fields[j] and any(len(row) > j and row[j].strip() == fields[j] for row in below)
        for j in range(len(fields))
    )
    return not (any(numbers) and again)
