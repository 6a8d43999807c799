"""The sections about a table: energies, the strangest rows, columns and pairs of columns."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pscd.report import charts
from pscd.report.blocks import Block, Cell, Chart, Charts, Facts, Pairs, Section, StrangeRow, StrangeRows, Text
from pscd.report.cells import Blame
from pscd.report.columns import MISSING, DrawnColumn, shown

Floats = NDArray[np.float64]
Index = NDArray[np.intp]

STRANGEST = 200  # rows in the table, at most
CELLS = 60  # of a row, those to blame most
COLUMNS = 60  # that are drawn, at most
PAIR_COLUMNS = 40
PAIR_ROWS = 900  # of data, and as many samples
PAIR_NUMBERS = 60_000  # in the chart of pairs, at most: wide tables show fewer rows
WORDS, LABEL = 8, 40  # of a column that are drawn, and characters of each


@dataclass(frozen=True)
class Rows:
    """A table and what a model thinks of it.

    Args:
        source: where the rows come from, in words.
        columns: those that were learnt from, of rows and of samples.
        energy: of each row, `(n,)`.
        sample_energy: of each draw, `(m,)`.
        blame: which cells of the rows of some numbers are to blame, and what would be expected there.
        ids: columns that name a row.
        threshold: energy above which a row is an outlier, if there is one.
        counted: how much each row counted in training, from 0 to 1; NaN for rows that it did not see.
        ignored_below: rows that counted less than this are called ignored.
    """

    source: str
    columns: tuple[DrawnColumn, ...]
    energy: Floats
    sample_energy: Floats
    blame: Callable[[Index], Blame]
    ids: dict[str, list[Any]] = field(default_factory=dict)
    threshold: float | None = None
    counted: Floats | None = None
    ignored_below: float = 0.1

    def __len__(self) -> int:
        return len(self.energy)

    @property
    def outlier(self) -> NDArray[np.bool_]:
        """Which rows lie above the threshold; none without one."""
        return np.zeros(len(self), bool) if self.threshold is None else self.energy > self.threshold

    @property
    def ignored(self) -> NDArray[np.bool_]:
        """Which rows training ignored, as far as that is known."""
        return np.zeros(len(self), bool) if self.counted is None else self.counted < self.ignored_below

    @property
    def counts_differ(self) -> bool:
        """Whether some rows are known to have counted less than others."""
        return self.counted is not None and bool(np.nanmin(self.counted) < 1)

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
    suspects = np.argsort(-blame.nats.clip(min=0).sum(0), kind="stable").tolist()
    found = [_energies(rows), _strangest(rows, order[:STRANGEST], blame), _columns(rows, suspects)]
    numbers = [j for j in suspects if rows.columns[j].is_number]
    return (*found, _pairs(rows, order, numbers)) if len(numbers) > 1 else tuple(found)


def _energies(rows: Rows) -> Section:
    about = (
        "The higher the energy, the stranger the row. Samples of the model show which energies it finds normal. "
        "Small shares are drawn larger than to scale, by a square root."
    )
    if rows.threshold is not None:
        about += f" Rows above {rows.threshold:.4g} are called outliers."
    chart = Chart("Energies", charts.energies(rows.energy, rows.sample_energy, rows.threshold), about)
    facts = [("rows", f"{len(rows):,}"), ("columns", f"{len(rows.columns):,}")]
    if rows.threshold is not None:
        n = int(rows.outlier.sum())
        facts.append(("outliers", f"{n:,} ({n / len(rows):.1%})"))
    if rows.counts_differ:
        facts.append(("ignored in training", f"{int(rows.ignored.sum()):,} rows"))
    return Section("Energies of rows", (Text((f"Read from {rows.source}.",)), Facts(tuple(facts)), Charts((chart,))))


def _strangest(rows: Rows, index: Index, blame: Blame) -> Section:
    d = len(rows.columns)
    table = StrangeRows(
        tuple(_strange_row(rows, int(i), k, blame) for k, i in enumerate(index)),
        tuple(rows.ids),
        columns_left_out=max(0, d - CELLS),
        has_threshold=rows.threshold is not None,
        has_counts=rows.counts_differ,
    )
    said = f"The {len(index):,} rows of highest energy" if len(index) < len(rows) else f"All {len(index):,} rows"
    lines = [
        f"{said}. Cells to blame are coloured: the arrow points to the value that the other columns suggest, and the "
        "number after the plus says how much less likely the cell is than that value, in nats (4.6 nats: 100 times)."
    ]
    if table.has_counts:
        lines.append("Counted: the weight of the row in training, from 0 (ignored) to 1.")
    blocks: list[Block] = [Text(tuple(lines)), table]
    if table.columns_left_out:
        blocks.append(Text((f"Of each row the {CELLS} cells most to blame are listed, of {d:,}.",)))
    return Section("The strangest rows", tuple(blocks))


def _strange_row(rows: Rows, i: int, k: int, blame: Blame) -> StrangeRow:
    """Row number i of the table, which is number k of the strange ones."""
    cells = []
    for j in np.argsort(-blame.nats[k], kind="stable")[:CELLS].tolist():
        nats, found = float(blame.nats[k, j]), rows.columns[j].text(blame.found[k, j])
        expected = rows.columns[j].text(blame.expected[k, j], 4) if nats >= 0.05 or found == MISSING else ""
        cells.append(Cell(rows.columns[j].name, found, expected, round(nats, 2), blame.said[k, j] or ""))
    counted = None if rows.counted is None or np.isnan(rows.counted[i]) else round(float(rows.counted[i]), 3)
    ids = tuple(shown(values[i]) for values in rows.ids.values())
    energy = round(float(rows.energy[i]), 2)
    return StrangeRow(i + 1, ids, energy, bool(rows.outlier[i]), counted, bool(rows.ignored[i]), tuple(cells))


def _columns(rows: Rows, suspects: list[int]) -> Section:
    drawn = sorted(suspects[:COLUMNS])
    lines = ["Bars: data. Line: samples of the model, which show what it expects of a column."]
    if any(not rows.columns[j].is_number for j in drawn):
        lines = ["Blue: data. Orange: samples of the model, which show what it expects of a column."]
    if len(drawn) < len(rows.columns):
        lines.append(f"The {len(drawn)} columns most to blame for strange rows are drawn, of {len(rows.columns):,}.")
    made = [_numbers(rows.columns[j]) if rows.columns[j].is_number else _words(rows.columns[j]) for j in drawn]
    return Section("Columns", (Text(tuple(lines)), Charts(tuple(made), small=True)))


def _numbers(column: DrawnColumn) -> Chart:
    values, drawn = (v[np.isfinite(v)] for v in (column.values, column.samples))
    if not len(values) or not len(drawn):
        return _words(replace(column, values=np.array([None]), samples=np.array([None])))
    low, high = charts.bulk(values)
    below, above = values[values < low], values[values > high]
    about = f"median {column.number(np.median(values))}, of samples {column.number(np.median(drawn))}"
    ends = [f"down to {column.number(below.min())}"] if len(below) else []
    ends += [f"up to {column.number(above.max())}"] if len(above) else []
    if ends:
        n = len(below) + len(above)
        about += f"; {n:,} {'row' if n == 1 else 'rows'} outside the chart, {' and '.join(ends)}"
    return Chart(
        column.name,
        charts.column(values, drawn, years=column.is_date),
        about + _without(len(column.values) - len(values), "a date" if column.is_date else "a number"),
    )


def _words(column: DrawnColumn) -> Chart:
    """The commonest words of a column, and all others together."""
    counts, drawn = (Counter(v for v in part if v is not None) for part in (column.values, column.samples))
    n, m = max(1, counts.total()), max(1, drawn.total())
    common = [word for word, _ in counts.most_common(WORDS)]
    shares = [(str(word)[:LABEL], counts[word] / n, drawn[word] / m) for word in common]
    rest = len(counts.keys() | drawn.keys()) - len(common)
    if rest:
        others = (1 - sum(share for _, share, _ in shares), 1 - sum(share for _, _, share in shares))
        shares.append((f"{rest:,} more", max(0.0, others[0]) * bool(counts), max(0.0, others[1]) * bool(drawn)))
    about = f"{len(counts):,} different {'value' if len(counts) == 1 else 'values'}"
    about += _without(len(column.values) - counts.total(), "a value")
    return Chart(column.name, charts.words(shares), about)


def _without(n: int, what: str) -> str:
    return f"; {n:,} {'row' if n == 1 else 'rows'} without {what}" if n else ""


def _pairs(rows: Rows, order: Index, numbers: list[int]) -> Section:
    """Two columns of numbers, those most to blame at first."""
    columns = sorted(numbers[:PAIR_COLUMNS])
    most = min(PAIR_ROWS, PAIR_NUMBERS // (2 * len(columns)))
    data = _some(order, most)
    x, samples = (
        np.stack([part[at] for part in parts], 1)
        for parts, at in (
            ([rows.columns[j].values for j in columns], data),
            ([rows.columns[j].samples for j in columns], slice(most)),
        )
    )
    dates = [k for k, j in enumerate(columns) if rows.columns[j].is_date]
    points = [  # the first are drawn below the others
        {"of": "samples", "v": _rounded(row, dates), "name": "a sample", "energy": round(float(e), 2)}
        for row, e in zip(samples, rows.sample_energy, strict=False)
    ]
    points += [
        {
            "of": "outliers" if rows.outlier[i] else "data",
            "v": _rounded(row, dates),
            "name": rows.label(int(i)),
            "energy": round(float(rows.energy[i]), 2),
        }
        for i, row in zip(data, x, strict=True)
    ]
    first, second = (columns.index(j) for j in numbers[:2])
    finite = [v[np.isfinite(v)] for v in (rows.columns[j].values for j in columns)]
    finite = [v if len(v) else np.zeros(1) for v in finite]
    windows = [charts.short(np.array(charts.bulk(v, 0.3)), 7) for v in finite]
    said = f"{len(data):,} of {len(rows):,} rows, the strangest among them," if len(data) < len(rows) else ""
    about = f"Drawn are {said or f'all {len(rows):,} rows'} and {len(samples):,} samples."
    if len(columns) < len(numbers):
        about += f" The {len(columns)} columns of numbers most to blame can be chosen, of {len(numbers):,}."
    far = any(charts.is_far(finite[k]) for k in (first, second))
    options = {"across": first, "up": second, "windows": windows, "bulk": far, "dates": dates}
    chart = Chart("Two columns", charts.pairs(points), about, options)
    return Section("Pairs of columns", (Pairs(chart, tuple(rows.columns[j].name for j in columns)),))


def _rounded(row: Floats, dates: list[int]) -> list[float | None]:
    """The values of a point; those of dates to the day, of which a year has many."""
    values = charts.short(row, 5)
    for k in dates:
        values[k] = round(float(row[k]), 3) if np.isfinite(row[k]) else None
    return values


def _some(order: Index, most: int) -> Index:
    """The strangest rows and others evenly over the energies; the strangest last, to be drawn on top."""
    if len(order) <= most:
        return order[::-1]
    top, rest = order[: most // 4], order[most // 4 :]
    spaced = rest[np.linspace(0, len(rest) - 1, most - len(top)).astype(int)]
    return np.concatenate([spaced[::-1], top[::-1]])
