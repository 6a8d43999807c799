"""Training that is kept in a folder, can be resumed, and is never mixed with another run."""

import json
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn

from pscd import distributed
from pscd.config import TrainConfig
from pscd.data import Dataset, load_dataset
from pscd.data.toys import find_toy
from pscd.errors import UserError
from pscd.files import (
    append_text,
    locked,
    needs,
    read_json,
    read_tensors,
    remove_temporary,
    sealed,
    unsealed,
    write_json,
    write_text_atomic,
    writing_to,
)
from pscd.model import Model
from pscd.run_folder import RunFolder
from pscd.training.checkpoint import NOT_SHARED
from pscd.training.finish import load_stopped
from pscd.training.fit import fit
from pscd.training.loop import Callback, count_modes, last_step


def train(
    config: TrainConfig,
    out: Path | str,
    *,
    device: torch.device | str = "cpu",
    progress: bool = True,
    tensorboard: bool = False,
    callbacks: Sequence[Callback] = (),
    timeout: float = 600.0,
) -> Path:
    """Train what `config` describes and keep it in a run folder; resumes a run that stopped there.

    Under `torchrun` all processes train one model together, and the first of them writes.

    Args:
        config: every setting, the name of the data included.
        out: the run folder; created if needed.
        device: where to train.
        progress: show a progress line with the time left.
        tensorboard: write TensorBoard logs too.
        callbacks: see `pscd.fit`; called after each row of the log is written.
        timeout: seconds after which a process that keeps the others waiting counts as lost.

    Returns:
        The run folder.

    Raises:
        UserError: the data cannot be read, the folder holds another run or other files, or cannot be written, or
            another process trains there.
        Diverged: training diverged more often than `config.guard.max_retries`; the last good model is kept.
        LostProcess: one of several processes has ended or does not answer; the checkpoints are kept.

    >>> import pscd, tempfile
    >>> config = pscd.TrainConfig(updates=10, batch_size=32, rows=pscd.RowSettings("moon", n_data=100))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = pscd.train(config, f"{folder}/run", progress=False)
    ...     sorted(path.name for path in run.iterdir())
    ['config.json', 'metrics.jsonl', 'model.safetensors', 'state.pt']
    """
    train_model(
        config, out, device=device, progress=progress, tensorboard=tensorboard, callbacks=callbacks, timeout=timeout
    )
    return Path(out)


def train_model(
    config: TrainConfig,
    out: Path | str,
    *,
    data: Dataset | None = None,
    device: torch.device | str = "cpu",
    progress: bool = True,
    tensorboard: bool = False,
    callbacks: Sequence[Callback] = (),
    timeout: float = 600.0,
) -> Model:
    """As `train`, with data that were read already (`load_config_data`); returns the model."""
    run, device = RunFolder(Path(out)), torch.device(device)
    with distributed.group(device, timeout):
        data = load_config_data(config) if data is None else data
        distributed.require_same(data.fingerprint, f"{config.rows.data} is not the same for all processes")
        with ExitStack() as lock:  # held by the first process
            distributed.on_first(lambda: _claim(run, config, data.fingerprint, lock))
            with _given_back_on_failure(run):
                finished = _finished(run, config)
                distributed.require_same(str(finished), NOT_SHARED.format(run.path))
                if not finished:
                    model = _train_into(run, config, data, device, progress, tensorboard, callbacks)
            distributed.barrier()
    return load_run(run.path, device=device) if finished else model


def _train_into(
    run: RunFolder,
    config: TrainConfig,
    data: Dataset,
    device: torch.device,
    progress: bool,
    tensorboard: bool,
    callbacks: Sequence[Callback],
) -> Model:
    toy = find_toy(config.rows.data)
    counts = [count_modes(toy.mode, data.train)] if toy is not None and toy.mode is not None else []
    log = [_metrics_log(run, tensorboard)] if distributed.rank() == 0 else []
    return fit(
        data.train if data.stream is None else data.stream,
        config=config,
        label=data.train_labels if config.energy.classes else None,
        folder=run.path,
        device=device,
        progress=progress,
        callbacks=(*counts, *log, *callbacks),
        columns=data.columns,
        fingerprint=data.fingerprint,
        schema=data.schema,
    )


def load_run(run: Path | str, *, energy: nn.Module | None = None, device: torch.device | str = "cpu") -> Model:
    """The model of a run folder or a file; of a run that was stopped, that of its last checkpoint, with a warning."""
    folder = RunFolder(Path(run))
    if folder.path.is_file():
        return Model.load(folder.path, energy=energy, device=device)
    if not folder.path.is_dir():
        raise UserError(f"{run}: no such run folder")
    if folder.is_detector:
        raise UserError(f"{run}: holds a detector, not a model")
    if not folder.model.is_file():
        stopped = load_stopped(folder.path, energy=energy, device=device)
        if stopped is not None:
            warnings.warn(f"{run}: {stopped.notes[-1]}; training with the same configuration resumes it", stacklevel=2)
            return stopped
    return Model.load(folder.model, energy=energy, device=device)


def load_config_data(config: TrainConfig) -> Dataset:
    """The training and held-out rows that a configuration names, split by its seed."""
    if not config.rows.data:
        raise UserError("the model was fitted to rows in memory, which are not kept; give the rows")
    return load_dataset(
        config.rows.data,
        seed=config.seed,
        n=config.rows.n_data,
        columns=config.rows.columns,
        image_size=config.rows.image_size,
        stream=config.rows.stream,
    )


def _claim(run: RunFolder, config: TrainConfig, fingerprint: str, lock: ExitStack) -> None:
    """Make and lock the run folder, or check that the run in it is this one."""
    run.make()
    lock.enter_context(locked(run.lock))
    with writing_to(run.path):
        remove_temporary(run.path)
        begun = _has_begun(run)
        if (begun and not run.config.is_file()) or (not begun and not _is_free(run)):
            raise UserError(f"{run.path} exists and holds other files; choose another folder")
        if begun:
            _check_same_run(run, config, fingerprint)
        else:
            write_json(run.config, sealed({**config.to_dict(), "fingerprint": fingerprint}))


def _has_begun(run: RunFolder) -> bool:
    """Whether a run has left anything beside its settings."""
    return any(path not in (run.config, run.lock) for path in run.path.iterdir())


def _is_free(run: RunFolder) -> bool:
    """Whether there are no settings yet, or those of a run that was stopped before its first checkpoint."""
    if not run.config.is_file():
        return True
    try:
        return "fingerprint" in unsealed(read_json(run.config))
    except (UserError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _check_same_run(run: RunFolder, config: TrainConfig, fingerprint: str) -> None:
    try:
        values = unsealed(read_json(run.config))
        old_fingerprint = values.pop("fingerprint")
        there = TrainConfig.from_dict(values)
        # The same rows may be called by another path, from another folder.
        same_rows = old_fingerprint == fingerprint
        differences = (config.changed({"rows.data": there.rows.data}) if same_rows else config).differences(there)
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError):
        raise UserError(f"{run.config} is damaged, or of another version; choose another folder") from None
    if differences:
        raise UserError(f"{run.path} holds a run with other settings ({'; '.join(differences)}); choose another folder")
    if not same_rows:
        raise UserError(f"{config.rows.data} has changed since the run in {run.path} started; choose another folder")


@contextmanager
def _given_back_on_failure(run: RunFolder) -> Iterator[None]:
    """Remove the folder of a run that fails before its first checkpoint: it would refuse the corrected command."""
    try:
        yield
    except BaseException:
        with suppress(OSError):  # the disk may have failed; the first error is the one to report
            if distributed.rank() == 0 and not _has_begun(run):
                run.config.unlink(missing_ok=True)
                run.lock.unlink(missing_ok=True)
                run.path.rmdir()
        raise


def _finished(run: RunFolder, config: TrainConfig) -> bool:
    """Whether there is a model, and not merely the last good one of a run that diverged."""
    try:
        return int(read_tensors(run.model)[1]["step"]) >= last_step(config)
    except (OSError, SafetensorError, KeyError, ValueError):
        return False


def _metrics_log(run: RunFolder, tensorboard: bool) -> Callback:
    """A callback that appends rows to the metrics, and drops those a killed run wrote after its last checkpoint."""
    rows = run.read_metrics()
    is_whole = not run.metrics.is_file() or run.metrics.read_bytes() == _lines(rows).encode()
    writer: Any = None
    if tensorboard:
        needs("tensorboard", "tensorboard", "tensorboard")
        from torch.utils.tensorboard import SummaryWriter

        writer = SummaryWriter(str(run.tensorboard))

    def log(at: dict[str, Any]) -> None:
        nonlocal rows, is_whole
        row = at["stats"]
        with writing_to(run.metrics):
            if not is_whole or (rows and rows[-1]["step"] >= row["step"]):
                rows = [old for old in rows if old["step"] < row["step"]]
                write_text_atomic(run.metrics, _lines(rows))
                is_whole = True
            rows.append(row)
            append_text(run.metrics, _lines([row]))
        if writer is not None:
            for name, value in row.items():
                writer.add_scalar(name, value, int(row["step"]))

    return log


def _lines(rows: list[dict[str, float]]) -> str:
    return "".join(json.dumps(sealed(row)) + "\n" for row in rows)
