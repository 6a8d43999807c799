"""A trained energy with all it takes to score and to sample: what training returns and a run keeps."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from pscd import fast
from pscd.config import TrainConfig
from pscd.coordinates import Coordinates
from pscd.data import Rows, as_rows
from pscd.energies import as_function
from pscd.errors import UserError
from pscd.files import read_tensors, under, write_tensors
from pscd.mixtures import Mixture
from pscd.progress import progress_bar
from pscd.rng import Stream, generator
from pscd.sampling import Callback, Chains, Proposal, Sampler
from pscd.sampling.proposals import from_tensors

SCORE_BLOCK = 16_384
IMAGE_BLOCK = 500  # images at once: a network's layers hold far more numbers than the image has


def run_chains(
    energy: nn.Module,
    x: Tensor,
    config: TrainConfig,
    *,
    step_size: Tensor,
    n_steps: int | None = None,
    label: Tensor | None = None,
    seen_as: Callable[[nn.Module], nn.Module] | None = None,
    sampler: Sampler | None = None,
    proposal: Proposal | None = None,
    generator: torch.Generator | None = None,
    callback: Callback | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Run a configuration's sampler on an energy: the one place where the two meet.

    Labels, precision and the way gradients are computed are part of what an energy means, for chains in training as for
    those that sample, inpaint or denoise.

    Args:
        energy: in the network's coordinates.
        x: starting points there, `(n, *shape)`.
        config: of the run; its sampler, precision and gradients are used.
        step_size: of the sampler, as adapted.
        n_steps: by default as many as an update takes.
        label: `(n,)`, for a conditional energy.
        seen_as: wraps the energy, labels and precision included, such as in a `MaskedEnergy`.
        sampler: another one than the configuration's.
        proposal: where jumps come from.
        generator: of the chains' randomness.
        callback: see `pscd.sampling.langevin`.

    Returns:
        The points at the end, and what the sampler logs.
    """
    sampler = config.sampler if sampler is None else sampler
    function = as_function(energy, config.precision, label)
    with fast.using(config.gradients):
        return sampler.run(
            function if seen_as is None else seen_as(function),
            x,
            step_size=step_size,
            n_steps=sampler.n_steps if n_steps is None else n_steps,
            proposal=proposal,
            generator=generator,
            callback=callback,
        )


class Model(nn.Module):
    """Energy in the coordinates of the data: `model(x)` is E(x), up to a constant.

    The network sees `(x - shift) / scale`; chains run there too and are mapped back. Shift and scale are
    float64, so that columns far from 0 lose no digits.
    """

    shift: Tensor
    scale: Tensor
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
    ) -> None:
        super().__init__()
        self.energy = fast.prefer_channels_last(energy)
        self.config = config
        self.columns = columns
        self.fingerprint = fingerprint
        self.proposal = proposal
        self.register_buffer("shift", coordinates.shift)
        self.register_buffer("scale", coordinates.scale)
        self.register_buffer("step_size", step_size)

    @property
    def coordinates(self) -> Coordinates:
        """In which the network sees the data, on the model's device."""
        return Coordinates(self.shift, self.scale)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one row."""
        return tuple(self.shift.shape)

    @property
    def is_image(self) -> bool:
        """Whether rows are images: channels, height, width."""
        return len(self.shape) == 3

    @property
    def gradients(self) -> str:
        """How its chains get their gradients, in words."""
        label = torch.zeros(1, dtype=torch.long) if self.config.energy.classes else None
        with fast.using(self.config.gradients):
            return fast.evaluator(as_function(self.energy, self.config.precision, label), self.shape).how

    def forward(self, x: Tensor, label: Tensor | None = None) -> Tensor:
        """E(x) of rows `(B, *shape)`, or E(x, label); differentiable. A conditional model takes its likeliest label."""
        z = self.coordinates.forward(x, self.step_size.dtype)
        return self.energy(z) if label is None else self.energy(z, label)

    @torch.no_grad()
    def energies(self, x: Rows) -> Tensor:
        """E(x) for any number of rows, in blocks: the higher, the stranger.

        Args:
            x: rows `(n, *shape)` as a tensor, an array or a DataFrame; images as bytes.

        Returns:
            `(n,)`, on the CPU.

        Raises:
            UserError: rows of another shape than those the model was trained on, or not finite.
        """
        x = as_rows(x)
        if tuple(x.shape[1:]) != self.shape:
            raise UserError(f"rows have shape {tuple(x.shape[1:])}, the model was trained on {self.shape}")
        self.eval()
        block = IMAGE_BLOCK if self.is_image else SCORE_BLOCK
        return torch.cat([self(part.to(self.shift.device)) for part in x.split(block)]).cpu()

    def sample(
        self,
        n: int,
        *,
        seed: int = 0,
        n_steps: int | None = None,
        label: int | None = None,
        start: Tensor | None = None,
        callback: Callback | None = None,
        progress: bool = False,
    ) -> Tensor:
        """`n` draws of the model, in float64: chains that start at the proposal and run `n_steps`.

        With the default steps and jumps the chains forget their start in low dimension; in high dimension give
        more steps. Images go on from the chains of the training, which are all different while `n` is not above
        `buffer_size`.

        Args:
            label: what to draw, from a conditional model; by default whatever the chains have.
            start: points `(n, *shape)` to start at instead, such as noise.
            callback: see `pscd.sampling.langevin.langevin`; its points are in the network's coordinates.
            progress: show a progress line with the time left.
        """
        if n < 1:
            raise UserError(f"the number of samples must be at least 1, got {n}")
        n_steps = self.config.sample_steps if n_steps is None else n_steps
        if n_steps < 1:
            raise UserError(f"the number of sampler steps must be at least 1, got {n_steps}")
        rng = generator(seed, Stream.SAMPLE, device=self.shift.device)
        z, labels = self._starts(n, rng, label)
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
                moved, _ = run_chains(
                    self.energy,
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

    def _starts(self, n: int, rng: torch.Generator, label: int | None) -> tuple[Tensor, Tensor | None]:
        """Where chains start, and their labels if there are any."""
        classes = self.config.energy.classes
        if label is not None and not 0 <= label < classes:
            hint = f"between 0 and {classes - 1}" if classes else "left out: the model is not conditional"
            raise UserError(f"the label must be {hint}, got {label}")
        if isinstance(self.proposal, Chains):
            index = self.proposal.choose(n, rng, label)
            return self.proposal.at(index), self.proposal.label[index] if classes else None
        return self.proposal.sample(n, rng).view(n, *self.shape), None

    def save(self, path: Path | str, *, step: int) -> None:
        """Write weights, coordinates and configuration to one `.safetensors` file, atomically."""
        tensors = {f"energy.{name}": t for name, t in self.energy.state_dict().items()}
        tensors |= {f"proposal.{name}": t for name, t in self.proposal.tensors().items()}
        tensors |= {"shift": self.shift, "scale": self.scale, "step_size": self.step_size}
        metadata = {
            "config": json.dumps(self.config.to_dict()),
            "columns": json.dumps(self.columns),
            "fingerprint": json.dumps(self.fingerprint),
            "energy": type(self.energy).__name__,
            "step": str(step),
        }
        write_tensors(path, tensors, metadata)

    @classmethod
    def load(cls, path: Path | str, *, energy: nn.Module | None = None, device: torch.device | str = "cpu") -> Self:
        """Read what `save` wrote. A network of your own must be given again as `energy`."""
        path = Path(path)
        if not path.is_file():
            raise UserError(f"{path}: no such file; not a run folder, or its training has not finished")
        try:
            tensors, metadata = read_tensors(path)
            config = TrainConfig.from_dict(json.loads(metadata["config"]))
            columns, fingerprint = json.loads(metadata["columns"]), json.loads(metadata["fingerprint"])
            coordinates, step_size = Coordinates(tensors["shift"], tensors["scale"]), tensors["step_size"]
            proposal = from_tensors(under(tensors, "proposal."))
        except (SafetensorError, KeyError, TypeError, ValueError) as error:
            raise UserError(f"{path}: damaged, or not a model of pscd ({error})") from None
        energy = energy or config.energy.build(tuple(coordinates.shift.shape))
        try:
            energy.load_state_dict(under(tensors, "energy."))
        except RuntimeError:
            wanted = metadata["energy"]
            raise UserError(f"{path}: its weights are those of {wanted}; load it with energy={wanted}(...)") from None
        model = cls(
            energy,
            config,
            coordinates=coordinates,
            step_size=step_size,
            proposal=proposal,
            columns=tuple(columns) if columns else None,
            fingerprint=fingerprint,
        )
        return model.to(device)
