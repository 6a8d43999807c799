"""Write the energy of new rows: higher energy = more anomalous.

Examples:
  pscd score runs/my new.csv --id name --out scores.csv
  pscd score runs/mine pictures/ --by complexity --out scores.csv
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pscd.cli import output, reading
from pscd.cli.flags import Parser, add_ids, add_machine, add_out, add_run
from pscd.cli.scoring import N_LISTED, Scoring, describe_pictures, write_picture_scores, write_scores
from pscd.errors import UserError

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import torch

    from pscd.detector.estimator import EnergyDetector
    from pscd.images.scores import OutlierScore
    from pscd.model import Model
    from pscd.tables import TableFile


def add_flags(parser: Parser) -> None:
    """Add the flags of `pscd score`."""
    from pscd.images.scores import DEFAULT, SCORES

    add_run(parser)
    parser.add_argument(
        "file",
        type=Path,
        metavar="FILE",
        help=f"rows to score ({reading.FILES}), or a folder of Parquet files or of pictures",
    )
    add_out(parser, ".csv, .parquet or .npy file for the energies, or a folder of Parquet files")
    add_ids(parser)
    parser.add_argument("--log-density", action="store_true", help="write the log density of every row too, in nats")
    parser.add_argument(
        "--reasons",
        choices=("outliers", "all", "none"),
        default="outliers",
        help="rows for which a detector names the columns responsible (default: outliers)",
    )
    group = parser.add_argument_group("models of images")
    group.add_argument(
        "--by",
        choices=[name for name in SCORES if name != "background"],
        help=f"score (default: {DEFAULT}; energy without reference images): energy; typicality, an energy far "
        "from that of data; complexity, energy beyond what images that compress so well have; gradient, the norm of "
        "dE/dx; joint, energy and compressed length",
    )
    group.add_argument(
        "--reference", type=Path, metavar="IMAGES", help="images like those of the training (default: held-out ones)"
    )
    group.add_argument(
        "--background", type=Path, metavar="RUN", help="score energy beyond that of a run on the same images with noise"
    )
    reading.add_reading_flags(parser, kinds=False)
    add_machine(parser)


def run(args: argparse.Namespace) -> None:
    """Score rows by a detector or a model, and images by a model."""
    output.check_out(args.out, args.force)
    output.check_ids(args.ids)
    detector = reading.load_detector(args.run)
    model = None if detector is not None else reading.load_model(args.run, args.device)
    if (args.by not in (None, "energy") or args.reference or args.background) and not (model and model.is_image):
        raise UserError(f"{args.run}: --by, --reference and --background are for models of images, from pscd train")
    if detector is not None:
        if args.device != "cpu":
            raise UserError("a detector scores on the cpu; leave --device out")
        _score_by_detector(args, detector)
    elif model is not None and model.is_image:
        _score_images(args, model)
    elif model is not None:
        _score_by_model(args, model)


def _score_by_detector(args: argparse.Namespace, detector: "EnergyDetector") -> None:
    from pscd.data.looks import COLUMNS

    names = tuple(detector.columns)
    if names == COLUMNS[: len(names)] and not args.file.is_file():
        _check_picture(args)
        write_picture_scores(detector, describe_pictures(args.file), args.file, args.out)
        return
    table = reading.open_file(args, args.file)
    reading.check_columns(table, args.ids)
    # What nobody reads is not computed: a file of numbers has no reasons in it.
    reasons = "none" if args.out.suffix == ".npy" else args.reasons
    scoring = Scoring(detector, args.ids, reasons, args.log_density, reading.detector_reader(detector, table))
    write_scores(scoring, table, args.out, args.run)
    reading.say_notes(table.notes)


def _score_by_model(args: argparse.Namespace, model: "Model") -> None:
    """Energies of a table; a missing or invalid cell is named, and completed where the model can do that."""
    import numpy as np

    table = reading.open_file(args, args.file)
    reading.check_columns(table, args.ids)
    names, read = _model_reader(args, model, table)
    if args.log_density and (warning := model.log_z().warning) is not None:
        output.say(f"note: {warning}")
    size, blocks = reading.blocks_of(table, [*names, *args.ids])

    def work(i: int, block: "pd.DataFrame") -> output.OutputBlock:
        x = read(block)
        complete = np.isfinite(x).all(1)
        valid = np.isfinite(x).any(1) if model.completes else complete
        columns: dict[str, Any] = {"row": np.arange(len(x)) + i * size, **{name: block[name] for name in args.ids}}
        columns["energy"] = _where(valid, x, lambda rows: model.energy(rows).numpy())
        if args.log_density:
            columns["log_density"] = _where(complete, x, lambda rows: model.log_density(rows).numpy())
        columns["problem"] = [_problem(row, model.columns or names) for row in x]
        first = np.flatnonzero(~complete)[:1]
        problem = "".join(f"row {i * size + k}, {columns['problem'][k]}" for k in first)
        counts = {"invalid": int((~valid).sum()), "incomplete": int((~complete).sum())}
        summary = {"rows": len(x), **counts, "first": problem}
        return output.OutputBlock(columns, columns["log_density" if args.log_density else "energy"], summary)

    threads = None if model.shift.device.type == "cpu" else 1
    settings = {"ids": args.ids, "log_density": args.log_density}
    job = output.job_of("score", settings, args.run, table.fingerprint())
    found = output.in_parts(args.out, job, blocks, work, total=table.n_rows_estimate, threads=threads)
    reading.say_notes(table.notes)
    n, invalid, incomplete = (sum(summary[name] for summary in found) for name in ("rows", "invalid", "incomplete"))
    output.say(f"{n - invalid:,} rows scored: {args.out}")
    if incomplete:
        first = next(summary["first"] for summary in found if summary["first"])
        output.say(
            f"rows with missing or invalid cells: {incomplete:,}, of which {invalid:,} have no energy (first: {first})"
        )


def _model_reader(
    args: argparse.Namespace, model: "Model", table: "TableFile"
) -> "tuple[list[str], Callable[[pd.DataFrame], np.ndarray]]":
    """The columns that a model needs, and what makes numbers of a block: by name, or by place if one has no names."""
    from pscd.tables import adapted, encode
    from pscd.tables.levels import listed

    schema = model.schema
    if table.shape is not None or (schema is None and model.columns is None):
        names = [name for name in table.names if name not in args.ids]
        if len(names) != model.shape[0]:
            raise UserError(f"{table.path}: {len(names)} columns, but {args.run} was trained on {model.shape[0]}")
        return names, reading.numbers_reader(table, names)
    names = list(model.columns or ()) if schema is None else [column.name for column in schema.learnt()]
    absent = [name for name in names if name not in table.names]
    if absent:
        raise UserError(f"{table.path}: has no column {listed(absent)}; it has {listed(list(table.names))}")
    if schema is None:
        return names, reading.numbers_reader(table, names)
    own = adapted(next(table.blocks(columns=names)), schema, table.options)
    return names, lambda block: encode(block[names], own).x


def _where(valid: "np.ndarray", x: "np.ndarray", compute: "Callable[[np.ndarray], np.ndarray]") -> "np.ndarray":
    """Numbers of the valid rows, and NaN for the others."""
    import numpy as np

    values = compute(x[valid]) if valid.any() else np.empty(0)
    result = np.full(len(x), np.nan, values.dtype)
    result[valid] = values
    return result


def _problem(row: "np.ndarray", names: Sequence[str]) -> str:
    """Why a row cannot be scored; nothing if it can."""
    import numpy as np

    invalid = np.flatnonzero(~np.isfinite(row))
    return f"{names[invalid[0]]} is missing or not a finite number" if len(invalid) else ""


def _check_picture(args: argparse.Namespace) -> None:
    """Refuse outputs for images that must not be written."""
    if args.ids:
        raise UserError(f"{args.file}: images have no columns; leave --id out")
    output.check_out(args.out, args.force, (".csv", ".npy", ".parquet"))
    output.check_out(args.out.with_suffix(".png"), args.force, output.PICTURES)


def _score_images(args: argparse.Namespace, model: "Model") -> None:
    """Scores of the images of a folder or an array; those of highest score are printed and drawn."""
    import numpy as np
    import torch

    from pscd.images import grids
    from pscd.model import IMAGE_BLOCK
    from pscd.progress import progress_bar

    _check_picture(args)
    if args.log_density:
        model.log_z()  # raises: images have none
    x, names = _images_in(args.file, model)
    score = _outlier_score(args, model)
    parts = []
    with progress_bar(len(x), show=len(x) > 4 * IMAGE_BLOCK, unit="image") as bar:
        for part in x.split(IMAGE_BLOCK):
            parts.append(torch.stack([model.energy(part), score(part)]))
            bar.update(len(part))
    energy, values = torch.cat(parts, 1).numpy()
    columns = {"file" if args.file.is_dir() else "row": names, "energy": energy}
    output.write(args.out, values, columns if score.by == "energy" else {**columns, score.by: values})
    order = np.argsort(-values)
    output.say(f"{len(names)} images scored: {args.out}; those of highest score:")
    for i in order[:N_LISTED]:
        output.say(f"  {names[i]!s:<32} {score.by} {values[i]:.4g}")
    shown = x[torch.from_numpy(order[: output.SHOWN_IMAGES].copy())]
    output.say(f"picture: {grids.save(grids.grid(shown), args.out.with_suffix('.png'))}")


def _images_in(path: Path, model: "Model") -> "tuple[torch.Tensor, list[str] | list[int]]":
    """The pictures of a folder in the size of the model, or the images of an array, and their names or numbers."""
    import torch

    from pscd.data.pictures import list_pictures, read_readable
    from pscd.files import suffix_of
    from pscd.tables import read_array
    from pscd.tables.read import ARRAY_SUFFIXES

    if path.is_dir():
        paths, _ = list_pictures(path)
        if not paths:
            raise UserError(f"{path}: holds no pictures")
        channels, size = model.shape[:2]
        pictures, readable = read_readable(paths, size=size, channels=channels)
        return torch.from_numpy(pictures), [str(paths[i].relative_to(path)) for i in readable]
    if suffix_of(path) not in ARRAY_SUFFIXES:
        raise UserError(f"{path}: images are a folder of pictures, or an array ({', '.join(ARRAY_SUFFIXES)})")
    x = torch.from_numpy(read_array(path))  # bytes stay bytes, of which 255 is white
    if tuple(x.shape[1:]) != model.shape:
        shapes = (" x ".join(map(str, shape)) for shape in (x.shape[1:], model.shape))
        raise UserError(f"{path}: images of {' numbers, but the run was trained on '.join(shapes)}")
    return x, list(range(len(x)))


def _outlier_score(args: argparse.Namespace, model: "Model") -> "OutlierScore":
    """The score that the flags ask for, or the default."""
    from pscd.images.scores import DEFAULT, MIN_REFERENCE, OutlierScore

    by = "background" if args.background else args.by
    if by in ("energy", "gradient"):
        return OutlierScore.fit(model, by=by)
    try:
        reference = _reference(args, model)
    except UserError as error:
        if by is not None or args.reference is not None:
            raise
        output.say(f"by energy alone: {error}")
        return OutlierScore.fit(model)
    if by is None and len(reference) < MIN_REFERENCE:
        output.say(f"by energy alone: there are only {len(reference)} images to compare with")
        return OutlierScore.fit(model)
    background = reading.load_model(args.background, args.device) if args.background else None
    return OutlierScore.fit(model, reference[:2000], by or DEFAULT, background)


def _reference(args: argparse.Namespace, model: "Model") -> "torch.Tensor":
    """Reference images: those of the flag, or those held out from the training, or, if they are few, all of it."""
    from pscd.evaluation import load_run_data
    from pscd.images.scores import MIN_REFERENCE

    if args.reference is not None:
        return _images_in(args.reference, model)[0]
    try:
        data = load_run_data(model)
    except UserError as error:
        raise UserError(f"{error}; give images to compare with: --reference FOLDER") from None
    return data.held_out if len(data.held_out) >= MIN_REFERENCE else data.train
