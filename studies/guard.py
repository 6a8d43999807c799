"""`python -m studies guard FOLDER`: a dozen end-to-end numbers that a change of the code must not make worse.

FOLDER holds `adbench/*.npz` (tables with `X` and `y`) and `MNIST/raw` (the original files), or links to them. Every
number has its seed; numbers that are there already in the output are not computed again.
"""

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from studies.engine import Result

TABLES = (
    "14_glass",
    "18_Ionosphere",
    "23_mammography",
    "28_pendigits",
    "2_annthyroid",
    "37_Stamps",
    "41_Waveform",
    "43_WDBC",
    "44_Wilt",
    "6_cardio",
)
ROWS = 5_000  # of a table
CELL_TABLES = ("iris", "diabetes", "breast_cancer")
TOYS = ("moon", "rings", "cosine")
WAYS = ("CD", "gamma 1", "auto")
BENCH_ROUNDS = 7


def _gaussians() -> Iterator[tuple[str, Callable[[], Result]]]:
    from studies.paper import contamination_gaussian as study

    for settings in study._runs(quick=False, seeds=1):
        name = f"gaussian/ratio {settings['ratio']:g}, gamma {settings['gamma']:g}"
        yield name, lambda settings=settings: _only(study._compute(settings), "kl", "exact_kl")


def _toys() -> Iterator[tuple[str, Callable[[], Result]]]:
    from studies.paper import toys_2d as study

    for name in TOYS:
        settings = study.toy_settings(name, study.MANY, 1.0, 0, quick=False)
        yield f"toys-2d/{name}, gamma 1", lambda s=settings: _only(study.compute(s), "mmd", "mmd_density", "kl")


def _moons() -> Iterator[tuple[str, Callable[[], Result]]]:
    from studies.paper import contamination_2d as study

    size = {"n_data": study.N_DATA, "n_grid": study.N_GRID, "n_fresh": study.N_FRESH}
    for seed in range(2):
        for method in WAYS:
            config = study.configuration(method, 0.1, seed, quick=False).to_dict()
            cell = {"set": "moon", "kind": "uniform", "ratio": 0.1, "method": method, "seed": seed, "config": config}
            yield (
                f"moon, 10 % uniform/{method}, seed {seed}",
                lambda s=cell | size: _only(study._compute(s), "kl", "mmd", "auroc"),
            )


def _detector(folder: Path) -> Iterator[tuple[str, Callable[[], Result]]]:
    from sklearn.metrics import average_precision_score, roc_auc_score

    from pscd import EnergyDetector

    def compute(name: str) -> Result:
        file = np.load(folder / "adbench" / f"{name}.npz")
        rows = np.random.default_rng(0).permutation(len(file["y"]))[:ROWS]
        x, y = file["X"][rows], file["y"][rows]
        score = -EnergyDetector(random_state=0).fit(x).score_samples(x)
        return {"auroc": float(roc_auc_score(y, score)), "ap": float(average_precision_score(y, score))}

    for name in TABLES:
        yield f"detector/{name}", lambda name=name: compute(name)


def _cells() -> Iterator[tuple[str, Callable[[], Result]]]:
    from studies.cells import tables
    from studies.cells.measures import ranking
    from studies.cells.ours import _find
    from studies.cells.work import FIND, Dirt, spoil

    def compute(name: str) -> Result:
        table = tables.load("numeric", name, None, rows=600, columns=20, seed=0)
        dirty, _ = spoil(table, Dirt(FIND, 0.05, 0.0, "random"), 0)
        found = ranking(_find(dirty.frame.copy(), 0).scores, dirty)
        return {name: value for name, value in found.items() if name in ("ap", "auroc")}

    for name in CELL_TABLES:
        yield f"cells/{name}", lambda name=name: compute(name)


def _digits(folder: Path) -> Iterator[tuple[str, Callable[[], Result]]]:
    from studies.paper.images import Choice
    from studies.paper.scratch_images import GAMMA, SHORT, run_settings
    from studies.paper.scratch_images import compute as train_and_measure

    choice = Choice(data="mnist", n=1000, updates=300)

    def compute(gamma: float) -> Result:
        os.environ["PSCD_DATA"] = str(folder)
        settings = run_settings(choice, gamma, SHORT, 0, contaminated=True, quick=False)
        settings["config"]["rows"]["n_data"] = 10_000
        with TemporaryDirectory() as runs:
            return _only(train_and_measure(settings, Path(runs)), "fid", "noise")

    for gamma in (0.0, GAMMA):
        yield f"digits from scratch, 10 % noise/gamma {gamma:g} per spread", lambda gamma=gamma: compute(gamma)


def _bench() -> Iterator[tuple[str, Callable[[], Result]]]:
    from studies.timing import CASES, OBJECTIVES, Training, ratio, take_turns

    def compute(name: str) -> Result:
        runs = {objective: Training(CASES[name], gamma) for objective, gamma in OBJECTIVES.items()}
        tasks: Any = {objective: run.update for objective, run in runs.items()}
        tasks |= {"sampler": runs["CD"].sample, "bound": runs["CD"].bound()}
        times = take_turns(tasks, BENCH_ROUNDS, show=False)
        return {
            "PS-CD / CD": ratio(times["PS-CD"], times["CD"]).median,
            "sampler / bound": ratio(times["sampler"], times["bound"]).median,
        }

    for name in CASES:
        yield f"bench/{name}", lambda name=name: compute(name)


def _only(result: Result, *names: str) -> Result:
    return {name: result.get(name) for name in (*names, "error") if name in result}


def flags(parser: argparse.ArgumentParser) -> None:
    """The flags of this study."""
    parser.add_argument("folder", type=Path, help="has adbench/*.npz and MNIST/raw")
    parser.add_argument("--out", type=Path, default=Path("results/guard.json"), help="file of the numbers")
    parser.add_argument("--only", default="", help="parts to compute: those whose names begin so")


def numbers_of(folder: Path) -> Iterator[tuple[str, Callable[[], Result]]]:
    """The name of each number, and what computes it."""
    for part in (_gaussians(), _detector(folder), _cells(), _bench(), _moons(), _toys(), _digits(folder)):
        yield from part


def run(args: argparse.Namespace) -> None:
    """Compute what is missing, and print all numbers."""
    numbers = json.loads(args.out.read_text()) if args.out.is_file() else {}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    for name, compute in numbers_of(args.folder):
        if name in numbers or not name.startswith(args.only):
            continue
        start = time.perf_counter()
        result = compute()
        rounded = {key: round(value, 7) if isinstance(value, float) else value for key, value in result.items()}
        numbers[name] = rounded | {"seconds": round(time.perf_counter() - start, 1)}
        print(name, numbers[name], flush=True)
        args.out.write_text(json.dumps(numbers, indent=1) + "\n")
    for measure in ("auroc", "ap"):
        found = [value[measure] for name, value in numbers.items() if name.startswith("detector/")]
        if found:
            print(f"detector, mean {measure} of {len(found)} tables: {np.mean(found):.4f}")
