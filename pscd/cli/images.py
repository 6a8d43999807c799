"""Commands for models of images: `strip` draws chains, `mend` fills in or denoises a picture."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pscd.cli.common import Command, Parser, add_out, add_run, check_out, load_model, write
from pscd.errors import UserError

if TYPE_CHECKING:
    import torch

    from pscd.data import Dataset
    from pscd.evaluation import ImageMeasurement
    from pscd.model import Model

PICTURES = (".png", ".jpg")
N_MEASURED = 2000  # images; that of `pscd.evaluation`, without loading torch for a help text
SHOWN = 100
STRANGEST = 10  # pictures that are named


def add_strip(parser: Parser) -> None:
    """Add the flags of `pscd strip`.

    Args:
        parser: the command's parser.
    """
    add_run(parser)
    add_out(parser, "picture (.png): one chain in each row")
    parser.add_argument("--n", type=int, default=8, help="chains (default: 8)")
    parser.add_argument("--steps", type=int, default=400, help="sampler steps from noise (default: 400)")
    parser.add_argument("--label", type=int, help="class to draw, from a conditional model")
    parser.add_argument("--seed", type=int, default=0, help="of noise and chains (default: 0)")


def run_strip(args: argparse.Namespace) -> None:
    """Draw chains on their way from noise to images.

    Args:
        args: the flags.

    Raises:
        UserError: the run is not one of images, or the picture cannot be written.
    """
    from pscd.images import grids
    from pscd.images.chains import strip

    check_out(args.out, args.force, PICTURES)
    model = load_image_model(args.run, args.device)
    frames = strip(model, args.n, args.steps, seed=args.seed, label=args.label)
    grids.save(grids.grid(frames.flatten(0, 1), frames.shape[1]), args.out)
    print(f"{args.n} chains of {args.steps} steps: {args.out}")


def add_mend(parser: Parser) -> None:
    """Add the flags of `pscd mend`.

    Args:
        parser: the command's parser.
    """
    from pscd.images.restoration import SIDES

    add_run(parser)
    parser.add_argument("picture", type=Path, help="the picture; it is scaled to the size of the model's images")
    add_out(parser, "picture (.png): what was given, what was kept of it, and the results")
    parser.add_argument(
        "--keep",
        help=f"part to keep, the rest is filled in: {', '.join(SIDES)}, or a picture that is white where to keep "
        "(default: all of it is denoised)",
    )
    parser.add_argument("--n", type=int, default=8, help="how many ways to fill it in (default: 8)")
    parser.add_argument("--steps", type=int, help="sampler steps (default: 500 to fill in, 30 to denoise)")
    parser.add_argument("--seed", type=int, default=0, help="of the chains (default: 0)")


def run_mend(args: argparse.Namespace) -> None:
    """Fill in a part of a picture, or denoise it.

    Args:
        args: the flags.

    Raises:
        UserError: the run is not one of images, or a picture cannot be read or written.
    """
    import torch

    from pscd.images import grids
    from pscd.images.restoration import denoise, inpaint, known_side

    check_out(args.out, args.force, PICTURES)
    model = load_image_model(args.run, args.device)
    if args.n < 1 or (args.steps is not None and args.steps < 1):
        raise UserError("--n and --steps must be at least 1")
    x = grids.read(args.picture, model.shape)[None]
    if args.keep is None:
        mended, shown = denoise(model, x, n_steps=args.steps or 30, seed=args.seed), x
    else:
        is_file = Path(args.keep).is_file()
        known = grids.read(args.keep, model.shape) > 0.5 if is_file else known_side(model.shape, args.keep)
        mended = inpaint(model, x.expand(args.n, -1, -1, -1), known, n_steps=args.steps or 500, seed=args.seed)
        shown = torch.where(known, x, 0.5)
    grids.save(grids.grid(torch.cat([x, shown, mended]), 10), args.out)
    print(f"given, kept, {'filled in' if args.keep else 'denoised'}: {args.out}")


def print_measurements(measurements: "Sequence[ImageMeasurement]") -> None:
    """Print a line for samples, and one for training images: what a perfect model would reach.

    Args:
        measurements: both of them.
    """
    first = measurements[0]
    print(f"against {first.n_real} held-out images, by {first.features}")
    print("                    Frechet  precision  recall  density  coverage        n")
    for m in measurements:
        shares = f"{m.precision:>10.3f} {m.recall:>7.3f} {m.density:>8.3f} {m.coverage:>9.3f}"
        print(f"  {m.name:<14} {m.frechet:>10.4g} {shares} {m.n_fake:>8}")


def score_folder(model: "Model", folder: Path, out: Path) -> None:
    """Write the energy of every picture of a folder, name the strangest, and draw them.

    Args:
        model: a model of images.
        folder: the pictures.
        out: `.csv` or `.npy` file for the energies; the drawing stands beside it.

    Raises:
        UserError: there are no pictures, or a file cannot be written.
    """
    import numpy as np
    import torch

    from pscd.data.image_formats import list_pictures, read_pictures
    from pscd.images import grids

    paths, _ = list_pictures(folder)
    if not paths:
        raise UserError(f"{folder}: holds no pictures")
    channels, size = model.shape[:2]
    x = torch.from_numpy(read_pictures(paths, size=size, channels=channels))
    energy = model.energies(x).numpy()
    write(out, energy, {"file": [str(path.relative_to(folder)) for path in paths], "energy": energy})
    order = np.argsort(-energy)
    print(f"{len(paths)} pictures scored: {out}; the strangest:")
    for i in order[:STRANGEST]:
        print(f"  {paths[i].relative_to(folder)!s:<32} energy {energy[i]:.4g}")
    picture = out.with_suffix(".png")
    print(f"picture: {grids.save(grids.grid(x[torch.from_numpy(order[:SHOWN].copy())]), picture)}")


def load_image_model(run: Path, where: str) -> "Model":
    """The model of a run, if it is one of images.

    Args:
        run: the run folder.
        where: name of the device.

    Returns:
        The model.

    Raises:
        UserError: it is none of images, or there is none.
    """
    model = load_model(run, where)
    if not model.is_image:
        raise UserError(f"{run}: its rows are not images")
    return model


def plot_images(data: "Dataset", samples: "torch.Tensor", path: Path) -> Path:
    """Draw training images and samples side by side.

    Args:
        data: the images that the run was trained on.
        samples: draws from its model.
        path: the picture to write.

    Returns:
        The path.

    Raises:
        UserError: the picture cannot be written.
    """
    from pscd.images import grids

    n = min(SHOWN, len(data.train), len(samples))
    sides = (grids.grid(x[:n]) for x in (data.train, samples))
    return grids.save(grids.beside(*sides), path)


STRIP = Command("draw chains of an image model on their way from noise to images", add_strip, run_strip)
MEND = Command("fill in a part of a picture, or denoise it, with an image model", add_mend, run_mend)
