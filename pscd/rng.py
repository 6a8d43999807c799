"""Randomness as a function of where we are, so that a resume needs no saved generator state."""

import numpy as np
import torch

from pscd.errors import UserError


def generator(seed: int, *path: int, device: torch.device | str = "cpu") -> torch.Generator:
    """A torch generator that depends only on `seed` and `path` (step, rank, attempt, ...).

    Two different paths give unrelated streams, unlike `seed + step`, where run 1 at step 2 would
    repeat run 2 at step 1.

    >>> a = torch.rand(2, generator=generator(0, 5, 1))
    >>> torch.equal(a, torch.rand(2, generator=generator(0, 5, 1)))
    True
    >>> torch.equal(a, torch.rand(2, generator=generator(0, 1, 5)))
    False
    """
    if seed < 0:
        raise UserError(f"a seed must not be negative, got {seed}")
    # The length comes first: SeedSequence pads with zeros, so [1, 2] and [1, 2, 0] would be one.
    state = np.random.SeedSequence([len(path), seed, *path]).generate_state(1, np.uint64)[0]
    return torch.Generator(device=device).manual_seed(int(state))


def integer_seed(generator: torch.Generator) -> int:
    """One integer drawn from `generator`, for libraries that take a seed instead (scikit-learn)."""
    return int(torch.randint(2**31 - 1, (), generator=generator, device=generator.device))
