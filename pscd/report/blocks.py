"""What a page is made of: plain values, without any HTML."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Text:
    """Paragraphs; `tone` is plain, good or warning."""

    lines: tuple[str, ...]
    tone: str = "plain"


@dataclass(frozen=True)
class Table:
    """Rows of text below the names of the columns; without names, pairs of a name and a value drawn as cards."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    summary: str = ""  # the table is folded away under it


@dataclass(frozen=True)
class Chart:
    """A Vega-Lite chart; `about` stands below it and describes it to screen readers."""

    title: str
    spec: dict[str, Any]
    about: str = ""
    is_wide: bool = False


@dataclass(frozen=True)
class Picture:
    """A picture at a `data:` address; `about` describes it to screen readers."""

    source: str
    about: str
    caption: str = ""


@dataclass(frozen=True)
class Cell:
    """A cell of a row; `cost` is what it adds to the energy, in nats; `suggestion` may be empty."""

    column: str
    value: str
    cost: float
    suggestion: str = ""


@dataclass(frozen=True)
class Row:
    """A row of a table: its number in the file from 0, its ids, and its cells by falling cost."""

    number: int
    ids: tuple[str, ...]
    energy: float
    is_outlier: bool
    weight: float | None
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class RankedRows:
    """Rows by falling energy, to sort, search and open."""

    rows: tuple[Row, ...]
    id_names: tuple[str, ...] = ()
    has_threshold: bool = True
    has_weights: bool = True


Block = Text | Table | Chart | Picture | RankedRows


@dataclass(frozen=True)
class Section:
    """A part of a page."""

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Page:
    """A report; `kind` says in a few words what it is about."""

    title: str
    kind: str
    sections: tuple[Section, ...]
