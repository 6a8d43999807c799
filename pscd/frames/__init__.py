"""Tables as they come: what each column is, and the numbers and codes that a model sees of it.

`read_frame` reads a file, `look` finds out what its columns are, `encode` makes a matrix of them with NaN where a cell
is missing, `decode` goes back, and `write_like` copies a csv with some cells changed and every other byte kept.
"""

from pscd.frames.cells import as_frame
from pscd.frames.encoding import Encoded, decode, encode, spell
from pscd.frames.looking import look
from pscd.frames.reading import FRAME_SUFFIXES, TEXT_SUFFIXES, read_frame
from pscd.frames.schema import KINDS, Column, Part, Schema
from pscd.frames.writing import write_like

__all__ = [
    "FRAME_SUFFIXES",
    "KINDS",
    "TEXT_SUFFIXES",
    "Column",
    "Encoded",
    "Part",
    "Schema",
    "as_frame",
    "decode",
    "encode",
    "look",
    "read_frame",
    "spell",
    "write_like",
]
