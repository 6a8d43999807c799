"""`pscd score` for tables that need not fit into memory: what becomes of a block, and what is told at the end."""

import argparse
import heapq
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pscd.cli.output import say
from pscd.cli.reading import reading_options, tell_notes
from pscd.cli.streams import Part, in_parts, job_of, source_of
from pscd.errors import UserError
from pscd.run_folder import RunFolder

if TYPE_CHECKING:
    import numpy as np

    from pscd.detector.estimator import EnergyDetector
    from pscd.model import Model
    from pscd.parts import Summary
    from pscd.tables.blocks import BlockSource

STRANGEST = 10  # rows that are printed
N_FIT = 100_000  # rows of a large table that a detector learns from
FLAGS = ("id", "log_density", "reasons", "kinds", "missing", "delimiter", "decimal", "thousands", "encoding", "header")


def detect_in_blocks(args: argparse.Namespace, source: "BlockSource", out: Path) -> None:
    """Fit a detector to a sample of a large table, and score all of it.

    Args:
        args: the flags of `pscd detect`.
        source: the table.
        out: the run folder.

    Raises:
        UserError: there is nothing to learn, or a file cannot be read or written.
    """
    from pscd.cli.detect import save_detector
    from pscd.cli.learnt import print_learnt

    detector, n = fit_to_sample(args, source, contamination=args.contamination, rank=args.rank)
    save_detector(args, detector, out)
    print_learnt(detector, n)
    args.run, args.log_density, args.reasons = out, False, None
    score_by_detector(args, detector, source, RunFolder(out).scores)
    say(f"cells: pscd clean {args.data} --run {out} tells which are wrong")
    say(f"run: {out}")


def fit_to_sample(args: argparse.Namespace, source: "BlockSource", **options: Any) -> "tuple[EnergyDetector, int]":
    """Fit a detector to a sample of a large table.

    Args:
        args: the flags that say what it learns.
        source: the table.
        options: of the detector, as `fit_detector` takes them.

    Returns:
        The detector, and the number of rows that it has learnt from.

    Raises:
        UserError: there is nothing to learn, or the table cannot be read.
    """
    from pscd.cli.detect import fit_detector
    from pscd.tables import ReadOptions, open_table

    check_table_ids(args, source)
    say(f"drawing {min(N_FIT, source.n_rows):,} of about {source.n_rows:,} rows to learn from")
    table = open_table(source.path, ReadOptions(**{k: v for k, v in reading_options(args).items() if v is not None}))
    frame = table.sample(N_FIT, seed=args.seed)
    frame.attrs["pscd"] = {name: value for name, value in asdict(table.options).items() if value}
    return fit_detector(args, frame, source.path, **options), len(frame)


def score_by_detector(args: argparse.Namespace, detector: "EnergyDetector", source: "BlockSource", out: Path) -> None:
    """Score a large table by a detector.

    Args:
        args: the flags of `pscd score`.
        detector: of the run.
        source: the table.
        out: file for the scores, or a folder of Parquet files.

    Raises:
        UserError: the table does not fit the detector, or a file cannot be read or written.
    """
    from pscd.detector.blocks import fitting_blocks

    check_table_ids(args, source)
    fitting = fitting_blocks(detector.reader_, source, reading_options(args))
    # What nobody reads is not computed: a file of numbers has no reasons in it.
    which = "none" if out.suffix == ".npy" else args.reasons or "outliers"
    some = None if source.names is None else [*detector.columns, *args.id]

    def work(i: int, block: Any) -> Part:
        return _detected(detector, fitting(block), block, i * source.size, args.id, which, args.log_density)

    job = job_of("score", args, args.run, FLAGS, source.files)
    found = in_parts(out, job, lambda first: source.blocks(first, some), work, total=source.n_rows)
    tell_notes(source.notes)
    n, outliers = (sum(summary[name] for summary in found) for name in ("rows", "outliers"))
    say(f"{outliers:,} of {n:,} rows of {source.path} are outliers; the strangest:")
    for energy, row, label, because in _strangest(found):
        say(f"  {label or f'row {row}':<14} energy {energy:>9.2f}   {because}")
    if which == "outliers":
        say("reasons: of the outliers (--reasons all, which takes longer, or none)")
    say(f"scores: {out}")


def _detected(
    detector: "EnergyDetector",
    rows: Any,
    block: Any,
    start: int,
    ids: Sequence[str],
    which: str,
    log_density: bool,
) -> Part:
    """Energies of a block, which rows are outliers, and why."""
    import numpy as np

    from pscd.detector.reasons import reasons_of

    energy = -detector.score_samples(rows)
    outlier = energy > -detector.offset_
    top = np.argsort(-energy, kind="stable")[:STRANGEST]
    explained = {"all": np.arange(len(energy)), "outliers": np.union1d(np.flatnonzero(outlier), top), "none": top}
    some = explained[which]
    because = dict(zip(some.tolist(), reasons_of(detector, rows, some), strict=True))
    row = np.arange(start + 1, start + len(energy) + 1)
    carried = {name: block[name] for name in ids}
    columns: dict[str, Any] = {"row": row, **carried, "energy": energy, "outlier": outlier.astype(int)}
    if which != "none":
        told = range(len(energy)) if which == "all" else set(np.flatnonzero(outlier).tolist())
        columns["because"] = [because[i] if i in told else "" for i in range(len(energy))]
    if log_density:
        columns["log_density"] = detector.log_density(rows)
    labels = {int(i): ", ".join(str(values.iloc[i]) for values in carried.values()) for i in top}
    strangest = [[float(energy[i]), int(row[i]), labels[int(i)], because[int(i)]] for i in top]
    summary = {"rows": len(energy), "outliers": int(outlier.sum()), "strangest": strangest}
    return Part(columns, columns["log_density"] if log_density else energy, summary)


def _strangest(found: "Sequence[Summary]") -> list[Any]:
    every = (row for summary in found for row in summary["strangest"])
    return heapq.nsmallest(STRANGEST, every, key=lambda row: (-row[0], row[1]))


def score_by_model(args: argparse.Namespace, model: "Model", source: "BlockSource", out: Path) -> None:
    """Score a large table by a trained model; a row that cannot be scored gets no energy, and a reason.

    Args:
        args: the flags of `pscd score`.
        model: of the run.
        source: the table.
        out: file for the scores, or a folder of Parquet files.

    Raises:
        UserError: the table does not fit the model, or a file cannot be read or written.
    """
    check_table_ids(args, source)
    rows_of, some = _model_rows(args, model, source)

    def work(i: int, block: Any) -> Part:
        return _energies(model, rows_of(block), block, i * source.size, args.id, args.log_density)

    if args.log_density and (warning := model.log_z().warning) is not None:
        say(f"warning: {warning}")
    job = job_of("score", args, args.run, FLAGS, source.files)
    threads = None if model.shift.device.type == "cpu" else 1
    blocks = lambda first: source.blocks(first, some)  # noqa: E731
    found = in_parts(out, job, blocks, work, total=source.n_rows, threads=threads)
    tell_notes(source.notes)
    n, bad = (sum(summary[name] for summary in found) for name in ("rows", "bad"))
    say(f"{n - bad:,} rows scored: {out}")
    if bad:
        first = next(summary["first"] for summary in found if summary["bad"])
        say(f"{bad:,} rows could not be scored and have no energy (first: {first})")


def scorable(args: argparse.Namespace, model: "Model") -> "BlockSource | None":
    """A small table in blocks, if a trained model can score some of its first rows.

    Args:
        args: the flags of `pscd score`.
        model: of the run.

    Returns:
        The table; None if it cannot be read so, or no row is good.
    """
    try:
        source = source_of(args, args.file, always=True)
        if source is None:
            return None
        check_table_ids(args, source)
        rows_of, some = _model_rows(args, model, source)
        return source if bool(_is_good(rows_of(next(source.blocks(0, some)))).any()) else None
    except UserError:
        return None  # whoever has read it at once has said what is wrong


def _model_rows(
    args: argparse.Namespace, model: "Model", source: "BlockSource"
) -> tuple[Callable[[Any], "np.ndarray"], list[str] | None]:
    """What makes numbers of a block, and the columns that are read."""
    import numpy as np
    import pandas as pd

    from pscd.tables import encode, look
    from pscd.tables.levels import listed

    first = next(source.blocks())
    if source.names is None or model.columns is None:
        names = [name for name in source.names or () if name not in args.id]
        shape = first.shape[1:] if source.names is None else (len(names),)
        shape = shape or (1,)
        if tuple(shape) != tuple(model.shape):
            was = in_words(model.shape)
            raise UserError(f"{source.path}: {in_words(shape)} a row, but {args.run} was trained on {was}")
    else:
        names = list(model.columns)
        gone = [name for name in names if name not in source.names]
        if gone:
            raise UserError(f"{source.path}: has no column {listed(gone)}; it has {listed(list(source.names))}")
    if source.names is None:
        return lambda block: block if block.ndim > 1 else block[:, None], None
    some = [*names, *args.id]
    if all(pd.api.types.is_numeric_dtype(first[name]) for name in names):
        return lambda block: block[names].to_numpy(np.float64), some
    first.attrs["pscd"] = first.attrs.get("pscd", {}) | {k: v for k, v in reading_options(args).items() if v}
    numbers = look(first[names], kinds=dict.fromkeys(names, "number"))
    return lambda block: encode(block[names], numbers).x, some


def _energies(
    model: "Model", rows: "np.ndarray", block: Any, start: int, ids: Sequence[str], log_density: bool
) -> Part:
    """Energies of a block; rows with cells that are no finite numbers have none."""
    import numpy as np

    good = _is_good(rows)
    energy = np.full(len(rows), np.nan, np.float32)
    found = model.energy(rows[good]).numpy() if good.any() else energy[:0]
    energy = energy.astype(found.dtype)
    energy[good] = found
    columns: dict[str, Any] = {"row": np.arange(start + 1, start + len(rows) + 1), **{n: block[n] for n in ids}}
    columns["energy"] = energy
    if log_density:
        columns["log_density"] = np.full(len(rows), np.nan)
        if good.any():
            columns["log_density"][good] = model.log_density(rows[good]).numpy()
    bad = np.flatnonzero(~good)
    problems = {int(i): _problem(rows[i], block, model) for i in bad}
    columns["problem"] = [problems.get(i, "") for i in range(len(rows))]
    first = f"row {start + 1 + int(bad[0])}, {problems[int(bad[0])]}" if len(bad) else ""
    summary = {"rows": len(rows), "bad": len(bad), "first": first}
    return Part(columns, columns["log_density"] if log_density else energy, summary)


def _is_good(rows: "np.ndarray") -> "np.ndarray":
    """Which rows have finite numbers alone, `(n,)`."""
    import numpy as np

    from pscd.tables.numbers import LARGEST

    if rows.dtype.kind != "f":
        return np.ones(len(rows), bool)
    with np.errstate(invalid="ignore"):
        good: np.ndarray = (np.abs(rows) < LARGEST).reshape(len(rows), -1).all(1)
    return good


def _problem(row: "np.ndarray", block: Any, model: "Model") -> str:
    """Why a row cannot be scored."""
    import numpy as np

    from pscd.tables.numbers import LARGEST

    flat = row.ravel()
    with np.errstate(invalid="ignore"):
        j = int(np.flatnonzero(~(np.abs(flat) < LARGEST))[0])
    names = model.columns if model.columns is not None and len(model.columns) == flat.size else None
    name = names[j] if names else f"x{j}"
    return f"{name} is {'missing or no number' if np.isnan(flat[j]) else 'infinite or over 1e30'}"


def check_table_ids(args: argparse.Namespace, source: "BlockSource") -> None:
    """Refuse ids that are no columns of a table.

    Args:
        args: the flags.
        source: the table.

    Raises:
        UserError: one of them is not there.
    """
    if source.names is None and args.id:
        raise UserError(f"{source.path}: has no column names, so none can be an id; leave --id out")
    gone = [name for name in args.id if name not in (source.names or ())]
    if gone:
        raise UserError(f"{source.path}: has no column {gone[0]!r} for --id")


def in_words(shape: Sequence[int]) -> str:
    """The shape of a row in words.

    Args:
        shape: without the number of rows.

    Returns:
        For example `3 numbers`, or `1 x 28 x 28`.

    >>> in_words([3]), in_words([1, 28, 28])
    ('3 numbers', '1 x 28 x 28')
    """
    if len(shape) == 1:
        return "1 number" if shape[0] == 1 else f"{shape[0]} numbers"
    return " x ".join(map(str, shape))
