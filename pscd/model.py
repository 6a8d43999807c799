"""A trained energy with all that is needed to evaluate and to sample it: what training returns and a run keeps."""

from collections.abc import Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from pscd import fast, model_file
from pscd.chains import sample_chains, starts
from pscd.config import TrainConfig
from pscd.coordinates import Coordinates
from pscd.data import Rows, as_rows
from pscd.energies import as_function
from pscd.errors import UserError
from pscd.files import read_tensors, reading, write_tensors, writing_to
from pscd.html import facts_html
from pscd.mixtures import Mixture, imputed
from pscd.progress import progress_bar
from pscd.rng import Stream, generator
from pscd.sampling import ChainCallback, Chains
from pscd.sampling.normalizing import LogZ, log_z

if TYPE_CHECKING:
    import pandas as pd

    from pscd.tables import Schema

SCORE_BLOCK = 16_384  # rows at once
IMAGE_BLOCK = 500  # images at once: activations take far more memory than the images


class Model(nn.Module):
    """A trained energy in the coordinates of the data: `model(x)` is E(x), up to a constant.

    The network sees z = (x - shift) / scale, or a nonlinear map of it; chains run there too and are mapped back. E(x)
    is in the units of the data: of a nonlinear map it holds the logarithm of the slope. Shift and scale are float64,
    so that columns far from 0 lose no precision.

    Args:
        energy: the network, in its own coordinates.
        config: of the run.
        coordinates: shift and scale.
        step_size: of the sampler, as adapted in training.
        proposal: where chains start, and what jumps draw from.
        columns: names of the columns.
        fingerprint: checksum of the training data.
        notes: sentences about the recipe and the training rows.
        schema: of the data frame that the rows came from.

    >>> import pscd
    >>> x = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
    >>> config = pscd.TrainConfig(updates=10, batch_size=32, energy=pscd.Architecture("quadratic"))
    >>> model = pscd.fit(x, config=config)
    >>> model.energy(x).shape, model.sample(5, n_steps=10).shape
    (torch.Size([200]), torch.Size([5, 2]))
    """

    shift: Tensor
    scale: Tensor
    used: Tensor | None
    step_size: Tensor

    def __init__(
        self,
        energy: nn.Module,
        config: TrainConfig,
        *,
        coordinates: Coordinates,
        step_size: Tensor,
        proposal: Mixture | Chains,
        columns: tuple[str, ...] | None = None,
        fingerprint: str | None = None,
        notes: tuple[str, ...] = (),
        schema: "Schema | None" = None,
    ) -> None:
        super().__init__()
        self.network = fast.prefer_channels_last(energy)
        self.config = config
        self.columns = columns
        self.fingerprint = fingerprint
        self.notes = notes
        self.schema = schema
        self._log_z: LogZ | None = None
        self.proposal = proposal
        for f in fields(Coordinates):
            self.register_buffer(f.name, getattr(coordinates, f.name))
        self.register_buffer("step_size", step_size)

    @property
    def coordinates(self) -> Coordinates:
        """The network's coordinates, on the model's device."""
        return Coordinates(**{f.name: getattr(self, f.name) for f in fields(Coordinates)})

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one row of the data."""
        return tuple(self.shift.shape if self.used is None else self.used.shape)

    @property
    def is_image(self) -> bool:
        """Whether rows are images: channels, height, width."""
        return len(self.shape) == 3

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        config, names = self.config, ", ".join(self.columns or ())
        facts = {
            "rows": f"{' x '.join(map(str, self.shape))} numbers{f': {names[:200]}' if names else ''}",
            "energy": f"{type(self.network).__name__}, {sum(map(torch.numel, self.network.parameters())):,} parameters",
            "objective": repr(config.objective),
            "updates": f"{config.updates:,}",
            "data": config.rows.data or "rows in memory",
        }
        return facts_html("Energy-based model", facts, self.notes)

    @property
    def gradients(self) -> str:
        """How chains compute their gradients, in words."""
        label = torch.zeros(1, dtype=torch.long) if self.config.energy.classes else None
        with fast.using(self.config.compute.gradients):
            return fast.evaluator(as_function(self.network, self.config.compute.precision, label), self.shape).how

    def forward(self, x: Tensor, label: Tensor | None = None) -> Tensor:
        """E(x), or E(x, label); differentiable.

        Args:
            x: rows `(B, *shape)` in the units of the data.
            label: `(B,)`, for a conditional model; by default the likeliest.

        Returns:
            `(B,)`.
        """
        coordinates = self.coordinates
        z = coordinates.forward(x, self.step_size.dtype)
        energy = self.network(z) if label is None else self.network(z, label)
        # Compressed columns are denser in z: without the slope of the map this is no energy of x.
        return energy if coordinates.is_linear else energy - coordinates.log_nonlinear_slope(x).to(energy.dtype)

    @torch.no_grad()
    def energy(self, x: Rows) -> Tensor:
        """E(x) for any number of rows, in blocks on all cores; higher energy = more anomalous.

        A missing value of a table, NaN, is taken at its conditional mean given the others of its row.

        Args:
            x: rows `(n, *shape)` as a tensor, an array or a data frame; images as bytes. Of a memory-mapped array a
                block is in memory at a time.

        Returns:
            `(n,)`, on the CPU.

        Raises:
            UserError: rows are not finite, or have another shape than those the model was trained on.
        """
        self._to_evaluation()
        if self.schema is not None and not isinstance(x, np.ndarray | Tensor):
            from pscd.tables import encode, is_frame  # imports pandas

            x = encode(x, self.schema).x if is_frame(x) else x
        block = IMAGE_BLOCK if self.is_image else SCORE_BLOCK
        if not isinstance(x, np.ndarray | Tensor) or x.ndim < 2 or len(x) <= block:
            x = as_rows(x, missing=self.completes)
        if len(x) <= block:
            return self._energy(x)
        blocks = (x[i : i + block] for i in range(0, len(x), block))
        try:
            parts = list(fast.in_order(self._energy, blocks, threads=self._threads))
        except UserError:
            as_rows(x, missing=self.completes)  # an error about all rows, not about a block
            raise
        return torch.cat(parts)

    def score_batches(self, batches: Iterable[Rows]) -> Iterator[Tensor]:
        """E(x) of the batches of a stream, in order, on all cores and in constant memory."""
        self._to_evaluation()
        yield from fast.in_order(self.energy, batches, threads=self._threads)

    @property
    def _threads(self) -> int | None:
        """How many blocks to score at a time: one on a GPU, which computes in parallel itself."""
        return None if self.shift.device.type == "cpu" else 1

    def _to_evaluation(self) -> None:
        if self.training or self.network.training:  # it visits every layer
            self.eval()

    def _energy(self, x: Rows) -> Tensor:
        """E(x) of a block of rows."""
        x = as_rows(x, missing=self.completes)
        if tuple(x.shape[1:]) != self.shape:
            raise UserError(f"rows have shape {tuple(x.shape[1:])}, the model was trained on {self.shape}")
        if self.completes and x.isnan().any():
            x = self.completed(x)
        return self(x.to(self.shift.device)).cpu()

    @property
    def completes(self) -> bool:
        """Whether rows may have missing values: where a mixture fitted to the table predicts them."""
        return isinstance(self.proposal, Mixture) and self.config.rows.start == "mixture"

    def completed(self, x: Tensor) -> Tensor:
        """Rows `(n, d)` with missing values at their conditional mean under the proposal, in the units of the data."""
        assert isinstance(self.proposal, Mixture)
        z = imputed(self.proposal, self.coordinates.forward(x.to(self.shift.device), torch.float64))
        return torch.where(x.isnan(), self.coordinates.inverse(z).to(x), x)

    def log_z(self) -> LogZ:
        """Log of the integral of exp(-E) in the network's coordinates, with its standard error; computed once."""
        if not isinstance(self.proposal, Mixture) or self.config.energy.classes:
            raise UserError("log Z is known for models of tables only; images have energies, not densities")
        if self._log_z is None:
            self.eval()
            self._log_z = log_z(self.network, self.proposal)
        return self._log_z

    @torch.no_grad()
    def log_density(self, x: Rows) -> Tensor:
        """Log density of rows in the units of the data, in nats.

        Columns that never varied are left out. Tied values, such as integers, were dequantised in training: their log
        density is that of the dequantised values.

        Args:
            x: rows `(n, d)`.

        Returns:
            `(n,)` in float64; `log_z().error` is the standard error that all of them share.

        Raises:
            UserError: the model is one of images or of labels, whose normalising constant is unknown; or see `energy`.
        """
        return -self.energy(x).double() - self.log_z().value - float(self.scale.log().sum())

    def sample(
        self,
        n: int,
        *,
        seed: int = 0,
        n_steps: int | None = None,
        label: int | None = None,
        start: Tensor | None = None,
        callback: ChainCallback | None = None,
        progress: bool = False,
    ) -> Tensor:
        """Draw samples: chains that start at the proposal and run `n_steps`.

        In low dimension the default number of steps, with jumps, is enough to forget the start; otherwise use more. For
        images the chains of the training are continued, all different as long as `n` is at most `buffer_size`. A model
        with levels of noise starts from noise, and the steps are divided among its levels.

        Args:
            n: number of samples.
            seed: of the chains.
            n_steps: sampler steps; `config.chains.sample_steps` by default.
            label: of the samples, for a conditional model; by default those of the chains.
            start: points `(n, *shape)` to start at instead, for example noise.
            callback: called after each step, see `pscd.langevin`; its points are in the network's coordinates.
            progress: show a progress line with the time left.

        Returns:
            `(n, *shape)` in float64, on the CPU.

        Raises:
            UserError: a number is below 1, or the label is out of range.
        """
        n_steps = self.config.chains.sample_steps if n_steps is None else n_steps
        for what, number in (("samples", n), ("sampler steps", n_steps)):
            if number < 1:
                raise UserError(f"the number of {what} must be at least 1, got {number}")
        rng = generator(seed, Stream.SAMPLE, device=self.shift.device)
        z, labels = starts(self.proposal, n, self.config, self.shift.shape, generator=rng, label=label)
        if start is not None:
            z = self.coordinates.forward(as_rows(start).to(self.shift.device))
        parts = torch.arange(n, device=z.device).split(IMAGE_BLOCK if self.is_image else n)
        done = []
        with progress_bar(len(parts) * n_steps, show=progress) as bar:

            def after_step(at: dict[str, Any]) -> None:
                bar.update()
                if callback is not None:
                    callback(at)

            for part in parts:
                moved = sample_chains(
                    self.network,
                    z[part],
                    self.config,
                    label=None if labels is None else labels[part],
                    step_size=self.step_size,
                    n_steps=n_steps,
                    proposal=self.proposal,
                    generator=rng,
                    callback=after_step if progress else callback,
                )
                done.append(moved)
        return self.coordinates.inverse(torch.cat(done)).cpu()

    def sample_frame(self, n: int, **options: Any) -> "pd.DataFrame":
        """Draw samples with the columns of the table that the model was fitted to: dates, flags, rounded numbers.

        Args:
            n: number of samples.
            options: further arguments of `sample`.
        """
        from pscd.tables import Column, Schema, decode  # imports pandas

        x = self.sample(n, **options).flatten(1).numpy()
        names = self.columns or (f"x{j}" for j in range(x.shape[1]))
        return decode(x, self.schema or Schema(tuple(Column(name, "number") for name in names)))

    def save(self, path: Path | str, *, step: int | None = None) -> None:
        """Write weights, coordinates and configuration to one `.safetensors` file, atomically; `pscd.load` reads it.

        Args:
            path: of the file.
            step: updates that the model has seen; None: those of its configuration.
        """
        tensors = {f"energy.{name}": t for name, t in self.network.state_dict().items()}
        tensors |= {f"proposal.{name}": t for name, t in self.proposal.tensors().items()}
        tensors |= {**self.coordinates.tensors(), "step_size": self.step_size}
        facts = {name: getattr(self, name) for name in ("columns", "fingerprint", "notes", "schema")}
        about = model_file.describe(self.network, self.config, **facts)
        with writing_to(path):
            write_tensors(path, tensors, {**about, "step": str(self.config.updates if step is None else step)})

    @classmethod
    def load(cls, path: Path | str, *, energy: nn.Module | None = None, device: torch.device | str = "cpu") -> Self:
        """Read what `save` wrote; see `pscd.load`."""
        path = Path(path)
        if not path.is_file():
            raise UserError(f"{path}: no such file; not a run folder, or stopped before its first checkpoint")
        with reading(path, "damaged, or not a model of pscd"):
            return cls.from_tensors(*read_tensors(path), path=path, energy=energy, device=device)

    @classmethod
    def from_tensors(
        cls,
        tensors: dict[str, Tensor],
        metadata: dict[str, str],
        *,
        path: Path,
        energy: nn.Module | None = None,
        device: torch.device | str = "cpu",
    ) -> Self:
        """Put a model together from the content of an untrusted file; call it inside of `reading`."""
        return cls(**model_file.parts(tensors, metadata, path, energy)).to(device)
