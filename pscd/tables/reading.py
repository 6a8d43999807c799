"""Files of tables: `.csv` and its kin as text, `.parquet` and `.xlsx` as they are typed."""

import io
import re
import zipfile
from collections.abc import Mapping, Sequence
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any

import pandas as pd

from pscd.errors import UserError
from pscd.files import check_fits, needs, reading, suffix_of
from pscd.tables.layout import column_names, find_footer, find_layout, is_summary, read_text, records, table_records
from pscd.tables.levels import listed
from pscd.tables.oddities import copied_rows

TEXT_SUFFIXES = (".csv", ".tsv", ".txt", ".tab", ".dat")
FRAME_SUFFIXES = (*TEXT_SUFFIXES, ".parquet", ".xlsx")
MOST_EMPTY = 100  # rows of a sheet for each that is written
MOST_ROWS = 1000  # whose numbers are remembered; pandas copies them with every column
CHUNK = 20_000  # rows that are held as Python objects at a time


def read_frame(
    path: Path | str,
    *,
    delimiter: str | None = None,
    decimal: str | None = None,
    thousands: str | None = None,
    encoding: str | None = None,
    missing: Sequence[str] = (),
    sheet: str | None = None,
    header: bool | None = None,
    day_first: bool | None = None,
) -> pd.DataFrame:
    r"""Read a file as a data frame for `look`.

    What is not told is found out. What is told about the cells (`decimal`, `thousands`, `missing`, `day_first`) and
    what was odd about the file goes along in `frame.attrs["pscd"]`, where `look` finds it.

    Args:
        path: `.csv`, `.tsv` or `.txt`, gzipped or not, `.parquet` or `.xlsx`.
        delimiter: between fields: one character, or tab, comma, semicolon, space, bar.
        decimal: the decimal sign.
        thousands: what separates thousands.
        encoding: of a text file.
        missing: spellings of a missing value beside the usual ones.
        sheet: of a workbook; None: the first.
        header: whether the first record has the names.
        day_first: whether 1/2/2020 is in February.

    Returns:
        Text cells, stripped of nothing, for text files; typed columns for others.

    Raises:
        UserError: the file cannot be read as a table; the message says what to do.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "a.csv"
    ...     _ = path.write_text("name;size\nx;1,5\ny;n/a\n")
    ...     read_frame(path)
      name size
    0    x  1,5
    1    y  n/a
    """
    path = Path(path)
    suffix = suffix_of(path)
    if suffix not in FRAME_SUFFIXES:
        raise UserError(f"{path}: cannot read {suffix or 'a file without ending'}; use {', '.join(FRAME_SUFFIXES)}")
    if not path.is_file():
        raise UserError(f"{path}: {'a folder, not a file' if path.is_dir() else 'no such file'}")
    told = {"decimal": decimal, "thousands": thousands, "missing": tuple(missing), "day_first": day_first}
    if suffix in TEXT_SUFFIXES:
        by_name = "\t" if suffix in (".tsv", ".tab") else None
        frame, found = _read_text_file(path, delimiter or by_name, encoding, header)
    else:
        frame, found = _read_typed_file(path, sheet)
    layout = {"delimiter": delimiter, "encoding": encoding, "header": header, "sheet": sheet}
    found["notes"] = (*about_unused(suffix, layout), *found["notes"], *copied_rows(frame))
    frame.attrs["pscd"] = found | {name: value for name, value in told.items() if value not in (None, ())}
    return frame


def _read_text_file(
    path: Path, delimiter: str | None, encoding: str | None, header: bool | None
) -> tuple[pd.DataFrame, dict[str, Any]]:
    told = encoding
    text, encoding = read_text(path, told)
    with reading(path, f"not a readable {suffix_of(path)} file"):
        if next(records(text, ","), None) is None:  # blank lines, or empty quotation marks
            raise UserError(f"{path}: {no_rows(told)}")
        layout, notes = find_layout(text, encoding, delimiter=delimiter, header=header)
        found = (record for record, _, _ in table_records(io.StringIO(text, newline=""), layout))
        first = next(found)
        names, odd = column_names(first, layout.width, header=layout.header)
        columns, ragged, last = columns_of(found if layout.header else chain([first], found), layout.width)
    frame = pd.DataFrame(dict(zip(names, columns, strict=True)))
    footer = find_footer(last, layout.width)
    if footer:
        odd.append(f"last line left out, it is no row: {listed([''.join(last[-1])])}")
        frame = frame.iloc[:-footer]
    elif last and is_summary(last[-1]) and len(frame) > 2:
        odd.append(f"the last row looks like a summary ({is_summary(last[-1])!r}): remove it if it is one")
    ragged = {kind: [row for row in rows if row <= len(frame)] for kind, rows in ragged.items()}
    odd += [_about_ragged(kind, rows) for kind, rows in ragged.items() if rows]
    if len(frame) == 0:
        raise UserError(f"{path}: {no_rows(told)}")
    short = layout.header and len(first) < layout.width
    found_out = {"short_header": short, "delimiter": layout.delimiter, "encoding": encoding, "header": layout.header}
    twice = sorted({name.strip() for name in first if first.count(name) > 1 and name.strip()}) if layout.header else []
    return frame, found_out | {
        "notes": (*notes, *odd),
        "ragged": {kind: rows[:MOST_ROWS] for kind, rows in ragged.items()},
        "twice": twice,
    }


def no_rows(encoding: str | None) -> str:
    """What to say of a text file without rows.

    Args:
        encoding: that somebody said it is written in, if so.

    Returns:
        The end of a sentence.
    """
    if encoding is None:
        return "there are no rows in it"
    return f"there are no rows in it, read as {encoding}; leave --encoding out to have it found out"


def about_unused(suffix: str, told: Mapping[str, Any]) -> tuple[str, ...]:
    """What somebody said about a file that means nothing for its kind.

    Args:
        suffix: of the file.
        told: options of `read_frame` by name, None where nothing was said.

    Returns:
        A sentence, or none.
    """
    names = ("delimiter", "encoding", "header") * (suffix not in TEXT_SUFFIXES) + ("sheet",) * (suffix != ".xlsx")
    flags = {"header": "--no-header" if told.get("header") is False else "--header"}
    unused = [flags.get(name, f"--{name}") for name in names if told.get(name) is not None]
    return (f"{' and '.join(unused)} ignored: of no use for a {suffix} file",) if unused else ()


def _about_ragged(kind: str, rows: list[int]) -> str:
    where = ", ".join(map(str, rows[:3])) + (", ..." * (len(rows) > 3))
    end = "what is not there is missing" if kind == "fewer" else "the surplus is ignored"
    have, row = ("rows have", "rows") if len(rows) > 1 else ("row has", "row")
    return f"{len(rows):,} {have} {kind} fields than there are columns ({row} {where}): {end}"


def columns_of(found: Any, width: int) -> tuple[list[pd.Series], dict[str, list[int]], list[list[str]]]:
    """The columns of records.

    Args:
        found: an iterator of the records' fields.
        width: fields of a row; what is not there is empty, a surplus is cut off.

    Returns:
        The columns, the numbers of the records with too few or too many fields, and the last three records.
    """
    chunks: list[list[pd.Series]] = []
    fewer: list[int] = []
    more: list[int] = []
    last: list[list[str]] = []
    n = 0
    while chunk := list(islice(found, CHUNK)):
        last = (last + [list(record) for record in chunk[-3:]])[-3:]
        for i, record in enumerate(chunk):
            if len(record) != width:
                if len(record) < width:
                    fewer.append(n + i + 1)
                    chunk[i] = [*record, *repeat("", width - len(record))]
                else:
                    if any(field.strip() for field in record[width:]):
                        more.append(n + i + 1)
                    chunk[i] = record[:width]
        n += len(chunk)
        chunks.append([pd.Series(values, dtype="str") for values in zip(*chunk, strict=True)])
    columns: list[pd.Series] = [pd.Series(dtype="str") for _ in range(width)]
    if chunks:
        columns = [pd.concat(parts, ignore_index=True) for parts in zip(*chunks, strict=True)]
    return columns, {"fewer": fewer, "more": more}, last


def _read_typed_file(path: Path, sheet: str | None) -> tuple[pd.DataFrame, dict[str, Any]]:
    if path.stat().st_size == 0:
        raise UserError(f"{path}: the file is empty")
    suffix = suffix_of(path)
    module, extra = ("pyarrow", "parquet") if suffix == ".parquet" else ("openpyxl", "excel")
    needs(module, extra, f"{path}: reading {suffix[1:]}")
    with reading(path, f"not a readable {suffix} file"):
        if suffix == ".parquet":
            frame = _read_parquet(path)
        else:
            _check_workbook(path)
            frame = pd.read_excel(path, sheet_name=sheet or 0, dtype=object, na_filter=False, engine="openpyxl")
    names, odd = column_names([str(name) for name in frame.columns], frame.shape[1], header=True)
    frame.columns = pd.Index(names)
    if len(frame) == 0:
        raise UserError(f"{path}: there are no rows in it")
    return frame, {"notes": tuple(odd), "twice": []}


def _read_parquet(path: Path) -> pd.DataFrame:
    import pyarrow.parquet as pq

    about = pq.read_metadata(path)
    groups = (about.row_group(i).total_byte_size for i in range(about.num_row_groups))
    check_fits(path, max(8 * about.num_rows * about.num_columns, sum(groups)))
    frame = pd.read_parquet(path)
    for _, column in frame.items():
        text = getattr(column.array, "_pa_array", None)  # of Arrow, which reads bytes that are no text and fails later
        if text is not None:
            text.validate(full=True)
    return frame


def _check_workbook(path: Path) -> None:
    """Refuse a workbook that unpacks to too much, or numbers its rows as no sheet does: the reader fills the gaps."""
    with zipfile.ZipFile(path) as archive:
        check_fits(path, sum(member.file_size for member in archive.infolist()))
        for name in archive.namelist():
            if name.startswith("xl/worksheets/"):
                rows = [int(number) for number in re.findall(rb"<row\b[^>]*?\br=\"(\d{1,30})\"", archive.read(name))]
                if rows and max(rows) > MOST_EMPTY * (len(rows) + MOST_ROWS):
                    raise UserError(f"{path}: a row is numbered {max(rows)}, and {len(rows)} are there")
