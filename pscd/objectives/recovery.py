"""Recovery likelihood: an energy for each level of noise learns to bring noisier images back to that level."""

from dataclasses import dataclass, replace
from typing import Literal, Self

import torch
from torch import Tensor, nn

from pscd import distributed
from pscd.energies import LevelEnergy, NoisyEnergies
from pscd.errors import UserError
from pscd.objectives.gamma import PseudoSpherical
from pscd.objectives.protocol import Objective, both_phases, check_gamma, check_warmup, warmed_up
from pscd.objectives.score_matching import noisy
from pscd.sampling import ChainCallback, langevin
from pscd.types import Energy, check_types, documented, option


@documented
@dataclass(frozen=True)
class Recovery(Objective):
    """Diffusion recovery likelihood (Gao, Song, Poole, Wu, Kingma 2021), with the gamma-score.

    Data x with noise of deviation s_t have the energy E(x, t). Given the noisier y = x + sigma z of the next level,
    sigma^2 = s_{t+1}^2 - s_t^2, x has the energy E(x, t) + |x - y|^2 / (2 sigma^2). This is close to that of a Gaussian
    around y, so a few steps of Langevin dynamics that start at y sample it, and there are no persistent chains. Samples
    of the model start from noise and go down all levels.

    Each update takes one level, drawn at random. The loss is that of PS-CD for data and recovered samples, with the
    energies E(x, t): an outlier at its level has less weight, and so has the sample recovered from it. The energy of x
    given y cannot give the weights, since an outlier is likely given its own noisy version. Energies of different
    levels differ by unknown constants, so weights are normalised within a level. If samples given y are exact, data and
    samples of a level have the same distribution, and gamma does not bias the model.

    >>> Recovery(gamma=0.3, warmup=0.5).at(0.25).gamma  # half-way through the warm-up
    0.15
    """

    gamma: float = option(0.0, "robustness: 0 is recovery likelihood, higher gives outliers less weight; at least -1")
    warmup: float = option(0.5, "fraction of the run over which gamma rises from 0")
    unit: Literal["nats", "spread"] = option(
        "spread", "gamma is per nat of energy, or per spread of the data's energies (spread)"
    )
    n_steps: int = option(1, "Langevin steps from the noisier image, at each level")
    step_size: float = option(1.0, "Langevin step, in units of the variance that a row without noise leaves; below 2")

    needs_negatives = False  # of the trainer's chains
    uses_levels = True

    def __post_init__(self) -> None:
        check_types(self)
        check_gamma(self.gamma)
        check_warmup(self.warmup)
        if self.n_steps < 1:
            raise UserError(f"n_steps must be at least 1, got {self.n_steps}")
        if not 0 < self.step_size < 2:
            raise UserError(f"step_size must lie between 0 and 2, got {self.step_size}")

    def init(self, energy: nn.Module, x: Tensor) -> None:
        """Raise a `UserError` unless the network has levels of noise; nothing else is trained."""
        if not isinstance(energy, NoisyEnergies):
            raise UserError("recovery needs an energy of several levels of noise, pscd.energies.NoisyEnergies")

    def at(self, progress: float) -> Self:
        """The objective after a fraction `progress` of the run: gamma rises over the warm-up."""
        return replace(self, gamma=warmed_up(self.gamma, self.warmup, progress))

    def __call__(
        self,
        energy: Energy,
        aux: nn.Module | None,
        x_pos: Tensor,
        x_neg: Tensor,
        generator: torch.Generator,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss over the batches of all processes together, at one level of noise."""
        assert isinstance(energy, NoisyEnergies)
        drawn = torch.randint(energy.levels, (1,), generator=generator, device=x_pos.device)
        distributed.broadcast([drawn])  # energies are compared over all processes
        level = int(drawn)
        least, sigma, deviation = _scales(energy, level)
        x, _ = noisy(x_pos, least, generator)
        y, _ = noisy(x, sigma, generator)
        # The mean of x given y and the row without noise. Its deviation from x is also the noise of the last step: both
        # phases keep their distributions, and their difference has less variance.
        mean = torch.lerp(x_pos, y, least**2 / (least**2 + sigma**2))
        recovered = self.recover(energy, y, level, last_noise=(x - mean) / deviation, generator=generator)
        score = PseudoSpherical(gamma=self.gamma, warmup=0.0, unit=self.unit, negatives="weighted")
        return score.of_energies(*both_phases(LevelEnergy(energy, level), x, recovered))

    def recover(
        self,
        energy: NoisyEnergies,
        y: Tensor,
        level: int,
        *,
        n_steps: int | None = None,
        last_noise: Tensor | None = None,
        generator: torch.Generator | None = None,
        callback: ChainCallback | None = None,
    ) -> Tensor:
        """Draw rows of a level given `y`, those of the next, noisier one: Langevin dynamics that starts at y.

            x <- x - a v grad E(x | y) + sqrt(a (2 - a) v) z,    v = s_t^2 sigma^2 / s_{t+1}^2

        Here a is `step_size` and v the variance of x given y and the row without noise. For a Gaussian of variance v
        the steps are exact whatever a; for small a they are those of Langevin dynamics at temperature 1.
        """
        n_steps = self.n_steps if n_steps is None else n_steps
        _, _, deviation = _scales(energy, level)
        conditional = LevelEnergy(energy, level, y)
        noise_scale = deviation * (self.step_size * (2 - self.step_size)) ** 0.5

        def run(x: Tensor, n_steps: int, noise_scale: float) -> Tensor:
            return langevin(
                conditional,
                x,
                n_steps=n_steps,
                step_size=self.step_size * deviation**2,
                noise_scale=noise_scale,
                generator=generator,
                callback=callback,
            )

        if last_noise is None:
            return run(y, n_steps, noise_scale)
        return run(run(y, n_steps - 1, noise_scale), 1, 0.0) + noise_scale * last_noise

    def sample(
        self,
        energy: nn.Module,
        x: Tensor,
        *,
        n_steps: int | None = None,
        generator: torch.Generator | None = None,
        callback: ChainCallback | None = None,
    ) -> Tensor:
        """Draw samples: noise is added to any points, and removed level by level; what is left of it, by its mean."""
        assert isinstance(energy, NoisyEnergies)
        n_steps = self.n_steps * energy.levels if n_steps is None else n_steps
        if n_steps < energy.levels:
            raise UserError(f"n_steps must be at least {energy.levels}, one for each level of noise, got {n_steps}")
        x, _ = noisy(x, float(energy.sigmas[-1]), generator)
        for i in range(energy.levels):
            first, end = (n_steps * j // energy.levels for j in (i, i + 1))
            x = self.recover(
                energy,
                x,
                energy.levels - 1 - i,
                n_steps=end - first,
                generator=generator,
                callback=None if callback is None else _counting_from(first, callback),
            )
        return denoised(energy, x)


def _scales(energy: NoisyEnergies, level: int) -> tuple[float, float, float]:
    """The noise of a level, what the next one adds, and the deviation of a row given the next and no noise at all."""
    least, most = energy.sigmas[level : level + 2].double().tolist()
    sigma = (most**2 - least**2) ** 0.5
    return least, sigma, least * sigma / most


def _counting_from(first: int, callback: ChainCallback) -> ChainCallback:
    return lambda at: callback({**at, "step": first + at["step"]})


def denoised(energy: NoisyEnergies, x: Tensor) -> Tensor:
    """The mean of the rows without noise, given those of the first level (Tweedie): x - s_0^2 grad E(x, 0)."""
    # One step of gradient descent.
    return langevin(LevelEnergy(energy, 0), x, n_steps=1, step_size=float(energy.sigmas[0]) ** 2, noise_scale=0.0)
