"""The energy of a table's numbers: a robust Gaussian, and a bounded correction by a network."""

import copy
import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from pscd.config import ChainSettings, GuardSettings, OptimizerSettings, RowSettings, TrainConfig
from pscd.detector.gaussian import Gaussian, fit_gaussian, majority, silverman
from pscd.energies import Correction
from pscd.mixtures import Mixture
from pscd.mixtures.missing import fill, gaps
from pscd.model import SCORE_BLOCK, Model
from pscd.objectives import PseudoSpherical
from pscd.rng import Stream, generator
from pscd.sampling import Jumps
from pscd.training.loop import fit

AUTO_SHARE = 0.75  # effective share of the rows that gamma="auto" keeps
GAUSSIAN_ROWS = 20_000  # rows that the Gaussian is fitted to, at most
N_NORMALISER = 20_000  # draws for the normalising constant
CLEAN = 0.05  # share of rows outside the Gaussian of the majority below which gamma="auto" is 0
INSIDE = 0.99  # share of the model's samples that counts as its inside


@dataclass(frozen=True)
class NumberEnergy:
    """E(z) of rows `(n, k)` in robust coordinates; NaN is a missing cell.

    Args:
        gaussian: of the majority.
        model: the trained network, on rows that the Gaussian whitens.
    """

    gaussian: Gaussian
    model: Model

    @cached_property
    def network(self) -> nn.Module:
        """The trained energy of whitened rows, in float64, so that blocks of any size agree."""
        return copy.deepcopy(self.model.network).double()

    @torch.no_grad()
    def energy(self, z: Tensor) -> Tensor:
        """The energy of rows `(n, k)`, `(n,)`; that of missing cells is the one to be expected given the others.

        The Gaussian's part is exact: half of the quadratic form of the observed cells, and a half for each missing one,
        so that a row is neither stranger nor more ordinary for its gaps. The network sees missing cells at their
        conditional mean under the Gaussian.

        Args:
            z: the rows.

        Returns:
            The energies.
        """
        parts = []
        for part in z.split(SCORE_BLOCK):
            missing = part.isnan()
            energy = self.network(self.whitened(part))
            parts.append(energy + 0.5 * missing.sum(1) if missing.any() else energy)
        return torch.cat(parts)

    def whitened(self, z: Tensor) -> Tensor:
        """Rows `(n, k)` in the Gaussian's coordinates, with missing cells at their conditional mean."""
        return self.gaussian.whiten(self._filled(z)[0] if z.isnan().any() else z)

    def _filled(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Rows with missing cells at their conditional mean, and the Gaussian's log density of the others."""
        g = self.gaussian
        log_det = 2 * g.factor.diagonal().log().sum()
        found = fill(z, gaps(z.isnan()), g.mean[None], g.precision[None], log_det[None])
        return torch.where(z.isnan(), found.apart[0] + g.mean, z), found.log_prob[:, 0]

    @torch.no_grad()
    def log_density(self, z: Tensor) -> Tensor:
        """Log density of the observed cells of rows `(n, k)`, `(n,)`.

        The normalising constant is estimated by importance sampling from the Gaussian. The estimate is good where the
        network is a small correction of it; in high dimension it has a large variance.

        Args:
            z: the rows.

        Returns:
            Nats.
        """
        k = len(self.gaussian.mean)
        u = torch.randn(N_NORMALISER, k, generator=generator(0, Stream.NORMALISER), dtype=torch.float64)
        correction = 0.5 * u.square().sum(1) - self.network(u)
        log_z = torch.logsumexp(correction, 0) - math.log(len(u)) + 0.5 * k * math.log(2 * math.pi)
        log_det = self.gaussian.factor.diagonal().log().sum()
        log_density = -self.energy(z) - log_z - log_det
        some = z.isnan().any(1)
        if some.any():
            whole, log_gaussian = self._filled(z[some])
            # Cells at their conditional mean cost nothing; the rest is the Gaussian's marginal density.
            quadratic = self.gaussian.energy(whole)
            network = self.network(self.gaussian.whiten(whole)) - quadratic
            log_density[some] = log_gaussian - network - log_z + 0.5 * k * math.log(2 * math.pi)
        return log_density

    def sample(self, n: int, seed: int) -> Tensor:
        """`(n, k)` new rows in robust coordinates."""
        return self.gaussian.colour(self.model.sample(n, seed=seed))


def fit_numbers(
    z: Tensor, *, gamma: float | str, bound: float, n_updates: int, seed: int, floor: Tensor, verbose: bool
) -> NumberEnergy:
    """Fit the Gaussian, and train the network on the rows that it whitens.

    Args:
        z: rows `(n, k)` in robust coordinates, without gaps.
        gamma: of the score, or "auto".
        bound: nats by which the network may correct the Gaussian.
        n_updates: of the network.
        seed: the same number gives the same result.
        floor: least variance of the columns, `(k,)`.
        verbose: whether to show a progress line.

    Returns:
        The energy.
    """
    n, k = z.shape
    some = z[torch.randperm(n, generator=generator(seed, Stream.DETECTOR_ROWS))[:GAUSSIAN_ROWS]]
    base = (
        majority(some, AUTO_SHARE, inside=INSIDE, clean=CLEAN, floor=floor)
        if gamma == "auto"
        else fit_gaussian(some, gamma=float(gamma), floor=floor)
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        energy = Correction(k, bound=bound)
    # Add Silverman noise (more for fewer rows), and rescale so that the variance is unchanged.
    width = silverman(n, k)
    narrow = (1 + width**2) ** -0.5
    model = fit(
        narrow * base.whiten(z),
        settings(base.gamma, n_updates, seed, noise=narrow * width),
        energy=energy,
        proposal=Mixture.isotropic(k),
        progress=verbose,
    )
    return NumberEnergy(base, model)


def settings(gamma: float, n_updates: int, seed: int, noise: float) -> TrainConfig:
    """How the network is trained on whitened rows: as a correction of the standard Gaussian, without warm-up of gamma.

    Elsewhere gamma warms up from 0, since an untrained network takes all data for junk. Here the Gaussian knows the
    majority from the start; a warm-up would only teach the network the junk. And since the network is bounded, draws of
    the Gaussian are all that its negative phase needs.

    Args:
        gamma: of the gamma-score.
        n_updates: updates of the network.
        seed: of the training.
        noise: deviation of the noise that is added to each batch.

    Returns:
        The configuration of the training.
    """
    return TrainConfig(
        objective=PseudoSpherical(gamma=gamma, warmup=0.0, negatives="importance"),
        sampler=Jumps(),
        updates=n_updates,
        seed=seed,
        # Nothing is drawn from the buffer, and most jumps are accepted.
        chains=ChainSettings(buffer_size=256, sample_steps=30),
        optimizer=OptimizerSettings(lr=8e-3),
        # The median row may be far from what the weights keep.
        guard=GuardSettings(max_gap=1e6),
        rows=RowSettings(data_noise=noise, standardise="none"),
    )
