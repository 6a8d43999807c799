"""Why rows are read in chunks: the time of a row at a random place, and of a row of a chunk, cached and not."""

import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from studies.engine.markdown import markdown_table
from studies.large import child
from studies.large.table import make_npy

N_RANDOM, N_CHUNKS = 10_000, 64


def measure(folder: Path, n_rows: int) -> dict[str, Any]:
    """Read rows both ways.

    Args:
        folder: for the table.
        n_rows: of the table.

    Returns:
        Microseconds a row, and the memory that random rows of a map take.
    """
    path = make_npy(folder / "table.npy", n_rows)
    return child.run(f"{__name__}:read", path=str(path))


def read(path: str) -> dict[str, Any]:
    """Take the times.

    Args:
        path: of the table.

    Returns:
        See `measure`.
    """
    from pscd.data.chunks import ArrayChunks

    mapped = np.load(path, mmap_mode="r")
    chunks = ArrayChunks(mapped, path=Path(path))
    rng = np.random.default_rng(0)
    found: dict[str, Any] = {}
    for state in ("cached", "not cached"):
        _forget(path, state)
        before, start = child.resident(), time.perf_counter()
        for part in np.array_split(rng.integers(0, len(mapped), N_RANDOM), 10):
            mapped[part].sum()
        random = (time.perf_counter() - start) / N_RANDOM
        taken = child.resident() - before
        _forget(path, state)
        n, start = 0, time.perf_counter()
        for chunk in rng.integers(0, len(chunks.sizes), N_CHUNKS):
            n += len(chunks.read(int(chunk), None).x)
        in_chunks = (time.perf_counter() - start) / n
        found[state] = {"random_us": 1e6 * random, "chunks_us": 1e6 * in_chunks, "random_mb": taken}
        mapped = np.load(path, mmap_mode="r")
    return found


def _forget(path: str, state: str) -> None:
    """Bring the file into the system's cache, or drop it from there."""
    descriptor = os.open(path, os.O_RDONLY)
    advice = os.POSIX_FADV_WILLNEED if state == "cached" else os.POSIX_FADV_DONTNEED
    os.posix_fadvise(descriptor, 0, 0, advice)
    os.close(descriptor)


def section(values: dict[str, Any]) -> list[str]:
    """The lines of the page."""
    head = [
        "file",
        "a row at a random place, microseconds",
        "a row of a chunk",
        "ratio",
        "memory of the random rows, MB",
    ]
    rows = []
    for state in ("cached", "not cached"):
        v = values[state]
        ratio = v["random_us"] / v["chunks_us"]
        cells = [f"{v['random_us']:.3g}", f"{v['chunks_us']:.3g}", f"{ratio:,.0f}", f"{v['random_mb']:,.0f}"]
        rows.append([state, *cells])
    return [
        "## Reading",
        "",
        markdown_table(head, rows),
        "",
        f"{N_RANDOM:,} rows of a memory map at random places, against {N_CHUNKS} chunks of 64 KB at random places.",
    ]
