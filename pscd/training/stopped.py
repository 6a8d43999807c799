"""The model of a run that was stopped, as far as its last checkpoint goes. The checkpoint may be anybody's."""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pscd.config import NotLoaded
from pscd.coordinates import Coordinates
from pscd.errors import UserError
from pscd.files import reading
from pscd.model import Model
from pscd.run_folder import RunFolder
from pscd.training import checkpoint
from pscd.training.settling import settled


def load_stopped(folder: Path, *, energy: nn.Module | None = None, device: torch.device | str = "cpu") -> Model | None:
    """The model that a run had reached at its last checkpoint.

    Args:
        folder: the run folder.
        energy: a network of your own, if the run trains one; its weights are overwritten.
        device: where to put the model.

    Returns:
        The model, the last of its notes being how far training came; None if there is no checkpoint.

    Raises:
        UserError: the checkpoint is damaged, or of another network.
    """
    values = checkpoint.load(folder)
    if values is None:
        return None
    path = RunFolder(folder).state
    with reading(path, "damaged, or of another network"):
        about = values.get("about")
        if not about:
            raise UserError("it does not say what it is a model of; the same pscd train command goes on with it")
        model = Model.from_tensors(_tensors(values), about, path=path, energy=energy, device=device)
        step, steps = int(values["step"]), model.config.updates
        model.notes = (*model.notes, f"trained for {step:,} of {steps:,} updates so far")
    parts = model.config.objective, model.config.sampler
    # Without an objective of one's own, whose module is not imported, there are energies, but no samples.
    return model if any(isinstance(part, NotLoaded) for part in parts) else settled(model)


def _tensors(values: Mapping[str, Any]) -> dict[str, Tensor]:
    """The part of a checkpoint that makes a model, by the names that `Model.save` gives it."""
    best, buffer, label = values.get("best"), values["buffer"], values["label"]
    weights = values["averaged"] if best is None else best["weights"]
    proposal = values["proposal"]
    if buffer.dtype == torch.uint8 or "points" in proposal:  # images, whose chains go on where they are
        proposal = {"points": buffer, "label": torch.zeros(len(buffer), dtype=torch.long) if label is None else label}
    tensors = {f"energy.{name}": t for name, t in weights.items()}
    tensors |= {f"proposal.{name}": t for name, t in proposal.items()}
    tensors |= {name: values[name] for name in (*(f.name for f in fields(Coordinates)), "step_size") if name in values}
    for name, t in tensors.items():
        _check_dense(name, t)
    return tensors


def _check_dense(name: str, t: Tensor) -> None:
    """Refuse what a checkpoint never holds, though torch would read it: views that repeat numbers, sparse tensors."""
    if t.layout != torch.strided or t.device.type != "cpu" or t.nbytes > t.untyped_storage().nbytes():
        raise ValueError(f"{name} is larger than what the file holds of it")
