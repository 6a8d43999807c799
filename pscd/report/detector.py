"""The page of a detector of `pscd detect`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pscd.errors import UserError
from pscd.files import read_json
from pscd.report import table as tables
from pscd.report.blocks import Block, Page, Section, Table, Text
from pscd.report.cells import costs_by_detector
from pscd.report.columns import column
from pscd.report.pictures import pictures_sections
from pscd.report.training import versions
from pscd.run_folder import RunFolder
from pscd.tables import ReadOptions, TableFile, open_table

if TYPE_CHECKING:
    from pscd.detector.estimator import EnergyDetector
    from pscd.detector.reading import Reader


def detector_page(folder: RunFolder, data: Path | None, ids: tuple[str, ...] | None, seed: int) -> Page:
    """The page of a detector, with the rows of the training or of another file."""
    from pscd.detector.estimator import EnergyDetector

    detector = EnergyDetector.load(folder.path)
    source: dict[str, Any] = read_json(folder.source) if folder.source.is_file() else {}
    has_pictures = source.get("kind") == "pictures"
    if has_pictures and data is not None:
        raise UserError(f"{folder.path}: this report shows the pictures that the detector was fitted to, no other data")
    sections: list[Section]
    lines: list[str] = []
    if has_pictures:
        finding, sections = pictures_sections(folder, source)
        lines.append(finding)
    else:
        try:
            table, cells = _table(detector, source, data, ids, seed)
        except _NoRows as error:
            sections = [tables.rows_missing(str(error))]
        else:
            outliers, missing = int(table.is_outlier(table.energy).sum()), int((cells["problem"] == "missing").sum())
            lines.append(
                f"{outliers:,} of {len(table.energy):,} rows are outliers; of the cells of {len(table.number):,} rows, "
                f"{len(cells) - missing:,} look wrong and {missing:,} are missing."
            )
            energies, rows, *others = tables.sections(table)
            sections = [energies, rows, tables.cells_section(cells, table), *others]
    weight = detector.sample_weight_
    low, unit = int((weight < tables.LIMITS.low_weight).sum()), "pictures" if has_pictures else "rows"
    robust = f"weight below {tables.LIMITS.low_weight:g}"
    facts = (
        (f"{unit} fitted", f"{detector.n_rows_:,}"),
        ("gamma", f"{detector.gamma:.3g}"),
        ("estimated contamination", f"{detector.contamination_:.1%}"),
        (robust, f"{low:,} {unit}"),
        ("threshold", f"energy {-detector.offset_:.4g}"),
    )
    blocks: list[Block] = [Text(tuple(lines))] if lines else []
    parameters = tuple((name, str(value)) for name, value in detector.get_params().items() if name != "verbose")
    settings = Section("Settings", (Table(("parameter", "value"), parameters, summary="All parameters"), versions()))
    sections = [Section("Findings", (*blocks, Table((), facts))), *sections, settings]
    return Page("/".join(folder.path.resolve().parts[-2:]), "Outlier detector", tuple(sections))


class _NoRows(Exception):
    """The rows of the training cannot be shown."""


def _table(
    detector: "EnergyDetector", source: dict[str, Any], data: Path | None, ids: tuple[str, ...] | None, seed: int
) -> tuple[tables.ScoredTable, pd.DataFrame]:
    """The rows to show, scored block by block, and the wrong and missing cells of those that are drawn."""
    if data is None and "data" not in source:
        raise _NoRows("the detector does not know its file; give a file of rows")
    path = data or Path(source["data"])
    if data is None and not path.exists():
        raise _NoRows(f"{path} does not exist any more; give a file of rows")
    options = ReadOptions(**{name: _as_option(value) for name, value in source.get("reading", {}).items()})
    file = open_table(path, options)
    is_same = file.fingerprint() == source.get("fingerprint")
    if data is None and not is_same:
        raise _NoRows(f"{path} has changed since the detector was fitted; give a file of rows")
    # The ids of the training are shown where the table has them; those that the caller names must exist.
    id_names = tuple(name for name in source.get("ids", ()) if name in file.names) if ids is None else ids
    for name in id_names:
        if name not in file.names:
            raise UserError(f"{path}: there is no column {name!r} to name the rows")
    reader = detector.reader_for(file)
    energy, frame = _scored(detector, reader, file)
    frame, number = frame.reset_index(drop=True), frame.index.to_numpy()
    names, rows = [learnt.name for learnt in reader.schema.learnt()], reader.read(frame)
    drawn = detector.sample(tables.LIMITS.samples, seed=seed)
    samples = pd.DataFrame(np.asarray(drawn, dtype=object), columns=names)
    values = dict(zip(reader.schema.names, reader.values(rows.x), strict=True))
    weight = detector.sample_weight_
    cells = detector.cells(rows)
    table = tables.ScoredTable(
        f"{path}" if is_same else f"{path}, not those of the training",
        energy,
        -detector.score_samples(drawn),
        number,
        energy[number],
        tuple(column(name, values[name], samples[name].tolist()) for name in names),
        lambda n: costs_by_detector(detector.explain(rows.take(np.arange(n)))[names], frame[:n], cells),
        {name: frame[name].tolist() for name in id_names},
        -float(detector.offset_),
        weight[number] if is_same and len(energy) == len(weight) else None,
    )
    return table, cells


def _as_option(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _scored(detector: "EnergyDetector", reader: "Reader", file: TableFile) -> tuple[np.ndarray, pd.DataFrame]:
    """All energies, and rows to draw by falling energy, indexed by their number: the highest and evenly spaced ones."""
    limits = tables.LIMITS
    energies, parts, start = [], [], 0
    stride = max(1, -(-file.n_rows_estimate // limits.drawn_rows))
    for block in file.blocks():
        energy = -detector.score_samples(reader.read(block))
        number = np.arange(start, start + len(block))
        chosen = np.zeros(len(block), bool)
        chosen[np.argsort(-energy, kind="stable")[: limits.rows]] = True
        parts.append(block[chosen | (number % stride == 0)].set_axis(number[chosen | (number % stride == 0)], axis=0))
        energies.append(energy)
        start += len(block)
    every = np.concatenate(energies)
    frame = pd.concat(parts)
    order = np.argsort(-every[frame.index], kind="stable")
    highest, others = order[: limits.rows], order[limits.rows :]
    others = others[frame.index[others] % stride == 0]
    return every, frame.iloc[np.concatenate([highest, others])]
