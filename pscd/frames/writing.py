"""A copy of a csv file in which some cells are changed and every other byte is as it was."""

import codecs
import gzip
import io
from collections.abc import Mapping
from pathlib import Path

from pscd.errors import UserError
from pscd.files import replacing, suffix_of, writing_to
from pscd.frames.layout import column_names, find_layout, read_bytes, read_text, records
from pscd.frames.levels import listed
from pscd.frames.reading import TEXT_SUFFIXES


def write_like(
    path_in: Path | str,
    changes: Mapping[tuple[int, str], str],
    path_out: Path | str,
    *,
    delimiter: str | None = None,
    encoding: str | None = None,
    header: bool | None = None,
) -> None:
    r"""Copy a text file, byte for byte, but for some cells.

    Quotation marks, delimiter, encoding, byte-order mark and line endings stay; a new text is quoted if its old one was
    or if it has to be. A copy whose name ends in `.gz` is gzipped, whatever the original was.

    Args:
        path_in: the file, as `read_frame` reads it.
        changes: new texts by row (from 0, as in the data frame) and name of the column.
        path_out: the copy.
        delimiter: as it was told to `read_frame`.
        encoding: as it was told to `read_frame`.
        header: as it was told to `read_frame`.

    Raises:
        UserError: there is no such cell, the file is no text, or the copy cannot be written.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     old, new = Path(folder) / "old.csv", Path(folder) / "new.csv"
    ...     _ = old.write_bytes(b'a; "b"\r\n1;"x"\r\n2; "y"')
    ...     write_like(old, {(1, "b"): "z"}, new)
    ...     new.read_bytes()
    b'a; "b"\r\n1;"x"\r\n2; "z"'
    """
    path_in, path_out = Path(path_in), Path(path_out)
    if suffix_of(path_in) not in TEXT_SUFFIXES:
        raise UserError(f"{path_in}: only text files can be copied cell by cell; save it as .csv")
    if suffix_of(path_in) in (".tsv", ".tab") and delimiter is None:
        delimiter = "\t"
    text, encoding = read_text(path_in, encoding)
    layout, _ = find_layout(text, encoding, delimiter=delimiter, header=header)
    wanted: dict[int, dict[str, str]] = {}
    for (row, name), new in changes.items():
        wanted.setdefault(int(row), {})[name] = new
    lines = list(io.StringIO(text, newline=""))
    copy: list[str] = []
    done, names, row = 0, [""], -layout.skip - layout.header
    for i, (record, begin, end) in enumerate(records(text, layout.delimiter, quoted=layout.quoted)):
        if i == layout.skip:
            names, _ = column_names(record, layout.width, header=layout.header)
        if row >= 0 and row in wanted:
            new_fields = {_index(path_in, names, name): new for name, new in wanted.pop(row).items()}
            copy += lines[done:begin]
            copy.append(_changed("".join(lines[begin:end]), layout.delimiter, layout.quoted, new_fields))
            done = end
        row += 1
    copy += lines[done:]
    if wanted:
        raise UserError(f"{path_in}: has no row {min(wanted)}; it has {row}")
    content = _encoded(path_in, "".join(copy), encoding)
    if path_out.name.lower().endswith(".gz"):
        content = gzip.compress(content, mtime=0)
    with writing_to(path_out), replacing(path_out) as temporary:
        temporary.write_bytes(content)


def _encoded(path: Path, text: str, encoding: str) -> bytes:
    """The text in the file's encoding, with its byte-order mark and in its byte order."""
    try:
        if encoding.lower().replace("_", "-") in ("utf-16", "utf16"):
            mark = read_bytes(path)[:2]
            return mark + text.encode("utf-16-be" if mark == codecs.BOM_UTF16_BE else "utf-16-le")
        return text.encode(encoding)
    except UnicodeEncodeError as error:
        character = text[error.start]
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

    Args:
        record: without its line ending.
        delimiter: between fields.
        quoted: whether quotation marks hold fields together.

    Returns:
        Begin and end of each field.

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
