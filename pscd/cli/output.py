"""What commands share to write: text on the terminal, files of rows, large files in parts that can be resumed."""

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from pscd.errors import UserError

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import torch

    from pscd.model import Model
    from pscd.parts import Summary

OUTPUTS = (".npy", ".csv", ".parquet", "")  # file names that rows are written to; without an ending a folder
SHOW_PROGRESS = 200_000  # rows from which on a progress line is shown
PICTURES = (".png", ".jpg")
SHOWN_IMAGES = 100
SCORES = ("row", "energy", "outlier", "because", "log_density", "problem")  # columns of scores
CELLS = ("row", "column", "value", "problem", "suggestion", "low", "high", "confidence")  # columns of a list of cells


def say(text: str, *, file: IO[str] | None = None) -> None:
    """Print text whose parts may be quoted from a file: no control characters, and nothing the terminal cannot show."""
    file = sys.stdout if file is None else file
    lines = ("".join(c if c.isprintable() else " " for c in line) for line in text.split("\n"))
    encoding = getattr(file, "encoding", None) or "utf-8"
    print("\n".join(lines).encode(encoding, "replace").decode(encoding), file=file)


def is_first_process() -> bool:
    """Whether this is the process that prints and writes, when `torchrun` has started several."""
    return os.environ.get("RANK", "0") == "0"


def check_out(path: Path, force: bool, endings: Sequence[str] = OUTPUTS) -> None:
    """Refuse a file that must not be written, before any work is done for it."""
    if path.suffix not in endings:
        raise UserError(f"{path}: the name must end in {' or '.join(filter(None, endings))}")
    if path.is_dir() and not path.suffix:
        raise UserError(f"{path} is a folder that exists; choose another --out, folders are not replaced")
    if path.exists() and not force:
        raise UserError(f"{path} exists; choose another --out, or add --force to replace it")


def check_folder(path: Path) -> None:
    """Refuse a run folder that cannot be written to; nothing is left behind."""
    from pscd.files import writing_to

    made = [folder for folder in (path, *path.parents) if not folder.exists()]
    with writing_to(path):
        try:
            path.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=path):
                pass
        finally:
            for folder in made:
                with suppress(OSError):  # it was not made after all, or another process uses it by now
                    folder.rmdir()


def write(path: Path, array: "np.ndarray", columns: Mapping[str, Any]) -> None:
    """Write an array as `.npy`, or columns as `.csv` or `.parquet`, as the ending of the name says."""
    from pscd.parts import Parts

    with (parts := Parts(path, {})).open():
        parts.write(0, columns, array, {})
        parts.join()


def check_ids(ids: Sequence[str], own: Sequence[str] = SCORES) -> None:
    """Refuse ids that have the name of a column of the output."""
    taken = [name for name in ids if name in own]
    if taken:
        raise UserError(f"the output has a column {taken[0]!r}, too; rename it in the table to carry it along")


def cell_columns(cells: "pd.DataFrame") -> "dict[str, pd.Series]":
    """The columns of a list of cells as they are written: values as text, empty where there is none."""
    texts = {n: cells[n].map(str).where(cells[n].notna(), "") for n in ("value", "suggestion", "low", "high")}
    return {str(name): texts.get(str(name), cells[name]) for name in cells.columns}


def cell_text(cell: Mapping[Any, Any]) -> str:
    """A wrong cell in a line: where it is, what stands there, and what is expected."""
    from pscd.detector.reasons import short_cell

    low, high = (short_cell(cell[name]) for name in ("low", "high"))
    between = "" if low in ("", "None", "nan", "NaT") else f" ({low} to {high})"
    where = f"row {cell['row']}, {cell['column']} = {short_cell(cell['value'])}"
    return f"{where}, expected {short_cell(cell['suggestion'])}{between}"


@dataclass(frozen=True)
class OutputBlock:
    """What a block of rows becomes."""

    columns: Mapping[str, Any]  # for files with names
    array: "np.ndarray"  # for `.npy`
    summary: "Summary"  # plain values; `rows` is the number of rows
    copy: "OutputBlock | None" = None  # what a second file gets


def in_parts(
    out: Path,
    job: Mapping[str, Any],  # decides the result: parts of another job are discarded
    blocks: Callable[[int], Iterator[Any]],  # from a number on
    work: Callable[[int, Any], OutputBlock],  # called from several threads
    *,
    total: int,
    threads: int | None = None,
    copy: Path | None = None,  # gets `OutputBlock.copy`
    finish: Callable[[Sequence[Path]], None] = lambda parts: None,  # before parts are joined; again if it is stopped
) -> "list[Summary]":
    """Work on blocks and write the results, in their order, to one file or two; a killed command resumes."""
    from pscd import fast
    from pscd.parts import Parts
    from pscd.progress import progress_bar

    outputs = [Parts(path, job) for path in (out, copy) if path is not None]
    with ExitStack() as stack:
        for parts in outputs:
            stack.enter_context(parts.open())

        def is_done(i: int) -> bool:
            return all(i in parts.done for parts in outputs)

        def write_part(numbered: tuple[int, Any]) -> int:
            i, block = numbered
            if not is_done(i):
                part = work(i, block)
                for parts, made in zip(outputs, (part, part.copy), strict=False):
                    if made is not None:
                        parts.write(i, made.columns, made.array, made.summary)
            return int(outputs[0].done[i]["rows"])

        first = next(i for i in range(len(outputs[0].done) + 1) if not is_done(i))
        n_done = sum(summary["rows"] for i, summary in outputs[0].done.items() if i < first)
        if first:
            say(f"resuming after {n_done:,} rows, where this command was stopped")
        with progress_bar(total, done=n_done, show=total > SHOW_PROGRESS, unit=" rows", in_thousands=True) as bar:
            numbered = enumerate(blocks(first), first)
            for n in (
                map(write_part, numbered) if threads == 1 else fast.in_order(write_part, numbered, threads=threads)
            ):
                bar.update(n)
        finish(outputs[0].paths)
        for parts in reversed(outputs):
            parts.join()
    return [outputs[0].done[i] for i in sorted(outputs[0].done)]


def job_of(command: str, settings: Mapping[str, Any], run: Path | None, data: str = "") -> dict[str, Any]:
    """Plain values that decide what a command writes: its settings, the model and the data."""
    from pscd.files import file_digest
    from pscd.run_folder import RunFolder
    from pscd.version import __version__

    models = []
    if run is not None:
        folder = RunFolder(run)
        models = [path for path in (run, folder.model, folder.detector, folder.network) if path.is_file()]
        # A run that was stopped has no model yet.
        models = models or [path for path in (folder.state, folder.previous_state) if path.is_file()]
    digests = [file_digest(path) for path in models]
    return {"command": command, "version": __version__, "settings": dict(settings), "run": digests, "data": data}


def measure(model: "Model", run: Path, samples: "torch.Tensor | None" = None, **options: Any) -> None:
    """Measure how far samples are from held-out data, print it, and keep it in the run folder."""
    from pscd.evaluation import evaluate, write_measurements
    from pscd.run_folder import RunFolder

    measurements = evaluate(model, samples=samples, **options)
    first = measurements[0]
    if model.is_image:
        say(f"compared with {first.n_real} held-out images, by {first.features}")
        say("                    Frechet  precision  recall  density  coverage        n")
        for m in measurements:
            shares = f"{m.precision:>10.3f} {m.recall:>7.3f} {m.density:>8.3f} {m.coverage:>9.3f}"
            say(f"  {m.name:<14} {m.frechet:>10.4g} {shares} {m.n_fake:>8}")
    else:
        say(f"compared with {first.n_real} held-out rows      MMD^2 x 1e4        n")
        for m in measurements:
            say(f"  {m.name:<26} {1e4 * m.mmd:>11.2f} {m.n_fake:>8}")
    write_measurements(measurements, RunFolder(run), seed=options.get("seed", 0))


def draw(model: "Model", data: "torch.Tensor", samples: "torch.Tensor", path: Path) -> None:
    """Draw data without missing values and samples side by side, with the energy where it can be shown."""
    if model.is_image:
        from pscd.images import grids

        n = min(SHOWN_IMAGES, len(data), len(samples))
        grids.save(grids.beside(*(grids.grid(x[:n]) for x in (data, samples))), path)
    else:
        from pscd.files import writing_to
        from pscd.plots import plot_run

        with writing_to(path):
            plot_run(model, data[~data.isnan().flatten(1).any(1)], samples, path)
    say(f"picture: {path}")
