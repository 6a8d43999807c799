"""`write_report`: from a run folder, a detector or an experiment to one HTML file."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch

from pscd.config import NotLoaded, TrainConfig
from pscd.data import read_table, split_rows
from pscd.data.tables import ARRAYS
from pscd.errors import UserError
from pscd.evaluation import load_run_data
from pscd.files import file_digest, needs, read_json, read_tensors, suffix_of
from pscd.model import Model
from pscd.objectives import name_of
from pscd.recipes import notes
from pscd.recipes import tables as recipe
from pscd.report import rows as tables
from pscd.report.blocks import Block, Facts, Page, Section, Table, Text
from pscd.report.cells import blame_by_detector, blame_by_model
from pscd.report.columns import MISSING, DrawnColumn, column, shown
from pscd.report.page import write_page
from pscd.report.pictures import images_sections, pictures_sections
from pscd.report.plane import plane_section
from pscd.report.training import (
    evaluation_blocks,
    read_config,
    settings_section,
    state_in_words,
    training_section,
    updates_in_words,
    verdict_blocks,
)
from pscd.run_folder import RunFolder
from pscd.runs import load
from pscd.sampling import SAMPLERS

if TYPE_CHECKING:
    from pscd.detector.estimator import EnergyDetector

N_SAMPLES = 2_000  # draws that rows are compared with
WORST_CELLS, LONGEST_CELL = 30, 60  # that are listed, and characters of each
EXTRA = ("altair", "vl_convert", "jinja2", "markdown_it")


def write_report(
    run: Path | str,
    out: Path | str | None = None,
    *,
    data: Path | str | None = None,
    ids: Sequence[str] | None = None,
    seed: int = 0,
) -> Path:
    """Write a report of a run, a detector or an experiment: one HTML file that opens without a network.

    Args:
        run: a folder of `pscd train` or `pscd detect`, or the `NAME.json` or `NAME.md` of `python -m studies`.
        out: the file; by default `report.html` in the folder, or `NAME.html` beside an experiment.
        data: rows to show, if not those of the training, or if they have moved.
        ids: columns of the rows that name them; by default those that the detector was given.
        seed: of the samples.

    Returns:
        The path of the report.

    Raises:
        UserError: there is nothing to report on, the rows do not fit, or the extra `report` is not installed.

    >>> import pscd, tempfile
    >>> config = pscd.TrainConfig("moon", n_data=100, steps=10, batch_size=32, buffer_size=100)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = pscd.train(config, f"{folder}/run", progress=False)
    ...     pscd.report.write_report(run).name
    'report.html'
    """
    check_extra()
    run, rows = Path(run), RowsWanted(None if data is None else Path(data), None if ids is None else tuple(ids), seed)
    folder = RunFolder(run)
    if run.is_dir() and folder.is_detector:
        page = _detector_page(folder, rows)
    elif run.is_dir() and folder.config.is_file():
        page = run_page(folder, rows)
    else:
        what = "holds no run or detector" if run.exists() else "no such run"
        raise UserError(f"{run}: {what}; give the folder of pscd train or pscd detect")
    return write_page(page, Path(out) if out is not None else folder.report)


def check_extra() -> None:
    """Find out that something is not installed before any work is done.

    Raises:
        UserError: with what to install.
    """
    for module in EXTRA:
        needs(module, "report", "a report")


@dataclass(frozen=True)
class RowsWanted:
    """Which rows a report is to show.

    Args:
        path: a file, or None for the rows of the training.
        ids: columns that name a row, or None for those that were given at the time.
        seed: of the samples.
    """

    path: Path | None = None
    ids: tuple[str, ...] | None = None
    seed: int = 0


# ---------- detectors ----------


def _detector_page(folder: RunFolder, wanted: RowsWanted) -> Page:
    from pscd.detector.estimator import IGNORED, EnergyDetector

    detector = EnergyDetector.load(folder.path)
    source: dict[str, Any] = read_json(folder.source) if folder.source.is_file() else {}
    of_pictures = source.get("kind") == "pictures"
    what = "pictures" if of_pictures else "rows"
    ignored = int((detector.sample_weight_ < IGNORED).sum())
    facts = Facts(
        (
            (f"{what} learnt from", f"{detector.n_rows_:,}"),
            ("gamma", f"{detector.gamma_:.3g}"),
            ("estimated contamination", f"{detector.contamination_:.1%}"),
            ("threshold", f"energy {-detector.offset_:.4g}"),
        )
    )
    said = (
        f"Training was robust, with gamma {detector.gamma_:.3g}: {ignored:,} of {detector.n_rows_:,} {what} were all "
        "but ignored, since they counted less than a tenth."
        if detector.gamma_ > 0
        else f"Gamma is 0, and all {what} counted."
    )
    blocks: list[Block] = [Text((said,)), facts]
    parameters = tuple((name, str(value)) for name, value in detector.get_params().items() if name != "verbose")
    blocks.append(Table(("parameter", "value"), parameters, summary="Parameters"))
    if of_pictures:
        if wanted.path is not None:
            hint = f"pscd score {folder.path} {wanted.path} --out scores.csv draws the strangest of other pictures"
            raise UserError(f"{folder.path}: a report shows the pictures that the detector learnt from; {hint}")
        sections = [Section("The detector", tuple(blocks)), *pictures_sections(folder, source)]
        return Page(_name(folder), "Detector of strange pictures", tuple(sections))
    found = _detector_frame(source, detector, wanted)
    if isinstance(found, str):
        sections = [_without_rows(found)]
    else:
        rows, wrong = detector_rows(detector, *found, seed=wanted.seed)
        first, strangest, *rest = tables.sections(rows)
        sections = [first, strangest, wrong, *rest]
        outliers = int(rows.outlier.sum())
        summary = f"{outliers:,} of {len(rows):,} rows are outliers: their energy is above {rows.threshold:.4g}."
        blocks.insert(0, Text((summary,)))
    sections.insert(0, Section("The detector", tuple(blocks)))
    return Page(_name(folder), "Detector of strange rows", tuple(sections))


def _detector_frame(
    source: dict[str, Any], detector: "EnergyDetector", wanted: RowsWanted
) -> tuple[pd.DataFrame, Path, tuple[str, ...], bool] | str:
    """The table to show, its file, the columns that name rows, and whether it is that of the training; or why not."""
    path = wanted.path or (Path(source["data"]) if "data" in source else None)
    if path is None:
        return "the detector does not know its file; give it with --data FILE"
    if wanted.path is None and not path.is_file():
        return f"{path} is not there any more; give the file with --data FILE"
    same = path.is_file() and file_digest(path) == source.get("fingerprint")
    if wanted.path is None and not same:
        return f"{path} has changed since; to show it as it is now, add --data {path}"
    frame = detector.read_file(path, **source.get("reading", {}))
    # Those that were given at the time are shown where they are there; those that are asked for have to be.
    ids = tuple(name for name in source.get("ids", ()) if name in frame.columns) if wanted.ids is None else wanted.ids
    gone = [name for name in ids if name not in frame.columns]
    if gone:
        raise UserError(f"{path}: has no column {gone[0]!r} for --id")
    return frame, path, ids, same


def detector_rows(
    detector: "EnergyDetector", frame: pd.DataFrame, path: Path, ids: Sequence[str], same: bool, *, seed: int = 0
) -> tuple[tables.Rows, Section]:
    """What a detector thinks of a table.

    Args:
        detector: fitted.
        frame: the table, as it takes it.
        path: the file.
        ids: columns that name a row.
        same: whether the detector learnt from this table.
        seed: of the samples.

    Returns:
        The rows, and a section about cells that look wrong.
    """
    schema, reader = detector.reader_.schema, detector.reader_
    names = [str(name) for name in detector.feature_names_in_] if schema is None else [c.name for c in schema.learnt()]
    rows = frame[names] if schema is None else frame
    samples = detector.sample(N_SAMPLES, random_state=seed)
    drawn = pd.DataFrame(samples, columns=names) if isinstance(samples, np.ndarray) else samples
    typed = dict(zip(reader.names(rows), reader.values(reader.read(rows).x), strict=True))
    found = tables.Rows(
        str(path) if same else f"{path}, other rows than those of the training",
        tuple(column(name, typed[name], drawn[name].tolist()) for name in names),
        -detector.score_samples(rows),
        -detector.score_samples(drawn),
        lambda index: blame_by_detector(detector, rows.iloc[index], names),
        {name: frame[name].tolist() for name in ids},
        -float(detector.offset_),
        detector.sample_weight_ if same and len(frame) == len(detector.sample_weight_) else None,
    )
    return found, _wrong_cells(detector.suspects(rows), found)


def _wrong_cells(suspects: pd.DataFrame, rows: tables.Rows) -> Section:
    """The cells that look wrong by themselves, the worst first."""
    n_cells = len(rows) * len(rows.columns)
    if not len(suspects):
        return Section("Cells that look wrong", (Text((f"None of {n_cells:,} cells looks wrong by itself.",), "good"),))
    worst, by_name = [], {column.name: column for column in rows.columns}
    for cell in suspects.head(WORST_CELLS).to_dict("records"):
        between = [shown(cell[name], 4) for name in ("lower", "upper")]
        likely = "" if MISSING in between else " to ".join(between)
        text = by_name[str(cell["column"])].text
        texts = [text(cell["found"])[:LONGEST_CELL], text(cell["suggested"], 4)[:LONGEST_CELL]]
        mistake = cell["mistake"] if isinstance(cell["mistake"], str) else ""
        label = rows.label(int(cell["row"]))
        worst.append((label, str(cell["column"]), *texts, likely, f"{cell['cost']:.1f}", mistake))
    said = f"{len(suspects):,} of {n_cells:,} cells look wrong by themselves, given the others of their row."
    more = f" The {len(worst)} worst:" if len(worst) < len(suspects) else ""
    head = ("row", "column", "found", "expected", "likely between", "nats", "mistake")
    lines = (said + more, "pscd clean lists and mends them.")
    return Section("Cells that look wrong", (Text(lines), Table(head, tuple(worst))))


# ---------- runs ----------


def run_page(folder: RunFolder, wanted: RowsWanted | None = None, *, running: bool = False) -> Page:
    """The report of a run of `pscd train`, finished or not.

    Args:
        folder: the run folder.
        wanted: which rows to show.
        running: whether training goes on; the page then shows the curves alone, and loads itself again.

    Returns:
        The report.

    Raises:
        UserError: a file of the folder is damaged.
    """
    wanted = wanted or RowsWanted()
    config, fingerprint = read_config(read_json(folder.config))
    log = folder.read_metrics()
    step = int(log[-1]["step"]) if log else 0
    has_model = folder.model.is_file() and not running
    is_stopped = not has_model and not running and (folder.state.is_file() or folder.previous_state.is_file())
    goes_on = "the same command goes on with the training"
    model, problem = _model(folder) if has_model or is_stopped else (None, goes_on)
    updates = int(read_tensors(folder.model)[1]["step"]) if has_model and model is not None else step
    facts = Facts(
        (
            ("state", state_in_words(config, max(step, updates), has_model=has_model, running=running)),
            ("updates", updates_in_words(config, step, updates)),
            ("objective", name_of(config.objective) or _called(config.objective, {})),
            ("gamma", _gamma(config if model is None else model.config)),
            ("energy", config.energy.name),
            ("sampler", _called(config.sampler, SAMPLERS)),
        )
    )
    said = verdict_blocks(log, model.notes if model is not None else ())
    sections = [Section("The run", (*said, facts, *evaluation_blocks(folder))), training_section(log)]
    n_columns = None
    if model is not None:
        found, n_columns = _model_sections(folder, model, config, wanted)
        sections += found
    elif not running:
        sections.append(_without_rows(problem))
    sections.append(settings_section(config, n_columns, fingerprint))
    return Page(_name(folder), "Training run", tuple(sections), running)


def _model(folder: RunFolder) -> tuple[Model | None, str]:
    """The model of a run, or why it cannot be read: a network of one's own, or a damaged file."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that training was stopped stands at the top of the page
            return load(folder.path), ""
    except UserError as error:
        return None, str(error)


def _called(part: Any, known: Mapping[str, type]) -> str:
    """The name of a sampler: that of the command line, or of a custom class."""
    found = next((name for name, kind in known.items() if type(part) is kind), None)
    return found or str(getattr(part, "kind", type(part).__name__))


def _gamma(config: TrainConfig) -> str:
    gamma = getattr(config.objective, "gamma", None) if not isinstance(config.objective, NotLoaded) else None
    return "none" if gamma is None else f"{gamma:g}" if isinstance(gamma, float) else str(gamma)


def _name(folder: RunFolder) -> str:
    return "/".join(folder.path.resolve().parts[-2:])


def _model_sections(
    folder: RunFolder, model: Model, config: TrainConfig, wanted: RowsWanted
) -> tuple[list[Section], int | None]:
    """What can be shown of a finished run's rows, and how many columns they have."""
    if model.is_image:
        return list(images_sections(model, seed=wanted.seed)), None
    if len(model.shape) != 1:
        return [_without_rows("rows that are neither a table nor images are not drawn")], None
    d = model.shape[0]
    names = model.columns or tuple(f"x{j}" for j in range(d))
    samples = model.sample(N_SAMPLES, seed=wanted.seed).numpy()
    found = _model_rows(folder, model, config, wanted, names, samples)
    rows = found if isinstance(found, tables.Rows) else None
    sections = []
    if d == 2:
        sections.append(plane_section(model, None if rows is None else _matrix(rows), samples, names))
    sections += [_without_rows(found)] if isinstance(found, str) else list(tables.sections(found))
    return sections, d


def _matrix(rows: tables.Rows) -> np.ndarray:
    return np.stack([column.values for column in rows.columns], 1)


def _model_rows(
    folder: RunFolder,
    model: Model,
    config: TrainConfig,
    wanted: RowsWanted,
    names: tuple[str, ...],
    samples: np.ndarray,
) -> tables.Rows | str:
    """The rows to show, or why there are none. Rows of a file keep their numbers in it."""
    table_ids: dict[str, list[Any]] = {}
    counted = None
    if wanted.path is not None:
        named = suffix_of(wanted.path) not in ARRAYS
        table = read_table(wanted.path, model.columns if named else None, wanted.ids or ())
        if tuple(table.x.shape[1:]) != model.shape:
            raise UserError(f"{wanted.path}: rows of {tuple(table.x.shape[1:])}, trained on {model.shape}")
        x, table_ids, source = table.x, table.ids, f"{wanted.path}, given for this report"
    else:
        try:
            data = load_run_data(model)
        except UserError as error:
            return f"{error}; give rows with --data FILE"
        counted = _counted(data.train, config, model)
        x, source = data.train, config.data
        if data.stream is not None:
            source = f"{config.data}, a sample of {len(x):,} of {data.stream.n_rows:,} rows"
            if wanted.ids:
                raise UserError(f"{config.data}: is too large to carry ids along; give rows with --data FILE")
        elif Path(config.data).is_file():
            held_out, kept = split_rows(len(data.train) + len(data.held_out), config.seed)
            order = torch.cat([kept, held_out]).argsort()
            x = torch.cat([data.train, data.held_out])[order]
            if counted is not None:
                unseen = torch.full((len(data.held_out),), torch.nan, dtype=torch.float64)
                counted = torch.cat([counted, unseen])[order]
            if wanted.ids:
                table_ids = read_table(config.data, config.columns, wanted.ids).ids
    x = x.double()
    values = x.numpy()
    return tables.Rows(
        source,
        tuple(DrawnColumn(name, values[:, j], samples[:, j]) for j, name in enumerate(names)),
        model.energies(x).double().numpy(),
        model.energies(samples).double().numpy(),
        lambda index: blame_by_model(model, values[index], samples),
        table_ids,
        counted=None if counted is None else counted.numpy(),
        ignored_below=notes.IGNORED if config.start == "mixture" else 0.1,
    )


def _counted(x: torch.Tensor, config: TrainConfig, model: Model) -> torch.Tensor | None:
    """How much each training row counted, `(n,)`; None if all alike."""
    if config.start == "mixture":
        clean = recipe.prepare(x, config, model.columns)[0].clean  # the same again, since everything is seeded
        return None if clean is None else clean.double()
    gamma = getattr(model.config.objective, "gamma", 0.0)
    if not isinstance(gamma, int | float) or gamma <= 0 or getattr(config.objective, "unit", "nats") != "nats":
        return None
    energy = model.energies(x).double()
    return torch.exp(gamma * (energy.median() - energy)).clamp(max=1)


def _without_rows(why: str) -> Section:
    return Section("Rows", (Text((f"Rows are not shown: {why}.",), "warning"),))
