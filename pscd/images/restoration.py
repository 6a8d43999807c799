"""What a model of images can mend: missing parts and noise, by the sampler that it was trained with."""

from dataclasses import replace

import torch
from torch import Tensor, nn

from pscd.energies.images import Conditioned
from pscd.errors import UserError
from pscd.model import Model
from pscd.rng import generator
from pscd.sampling.langevin import Langevin
from pscd.types import Energy

SIDES = ("left", "right", "top", "bottom")


class Held(nn.Module):
    """E(x) with a part of x held fixed: its gradient is 0 there, so chains move the rest only.

    Args:
        energy: of whole images.
        x: the images `(B, *shape)`, whose known pixels count.
        known: `(*shape)` or `(B, *shape)`, true where a pixel is held.
    """

    def __init__(self, energy: Energy, x: Tensor, known: Tensor) -> None:
        super().__init__()
        self.energy, self.x, self.known = energy, x, known

    def whole(self, x: Tensor) -> Tensor:
        """`x` with the known pixels put in."""
        return torch.where(self.known, self.x, x)

    def forward(self, x: Tensor) -> Tensor:
        """`(B, *shape)` to `(B,)`."""
        return self.energy(self.whole(x))


def inpaint(
    model: Model, x: Tensor, known: Tensor, *, n_steps: int = 500, seed: int = 0, label: Tensor | None = None
) -> Tensor:
    """Images whose unknown pixels are drawn by the model, given the known ones.

    Args:
        x: `(n, *shape)` in [0, 1]; unknown pixels may hold anything.
        known: `(*shape)` or `(n, *shape)`, true where a pixel is to stay.
        label: `(n,)`, for a conditional model; by default the likeliest one at every step.
    """
    _check(model, x)
    rng = generator(seed, 20, device=model.shift.device)
    x, known = x.to(rng.device).float(), known.to(rng.device).bool()
    energy: nn.Module = model.energy if label is None else Conditioned(model.energy, label.to(rng.device))
    held = Held(energy, x, known)
    start = torch.rand(x.shape, generator=rng, device=rng.device)
    moved, _ = model.config.sampler.run(
        held, held.whole(start), step_size=model.step_size, n_steps=n_steps, generator=rng
    )
    return held.whole(moved).cpu()


def denoise(model: Model, x: Tensor, *, n_steps: int = 30, seed: int = 0) -> Tensor:
    """Images moved downhill: the sampler without its noise, from where they are."""
    _check(model, x)
    sampler = model.config.sampler
    if not isinstance(sampler, Langevin):
        raise UserError("denoising needs a model trained with --sampler langevin")
    rng = generator(seed, 21, device=model.shift.device)
    moved, _ = replace(sampler, noise_scale=0.0).run(
        model.energy, x.to(rng.device).float(), step_size=model.step_size, n_steps=n_steps, generator=rng
    )
    return moved.cpu()


def known_side(shape: tuple[int, ...], side: str) -> Tensor:
    """A mask `(*shape)` that is true on one half: left, right, top or bottom."""
    if side not in SIDES:
        raise UserError(
            f"keep must be one of {', '.join(SIDES)}, or a picture that is white where to keep; got {side!r}"
        )
    known = torch.zeros(shape, dtype=torch.bool)
    height, width = shape[1] // 2, shape[2] // 2
    half = {
        "left": (slice(None), slice(None, width)),
        "right": (slice(None), slice(width, None)),
        "top": (slice(None, height), slice(None)),
        "bottom": (slice(height, None), slice(None)),
    }[side]
    known[:, *half] = True
    return known


def _check(model: Model, x: Tensor) -> None:
    if not model.is_image:
        raise UserError("only models of images can mend pictures")
    if tuple(x.shape[1:]) != model.shape:
        raise UserError(f"images have shape {tuple(x.shape[1:])}, the model was trained on {model.shape}")
