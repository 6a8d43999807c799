"""Which images count, before the first update: those that look like the majority at a glance, and copies once.

A network of convolutions hardly knows where in the image it is, and no energy tells a copy from an image. So junk such
as digits out of place, or a thousand copies of one of them, is learnt whatever gamma is, unless something else weighs
the images. Here that is done without labels, by the few numbers of `pscd.data.looks`:

- **Strangers**: an ellipse is fitted to three quarters of the images (the minimum covariance determinant, by C-steps).
  The farther out one looks, the fewer clean images there are. Where their number rises again, by more than chance, a
  group begins that is no tail of the majority, and images from the valley before it on are ignored.
- **Copies**: an image counts by one over the number of images that hardly differ from it, itself included.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from pscd.coordinates import GAUSSIAN_IQR
from pscd.data.looks import COLUMNS, GROUPS, close_miniatures, miniatures_of, numbers_of
from pscd.data.pixels import BLOCK

KEPT, ROUNDS = 0.75, 50  # share of the images that the ellipse is fitted to, and C-steps at most
RIDGE = 1e-6  # of each column's variance
LEAST_SPREAD = 1e-6  # between the quartiles of a column, below which it says nothing: the colours of grey images
BIN, NEAREST = 0.25, math.log(4.0)  # of the log of squared distances over their median: below NEAREST all images count
SURE = 4.0  # standard deviations by which the group must stand out from the valley; clean sets had 3.4 at most
LARGEST = 1 - KEPT  # share of the images above which a group is no junk
FEWEST = 100  # images; of fewer, nothing can be said
ALIKE = 0.005  # root mean square difference of copies: half of what `pscd detect` lists, since nobody looks at these


@dataclass(frozen=True)
class Majority:
    """An ellipse around the majority of images, by how they look at a glance.

    Args:
        telling: columns of `pscd.data.looks` that say something, `(k,)` of their numbers.
        centre: of the ellipse, `(k,)`.
        factor: Cholesky factor of its covariance, `(k, k)`.
        median: of the squared distances of the images that it was fitted to.
        edge: log of the squared distance over the median from which on images are ignored; infinite: none is.
    """

    telling: Tensor
    centre: Tensor
    factor: Tensor
    median: Tensor
    edge: float = math.inf

    def farness(self, numbers: Tensor) -> Tensor:
        """Log of squared Mahalanobis distances over their median, `(n,)`, of the numbers of images `(n, columns)`."""
        return _log_over(_squared(numbers[:, self.telling], self.centre, self.factor), self.median)

    def holds(self, x: Tensor) -> Tensor:
        """Whether images `(n, channels, height, width)` belong to the majority: `(n,)`."""
        return self.farness(_blockwise(numbers_of, x)) < self.edge


def find_majority(numbers: Tensor) -> Majority | None:
    """The majority of images.

    Args:
        numbers: of images, what `numbers_of` gives.

    Returns:
        The ellipse with its edge; None if there are too few images, or nothing tells them apart.
    """
    quartiles = torch.quantile(numbers, numbers.new_tensor([0.25, 0.5, 0.75]), 0)
    spread = (quartiles[2] - quartiles[0]) / GAUSSIAN_IQR
    telling = (spread > LEAST_SPREAD).nonzero().flatten()
    if len(numbers) < FEWEST or not len(telling):
        return None
    x = numbers[:, telling]
    squared = ((x - quartiles[1, telling]) / spread[telling]).square().sum(1)
    inside = torch.zeros(len(x), dtype=torch.bool)
    for _ in range(ROUNDS):
        before, inside = inside, squared <= squared.quantile(KEPT)
        if torch.equal(before, inside):
            break
        centre, covariance = x[inside].mean(0), torch.cov(x[inside].T).reshape(len(telling), -1)
        ridge = torch.diag(RIDGE * spread[telling].square())
        factor = torch.linalg.cholesky(covariance + ridge)
        squared = _squared(x, centre, factor)
    median = squared.median().clamp(min=1e-12)
    return Majority(telling, centre, factor, median, _edge(_log_over(squared, median)))


def _squared(x: Tensor, centre: Tensor, factor: Tensor) -> Tensor:
    """Squared Mahalanobis distances."""
    return torch.linalg.solve_triangular(factor, (x - centre).T, upper=False).square().sum(0)


def _log_over(squared: Tensor, median: Tensor) -> Tensor:
    return (squared / median).clamp(min=math.exp(-5.0)).log()


def _edge(farness: Tensor) -> float:
    """Where the valley is before a group beyond the majority; infinite if there is no such group."""
    bins = (farness / BIN).floor().long()
    low = int(bins.min())
    count = torch.bincount(bins - low).double()
    first = max(int(count.argmax()), math.ceil(NEAREST / BIN) - low)
    count = count[first:]
    if not len(count):
        return math.inf
    lowest = count.cummin(0).values
    rise = (count - lowest) / (count + lowest).clamp(min=1).sqrt()  # in standard deviations of the two counts
    peak = int(rise.argmax())
    valley = (count[: peak + 1] == lowest[peak]).nonzero().flatten()
    edge = (low + first + int(valley[len(valley) // 2]) + 0.5) * BIN
    beyond = float((farness >= edge).double().mean())
    return edge if float(rise[peak]) >= SURE and beyond <= LARGEST else math.inf


def copies(x: Tensor) -> Tensor:
    """The number of images that hardly differ from each, itself included.

    Args:
        x: images `(n, channels, height, width)`, bytes or floats in [0, 1].

    Returns:
        `(n,)`.

    >>> x = torch.rand(3, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    >>> copies(x[[0, 1, 2, 1]])
    tensor([1, 2, 1, 2])
    """
    found = torch.empty(len(x), dtype=torch.long)
    for some, _, close in close_miniatures(_blockwise(miniatures_of, x), ALIKE):
        found[some] = close.sum(1).clamp(min=1)
    return found


def weigh_images(x: Tensor, gamma: float) -> tuple[Tensor | None, Majority | None, tuple[str, ...]]:
    """How much each image counts.

    Args:
        x: images `(n, channels, height, width)`, floats in [0, 1].
        gamma: of the objective, for the notes.

    Returns:
        Weights `(n,)` in [0, 1], None if all count alike; the majority, None if it has no edge; and sentences that tell
        what was found.
    """
    numbers = _blockwise(numbers_of, x)
    majority = find_majority(numbers)
    out = torch.zeros(len(x), dtype=torch.bool)
    notes = []
    if majority is not None and majority.edge < math.inf:
        out = majority.farness(numbers) >= majority.edge
        notes.append(
            f"{_share(out)} of the images look unlike the others ({_way(numbers, out)}) and are ignored; "
            "start none keeps them"
        )
    count = copies(x)
    copied = (count > 1) & ~out
    if copied.any():
        notes.append(f"{_share(copied)} of the images are near-copies of others, and copies of one count as one")
    if not notes:
        return None, None, (f"gamma {gamma:g}: every image counts",)
    notes[0] = f"gamma {gamma:g}: {notes[0]}"
    return torch.where(out, 0.0, 1 / count.double()), majority if out.any() else None, tuple(notes)


def _share(which: Tensor) -> str:
    share = float(which.double().mean())
    return f"{share:.1%}" if share >= 0.0005 else f"{int(which.sum())}"


def _way(numbers: Tensor, out: Tensor) -> str:
    """What images that are ignored differ in most from the others."""
    spread = numbers[~out].std(0) + LEAST_SPREAD
    apart = ((numbers[out] - numbers[~out].median(0).values) / spread).abs().median(0).values
    return next(group for group in GROUPS if COLUMNS[int(apart.argmax())].startswith(group))


def _blockwise(describe: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """What a function gives for images, without floats of all of them at one time."""
    return torch.cat([describe(part) for part in x.split(BLOCK)])
