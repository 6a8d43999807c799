"""An objective, a sampler and a toy as somebody outside the package would write them; see CONTRIBUTING.md."""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn

from pscd.data.toys import Toy
from pscd.objectives import both_phases, phase_stats
from pscd.sampling import Callback, Proposal
from pscd.types import Energy, option


@dataclass(frozen=True)
class Squared:
    """Contrastive divergence with a penalty on squared energies, a rule of nobody's in particular."""

    weight: float = option(0.1, "weight of the squared energies")

    needs_negatives = True
    sampling_power = 1.0

    def init(self, energy: nn.Module, x: Tensor) -> None:
        """Nothing beside the energy is trained."""
        return None

    def at(self, progress: float) -> Self:
        """The same at all times."""
        return self

    def __call__(
        self, energy: Energy, aux: nn.Module | None, x_pos: Tensor, x_neg: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Loss over the batches of all processes together."""
        e_pos, e_neg = both_phases(energy, x_pos, x_neg)
        loss = e_pos.mean() - e_neg.mean() + self.weight * (e_pos.square().mean() + e_neg.square().mean())
        return loss, phase_stats(e_pos, e_neg, 0.0)


@dataclass(frozen=True)
class Underdamped:
    """Underdamped Langevin dynamics, unadjusted: the chain has a momentum, which friction and noise renew."""

    n_steps: int = option(10, "steps per update", flag="steps")
    step_size: float = option(0.1, "length of a step in time")
    friction: float = option(1.0, "how fast the momentum is renewed")
    low: float | None = None
    high: float | None = None

    def run(
        self,
        energy: Energy,
        x: Tensor,
        *,
        step_size: Tensor,
        n_steps: int,
        proposal: Proposal | None = None,
        generator: torch.Generator | None = None,
        callback: Callback | None = None,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Half a kick, a drift, fresh noise, half a kick."""
        from pscd import fast

        kept = torch.exp(-self.friction * step_size)
        with torch.no_grad(), fast.evaluating(energy, x) as evaluate:
            momentum = torch.randn(x.shape, generator=generator)
            for _ in range(n_steps):
                momentum = momentum - 0.5 * step_size * evaluate(x)[1]
                x = x + step_size * momentum
                noise = torch.randn(x.shape, generator=generator)
                momentum = kept * momentum + (1 - kept**2).sqrt() * noise
                momentum = momentum - 0.5 * step_size * evaluate(x)[1]
        return x, {}

    def adapt(self, step_size: Tensor, stats: dict[str, Tensor]) -> Tensor:
        """Fixed."""
        return step_size


def _pinwheel(n: int, generator: torch.Generator | None = None) -> Tensor:
    """Five arms around the origin, each bent further the farther out."""
    arm = torch.randint(5, (n,), generator=generator)
    radius = 2 + 0.5 * torch.randn(n, generator=generator)
    angle = 1.2566 * arm + 0.5 * radius + 0.1 * torch.randn(n, generator=generator)
    return torch.stack([radius * angle.cos(), radius * angle.sin()], 1)


pinwheel = Toy(_pinwheel)
