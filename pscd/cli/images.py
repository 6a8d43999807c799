"""Commands for models of images: `strip` draws chains, `mend` fills in or denoises a picture."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pscd.cli.common import Command, Parser, add_out, add_run, check_out, in_words, load_model, write
from pscd.cli.reading import ARRAYS
from pscd.errors import UserError

if TYPE_CHECKING:
    import torch

    from pscd.data import Dataset
    from pscd.evaluation import ImageMeasurement
    from pscd.images.scores import OutlierScore
    from pscd.model import Model

PICTURES = (".png", ".jpg")
N_MEASURED = 2000  # images; that of `pscd.evaluation`, without loading torch for a help text
SHOWN = 100
STRANGEST = 10  # pictures that are named
PART, SLOW = 500, 2000  # images that are scored at a time, and how many make a progress bar


def add_strip(parser: Parser) -> None:
    """Add the flags of `pscd strip`.

    Args:
        parser: the command's parser.
    """
    add_run(parser, "train")
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
    from pscd.images.chains import chain_frames

    check_out(args.out, args.force, PICTURES)
    model = load_image_model(args.run, args.device)
    frames = chain_frames(model, args.n, args.steps, seed=args.seed, label=args.label)
    grids.save(grids.grid(frames.flatten(0, 1), frames.shape[1]), args.out)
    print(f"{args.n} chains of {args.steps} steps: {args.out}")


def add_mend(parser: Parser) -> None:
    """Add the flags of `pscd mend`.

    Args:
        parser: the command's parser.
    """
    add_run(parser, "train")
    parser.add_argument("picture", type=Path, help="the picture; it is scaled to the size of the model's images")
    add_out(parser, "picture (.png): what was given, what was kept of it, and the results")
    parser.add_argument(
        "--keep",
        help="part to keep, the rest is filled in: left, right, top, bottom, or a picture that is white where to keep "
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
    from pscd.images.restoration import denoise, half_mask, inpaint

    check_out(args.out, args.force, PICTURES)
    model = load_image_model(args.run, args.device)
    if args.n < 1 or (args.steps is not None and args.steps < 1):
        raise UserError("--n and --steps must be at least 1")
    x = grids.read(args.picture, model.shape)[None]
    if args.keep is None:
        mended, shown = denoise(model, x, n_steps=args.steps or 30, seed=args.seed), x
    else:
        is_file = Path(args.keep).is_file()
        known = grids.read(args.keep, model.shape) > 0.5 if is_file else half_mask(model.shape, args.keep)
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


def add_strangeness(parser: Parser) -> None:
    """Add the flags of `pscd score` that choose among the scores of images.

    Args:
        parser: the command's parser.
    """
    from pscd.images.scores import DEFAULT, SCORES

    group = parser.add_argument_group("models of images")
    group.add_argument(
        "--by",
        choices=tuple(SCORES),
        help=f"what makes an image strange (default: {DEFAULT}; energy if there are no images to compare with, or too "
        "many to read at once): its energy; typicality, an energy unlike that of data, be it high "
        "or low; complexity, more energy than images that compress so well should have; gradient, the norm of dE/dx; "
        "background, more energy than a model of noisy images gives it; joint, energy and compressed length that are "
        "together unlike those of data",
    )
    group.add_argument(
        "--reference",
        type=Path,
        metavar="IMAGES",
        help="images like those of the training, a folder or an array, that typicality, complexity, joint and "
        "background compare with (default: those held out from the training)",
    )
    group.add_argument(
        "--background",
        type=Path,
        metavar="RUN",
        help="the other model of --by background: a run on the same images with noise, such as --data-noise 0.3",
    )


def check_strangeness(args: argparse.Namespace, *, of_images: bool) -> None:
    """Find out that flags for models of images do not fit.

    Args:
        args: the flags of `pscd score`.
        of_images: whether the run has a model of images.

    Raises:
        UserError: they are for another kind of run, or for another score.
    """
    if not of_images and (args.by not in (None, "energy") or args.reference or args.background):
        raise UserError(f"{args.run}: --by, --reference and --background are for models of images, from pscd train")
    if args.background and args.by != "background":
        raise UserError("--background RUN is for --by background")
    if args.by == "background" and not args.background:
        raise UserError(
            "--by background needs --background RUN, a run on the same images with noise (--data-noise 0.3)"
        )


def score_images(args: argparse.Namespace, model: "Model") -> None:
    """Write how strange every image of a folder or an array is, name the strangest, and draw them.

    Args:
        args: the flags of `pscd score`.
        model: a model of images.

    Raises:
        UserError: there are no images, or a file cannot be written.
    """
    import numpy as np
    import torch

    from pscd.images import grids
    from pscd.progress import progress_bar

    check_out(args.out, args.force, (".csv", ".npy", ".parquet"))
    check_out(args.out.with_suffix(".png"), args.force, PICTURES)
    if args.log_density:
        model.log_z()  # which says that images have none
    x, names = _images_in(args.file, model)
    score = _strangeness(args, model)
    by = score.by
    with progress_bar(len(x), show=len(x) > SLOW, unit="image") as bar:
        parts = []
        for part in x.split(PART):
            parts.append(torch.stack([model.energies(part), score(part)]))
            bar.update(len(part))
    energy, strange = torch.cat(parts, 1).numpy()
    columns = {"file" if args.file.is_dir() else "row": names, "energy": energy}
    write(args.out, strange, columns if by == "energy" else {**columns, by: strange})
    order = np.argsort(-strange)
    kind = "pictures" if args.file.is_dir() else "images"
    print(f"{len(names)} {kind} scored: {args.out}; the strangest:")
    for i in order[:STRANGEST]:
        print(f"  {names[i]!s:<32} {by} {strange[i]:.4g}")
    picture = args.out.with_suffix(".png")
    print(f"picture: {grids.save(grids.grid(x[torch.from_numpy(order[:SHOWN].copy())]), picture)}")


def _images_in(path: Path, model: "Model") -> "tuple[torch.Tensor, list[str] | list[int]]":
    """The pictures of a folder in the model's size, or the images of an array, and what they are called."""
    import torch

    from pscd.data.pictures import list_pictures, read_readable
    from pscd.data.tables import read_array
    from pscd.files import suffix_of

    if path.is_dir():
        paths, _ = list_pictures(path)
        if not paths:
            raise UserError(f"{path}: holds no pictures")
        channels, size = model.shape[:2]
        pictures, kept = read_readable(paths, size=size, channels=channels)
        return torch.from_numpy(pictures), [str(paths[i].relative_to(path)) for i in kept]
    if suffix_of(path) not in ARRAYS:
        raise UserError(f"{path}: images are a folder of pictures, or an array ({', '.join(ARRAYS)})")
    x = torch.from_numpy(read_array(path))  # bytes stay bytes, of which 255 is white
    if tuple(x.shape[1:]) != model.shape:
        raise UserError(f"{path}: {in_words(x.shape[1:])} a row, but the run was trained on {in_words(model.shape)}")
    return x, list(range(1, len(x) + 1))


def _strangeness(args: argparse.Namespace, model: "Model") -> "OutlierScore":
    """The score that the flags ask for, or the default."""
    from pscd.images.scores import DEFAULT, MIN_REFERENCE, OutlierScore

    if args.by in ("energy", "gradient"):
        return OutlierScore.fit(model, by=args.by)
    if args.reference is not None:
        known, _ = _images_in(args.reference, model)
    else:
        try:
            known = _held_out(args, model)
        except UserError as error:
            if args.by is not None:
                raise
            print(f"by energy alone: {error}")
            return OutlierScore.fit(model)
    if args.by is None and len(known) < MIN_REFERENCE:
        print(f"by energy alone: there are only {len(known)} images to compare with")
        return OutlierScore.fit(model)
    background = load_image_model(args.background, args.device) if args.background else None
    return OutlierScore.fit(model, known[:N_MEASURED], args.by or DEFAULT, background)


def _held_out(args: argparse.Namespace, model: "Model") -> "torch.Tensor":
    """Images that the run was not trained on; if there are too few, those that it was."""
    from pscd.evaluation import load_run_data
    from pscd.images.scores import MIN_REFERENCE

    try:
        data = load_run_data(model)
    except UserError as error:
        raise UserError(f"{error}; give images to compare with: --reference FOLDER") from None
    return data.held_out if len(data.held_out) >= MIN_REFERENCE else data.train


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
