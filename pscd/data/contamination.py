"""Contamination of clean data, to test robust training with."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor


class Contaminated(NamedTuple):
    """Rows `x`, `(n, *shape)`, of which those with `is_noise`, `(n,)`, have replaced clean ones."""

    x: Tensor
    is_noise: Tensor


def contaminate(
    x: Tensor,
    ratio: float,
    noise: Tensor | Callable[[int, torch.Generator | None], Tensor],
    generator: torch.Generator | None = None,
) -> Contaminated:
    """Replace a fraction `ratio` of the rows, chosen at random, by noise.

    Args:
        x: `(n, *shape)` clean rows; not changed.
        ratio: in [0, 1); `round(ratio * n)` rows are replaced, so the count is exact.
        noise: rows to draw from with replacement, or a function `(n, generator) -> rows`.
        generator: source of randomness; torch's global one by default.

    Returns:
        All rows, and which of them are noise.

    Raises:
        ValueError: the ratio is outside [0, 1), or rows of noise have another shape.

    >>> dirty = contaminate(torch.zeros(100, 2), 0.1, torch.ones(1, 2))
    >>> int(dirty.is_noise.sum()), float(dirty.x.sum())
    (10, 20.0)
    """
    if not 0 <= ratio < 1:
        raise ValueError(f"ratio must lie in [0, 1), got {ratio}")
    n_noise = round(ratio * len(x))
    index = torch.randperm(len(x), generator=generator)[:n_noise]
    if isinstance(noise, Tensor):
        rows = noise[torch.randint(len(noise), (n_noise,), generator=generator)]
    else:
        rows = noise(n_noise, generator)
    if rows.shape[1:] != x.shape[1:]:
        raise ValueError(f"noise has rows of shape {tuple(rows.shape[1:])}, the data {tuple(x.shape[1:])}")
    dirty = x.clone()
    dirty[index] = rows.to(x.dtype)
    is_noise = torch.zeros(len(x), dtype=torch.bool)
    is_noise[index] = True
    return Contaminated(dirty, is_noise)
