"""The mixture of a table of one or two columns, fitted until nothing is left to gain.

What decides about junk and the number of components in the first place need not be exact, and EM is slow at its end. In
the plane, where fine structure can be seen, it pays to go on: from few components that have settled to twice as many,
each split along its longest axis, as long as rows that the mixture has not seen become likelier.
"""

import math
from dataclasses import replace

import torch
from torch import Tensor

from pscd.coordinates import Coordinates
from pscd.mixtures.background import Background
from pscd.mixtures.robust import BETTER, TAIL, RobustMixture, em, first, gaussians, little_junk, near_rows
from pscd.rng import Stream, generator

ROUNDS, SETTLED = 400, 3e-5  # of EM at most; and nats a row below which it has settled
WIDTHS = (1.5, 2.0, 3.0)  # of more Gaussians in the background, in standard deviations of each column
ROWS_OF_A_HALF = 200  # at least, so that its place and shape are known
TAIL_ALONE, TAIL_BESIDE_JUNK = 0.1, 0.3  # over sqrt(n): weight of the tail for n rows, which tell it the better, the
# more they are; a background, which takes some of the data's own tails for junk, asks for more of it
APART = 0.5  # deviations by which the halves of a component are moved


def refine(
    found: RobustMixture, z: Tensor, held: Tensor, *, seed: int, coordinates: Coordinates | None = None
) -> RobustMixture:
    """Go on with EM, and split components as long as held-out rows become likelier.

    There are two starts: the components that were found, and half as many new ones. Those that were split from settled
    ones are often better placed than those that all started at once.

    Args:
        found: where it starts; its background, if it has one, is made anew.
        z: the rows to fit, `(n, d)` in float64.
        held: rows that say when to stop, and which start was the better one, `(m, d)`.
        seed: of the new start.
        coordinates: that the rows are in, for the background.

    Returns:
        The mixture, in float64.
    """
    best = _split_further(settle(found, z, coordinates=coordinates), z, held)
    k = len(found.components.weights) // 2
    if k == 0:
        return best
    rows = z if found.background is None else near_rows(z)
    fewer = first(rows, k, found.background, generator(seed, Stream.ROBUST_MIXTURE, k))
    other = _split_further(settle(fewer, z, coordinates=coordinates), z, held)
    return other if other.held_out > best.held_out - BETTER else best


def _split_further(found: RobustMixture, z: Tensor, held: Tensor) -> RobustMixture:
    """Split all components as long as held-out rows become likelier."""
    best, score = found, _score(found, held)
    while 2 * len(best.components.weights) * ROWS_OF_A_HALF <= len(z):
        finer = em(split(best), z, ROUNDS, SETTLED)
        if (its := _score(finer, held)) <= score:
            break
        best, score = finer, its
    return replace(best, held_out=score)


def settle(found: RobustMixture, z: Tensor, *, coordinates: Coordinates | None = None) -> RobustMixture:
    """Fit a mixture to other rows until EM has settled.

    Args:
        found: where EM starts; its background, if it has one, is made anew.
        z: the rows, `(n, d)` in float64.
        coordinates: that the rows are in, for the background.

    Returns:
        The mixture, in float64.
    """
    is_clean = found.background is None
    # EM that goes on for so long would give a component to junk that no density of the background fits.
    background = None if is_clean else Background.of(z, coordinates, widths=WIDTHS)
    tail = min(TAIL, (TAIL_ALONE if is_clean else TAIL_BESIDE_JUNK) / math.sqrt(len(z)))
    start = replace(found, junk=_junk(found, background, z), background=background, tail_weight=tail)
    return em(start, z, ROUNDS, SETTLED)


def _junk(found: RobustMixture, background: Background | None, z: Tensor) -> Tensor:
    """As much junk as was found: where less of it is left to the background at first, components would take it."""
    if background is None or found.background is None:
        return little_junk(background, z)
    is_known = found.background.kinds == background.kinds
    return found.junk if is_known else z.new_full((background.kinds,), found.share_of_junk / background.kinds)


def split(found: RobustMixture) -> RobustMixture:
    """Every component in two halves, moved apart along its longest axis; mean and covariance of the pair stay."""
    old = found.components
    covariances = old.factors @ old.factors.mT
    variance, axis = torch.linalg.eigh(covariances)
    step = APART * variance[:, -1:].sqrt() * axis[:, :, -1]
    covariances = covariances - step[:, :, None] * step[:, None, :]
    halves = gaussians(
        torch.cat([old.weights, old.weights]) / 2,
        torch.cat([old.means - step, old.means + step]),
        torch.cat([covariances, covariances]),
    )
    return replace(found, components=halves)


def _score(found: RobustMixture, held: Tensor) -> float:
    return float(found.log_parts(held).logsumexp(1).mean())
