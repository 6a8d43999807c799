"""What a page is made of: plain values, without any HTML."""

from dataclasses import dataclass, field
from typing import Any, ClassVar


@dataclass(frozen=True)
class Facts:
    """Short facts, each under its name.

    Args:
        entries: names and values.
    """

    kind: ClassVar[str] = "facts"
    entries: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Text:
    """Sentences, each a paragraph.

    Args:
        lines: the paragraphs.
        tone: `plain`, `good` or `warning`.
    """

    kind: ClassVar[str] = "text"
    lines: tuple[str, ...]
    tone: str = "plain"


@dataclass(frozen=True)
class Chart:
    """One chart.

    Args:
        title: above it.
        spec: what Vega-Lite draws.
        about: what it shows, for people who do not see it, and below it for those who do.
        options: what the page may change: which part of the run is shown, which columns.
    """

    title: str
    spec: dict[str, Any]
    about: str = ""
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Charts:
    """Charts side by side, as many as fit.

    Args:
        charts: in their order.
        small: whether they are narrow.
        updates: first and last update, if the part of the run that they show can be chosen.
    """

    kind: ClassVar[str] = "charts"
    charts: tuple[Chart, ...]
    small: bool = False
    updates: tuple[int, int] | None = None


@dataclass(frozen=True)
class Pairs:
    """Rows in two columns that the reader chooses.

    Args:
        chart: draws columns `options["across"]` and `options["up"]`.
        names: of the columns.
    """

    kind: ClassVar[str] = "pairs"
    chart: Chart
    names: tuple[str, ...]


@dataclass(frozen=True)
class Picture:
    """A picture inside the page.

    Args:
        source: a `data:` address.
        about: what it shows.
        caption: below it.
        half: whether two of them stand side by side where there is room.
    """

    kind: ClassVar[str] = "picture"
    source: str
    about: str
    caption: str = ""
    half: bool = False


@dataclass(frozen=True)
class Table:
    """A plain table.

    Args:
        head: names of the columns.
        rows: texts.
        summary: if given, the table is folded away under it.
    """

    kind: ClassVar[str] = "table"
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    summary: str = ""


@dataclass(frozen=True)
class Prose:
    """Text that has been turned into HTML, with everything in it escaped.

    Args:
        html: safe to be put into the page as it is.
    """

    kind: ClassVar[str] = "prose"
    html: str


@dataclass(frozen=True)
class Cell:
    """A cell of a strange row.

    Args:
        column: its name.
        value: what is there.
        expected: what the other columns suggest, or nothing if that is not known.
        blame: nats that it costs beside the expected value.
        mistake: what explains it, such as "100 times too large"; or nothing.
    """

    column: str
    value: str
    expected: str
    blame: float
    mistake: str = ""


@dataclass(frozen=True)
class StrangeRow:
    """A row with a high energy.

    Args:
        number: of the row in the file, from 1.
        ids: the columns that name it.
        energy: of the row.
        outlier: whether it lies above the threshold.
        counted: how much it counted in training, from 0 to 1; None if unknown.
        ignored: whether training ignored it.
        cells: those to blame most first.
    """

    number: int
    ids: tuple[str, ...]
    energy: float
    outlier: bool
    counted: float | None
    ignored: bool
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class StrangeRows:
    """A table to sort and to search.

    Args:
        rows: the strangest first.
        id_names: names of the columns that name a row.
        columns_left_out: how many columns of each row are not listed.
        has_threshold: whether rows are called outliers.
        has_counts: whether it is known how much rows counted.
    """

    kind: ClassVar[str] = "strange"
    rows: tuple[StrangeRow, ...]
    id_names: tuple[str, ...]
    columns_left_out: int = 0
    has_threshold: bool = True
    has_counts: bool = True


Block = Facts | Text | Charts | Pairs | Picture | Table | Prose | StrangeRows


@dataclass(frozen=True)
class Section:
    """A part of a page.

    Args:
        title: its heading.
        blocks: what it holds.
    """

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Page:
    """A whole report.

    Args:
        title: its heading.
        subtitle: what kind of report it is.
        sections: in their order.
        running: whether training goes on, so that the page should be loaded again.
    """

    title: str
    subtitle: str
    sections: tuple[Section, ...]
    running: bool = False
