"""Chains of an image model on their way from noise to images."""

from typing import Any

import torch
from torch import Tensor

from pscd.errors import UserError
from pscd.model import Model
from pscd.rng import Stream, generator

STRIP_FRAMES = 12


def strip(model: Model, n: int, n_steps: int, *, seed: int = 0, label: int | None = None) -> Tensor:
    """Chains from noise, seen at steps that grow in proportion; the last step is among them.

    Args:
        model: a model of images.
        n: how many chains.
        n_steps: how long they are.
        seed: of noise and chains.
        label: the class, of a conditional model.

    Returns:
        Images `(n, frames, *shape)`.

    Raises:
        UserError: a number is below 1.
    """
    if n < 1 or n_steps < 1:
        raise UserError(f"the numbers of chains and of steps must be at least 1, got {n} and {n_steps}")
    start = torch.rand(n, *model.shape, generator=generator(seed, Stream.STRIP))
    wanted = {round(n_steps ** (i / (STRIP_FRAMES - 2))) for i in range(STRIP_FRAMES - 1)}
    frames = [start]

    def keep(at: dict[str, Any]) -> None:
        if at["step"] + 1 in wanted:
            frames.append(at["x"].cpu().clone())

    model.sample(n, seed=seed, n_steps=n_steps, start=start, label=label, callback=keep)
    return torch.stack(frames, 1)
