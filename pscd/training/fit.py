"""`pscd.fit`: the recipe for rows of this shape, with the settings that are given, trained in memory."""

import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from pscd import distributed
from pscd.config import TrainConfig
from pscd.data import RowsOrStream, check_enough
from pscd.energies import Architecture
from pscd.errors import UserError
from pscd.mixtures import Mixture
from pscd.model import Model
from pscd.objectives import Objective
from pscd.recipes.configs import NOTES, RECIPES, name_for_rows
from pscd.run_folder import RunFolder
from pscd.sampling import Sampler
from pscd.training.loop import Callback, last_step, train_on
from pscd.training.rows import TrainingRows

if TYPE_CHECKING:
    from pscd.tables import Schema


def fit(
    x: RowsOrStream,
    *,
    label: Tensor | None = None,
    updates: int | None = None,
    gamma: float | Literal["auto"] | None = None,
    objective: Objective | None = None,
    energy: nn.Module | Architecture | None = None,
    sampler: Sampler | None = None,
    batch_size: int | None = None,
    seed: int | None = None,
    lr: float | None = None,
    config: TrainConfig | None = None,
    proposal: Mixture | None = None,
    folder: Path | str | None = None,
    device: torch.device | str = "cpu",
    progress: bool = False,
    callbacks: Sequence[Callback] = (),
    columns: tuple[str, ...] | None = None,
    fingerprint: str | None = None,
    schema: "Schema | None" = None,
) -> Model:
    """Train an energy on rows and return the model, in memory.

    Without `config`, the recipe for rows of this shape is used: a table gets a robust mixture of its majority, which
    completes missing values, weighs rows, and is corrected by a bounded network; images get a convolutional network,
    and images that look unlike the majority are ignored. Gamma is chosen from the rows of a table. Each keyword
    replaces that one setting of the recipe, or of `config`.

    With an `energy` of your own the recipe keeps the robust weights of the rows and the choice of gamma; instead of the
    correction of a mixture, that energy is trained with chains. A module is trained in place, and the model holds a
    copy with averaged weights.

    Args:
        x: rows `(n, *shape)` as a tensor, an array or a data frame, of which the numbers and dates are used; images as
            bytes `(n, channels, height, width)`. More than fit into memory are streamed: a memory map, a torch
            `Dataset`, a `DataLoader`, an iterable of batches that can be read again, or a function that returns one.
        label: `(n,)` integers, for an energy with `classes`; items and batches of datasets come with their own.
        updates: of the energy.
        gamma: of the objective, or `auto`.
        objective: what is minimised.
        energy: a module `(B, *shape) -> (B,)`, or the description of one.
        sampler: the Markov chain.
        batch_size: rows per update.
        seed: the same seed gives the same model.
        lr: learning rate of Adam at its highest.
        config: every setting, instead of the recipe.
        proposal: what jumps draw from, in the network's coordinates; by default a mixture fitted to the data.
        folder: save checkpoints and the model here, and resume from the newest checkpoint.
        device: where to train.
        progress: show a progress line with the time left.
        callbacks: each is called every `guard.log_every` updates with a dictionary: `step`, `stats` (the row of the
            log, which may be added to), `model` (a function that returns the model so far) and `chains` (one that
            returns the chains, or None). Training ends if one returns True.
        columns: names of the columns, kept with the model.
        fingerprint: a checksum of the data, kept with the model.
        schema: of the table that an array was read from, kept with the model.

    Returns:
        The model with averaged weights.

    Raises:
        UserError: rows, labels or folder do not fit the configuration.
        Diverged: training diverged more often than `guard.max_retries`; a folder keeps the last good model.
        KeyboardInterrupt: Ctrl-C or SIGTERM, after a checkpoint.

    >>> import pscd
    >>> x = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
    >>> model = pscd.fit(x, updates=20)
    >>> e = model.energy([[0.0, 0.0], [9.0, 9.0]])
    >>> bool(e[0] < e[1])  # the second row is the more anomalous one
    True
    """
    if not isinstance(config, TrainConfig | None):
        raise UserError(f"config must be a pscd.TrainConfig, not {type(config).__name__}")
    own = energy if isinstance(energy, nn.Module) else None
    architecture = energy if isinstance(energy, Architecture) else None
    if energy is not None and own is None and architecture is None:
        raise UserError(f"energy must be a torch module or a pscd.Architecture, not {type(energy).__name__}")
    notes: tuple[str, ...] = ()
    if not isinstance(x, np.ndarray | Tensor):
        from pscd.tables import is_frame  # imports pandas

        if is_frame(x):
            x, schema, notes = read_frame(x)
            columns = columns or schema.names_out
            if notes:
                warnings.warn(notes[0], stacklevel=2)
    classes = (architecture or (config or TrainConfig()).energy).classes
    stream = "auto" if config is None else config.rows.stream
    at = seed if seed is not None else 0 if config is None else config.seed
    rows = TrainingRows.of(x, label, stream=stream, seed=at, labelled=classes > 0)
    if config is None:
        if rows.sample.ndim == 2:
            check_enough(len(rows.sample))
        is_free = own is not None or (architecture is not None and architecture.name != "corrected")
        name = name_for_rows(tuple(rows.sample.shape[1:]), own=is_free)
        config, notes = RECIPES[name], (NOTES[name], *notes)
    given = {
        "objective": objective,
        "energy": architecture,
        "sampler": sampler,
        "updates": updates,
        "batch_size": batch_size,
        "seed": seed,
        "objective.gamma": gamma,
        "optimizer.lr": lr,
    }
    config = config.changed({name: value for name, value in given.items() if value is not None})
    n = distributed.world_size()
    if config.batch_size % n or config.chains.buffer_size % n:
        raise UserError(f"batch_size and buffer_size must be multiples of the {n} processes")
    if label is not None and not config.energy.classes:
        raise UserError("labels need an energy with classes, such as Architecture('cnn', classes=10); leave them out")
    device = torch.device(device)
    label = rows.check_label(label, config, device)
    run = None if folder is None else RunFolder(Path(folder))
    if run is not None:
        run.make()

    def about(more: tuple[str, ...]) -> dict[str, Any]:
        return {"columns": columns, "fingerprint": fingerprint, "notes": (*notes, *more), "schema": schema}

    model = train_on(
        rows,
        config,
        label=label,
        energy=own,
        proposal=proposal,
        folder=None if run is None else run.path,
        device=device,
        progress=progress,
        callbacks=callbacks,
        about=about,
    )
    if run is not None and distributed.rank() == 0:
        with suppress(TypeError):  # of an objective that JSON cannot hold
            model.save(run.model, step=last_step(config))
    return model


def read_frame(frame: Any) -> "tuple[Tensor, Schema, tuple[str, ...]]":
    """The numbers and dates of a data frame as rows, NaN where one is missing, and a note on the other columns."""
    from pscd.tables import encode, look  # imports pandas

    schema = look(frame).numeric()
    if not schema.parts:
        raise UserError("no column of the table is a number or a date")
    x = torch.from_numpy(encode(frame, schema).x)
    others = [f"{column.name} ({'; '.join(column.notes)})" for column in schema.columns if not column.is_learnt]
    notes = (f"columns left out: {', '.join(others)}",) if others else ()
    return x, replace(schema, notes=()), notes
