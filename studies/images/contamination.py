"""Junk that collections of images really hold: frames without content, spoilt copies, images of something else.

A kind of junk is a function `(x, n, generator)` that makes `n` images of bytes from clean ones, `(m, channels, height,
width)`; `JUNK` has them by name.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from pscd.data.pixels import as_shape
from pscd.errors import UserError
from studies.images.noise import uniform_noise
from studies.images.sets import IMAGE_SETS, load_images

Junk = Callable[[Tensor, int, torch.Generator | None], Tensor]
WHITE = 255
ORIGINALS = 10  # images that near-duplicates are copies of
WOBBLE = 2  # levels by which a pixel of a copy differs at most


def _some(x: Tensor, n: int, generator: torch.Generator | None) -> Tensor:
    """Copies of images, drawn with replacement."""
    return x[torch.randint(len(x), (n,), generator=generator)].clone()


def blank(x: Tensor, n: int, generator: torch.Generator | None = None) -> Tensor:
    """Frames of one grey level, from black to white.

    Args:
        x: clean images, for their shape.
        n: number of frames.
        generator: source of randomness; torch's global one by default.

    Returns:
        Bytes `(n, *shape)`.
    """
    level = torch.randint(WHITE + 1, (n, 1, 1, 1), generator=generator)
    return level.to(torch.uint8).expand(n, *x.shape[1:]).clone()


def saturated(x: Tensor, n: int, generator: torch.Generator | None = None) -> Tensor:
    """Over-exposed images: twice as bright, on a background of half white, and clipped.

    Args:
        x: clean images.
        n: number of images.
        generator: source of randomness; torch's global one by default.

    Returns:
        Bytes `(n, *shape)`.
    """
    return (128 + 2 * _some(x, n, generator).long()).clamp(max=WHITE).to(torch.uint8)


def occluded(x: Tensor, n: int, generator: torch.Generator | None = None) -> Tensor:
    """Images of which one half, on any side, is covered by mid-grey.

    Args:
        x: clean images.
        n: number of images.
        generator: source of randomness; torch's global one by default.

    Returns:
        Bytes `(n, *shape)`.
    """
    found = _some(x, n, generator)
    height, width = x.shape[2:]
    sides = torch.randint(4, (n,), generator=generator)
    halves = [
        (slice(height // 2), slice(None)),
        (slice(height - height // 2, None), slice(None)),
        (slice(None), slice(width // 2)),
        (slice(None), slice(width - width // 2, None)),
    ]
    for side, (rows, columns) in enumerate(halves):
        part = found[sides == side]
        part[:, :, rows, columns] = 128
        found[sides == side] = part
    return found


def shifted(x: Tensor, n: int, generator: torch.Generator | None = None) -> Tensor:
    """Images moved by a quarter to half of their side, in both directions; black comes in from outside.

    Args:
        x: clean images.
        n: number of images.
        generator: source of randomness; torch's global one by default.

    Returns:
        Bytes `(n, *shape)`.
    """
    found = _some(x, n, generator)
    for axis in (2, 3):
        side = x.shape[axis]
        by = torch.randint(max(1, side // 4), max(2, side // 2 + 1), (n,), generator=generator)
        back = torch.rand(n, generator=generator) < 0.5
        source = torch.arange(side) - torch.where(back, -by, by)[:, None]  # (n, side): where each line comes from
        inside = (source >= 0) & (source < side)
        lines = (n, 1, side, 1) if axis == 2 else (n, 1, 1, side)
        index = source.clamp(0, side - 1).view(lines).expand(found.shape)
        found = found.gather(axis, index) * inside.view(lines)
    return found


def near_duplicates(x: Tensor, n: int, generator: torch.Generator | None = None) -> Tensor:
    """Copies of a few images, each of which differs by a few levels.

    Args:
        x: clean images.
        n: number of copies.
        generator: source of randomness; torch's global one by default.

    Returns:
        Bytes `(n, *shape)`.
    """
    originals = x[torch.randperm(len(x), generator=generator)[:ORIGINALS]]
    copies = _some(originals, n, generator).long()
    copies += torch.randint(-WOBBLE, WOBBLE + 1, copies.shape, generator=generator)
    return copies.clamp(0, WHITE).to(torch.uint8)


JUNK: dict[str, Junk] = {
    "noise": lambda x, n, generator: uniform_noise(n, x.shape[1:], generator),
    "blank": blank,
    "saturated": saturated,
    "occluded": occluded,
    "shifted": shifted,
    "near-duplicates": near_duplicates,
}


def junk(kind: str) -> Junk:
    """Junk of a kind: a key of `JUNK`, or the name of another set of images.

    Args:
        kind: its name.

    Returns:
        A function `(x, n, generator)`.

    Raises:
        UserError: there is no such kind, or the set is not on this machine.

    >>> frames = junk("blank")(torch.zeros(5, 1, 8, 8, dtype=torch.uint8), 3, None)
    >>> frames.shape, bool((frames == frames[:, :, :1, :1]).all())
    (torch.Size([3, 1, 8, 8]), True)
    """
    if kind in JUNK:
        return JUNK[kind]
    if kind not in IMAGE_SETS:
        raise UserError(
            f"unknown junk {kind!r}; there are: {', '.join(JUNK)}, or a set of images: {', '.join(IMAGE_SETS)}"
        )
    others = load_images(kind, train=False).x  # the smaller part of a set is enough

    def of_another_set(x: Tensor, n: int, generator: torch.Generator | None) -> Tensor:
        return as_shape(_some(others, n, generator), x.shape[1], x.shape[2])

    return of_another_set
