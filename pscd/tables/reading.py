"""Files of tables as frames, for callers that do not use `open_table` yet."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from pscd.errors import UserError
from pscd.files import suffix_of
from pscd.tables.read import TEXT_SUFFIXES, ReadOptions, open_table

FRAME_SUFFIXES = (*TEXT_SUFFIXES, ".parquet", ".xlsx")


def read_frame(
    path: Path | str,
    *,
    delimiter: str | None = None,
    decimal: Any = None,
    thousands: str | None = None,
    encoding: str | None = None,
    missing: Sequence[str] = (),
    sheet: str | None = None,
    header: bool | None = None,
    day_first: bool | None = None,
) -> pd.DataFrame:
    """A file as a data frame, with options and notes in its `attrs`."""
    path = Path(path)
    suffix = suffix_of(path)
    if suffix not in FRAME_SUFFIXES:
        raise UserError(f"{path}: cannot read {suffix or 'a file without ending'}; use {', '.join(FRAME_SUFFIXES)}")
    if path.is_dir():
        raise UserError(f"{path}: a folder, not a file")
    options = ReadOptions(delimiter, decimal, thousands, encoding, tuple(missing), sheet, header, day_first)
    table = open_table(path, options)
    frame = table.frame().copy(deep=False)
    told = {"decimal": decimal, "thousands": thousands, "missing": tuple(missing), "day_first": day_first}
    layout = {name: getattr(table.options, name) for name in ("delimiter", "encoding", "header")}
    frame.attrs["pscd"] = {"notes": table.notes, **(layout if suffix in TEXT_SUFFIXES else {})} | {
        name: value for name, value in told.items() if value not in (None, ())
    }
    return frame


def about_unused(suffix: str, told: Mapping[str, Any]) -> tuple[str, ...]:
    """A note on options that mean nothing for a kind of file."""
    names = ("delimiter", "encoding", "header") * (suffix not in TEXT_SUFFIXES) + ("sheet",) * (suffix != ".xlsx")
    unused = [name for name in names if told.get(name) is not None]
    return (f"{' and '.join(unused)} ignored: of no use for a {suffix} file",) if unused else ()
