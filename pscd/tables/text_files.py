"""Text files that need not fit into memory: how they hold a table, found out from a single pass over them."""

import codecs
import csv
import gzip
import io
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from pscd.errors import UserError
from pscd.files import one_line, reading, suffix_of
from pscd.tables.layout import SAMPLE_CHARACTERS, Layout, column_names, encodings, find_layout, table_records

PIECE = 1 << 22  # bytes of a text file at a time


@dataclass(frozen=True)
class TextTable:
    """A table in a text file.

    Args:
        layout: where it is; what stands after the last row is not looked for.
        names: of the columns.
        n_lines: of the file.
        notes: what is odd about it.
    """

    layout: Layout
    names: tuple[str, ...]
    n_lines: int
    notes: tuple[str, ...]


def text_table(
    path: Path, *, delimiter: str | None = None, encoding: str | None = None, header: bool | None = None
) -> TextTable:
    """Find the table in a text file.

    Args:
        path: the file.
        delimiter: between fields; None: a tab for `.tsv` and `.tab`, otherwise found out.
        encoding: as Python calls it; None: found out.
        header: whether the first record has the names; None: found out.

    Returns:
        Where it is.

    Raises:
        UserError: the file cannot be read so.
    """
    if suffix_of(path) in (".tsv", ".tab") and delimiter is None:
        delimiter = "\t"
    encoding, lines, odd_quotes = _scan(path, encoding)
    with reading(path, f"not a readable {suffix_of(path)} file"), open_text(path, encoding) as file:
        layout, notes = find_layout(_head(file), encoding, delimiter=delimiter, header=header)
        if odd_quotes != (not layout.quoted):
            layout = replace(layout, quoted=not (odd_quotes and _is_unclosed(path, encoding)))
    with open_text(path, encoding) as file:
        first = next(table_records(file, layout))[0]
    names, odd = column_names(first, layout.width, header=layout.header)
    return TextTable(layout, tuple(names), lines, (*notes, *odd))


def open_text(path: Path, encoding: str) -> IO[str]:
    """Open a text file, unpacked if it is gzipped, with its line endings as they are.

    Args:
        path: the file.
        encoding: as Python calls it.

    Returns:
        The open file.
    """
    return io.TextIOWrapper(io.BufferedReader(open_bytes(path), PIECE), encoding=encoding, newline="")


def open_bytes(path: Path) -> Any:
    """Open a file, unpacked if it is gzipped.

    Args:
        path: the file.

    Returns:
        The open file.
    """
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rb") if packed else path.open("rb")


def _scan(path: Path, encoding: str | None) -> tuple[str, int, bool]:
    """The encoding that the whole file can be read in, its number of lines, and whether its quotation marks are odd."""
    with reading(path, "cannot be read"), open_bytes(path) as content:
        head = content.read(1000)
    for name in [encoding] if encoding else encodings(head):
        try:
            codecs.lookup(name)
        except LookupError:
            raise UserError(f"unknown encoding {name!r}; common ones are utf-8, utf-16, cp1252 and latin-1") from None
        lines = quotes = 0
        try:
            with open_text(path, name) as file:
                while piece := file.read(PIECE):
                    if "\0" in piece:
                        raise UserError(f"{path}: not a text file")
                    lines += piece.count("\n")
                    quotes += piece.count('"')
        except UnicodeDecodeError:
            continue
        except (OSError, EOFError) as error:
            raise UserError(f"{path}: cannot be read ({one_line(error)})") from None
        return name, lines, quotes % 2 == 1
    raise UserError(f"{path}: is not written in {encoding or 'any common encoding'}; name it with --encoding")


def _head(file: IO[str]) -> str:
    """The first lines, up to one at which no quotation mark is open."""
    head = file.read(SAMPLE_CHARACTERS) + file.readline()
    while head.count('"') % 2 and len(head) < 4 * SAMPLE_CHARACTERS and (line := file.readline()):
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
