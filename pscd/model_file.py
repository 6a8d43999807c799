"""What the file of a model holds beside its weights, and a model's parts from the content of an untrusted file."""

import json
import math
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from pscd.config import TrainConfig
from pscd.coordinates import Coordinates
from pscd.errors import UserError
from pscd.files import under
from pscd.mixtures import Mixture
from pscd.sampling import Chains
from pscd.sampling.proposals import from_tensors

if TYPE_CHECKING:
    from pscd.tables import Schema


def describe(
    energy: nn.Module,
    config: TrainConfig,
    *,
    columns: tuple[str, ...] | None = None,
    fingerprint: str | None = None,
    notes: tuple[str, ...] = (),
    schema: "Schema | None" = None,
) -> dict[str, str]:
    """What a file of a model holds beside its tensors, as texts or JSON."""
    return {
        "config": json.dumps(config.to_dict()),
        "columns": json.dumps(columns),
        "fingerprint": json.dumps(fingerprint),
        "notes": json.dumps(notes),
        "schema": json.dumps(None if schema is None else schema.to_json()),
        "energy": type(energy).__name__,
    }


def parts(tensors: dict[str, Tensor], metadata: dict[str, str], path: Path, energy: nn.Module | None) -> dict[str, Any]:
    """The arguments of a `Model`; `energy` is a network of the user's own, whose weights are overwritten."""
    from pscd.tables import Schema  # imports pandas

    config = TrainConfig.from_dict(json.loads(metadata["config"]))
    columns, schema = json.loads(metadata["columns"]), json.loads(metadata["schema"])
    notes, wanted = json.loads(metadata["notes"]), metadata["energy"]
    known = {f.name: tensors[f.name] for f in fields(Coordinates) if f.name in tensors}
    coordinates, step_size = Coordinates(**known), tensors["step_size"]
    proposal, weights = from_tensors(under(tensors, "proposal.")), under(tensors, "energy.")
    check_fits(coordinates, step_size, proposal, weights)
    try:
        energy = energy or config.energy.rebuild(tuple(coordinates.shift.shape), weights)
        energy.load_state_dict(weights)
    except (RuntimeError, AttributeError):  # as torch reports other names and shapes
        about = f"its weights are those of {wanted}; load it with energy={wanted}(...)"
        raise UserError(f"{path}: {about}") from None
    return {
        "energy": energy,
        "config": config,
        "coordinates": coordinates,
        "step_size": step_size,
        "proposal": proposal,
        "columns": tuple(columns) if columns else None,
        "fingerprint": json.loads(metadata["fingerprint"]),
        "notes": tuple(map(str, notes)),
        "schema": None if schema is None else Schema.from_json(schema),
    }


def check_fits(
    coordinates: Coordinates, step_size: Tensor, proposal: Mixture | Chains, weights: dict[str, Tensor]
) -> None:
    """Refuse parts of a file that do not fit together."""
    shape = coordinates.shift.shape
    drawn = proposal.points.shape[1:] if isinstance(proposal, Chains) else proposal.means.shape[1:]
    kinds = {t.dtype for t in weights.values() if t.is_floating_point()} or {torch.float32, torch.float64}
    if step_size.numel() != 1 or step_size.dtype not in kinds or not 0 < float(step_size) < math.inf:
        raise ValueError(f"the step size is {step_size}")
    if isinstance(proposal, Chains):
        points, label = proposal.points, proposal.label
        if (points.dtype, label.dtype) != (torch.uint8, torch.long) or label.shape != points.shape[:1]:
            raise ValueError("its chains are no images with a label each")
    if drawn.numel() != shape.numel():
        raise ValueError(f"rows have the shape {tuple(shape)}, chains start at {tuple(drawn)}")
    if coordinates.forward(coordinates.inverse(torch.zeros(1, *shape))).shape[1:] != shape:
        raise ValueError("its coordinates do not fit together")
