"""Tables in text files: encoding, records, and blocks of rows, in constant memory."""

import codecs
import csv
import gzip
import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, Literal

import pandas as pd

from pscd.errors import UserError
from pscd.files import check_fits, one_line, reading, suffix_of
from pscd.tables.layout import Layout, column_names, find_footer, infer_layout, is_summary
from pscd.tables.levels import listed

LONGEST_LINE = 1 << 24  # characters of a line or a field; a file of one endless line must not fill the memory


@dataclass
class Ragged:
    """Rows with too few or too many fields, counted while a table is read."""

    fewer: list[int] = field(default_factory=list)
    more: list[int] = field(default_factory=list)

    def notes(self) -> list[str]:
        """Sentences about them."""
        notes = []
        ends = {"fewer": "missing fields are empty", "more": "extra fields are ignored"}
        for (kind, end), rows in zip(ends.items(), (self.fewer, self.more), strict=True):
            where = ", ".join(map(str, rows[:3])) + (", ..." * (len(rows) > 3))
            have, row = ("rows have", "rows") if len(rows) > 1 else ("row has", "row")
            if rows:
                notes.append(f"{len(rows):,} {have} {kind} fields than there are columns ({row} {where}): {end}")
        return notes


@dataclass(frozen=True)
class TextSource:
    """A table in a text file, gzipped or not."""

    path: Path  # the file
    layout: Layout  # where the table is
    names: tuple[str, ...]  # of the columns
    notes: tuple[str, ...]  # what was assumed about the layout
    n_lines: int  # of the file
    n_characters: int  # of the file
    n_rows: int | None = None

    def blocks(
        self, size: int | None, start: int, columns: Sequence[str] | None, notes: list[str], step: int = 1
    ) -> Iterator[pd.DataFrame]:
        """Frames of text cells; what is noticed on the way is added to `notes` at the end of the file."""
        if size is None:
            check_fits(self.path, 8 * self.n_characters)  # bytes that a frame needs for each
        chosen = [j for j, name in enumerate(self.names) if columns is None or name in columns]
        ragged = Ragged()
        with open_text(self.path, self.layout.encoding) as file, _long_fields():
            last: list[list[str]] = []
            rows: Iterator[list[str]] = chain.from_iterable(self._chunks(file, notes, last))
            n = sum(1 for _ in islice(rows, start))
            rows = rows if step == 1 else islice(rows, 0, None, step)
            while (record := next(rows, None)) is not None:
                part = chain([record], islice(rows, None if size is None else size - 1))
                series, n = self._columns(part, chosen, n, ragged)
                yield pd.DataFrame({self.names[j]: values for j, values in zip(chosen, series, strict=True)})
        if last and is_summary(last[-1]) and n > 2:
            notes.append(f"the last row looks like a summary ({is_summary(last[-1])!r}): remove it if it is one")
        notes += ragged.notes()

    def _chunks(
        self, file: IO[str], notes: list[str], last: list[list[str]], size: int = 20_000
    ) -> Iterator[list[list[str]]]:
        """The records that are rows: without header, lines before it, and a footer."""
        held: list[list[str]] = []
        rows = islice(_table_rows(file, self.layout), int(self.layout.header), None)
        while chunk := list(islice(rows, size)):
            held += chunk
            yield held[:-3]
            held = held[-3:]
        footer = find_footer(held, self.layout.width)
        if footer:
            notes.append(f"last line left out, it is no row: {listed([''.join(held[-1])])}")
        held = held[: len(held) - footer]
        last += held[-1:]
        yield held

    def _columns(
        self, rows: Iterator[list[str]], chosen: list[int], n: int, ragged: Ragged, size: int = 20_000
    ) -> tuple[list[pd.Series], int]:
        """The chosen columns of records, the first of them row n, and the number of the row after them."""
        width = self.layout.width
        parts: list[list[pd.Series]] = []
        while chunk := list(islice(rows, size)):
            for i, record in enumerate(chunk):
                if len(record) < width:
                    ragged.fewer.append(n + i + 1)
                    chunk[i] = [*record, *[""] * (width - len(record))]
                elif len(record) > width and any(value.strip() for value in record[width:]):
                    ragged.more.append(n + i + 1)
            n += len(chunk)
            parts.append([pd.Series([record[j] for record in chunk], dtype="str") for j in chosen])
        return [pd.concat(column, ignore_index=True) for column in zip(*parts, strict=True)], n


def open_text_source(
    path: Path, *, delimiter: str | None = None, encoding: str | None = None, header: bool | None = None
) -> TextSource:
    """Find the table in a text file; what is None is inferred."""
    if suffix_of(path) in (".tsv", ".tab") and delimiter is None:
        delimiter = "\t"
    stated = encoding
    encoding, n_lines, n_characters, odd_quotes = _scan(path, stated)
    with reading(path, f"not a readable {suffix_of(path)} file"):
        with open_text(path, encoding) as file:
            head = _head(file)
        quoted = not (odd_quotes and _is_unclosed(path, encoding))
        if next(records(head, ","), None) is None and len(head) >= n_characters:  # empty quotation marks alone
            raise UserError(f"{path}: {_no_rows(stated)}")
        layout, notes = infer_layout(
            lambda mark: [record for record, _, _ in islice(records(head, mark, quoted=quoted), 200)],
            encoding,
            delimiter=delimiter,
            header=header,
            quoted=quoted,
        )
        with open_text(path, encoding) as file:
            start = [record for record, _, _ in islice(table_records(file, layout), 1 + layout.header)]
        if len(start) <= layout.header:
            raise UserError(f"{path}: {_no_rows(stated)}")
    names, odd = column_names(start[0], layout.width, header=layout.header)
    return TextSource(path, layout, tuple(names), (*notes, *odd), n_lines, n_characters)


def _no_rows(encoding: str | None) -> str:
    hint = f", read as {encoding}; leave encoding out to have it inferred" if encoding else ""
    return f"there are no rows in it{hint}"


def open_bytes(path: Path) -> Any:
    """Open a file, unpacked if it is gzipped."""
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rb") if packed else path.open("rb")


def open_text(path: Path, encoding: str) -> IO[str]:
    """Open a text file, unpacked if it is gzipped, with its line endings as they are."""
    return io.TextIOWrapper(io.BufferedReader(open_bytes(path), 1 << 22), encoding=encoding, newline="")


def encodings(head: bytes) -> list[str]:
    """Encodings to try for a file that begins so, the likeliest first."""
    # Statistical detectors (charset-normalizer) take short Western European tables for cp1250 or big5: only encodings
    # that mark themselves, and the two that most programs write, are inferred.
    if head.startswith(b"\xef\xbb\xbf"):
        return ["utf-8-sig"]
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return ["utf-16"]
    head = head[:1000]
    if head[1::2].count(0) > len(head) // 4:
        return ["utf-16-le"]
    if head[::2].count(0) > len(head) // 4:
        return ["utf-16-be"]
    return ["utf-8", "cp1252", "latin-1"]  # cp1252 has five bytes without a meaning, latin-1 has none


def _scan(path: Path, encoding: str | None) -> tuple[str, int, int, bool]:
    """The encoding that can read the whole file, its lines and characters, and whether its quotation marks are odd."""
    with reading(path, "cannot be read"), open_bytes(path) as content:
        head = content.read(1000)
    for name in [encoding] if encoding else encodings(head):
        try:
            codecs.lookup(name)
        except LookupError:
            raise UserError(f"unknown encoding {name!r}; common ones are utf-8, utf-16, cp1252 and latin-1") from None
        lines = characters = quotes = line = 0
        blank = True
        try:
            with open_text(path, name) as file:
                while piece := file.read(1 << 22):
                    if "\0" in piece:
                        raise UserError(f"{path}: not a text file")
                    lines += piece.count("\n")
                    quotes += piece.count('"')
                    characters += len(piece)
                    blank = blank and piece.isspace()
                    end = max(piece.rfind("\n"), piece.rfind("\r"))
                    line = line + len(piece) if end < 0 else len(piece) - end
                    if line > LONGEST_LINE:
                        raise UserError(f"{path}: a line has more than {LONGEST_LINE:,} characters")
        except UnicodeDecodeError:
            continue
        except (OSError, EOFError, ValueError) as error:
            raise UserError(f"{path}: cannot be read ({one_line(error)})") from None
        if blank:
            raise UserError(f"{path}: the file is empty")
        return name, lines, characters, quotes % 2 == 1
    raise UserError(f"{path}: is not written in {encoding or 'any common encoding'}; state its encoding")


def _head(file: IO[str], size: int = 200_000) -> str:
    """The first lines, up to one at which no quotation mark is open."""
    head = file.read(size) + file.readline()
    while head.count('"') % 2 and len(head) < 4 * size and (line := file.readline()):
        head += line
    return head


def _is_unclosed(path: Path, encoding: str) -> bool:
    with open_text(path, encoding) as file:
        try:
            for _ in csv.reader(file, strict=True):
                pass
        except csv.Error as error:
            return "unexpected end" in str(error) or "field larger" in str(error)
    return False


def records(lines: str | Iterable[str], delimiter: str, *, quoted: bool = True) -> Iterator[tuple[list[str], int, int]]:
    """The records of a text that are not blank: fields, number of the first line, and of the line after it, from 0."""
    lines = io.StringIO(lines, newline="") if isinstance(lines, str) else lines
    return (entry for entry in _every_record(lines, delimiter, quoted) if _is_filled(entry[0]))


def table_records(file: Iterable[str], layout: Layout) -> Iterator[tuple[list[str], int, int]]:
    """The header, if there is one, and the rows of the table in a file, as `records` gives them."""
    # In a table of one column a blank line between two others is a row whose cell is missing, and so are empty
    # quotation marks. In wider tables a blank line is no row.
    if layout.width > 1:
        yield from islice(records(file, layout.delimiter, quoted=layout.quoted), layout.skip, None)
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


def _table_rows(file: IO[str], layout: Layout) -> Iterator[list[str]]:
    """The fields of `table_records`, without counting lines where the table is wide."""
    if layout.width == 1:
        return (record for record, _, _ in table_records(file, layout))
    reader = _reader(file, layout.delimiter, layout.quoted)
    return islice((record for record in reader if _is_filled(record)), layout.skip, None)


def _every_record(file: Iterable[str], delimiter: str, quoted: bool) -> Iterator[tuple[list[str], int, int]]:
    reader = _reader(file, delimiter, quoted)
    begin = 0
    with _long_fields():
        for record in reader:
            yield record, begin, reader.line_num
            begin = reader.line_num


def _reader(file: Iterable[str], delimiter: str, quoted: bool) -> Any:
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE
    return csv.reader(file, delimiter=delimiter, quoting=quoting, skipinitialspace=True)


@contextmanager
def _long_fields() -> Iterator[None]:
    """Let the csv module take fields as long as the longest line."""
    limit = csv.field_size_limit(LONGEST_LINE)
    try:
        yield
    finally:
        csv.field_size_limit(limit)


def _is_filled(record: Sequence[str]) -> bool:
    return len(record) > 1 or bool(record and record[0].strip())
