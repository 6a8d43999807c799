"""Tables as they come: what each column is, and the numbers and codes that a model sees of it.

`open_table` reads a file at once or in blocks, `look` infers what its columns are, `encode` makes a matrix of them with
NaN for missing cells, `decode` goes back, and `write_like` copies a csv with some cells changed.
"""

from pscd.tables.cells import as_frame, is_frame
from pscd.tables.encode import Encoded, adapted, decode, encode, spell
from pscd.tables.infer import look, numeric_schema
from pscd.tables.read import TEXT_SUFFIXES, ReadOptions, TableFile, open_table
from pscd.tables.schema import KINDS, Column, Part, Schema
from pscd.tables.typed import read_array
from pscd.tables.write import write_like

__all__ = [
    "KINDS",
    "TEXT_SUFFIXES",
    "Column",
    "Encoded",
    "Part",
    "ReadOptions",
    "Schema",
    "TableFile",
    "adapted",
    "as_frame",
    "decode",
    "encode",
    "is_frame",
    "look",
    "numeric_schema",
    "open_table",
    "read_array",
    "spell",
    "write_like",
]
