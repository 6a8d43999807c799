"""The energy of a table's numbers: a robust Gaussian, and a bounded correction by a network."""

import copy
import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from pscd.config import ChainSettings, GuardSettings, OptimizerSettings, RowSettings, TrainConfig
from pscd.detector.gaussian import Gaussian, fit_gaussian
from pscd.energies import Correction
from pscd.mixtures import Mixture
from pscd.mixtures.missing import fill, gaps
from pscd.model import SCORE_BLOCK, Model
from pscd.objectives import PseudoSpherical
from pscd.rng import Stream, generator
from pscd.sampling import Jumps
from pscd.training.fit import fit

N_NORMALISER = 20_000  # draws for the normalising constant


@dataclass(frozen=True)
class NumberEnergy:
    """E(z) of rows `(n, k)` in robust coordinates; NaN is a missing cell."""

    gaussian: Gaussian  # of the majority
    model: Model  # the trained network, on rows that the Gaussian whitens

    @cached_property
    def network(self) -> nn.Module:
        """The trained energy of whitened rows, in float64, so that blocks of any size agree."""
        return copy.deepcopy(self.model.network).double()

    @torch.no_grad()
    def energy(self, z: Tensor) -> Tensor:
        """The energy of rows `(n, k)`, `(n,)`; of missing cells it is the expectation given the others."""
        # Under the Gaussian a missing cell is expected to cost 1/2; the network sees it at its conditional mean.
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
        filled = fill(z, gaps(z.isnan()), g.mean[None], g.precision[None], log_det[None])
        return torch.where(z.isnan(), filled.apart[0] + g.mean, z), filled.log_prob[:, 0]

    @torch.no_grad()
    def log_density(self, z: Tensor) -> Tensor:
        """Log density of the observed cells of rows `(n, k)` in nats, `(n,)`; Z is estimated from Gaussian draws."""
        k = len(self.gaussian.mean)
        u = torch.randn(N_NORMALISER, k, generator=generator(0, Stream.NORMALISER), dtype=torch.float64)
        correction = 0.5 * u.square().sum(1) - self.network(u)
        log_z = torch.logsumexp(correction, 0) - math.log(len(u)) + 0.5 * k * math.log(2 * math.pi)
        log_det = self.gaussian.factor.diagonal().log().sum()
        log_density = -self.energy(z) - log_z - log_det
        incomplete = z.isnan().any(1)
        if incomplete.any():
            filled, log_gaussian = self._filled(z[incomplete])
            # Cells at their conditional mean cost nothing; the rest is the Gaussian's marginal density.
            quadratic = self.gaussian.energy(filled)
            network = self.network(self.gaussian.whiten(filled)) - quadratic
            log_density[incomplete] = log_gaussian - network - log_z + 0.5 * k * math.log(2 * math.pi)
        return log_density

    def sample(self, n: int, seed: int) -> Tensor:
        """`(n, k)` new rows in robust coordinates."""
        return self.gaussian.colour(self.model.sample(n, seed=seed))


def fit_numbers(
    z: Tensor, *, gamma: float, bound: float, updates: int, seed: int, spiked: Tensor, verbose: bool
) -> NumberEnergy:
    """Fit the Gaussian to complete rows `(n, k)` in robust coordinates, and train the network on whitened rows."""
    n, k = z.shape
    gaussian = fit_gaussian(z, robust=gamma > 0, spiked=spiked, seed=seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        energy = Correction(k, bound=bound)
    # Add Silverman noise (more for fewer rows), and rescale so that the variance is unchanged.
    width = silverman(n, k)
    narrow = (1 + width**2) ** -0.5
    model = fit(
        narrow * gaussian.whiten(z),
        config=training(gamma, updates, seed, noise=narrow * width),
        energy=energy,
        proposal=Mixture.isotropic(k),
        progress=verbose,
    )
    return NumberEnergy(gaussian, model)


def silverman(n: int, k: int) -> float:
    """Width of a Gaussian kernel for n rows of k columns, in standard deviations (Silverman 1986, Eq. 4.14)."""
    return (4 / ((k + 2) * n)) ** (1 / (k + 4))


def training(gamma: float, updates: int, seed: int, noise: float) -> TrainConfig:
    """How the network is trained on whitened rows, with `noise` added: as a correction of the standard Gaussian."""
    return TrainConfig(
        # No warm-up: the Gaussian knows the majority from the start, and at gamma 0 the network would fit the outliers.
        objective=PseudoSpherical(gamma=gamma, warmup=0.0, negatives="importance"),
        sampler=Jumps(),
        updates=updates,
        seed=seed,
        # Nothing is drawn from the buffer, and most jumps are accepted.
        chains=ChainSettings(buffer_size=256, sample_steps=30),
        optimizer=OptimizerSettings(lr=8e-3),
        # The median row may be far from what the weights keep.
        guard=GuardSettings(max_gap=1e6),
        rows=RowSettings(data_noise=noise, standardise="none"),
    )
