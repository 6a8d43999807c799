"""The sections about a table: energies, the strangest rows, columns and pairs of columns."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pscd.report import charts
from pscd.report.blocks import Block, Cell, Chart, Charts, Facts, Pairs, Section, StrangeRow, StrangeRows, Text
from pscd.report.cells import Blame

Floats = NDArray[np.float64]

STRANGEST = 200  # rows in the table, at most
CELLS = 60  # of a row, those to blame most
COLUMNS = 60  # that are drawn, at most
PAIR_COLUMNS = 40
PAIR_ROWS = 900  # of data, and as many samples
PAIR_NUMBERS = 60_000  # in the chart of pairs, at most: wide tables show fewer rows
LONGEST = 5_000  # characters of a text that are kept


@dataclass(frozen=True)
class Rows:
    """A table and what a model thinks of it.

    Args:
        source: where the rows come from, in words.
        names: of the columns.
        x: the rows, `(n, d)`; codes in columns of categories.
        energy: of each row, `(n,)`.
        samples: draws of the model, `(m, d)`.
        sample_energy: of each draw, `(m,)`.
        blame: which cells of the rows of these numbers are to blame, and what would be expected there.
        ids: columns that name a row.
        threshold: energy above which a row is an outlier, if there is one.
        counted: how much each row counted in training, from 0 to 1; NaN for rows that it did not see.
        ignored_below: rows that counted less than this are called ignored.
        found: what stands in a cell, by row and column; None: the number in `x`.
        levels: for columns of categories, by number, what the codes stand for.
    """

    source: str
    names: tuple[str, ...]
    x: Floats
    energy: Floats
    samples: Floats
    sample_energy: Floats
    blame: Callable[[NDArray[np.intp]], Blame]
    ids: dict[str, list[Any]] = field(default_factory=dict)
    threshold: float | None = None
    counted: Floats | None = None
    ignored_below: float = 0.1
    found: Callable[[int, int], object] | None = None
    levels: Mapping[int, Sequence[str]] = field(default_factory=dict)

    @property
    def numbers(self) -> list[int]:
        """The columns of numbers."""
        return [j for j in range(len(self.names)) if j not in self.levels]

    @property
    def outlier(self) -> NDArray[np.bool_]:
        """Which rows lie above the threshold; none without one."""
        return np.zeros(len(self.x), bool) if self.threshold is None else self.energy > self.threshold

    @property
    def ignored(self) -> NDArray[np.bool_]:
        """Which rows training ignored, as far as that is known."""
        return np.zeros(len(self.x), bool) if self.counted is None else self.counted < self.ignored_below

    def text(self, i: int, j: int) -> str:
        """What stands in a cell."""
        value = self.x[i, j] if self.found is None else self.found(i, j)
        return shown("missing" if value is None or value == "" else value)

    def label(self, i: int) -> str:
        """What names a row: its ids, or its number in the file."""
        return ", ".join(shown(values[i]) for values in self.ids.values())[:80] or f"row {i + 1}"


def sections(rows: Rows) -> tuple[Section, ...]:
    """All sections about a table.

    Args:
        rows: the table.

    Returns:
        Energies and strangest rows, columns, pairs of columns.
    """
    order = np.argsort(-rows.energy, kind="stable")
    blame = rows.blame(order[:STRANGEST])
    suspects = np.argsort(-blame.nats.clip(min=0).sum(0), kind="stable")
    found = [_energies(rows), _strangest(rows, order[:STRANGEST], blame), _columns(rows, suspects)]
    return (*found, _pairs(rows, order, suspects)) if len(rows.numbers) > 1 else tuple(found)


def _energies(rows: Rows) -> Section:
    about = (
        "Shares of rows by energy; the higher the energy, the stranger the row. The scale of shares is a square root."
    )
    if rows.threshold is not None:
        about += f" Rows above {rows.threshold:.4g} are called outliers."
    chart = Chart("Energies", charts.energies(rows.energy, rows.sample_energy, rows.threshold), about)
    facts = [("read from", rows.source), ("rows", f"{len(rows.x):,}"), ("columns", f"{len(rows.names):,}")]
    if rows.threshold is not None:
        n = int(rows.outlier.sum())
        facts.append(("outliers", f"{n:,} ({n / len(rows.x):.1%})"))
    if rows.counted is not None:
        facts.append(("ignored in training", f"{int(rows.ignored.sum()):,} rows"))
    return Section("Energies of rows", (Facts(tuple(facts)), Charts((chart,))))


def _strangest(rows: Rows, index: NDArray[np.intp], blame: Blame) -> Section:
    d = len(rows.names)
    table = StrangeRows(
        tuple(_strange_row(rows, int(i), blame.nats[k], blame.expected[k]) for k, i in enumerate(index)),
        tuple(rows.ids),
        columns_left_out=max(0, d - CELLS),
        has_threshold=rows.threshold is not None,
        has_counts=rows.counted is not None,
    )
    said = f"The {len(index):,} rows of highest energy" if len(index) < len(rows.x) else f"All {len(index):,} rows"
    lines = [
        f"{said}. Coloured cells are those to blame: the number behind the plus says how many nats of energy the row "
        "would lose if the cell had the value after the arrow, which the other columns suggest."
    ]
    blocks: list[Block] = [Text(tuple(lines)), table]
    if table.columns_left_out:
        blocks.append(Text((f"Of each row the {CELLS} cells most to blame are listed, of {d:,}.",)))
    return Section("The strangest rows", tuple(blocks))


def _strange_row(rows: Rows, i: int, nats: Floats, expected: Floats) -> StrangeRow:
    cells = tuple(
        Cell(
            rows.names[j], rows.text(i, int(j)), shown(expected[j], 4) if nats[j] > 0 else "", round(float(nats[j]), 2)
        )
        for j in np.argsort(-nats, kind="stable")[:CELLS]
    )
    counted = None if rows.counted is None or np.isnan(rows.counted[i]) else round(float(rows.counted[i]), 3)
    ids = tuple(shown(values[i]) for values in rows.ids.values())
    energy = round(float(rows.energy[i]), 2)
    return StrangeRow(i + 1, ids, energy, bool(rows.outlier[i]), counted, bool(rows.ignored[i]), cells)


def shown(value: object, digits: int = 6) -> str:
    """A value as a table shows it.

    Args:
        value: a number or a text.
        digits: significant ones of a number.

    Returns:
        A text, which is not endless.

    >>> shown(3.14159265), shown("a"), shown(2.0), shown(float("nan"))
    ('3.14159', 'a', '2', 'missing')
    """
    if isinstance(value, float | np.floating):
        return "missing" if np.isnan(value) else f"{value:.{digits}g}"
    text = str(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ... ({len(text):,} characters)"


def _columns(rows: Rows, suspects: NDArray[np.intp]) -> Section:
    drawn = sorted(suspects[:COLUMNS].tolist())
    lines = ["Bars: data. Line: samples of the model, which show what it expects of a column."]
    if len(drawn) < len(rows.names):
        lines.append(f"The {len(drawn)} columns most to blame for strange rows are drawn, of {len(rows.names):,}.")
    made = [_column(rows, j) for j in drawn]
    return Section("Columns", (Text(tuple(lines)), Charts(tuple(made), small=True)))


def _column(rows: Rows, j: int) -> Chart:
    if j in rows.levels:
        return _categories(rows, j)
    values, drawn = (v[np.isfinite(v)] for v in (rows.x[:, j], rows.samples[:, j]))
    if not len(values):
        values = np.zeros(1)
    low, high = charts.bulk(values)
    outside = values[(values < low) | (values > high)]
    about = f"median {np.median(values):.4g}, samples {np.median(drawn):.4g}"
    if len(outside):
        ends = " to ".join(dict.fromkeys(f"{v:.4g}" for v in (outside.min(), outside.max())))
        about += f"; {len(outside):,} {'row' if len(outside) == 1 else 'rows'} beyond: {ends}"
    return Chart(rows.names[j], charts.column(values, drawn), about)


def _categories(rows: Rows, j: int) -> Chart:
    levels = rows.levels[j]
    shares = []
    for codes in (rows.x[:, j], rows.samples[:, j]):
        there = codes[np.isfinite(codes)].astype(int)
        shares.append(np.bincount(there, minlength=len(levels)) / max(1, len(there)))
    missing = int(np.isnan(rows.x[:, j]).sum())
    about = f"{len(levels)} values" + (f", {missing:,} rows without" if missing else "")
    return Chart(rows.names[j], charts.categories([shown(level) for level in levels], shares[0], shares[1]), about)


def _pairs(rows: Rows, order: NDArray[np.intp], suspects: NDArray[np.intp]) -> Section:
    suspects = suspects[np.isin(suspects, rows.numbers)]
    columns = sorted(suspects[:PAIR_COLUMNS].tolist())
    most = min(PAIR_ROWS, PAIR_NUMBERS // (2 * len(columns)))
    data = _some(order, rows, most)
    samples = rows.samples[:most]
    points = [  # the first are drawn below the others
        {"of": "samples", "v": charts.short(row[columns], 4), "name": "a sample", "energy": round(float(e), 2)}
        for row, e in zip(samples, rows.sample_energy, strict=False)
    ]
    points += [
        {
            "of": "outliers" if rows.outlier[i] else "data",
            "v": charts.short(rows.x[i, columns], 5),
            "name": rows.label(int(i)),
            "energy": round(float(rows.energy[i]), 2),
        }
        for i in data
    ]
    first, second = (columns.index(j) for j in sorted(suspects[:2].tolist(), key=suspects.tolist().index))
    windows = [charts.short(np.array(charts.bulk(rows.x[np.isfinite(rows.x[:, j]), j], 0.3))) for j in columns]
    said = f"{len(data):,} of {len(rows.x):,} rows" if len(data) < len(rows.x) else f"all {len(rows.x):,} rows"
    said += ", the strangest among them," if len(data) < len(rows.x) else ""
    about = f"Drawn are {said} and {len(samples):,} samples."
    if len(columns) < len(rows.names):
        about += f" The {len(columns)} columns most to blame can be chosen, of {len(rows.names):,}."
    far = any(charts.is_far(rows.x[np.isfinite(rows.x[:, j]), j]) for j in (columns[first], columns[second]))
    options = {"across": first, "up": second, "windows": windows, "bulk": far}
    chart = Chart("Two columns", charts.pairs(points), about, options)
    return Section("Pairs of columns", (Pairs(chart, tuple(rows.names[j] for j in columns)),))


def _some(order: NDArray[np.intp], rows: Rows, most: int) -> Sequence[np.intp]:
    """The strangest rows and others evenly over the energies; the strangest last, to be drawn on top."""
    if len(order) <= most:
        return list(order[::-1])
    top = order[: most // 4]
    rest = order[most // 4 :]
    spaced = rest[np.linspace(0, len(rest) - 1, most - len(top)).astype(int)]
    return [*spaced[::-1], *top[::-1]]
