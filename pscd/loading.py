"""`pscd.load`: whatever a folder or a file holds."""

from pathlib import Path

import torch
from torch import nn

from pscd.detector.estimator import EnergyDetector
from pscd.model import Model
from pscd.run_folder import RunFolder
from pscd.runs import load_run


def load(
    run: Path | str, *, energy: nn.Module | None = None, device: torch.device | str = "cpu"
) -> Model | EnergyDetector:
    """The model or the detector of a run folder or a file; of a stopped run, the model of its last checkpoint.

    Args:
        run: a folder that `train`, `pscd detect` or `EnergyDetector.save` wrote, or a file that `Model.save` wrote.
        energy: a network of your own, if the run trained one; its weights are overwritten.
        device: where to put the model.

    Returns:
        The model with averaged weights, or the detector.

    Raises:
        UserError: there is no model and no checkpoint, or the file is damaged.

    >>> import pscd, tempfile
    >>> config = pscd.TrainConfig(updates=10, batch_size=32, rows=pscd.RowSettings("moon", n_data=100))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model = pscd.load(pscd.train(config, f"{folder}/run", progress=False))
    >>> model.shape
    (2,)
    """
    if RunFolder(Path(run)).is_detector:
        return EnergyDetector.load(run)
    return load_run(run, energy=energy, device=device)
