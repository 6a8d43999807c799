"""The page of a run of `pscd.train`."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from pscd.config import NotLoaded, TrainConfig
from pscd.data import rows_of
from pscd.errors import UserError
from pscd.evaluation import load_run_data
from pscd.files import read_json, read_tensors, unsealed
from pscd.model import Model
from pscd.objectives import name_of
from pscd.report import table as tables
from pscd.report.blocks import Page, Section, Table
from pscd.report.cells import CellCosts, costs_by_model
from pscd.report.columns import DrawnColumn, column
from pscd.report.pictures import images_sections
from pscd.report.plane import plane_section
from pscd.report.training import evaluation_blocks, findings_blocks, settings_section, training_section
from pscd.run_folder import RunFolder
from pscd.runs import load_run
from pscd.tables import TableFile, open_table
from pscd.training.loop import last_step


def run_page(folder: RunFolder, data: Path | None, ids: tuple[str, ...] | None, seed: int) -> Page:
    """The page of a run folder, finished or not, with the rows of the training or of another file."""
    config, fingerprint = _config(folder)
    log = folder.read_metrics()
    step = int(log[-1]["step"]) if log else 0
    model, problem = _model(folder)
    has_model = folder.model.is_file() and model is not None
    updates = int(read_tensors(folder.model)[1]["step"]) if has_model else step
    facts = (
        ("state", _state(config, max(step, updates), folder.model.is_file())),
        ("updates", _updates(config, step, updates)),
        ("objective", name_of(config.objective) or _name(config.objective)),
        ("gamma", _gamma(config if model is None else model.config)),
        ("energy", config.energy.name),
        ("sampler", _name(config.sampler)),
    )
    findings = findings_blocks(log, model.notes if model is not None else ())
    sections = [
        Section("Findings", (*findings, Table((), facts), *evaluation_blocks(folder))),
        training_section(log),
        *([tables.rows_missing(problem)] if model is None else _data_sections(model, config, data, ids, seed)),
        settings_section(config, fingerprint),
    ]
    return Page("/".join(folder.path.resolve().parts[-2:]), "Training run", tuple(sections))


def _config(folder: RunFolder) -> tuple[TrainConfig, str | None]:
    """The configuration in a run folder, and the fingerprint of the data."""
    try:
        values = unsealed(dict(read_json(folder.config)))
        fingerprint = values.pop("fingerprint", None)
        return TrainConfig.from_dict(values), fingerprint
    except (KeyError, TypeError, AttributeError, ValueError):
        raise UserError(f"{folder.config}: damaged, or of another version of pscd") from None


def _model(folder: RunFolder) -> tuple[Model | None, str]:
    """The model of a run or of its last checkpoint, or why there is none."""
    if not any(path.is_file() for path in (folder.model, folder.state, folder.previous_state)):
        return None, "the run has no model yet; train into the same folder to resume it"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the page says that training was stopped
            return load_run(folder.path), ""
    except UserError as error:
        return None, str(error)


def _state(config: TrainConfig, updates: int, has_model: bool) -> str:
    if not has_model:
        return "not finished"
    return "finished" if updates >= last_step(config) else "diverged"


def _updates(config: TrainConfig, step: int, updates: int) -> str:
    """Updates in the log and of the model; a run that early stopping ended has more of the second."""
    if config.rows.idle_updates and 0 < step < updates:
        return f"{step:,} of at most {config.updates:,}: stopped early, no gain in {config.rows.idle_updates:,} updates"
    return f"{max(step, updates):,} of {config.updates:,}"


def _name(part: Any) -> str:
    return str(getattr(part, "kind", type(part).__name__))


def _gamma(config: TrainConfig) -> str:
    gamma = "unknown" if isinstance(config.objective, NotLoaded) else config.objective.gamma
    return gamma if isinstance(gamma, str) else f"{gamma:g}"


def _data_sections(
    model: Model, config: TrainConfig, data: Path | None, ids: tuple[str, ...] | None, seed: int
) -> list[Section]:
    """The sections about data and samples."""
    if model.is_image:
        return list(images_sections(model, seed=seed))
    if len(model.shape) != 1:
        return [tables.rows_missing("they are neither a table nor images")]
    names = model.columns or tuple(f"x{j}" for j in range(model.shape[0]))
    samples = model.sample(tables.LIMITS.samples, seed=seed).numpy()
    x, problem = None, ""
    try:
        x, table_ids, source = _rows(model, config, data, ids)
    except UserError as error:
        if data is not None:
            raise
        problem = f"{error}; give a file of rows"
    complete = None if x is None else np.flatnonzero(~np.isnan(x).any(1))  # other rows have no energy
    plane = [plane_section(model, None if x is None else x[complete], samples, names)] if len(names) == 2 else []
    if x is None or complete is None:
        return [*plane, tables.rows_missing(problem)]
    if len(complete) < len(x):
        source += f"; {len(x) - len(complete):,} rows with missing values are left out"
    energy = model.energy(torch.from_numpy(x[complete])).double().numpy()
    order = np.argsort(-energy, kind="stable")
    number = complete[order]
    values = x[number]
    parts = () if model.schema is None else model.schema.parts
    dates = [j for j, part in enumerate(parts) if part.role == "days"]

    def costs(n: int) -> CellCosts:
        cells = costs_by_model(model, values[:n], samples)
        for j in dates:
            for part in (cells.value, cells.suggestion):
                part[:, j] = _as_dates(part[:, j])
        return cells

    table = tables.ScoredTable(
        source,
        energy,
        model.energy(samples).double().numpy(),
        number,
        energy[order],
        tuple(
            column(name, _as_dates(values[:, j]), _as_dates(samples[:, j]))
            if j in dates
            else DrawnColumn(name, values[:, j], samples[:, j])
            for j, name in enumerate(names)
        ),
        costs,
        {name: [ids_of[i] for i in number] for name, ids_of in table_ids.items()},
    )
    return [*plane, *tables.sections(table)]


def _as_dates(days: Any) -> list[Any]:
    """Days since 1970 as dates; None for what is missing or beyond the calendar."""
    dates = pd.to_datetime(pd.Series(days, dtype=float), unit="D", errors="coerce")
    return [None if pd.isna(date) else date for date in dates]


def _rows(
    model: Model, config: TrainConfig, data: Path | None, ids: tuple[str, ...] | None
) -> tuple[np.ndarray, dict[str, list[Any]], str]:
    """The rows to show in the order of their file, the columns that name them, and where they come from."""
    if data is not None:
        table = open_table(data)
        x = rows_of(table, model.columns, ids or (), model.schema)
        if tuple(x.shape[1:]) != model.shape:
            raise UserError(f"{data}: rows of {tuple(x.shape[1:])}, trained on {model.shape}")
        return x.double().numpy(), _ids(table, ids), f"{data}, given for this report"
    rows = load_run_data(model)
    x, source, table_ids = rows.train, config.rows.data, {}
    if rows.stream is not None:
        if ids:
            raise UserError(f"{config.rows.data}: too large for ids; give rows of a smaller file")
        source = f"a sample of {len(x):,} of {rows.stream.n_rows:,} rows of {config.rows.data}"
    elif rows.numbers is not None:
        x = torch.cat([rows.train, rows.held_out])[torch.cat(rows.numbers).argsort()]
        table_ids = _ids(open_table(config.rows.data), ids)
    return x.double().numpy(), table_ids, source


def _ids(table: TableFile, ids: tuple[str, ...] | None) -> dict[str, list[Any]]:
    for name in ids or ():
        if name not in table.names:
            raise UserError(f"{table.path}: there is no column {name!r} to name the rows")
    return {name: table.frame()[name].tolist() for name in ids or ()}
