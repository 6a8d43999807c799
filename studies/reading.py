"""How long it takes to read, look at and encode a table of mixed columns: `python -m studies reading`."""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pscd.tables import decode, encode, look, open_table, write_like


def mixed_table(n: int, seed: int = 0) -> pd.DataFrame:
    """Thirty columns: 12 numbers, 6 integers, 6 categories, 2 flags, 2 moments, a counter and a name; 3 % missing."""
    rng = np.random.default_rng(seed)
    columns: dict[str, Any] = {f"number {j}": rng.normal(size=n).round(4) for j in range(12)}
    columns |= {f"integer {j}": rng.integers(0, 1000, n) for j in range(6)}
    columns |= {f"category {j}": rng.choice(["red", "green", "blue", "light blue", "grey"], n) for j in range(6)}
    columns |= {f"flag {j}": rng.choice(["yes", "no"], n) for j in range(2)}
    moments = np.datetime64("2020-01-01T00:00:00") + rng.integers(0, 10**8, (2, n)).astype("timedelta64[s]")
    columns |= {f"moment {j}": moments[j].astype(str) for j in range(2)}
    columns |= {"counter": np.arange(n), "name": [f"p{i}" for i in range(n)]}
    frame = pd.DataFrame(columns)
    return frame.mask(rng.random(frame.shape) < 0.03)


def flags(parser: argparse.ArgumentParser) -> None:
    """The flags of this study."""
    parser.add_argument("--rows", type=int, help="of the table (default: 100,000; 1,000 with --quick)")


def run(args: argparse.Namespace) -> None:
    """Print the seconds of each stage."""
    rows = args.rows or (1_000 if args.quick else 100_000)

    def timed(name: str, work: Callable[[], Any]) -> Any:
        start, wall = time.process_time(), time.perf_counter()
        result = work()
        spent = time.process_time() - start, time.perf_counter() - wall
        print(f"{name:<8} {spent[0]:6.2f} s of the processor, {spent[1]:6.2f} s by the clock")
        return result

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mixed.csv"
        mixed_table(rows).to_csv(path, index=False)
        print(f"{rows:,} rows, 30 columns, {path.stat().st_size / 1e6:.0f} MB")
        frame = timed("read", lambda: open_table(path).frame())
        schema = timed("look", lambda: look(frame))
        encoded = timed("encode", lambda: encode(frame, schema))
        timed("decode", lambda: decode(encoded.x, schema))
        timed("copy", lambda: write_like(path, {(rows // 2, "flag 0"): "maybe"}, Path(folder) / "copy.csv"))
