"""Commands for models of images: grids, strips of chains, mending."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pscd.cli.common import add_out, add_run, check_out, command, device, write
from pscd.data import Dataset
from pscd.data.image_formats import list_pictures, read_pictures
from pscd.errors import UserError
from pscd.evaluation import ImageMeasurement
from pscd.images import grids
from pscd.images.restoration import SIDES, denoise, inpaint, known_side
from pscd.model import Model
from pscd.rng import generator
from pscd.runs import load

PICTURES = (".png", ".jpg")
STRIP_FRAMES = 12
SHOWN = 100
N_MEASURED = 1000
STRANGEST = 10


def add_strip(commands: Any) -> None:
    """`pscd strip`."""
    parser = command(commands, "strip", _strip, "draw chains of an image model on their way from noise to image")
    add_run(parser)
    add_out(parser, "picture (.png): one chain in each row")
    parser.add_argument("--n", type=int, default=8, help="chains (default: 8)")
    parser.add_argument("--steps", type=int, default=400, help="sampler steps from noise (default: 400)")
    parser.add_argument("--label", type=int, help="what to draw, from a conditional model")
    parser.add_argument("--seed", type=int, default=0, help="of noise and chains (default: 0)")


def _strip(args: argparse.Namespace) -> None:
    check_out(args.out, args.force, PICTURES)
    model = load_image_model(args.run, args.device)
    frames = strip(model, args.n, args.steps, seed=args.seed, label=args.label)
    grids.save(grids.grid(frames.flatten(0, 1), frames.shape[1]), args.out)
    print(f"{args.n} chains of {args.steps} steps: {args.out}")


def strip(model: Model, n: int, n_steps: int, *, seed: int = 0, label: int | None = None) -> torch.Tensor:
    """`(n, frames, *shape)`: chains from noise at steps that grow in proportion, the last one included."""
    if n < 1 or n_steps < 1:
        raise UserError(f"the numbers of chains and of steps must be at least 1, got {n} and {n_steps}")
    start = torch.rand(n, *model.shape, generator=generator(seed, 22))
    wanted = {round(n_steps ** (i / (STRIP_FRAMES - 2))) for i in range(STRIP_FRAMES - 1)}
    frames = [start]

    def keep(at: dict[str, Any]) -> None:
        if at["step"] + 1 in wanted:
            frames.append(at["x"].cpu().clone())

    model.sample(n, seed=seed, n_steps=n_steps, start=start, label=label, callback=keep)
    return torch.stack(frames, 1)


def add_mend(commands: Any) -> None:
    """`pscd mend`."""
    parser = command(commands, "mend", _mend, "fill in a part of a picture, or take noise off it, by an image model")
    add_run(parser)
    parser.add_argument("picture", type=Path, help="the picture; scaled to the size of the model's images")
    add_out(parser, "picture (.png): what was given, and what became of it")
    parser.add_argument("--keep", help=f"what to hold: {', '.join(SIDES)}, or a picture that is white where to keep")
    parser.add_argument("--n", type=int, default=8, help="how many ways to fill it in (default: 8)")
    parser.add_argument("--steps", type=int, help="sampler steps (default: 500 to fill in, 30 to denoise)")
    parser.add_argument("--seed", type=int, default=0, help="of the chains (default: 0)")


def _mend(args: argparse.Namespace) -> None:
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
    print(f"given, {'held' if args.keep else 'given'}, mended: {args.out}")


def print_measurements(measurements: Sequence[ImageMeasurement]) -> None:
    """A line for samples, and one for training images: what a perfect model would reach."""
    first = measurements[0]
    print(f"against {first.n_real} held-out images, by {first.features}")
    print("                    Frechet  precision  recall  density  coverage        n")
    for m in measurements:
        shares = f"{m.precision:>10.3f} {m.recall:>7.3f} {m.density:>8.3f} {m.coverage:>9.3f}"
        print(f"  {m.name:<14} {m.frechet:>10.4g} {shares} {m.n_fake:>8}")


def score_folder(model: Model, folder: Path, out: Path) -> None:
    """Write the energy of every picture of a folder, name the strangest, and draw them."""
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


def load_image_model(run: Path, where: str) -> Model:
    """The model of a run, if it is one of images."""
    model = load(run, device=device(where))
    if not model.is_image:
        raise UserError(f"{run}: its rows are not images")
    return model


def plot_images(data: Dataset, samples: torch.Tensor, path: Path) -> Path:
    """Training images and samples side by side."""
    n = min(SHOWN, len(data.train), len(samples))
    sides = (grids.grid(x[:n]) for x in (data.train, samples))
    return grids.save(grids.beside(*sides), path)
