"""Commands for models of images: `strip` draws chains, `mend` fills in or denoises a picture."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from pscd.cli.flags import Parser
from pscd.cli.output import check_out, say, write
from pscd.cli.reading import ARRAYS, load_model
from pscd.cli.scoring import in_words
from pscd.errors import UserError

if TYPE_CHECKING:
    import torch

    from pscd.images.scores import OutlierScore
    from pscd.model import Model

PICTURES = (".png", ".jpg")
N_MEASURED = 2000  # images; that of `pscd.evaluation`, without loading torch for a help text
SHOWN = 100
STRANGEST = 10  # pictures that are named
PART, SLOW = 500, 2000  # images that are scored at a time, and how many make a progress bar


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
            parts.append(torch.stack([model.energy(part), score(part)]))
            bar.update(len(part))
    energy, strange = torch.cat(parts, 1).numpy()
    columns = {"file" if args.file.is_dir() else "row": names, "energy": energy}
    write(args.out, strange, columns if by == "energy" else {**columns, by: strange})
    order = np.argsort(-strange)
    kind = "pictures" if args.file.is_dir() else "images"
    say(f"{len(names)} {kind} scored: {args.out}; the strangest:")
    for i in order[:STRANGEST]:
        say(f"  {names[i]!s:<32} {by} {strange[i]:.4g}")
    picture = args.out.with_suffix(".png")
    say(f"picture: {grids.save(grids.grid(x[torch.from_numpy(order[:SHOWN].copy())]), picture)}")


def _images_in(path: Path, model: "Model") -> "tuple[torch.Tensor, list[str] | list[int]]":
    """The pictures of a folder in the model's size, or the images of an array, and what they are called."""
    import torch

    from pscd.data.pictures import list_pictures, read_readable
    from pscd.files import suffix_of
    from pscd.tables import read_array

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
            say(f"by energy alone: {error}")
            return OutlierScore.fit(model)
    if args.by is None and len(known) < MIN_REFERENCE:
        say(f"by energy alone: there are only {len(known)} images to compare with")
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
