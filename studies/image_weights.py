"""Which images `--start glance` ignores, clean and with junk: `python -m studies image-weights`.

Writes a page. Nothing is trained; it takes a few minutes of one core. Sets that are not on this machine are left out.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor
from tqdm import tqdm

from pscd.data import contaminate, to_unit
from pscd.errors import UserError
from pscd.files import write_text_atomic
from pscd.recipes.images import weigh_images
from pscd.rng import generator
from pscd.version import machine
from studies.engine import with_reading
from studies.engine.markdown import markdown_table
from studies.engine.streams import StudyStream
from studies.images.contamination import JUNK, junk
from studies.images.sets import load_images

SETS = ("mnist", "fashion-mnist", "cifar10", "quickdraw", "digits")
MAJORITIES = ("mnist", "fashion-mnist", "cifar10")
OTHERS = ("mnist", "fashion-mnist", "notmnist")
MOST = 20_000  # images that junk is put among
RARE, OF_EACH = 0.1, 2000  # share of the rarer of two kinds, and images of the other


def weights(x: Tensor) -> Tensor:
    """How much each of some images of bytes counts."""
    found, _, _ = weigh_images(to_unit(x), 0.3)
    return torch.ones(len(x), dtype=torch.float64) if found is None else found


def clean_line(name: str) -> list[str]:
    """A set as it is: how many of its images are ignored, and how many count as one of several copies."""
    x = load_images(name, train=True).x
    found = weights(x)
    few = (found > 0) & (found < 1)
    return [name, f"{len(x):,}", f"{int((found == 0).sum()):,}", f"{int(few.sum()):,}", _share(1 - found)]


def junk_line(name: str, kind: str, ratio: float, seed: int) -> list[str]:
    """A set with junk: the weight that junk and images have lost, and what share of all weight junk still has."""
    x = load_images(name, train=True).x[:MOST]
    dirty = contaminate(
        x, ratio, lambda n, rng: junk(kind)(x, n, rng), generator=generator(seed, StudyStream.NOISY_IMAGES)
    )
    found, is_junk = weights(dirty.x), dirty.is_noise
    left = found[is_junk].sum() / found.sum()
    return [name, kind, f"{ratio:.0%}", _share(1 - found[is_junk]), _share(1 - found[~is_junk]), _share(left)]


def rare_line(name: str) -> list[str]:
    """Pairs of labels of which one is a tenth of the images: for how many of them most of the rarer one is ignored."""
    images = load_images(name, train=True)
    assert images.label is not None
    by = [images.x[images.label == label] for label in range(10)]
    n = round(OF_EACH * RARE / (1 - RARE))
    pairs = [(common, rare) for common in range(10) for rare in range(10) if common != rare]
    lost = sum(
        bool(weights(torch.cat([by[common][:OF_EACH], by[rare][:n]]))[-n:].mean() < 0.5) for common, rare in pairs
    )
    return [name, f"{lost} of {len(pairs)}"]


def _share(x: Tensor) -> str:
    return f"{float(x.double().mean()):.2%}"


PAGE = """\
# Which images are ignored before training

Made by `python -m studies image-weights`. {machine}.

What `--start glance` makes of sets as they are, of their training images: images that are ignored, images that are
near-copies of others, and the share of the weight that is lost to both.

{clean}

With junk, made with seed 0, among 20,000 images: the weight that junk loses, that other images lose, and the share of
all weight that is left to junk.

{dirty}

Two labels of one set, 2,000 images of the one and a tenth of the other: pairs for which the rarer one loses more than
half of its weight.

{rare}
"""


def flags(parser: argparse.ArgumentParser) -> None:
    """The flags of this study."""
    parser.add_argument("--sets", nargs="*", default=list(SETS), help=f"sets of images ({' '.join(SETS)})")


def run(args: argparse.Namespace) -> Path:
    """Weigh the images of each set; returns the page."""
    torch.set_num_threads(1)
    sets = [name for name in args.sets if _is_there(name)]
    path = args.out / "image-weights.md"
    text = PAGE.format(
        machine=machine(),
        clean=markdown_table(["set", "images", "ignored", "copies", "weight lost"], map(clean_line, tqdm(sets))),
        dirty=markdown_table(
            ["images", "junk", "share", "lost by junk", "lost by other images", "left to junk"], _junk_lines(sets)
        ),
        rare=markdown_table(["set", "pairs"], (rare_line(name) for name in tqdm(sets) if name in MAJORITIES)),
    )
    args.out.mkdir(parents=True, exist_ok=True)
    write_text_atomic(path, with_reading(text, path))
    return path


def _junk_lines(sets: Sequence[str]) -> list[list[str]]:
    cases = [
        (name, kind, ratio)
        for name in sets
        if name in MAJORITIES
        for kind, ratio in [*((kind, 0.1) for kind in JUNK), *((kind, r) for kind in OTHERS for r in (0.05, 0.1))]
        if kind != name
    ]
    return [junk_line(*case, seed=0) for case in tqdm(cases)]


def _is_there(name: str) -> bool:
    try:
        load_images(name, train=True)
    except UserError:
        return False
    return True
