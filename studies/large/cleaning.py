"""Cleaning: peak memory of `pscd clean` for some rows of the table and for ten times as many, in text and Parquet."""

import time
from pathlib import Path
from typing import Any

import numpy as np

from studies.engine.markdown import markdown_table
from studies.large import scoring
from studies.large.child import run
from studies.large.table import block

SHARE = 25  # of the rows of the table, one in so many
BLOCK = 100_000  # rows that are made at a time
GAPS, SLIPS = 0.005, 0.001  # shares of the cells: missing, and ten times too large


def measure(folder: Path, n_rows: int) -> dict[str, Any]:
    """Clean rows, and ten times as many, by one detector.

    Args:
        folder: for the tables.
        n_rows: of the whole table.

    Returns:
        Plain values.
    """
    detector = str(folder / "detector")
    run("studies.large.scoring:fit", folder=detector)
    found: dict[str, Any] = {}
    for kind in ("parquet", "csv"):
        for name, n in (("tenth", max(10, n_rows // SHARE // 10)), ("whole", max(100, n_rows // SHARE))):
            path = folder / f"{name}.{kind}"
            run("studies.large.cleaning:make", path=str(path), n_rows=n)
            task = {"detector": detector, "path": str(path)}
            found[f"{kind} {name}"] = run("studies.large.cleaning:clean", threads=2, **task)
            path.unlink()
    return found


def make(path: str, n_rows: int) -> dict[str, Any]:
    """Write rows with gaps and slips to a file."""
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

    writer = None
    with Path(path).open("wb") as file:
        for start in range(0, n_rows, BLOCK):
            rng = np.random.default_rng(start)
            x = block(start, min(BLOCK, n_rows - start)).astype(np.float64).round(4)
            dice = rng.random(x.shape)
            x[dice < SLIPS] *= 10
            x[dice > 1 - GAPS] = np.nan
            frame = pd.DataFrame(x, columns=[f"x{j}" for j in range(x.shape[1])])
            if path.endswith(".csv"):
                frame.to_csv(file, index=False, header=start == 0)
                continue
            piece = pa.Table.from_pandas(frame, preserve_index=False)
            writer = writer or pq.ParquetWriter(file, piece.schema)
            writer.write_table(piece)
        if writer is not None:
            writer.close()
    return {}


def clean(detector: str, path: str) -> dict[str, Any]:
    """Clean a file as `pscd clean --repair --fill` does; the seconds are those of the whole command."""
    import pandas as pd

    from pscd.cli.main import main

    out = Path(path).with_name(f"mended{Path(path).suffix}")
    start, cpu = time.perf_counter(), time.process_time()
    if main(["clean", path, "--run", detector, "--repair", "--fill", "--out", str(out)]):
        raise RuntimeError(f"{path} was not cleaned")
    took, cells = time.perf_counter() - start, out.with_name("mended.cells.csv")
    with cells.open("rb") as file:
        n_cells = sum(1 for _ in file) - 1
    n = len(pd.read_csv(out, usecols=["x0"]) if out.suffix == ".csv" else pd.read_parquet(out, columns=["x0"]))
    out.unlink()
    cells.unlink()
    used = (time.process_time() - cpu) / took
    return {"rows": n, "cells": n_cells, "per_second": n / took, "cores_used": used}


def section(values: dict[str, Any]) -> list[str]:
    """The lines of the page."""
    lines = ["## Cleaning", ""]
    lines += [
        f"A detector fitted to {scoring.N_FIT:,} rows without gaps; `pscd clean table --run DETECTOR --repair --fill "
        f"--out mended` of rows of the same kind, with {100 * GAPS:g} % of the cells missing and {100 * SLIPS:g} % ten "
        "times too large.",
        "",
    ]
    kinds = {name: found for name, found in values.items() if isinstance(found, dict) and "cells" in found}
    rows = [
        [name.split()[0], f"{found['rows']:,}", f"{found['cells']:,}", f"{found['peak_mb']:.0f} MB",
         f"{found['per_second']:,.0f}"]
        for name, found in kinds.items()
    ]  # fmt: skip
    lines += [markdown_table(["file", "rows", "cells changed", "memory above the import", "rows per second"], rows), ""]
    for kind in ("parquet", "csv"):
        more = kinds[f"{kind} whole"]["peak_mb"] - kinds[f"{kind} tenth"]["peak_mb"]
        verdict = "within" if more <= scoring.GROWTH_MB else "MORE THAN"
        lines.append(
            f"Ten times the rows of {kind} take {more:.0f} MB more: {verdict} the {scoring.GROWTH_MB} MB allowed."
        )
    return lines
