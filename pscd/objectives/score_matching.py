"""Score matching: fits the gradient of the energy to that of -log p, without samples of the model and without log Z."""

import math
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor, nn

from pscd import distributed, losses
from pscd.errors import UserError
from pscd.objectives.protocol import Objective, check_warmup, warmed_up
from pscd.types import Energy, documented, option


def noise_at(sigma: float, first: float, warmup: float, progress: float, least: float = 0.05) -> float:
    """Noise that falls geometrically from `first` to `sigma` over the first part of the run."""
    # Gradients at the data do not determine the energy between and around them, and samples that start there are wrong.
    # Large noise at the start puts data there. Geometric decay cannot reach 0, so below `least` the noise drops to its
    # final value.
    done = warmed_up(1.0, warmup, progress)
    least = max(sigma, least)
    return sigma if done == 1 else least * (first / least) ** (1 - done)


def check_noise(sigma: float, first: float, warmup: float) -> None:
    """Refuse impossible settings of the noise."""
    if not 0 <= sigma < math.inf:
        raise UserError(f"sigma must be a finite number of at least 0, got {sigma}")
    if not 0 < first < math.inf:
        raise UserError(f"first_sigma must be a positive number, got {first}")
    check_warmup(warmup)


def noisy(x: Tensor, sigma: float, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
    """Add noise to rows."""
    z = torch.randn(x.shape, generator=generator, device=x.device, dtype=x.dtype)
    return (x + sigma * z if sigma else x), z


def over_all_processes(rows: Tensor, e: Tensor, gradient: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Average a loss per row over the batches of all processes."""
    stats = {
        "e_pos": distributed.mean(e.detach().mean()),
        "slope": distributed.mean(gradient.detach().square().sum(1).mean()).sqrt(),
    }
    return distributed.gather(rows).mean(), stats


@documented
@dataclass(frozen=True)
class ScoreMatching(Objective):
    """Exact score matching (Hyvärinen 2005): one backward pass per column, so for few columns.

    >>> objective = ScoreMatching(sigma=0.1, first_sigma=1.0)
    >>> objective.at(0.0).sigma, objective.at(1.0).sigma  # noise at the start and at the end
    (1.0, 0.1)
    """

    sigma: float = option(0.0, "noise on the data, in the network's coordinates")
    first_sigma: float = option(1.0, "the same at the start of the run")
    warmup: float = option(0.5, "fraction of the run over which the noise falls")

    needs_negatives = False

    def __post_init__(self) -> None:
        check_noise(self.sigma, self.first_sigma, self.warmup)

    def init(self, energy: nn.Module, x: Tensor) -> None:
        """Raise a `UserError` for more than ten columns; nothing else is trained."""
        columns = x[0].numel()
        if columns > 10:
            raise UserError(
                f"exact score matching takes a backward pass per column, and there are {columns}; "
                "above 10 use sliced score matching, which projects on random directions"
            )

    def at(self, progress: float) -> Self:
        """The objective after a fraction `progress` of the run: the noise falls."""
        return replace(self, sigma=noise_at(self.sigma, self.first_sigma, self.warmup, progress))

    def __call__(
        self,
        energy: Energy,
        aux: nn.Module | None,
        x_pos: Tensor,
        x_neg: Tensor,
        generator: torch.Generator,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss over the batches of all processes together."""
        x, e, gradient = losses.input_gradient(energy, noisy(x_pos, self.sigma, generator)[0])
        return over_all_processes(losses.score_matching(gradient, x), e, gradient)


@documented
@dataclass(frozen=True)
class DenoisingScoreMatching(Objective):
    """Denoising score matching (Vincent 2011): learns the density of the data with noise of deviation `sigma` added.

    The noise starts larger and falls to `sigma`, see `noise_at`.

    >>> objective = DenoisingScoreMatching(sigma=0.2, first_sigma=1.0)
    >>> objective.at(0.0).sigma, objective.at(1.0).sigma  # noise at the start and at the end
    (1.0, 0.2)
    """

    sigma: float = option(0.1, "standard deviation of the noise, in the network's coordinates")
    first_sigma: float = option(1.0, "the same at the start of the run")
    warmup: float = option(0.5, "fraction of the run over which the noise falls")

    needs_negatives = False

    def __post_init__(self) -> None:
        if not self.sigma > 0:
            raise UserError(f"sigma must be a positive number, got {self.sigma}")
        check_noise(self.sigma, self.first_sigma, self.warmup)

    def at(self, progress: float) -> Self:
        """The objective after a fraction `progress` of the run: the noise falls."""
        return replace(self, sigma=noise_at(self.sigma, self.first_sigma, self.warmup, progress))

    def __call__(
        self,
        energy: Energy,
        aux: nn.Module | None,
        x_pos: Tensor,
        x_neg: Tensor,
        generator: torch.Generator,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss over the batches of all processes together."""
        x, z = noisy(x_pos, self.sigma, generator)
        _, e, gradient = losses.input_gradient(energy, x)
        return over_all_processes(losses.denoising_score_matching(gradient, z, self.sigma), e, gradient)


@documented
@dataclass(frozen=True)
class SlicedScoreMatching(Objective):
    """Sliced score matching with reduced variance (Song, Garg, Shi, Ermon 2019), projecting on random signs.

    >>> from pscd import Quadratic
    >>> x, rng = torch.ones(4, 2), torch.Generator()
    >>> loss, stats = SlicedScoreMatching()(Quadratic(dim=2), None, x, x[:0], rng)
    >>> loss.item()  # |x|^2 / 2 less the trace of the Hessian, 2
    -1.0
    """

    n_projections: int = option(1, "random directions per row")
    sigma: float = option(0.0, "noise on the data, in the network's coordinates")
    first_sigma: float = option(1.0, "the same at the start of the run")
    warmup: float = option(0.5, "fraction of the run over which the noise falls")

    needs_negatives = False

    def __post_init__(self) -> None:
        if self.n_projections < 1:
            raise UserError(f"n_projections must be at least 1, got {self.n_projections}")
        check_noise(self.sigma, self.first_sigma, self.warmup)

    def at(self, progress: float) -> Self:
        """The objective after a fraction `progress` of the run: the noise falls."""
        return replace(self, sigma=noise_at(self.sigma, self.first_sigma, self.warmup, progress))

    def __call__(
        self,
        energy: Energy,
        aux: nn.Module | None,
        x_pos: Tensor,
        x_neg: Tensor,
        generator: torch.Generator,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss over the batches of all processes together."""
        x, e, gradient = losses.input_gradient(energy, noisy(x_pos, self.sigma, generator)[0])
        # Signs instead of Gaussians: the least variance, and none at all where the Hessian is diagonal.
        coins = torch.randint(2, (self.n_projections, *gradient.shape), generator=generator, device=x.device)
        directions = (2 * coins - 1).to(gradient.dtype)
        return over_all_processes(losses.sliced_score_matching(gradient, x, directions), e, gradient)
