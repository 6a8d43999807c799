"""The files of a run folder, each named in one place."""

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class RunFolder:
    """Where the files of a run are. A folder is written by `pscd train` or by `pscd detect`, and describes itself.

    Args:
        path: the folder.

    >>> RunFolder(Path("runs/moon")).model.name
    'model.safetensors'
    """

    path: Path

    @property
    def config(self) -> Path:
        """Every setting, and the fingerprint of the data."""
        return self.path / "config.json"

    @property
    def metrics(self) -> Path:
        """A line of JSON every so many updates."""
        return self.path / "metrics.jsonl"

    @property
    def state(self) -> Path:
        """What a resume needs, as of the last checkpoint."""
        return self.path / "state.pt"

    @property
    def previous_state(self) -> Path:
        """The checkpoint before the last."""
        return self.path / "state-previous.pt"

    @property
    def model(self) -> Path:
        """Averaged weights, and all it takes to score and to sample."""
        return self.path / "model.safetensors"

    @property
    def lock(self) -> Path:
        """Locked by the process that writes to the folder, and removed when it is done."""
        return self.path / ".lock"

    @property
    def evaluation(self) -> Path:
        """How far samples are from held-out data."""
        return self.path / "evaluation.json"

    @property
    def plot(self) -> Path:
        """Data, samples and energy as a picture."""
        return self.path / "plot.png"

    @property
    def tensorboard(self) -> Path:
        """Logs for TensorBoard."""
        return self.path / "tensorboard"

    @property
    def detector(self) -> Path:
        """A detector's coordinates and threshold."""
        return self.path / "detector.safetensors"

    @property
    def network(self) -> Path:
        """A detector's network."""
        return self.path / "network.safetensors"

    @property
    def scores(self) -> Path:
        """Energies of a detector's training rows; beside it a picture of the same name."""
        return self.path / "scores.csv"

    @property
    def duplicates(self) -> Path:
        """Groups of pictures that hardly differ, if there are any."""
        return self.path / "duplicates.csv"

    @property
    def source(self) -> Path:
        """The file that a detector learnt from, and its fingerprint."""
        return self.path / "source.json"

    @property
    def report(self) -> Path:
        """Everything about the run as one HTML file."""
        return self.path / "report.html"

    @property
    def is_detector(self) -> bool:
        """Whether it was written by `pscd detect`."""
        return self.detector.is_file()

    def read_metrics(self) -> list[dict[str, float]]:
        """The rows of `metrics`; lines that a kill has cut or a disk has damaged are left out."""
        from pscd.files import unsealed  # which loads torch

        if not self.metrics.is_file():
            return []
        rows = []
        for line in self.metrics.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                row = unsealed(json.loads(line))
                counts = row["step"], row.get("retries", 0)
                if all(isinstance(n, int) for n in counts) and all(isinstance(v, int | float) for v in row.values()):
                    rows.append(row)
            except (ValueError, AttributeError, KeyError, RecursionError):
                continue
        return rows

    def make(self) -> None:
        """Make the folder.

        Raises:
            UserError: it cannot be made.
        """
        from pscd.files import writing_to  # which loads torch

        with writing_to(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
