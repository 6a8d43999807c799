"""Scoring the table: peak memory for a tenth of it and for all, rows per second on one core and on two, single rows."""

import os
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from studies.engine.markdown import markdown_table
from studies.large.child import run
from studies.large.table import block, make_npy

N_FIT = 20_000  # rows that the detector and the forest are fitted to
ROUNDS = 3  # of one core and two in turn
FOREST_SHARE = 10  # the forest scores one row in so many of those that the detector does
WARM_UP = 1_000  # rows that are scored before the clock starts
SINGLE = 500  # calls with one row
GROWTH_MB = 100  # more for ten times the rows is a failure


def measure(folder: Path, n_rows: int) -> dict[str, Any]:
    """Score the table and a tenth of it by a detector.

    Args:
        folder: for the tables.
        n_rows: of the table.

    Returns:
        Plain values.
    """
    tenth = make_npy(folder / "tenth.npy", n_rows // 10)
    whole = make_npy(folder / "table.npy", n_rows)
    detector = str(folder / "detector")
    run("studies.large.scoring:fit", folder=detector)
    memory = {}
    for name, path in (("tenth", tenth), ("whole", whole)):
        memory[name] = run("studies.large.scoring:score", detector=detector, path=str(path), threads=2)
    turns = [
        {str(n): run("studies.large.scoring:score", detector=detector, path=str(tenth), threads=n) for n in (1, 2)}
        for _ in range(ROUNDS)
    ]
    forest = {str(n): run("studies.large.scoring:forest", path=str(tenth), jobs=n, threads=n) for n in (1, 2)}
    single = run("studies.large.scoring:single", detector=detector)
    return {"memory": memory, "turns": turns, "forest": forest, "single": single, "cores": os.cpu_count()}


def fit(folder: str) -> dict[str, Any]:
    """Fit the detector to the first rows, and keep it."""
    from pscd import EnergyDetector

    Path(folder).mkdir(exist_ok=True)
    EnergyDetector().fit(block(0, N_FIT)).save(folder)
    return {}


def score(detector: str, path: str) -> dict[str, Any]:
    """Score a file as `pscd score` does; the seconds are those of the whole command, once its libraries are loaded."""
    from pscd.cli.main import main

    out = Path(path).with_suffix(".scores.npy")
    few = Path(path).with_suffix(".few.npy")
    np.save(few, np.load(path, mmap_mode="r")[:WARM_UP])
    if main(["score", detector, str(few), "--out", str(out), "--force"]):
        raise RuntimeError(f"{few} was not scored")
    few.unlink()
    start, cpu = time.perf_counter(), time.process_time()
    if main(["score", detector, path, "--out", str(out), "--force"]):
        raise RuntimeError(f"{path} was not scored")
    took = time.perf_counter() - start
    n = len(np.load(out, mmap_mode="r"))
    out.unlink()
    return {"rows": n, "per_second": n / took, "cores_used": (time.process_time() - cpu) / took}


def forest(path: str, jobs: int) -> dict[str, Any]:
    """Isolation forest of scikit-learn on some of the same rows, in the same blocks."""
    from sklearn.ensemble import IsolationForest

    fitted = IsolationForest(random_state=0, n_jobs=jobs).fit(block(0, N_FIT))
    x = np.load(path, mmap_mode="r")
    x = np.asarray(x[: max(1, len(x) // FOREST_SHARE)])
    start = time.perf_counter()
    for i in range(0, len(x), 131_072):
        fitted.score_samples(x[i : i + 131_072])
    return {"rows": len(x), "per_second": len(x) / (time.perf_counter() - start)}


def single(detector: str) -> dict[str, Any]:
    """Milliseconds for one row, after loading: the median and the slowest twentieth of many calls."""
    import torch

    import pscd

    rows = block(0, SINGLE)
    config = pscd.TrainConfig(updates=20)
    used = {
        "detector": pscd.EnergyDetector.load(detector).score_samples,
        "model": pscd.fit(torch.from_numpy(rows), config=config).energy,
    }
    found = {}
    for name, call in used.items():
        call(rows[:1])
        took = []
        for i in range(SINGLE):
            start = time.perf_counter()
            call(rows[i : i + 1])
            took.append(1000 * (time.perf_counter() - start))
        found[name] = {"median": median(took), "slow": float(np.quantile(took, 0.95))}
    return found


def speedup(values: dict[str, Any]) -> float:
    """Rows per second on two cores by those on one, the median over the turns."""
    return median(turn["2"]["per_second"] / turn["1"]["per_second"] for turn in values["turns"])


def growth(values: dict[str, Any]) -> float:
    """Megabytes more for ten times the rows."""
    return values["memory"]["whole"]["peak_mb"] - values["memory"]["tenth"]["peak_mb"]


def section(values: dict[str, Any]) -> list[str]:
    """The lines of the page."""
    memory, turns, forest, single = (values[name] for name in ("memory", "turns", "forest", "single"))
    lines = ["## Scoring", ""]
    lines += [f"A detector fitted to {N_FIT:,} rows, `pscd score DETECTOR table.npy --out scores.npy`.", ""]
    rows = [
        [f"{found['rows']:,}", f"{found['peak_mb']:.0f} MB", f"{found['per_second']:,.0f}"] for found in memory.values()
    ]
    lines += [markdown_table(["rows", "memory above the import", "rows per second"], rows), ""]
    verdict = "within" if growth(values) <= GROWTH_MB else "MORE THAN"
    lines += [f"Ten times the rows take {growth(values):.0f} MB more: {verdict} the {GROWTH_MB} MB allowed.", ""]
    rates = {n: [turn[n]["per_second"] for turn in turns] for n in ("1", "2")}
    rows = [
        [
            f"{n} core{'s' * (n != '1')}",
            f"{median(rates[n]):,.0f}",
            f"{min(rates[n]):,.0f} to {max(rates[n]):,.0f}",
            f"{median(turn[n]['cores_used'] for turn in turns):.2f}",
            f"{forest[n]['per_second']:,.0f}",
        ]
        for n in ("1", "2")
    ]
    head = ["", "rows per second, median", "range", "cores' time per second", "isolation forest"]
    lines += [markdown_table(head, rows), ""]
    lines += [
        f"Two cores by one, in turns of the same run: {speedup(values):.2f} (at least 1.8 is wanted). {len(turns)} "
        f"turns on {memory['tenth']['rows']:,} rows; the forest on {forest['1']['rows']:,} of them.",
        "",
    ]
    times = [(name, t) for name, t in single.items() if isinstance(t, dict)]  # beside the memory of their process
    one = ", ".join(f"{name} {t['median']:.2f} ms (19 of 20 below {t['slow']:.2f})" for name, t in times)
    return [*lines, f"One row at a time, after loading: {one}."]
