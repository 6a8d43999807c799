"""An objective, a sampler and a toy of one's own, outside the package; CONTRIBUTING.md walks through this file.

    cd examples
    pscd train own_parts:pinwheel --objective own_parts:TrimmedCD --share 0.1 --sampler own_parts:Underdamped
    pscd sample runs/pinwheel --import own_parts --out samples.csv

In Python: `pscd.fit(x, pscd.TrainConfig(objective=TrimmedCD(share=0.1), sampler=Underdamped()))`.
"""

import math
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn

from pscd import fast
from pscd.data.toys import Toy
from pscd.objectives import both_phases, phase_stats
from pscd.types import Energy, option

ARMS = 5


def arms(n: int, generator: torch.Generator | None = None) -> Tensor:
    """A pinwheel: five arms, bent by an angle that grows with the distance from the middle."""
    arm = torch.randint(ARMS, (n,), generator=generator)
    radial = 1 + 0.3 * torch.randn(n, generator=generator)
    along = 0.1 * torch.randn(n, generator=generator)
    angle = 2 * math.pi * arm / ARMS + 0.25 * radial.exp()
    x = torch.stack([radial * angle.cos() - along * angle.sin(), radial * angle.sin() + along * angle.cos()], 1)
    return 2 * x


pinwheel = Toy(arms)


@dataclass(frozen=True)
class TrimmedCD:
    """Contrastive divergence that ignores, in each batch, the share of the data with the highest energies."""

    share: float = option(0.1, "share of each batch, of the highest energies, that does not count")

    needs_negatives = True
    sampling_power = 1.0

    def init(self, energy: nn.Module, x: Tensor) -> None:
        """Nothing beside the energy is trained."""
        return None

    def at(self, progress: float) -> Self:
        """The same at all times; something that warms up would return a changed copy."""
        return self

    def __call__(
        self, energy: Energy, aux: nn.Module | None, x_pos: Tensor, x_neg: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Loss over the batches of all processes together, and what to log."""
        e_pos, e_neg = both_phases(energy, x_pos, x_neg)
        counts = e_pos.detach() <= e_pos.detach().quantile(1 - self.share)
        return e_pos[counts].mean() - e_neg.mean(), phase_stats(e_pos, e_neg, gamma=0.0)


@dataclass(frozen=True)
class Underdamped:
    """Underdamped Langevin dynamics: points with a velocity, which friction and noise change little by little."""

    n_steps: int = option(10, "steps per update", flag="steps")
    step_size: float = option(0.01, "half the square of the time step")
    friction: float = option(1.0, "share of the velocity lost per unit of time, to first order")
    low: float | None = option(None, "lower bound of the box that chains stay in")
    high: float | None = option(None, "upper bound of the box that chains stay in")

    def run(
        self,
        energy: Energy,
        x: Tensor,
        *,
        step_size: Tensor,
        n_steps: int,
        proposal: object = None,
        generator: torch.Generator | None = None,
        callback: object = None,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Friction and noise, half a kick, a drift, half a kick; without an accept step there are no jumps."""
        time = (2 * step_size) ** 0.5
        kept = torch.exp(-self.friction * time)

        def noise() -> Tensor:
            return torch.randn(x.shape, generator=generator, device=x.device)

        with torch.no_grad(), fast.evaluating(energy, x) as evaluate:
            velocity = noise()
            _, gradient = evaluate(x)
            for _ in range(n_steps):
                velocity = kept * velocity + (1 - kept**2).sqrt() * noise() - 0.5 * time * gradient
                x = x + time * velocity
                _, gradient = evaluate(x)
                velocity = velocity - 0.5 * time * gradient
        return x, {"temperature": velocity.square().mean()}

    def adapt(self, step_size: Tensor, stats: dict[str, Tensor]) -> Tensor:
        """Fixed."""
        return step_size
