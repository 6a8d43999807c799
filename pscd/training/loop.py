"""Training: one loop, readable top to bottom."""

import copy
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from pscd import distributed, fast
from pscd.chains import run_chains
from pscd.config import TrainConfig
from pscd.energies import TemperedEnergy, as_function
from pscd.errors import Diverged, NotFinite, UserError
from pscd.files import locked
from pscd.mixtures import Mixture
from pscd.model import Model
from pscd.model_file import describe
from pscd.progress import duration, progress_bar
from pscd.recipes.tables import prepare
from pscd.rng import Stream, generator
from pscd.run_folder import RunFolder
from pscd.sampling import ReplayBuffer
from pscd.sampling import buffer as buffers
from pscd.training import checkpoint
from pscd.training.batches import Batches
from pscd.training.finish import settled
from pscd.training.guard import check, last_words, mode_shares, summary
from pscd.training.held_out import HeldOut, hold_out, judge_of
from pscd.training.interrupt import deferred_interrupt
from pscd.training.rows import TrainingRows
from pscd.training.state import TrainState, init_state

Callback = Callable[[dict[str, Any]], object]


def train_step(
    state: TrainState, x: Tensor | Batches, config: TrainConfig, label: Tensor | None = None
) -> dict[str, Tensor]:
    """One update: batch, negatives, loss, gradients, optimiser, averaged weights; returns statistics for the log."""
    # Weights and chains of `state` change in place, unless `Diverged` is raised. `x` is all data in the network's
    # coordinates, `(n, *shape)`, or `Batches`, which have labels of their own.
    objective = config.objective.at(state.step / config.updates)
    rng = generator(config.seed, Stream.UPDATE, state.step, distributed.rank(), state.retries, device=x.device)

    if isinstance(x, Batches):
        x_pos, label_pos = x.batch(state.step)
    else:
        index = _draw_rows(len(x), config.batch_size // distributed.world_size(), state.cumulative_chances, rng)
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
    networks = (list(module.parameters()) for module in (state.energy, state.aux) if module is not None)
    norm = _gradient_norm(networks, config.optimizer.clip)
    stats |= {"loss": loss.detach(), "gradient": norm, **loss_stats}
    check(stats, config)

    for group in state.optimizer.param_groups:
        group["lr"] = learning_rate(config, state.step) * 0.5**state.retries  # halved by each roll-back
    state.optimizer.step()
    update_average(state.averaged, state.energy, config.optimizer.ema, state.step)

    if objective.needs_negatives:
        state.buffer.write(rows, x_neg)
        state.step_size = config.sampler.adapt(state.step_size, stats)
    state.step += 1
    return stats


def _draw_rows(n_rows: int, n: int, cumulative_chances: Tensor | None, generator: torch.Generator) -> Tensor:
    """Indices of the rows of a batch: uniform, or by cumulative probabilities."""
    if cumulative_chances is None:
        return torch.randint(n_rows, (n,), generator=generator, device=generator.device)
    total = cumulative_chances[-1]
    at = torch.rand(n, generator=generator, device=generator.device, dtype=total.dtype) * total
    return torch.searchsorted(cumulative_chances, at, right=True).clamp(max=n_rows - 1)


def _starts(
    buffer: ReplayBuffer, x_pos: Tensor, label: Tensor | None, config: TrainConfig, generator: torch.Generator
) -> buffers.BufferedRows:
    """Where chains start. In every mode they end in rows of the buffer, so that it holds the latest samples."""
    if config.chains.start == "data":
        return replace(buffer.draw(len(x_pos), 0.0, generator), x=x_pos, label=label)
    return buffer.draw(len(x_pos), 1.0 if config.chains.start == "short-run" else config.chains.restart, generator)


def train_on(
    rows: TrainingRows,
    config: TrainConfig,
    *,
    label: Tensor | None = None,
    energy: nn.Module | None = None,
    proposal: Mixture | None = None,
    folder: Path | None = None,
    device: torch.device,
    progress: bool = False,
    callbacks: Sequence[Callback] = (),
    about: Callable[[tuple[str, ...]], dict[str, Any]],
) -> Model:
    """Make all updates of a run; `about` maps the notes of the preparation to what the model keeps of its data."""
    prepared, config = prepare(rows.sample, config, about(())["columns"])
    prepared, held_out, index = hold_out(prepared, config)
    rows = rows.without(index)
    state = init_state(rows.sample, config, energy, device, proposal=proposal, prepared=prepared)
    state.rows = rows.checksum(state.rows)
    judge = judge_of(held_out, state, config)
    checkpoint.resume(state, folder)
    run = None if folder is None else RunFolder(folder)
    facts = about(rows.notes(prepared))
    state.about = {} if run is None else _describe(state, config, facts)
    as_model = partial(_as_model, config=config, facts=facts)
    end, is_main, idle = last_step(config), distributed.rank() == 0, config.rows.idle_updates
    good, is_stopped = checkpoint.snapshot(state), False
    with (
        locked(run.lock) if run is not None and is_main else nullcontext(),
        fast.enough_threads(state.energy, config.batch_size, tuple(prepared.z.shape[1:])),
        rows.batches(prepared, config, device) as z,
        progress_bar(
            end,
            done=state.step,
            unit="update",
            show=progress and is_main,
            forecast=partial(forecast, left=end - state.step, where=device.type, kept=run is not None),
        ) as bar,
        # Several processes may be at different updates when the signal arrives, and saving needs them all.
        deferred_interrupt(enabled=distributed.world_size() == 1) as interrupted,
    ):
        while not (is_stopped or state.is_done(end, idle)):
            try:
                stats = train_step(state, z, config, label)
            except UserError as error:
                _save_and_raise(state, error, run)
            except Diverged as error:
                message = _roll_back(state, good, error)
                bar.update(state.step - bar.n)
                if state.retries > config.guard.max_retries:
                    _give_up(state, good, message, config, run, as_model)
                bar.write(f"{message}; back to update {state.step}, smaller learning rate", file=sys.stderr)
                continue
            bar.update()
            if state.step % config.guard.log_every == 0 or state.step == end:
                row = _row(state, stats, judge)
                is_stopped = _call(callbacks, state, row, as_model, config.objective.needs_negatives)
                bar.set_postfix_str(summary(row), refresh=False)
            is_interrupted, is_done = interrupted(), is_stopped or state.is_done(end, idle)
            if state.step % config.guard.checkpoint_every == 0 or is_done or is_interrupted:
                good = checkpoint.snapshot(state)
                if is_main and run is not None:
                    checkpoint.save(good, run.path)
            if is_interrupted:
                raise KeyboardInterrupt
        if progress and is_main and state.best is not None and state.step < end and not is_stopped:
            best = f"{state.best.step:,}"
            text = f"stopped at update {state.step:,}: by held-out rows none was better than update {best}"
            bar.write(text, sys.stderr)
    return settled(as_model(state))


def _call(
    callbacks: Sequence[Callback],
    state: TrainState,
    row: dict[str, float],
    as_model: Callable[[TrainState], Model],
    has_chains: bool,
) -> bool:
    """Call every callback in the first process, and return in all of them whether one asked to stop."""
    answers: list[object] = []
    if distributed.rank() == 0:
        chains = partial(_chains, state) if has_chains else None
        at = {"step": state.step, "stats": row, "model": partial(as_model, state), "chains": chains}
        answers = [callback(at) for callback in callbacks]
    is_stopped = torch.tensor(int(any(answer is True for answer in answers)), device=state.step_size.device)
    distributed.broadcast([is_stopped])
    return bool(is_stopped)


def _chains(state: TrainState) -> Tensor:
    """The chains of this process, in the units of the data."""
    return state.coordinates.inverse(state.buffer.x).float().cpu()


def count_modes(modes: Callable[[Tensor], Tensor], x: Tensor) -> Callback:
    """A callback that logs how chains are distributed over known modes (rows to `(n,)`), compared with rows `x`."""
    true_shares = mode_shares(x, modes, int(modes(x).max()) + 1)

    def add(at: dict[str, Any]) -> None:
        if at["chains"] is None:
            return
        shares = mode_shares(at["chains"](), modes, len(true_shares))
        at["stats"].update({f"mode_{i}": float(share) for i, share in enumerate(shares)})
        at["stats"]["mode_error"] = float((shares - true_shares).abs().max())

    return add


def forecast(seconds: float, *, left: int, where: str = "cpu", kept: bool = False, long: float = 60.0) -> str | None:
    """A sentence about the time that training takes if that is over `long` seconds.

    >>> forecast(1.05, left=2000, where="cuda")
    'about 35 min for 2,000 updates on cuda; 200 take 4 min'
    >>> forecast(0.001, left=2000)
    """
    if seconds * left < long:
        return None
    cores = fast.allowed_threads()
    place = where if where != "cpu" else f"{cores} cores" if cores > 1 else "one core"
    text = f"about {duration(seconds * left)} for {left:,} updates on {place}"
    fewer = left // 10
    if fewer:
        text += f"; {fewer:,} take {duration(seconds * fewer)}"
    return f"{text}. Ctrl-C stops it at any time: the run can be used then, and resumes later" if kept else text


def _row(state: TrainState, stats: dict[str, Tensor], judge: HeldOut | None) -> dict[str, float]:
    """A row of the log."""
    row = {"step": state.step, **{name: float(value) for name, value in stats.items()}, "retries": state.retries}
    return row if judge is None else {**row, "gain": judge.look(state)}


def learning_rate(config: TrainConfig, step: int, *, warmup: int = 100) -> float:
    """The learning rate of an update: a linear warm-up, while Adam's estimates are rough, times the schedule."""
    rise = min(1.0, (step + 1) / warmup)
    fall = 0.5 * (1 + math.cos(math.pi * step / config.updates)) if config.optimizer.schedule == "cosine" else 1.0
    return config.optimizer.lr * rise * fall


def last_step(config: TrainConfig) -> int:
    """The number of updates to make: all of them, or as many as the randomised stop of Algorithm 2 draws."""
    if config.optimizer.stop == "end":
        return config.updates
    rates = torch.tensor([learning_rate(config, step) for step in range(config.updates)], dtype=torch.float64)
    weights = rates * (2 - rates / rates.max())
    return int(torch.multinomial(weights, 1, generator=generator(config.seed, Stream.RANDOMISED_STOP))) + 1


def _gradient_norm(networks: Iterable[list[nn.Parameter]], clip: float | None) -> Tensor:
    """The norm of the whole gradient, before that of each network is clipped to `clip`."""
    norms: list[Tensor] = []
    # Energy and critic are clipped separately; a joint norm would let a large critic gradient stall the energy.
    for parameters in networks:
        known = [p.grad for p in parameters if p.grad is not None]
        if clip is not None and known:
            norms.append(nn.utils.clip_grad_norm_(parameters, clip))
        else:
            norms += torch._foreach_norm(known) if known else []
    return torch.linalg.vector_norm(torch.stack(norms))


@torch.no_grad()
def update_average(averaged: nn.Module, energy: nn.Module, memory: float, step: int) -> None:
    """Move the averaged weights towards the current ones, in place; the memory is shorter early in the run."""
    memory = min(memory, (1 + step) / (10 + step))
    ours: list[Tensor] = list(averaged.parameters())
    theirs: list[Tensor] = list(energy.parameters())
    torch._foreach_lerp_(ours, theirs, 1 - memory)
    for buffer, new in zip(averaged.buffers(), energy.buffers(), strict=True):
        buffer.copy_(new)


def _roll_back(state: TrainState, good: dict[str, Any], error: Diverged) -> str:
    """Restore the last good state and count one more retry; returns what happened."""
    message, retries = f"update {state.step}: {error}", state.retries + 1
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
    """Save the last good model and raise."""
    if distributed.rank() == 0 and run is not None:
        checkpoint.save(good, run.path)
        as_model(state).save(run.model, step=state.step)
    raise last_words(message, config, state.step, run.path if run is not None else None) from None


def _save_and_raise(state: TrainState, error: UserError, run: RunFolder | None) -> NoReturn:
    """Save the state before the rows that cannot be read, and end, in all processes."""
    if run is None or state.step == 0:
        raise error
    values = checkpoint.snapshot(state)
    if distributed.rank() == 0:
        checkpoint.save(values, run.path)
    raise UserError(f"{error}; after that, the same run resumes from update {state.step}") from None


def _describe(state: TrainState, config: TrainConfig, facts: dict[str, Any]) -> dict[str, str]:
    """What a checkpoint needs to be read as a model; nothing for a custom objective that JSON cannot hold."""
    try:
        return describe(state.averaged, config, **facts)
    except TypeError:
        return {}


def _as_model(state: TrainState, config: TrainConfig, facts: dict[str, Any]) -> Model:
    averaged = copy.deepcopy(state.averaged)
    if state.best is not None:
        averaged.load_state_dict(state.best.weights)
    return Model(
        averaged,
        config,
        coordinates=state.coordinates,
        step_size=state.step_size,
        proposal=state.start.of_model(state.proposal, state.buffer),
        **facts,
    )
