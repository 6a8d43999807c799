"""What a fitted mixture can say for sure: that rows are dirtier than clean ones would look, or out of reach."""

import math

from torch import Tensor

from pscd.coordinates import Coordinates
from pscd.mixtures.mixture import Mixture
from pscd.mixtures.robust import RobustMixture, fit_robust_mixture, is_full, refit
from pscd.rng import Stream, generator

SURELY = 0.1  # a row that is less likely than this to belong to the majority is surely junk
SIMULATIONS, SIMULATED_ROWS = 3, 4_000  # clean tables to compare with, and their rows at most
MORE_SHARE, MORE_ROWS = 0.004, 5.0  # by which a dirty table has more sure junk than each of them: a share, and rows
MORE_BACKGROUND, MORE_ROOTS = 0.015, 2.0  # or by which its background is larger: a share, and so many over sqrt(n)
LEAST_GAIN = 0.002  # nats a held-out row that such a background must gain
DRAWS, RARE = 50_000, 2e-4  # of a proposal, and the share of them that counts as the edge of its reach


def stands_out(
    mixture: RobustMixture, z: Tensor, *, gain: float, seed: int, coordinates: Coordinates | None = None
) -> bool:
    """Whether there is more junk among the rows than would be if all of them came from the majority.

    A background explains a part of any table: the middle of a Gaussian is nearly even, and long tails look like junk.
    So clean tables of the same size are drawn from the majority, and fitted in the same way (a parametric bootstrap).
    The rows stand out if clearly more of them are surely junk; or, since junk among the data is never sure, if the
    background as a whole is clearly larger and makes held-out rows likelier.

    Args:
        mixture: fitted to the rows, with a background.
        z: the rows, `(n, d)`.
        gain: nats by which held-out rows are likelier with the background than without.
        seed: the same number gives the same answer.
        coordinates: that the rows are in, for the background.

    Returns:
        True if every simulated clean table has clearly less junk, of one kind or the other.
    """

    def surely_junk(found: RobustMixture, rows: Tensor) -> float:
        return float((found.clean(rows) < SURELY).double().mean())

    n = len(z)
    background = mixture.share_of_junk if gain > LEAST_GAIN else 0.0
    # What clean tables must stay below; 0 once one of them has not.
    limits = [
        surely_junk(mixture, z) - MORE_SHARE - MORE_ROWS / n,
        background - MORE_BACKGROUND - MORE_ROOTS / math.sqrt(n),
    ]
    for i in range(SIMULATIONS):
        if max(limits) <= 0:
            return False
        rows = mixture.density.sample(min(n, SIMULATED_ROWS), generator(seed, Stream.CLEAN_ROWS, i))
        components = (len(mixture.components.weights),)
        found = fit_robust_mixture(rows, robust=True, seed=seed, components=components, coordinates=coordinates)
        if is_full(found):  # its start has missed a component, which the background stands in for
            found = refit(mixture, rows, coordinates=coordinates)
        clean = (surely_junk(found, rows), found.share_of_junk)
        limits = [limit if value < limit else 0.0 for limit, value in zip(limits, clean, strict=True)]
    return max(limits) > 0


def edge_of_reach(proposal: Mixture, *, seed: int) -> float:
    """The log density below which next to none of a proposal's draws lie: rows beyond are out of its reach.

    Args:
        proposal: what chains start from and jump to.
        seed: the same number gives the same edge.

    Returns:
        A log density: that of the least likely draws.
    """
    draws = proposal.sample(DRAWS, generator(seed, Stream.REACH))
    return float(proposal.log_prob(draws).kthvalue(int(RARE * DRAWS)).values)
