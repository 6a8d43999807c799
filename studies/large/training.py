"""Training on the table: peak memory and updates per second, streamed from `.npy` and Parquet, and in memory."""

import statistics
import time
from pathlib import Path
from typing import Any

from studies.engine.markdown import markdown_table
from studies.large import child
from studies.large.table import make_npy, make_parquet

STEPS = 400  # of a run whose memory is measured
SEGMENT, SEGMENTS = 320, 6  # updates in a row, and how often: meanwhile a whole window is read ahead
KINDS = ("npy", "Parquet")
LEAST = {"npy": 0.9, "Parquet": 0.8}  # of the updates per second in memory
BLOCK = 2**17  # rows that are brought into the network's coordinates at a time
MOST_MB = 700.0  # beyond `import pscd`


def measure(folder: Path, n_rows: int) -> dict[str, Any]:
    """Train in processes of their own: two that stream, and one that holds the rows, beside streams.

    Args:
        folder: for the table.
        n_rows: of the table.

    Returns:
        Peak memory, and updates per second side by side.
    """
    npy = make_npy(folder / "table.npy", n_rows)
    paths = {"npy": str(npy), "Parquet": str(make_parquet(folder / "table", npy))}
    runs = {kind: child.run(f"{__name__}:train", threads=1, path=path) for kind, path in paths.items()}
    small = n_rows < 1_000_000
    segment, segments = (32, 2) if small else (SEGMENT, SEGMENTS)
    together = child.run(f"{__name__}:side_by_side", threads=1, paths=paths, segment=segment, segments=segments)
    return {"streamed": runs, "side by side": together, "steps": STEPS, "segment": segment}


def settings(steps: int, stream: str) -> Any:
    """The preset for tables, with the gamma that it chooses where there is junk."""
    from studies.presets import preset

    return preset("table").changed({"updates": steps, "rows.stream": stream, "objective.gamma": 0.3})


def train(path: str) -> dict[str, Any]:
    """Train a model from a file.

    Args:
        path: of the table.

    Returns:
        What the model says about its rows.
    """
    import pscd
    from pscd.data.sources import open_source

    model = pscd.fit(open_source(Path(path), show=False), config=settings(STEPS, "yes"))
    return {"notes": list(model.notes)}


def side_by_side(paths: dict[str, str], segment: int, segments: int) -> dict[str, Any]:
    """One network that is trained in turn on rows in memory, on a `.npy` file and on Parquet files.

    Each in turn makes some hundred updates, so that whatever else the machine does slows all of them alike.

    Args:
        paths: of the table, by kind.
        segment: updates in a row.
        segments: how often.

    Returns:
        Seconds, and seconds of processor time, of each segment by kind.
    """
    import numpy as np
    import torch

    from pscd import fast
    from pscd.data.sources import open_source
    from pscd.recipes.tables import prepare
    from pscd.training.batches import Batches
    from pscd.training.loop import train_step
    from pscd.training.state import init_state

    config, cpu = settings(segment * segments, "no"), torch.device("cpu")
    rows = np.load(paths["npy"], mmap_mode="r")
    sources = {kind: open_source(Path(paths[kind]), show=False) for kind in KINDS}
    sample = sources["npy"].sample(200_000, config.seed).x
    prepared, config = prepare(sample, config)
    state = init_state(sample, config, None, cpu, prepared=prepared)
    z = torch.empty(rows.shape)
    for start in range(0, len(z), BLOCK):
        z[start : start + BLOCK] = prepared.coordinates.forward(torch.tensor(rows[start : start + BLOCK]))
    assert prepared.clean is not None
    # The chance of every row takes minutes to compute and does not change the time of a draw: the sample's will do.
    state.cumulative_chances = prepared.clean.double().repeat(len(z) // len(prepared.clean) + 1)[: len(z)].cumsum(0)
    given: dict[str, Any] = {"in memory": z, **{k: Batches(sources[k], prepared, config, cpu) for k in KINDS}}
    for kind in KINDS:
        given[kind].batch(0)  # the first window; the clock runs for those after it
    found: dict[str, dict[str, list[float]]] = {kind: {"seconds": [], "processor": []} for kind in given}
    steps = dict.fromkeys(given, 0)
    with fast.enough_threads(state.energy, config.batch_size, tuple(prepared.z.shape[1:])):
        for i in range(segments):
            for kind in list(given)[:: 1 if i % 2 else -1]:
                state.step = steps[kind]
                start, used = time.perf_counter(), time.process_time()
                for _ in range(segment):
                    train_step(state, given[kind], config)
                found[kind]["seconds"].append(time.perf_counter() - start)
                found[kind]["processor"].append(time.process_time() - used)
                steps[kind] = state.step
    for kind in KINDS:
        given[kind].close()
    return {"times": found}


def ratios(values: dict[str, Any], kind: str, what: str) -> list[float]:
    """Updates per second relative to those in memory, segment by segment."""
    times = values["side by side"]["times"]
    return [ours / theirs for ours, theirs in zip(times["in memory"][what], times[kind][what], strict=True)]


def _median(values: dict[str, Any], kind: str, what: str) -> float:
    """Total over total would let one segment that something else disturbed decide."""
    times = values["side by side"]["times"]
    return statistics.median(times["in memory"][what]) / statistics.median(times[kind][what])


def section(values: dict[str, Any]) -> list[str]:
    """The lines of the page."""
    times, rows = values["side by side"]["times"], []
    for kind in times:
        rate = values["segment"] / statistics.median(times[kind]["seconds"])
        if kind == "in memory":
            rows.append([kind, f"{rate:.0f}", "1", "1", "", ""])
            continue
        found = ratios(values, kind, "seconds")
        shown = f"{_median(values, kind, 'seconds'):.2f} ({min(found):.2f} to {max(found):.2f})"
        processor = f"{_median(values, kind, 'processor'):.2f}"
        rows.append(
            [kind, f"{rate:.0f}", shown, processor, f"{LEAST[kind]:g}", f"{values['streamed'][kind]['peak_mb']:,.0f}"]
        )
    head = [
        "rows",
        "updates per second",
        "relative to memory",
        "by processor time",
        "wanted",
        "peak, MB above `import pscd`",
    ]
    return [
        "## Training",
        "",
        markdown_table(head, rows),
        "",
        f"Updates: one network of the preset `table`, trained in turn on each kind, {values['segment']} updates at a "
        f"time, {len(times['npy']['seconds'])} times; medians, the least and the largest ratio of neighbours. Memory: "
        f"a whole run of {values['steps']} updates in a process of its own, preparation included, wanted below "
        f"{MOST_MB:.0f} MB beyond `import pscd`, which takes {values['side by side']['import_mb']:.0f} MB with what "
        "training needs. Training has one thread, and a second one reads ahead.",
        "",
        f"The streamed run says: {'; '.join(values['streamed']['npy']['notes'])}.",
    ]
