"""A custom objective, sampler and toy, outside the package; CONTRIBUTING.md explains this file.

    cd examples
    pscd train own_parts:pinwheel --objective own_parts:TrimmedCD --sampler own_parts:Underdamped \\
        --set objective.share=0.1
    pscd sample runs/pinwheel --import own_parts --out samples.csv

In Python: `pscd.fit(x, pscd.TrainConfig(objective=TrimmedCD(share=0.1), sampler=Underdamped()))`.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pscd import fast
from pscd.data.toys import Toy
from pscd.objectives import Objective, both_phases, phase_stats
from pscd.sampling import Proposal, Sampler
from pscd.types import Energy, option

ARMS = 5


def arms(n: int, generator: torch.Generator | None = None) -> Tensor:
    """A pinwheel: five arms, rotated by an angle that grows with the distance from the centre."""
    arm = torch.randint(ARMS, (n,), generator=generator)
    radial = 1 + 0.3 * torch.randn(n, generator=generator)
    along = 0.1 * torch.randn(n, generator=generator)
    angle = 2 * math.pi * arm / ARMS + 0.25 * radial.exp()
    x = torch.stack([radial * angle.cos() - along * angle.sin(), radial * angle.sin() + along * angle.cos()], 1)
    return 2 * x


pinwheel = Toy(arms)


@dataclass(frozen=True)
class TrimmedCD(Objective):
    """Contrastive divergence that ignores, in each batch, the share of the data with the highest energies."""

    share: float = option(0.1, "share of each batch, of the highest energies, that is ignored")

    def __call__(
        self, energy: Energy, aux: nn.Module | None, x_pos: Tensor, x_neg: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Loss over the batches of all processes together, and what to log."""
        e_pos, e_neg = both_phases(energy, x_pos, x_neg)
        is_used = e_pos.detach() <= e_pos.detach().quantile(1 - self.share)
        return e_pos[is_used].mean() - e_neg.mean(), phase_stats(e_pos, e_neg, gamma=0.0)


@dataclass(frozen=True)
class Underdamped(Sampler):
    """Underdamped Langevin dynamics with an accept step (Horowitz 1991), then one jump to a draw of the proposal.

    Points have a velocity. Local steps alone do not move chains from one arm to another; jumps do.
    """

    n_steps: int = option(10, "steps per update", flag="steps")
    step_size: float = option(0.01, "half the square of the time step, to start from; it adapts")
    friction: float = option(1.0, "rate at which the velocity decays")
    target_acceptance: float = option(0.8, "target acceptance of the step size")

    def run(
        self,
        energy: Energy,
        x: Tensor,
        *,
        step_size: Tensor,
        n_steps: int,
        proposal: Proposal | None = None,
        generator: torch.Generator | None = None,
        callback: object = None,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Friction and noise, half a kick, a drift, half a kick, accept or reverse; at the end a jump."""
        time = (2 * step_size) ** 0.5
        decay = torch.exp(-self.friction * time)
        accepted = torch.zeros((), device=x.device)

        def noise() -> Tensor:
            return torch.randn(x.shape, generator=generator, device=x.device)

        def total(e: Tensor, velocity: Tensor) -> Tensor:
            return e + 0.5 * velocity.square().flatten(1).sum(1)

        with torch.no_grad(), fast.evaluating(energy, x) as evaluate:
            velocity = noise()
            e, gradient = evaluate(x)
            for _ in range(n_steps):
                velocity = decay * velocity + (1 - decay**2).sqrt() * noise()
                half = velocity - 0.5 * time * gradient
                y = x + time * half
                e_y, gradient_y = evaluate(y)
                velocity_y = half - 0.5 * time * gradient_y
                log_ratio = total(e, velocity) - total(e_y, velocity_y)
                accept = torch.rand(len(x), generator=generator, device=x.device).log() < log_ratio
                rows = accept.view(-1, *(1,) * (x.ndim - 1))
                x, gradient = torch.where(rows, y, x), torch.where(rows, gradient_y, gradient)
                e, velocity = torch.where(accept, e_y, e), torch.where(rows, velocity_y, -velocity)
                accepted += accept.float().mean()
            stats = {"acceptance": accepted / n_steps}
            if proposal is not None:
                y = proposal.sample(len(x), generator).view_as(x)
                log_ratio = e - evaluate.energy(y) + proposal.log_prob(x) - proposal.log_prob(y)
                accept = torch.rand(len(x), generator=generator, device=x.device).log() < log_ratio
                x = torch.where(accept.view(-1, *(1,) * (x.ndim - 1)), y, x)
                stats["jumps"] = accept.float().mean()
        return x, stats

    def adapt(self, step_size: Tensor, stats: dict[str, Tensor]) -> Tensor:
        """A little larger if more is accepted than the target, a little smaller if less."""
        return step_size * torch.exp(0.05 * (stats["acceptance"] - self.target_acceptance))
