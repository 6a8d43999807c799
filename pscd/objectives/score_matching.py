"""Score matching: the energy's slope is fitted to that of the log density; no samples, no log Z."""

import math
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn

from pscd import distributed, losses
from pscd.errors import UserError
from pscd.options import option
from pscd.samplers import Energy

MOST_COLUMNS = 10


def over_all_processes(rows: Tensor, e: Tensor, gradient: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Mean of a loss per row over the batches of all processes, and what to log."""
    stats = {
        "e_pos": distributed.mean(e.detach().mean()),
        "slope": distributed.mean(gradient.detach().square().sum(1).mean()).sqrt(),
    }
    return distributed.gather(rows).mean(), stats


@dataclass(frozen=True)
class ScoreMatching:
    """Exact score matching (Hyvarinen 2005): a backward pass for each column, so for few columns."""

    needs_negatives = False
    sampling_power = 1.0

    def init(self, energy: nn.Module, x: Tensor) -> None:
        """Nothing beside the energy is trained."""
        columns = x[0].numel()
        if columns > MOST_COLUMNS:
            raise UserError(
                f"exact score matching takes a backward pass per column, and there are {columns}; "
                f"above {MOST_COLUMNS} use --objective ssm, which projects on random directions"
            )

    def at(self, progress: float) -> Self:
        """The same at all times."""
        return self

    def __call__(
        self,
        energy: Energy,
        aux: nn.Module | None,
        x_pos: Tensor,
        x_neg: Tensor,
        generator: torch.Generator,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Loss over the batches of all processes together."""
        x, e, gradient = losses.input_gradient(energy, x_pos)
        return over_all_processes(losses.score_matching(gradient, x), e, gradient)


@dataclass(frozen=True)
class DenoisingScoreMatching:
    """Denoising score matching (Vincent 2011): learns the density of the data with noise added to them."""

    sigma: float = option(0.1, "standard deviation of the noise, in the network's coordinates")

    needs_negatives = False
    sampling_power = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.sigma < math.inf:
            raise UserError(f"sigma must be a positive number, got {self.sigma}")

    def init(self, energy: nn.Module, x: Tensor) -> None:
        """Nothing beside the energy is trained."""
        return None

    def at(self, progress: float) -> Self:
        """The same at all times."""
        return self

    def __call__(
        self,
        energy: Energy,
        aux: nn.Module | None,
        x_pos: Tensor,
        x_neg: Tensor,
        generator: torch.Generator,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Loss over the batches of all processes together."""
        z = torch.randn(x_pos.shape, generator=generator, device=x_pos.device, dtype=x_pos.dtype)
        _, e, gradient = losses.input_gradient(energy, x_pos + self.sigma * z)
        return over_all_processes(losses.denoising_score_matching(gradient, z, self.sigma), e, gradient)


@dataclass(frozen=True)
class SlicedScoreMatching:
    """Sliced score matching with reduced variance (Song, Garg, Shi, Ermon 2019), on random signs."""

    n_projections: int = option(1, "random directions per row")

    needs_negatives = False
    sampling_power = 1.0

    def __post_init__(self) -> None:
        if self.n_projections < 1:
            raise UserError(f"n_projections must be at least 1, got {self.n_projections}")

    def init(self, energy: nn.Module, x: Tensor) -> None:
        """Nothing beside the energy is trained."""
        return None

    def at(self, progress: float) -> Self:
        """The same at all times."""
        return self

    def __call__(
        self,
        energy: Energy,
        aux: nn.Module | None,
        x_pos: Tensor,
        x_neg: Tensor,
        generator: torch.Generator,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Loss over the batches of all processes together."""
        x, e, gradient = losses.input_gradient(energy, x_pos)
        # Signs instead of Gaussians: the least variance, and none at all where the Hessian is diagonal.
        coins = torch.randint(2, (self.n_projections, *gradient.shape), generator=generator, device=x.device)
        directions = (2 * coins - 1).to(gradient.dtype)
        return over_all_processes(losses.sliced_score_matching(gradient, x, directions), e, gradient)
