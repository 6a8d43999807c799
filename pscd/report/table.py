"""The sections about a table: energies, rows of highest energy and columns."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pscd.report import charts
from pscd.report.blocks import Block, Cell, Chart, RankedRows, Row, Section, Table, Text
from pscd.report.cells import CellCosts
from pscd.report.columns import DrawnColumn, shown

Floats = NDArray[np.float64]
Index = NDArray[np.intp]


@dataclass(frozen=True)
class Limits:
    """How much a page shows; more would make it slow to open, and tedious to read."""

    rows: int = 200  # of highest energy, in the table
    cells: int = 60  # of a row, those of highest cost
    listed_cells: int = 30  # wrong and missing ones, in the table
    columns: int = 60  # with a chart
    words: int = 8  # of a column
    characters: int = 60  # of a cell in a table of text
    drawn_rows: int = 20_000  # of a large table, which columns are drawn from
    samples: int = 2_000  # of the model, which rows are compared with
    low_weight: float = 0.1  # rows of less weight had nearly no influence


LIMITS = Limits()


@dataclass(frozen=True)
class ScoredTable:
    """A table with the energies of a model."""

    source: str  # where the rows come from, in words
    energy: Floats  # of all n rows that have one
    sample_energy: Floats  # of samples of the model
    number: Index  # of the m drawn rows, from 0 in their file, by falling energy
    drawn_energy: Floats  # of these rows
    columns: tuple[DrawnColumn, ...]  # values `(m,)` of the drawn rows and of the samples
    costs: Callable[[int], CellCosts]  # of the cells of the first k drawn rows
    ids: dict[str, list[Any]] = field(default_factory=dict)  # columns that name a row, `(m,)` each
    threshold: float | None = None  # energy above which a row is an outlier, if there is one
    weight: Floats | None = None  # of the drawn rows in training, from 0 to 1; NaN: not in training

    def is_outlier(self, energy: Floats) -> NDArray[np.bool_]:
        """Which energies lie above the threshold; none without one."""
        return np.zeros(len(energy), bool) if self.threshold is None else energy > self.threshold

    def label(self, k: int) -> str:
        """The ids of a drawn row, or its number in the file."""
        return ", ".join(shown(values[k]) for values in self.ids.values())[:80] or f"row {self.number[k]}"


def rows_missing(reason: str) -> Section:
    """A section that says why no rows are shown."""
    return Section("Rows", (Text((f"Rows are not shown: {reason}.",), "warning"),))


def sections(table: ScoredTable, limits: Limits = LIMITS) -> tuple[Section, ...]:
    """All sections about a table; columns of high cost in the rows of highest energy come first."""
    costs = table.costs(min(limits.rows, len(table.number)))
    order = np.argsort(-costs.cost.clip(min=0).sum(0), kind="stable").tolist()
    return (_energies(table), _top_rows(table, costs, limits), _columns(table, order, limits))


def _energies(table: ScoredTable) -> Section:
    n = len(table.energy)
    facts = [("rows", f"{n:,}"), ("columns", f"{len(table.columns):,}")]
    about = (
        "Higher energy = more anomalous. Samples show which energies the model expects. The axis of shares is a root."
    )
    if table.threshold is not None:
        outliers = int(table.is_outlier(table.energy).sum())
        facts.append(("outliers", f"{outliers:,} ({outliers / n:.1%})"))
        about += f" Rows above {table.threshold:.4g} are outliers."
    spec = charts.energies(table.energy, table.sample_energy, table.threshold)
    lines = Text((f"Rows: {table.source}.",))
    return Section("Energies", (lines, Table((), tuple(facts)), Chart("Energies of rows", spec, about, is_wide=True)))


def _top_rows(table: ScoredTable, costs: CellCosts, limits: Limits) -> Section:
    n, d = costs.cost.shape
    energy = table.drawn_energy[:n]
    outlier = table.is_outlier(energy)
    rows = []
    for k in range(n):
        weight = None if table.weight is None or np.isnan(table.weight[k]) else round(float(table.weight[k]), 3)
        cells = []
        for j in np.argsort(-costs.cost[k], kind="stable")[: limits.cells].tolist():
            column, suggestion = table.columns[j], costs.suggestion[k, j]
            text = "" if suggestion is None else column.text(suggestion, 4)
            cells.append(Cell(column.name, column.text(costs.value[k, j]), round(float(costs.cost[k, j]), 2), text))
        ids = tuple(shown(values[k]) for values in table.ids.values())
        number = int(table.number[k])
        rows.append(Row(number, ids, round(float(energy[k]), 2), bool(outlier[k]), weight, tuple(cells)))
    how_many = f"All {n:,} rows" if n == len(table.energy) else f"The {n:,} rows of highest energy"
    lines = [
        f"{how_many}. The number after a cell is its cost: how much less likely it is than the best value given the "
        "other cells, in nats (4.6 nats: 100 times). An arrow points to the suggested value."
    ]
    if d > limits.cells:
        lines.append(f"Of each row the {limits.cells} cells of highest cost are listed, of {d:,}.")
    has_weights = table.weight is not None and bool(np.nanmin(table.weight) < 1)
    if has_weights:
        lines.append("Weight: the weight of the row in training, from 0 to 1.")
    block = RankedRows(tuple(rows), tuple(table.ids), table.threshold is not None, has_weights)
    return Section("Rows with the highest energy", (Text(tuple(lines)), block))


def _columns(table: ScoredTable, order: list[int], limits: Limits) -> Section:
    drawn = sorted(order[: limits.columns])
    lines = ["Blue: data. Orange: samples of the model."]
    if len(table.number) < len(table.energy):
        lines.append(f"Drawn from {len(table.number):,} of {len(table.energy):,} rows.")
    if len(drawn) < len(table.columns):
        lines.append(f"The {len(drawn)} columns of highest cost are drawn, of {len(table.columns):,}.")
    columns = [table.columns[j] for j in drawn]
    made = [_numbers(column, limits) if column.is_number else _words(column, limits) for column in columns]
    return Section("Columns", (Text((" ".join(lines),)), *made))


def _numbers(column: DrawnColumn, limits: Limits) -> Chart:
    values, samples = (v[np.isfinite(v)] for v in (column.values, column.samples))
    if not len(values) or not len(samples):
        return _words(replace(column, values=np.array([None]), samples=np.array([None])), limits)
    low, high = charts.bulk(values)
    below, above = values[values < low], values[values > high]
    about = f"median {column.number(np.median(values))}, of samples {column.number(np.median(samples))}"
    ends = [f"down to {column.number(below.min())}"] if len(below) else []
    ends += [f"up to {column.number(above.max())}"] if len(above) else []
    if ends:
        about += f"; {_rows(len(below) + len(above))} outside the chart, {' and '.join(ends)}"
    about += _without(len(column.values) - len(values), "a date" if column.is_date else "a number")
    return Chart(column.name, charts.column(values, samples, is_date=column.is_date), about)


def _words(column: DrawnColumn, limits: Limits) -> Chart:
    """The most frequent words of a column, and all others together."""
    counts, drawn = (Counter(v for v in part if v is not None) for part in (column.values, column.samples))
    n, m = max(1, counts.total()), max(1, drawn.total())
    common = [word for word, _ in counts.most_common(limits.words)]
    shares = [(str(word)[:40], counts[word] / n, drawn[word] / m) for word in common]
    n_others = len(counts.keys() | drawn.keys()) - len(common)
    if n_others:
        other_data = max(0.0, 1 - sum(share for _, share, _ in shares)) if counts else 0.0
        other_samples = max(0.0, 1 - sum(share for _, _, share in shares)) if drawn else 0.0
        shares.append((f"{n_others:,} more", other_data, other_samples))
    about = f"{len(counts):,} different {'value' if len(counts) == 1 else 'values'}"
    return Chart(column.name, charts.words(shares), about + _without(len(column.values) - counts.total(), "a value"))


def _without(n: int, what: str) -> str:
    return f"; {_rows(n)} without {what}" if n else ""


def _rows(n: int) -> str:
    return f"{n:,} {'row' if n == 1 else 'rows'}"


def cells_section(cells: Any, table: ScoredTable, limits: Limits = LIMITS) -> Section:
    """The wrong and missing cells of the drawn rows, as `detector.cells` lists them."""
    n_cells, missing = len(table.number) * len(table.columns), int((cells["problem"] == "missing").sum())
    line = f"{len(cells) - missing:,} of {n_cells:,} cells look wrong, {missing:,} are missing."
    title = "Wrong and missing cells"
    if not len(cells):
        return Section(title, (Text((line,), "good"),))
    by_name = {column.name: column for column in table.columns}
    rows = []
    for cell in cells.head(limits.listed_cells).to_dict("records"):
        text = by_name[cell["column"]].text
        ends = [shown(cell[end], 4) for end in ("low", "high")]
        rows.append(
            (
                table.label(int(cell["row"])),
                str(cell["column"]),
                text(cell["value"])[: limits.characters],
                str(cell["problem"]),
                text(cell["suggestion"], 4)[: limits.characters],
                "" if shown(None) in ends else " to ".join(ends),
                f"{cell['confidence']:.2f}" if cell["problem"] == "wrong" else "",
            )
        )
    blocks: list[Block] = [Text((f"{line} The first {len(rows)}:" if len(rows) < len(cells) else line,))]
    blocks.append(Table(("row", "column", "value", "problem", "suggestion", "likely range", "confidence"), tuple(rows)))
    return Section(title, tuple(blocks))
