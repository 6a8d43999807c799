"""Tables with known anomalies for `studies.detection`, from labelled images.

Of each class one table is made: most rows are images of the class, the junk are a few images of all others, and the
columns are principal components of these rows, junk included. Shares of junk and numbers of columns differ from class
to class, so that there is something of everything.

python -m studies class-tables OUT --data mnist,fashion-mnist     # then: python -m studies detection OUT
"""

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from pscd.errors import UserError
from studies.images.sets import load_images

SHARES = (0.01, 0.02, 0.03, 0.05, 0.05, 0.08, 0.1, 0.1, 0.15, 0.2)  # of junk
COLUMNS = (5, 8, 10, 12, 15, 20, 6, 25, 30, 10)
MOST_ROWS = 900  # of the class


def class_tables(name: str, seed: int = 0) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Name, X and y, 1 for junk, of the table of each class; by test images."""
    images = load_images(name, train=False)
    if images.label is None:
        raise UserError(f"{name}: images without labels; name a set that has them")
    pixels, label = images.x.flatten(1).numpy() / 255.0, images.label.numpy()
    rng = np.random.default_rng(seed)
    for i, majority in enumerate(np.unique(label)):
        share = SHARES[i % len(SHARES)]
        own = rng.permutation(np.flatnonzero(label == majority))[:MOST_ROWS]
        junk = rng.permutation(np.flatnonzero(label != majority))[: max(3, round(share / (1 - share) * len(own)))]
        rows = rng.permutation(np.concatenate([own, junk]))
        yield f"{name}-{majority}", components(pixels[rows], COLUMNS[i % len(COLUMNS)]), label[rows] != majority


def components(x: np.ndarray, k: int) -> np.ndarray:
    """The first k principal components of rows `(n, d)`."""
    centred = x - x.mean(0)
    _, _, directions = np.linalg.svd(centred, full_matrices=False)
    return centred @ directions[:k].T


def write_tables(tables: Iterable[tuple[str, np.ndarray, np.ndarray]], out: Path) -> int:
    """Write name, X and y of tables to a folder as `studies.detection` reads them; returns their number."""
    out.mkdir(parents=True, exist_ok=True)
    n = 0
    for n, (name, x, y) in enumerate(tables, 1):  # noqa: B007
        np.savez(out / f"{name}.npz", X=x, y=y.astype(int))
        print(f"{name}: {len(x)} x {x.shape[1]}, {y.mean():.1%} junk")
    return n


def flags(parser: argparse.ArgumentParser) -> None:
    """The flags of this study."""
    parser.add_argument("out", type=Path, help="folder for the tables")
    parser.add_argument("--data", default="mnist,fashion-mnist", help="sets of images, by comma (default: %(default)s)")


def run(args: argparse.Namespace) -> None:
    """Write the tables of each set of images."""
    for data in args.data.split(","):
        write_tables(class_tables(data.strip()), args.out)
