"""A run folder: training that is kept, resumed, and never mixed with another."""

import json
import os
from pathlib import Path
from typing import Any

import torch

from pscd import distributed
from pscd.config import TrainConfig
from pscd.data import Dataset, load_dataset
from pscd.data.toys import find_toy
from pscd.errors import UserError
from pscd.model import MODEL
from pscd.training import checkpoint
from pscd.training.loop import Log, fit, last_step


def train(
    config: TrainConfig,
    out: Path | str,
    *,
    device: torch.device | str = "cpu",
    progress: bool = True,
    tensorboard: bool = False,
) -> Path:
    """Train what `config` describes and keep it in the folder `out`; goes on where a run there stopped.

    Under `torchrun` all processes train one model together, and the first of them writes.
    """
    out, device = Path(out), torch.device(device)
    started = distributed.start(device)
    try:
        data = load_config_data(config)
        distributed.on_first(lambda: _claim_folder(out, config, data.fingerprint))
        if not _finished(out, config):
            toy = find_toy(config.data)
            log = _metrics_log(out, tensorboard) if distributed.rank() == 0 else None
            model = fit(
                data.train,
                config,
                label=data.train_labels,
                folder=out,
                device=device,
                progress=progress,
                log=log,
                columns=data.columns,
                fingerprint=data.fingerprint,
                modes=toy.mode if toy is not None else None,
            )
            if distributed.rank() == 0:
                model.save(out / MODEL, step=last_step(config))
        distributed.barrier()
    finally:
        if started:
            distributed.stop()
    return out


def load_config_data(config: TrainConfig) -> Dataset:
    """The data that a configuration names, split by its seed."""
    return load_dataset(
        config.data, seed=config.seed, n=config.n_data, columns=config.columns, image_size=config.image_size
    )


def _claim_folder(out: Path, config: TrainConfig, fingerprint: str) -> None:
    """Make the run folder, or check that the run in it is this one."""
    description = {**config.to_dict(), "fingerprint": fingerprint}
    path = out / "config.json"
    if path.exists():
        try:
            found = json.loads(path.read_text())
            fingerprint_found = found.pop("fingerprint")
            differences = config.differences(TrainConfig.from_dict(found))
        except (ValueError, KeyError, TypeError):
            raise UserError(f"{path} is damaged, or of another version; choose another --out") from None
        if not differences and fingerprint_found == fingerprint:
            return
        if not differences:
            raise UserError(f"{config.data} has changed since the run in {out} started; choose another --out")
        raise UserError(f"{out} holds a run with other settings ({'; '.join(differences)}); choose another --out")
    try:
        out.mkdir(parents=True, exist_ok=True)
        if any(out.iterdir()):
            raise UserError(f"{out} exists and holds other files; choose another --out")
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps(description, indent=1) + "\n")
        os.replace(temporary, path)
    except OSError as error:
        raise UserError(f"cannot write to {out}: {error.strerror}") from None


def _finished(out: Path, config: TrainConfig) -> bool:
    """Whether a model is there and is not merely the last good one of a run that diverged."""
    state = checkpoint.load(out) if (out / MODEL).exists() else {"step": 0}
    return state is None or state["step"] >= last_step(config)


def read_metrics(run: Path) -> list[dict[str, float]]:
    """The rows of a run's `metrics.jsonl`; a last one that a kill has cut is left out."""
    path = run / "metrics.jsonl"
    rows = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            rows.append(json.loads(line))
        except ValueError:
            break
    return rows


def _metrics_log(out: Path, tensorboard: bool) -> Log:
    """Append rows to `metrics.jsonl`, dropping those a killed run wrote after its last checkpoint."""
    path = out / "metrics.jsonl"
    rows = read_metrics(out)
    writer: Any = None
    if tensorboard:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise UserError("--tensorboard needs tensorboard; pip install 'pscd[tensorboard]'") from None
        writer = SummaryWriter(str(out / "tensorboard"))

    def log(row: dict[str, float]) -> None:
        nonlocal rows
        if rows and rows[-1]["step"] >= row["step"]:
            rows = [old for old in rows if old["step"] < row["step"]]
            path.write_text("".join(json.dumps(old) + "\n" for old in rows))
        rows.append(row)
        with path.open("a") as file:
            file.write(json.dumps(row) + "\n")
        if writer is not None:
            for name, value in row.items():
                writer.add_scalar(name, value, int(row["step"]))

    return log
