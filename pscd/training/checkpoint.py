"""The state of a training run: copied, saved atomically, and restored bit for bit."""

import copy
import io
import os
import warnings
import zipfile
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch

from pscd import distributed
from pscd.coordinates import Coordinates
from pscd.errors import UserError
from pscd.files import reading, replacing, writing_to
from pscd.run_folder import RunFolder
from pscd.sampling.proposals import from_tensors
from pscd.training.state import Best, TrainState

NOT_SHARED = "{} is not the same for all processes; it must lie on a disk that all machines see"


def snapshot(state: TrainState) -> dict[str, Any]:
    """A deep copy of all that `restore` needs, with the buffers of all processes joined."""
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
        **state.coordinates.tensors(),
        "proposal": state.proposal.tensors(),
        "rows": state.rows,
        "best": None if state.best is None else vars(state.best),
        "about": state.about,
    }
    return copy.deepcopy(values)


def restore(state: TrainState, values: dict[str, Any]) -> None:
    """Put a snapshot back, in place; each process takes its part of the buffer."""
    device = state.coordinates.shift.device
    values = copy.deepcopy(values)  # the optimiser would modify the tensors of the snapshot
    state.step, state.retries = values["step"], values["retries"]
    state.energy.load_state_dict(values["energy"])
    state.averaged.load_state_dict(values["averaged"])
    if state.aux is not None:
        state.aux.load_state_dict(values["aux"])
    state.optimizer.load_state_dict(values["optimizer"])
    _check_moments(state.optimizer)
    if values["buffer"].shape[1:] != state.buffer.x.shape[1:]:
        raise ValueError(f"its chains have the shape {tuple(values['buffer'].shape[1:])}")
    size = len(values["buffer"]) // distributed.world_size()
    share = slice(distributed.rank() * size, (distributed.rank() + 1) * size)
    state.buffer.x = values["buffer"][share].to(device)
    if values["label"] is not None:
        state.buffer.label = values["label"][share].to(device)
    state.step_size = values["step_size"].to(state.step_size).view_as(state.step_size)
    best = values["best"]
    state.best = None if best is None else Best(**best)
    known = {f.name: values[f.name] for f in fields(Coordinates) if f.name in values}
    state.coordinates = Coordinates(**known).to(device)
    state.proposal = from_tensors(values["proposal"]).to(device)  # recomputes its derived tensors


def _check_moments(optimizer: torch.optim.Optimizer) -> None:
    """Refuse moments of other shapes than their weights': torch loads them, and its fused Adam does not check."""
    for p, moments in optimizer.state.items():
        for name, t in moments.items():
            if torch.is_tensor(t) and t.shape not in (p.shape, torch.Size()):
                raise ValueError(f"{name} of the optimiser has the shape {tuple(t.shape)}, not {tuple(p.shape)}")


def resume(state: TrainState, folder: Path | None) -> None:
    """Go on from the newest checkpoint of a folder, if there is one of the same rows and network."""
    values = load(folder) if folder is not None else None
    distributed.require_same("" if values is None else str(values["step"]), NOT_SHARED.format(folder))
    if values is None or folder is None:
        return
    rows = values.get("rows")
    if rows and rows != state.rows:
        raise UserError(f"{folder} holds a run on other rows; choose another folder")
    with reading(RunFolder(folder).state, "damaged, or of another network"):
        restore(state, values)


def save(values: dict[str, Any], folder: Path) -> None:
    """Write a snapshot; the previous one is kept, and a kill at any moment leaves one intact."""
    run = RunFolder(folder)
    content = io.BytesIO()  # torch does not report a full disk
    torch.save(values, content)
    with writing_to(run.state), replacing(run.state) as temporary:
        temporary.write_bytes(content.getbuffer())
        if run.state.exists():
            os.replace(run.state, run.previous_state)


def branch(source: Path, folder: Path) -> None:
    """Let a new run start from weights, chains and optimiser of another, at update 0; a run in `folder` is resumed."""
    values = load(source)
    if values is None:
        raise UserError(f"{source}: no run to start from")
    folder.mkdir(parents=True, exist_ok=True)
    if load(folder) is None:
        # The new run may have other rows and settings.
        save({**values, "step": 0, "retries": 0, "rows": "", "best": None, "about": {}}, folder)


def load(folder: Path) -> dict[str, Any] | None:
    """The newest intact snapshot of a run folder, None if there is none; a warning names a damaged one."""
    damaged = []
    run = RunFolder(folder)
    for path in (run.state, run.previous_state):
        if not path.is_file():  # reading a pipe would block
            continue
        try:
            values = _read(path)
        except UserError as error:
            damaged.append(str(error))
            continue
        if damaged:
            warnings.warn(f"{damaged[0]}; resuming from {path.name}, update {values['step']}", stacklevel=2)
        return values
    if damaged:
        raise UserError(f"{' and '.join(damaged)}; delete the run folder to start again")
    return None


def _read(path: Path) -> dict[str, Any]:
    with reading(path, "damaged"):
        # torch does not verify the checksums of its zip archive; one flipped bit would pass unnoticed.
        with zipfile.ZipFile(path) as archive:
            if sum(member.file_size for member in archive.infolist()) > path.stat().st_size:
                raise ValueError("its members are larger than the file")  # torch does not compress
            broken = archive.testzip()
        if broken is not None:
            raise zipfile.BadZipFile(f"checksum of {broken}")
        values = torch.load(path, map_location="cpu", weights_only=True)
        int(values["step"])
        return values
