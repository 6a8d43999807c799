"""The commands for a trained model: `sample` from it, `evaluate` it, `plot` it."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pscd.cli import detect, images
from pscd.cli.common import Command, Parser, add_force, add_out, add_run, check_out, load_model, write
from pscd.cli.sampling import is_large, rows_of_model, sample_detector, sample_in_parts
from pscd.cli.streams import OUTPUTS
from pscd.errors import UserError
from pscd.run_folder import RunFolder

if TYPE_CHECKING:
    import torch

    from pscd.evaluation import Measurement
    from pscd.model import Model

N_POINTS = 10_000  # samples, where they are not images


def add_sample(parser: Parser) -> None:
    """Add the flags of `pscd sample`.

    Args:
        parser: the command's parser.
    """
    add_run(parser)
    add_out(parser, ".npy, .csv or .parquet file for the samples, or a folder of Parquet files; for images also .png")
    parser.add_argument("--n", type=int, help=f"how many (default: {N_POINTS}; of images {images.SHOWN})")
    parser.add_argument("--label", type=int, help="class to draw, from a conditional model")
    parser.add_argument("--seed", type=int, default=0, help="the same seed gives the same samples (default: 0)")
    parser.add_argument("--steps", type=int, help="sampler steps (default: the run's sample_steps)")


def run_sample(args: argparse.Namespace) -> None:
    """Draw from the model of a run and write the samples.

    Args:
        args: the flags.

    Raises:
        UserError: there is no such run, or the file cannot be written.
    """
    check_out(args.out, args.force, (*OUTPUTS, *images.PICTURES))
    if detect.is_detector(args.run):
        args.n = N_POINTS if args.n is None else args.n
        sample_detector(args)
        return
    is_picture = args.out.suffix in images.PICTURES
    model = (images.load_image_model if is_picture else load_model)(args.run, args.device)
    n = args.n if args.n is not None else images.SHOWN if model.is_image else N_POINTS
    if is_picture:
        from pscd.images import grids

        samples = model.sample(n, seed=args.seed, n_steps=args.steps, label=args.label, progress=True)
        grids.save(grids.grid(samples), args.out)
    elif is_large(args, n):
        sample_in_parts(args, n, lambda size, seed: rows_of_model(model, args, size, seed))
        return
    else:
        write(args.out, *rows_of_model(model, args, n, args.seed, progress=model.is_image))
    print(f"{n} samples: {args.out}")


def add_evaluate(parser: Parser) -> None:
    """Add the flags of `pscd evaluate`.

    Args:
        parser: the command's parser.
    """
    add_run(parser, "train")
    counts = f"{N_POINTS}; of images {images.N_MEASURED}"
    parser.add_argument("--n", type=int, help=f"samples, and rows to compare them with (default: {counts})")
    parser.add_argument("--seed", type=int, default=0, help="of the samples and of fresh data (default: 0)")
    parser.add_argument(
        "--features",
        default="pixels",
        help="for images: pixels (default), classifier, or the path of a TorchScript Inception for the FID",
    )


def run_evaluate(args: argparse.Namespace) -> None:
    """Measure how far samples of a run are from held-out data.

    Args:
        args: the flags.

    Raises:
        UserError: there is no such run, or its data have changed.
    """
    if args.n is not None and args.n < 2:
        raise UserError(f"--n must be at least 2, got {args.n}")
    _check_folder(args.run)
    model = load_model(args.run, args.device)
    n = args.n or (images.N_MEASURED if model.is_image else N_POINTS)
    evaluate_into(model, args.run, n=n, seed=args.seed, features=args.features)


def add_plot(parser: Parser) -> None:
    """Add the flags of `pscd plot`.

    Args:
        parser: the command's parser.
    """
    add_run(parser, "train")
    parser.add_argument("--out", type=Path, help="picture, .png, .pdf or .svg (default: RUN/plot.png)")
    add_force(parser)


def run_plot(args: argparse.Namespace) -> None:
    """Draw data, samples and energy of a run.

    Args:
        args: the flags.

    Raises:
        UserError: there is no such run, or the picture cannot be written.
    """
    if args.out is not None:
        check_out(args.out, args.force, (".png", ".pdf", ".svg"))
    else:
        _check_folder(args.run, "add --out for the picture, or ")
    model = load_model(args.run, args.device)
    samples = model.sample(images.SHOWN if model.is_image else N_POINTS)
    print(f"picture: {plot_into(model, samples, args.out or args.run / 'plot.png')}")


def _check_folder(run: Path, hint: str = "") -> None:
    """A `UserError` if a model of its own was given to a command that writes to the run folder."""
    if run.is_file():
        raise UserError(f"{run}: a file, without a folder for the results; {hint}give the run folder of pscd train")


def evaluate_into(
    model: "Model", run: Path, *, n: int, seed: int, samples: "torch.Tensor | None" = None, features: str = "pixels"
) -> None:
    """Measure, print, and keep the numbers in the run folder.

    Args:
        model: the model of the run.
        run: the run folder.
        n: samples, and rows to compare them with.
        seed: of samples and fresh data.
        samples: samples drawn already.
        features: what images are compared by.

    Raises:
        UserError: there are too few data to measure by, or they have changed.
    """
    from pscd.evaluation import evaluate, evaluate_images, keep

    if model.is_image:
        of_images = evaluate_images(model, n=n, seed=seed, features=features, samples=samples)
        images.print_measurements(of_images)
        keep(of_images, RunFolder(run), seed=seed)
    else:
        measurements = evaluate(model, n=n, seed=seed, samples=samples)
        _print_measurements(measurements)
        keep(measurements, RunFolder(run), seed=seed)


def _print_measurements(measurements: "Sequence[Measurement]") -> None:
    print(f"against {measurements[0].n_real} held-out rows      MMD^2 x 1e4        n")
    for m in measurements:
        print(f"  {m.name:<26} {1e4 * m.mmd:>11.2f} {m.n_fake:>8}")


def plot_into(model: "Model", samples: "torch.Tensor", path: Path) -> Path:
    """Draw the data of a run beside its samples, with the energy where it can be shown.

    Args:
        model: the model of the run.
        samples: draws from it.
        path: the picture to write.

    Returns:
        The path.

    Raises:
        UserError: the picture cannot be written, or the data have changed.
    """
    from pscd.evaluation import load_run_data
    from pscd.plots import plot_run

    data = load_run_data(model)
    if model.is_image:
        return images.plot_images(data, samples, path)
    try:
        return plot_run(model, data.train, samples, path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from None


SAMPLE = Command("draw new rows or images from a run", add_sample, run_sample)
EVALUATE = Command("measure how far samples of a run are from data it has not seen", add_evaluate, run_evaluate)
PLOT = Command("draw data, samples and energy of a run side by side", add_plot, run_plot)
