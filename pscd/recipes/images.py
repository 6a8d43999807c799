"""The recipe for images: images unlike the majority are ignored, and near-copies count once.

A convolutional network hardly knows where in the image it is, and no energy tells a copy from an image. So digits out
of place, or a thousand copies of one digit, are learnt whatever gamma is, unless images are weighed before. That is
done without labels, by the few numbers of `pscd.data.looks`:

- **Outliers**: an ellipse is fitted to three quarters of the images (the minimum covariance determinant, by C-steps).
  The number of clean images falls with the distance. Where it rises again, by more than chance, a group begins that is
  no tail of the majority, and images from the valley before it on are ignored.
- **Copies**: the weight of an image is one over the number of images that hardly differ from it, itself included.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from pscd.coordinates import GAUSSIAN_IQR
from pscd.data.looks import COLUMNS, GROUPS, close_miniatures, miniatures_of, numbers_of
from pscd.data.pixels import BLOCK


@dataclass(frozen=True)
class ImageSettings:
    """How images are weighed."""

    share: float = 0.75  # of the images that the ellipse is fitted to; a group larger than the rest is no contamination
    rounds: int = 50  # C-steps, at most
    # Between the quartiles of a column, below which it says nothing, such as the colours of grey images; and the ridge
    # of its variance.
    min_spread: float = 1e-6
    bin: float = 0.25  # of the log of squared distances over their median
    nearest: float = math.log(4.0)  # of these logs, below which all images count
    # Standard deviations by which a group rises above the valley before it; clean sets had 3.4 at most.
    min_rise: float = 4.0
    min_images: int = 100  # with fewer, no group is told from chance
    # Root mean square difference of copies; half of what `pscd detect` lists, since nobody reviews these.
    alike: float = 0.005


SETTINGS = ImageSettings()


@dataclass(frozen=True)
class Majority:
    """An ellipse around the majority of images, by how they look at a glance."""

    used: Tensor  # columns of `pscd.data.looks` that vary, `(k,)`
    centre: Tensor  # of the ellipse, `(k,)`
    factor: Tensor  # Cholesky factor of its covariance, `(k, k)`
    median: Tensor  # of the squared distances of the images that it was fitted to
    # Log of the squared distance over the median above which images are ignored; infinite: none is.
    edge: float = math.inf

    def farness(self, numbers: Tensor) -> Tensor:
        """Log of squared Mahalanobis distances over their median, `(n,)`, of the numbers of images `(n, columns)`."""
        return _log_over(_squared(numbers[:, self.used], self.centre, self.factor), self.median)

    def holds(self, x: Tensor) -> Tensor:
        """Whether images `(n, channels, height, width)` belong to the majority: `(n,)`."""
        return self.farness(_blockwise(numbers_of, x)) < self.edge


def find_majority(numbers: Tensor) -> Majority | None:
    """The majority of images by their `numbers_of`; None for too few images, or if no number varies."""
    quartiles = torch.quantile(numbers, numbers.new_tensor([0.25, 0.5, 0.75]), 0)
    spread = (quartiles[2] - quartiles[0]) / GAUSSIAN_IQR
    used = (spread > SETTINGS.min_spread).nonzero().flatten()
    if len(numbers) < SETTINGS.min_images or not len(used):
        return None
    x = numbers[:, used]
    squared = ((x - quartiles[1, used]) / spread[used]).square().sum(1)
    inside = torch.zeros(len(x), dtype=torch.bool)
    for _ in range(SETTINGS.rounds):
        before, inside = inside, squared <= squared.quantile(SETTINGS.share)
        if torch.equal(before, inside):
            break
        centre, covariance = x[inside].mean(0), torch.cov(x[inside].T).reshape(len(used), -1)
        ridge = torch.diag(SETTINGS.min_spread * spread[used].square())
        factor = torch.linalg.cholesky(covariance + ridge)
        squared = _squared(x, centre, factor)
    median = squared.median().clamp(min=1e-12)
    return Majority(used, centre, factor, median, _edge(_log_over(squared, median)))


def _squared(x: Tensor, centre: Tensor, factor: Tensor) -> Tensor:
    """Squared Mahalanobis distances."""
    return torch.linalg.solve_triangular(factor, (x - centre).T, upper=False).square().sum(0)


def _log_over(squared: Tensor, median: Tensor) -> Tensor:
    return (squared / median).clamp(min=math.exp(-5.0)).log()


def _edge(farness: Tensor) -> float:
    """Where the valley is before a group beyond the majority; infinite if there is no such group."""
    bins = (farness / SETTINGS.bin).floor().long()
    low = int(bins.min())
    count = torch.bincount(bins - low).double()
    first = max(int(count.argmax()), math.ceil(SETTINGS.nearest / SETTINGS.bin) - low)
    count = count[first:]
    if not len(count):
        return math.inf
    lowest = count.cummin(0).values
    rise = (count - lowest) / (count + lowest).clamp(min=1).sqrt()  # in standard deviations of the two counts
    peak = int(rise.argmax())
    valley = (count[: peak + 1] == lowest[peak]).nonzero().flatten()
    edge = (low + first + int(valley[len(valley) // 2]) + 0.5) * SETTINGS.bin
    beyond = float((farness >= edge).double().mean())
    return edge if float(rise[peak]) >= SETTINGS.min_rise and beyond <= 1 - SETTINGS.share else math.inf


def copies(x: Tensor) -> Tensor:
    """The number of images `(n, channels, height, width)` that hardly differ from each, itself included: `(n,)`.

    >>> x = torch.rand(3, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    >>> copies(x[[0, 1, 2, 1]])
    tensor([1, 2, 1, 2])
    """
    count = torch.empty(len(x), dtype=torch.long)
    for some, _, close in close_miniatures(_blockwise(miniatures_of, x), SETTINGS.alike):
        count[some] = close.sum(1).clamp(min=1)
    return count


def weigh_images(x: Tensor, gamma: float) -> tuple[Tensor | None, Majority | None, tuple[str, ...]]:
    """Weights of images, `(n,)`, or None if all are 1; the majority, None if all belong to it; notes for the user."""
    numbers = _blockwise(numbers_of, x)
    majority = find_majority(numbers)
    out = torch.zeros(len(x), dtype=torch.bool)
    notes = []
    if majority is not None and majority.edge < math.inf:
        out = majority.farness(numbers) >= majority.edge
        notes.append(
            f"{_share(out)} of the images look unlike the others ({_way(numbers, out)}) and are ignored; "
            "rows.start none keeps them"
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
    spread = numbers[~out].std(0) + SETTINGS.min_spread
    apart = ((numbers[out] - numbers[~out].median(0).values) / spread).abs().median(0).values
    return next(group for group in GROUPS if COLUMNS[int(apart.argmax())].startswith(group))


def _blockwise(describe: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """What a function gives for images, without floats of all of them at one time."""
    return torch.cat([describe(part) for part in x.split(BLOCK)])
