"""Training: one loop, readable top to bottom."""

import copy
import math
import sys
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from pscd import distributed, fast
from pscd.config import TrainConfig
from pscd.data import RowsOrStream, check_enough
from pscd.energies import TemperedEnergy, as_function
from pscd.errors import Diverged, NotFinite, UserError
from pscd.files import locked
from pscd.mixtures import Mixture
from pscd.model import Model, describe, run_chains
from pscd.presets import for_rows
from pscd.progress import progress_bar
from pscd.recipes.tables import prepare
from pscd.rng import Stream, generator
from pscd.run_folder import RunFolder
from pscd.sampling import ReplayBuffer
from pscd.sampling import buffer as buffers
from pscd.training import checkpoint
from pscd.training.batches import Batches
from pscd.training.forecast import forecast
from pscd.training.given import Given
from pscd.training.guard import Modes, check, last_words, mode_shares, summary
from pscd.training.held_out import HeldOut, hold_out, judge_of
from pscd.training.initial import init_state
from pscd.training.interrupt import deferred_interrupt
from pscd.training.settling import settled
from pscd.training.state import TrainState

WARMUP_STEPS = 100  # updates over which the learning rate rises, while Adam's moment estimates are rough
RETRY_FACTOR = 0.5  # of the learning rate, for each roll-back

Log = Callable[[dict[str, float]], None]
Watch = Callable[[Model, int], None]


def train_step(
    state: TrainState, x: Tensor | Batches, config: TrainConfig, label: Tensor | None = None
) -> dict[str, Tensor]:
    """One update: batch, negatives, loss, gradients, optimiser, averaged weights.

    Args:
        state: changed in place.
        x: all data, `(n, *shape)`, in the network's coordinates, or what gives batches of them.
        config: of the run.
        label: `(n,)`, for a conditional energy; `Batches` have their own.

    Returns:
        Statistics for the log.

    Raises:
        UserError: streamed rows cannot be read.
        Diverged: the loss, an energy or the gradient is not finite, or the gap is too wide. Weights and chains have not
            been changed then.
    """
    objective = config.objective.at(state.step / config.updates)
    rng = generator(config.seed, Stream.UPDATE, state.step, distributed.rank(), state.retries, device=x.device)

    if isinstance(x, Batches):
        x_pos, label_pos = x.batch(state.step)
    else:
        index = _draw_rows(len(x), config.batch_size // distributed.world_size(), state.chances, rng)
        x_pos, label_pos = x[index], label[index] if label is not None else None
    if config.rows.data_noise:
        noise = torch.randn(x_pos.shape, generator=rng, device=x.device)
        x_pos = state.start.confine(x_pos + config.rows.data_noise * noise)

    stats: dict[str, Tensor] = {}
    x_neg, label_neg = x_pos[:0], None
    with fast.using(config.compute.gradients), fast.fixed_weights():
        if objective.needs_negatives:
            rows = _starts(state.buffer, x_pos, label_pos, config, rng)
            label_neg, power = rows.label, objective.sampling_power
            x_neg, stats = run_chains(
                state.energy,
                rows.x,
                config,
                label=label_neg,
                seen_as=None if power == 1 else lambda energy: TemperedEnergy(energy, power),
                step_size=state.step_size,
                proposal=state.proposal,
                generator=rng,
            )

        if not state.energy.training:
            state.energy.train()
        try:
            energy = as_function(state.energy, config.compute.precision, label_pos, label_neg)
            loss, loss_stats = objective(energy, state.aux, x_pos, x_neg, rng)
        except NotFinite as error:
            raise Diverged(str(error)) from None
    parameters = [p for group in state.optimizer.param_groups for p in group["params"]]
    for p in parameters:
        p.grad = None
    loss.backward()
    stats = distributed.sum_gradients(parameters, stats)
    players = (list(module.parameters()) for module in (state.energy, state.aux) if module is not None)
    norm = _gradient_norm(players, config.optimizer.clip)
    stats |= {"loss": loss.detach(), "gradient": norm, **loss_stats}
    check(stats, config)

    for group in state.optimizer.param_groups:
        group["lr"] = learning_rate(config, state.step) * RETRY_FACTOR**state.retries
    state.optimizer.step()
    update_average(state.averaged, state.energy, config.optimizer.ema, state.step)

    if objective.needs_negatives:
        state.buffer.write(rows, x_neg)
        state.step_size = config.sampler.adapt(state.step_size, stats)
    state.step += 1
    return stats


def _draw_rows(n_rows: int, n: int, chances: Tensor | None, generator: torch.Generator) -> Tensor:
    """Indices of the rows of a batch: uniform, or by cumulative probabilities `chances`."""
    if chances is None:
        return torch.randint(n_rows, (n,), generator=generator, device=generator.device)
    at = torch.rand(n, generator=generator, device=generator.device, dtype=chances.dtype) * chances[-1]
    return torch.searchsorted(chances, at, right=True).clamp(max=n_rows - 1)


def _starts(
    buffer: ReplayBuffer, x_pos: Tensor, label: Tensor | None, config: TrainConfig, generator: torch.Generator
) -> buffers.Rows:
    """Where chains start. In every mode they end in rows of the buffer, so that it holds the latest samples."""
    if config.chains.start == "data":
        return replace(buffer.draw(len(x_pos), 0.0, generator), x=x_pos, label=label)
    return buffer.draw(len(x_pos), 1.0 if config.chains.start == "short-run" else config.chains.restart, generator)


def fit(
    x: RowsOrStream,
    config: TrainConfig | None = None,
    *,
    label: Tensor | None = None,
    energy: nn.Module | None = None,
    proposal: Mixture | None = None,
    folder: Path | str | None = None,
    device: torch.device | str = "cpu",
    progress: bool = False,
    log: Log | None = None,
    columns: tuple[str, ...] | None = None,
    fingerprint: str | None = None,
    modes: Modes | None = None,
    watch: Watch | None = None,
) -> Model:
    """Train an energy on rows and return the model, in memory.

    By default the network sees standardised rows; `model(x)` takes them as they are. A module passed as `energy` is
    trained in place, and the model holds a copy with averaged weights.

    Args:
        x: rows `(n, *shape)` as a tensor, an array or a DataFrame of finite numbers; images as bytes
            `(n, channels, height, width)`. More than fit into memory are streamed: a memory map, a torch `Dataset`, a
            `DataLoader`, an iterable of batches that can be read again, or a function that returns one.
        config: every setting; by default a robust one for rows of this shape, see `pscd.presets.for_rows`.
        label: `(n,)` integers, for an energy with `classes`; items and batches of datasets come with their own.
        energy: any module `(B, *shape) -> (B,)`; by default the one that `config.energy` describes.
        proposal: what jumps draw from, in the network's coordinates; by default a mixture fitted to the data.
        folder: keep checkpoints here, and resume from the newest one found.
        device: where to train.
        progress: show a progress line with the time left.
        log: called with a row of metrics every `config.log_every` updates.
        columns: names of the columns, kept with the model.
        fingerprint: a checksum of the data, kept with the model.
        modes: maps rows to the number of their mode, where modes are known; the log then says how the chains are
            distributed over them, and how far that is from the data.
        watch: called with the model so far and the number of updates, at the start and after each checkpoint.

    Returns:
        The model with averaged weights.

    Raises:
        UserError: rows, labels or folder do not fit the configuration.
        Diverged: training diverged more often than `config.max_retries`; a folder keeps the last good model.
        KeyboardInterrupt: Ctrl-C or SIGTERM, after a checkpoint.

    >>> import pscd
    >>> x = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
    >>> config = pscd.TrainConfig(updates=10, batch_size=32, energy=pscd.Architecture("quadratic"))
    >>> model = pscd.fit(x, config)
    >>> e = model.energy([[0.0, 0.0], [9.0, 9.0]])
    >>> bool(e[0] < e[1])  # the second row is the stranger one
    True
    """
    given = Given.of(x, label, config)
    rows = given.rows
    config = _settings(config, rows, own=energy is not None)
    device = torch.device(device)
    label, run = given.check_label(label, config, device), _made(folder)
    prepared, config = prepare(rows, config, columns)
    prepared, held_out, index = hold_out(prepared, config)
    given = given.without(index)
    state = init_state(rows, config, energy, device, columns, proposal, prepared)
    state.rows = given.checksum(state.rows)
    judge = judge_of(held_out, state, config)
    checkpoint.resume(state, None if run is None else run.path)
    # Without negatives there are no chains to count.
    modes = modes if config.objective.needs_negatives else None
    true_shares = mode_shares(rows, modes, int(modes(rows).max()) + 1) if modes is not None else None
    end, main = last_step(config), distributed.rank() == 0
    notes = given.notes(prepared)
    state.about = {} if run is None else _about(state, config, columns, fingerprint, notes)
    as_model = partial(_as_model, config=config, columns=columns, fingerprint=fingerprint, notes=notes)
    good = checkpoint.snapshot(state)
    _show(watch if main else None, state, as_model)
    with (
        locked(run.lock) if run is not None and main else nullcontext(),
        fast.enough_threads(state.energy, config.batch_size, tuple(prepared.z.shape[1:])),
        given.batches(prepared, config, device) as z,
        progress_bar(
            end,
            done=state.step,
            show=progress and main,
            forecast=partial(forecast, left=end - state.step, where=device.type, kept=run is not None),
        ) as bar,
        # Several processes may be at different steps when the signal comes, and saving needs them all.
        deferred_interrupt(enabled=distributed.world_size() == 1) as interrupted,
    ):
        while not state.is_done(end, config.rows.idle_updates):
            try:
                stats = train_step(state, z, config, label)
            except UserError as error:
                _keep(state, error, run)
            except Diverged as error:
                message = _roll_back(state, good, error)
                bar.update(state.step - bar.n)
                if state.retries > config.guard.max_retries:
                    _give_up(state, good, message, config, run, as_model)
                bar.write(f"{message}; back to step {state.step}, smaller step", file=sys.stderr)
                continue
            bar.update()
            if state.step % config.guard.log_every == 0 or state.step == end:
                row = _row(state, stats, judge) | _mode_stats(state, modes, true_shares)
                bar.set_postfix_str(summary(row), refresh=False)
                if log is not None and main:
                    log(row)
            stop, is_done = interrupted(), state.is_done(end, config.rows.idle_updates)
            if state.step % config.guard.checkpoint_every == 0 or is_done or stop:
                good = checkpoint.snapshot(state)
                if main and run is not None:
                    checkpoint.save(good, run.path)
                _show(watch if main else None, state, as_model)
            if stop:
                raise KeyboardInterrupt
        _tell_early_end(state, end, bar if progress and main else None)
    return settled(as_model(state))


def _settings(config: TrainConfig | None, rows: Tensor, *, own: bool) -> TrainConfig:
    """The settings as given, or those for rows of which nothing else is said."""
    if config is None:
        if rows.ndim == 2:
            check_enough(len(rows))
        config = for_rows(tuple(rows.shape[1:]), own=own)
    n = distributed.world_size()
    if config.batch_size % n or config.chains.buffer_size % n:
        raise UserError(f"batch_size and buffer_size must be multiples of the {n} processes")
    return config


def _tell_early_end(state: TrainState, end: int, bar: Any) -> None:
    """Say above the progress bar, if there is one, why a run has made fewer updates than it was to."""
    if bar is not None and state.best is not None and state.step < end:
        best = f"{state.best.step:,}"
        bar.write(f"stopped at update {state.step:,}: by held-out rows none was better than update {best}", sys.stderr)


def _made(folder: Path | str | None) -> RunFolder | None:
    if folder is None:
        return None
    run = RunFolder(Path(folder))
    run.make()
    return run


def _row(state: TrainState, stats: dict[str, Tensor], judge: HeldOut | None) -> dict[str, float]:
    """A row of the log."""
    row = {"step": state.step, **{name: float(value) for name, value in stats.items()}, "retries": state.retries}
    return row if judge is None else {**row, "gain": judge.look(state)}


def learning_rate(config: TrainConfig, step: int) -> float:
    """The learning rate of an update: a short linear warm-up times the schedule.

    Args:
        config: of the run.
        step: number of the update, from 0.

    Returns:
        The learning rate.
    """
    rise = min(1.0, (step + 1) / WARMUP_STEPS)
    fall = 0.5 * (1 + math.cos(math.pi * step / config.updates)) if config.optimizer.schedule == "cosine" else 1.0
    return config.optimizer.lr * rise * fall


def last_step(config: TrainConfig) -> int:
    """The number of updates to make: all of them, or as many as the randomised stop of Algorithm 2 draws.

    Its distribution p_Z is that of Theorem 5 (Eq. 35) with alpha = 1/2 and the smoothness M for which the largest
    learning rate is just allowed. (The algorithm makes Z updates and returns the iterate before the last.)

    Args:
        config: of the run.

    Returns:
        Updates.
    """
    if config.optimizer.stop == "end":
        return config.updates
    rates = torch.tensor([learning_rate(config, step) for step in range(config.updates)], dtype=torch.float64)
    # Algorithm 2 of the paper: stop at update t with probability proportional to 2 eta_t - eta_t^2 / max eta.
    weights = rates * (2 - rates / rates.max())
    return int(torch.multinomial(weights, 1, generator=generator(config.seed, Stream.RANDOMISED_STOP))) + 1


def _gradient_norm(players: Iterable[list[nn.Parameter]], clip: float | None) -> Tensor:
    """The norm of the whole gradient, before that of each network is clipped to `clip`."""
    norms: list[Tensor] = []
    # Energy and critic are clipped separately; a joint norm would let a large critic gradient stall the energy.
    for parameters in players:
        known = [p.grad for p in parameters if p.grad is not None]
        if clip is not None and known:
            norms.append(nn.utils.clip_grad_norm_(parameters, clip))
        else:
            norms += torch._foreach_norm(known) if known else []
    return torch.linalg.vector_norm(torch.stack(norms))


@torch.no_grad()
def update_average(averaged: nn.Module, energy: nn.Module, memory: float, step: int) -> None:
    """Move the averaged weights towards the current ones, in place.

    Args:
        averaged: the network with averaged weights.
        energy: the network that is trained.
        memory: the decay of the average; it is smaller early in the run.
        step: updates so far.
    """
    memory = min(memory, (1 + step) / (10 + step))
    ours: list[Tensor] = list(averaged.parameters())
    theirs: list[Tensor] = list(energy.parameters())
    torch._foreach_lerp_(ours, theirs, 1 - memory)
    for buffer, new in zip(averaged.buffers(), energy.buffers(), strict=True):
        buffer.copy_(new)


def _mode_stats(state: TrainState, modes: Modes | None, true_shares: Tensor | None) -> dict[str, float]:
    if modes is None or true_shares is None:
        return {}
    chains = state.coordinates.inverse(state.buffer.x).float().cpu()
    shares = mode_shares(chains, modes, len(true_shares))
    error = float((shares - true_shares).abs().max())
    return {**{f"mode_{i}": float(share) for i, share in enumerate(shares)}, "mode_error": error}


def _roll_back(state: TrainState, good: dict[str, Any], error: Diverged) -> str:
    """Restore the last good state and count one more retry; returns what happened."""
    message, retries = f"step {state.step}: {error}", state.retries + 1
    checkpoint.restore(state, good)
    state.retries = good["retries"] = retries
    return message


def _give_up(
    state: TrainState,
    good: dict[str, Any],
    message: str,
    config: TrainConfig,
    run: RunFolder | None,
    as_model: Callable[[TrainState], Model],
) -> NoReturn:
    """Keep the last good model and end."""
    if distributed.rank() == 0 and run is not None:
        checkpoint.save(good, run.path)
        as_model(state).save(run.model, step=state.step)
    raise last_words(message, config, state.step, run.path if run is not None else None) from None


def _keep(state: TrainState, error: UserError, run: RunFolder | None) -> NoReturn:
    """Keep what was learnt before rows could not be read, and end, in all processes."""
    if run is None or state.step == 0:
        raise error
    values = checkpoint.snapshot(state)
    if distributed.rank() == 0:
        checkpoint.save(values, run.path)
    raise UserError(f"{error}; once that is done, the same command goes on from update {state.step}") from None


def _show(watch: Watch | None, state: TrainState, as_model: Callable[[TrainState], Model]) -> None:
    """Let somebody look at the model so far."""
    if watch is not None:
        watch(as_model(state), state.step)


def _about(
    state: TrainState,
    config: TrainConfig,
    columns: tuple[str, ...] | None,
    fingerprint: str | None,
    notes: tuple[str, ...],
) -> dict[str, str]:
    """What a checkpoint needs to be read as a model; nothing for an objective of one's own that JSON cannot tell."""
    try:
        return describe(state.averaged, config, columns, fingerprint, notes)
    except TypeError:
        return {}


def _as_model(
    state: TrainState,
    config: TrainConfig,
    columns: tuple[str, ...] | None,
    fingerprint: str | None,
    notes: tuple[str, ...] = (),
) -> Model:
    averaged = copy.deepcopy(state.averaged)
    if state.best is not None:
        averaged.load_state_dict(state.best.weights)
    return Model(
        averaged,
        config,
        coordinates=state.coordinates,
        step_size=state.step_size,
        proposal=state.start.of_model(state.proposal, state.buffer),
        columns=columns,
        fingerprint=fingerprint,
        notes=notes,
    )
