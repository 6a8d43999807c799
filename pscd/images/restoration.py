"""Restoration of images by the sampler that the model was trained with: missing parts and noise."""

from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from pscd.chains import run_chains
from pscd.energies import MaskedEnergy
from pscd.errors import UserError
from pscd.model import Model
from pscd.rng import Stream, generator


def inpaint(
    model: Model, x: Tensor, mask: Tensor, *, n_steps: int = 500, seed: int = 0, label: Tensor | None = None
) -> Tensor:
    """Sample the pixels of images outside a mask, given the others.

    Args:
        model: a model of images.
        x: `(n, *shape)` in [0, 1]; pixels outside the mask may hold any value.
        mask: `(*shape)` or `(n, *shape)`, true where a pixel stays.
        n_steps: steps of the sampler.
        seed: of the chains.
        label: `(n,)`, for a conditional model; by default the likeliest label at every step.

    Returns:
        Images `(n, *shape)`; pixels of the mask are unchanged.

    Raises:
        UserError: the model is not one of images, or was trained on another shape.
    """
    _check(model, x)
    rng = generator(seed, Stream.INPAINT, device=model.shift.device)
    x, mask = x.to(rng.device).float(), mask.to(rng.device).bool()
    start = torch.where(mask, x, torch.rand(x.shape, generator=rng, device=rng.device))
    moved, _ = run_chains(
        model.network,
        start,
        model.config,
        label=None if label is None else label.to(rng.device),
        seen_as=lambda energy: MaskedEnergy(energy, x, mask),
        step_size=model.step_size,
        n_steps=n_steps,
        generator=rng,
    )
    return torch.where(mask, x, moved).cpu()


def denoise(model: Model, x: Tensor, *, n_steps: int = 30, seed: int = 0, label: Tensor | None = None) -> Tensor:
    """Move images downhill in energy: the sampler without its noise.

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
        raise UserError("denoising needs a model that was trained with the sampler Langevin")
    rng = generator(seed, Stream.DENOISE, device=model.shift.device)
    moved, _ = run_chains(
        model.network,
        x.to(rng.device).float(),
        model.config,
        label=None if label is None else label.to(rng.device),
        sampler=replace(sampler, noise_scale=0.0),
        step_size=model.step_size,
        n_steps=n_steps,
        generator=rng,
    )
    return moved.cpu()


def half_mask(shape: tuple[int, ...], side: Literal["left", "right", "top", "bottom"]) -> Tensor:
    """A mask `(channels, height, width)` for `inpaint` that is true on one half.

    >>> half_mask((1, 2, 4), "left")[0, 0]
    tensor([ True,  True, False, False])
    """
    if side not in ("left", "right", "top", "bottom"):
        raise UserError(f"side must be left, right, top or bottom, got {side!r}")
    mask = torch.zeros(shape, dtype=torch.bool)
    axis, middle = (1, shape[1] // 2) if side in ("top", "bottom") else (2, shape[2] // 2)
    first, second = mask.tensor_split((middle,), axis)
    (first if side in ("left", "top") else second).fill_(True)
    return mask


def _check(model: Model, x: Tensor) -> None:
    if not model.is_image:
        raise UserError("only models of images can restore images")
    if tuple(x.shape[1:]) != model.shape:
        raise UserError(f"images have shape {tuple(x.shape[1:])}, the model was trained on {model.shape}")
