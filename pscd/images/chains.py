"""Chains of an image model on their way from noise to images."""

from typing import Any

import torch
from torch import Tensor

from pscd.errors import UserError
from pscd.model import Model
from pscd.rng import Stream, generator


def chain_frames(
    model: Model, n: int, n_steps: int, *, n_frames: int = 12, seed: int = 0, label: int | None = None
) -> Tensor:
    """Chains from noise, recorded at steps that grow geometrically; the last step is among them.

    Args:
        model: a model of images.
        n: number of chains.
        n_steps: steps of each chain.
        n_frames: images of each chain, fewer if the chain is shorter.
        seed: of noise and chains.
        label: the class, of a conditional model.

    Returns:
        Images `(n, frames, *shape)`; the first frame is noise.

    Raises:
        UserError: a number is too small.
    """
    if n < 1 or n_steps < 1 or n_frames < 3:
        raise UserError(f"chains and steps must be at least 1 and frames 3, got {n}, {n_steps} and {n_frames}")
    start = torch.rand(n, *model.shape, generator=generator(seed, Stream.STRIP))
    recorded = {round(n_steps ** (i / (n_frames - 2))) for i in range(n_frames - 1)}
    frames = [start]

    def record(at: dict[str, Any]) -> None:
        if at["step"] + 1 in recorded:
            frames.append(at["x"].cpu().clone())

    model.sample(n, seed=seed, n_steps=n_steps, start=start, label=label, callback=record)
    return torch.stack(frames, 1)
