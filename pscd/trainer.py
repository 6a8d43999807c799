"""Training: one loop, readable top to bottom."""

import copy
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pscd import checkpoint, distributed, theory
from pscd.buffer import ReplayBuffer
from pscd.checkpoint import TrainState
from pscd.config import TrainConfig
from pscd.data import load_dataset
from pscd.data.toys import MODES
from pscd.diagnostics import Modes, mode_shares
from pscd.errors import Diverged, NotFinite, UserError
from pscd.model import Model
from pscd.progress import progress_bar
from pscd.proposal import MixtureProposal
from pscd.rng import generator
from pscd.samplers import Tempered, frozen
from pscd.threads import enough_threads

WARMUP_STEPS = 100  # updates over which the learning rate rises, while Adam's moments are rough
BASE_SCALE = 2.0  # width of the Gaussian that chains restart from, in standard deviations of the data
RETRY_FACTOR = 0.5  # what a roll-back does to the learning rate

MODEL = "model.safetensors"
Log = Callable[[dict[str, float]], None]


def train_step(state: TrainState, x: Tensor, config: TrainConfig) -> dict[str, Tensor]:
    """One update: batch, negatives, loss, gradients, optimiser, average.

    `x` are all the data, in the network's coordinates.

    Raises `Diverged` before weights or chains are touched if the loss, an energy or the gradient is not
    finite, or the phases run apart.
    """
    objective = config.objective.at(state.step / config.steps)
    rng = generator(config.seed, 4, state.step, distributed.rank(), state.retries, device=x.device)
    n = config.batch_size // distributed.world_size()

    x_pos = x[torch.randint(len(x), (n,), generator=rng, device=x.device)]
    if config.data_noise:
        noise = torch.randn(x_pos.shape, generator=rng, device=x.device)
        x_pos = x_pos + config.data_noise * noise

    stats: dict[str, Tensor] = {}
    x_neg = x_pos[:0]
    if objective.needs_negatives:
        rows = state.buffer.draw(n, config.restart, rng)
        x_neg, sampler_stats = config.sampler.run(
            state.energy if objective.sampling_power == 1 else Tempered(state.energy, objective.sampling_power),
            rows.x,
            step_size=state.step_size,
            n_steps=config.sampler.n_steps,
            proposal=state.proposal,
            generator=rng,
        )
        stats = {name: distributed.mean(value) for name, value in sampler_stats.items()}

    state.energy.train()
    try:
        loss, loss_stats = objective(state.energy, state.aux, x_pos, x_neg, rng)
    except NotFinite as error:
        raise Diverged(str(error)) from None
    state.optimizer.zero_grad()
    loss.backward()
    parameters = [p for group in state.optimizer.param_groups for p in group["params"]]
    distributed.sum_gradients(parameters)
    norm = nn.utils.clip_grad_norm_(parameters, math.inf if config.clip is None else config.clip)
    stats |= {"loss": loss.detach(), "gradient": norm, **loss_stats}
    _check(stats, config)

    for group in state.optimizer.param_groups:
        group["lr"] = learning_rate(config, state.step) * RETRY_FACTOR**state.retries
    state.optimizer.step()
    update_average(state.averaged, state.energy, config.ema, state.step)

    if objective.needs_negatives:
        state.buffer.write(rows, x_neg)
        state.step_size = config.sampler.adapt(state.step_size, stats)
    state.step += 1
    return stats


def fit(
    x: Tensor,
    config: TrainConfig,
    *,
    energy: nn.Module | None = None,
    folder: Path | None = None,
    device: torch.device | str = "cpu",
    progress: bool = False,
    log: Log | None = None,
    columns: tuple[str, ...] | None = None,
    modes: Modes | None = None,
) -> Model:
    """Train an energy on rows `(n, *shape)` and return the model, in memory.

    Args:
        energy: any module `(B, *shape) -> (B,)`; by default what `config.energy` describes.
        folder: keep checkpoints here, and go on from the newest one found.
        progress: show a progress line with the time left.
        log: called with a row of metrics every `config.log_every` updates.
        modes: where modes are known, which one each row belongs to; the log then says how the chains are
            spread over them and how far that is from the data.
    """
    if config.batch_size % distributed.world_size() or config.buffer_size % distributed.world_size():
        raise UserError(f"batch_size and buffer_size must be multiples of the {distributed.world_size()} processes")
    device = torch.device(device)
    state = init_state(x, config, energy, device)
    resumed = checkpoint.load(folder) if folder is not None else None
    if resumed is not None:
        checkpoint.restore(state, resumed)
    true_shares = mode_shares(x, modes, int(modes(x).max()) + 1) if modes is not None else None
    x = (x.to(device) - state.shift) / state.scale
    good = checkpoint.snapshot(state)
    end = last_step(config)
    main = distributed.rank() == 0
    with (
        enough_threads(state.energy, config.batch_size),
        progress_bar(end, done=state.step, show=progress and main) as bar,
    ):
        while state.step < end:
            try:
                stats = train_step(state, x, config)
            except Diverged as error:
                failed_at, retries = state.step, state.retries + 1
                checkpoint.restore(state, good)
                state.retries = good["retries"] = retries
                bar.update(state.step - bar.n)
                if retries > config.max_retries:
                    if main and folder is not None:
                        checkpoint.save(good, folder)
                        _as_model(state, config, columns).save(folder / MODEL, step=state.step)
                    raise Diverged(_last_words(error, failed_at, state.step, config, folder)) from None
                bar.write(f"step {failed_at}: {error}; back to {state.step}, smaller step", file=sys.stderr)
                continue
            bar.update()
            if state.step % config.log_every == 0 or state.step == end:
                row = {"step": state.step, **{name: float(value) for name, value in stats.items()}}
                if modes is not None and true_shares is not None:
                    row |= _mode_stats(state, modes, true_shares)
                bar.set_postfix_str(_summary(row), refresh=False)
                if log is not None and main:
                    log(row)
            if state.step % config.checkpoint_every == 0 or state.step == end:
                good = checkpoint.snapshot(state)
                if main and folder is not None:
                    checkpoint.save(good, folder)
    return _as_model(state, config, columns)


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
        data = load_dataset(config.data, seed=config.seed, n=config.n_data, columns=config.columns)
        if distributed.rank() == 0:
            _claim_folder(out, config, data.fingerprint)
        distributed.barrier()
        if not _finished(out, config):
            log = _metrics_log(out, tensorboard) if distributed.rank() == 0 else None
            model = fit(
                data.train,
                config,
                folder=out,
                device=device,
                progress=progress,
                log=log,
                columns=data.columns,
                modes=MODES.get(config.data),
            )
            if distributed.rank() == 0:
                model.save(out / MODEL, step=last_step(config))
        distributed.barrier()
    finally:
        if started:
            distributed.stop()
    return out


def init_state(x: Tensor, config: TrainConfig, energy: nn.Module | None, device: torch.device) -> TrainState:
    """A fresh state: random weights, coordinates and proposal from the data, chains from the base."""
    shape = tuple(x.shape[1:])
    shift, scale = standardisation(x) if config.standardise == "std" else (torch.zeros(shape), torch.ones(shape))
    z = (x - shift) / scale
    proposal = MixtureProposal.fit(z, components=config.jump_components, seed=config.seed)
    centre, spread = (t.to(device) for t in standardisation(z))
    if energy is None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            energy = config.energy.build(shape)
    energy = energy.to(device)
    _check_energy(energy, z[:2].to(device))
    shift, scale, proposal = shift.to(device), scale.to(device), proposal.to(device)
    distributed.broadcast([*energy.state_dict().values(), shift, scale, *proposal.tensors().values()])

    def base(n: int, rng: torch.Generator | None) -> Tensor:
        return centre + BASE_SCALE * spread * torch.randn(n, *shape, generator=rng, device=device)

    rng = generator(config.seed, 5, distributed.rank(), device=device)
    aux = config.objective.init(energy, z[:1].to(device))
    parameters = [*energy.parameters(), *(aux.parameters() if aux is not None else [])]
    return TrainState(
        energy=energy,
        averaged=copy.deepcopy(energy).requires_grad_(False),
        aux=aux,
        optimizer=torch.optim.Adam(parameters, lr=config.lr, betas=(config.beta1, 0.999)),
        buffer=ReplayBuffer(config.buffer_size // distributed.world_size(), base, generator=rng),
        step_size=torch.tensor(config.sampler.step_size, device=device),
        shift=shift,
        scale=scale,
        proposal=proposal,
    )


def _check_energy(energy: nn.Module, x: Tensor) -> None:
    with torch.no_grad(), frozen(energy):
        shape = tuple(energy(x).shape)
    if shape != (len(x),):
        hint = "; end it with nn.Flatten(0)" if shape == (len(x), 1) else ""
        raise UserError(f"the energy must map {tuple(x.shape)} to {(len(x),)}, one number a row; it gave {shape}{hint}")


def standardisation(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each column; a constant column keeps its scale."""
    x = x.double()
    scale = x.std(0)
    return x.mean(0).float(), torch.where(scale > 0, scale, 1.0).float()


def learning_rate(config: TrainConfig, step: int) -> float:
    """The learning rate at an update: a short linear rise, then the schedule."""
    rise = min(1.0, (step + 1) / WARMUP_STEPS)
    fall = 0.5 * (1 + math.cos(math.pi * step / config.steps)) if config.schedule == "cosine" else 1.0
    return config.lr * rise * fall


def last_step(config: TrainConfig) -> int:
    """The number of updates to make: all, or as many as Algorithm 2's randomised stop draws.

    Its distribution p_Z is that of Theorem 5 with alpha = 1/2 and the smoothness for which the largest
    learning rate is just allowed.
    """
    if config.stop == "end":
        return config.steps
    rates = torch.tensor([learning_rate(config, step) for step in range(config.steps)], dtype=torch.float64)
    alpha = 0.5
    return theory.randomised_stop(rates, alpha, (1 - alpha) / float(rates.max()), generator(config.seed, 16))


@torch.no_grad()
def update_average(averaged: nn.Module, energy: nn.Module, memory: float, step: int) -> None:
    """Move the averaged weights towards the current ones; the memory grows with the run's age."""
    memory = min(memory, (1 + step) / (10 + step))
    ours: list[Tensor] = list(averaged.parameters())
    theirs: list[Tensor] = list(energy.parameters())
    torch._foreach_lerp_(ours, theirs, 1 - memory)
    for buffer, new in zip(averaged.buffers(), energy.buffers(), strict=True):
        buffer.copy_(new)


def _check(stats: dict[str, Tensor], config: TrainConfig) -> None:
    # One transfer for all: this is where the device is waited for, once per update.
    values = dict(
        zip(stats, torch.stack([s.float().to(stats["loss"].device) for s in stats.values()]).tolist(), strict=True)
    )
    for name, value in values.items():
        if not math.isfinite(value):
            raise Diverged(f"{name} is {value}")
    if abs(values.get("gap", 0.0)) > config.max_gap:
        raise Diverged(f"the energies of data and samples are {abs(values['gap']):.0f} apart")


def _mode_stats(state: TrainState, modes: Modes, true_shares: Tensor) -> dict[str, float]:
    chains = (state.buffer.x * state.scale + state.shift).cpu()
    shares = mode_shares(chains, modes, len(true_shares))
    error = float((shares - true_shares).abs().max())
    return {**{f"mode_{i}": float(share) for i, share in enumerate(shares)}, "mode_error": error}


def _as_model(state: TrainState, config: TrainConfig, columns: tuple[str, ...] | None) -> Model:
    return Model(
        state.averaged,
        config,
        shift=state.shift,
        scale=state.scale,
        step_size=state.step_size,
        proposal=state.proposal,
        columns=columns,
    )


def _summary(row: dict[str, float]) -> str:
    shown = {"e_pos": "E data", "e_neg": "E samples", "ess_neg": "ESS", "acceptance": "accept", "temperature": "T"}
    return ", ".join(f"{label} {row[name]:.3g}" for name, label in shown.items() if name in row)


def _last_words(error: Diverged, failed_at: int, good: int, config: TrainConfig, folder: Path | None) -> str:
    kept = f"; the model of step {good} is kept in {folder}" if folder is not None else ""
    return (
        f"training diverged {config.max_retries + 1} times, last at step {failed_at} ({error}){kept}; "
        "try a smaller lr, more sampler steps, or a smaller sampler step size"
    )


def _claim_folder(out: Path, config: TrainConfig, fingerprint: str) -> None:
    """Make the run folder, or check that the run in it is this one."""
    description = {**config.to_dict(), "fingerprint": fingerprint}
    path = out / "config.json"
    if path.exists():
        found = json.loads(path.read_text())
        if found == description:
            return
        fingerprint_found = found.pop("fingerprint")
        differences = config.differences(TrainConfig.from_dict(found))
        if not differences and fingerprint_found != fingerprint:
            raise UserError(f"{config.data} has changed since the run in {out} started; choose another --out")
        raise UserError(f"{out} holds a run with other settings ({'; '.join(differences)}); choose another --out")
    try:
        out.mkdir(parents=True, exist_ok=True)
        if any(out.iterdir()):
            raise UserError(f"{out} exists and holds other files; choose another --out")
        path.write_text(json.dumps(description, indent=1) + "\n")
    except OSError as error:
        raise UserError(f"cannot write to {out}: {error.strerror}") from None


def _finished(out: Path, config: TrainConfig) -> bool:
    """Whether a model is there and is not merely the last good one of a run that diverged."""
    state = checkpoint.load(out) if (out / MODEL).exists() else {"step": 0}
    return state is None or state["step"] >= last_step(config)


def _metrics_log(out: Path, tensorboard: bool) -> Log:
    """Append rows to `metrics.jsonl`, dropping those a killed run wrote after its last checkpoint."""
    path = out / "metrics.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
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
