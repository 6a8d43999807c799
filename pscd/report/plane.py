"""The section about a model of two columns: data, samples, and the energy over the plane now and during training."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError

from pscd.files import read_tensors, write_tensors
from pscd.model import Model
from pscd.report import charts
from pscd.report.blocks import Chart, Charts, Section, Text

Floats = NDArray[np.float64]
Window = tuple[float, float, float, float]

GRID = 48  # cells a side
POINTS = 1_200
FRAMES = 24  # snapshots that are kept; with more, every second one is dropped
ABOVE = 12.0  # nats above the lowest energy at which the colours end


def window_of(x: Floats) -> Window:
    """Where nearly all rows `(n, 2)` lie."""
    (x_low, x_high), (y_low, y_high) = charts.bulk(x[:, 0], 0.15), charts.bulk(x[:, 1], 0.15)
    return x_low, x_high, y_low, y_high


def energy_grid(model: Model, window: Window) -> Floats:
    """Energies above the lowest at the middles of a grid's cells, `(GRID, GRID)`, cut off far above it.

    Args:
        model: of two columns.
        window: low and high of both.

    Returns:
        Energies; the first column of the data along the first axis.
    """
    sides = []
    for low, high in (window[:2], window[2:]):
        edges = torch.linspace(low, high, GRID + 1, dtype=torch.float64)
        sides.append((edges[1:] + edges[:-1]) / 2)
    energy = model.energies(torch.cartesian_prod(*sides)).double().view(GRID, GRID).numpy()
    return np.minimum(energy - energy.min(), ABOVE)


@dataclass(frozen=True)
class Frames:
    """Energies over the plane at some updates of a run.

    Args:
        grids: energies above the lowest, `(GRID, GRID)` each.
        updates: after which each was taken, rising.
        window: low and high of both columns.
    """

    grids: tuple[Floats, ...]
    updates: tuple[int, ...]
    window: Window

    def with_one(self, grid: Floats, update: int) -> "Frames":
        """With one more at the end; a run that went back replaces what it had.

        Args:
            grid: the energies.
            update: after which it was taken.

        Returns:
            At most `FRAMES` of them: with more, every second one is dropped.
        """
        kept = [(g, u) for g, u in zip(self.grids, self.updates, strict=True) if u < update]
        kept = kept[::2] if len(kept) >= FRAMES else kept
        return replace(self, grids=(*(g for g, _ in kept), grid), updates=(*(u for _, u in kept), update))


def write_frames(path: Path, frames: Frames) -> None:
    """Keep frames in a file.

    Args:
        path: of the file.
        frames: at least one.
    """
    tensors = {
        "frames": torch.from_numpy(np.stack(frames.grids)).half(),
        "updates": torch.tensor(frames.updates),
        "window": torch.tensor(frames.window, dtype=torch.float64),
    }
    write_tensors(path, tensors, {})


def read_frames(path: Path) -> Frames | None:
    """The frames of a file.

    Args:
        path: of the file.

    Returns:
        The frames; None if there is no readable file.
    """
    try:
        tensors, _ = read_tensors(path)
        x_low, x_high, y_low, y_high = tensors["window"].tolist()
        return Frames(
            tuple(tensors["frames"].double().numpy()),
            tuple(tensors["updates"].tolist()),
            (x_low, x_high, y_low, y_high),
        )
    except (OSError, SafetensorError, KeyError, ValueError):
        return None


def plane_section(
    model: Model, data: Floats | None, samples: Floats, names: Sequence[str], snapshots: Path, last: int
) -> Section:
    """Data, samples and energy of two columns.

    Args:
        model: of the run.
        data: rows `(n, 2)`, if they are at hand.
        samples: draws of the model.
        names: of both columns.
        snapshots: the file where training kept energies, if it did.
        last: updates that the model has seen.

    Returns:
        The section.
    """
    both = names[0], names[1]
    kept = read_frames(snapshots) or Frames((), (), window_of(samples if data is None else data))
    window = kept.window
    kept = kept.with_one(energy_grid(model, window), last)
    made = []
    if data is not None:
        at = np.linspace(0, len(data) - 1, min(POINTS, len(data))).astype(int)
        said = f"{len(at):,} of {len(data):,} rows" if len(at) < len(data) else f"All {len(at):,} rows"
        made.append(Chart("Data", charts.cloud(data[at], window, both, charts.DATA), f"{said}."))
    shown = samples[:POINTS]
    made.append(Chart("Samples", charts.cloud(shown, window, both, charts.SAMPLES), f"{len(shown):,} samples."))
    about = f"Energy above its lowest value, in nats, cut off at {ABOVE:g}: dark is likely."
    made.append(Chart("Energy", charts.landscape(kept.grids, kept.updates, window, both), about))
    lines = ["Where the energy is low the model expects rows."]
    if len(kept.grids) > 1:
        lines.append("The slider goes through the snapshots that training has kept, from the start to the end.")
    return Section("Data, samples and energy", (Text(tuple(lines)), Charts(tuple(made))))
