"""From the end of training to a model: step size and chains to sample with, and the model of a stopped run."""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pscd import losses
from pscd.chains import run_chains
from pscd.config import NotLoaded
from pscd.coordinates import Coordinates
from pscd.errors import UserError
from pscd.files import reading
from pscd.mixtures import Mixture
from pscd.model import IMAGE_BLOCK, Model
from pscd.rng import Stream, generator
from pscd.run_folder import RunFolder
from pscd.sampling import Chains
from pscd.training import checkpoint


def settled(model: Model) -> Model:
    """Make a trained model ready to be sampled; its step size and its chains are changed in place."""
    has_chains, proposal = model.config.objective.needs_negatives, model.proposal
    if has_chains and isinstance(proposal, Chains):
        model.proposal = _without_outliers(model, proposal)
    elif not has_chains and isinstance(proposal, Mixture):
        _adapt_step(model, proposal)
    return model


def _adapt_step(model: Model, proposal: Mixture, *, n_chains: int = 256, n_rounds: int = 300) -> None:
    """Adapt the sampler's step size to an energy that was trained without chains, with draws of the proposal."""
    # Enough rounds for an initial step size off by a factor of a thousand. All processes do the same.
    config = model.config
    rng = generator(config.seed, Stream.SETTLE_STEP, device=model.shift.device)
    x = proposal.sample(n_chains, rng).view(-1, *model.shift.shape)
    for _ in range(n_rounds):
        x, stats = run_chains(
            model.network,
            x,
            config,
            step_size=model.step_size,
            n_steps=2,  # one of them may be a jump
            proposal=proposal,
            generator=rng,
        )
        before, model.step_size = model.step_size, config.sampler.adapt(model.step_size, stats)
        if model.step_size is before:  # a sampler whose step is fixed
            break


def _without_outliers(model: Model, chains: Chains, *, spreads: float = 6.0) -> Chains:
    """The chains of the training without those whose energy is many spreads above the median."""
    # Some are still on their way from noise. Others rest in contamination: it has no weight in robust training, among
    # samples either, so nothing drives such a chain out. Of clean digits 1 in 100 is one spread above the median.
    if not len(chains.points):
        return chains
    e = _energies(model, chains)
    stay = e <= e.median() + spreads * losses.energy_spread(e)
    # A label all of whose chains are outliers can still be sampled.
    stay |= ~torch.isin(chains.label, chains.label[stay])
    return Chains(chains.points[stay], chains.label[stay])


@torch.no_grad()
def _energies(model: Model, chains: Chains) -> Tensor:
    """The energy of each chain, given its label if the model is conditional."""
    model.eval()
    labels = chains.label if model.config.energy.classes else None
    parts = torch.arange(len(chains.points), device=chains.points.device).split(IMAGE_BLOCK)
    z = (chains.at(part) for part in parts)
    return torch.cat(
        [
            model.network(x) if labels is None else model.network(x, labels[part])
            for x, part in zip(z, parts, strict=True)
        ]
    )


def load_stopped(folder: Path, *, energy: nn.Module | None = None, device: torch.device | str = "cpu") -> Model | None:
    """The model of a run's last checkpoint, with a note on how far training came; None if there is no checkpoint."""
    values = checkpoint.load(folder)
    if values is None:
        return None
    path = RunFolder(folder).state
    with reading(path, "damaged, or of another network"):
        about = values.get("about")
        if not about:
            raise UserError("it does not describe its model; resume the run with the same configuration")
        model = Model.from_tensors(_tensors(values), about, path=path, energy=energy, device=device)
        step, steps = int(values["step"]), model.config.updates
        model.notes = (*model.notes, f"trained for {step:,} of {steps:,} updates so far")
    parts = model.config.objective, model.config.sampler
    # Without the module of a custom objective there are energies, but no samples.
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
    """Refuse what torch reads and a checkpoint never holds: views that repeat numbers, and sparse tensors."""
    if t.layout != torch.strided or t.device.type != "cpu" or t.nbytes > t.untyped_storage().nbytes():
        raise ValueError(f"{name} is larger than what the file holds of it")
