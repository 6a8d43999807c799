"""What a fitted mixture can say for sure: that rows are dirtier than clean ones would look, or out of reach."""

from torch import Tensor

from pscd.coordinates import Coordinates
from pscd.mixtures.mixture import Mixture
from pscd.mixtures.robust import RobustMixture, fit_robust_mixture
from pscd.rng import Stream, generator

SURELY = 0.1  # a row that is less likely than this to belong to the majority is surely junk
SIMULATIONS, SIMULATED_ROWS = 3, 4_000  # clean tables to compare with, and their rows at most
MORE_SHARE, MORE_ROWS = 0.004, 5.0  # by which a dirty table has more junk than each of them: a share, and so many rows
DRAWS, RARE = 50_000, 2e-4  # of a proposal, and the share of them that counts as the edge of its reach


def stands_out(mixture: RobustMixture, z: Tensor, *, seed: int, coordinates: Coordinates | None = None) -> bool:
    """Whether more rows are surely junk than would be if all of them came from the majority.

    A background explains a part of any table: the middle of a Gaussian is nearly even, and long tails look like junk.
    So clean tables of the same size are drawn from the majority, and fitted in the same way (a parametric bootstrap).

    Args:
        mixture: fitted to the rows, with a background.
        z: the rows, `(n, d)`.
        seed: the same number gives the same answer.
        coordinates: that the rows are in, for the background.

    Returns:
        True if every simulated clean table has clearly less junk.
    """

    def share(found: RobustMixture, rows: Tensor) -> float:
        return float((found.clean(rows) < SURELY).double().mean())

    most = share(mixture, z) - MORE_SHARE - MORE_ROWS / len(z)  # that a clean table may have
    if most <= 0:
        return False
    for i in range(SIMULATIONS):
        rows = mixture.density.sample(min(len(z), SIMULATED_ROWS), generator(seed, Stream.CLEAN_ROWS, i))
        components = (len(mixture.components.weights),)
        found = fit_robust_mixture(rows, robust=True, seed=seed, components=components, coordinates=coordinates)
        if share(found, rows) >= most:
            return False
    return True


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
