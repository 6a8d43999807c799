"""Random numbers as a function of the seed and the position in a run, so that resuming needs no saved state."""

from collections.abc import Callable
from enum import IntEnum
from typing import TypeVar

import numpy as np
import torch

from pscd.errors import UserError

Built = TypeVar("Built")


class Stream(IntEnum):
    """What a generator is for: the first number of its path after the seed.

    The numbers are part of every result that was computed with them. Streams that share one, by name, are never used
    with the same seed in one run; give anything new its own number. Studies have streams of their own.
    """

    TOY_TRAIN = 0
    TOY_HELD_OUT = 1
    SPLIT = 2
    SAMPLE = 3
    UPDATE = 4
    BUFFER = 5
    FRESH_REAL = 6
    FRESH_OTHER = 7
    RANDOMISED_STOP = 16
    PROPOSAL = 17
    OBJECTIVE_INIT = 18
    SETTLE_STEP = 19
    DETECTOR_ROWS = 20
    FLOW = DETECTOR_ROWS
    INPAINT = DETECTOR_ROWS
    DENOISE = 21
    NORMALISER = DENOISE
    STRIP = 22
    IMAGES_SHOWN = 23
    ROBUST_MIXTURE = 37
    DEQUANTISE = 38
    HOLD_OUT = 39
    SPREAD = 44
    WAVES = 45
    LOG_Z = 46
    MIXED_MIXTURE = 47
    MISSING_CELLS = 48
    STREAM_SAMPLE = 49
    STREAM_CHUNKS = 50
    STREAM_WINDOW = 51
    STREAM_DEAL = 52
    STREAM_ROWS = 53
    REACH = 69
    SAMPLE_ROWS = 80
    SAMPLE_PART = 81


def generator(seed: int, *path: int, device: torch.device | str = "cpu") -> torch.Generator:
    """A torch generator that depends only on `seed` and `path`.

    Two different paths give unrelated streams, unlike `seed + step`, where run 1 at step 2 would
    repeat run 2 at step 1.

    Args:
        seed: of the run; not negative.
        path: a `Stream`, then the position in it (update, rank, attempt, ...).
        device: where the numbers are drawn.

    Returns:
        A generator in its first state.

    Raises:
        UserError: the seed is negative.

    >>> a = torch.rand(2, generator=generator(0, Stream.UPDATE, 1))
    >>> torch.equal(a, torch.rand(2, generator=generator(0, Stream.UPDATE, 1)))
    True
    >>> torch.equal(a, torch.rand(2, generator=generator(0, Stream.SAMPLE, 1)))
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


def seeded(build: Callable[[], Built], seed: int) -> Built:
    """What `build` returns with torch's global generator at `seed`, whose state is restored afterwards.

    Modules draw their first weights from the global generator.

    >>> a, b = (seeded(lambda: torch.nn.Linear(2, 1), 0) for _ in range(2))
    >>> torch.equal(a.weight, b.weight)
    True
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build()
