"""The table that is measured: ten columns, four groups, and a twentieth of junk; in `.npy` and in Parquet."""

from pathlib import Path

import numpy as np

from pscd.progress import progress_bar

N_COLUMNS = 10
N_GROUPS = 4
JUNK = 0.05  # of the rows, spread evenly over a box
REACH = 8.0  # half the side of that box
BLOCK = 500_000  # rows that are made at a time
SEED = 0
GROUP_ROWS = 250_000  # of a row group


def block(i: int, n: int) -> np.ndarray:
    """Rows of the table.

    Args:
        i: number of the block.
        n: rows in it.

    Returns:
        `(n, N_COLUMNS)` in float32, the same whenever they are asked for.
    """
    shape = np.random.default_rng([SEED])
    centres = shape.uniform(-4, 4, (N_GROUPS, N_COLUMNS)).astype(np.float32)
    widths = shape.uniform(0.3, 1.5, (N_GROUPS, N_COLUMNS)).astype(np.float32)
    rng = np.random.default_rng([SEED, i])
    group = rng.integers(0, N_GROUPS, n)
    x = rng.standard_normal((n, N_COLUMNS), dtype=np.float32) * widths[group] + centres[group]
    junk = rng.random(n) < JUNK
    x[junk] = rng.uniform(-REACH, REACH, (int(junk.sum()), N_COLUMNS))
    return x


def make_npy(path: Path, n_rows: int, show: bool = True) -> Path:
    """Write the table as a `.npy` file, unless it is there.

    Args:
        path: of the file.
        n_rows: of the table.
        show: a progress line.

    Returns:
        The path.
    """
    if path.is_file():
        return path
    temporary = path.with_suffix(".making.npy")
    x = np.lib.format.open_memmap(temporary, "w+", np.float32, (n_rows, N_COLUMNS))
    with progress_bar(n_rows, show=show, unit="row") as bar:
        for i, start in enumerate(range(0, n_rows, BLOCK)):
            part = block(i, min(BLOCK, n_rows - start))
            x[start : start + len(part)] = part
            bar.update(len(part))
    x.flush()
    del x
    return temporary.rename(path)


def make_parquet(folder: Path, npy: Path, files: int = 8) -> Path:
    """Write the rows of the `.npy` file as a folder of Parquet files, unless it is there.

    Args:
        folder: to make.
        npy: the table.
        files: how many files.

    Returns:
        The folder.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if folder.is_dir():
        return folder
    temporary = folder.with_name(f"{folder.name}.making")
    temporary.mkdir(exist_ok=True)
    x = np.load(npy, mmap_mode="r")
    names = [f"x{j}" for j in range(N_COLUMNS)]
    per_file = -(-len(x) // files)
    for i in range(files):
        part = x[i * per_file : (i + 1) * per_file]
        with pq.ParquetWriter(
            temporary / f"part-{i}.parquet",
            pa.schema([(name, pa.float32()) for name in names]),
            use_dictionary=False,  # of no use for numbers that never repeat
        ) as out:
            for start in range(0, len(part), GROUP_ROWS):
                rows = np.ascontiguousarray(part[start : start + GROUP_ROWS].T)
                out.write_table(pa.table(dict(zip(names, rows, strict=True))), row_group_size=GROUP_ROWS)
    return temporary.rename(folder)
