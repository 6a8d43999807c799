"""The state of a training run: copied, saved atomically, and restored bit for bit."""

import copy
import os
import pickle
import warnings
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pscd import distributed
from pscd.errors import UserError
from pscd.sampling.buffer import ReplayBuffer
from pscd.sampling.proposals import Chains, MixtureProposal, from_tensors

STATE = "state.pt"
PREVIOUS = "state-previous.pt"


@dataclass
class TrainState:
    """All that changes during training, and the coordinates it happens in."""

    energy: nn.Module
    averaged: nn.Module  # the exponential moving average of the weights
    aux: nn.Module | None  # what the objective trains beside the energy
    optimizer: torch.optim.Optimizer
    buffer: ReplayBuffer
    step_size: Tensor  # of the sampler, adapted
    shift: Tensor
    scale: Tensor
    proposal: MixtureProposal | Chains
    step: int = 0
    retries: int = 0  # roll-backs so far; each makes the learning rate smaller and the randomness new


def snapshot(state: TrainState) -> dict[str, Any]:
    """A deep copy of everything that `restore` needs, with the buffers of all processes together."""
    label = state.buffer.label
    values = {
        "step": state.step,
        "retries": state.retries,
        "energy": state.energy.state_dict(),
        "averaged": state.averaged.state_dict(),
        "aux": state.aux.state_dict() if state.aux is not None else None,
        "optimizer": state.optimizer.state_dict(),
        "buffer": distributed.gather(state.buffer.x),
        "label": distributed.gather(label) if label is not None else None,
        "step_size": state.step_size,
        "shift": state.shift,
        "scale": state.scale,
        "proposal": state.proposal.tensors(),
    }
    return copy.deepcopy(values)


def restore(state: TrainState, values: dict[str, Any]) -> None:
    """Put a snapshot back, in place; each process takes its share of the buffer."""
    device = state.shift.device
    values = copy.deepcopy(values)  # the optimiser would keep, and change, the tensors of the snapshot
    state.step, state.retries = values["step"], values["retries"]
    state.energy.load_state_dict(values["energy"])
    state.averaged.load_state_dict(values["averaged"])
    if state.aux is not None:
        state.aux.load_state_dict(values["aux"])
    state.optimizer.load_state_dict(values["optimizer"])
    size = len(values["buffer"]) // distributed.world_size()
    share = slice(distributed.rank() * size, (distributed.rank() + 1) * size)
    state.buffer.x = values["buffer"][share].to(device)
    if values["label"] is not None:
        state.buffer.label = values["label"][share].to(device)
    state.step_size = values["step_size"].to(device)
    state.shift, state.scale = values["shift"].to(device), values["scale"].to(device)
    state.proposal = from_tensors(values["proposal"]).to(device)  # its derived tensors are made anew


def save(values: dict[str, Any], folder: Path) -> None:
    """Write a snapshot to `folder`; the one before it is kept, and a kill at any moment leaves one whole."""
    temporary = folder / f"{STATE}.tmp"
    with temporary.open("wb") as file:
        torch.save(values, file)
        file.flush()
        os.fsync(file.fileno())
    if (folder / STATE).exists():
        os.replace(folder / STATE, folder / PREVIOUS)
    os.replace(temporary, folder / STATE)


def branch(source: Path, folder: Path) -> None:
    """Let a run in `folder` begin where the one in `source` stands: its weights, chains and optimiser at update 0.

    A run that is there already goes on instead.
    """
    values = load(source)
    if values is None:
        raise UserError(f"{source}: no run to begin from")
    folder.mkdir(parents=True, exist_ok=True)
    if load(folder) is None:
        save({**values, "step": 0, "retries": 0}, folder)


def load(folder: Path) -> dict[str, Any] | None:
    """The newest whole snapshot in `folder`; None if there has been none.

    A damaged newest one is named in a warning, and the one before it is used.
    """
    damaged = []
    for name in (STATE, PREVIOUS):
        path = folder / name
        if not path.exists():
            continue
        try:
            values = _read(path)
        except _DAMAGED as error:
            damaged.append(f"{path} is damaged ({error})")
            continue
        if damaged:
            warnings.warn(f"{damaged[0]}; going on from {path.name}, step {values['step']}", stacklevel=2)
        return values
    if damaged:
        raise UserError(f"{' and '.join(damaged)}; delete the run folder to start again")
    return None


_DAMAGED = (zipfile.BadZipFile, RuntimeError, EOFError, OSError, KeyError, ValueError, pickle.UnpicklingError)


def _read(path: Path) -> dict[str, Any]:
    # torch does not verify the checksums of its zip archive; one flipped bit would pass unnoticed.
    with zipfile.ZipFile(path) as archive:
        broken = archive.testzip()
    if broken is not None:
        raise zipfile.BadZipFile(f"checksum of {broken}")
    return torch.load(path, map_location="cpu", weights_only=True)
