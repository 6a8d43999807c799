"""A copy of a csv file in which some cells are changed and every other byte is as it was."""

import codecs
import gzip
import io
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import IO, Any

from pscd.errors import UserError
from pscd.files import replacing, suffix_of, writing_to
from pscd.tables.layout import Layout
from pscd.tables.levels import listed
from pscd.tables.read import TEXT_SUFFIXES
from pscd.tables.text import open_bytes, open_text, open_text_source, table_records

Change = tuple[int, str, str]  # row from 0, name of the column, new text


def write_like(
    path_in: Path | str,
    changes: Mapping[tuple[int, str], str] | Iterable[Change],
    path_out: Path | str,
    *,
    delimiter: str | None = None,
    encoding: str | None = None,
    header: bool | None = None,
) -> None:
    r"""Copy a text file, byte for byte, but for some cells.

    Quotation marks, delimiter, encoding, byte-order mark and line endings stay; a new text is quoted if its old one was
    or if it has to be. A copy whose name ends in `.gz` is gzipped, whatever the original was. Changes are a mapping, or
    sorted by row and then need not fit into memory.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     old, new = Path(folder) / "old.csv", Path(folder) / "new.csv"
    ...     _ = old.write_bytes(b'a; "b"\r\n1;"x"\r\n2; "y"')
    ...     write_like(old, {(1, "b"): "z"}, new)
    ...     new.read_bytes()
    b'a; "b"\r\n1;"x"\r\n2; "z"'
    """
    path_in, path_out = Path(path_in), Path(path_out)
    if isinstance(changes, Mapping):
        changes = sorted((int(row), name, new) for (row, name), new in changes.items())
    if suffix_of(path_in) not in TEXT_SUFFIXES:
        raise UserError(f"{path_in}: only text files can be copied cell by cell; save it as .csv")
    table = open_text_source(path_in, delimiter=delimiter, encoding=encoding, header=header)
    layout, names = table.layout, list(table.names)
    by_row = groupby(changes, key=lambda change: change[0])
    wanted = ((row, {_index(path_in, names, name): new for _, name, new in cells}) for row, cells in by_row)
    with writing_to(path_out), replacing(path_out) as temporary, temporary.open("wb") as file:
        gzipped = path_out.name.lower().endswith(".gz")
        binary: Any = gzip.GzipFile("", "wb", fileobj=file, mtime=0) if gzipped else file
        with _encoding(path_in, binary, layout.encoding) as copy:
            with open_text(path_in, layout.encoding) as lines:
                row, last = _copy(lines, layout, wanted, copy)
            if last is not None:
                raise UserError(f"{path_in}: has no row {last}; it has {row}")


def _copy(
    lines: Iterable[str], layout: Layout, wanted: Iterator[tuple[int, dict[int, str]]], copy: IO[str]
) -> tuple[int, int | None]:
    """Copy lines, with new fields in some rows; returns the number of rows, and the first that was not there."""
    read: list[str] = []  # lines that are not copied yet, the first of them number `copied`
    copied = 0

    def remembered() -> Iterator[str]:
        for line in lines:
            read.append(line)
            yield line

    row = -int(layout.header)
    at, fields = next(wanted, (None, {}))
    for _, begin, end in table_records(remembered(), layout):
        if row >= 0 and row == at:
            copy.writelines(read[: begin - copied])
            own = "".join(read[begin - copied : end - copied])
            copy.write(_changed(own, layout.delimiter, layout.quoted, fields))
            at, fields = next(wanted, (None, {}))
        else:
            copy.writelines(read[: end - copied])
        del read[: end - copied]
        copied = end
        row += 1
    copy.writelines(read)
    return row, at


@contextmanager
def _encoding(path: Path, file: Any, encoding: str) -> Iterator[IO[str]]:
    """A text file in the encoding of another, with its byte-order mark and in its byte order."""
    if encoding.lower().replace("_", "-") in ("utf-16", "utf16"):
        with open_bytes(path) as content:
            mark = content.read(2)
        file.write(mark)
        encoding = "utf-16-be" if mark == codecs.BOM_UTF16_BE else "utf-16-le"
    try:
        with io.TextIOWrapper(file, encoding=encoding, newline="") as copy:
            yield copy
    except UnicodeEncodeError as error:
        character = error.object[error.start]
        raise UserError(f"{path}: its encoding, {encoding}, has no {character!r}; save it as utf-8 first") from None


def _index(path: Path, names: list[str], name: str) -> int:
    if name not in names:
        raise UserError(f"{path}: has no column {name!r}; it has {listed(names)}")
    return names.index(name)


def _changed(raw: str, delimiter: str, quoted: bool, new_fields: Mapping[int, str]) -> str:
    """One record with some fields changed; fields that a short record lacks are added."""
    body = raw.rstrip("\r\n")
    ending = raw[len(body) :]
    spans = field_spans(body, delimiter, quoted=quoted)
    while len(spans) <= max(new_fields):
        body += delimiter
        spans.append((len(body), len(body)))
    for j in sorted(new_fields, reverse=True):
        start, end = spans[j]
        old, new = body[start:end], new_fields[j]
        inner = old.strip(" ")
        if quoted and (inner[:1] == '"' or any(mark in new for mark in (delimiter, '"', "\n", "\r"))):
            new = '"' + new.replace('"', '""') + '"'
        lead = len(old) - len(old.lstrip(" "))
        trail = len(old) - len(old.rstrip(" ")) if inner else 0
        body = body[: start + lead] + new + body[end - trail :]
    return body + ending


def field_spans(record: str, delimiter: str, *, quoted: bool = True) -> list[tuple[int, int]]:
    """Where the fields of a record begin and end, quotation marks and blanks around them included.

    >>> field_spans('1,"a,b", c', ",")
    [(0, 1), (2, 7), (8, 10)]
    """
    spans: list[tuple[int, int]] = []
    start, i, n = 0, 0, len(record)
    while True:
        while i < n and record[i] == " " and delimiter != " ":
            i += 1
        if quoted and i < n and record[i] == '"':
            i += 1
            while i < n:
                if record[i] == '"':
                    if record[i + 1 : i + 2] != '"':
                        break
                    i += 1
                i += 1
        end = record.find(delimiter, i)
        if end < 0:
            spans.append((start, n))
            return spans
        spans.append((start, end))
        start = i = end + 1
