"""What a model of images can mend: missing parts and noise, by the sampler that it was trained with."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from pscd.energies import MaskedEnergy
from pscd.errors import UserError
from pscd.model import Model, run_chains
from pscd.rng import Stream, generator

SIDES = ("left", "right", "top", "bottom")


def inpaint(
    model: Model, x: Tensor, known: Tensor, *, n_steps: int = 500, seed: int = 0, label: Tensor | None = None
) -> Tensor:
    """Images whose unknown pixels are drawn by the model, given the known ones.

    Args:
        model: a model of images.
        x: `(n, *shape)` in [0, 1]; unknown pixels may hold anything.
        known: `(*shape)` or `(n, *shape)`, true where a pixel is to stay.
        n_steps: steps of the sampler.
        seed: of the chains.
        label: `(n,)`, for a conditional model; by default the likeliest label at every step.

    Returns:
        Images `(n, *shape)`; known pixels are as they were.

    Raises:
        UserError: the model is not one of images, or was trained on another shape.
    """
    _check(model, x)
    rng = generator(seed, Stream.INPAINT, device=model.shift.device)
    x, known = x.to(rng.device).float(), known.to(rng.device).bool()
    start = torch.where(known, x, torch.rand(x.shape, generator=rng, device=rng.device))
    moved, _ = run_chains(
        model.energy,
        start,
        model.config,
        label=None if label is None else label.to(rng.device),
        seen_as=lambda energy: MaskedEnergy(energy, x, known),
        step_size=model.step_size,
        n_steps=n_steps,
        generator=rng,
    )
    return torch.where(known, x, moved).cpu()


def denoise(model: Model, x: Tensor, *, n_steps: int = 30, seed: int = 0, label: Tensor | None = None) -> Tensor:
    """Images moved downhill in energy from where they are: the sampler without its noise.

    Args:
        model: a model of images, trained with Langevin chains.
        x: noisy images, `(n, *shape)` in [0, 1].
        n_steps: steps of the sampler.
        seed: of the chains.
        label: `(n,)`, for a conditional model; by default the likeliest label at every step.

    Returns:
        Images `(n, *shape)`.

    Raises:
        UserError: the model is not one of images, was trained on another shape, or with another sampler.
    """
    _check(model, x)
    sampler: Any = model.config.sampler
    if not hasattr(sampler, "noise_scale"):
        raise UserError("denoising needs a model trained with --sampler langevin")
    rng = generator(seed, Stream.DENOISE, device=model.shift.device)
    moved, _ = run_chains(
        model.energy,
        x.to(rng.device).float(),
        model.config,
        label=None if label is None else label.to(rng.device),
        sampler=replace(sampler, noise_scale=0.0),
        step_size=model.step_size,
        n_steps=n_steps,
        generator=rng,
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
