"""How a text file holds a table: encoding, delimiter, header, and lines that do not belong to it."""

import csv
import gzip
import io
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

from pscd.errors import UserError
from pscd.files import check_fits
from pscd.tables.levels import listed

DELIMITERS = (",", ";", "\t", "|", " ")
DELIMITER_NAMES = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "space": " ", "bar": "|", "pipe": "|"}
SAMPLE = 200  # records that the layout is guessed from
SAMPLE_CHARACTERS = 200_000
STEADY = 0.8  # share of the records that must have the same number of fields
PIECE, CELLS_PER_TEXT = 1 << 24, 8  # bytes unpacked at a time, and memory that a frame takes for each of them
LARGEST_FIELD = 1 << 24  # characters
NUMBER = re.compile(r"[-+]?(?:\d[\d.,' ]*|[.,]\d+)(?:[eE][-+]?\d+)?%?")
YEARS = (1900, 2100)  # that may name columns
SUMMARY = re.compile(r"(?:grand |sub)?(?:total|totals|sum|average|mean|summe|gesamt|count|n)[.:]?", re.IGNORECASE)


@dataclass(frozen=True)
class Layout:
    """Where the table is in a text file.

    Args:
        encoding: as Python calls it.
        delimiter: between fields.
        quoted: whether quotation marks hold fields together.
        header: whether the first record has the names.
        skip: records before the header, or before the first row.
        footer: records after the last row.
        width: fields of a row.
    """

    encoding: str
    delimiter: str
    quoted: bool
    header: bool
    skip: int
    footer: int
    width: int


def read_text(path: Path, encoding: str | None = None) -> tuple[str, str]:
    """The text of a file, unpacked if it is gzipped.

    Args:
        path: the file.
        encoding: its encoding; None: found out.

    Returns:
        The text with its line endings as they are, and the encoding.

    Raises:
        UserError: it cannot be read so.
    """
    raw = read_bytes(path)
    for name in [encoding] if encoding else encodings(raw):
        try:
            text = raw.decode(name)
        except LookupError:
            raise UserError(f"unknown encoding {name!r}; common ones are utf-8, utf-16, cp1252 and latin-1") from None
        except UnicodeDecodeError:
            continue
        if "\0" in text:
            raise UserError(f"{path}: not a text file")
        return text, name
    raise UserError(f"{path}: is not written in {encoding or 'any common encoding'}; name it with --encoding")


def read_bytes(path: Path) -> bytes:
    """The bytes of a file, unpacked if it is gzipped.

    Args:
        path: the file.

    Returns:
        The bytes.

    Raises:
        UserError: it cannot be read or is empty.
    """
    if not path.is_file():
        raise UserError(f"{path}: {'a folder, not a file' if path.is_dir() else 'no such file'}")
    try:
        raw = path.read_bytes()
        if raw[:2] == b"\x1f\x8b":
            raw = _unpacked(path, raw)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path}: cannot be read ({error})") from None
    if not raw.strip():
        raise UserError(f"{path}: the file is empty")
    return raw


def _unpacked(path: Path, raw: bytes) -> bytes:
    """The content of a gzipped file, piece by piece: a bomb is refused before it fills the memory."""
    pieces, size = [], 0
    with gzip.GzipFile(fileobj=io.BytesIO(raw)) as file:
        while piece := file.read(PIECE):
            pieces.append(piece)
            size += len(piece)
            check_fits(path, CELLS_PER_TEXT * size)
    return b"".join(pieces)


def encodings(raw: bytes) -> list[str]:
    """Encodings to try for a file that begins so, the likeliest first."""
    # cp1252 has five bytes without a meaning, latin-1 has none.
    if raw.startswith(b"\xef\xbb\xbf"):
        return ["utf-8-sig"]
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return ["utf-16"]
    head = raw[:1000]
    if head[1::2].count(0) > len(head) // 4:
        return ["utf-16-le"]
    if head[::2].count(0) > len(head) // 4:
        return ["utf-16-be"]
    return ["utf-8", "cp1252", "latin-1"]


def records(text: str, delimiter: str, *, quoted: bool = True) -> Iterator[tuple[list[str], int, int]]:
    """The records of a text, blank lines left out.

    Args:
        text: with its line endings.
        delimiter: between fields.
        quoted: whether quotation marks hold fields together.

    Returns:
        The fields of each record, and the numbers of its first line and of the line after it, from 0.
    """
    return records_of(io.StringIO(text, newline=""), delimiter, quoted=quoted)


def records_of(file: Iterable[str], delimiter: str, *, quoted: bool = True) -> Iterator[tuple[list[str], int, int]]:
    """The records of a file, as `records` has them of a text.

    Args:
        file: its lines, of one opened with `newline=""`.
        delimiter: between fields.
        quoted: whether quotation marks hold fields together.

    Yields:
        The fields of a record, and the numbers of its first line and of the line after it, from 0.
    """
    for record, begin, end in _every_record(file, delimiter, quoted):
        if _is_filled(record):
            yield record, begin, end


def table_records(file: Iterable[str], layout: Layout) -> Iterator[tuple[list[str], int, int]]:
    """The records of the table in a file: the header, if there is one, then the rows.

    In a table of one column a blank line between two others is a row whose cell is missing, and so are empty quotation
    marks; blank lines before the table and after it are none. In wider tables a blank line is no row.

    Args:
        file: its lines, of one opened with `newline=""`.
        layout: where the table is.

    Yields:
        As `records_of`.
    """
    if layout.width > 1:
        yield from islice(records_of(file, layout.delimiter, quoted=layout.quoted), layout.skip, None)
        return
    line, n_before = "", 0  # the line that was read last; filled records that were

    def remembered() -> Iterator[str]:
        nonlocal line
        for read in file:
            line = read
            yield read

    held: list[tuple[list[str], int, int]] = []  # blank lines: rows if another line comes after them
    for record, begin, end in _every_record(remembered(), layout.delimiter, layout.quoted):
        if n_before <= layout.skip:
            n_before += _is_filled(record)
            if n_before <= layout.skip:
                continue
        if not line.strip():
            held.append(([""], begin, end))
            continue
        yield from held
        held.clear()
        yield record, begin, end


def _every_record(file: Iterable[str], delimiter: str, quoted: bool) -> Iterator[tuple[list[str], int, int]]:
    """As `records_of`, blank records too."""
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE
    limit = csv.field_size_limit(LARGEST_FIELD)
    try:
        reader = csv.reader(file, delimiter=delimiter, quoting=quoting, skipinitialspace=True)
        begin = 0
        for record in reader:
            yield record, begin, reader.line_num
            begin = reader.line_num
    finally:
        csv.field_size_limit(limit)


def _is_filled(record: Sequence[str]) -> bool:
    return len(record) > 1 or bool(record and record[0].strip())


def find_layout(
    text: str, encoding: str, *, delimiter: str | None = None, header: bool | None = None
) -> tuple[Layout, tuple[str, ...]]:
    """Find the table in a text.

    Args:
        text: of the file.
        encoding: that it was read with.
        delimiter: between fields, or its name (tab, semicolon ...); None: found out.
        header: whether the first record has the names; None: found out.

    Returns:
        The layout, and what is odd about it.

    Raises:
        UserError: the delimiter is none.
    """
    notes = []
    if encoding in ("cp1252", "latin-1"):
        notes.append(f"not UTF-8: read as {encoding} (--encoding)")
    quoted = not _is_unclosed(text)
    if not quoted:
        notes.append("a quotation mark is never closed: all are taken as text")
    start = text[: text.find("\n", SAMPLE_CHARACTERS) + 1] or text  # to its whole lines
    if delimiter is None:
        delimiter = _find_delimiter(start, quoted)
    delimiter = DELIMITER_NAMES.get(delimiter, delimiter)
    if len(delimiter) != 1:
        raise UserError(f"--delimiter must be one character, or one of {', '.join(DELIMITER_NAMES)}; got {delimiter!r}")
    head = _first_records(start, delimiter, quoted)
    widths = Counter(len(record) for record in head)
    width = max(widths, key=lambda w: (widths[w], w))
    skip = 0
    while skip < len(head) - 1 and (head[skip][0].startswith("#") or (len(head[skip]) == 1 < width)):
        skip += 1
    if skip:
        notes.append(f"{skip} {'line' if skip == 1 else 'lines'} before the table skipped")
    counts = _counts_columns(head[skip], head[skip + 1 :])
    has_names = counts or _is_header(head[skip], head[skip + 1 :]) if header is None else header
    if not has_names and header is None:
        notes.append("no header: columns are called x0, x1, ...; --header says there is one")
    elif header is None and counts:
        notes.append(f"header: the first line, {_shown(head[skip])}; --no-header says that it is a row")
    # One name too few is how R writes row names, unless each line ends with a delimiter.
    ends = all(not record[-1].strip() for record in head[skip + 1 :] if len(record) == width)
    if has_names and (len(head[skip]) != width - 1 or ends):
        width = len(head[skip])
    return Layout(encoding, delimiter, quoted, has_names, skip, 0, width), tuple(notes)


def find_footer(rows: Sequence[Sequence[str]], width: int) -> int:
    """How many records at the end are no rows: short ones with at most one field that is not empty.

    Args:
        rows: the last records.
        width: fields of a row.

    Returns:
        At most three.
    """
    n = 0
    while n < min(3, len(rows) - 1) and width > 2 and len(rows[-1 - n]) < width and sum(map(bool, rows[-1 - n])) <= 1:
        n += 1
    return n


def is_summary(row: Sequence[str]) -> str | None:
    """The word of a row that says it is a total, if there is one."""
    return next((field for field in row if SUMMARY.fullmatch(field.strip()) and len(field.strip()) > 2), None)


def column_names(first: Sequence[str], width: int, *, header: bool) -> tuple[list[str], list[str]]:
    """Names for the columns: the header's, numbered where one is there twice or not at all.

    Args:
        first: the first record of the table.
        width: fields of a row.
        header: whether the first record has the names.

    Returns:
        The names, all different; and what was odd.
    """
    if not header:
        return [f"x{j}" for j in range(width)], []
    given = [name.strip() for name in first]
    notes = []
    if len(given) == width - 1:  # as R writes row names
        given = ["row", *given]
        notes.append("the header is one name short: the first column is called 'row'")
    given += [""] * (width - len(given))
    unnamed = [j for j in range(width) if not given[j]]
    if unnamed:
        notes.append(f"{len(unnamed)} without a name: called unnamed {unnamed[0] + 1}" + (", ..." * (len(unnamed) > 1)))
    names: list[str] = []
    for j, name in enumerate(given[:width]):
        base, count, unique = name or f"unnamed {j + 1}", 1, name or f"unnamed {j + 1}"
        while unique in names:
            count += 1
            unique = f"{base} ({count})"
        names.append(unique)
    twice = sorted({name for name in given if name and given.count(name) > 1})
    if twice:
        notes.append(f"there twice: {listed(twice, 3)}; the second is called '{twice[0]} (2)'")
    return names, notes


def _first_records(text: str, delimiter: str, quoted: bool) -> list[list[str]]:
    return [record for record, _, _ in islice(records(text, delimiter, quoted=quoted), SAMPLE)]


def _is_unclosed(text: str) -> bool:
    if text.count('"') % 2 == 0:
        return False
    try:
        for _ in csv.reader(io.StringIO(text, newline=""), strict=True):
            pass
    except csv.Error as error:
        return "unexpected end" in str(error) or "field larger" in str(error)
    return False


def _find_delimiter(text: str, quoted: bool) -> str:
    """The delimiter that gives the most records the same number of fields, titles and footers of one field apart."""
    best, best_score = ",", (0.0, 0.0)
    for delimiter in DELIMITERS:
        found = _first_records(text, delimiter, quoted)
        split = [record for record in found if len(record) > 1]
        if not split or 2 * len(split) < len(found) or (delimiter == " " and best_score[0] > 0):
            continue
        widths = Counter(map(len, split))
        width = max(widths, key=lambda w: (widths[w], w))
        share = widths[width] / len(split)
        if share < STEADY:
            continue
        # Between two that are as steady, that one is right whose fields hold no other delimiter but a decimal comma.
        others = [d for d in DELIMITERS if d not in (delimiter, " ")]
        fields = [field.strip() for record in split for field in record]
        clean = sum(NUMBER.fullmatch(field) is not None or not any(d in field for d in others) for field in fields)
        score = (round(share * len(split) / len(found), 1), clean / len(fields))
        if score > best_score:
            best, best_score = delimiter, score
    return best


def _counts_columns(first: list[str], below: list[list[str]]) -> bool:
    """Whether a line of whole numbers names the columns: 0, 1, 2, ... as pandas writes them, or years in order."""
    names = first[1:] if first and not first[0].strip() else first  # pandas leaves the index without a name
    run = _run(names)
    if run is None or not (run[0] == 0 or (YEARS[0] <= run[0] and run[-1] <= YEARS[1])) or len(names) < 2:
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
