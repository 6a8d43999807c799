"""Metropolis-adjusted Langevin with jumps and an adaptive step, for low dimension and tables."""

from dataclasses import dataclass

import torch
from torch import Tensor

from pscd import fast
from pscd.errors import UserError
from pscd.sampling.protocol import Callback, Proposal, box, check_box, check_positive, langevin_noise
from pscd.types import Energy, documented, option


def mala(
    energy: Energy,
    x: Tensor,
    *,
    n_steps: int,
    step_size: float | Tensor,
    proposal: Proposal | None = None,
    jump_every: int = 2,
    bounds: tuple[float, float] | None = None,
    generator: torch.Generator | None = None,
    callback: Callback | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Metropolis-adjusted Langevin, with independence jumps if a `proposal` is given.

    A Langevin step is proposed and accepted with probability min(1, exp(E(x) - E(y)) k(x|y) / k(y|x)),
    so q is left exactly invariant whatever the step size. Every `jump_every`-th step proposes instead
    a fresh y from `proposal`, accepted with min(1, exp(E(x) - E(y)) g(x) / g(y)): local steps cannot
    cross between modes, a jump can, and this is what keeps their proportions right.

    Returns:
        The final points, and the mean acceptance of local steps (`acceptance`) and of jumps (`jumps`).
    """
    rows = (-1,) + (1,) * (x.ndim - 1)
    noise = langevin_noise(step_size)
    z = torch.empty_like(x)
    accepted_local = torch.zeros((), device=x.device)
    accepted_jumps = torch.zeros((), device=x.device)
    n_jumps = 0
    with torch.no_grad(), fast.evaluating(energy, x) as evaluate:
        x = x.detach().clone() if bounds is None else x.detach().clamp(*bounds)
        e, grad = evaluate(x)
        for step in range(n_steps):
            jump = proposal is not None and step % jump_every == jump_every - 1
            if proposal is not None and jump:
                y = proposal.sample(len(x), generator).view_as(x)
                # After the last step nobody asks for a gradient.
                e_y, grad_y = evaluate(y) if step < n_steps - 1 else (evaluate.energy(y), grad)
                before, after = proposal.log_prob(torch.cat([x, y])).chunk(2)
                log_ratio = e - e_y + before - after
            else:
                forward = noise * z.normal_(generator=generator)
                y = x - step_size * grad + forward
                e_y, grad_y = evaluate(y)
                # The way back needs the noise step_size (grad + grad_y) - forward: what is left of the difference
                # of squares over 4 step_size when the squares of `forward` are cancelled by hand.
                both = grad + grad_y
                excess = (both * (2 * forward - step_size * both)).flatten(1).sum(1)
                log_ratio = e - e_y + 0.25 * excess
            if bounds is not None:
                outside = ((y < bounds[0]) | (y > bounds[1])).flatten(1).any(1)
                log_ratio = log_ratio.masked_fill(outside, -torch.inf)
            # A NaN ratio (an overflow far out) compares false, which rejects: the chain stays where it was.
            accept = torch.rand(e.shape, generator=generator, device=e.device, dtype=e.dtype).log() < log_ratio
            x = torch.where(accept.view(rows), y, x)
            grad = torch.where(accept.view(rows), grad_y, grad)
            e = torch.where(accept, e_y, e)
            if jump:
                accepted_jumps += accept.float().mean()
                n_jumps += 1
            else:
                accepted_local += accept.float().mean()
            if callback is not None:
                callback({"step": step, "x": x, "energy": e, "accept": accept})
    stats = {"acceptance": accepted_local / max(n_steps - n_jumps, 1)}
    if n_jumps:
        stats["jumps"] = accepted_jumps / n_jumps
    return x, stats


def adapt_step_size(step_size: Tensor, acceptance: Tensor, target: float, rate: float = 0.05) -> Tensor:
    """Multiply the step size by exp(rate * (acceptance - target) / target): towards the target."""
    return step_size * torch.exp(rate * (acceptance - target) / target)


@documented
@dataclass(frozen=True)
class Mala:
    """Metropolis-adjusted Langevin with jumps and an adaptive step; for low dimension and tables."""

    n_steps: int = option(4, "steps per update", flag="steps")
    step_size: float = option(0.05, "step size to start from; it adapts to the target acceptance")
    target_acceptance: float = option(0.6, "acceptance that the step size aims at")
    jump_every: int = option(2, "every so many steps is a jump to a draw of the proposal; 0: never")
    low: float | None = option(None, "lower bound of the box that chains stay in, in the network's coordinates")
    high: float | None = option(None, "upper bound of the box that chains stay in, in the network's coordinates")

    def __post_init__(self) -> None:
        check_positive(n_steps=self.n_steps, step_size=self.step_size)
        check_box(self.low, self.high)
        if not 0 < self.target_acceptance < 1:
            raise UserError(f"target_acceptance must lie between 0 and 1, got {self.target_acceptance}")
        if self.jump_every < 0 or self.jump_every == 1:
            raise UserError(f"jump_every must be 0 (never) or at least 2, got {self.jump_every}")

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
        """See `mala`."""
        bounds = box(self.low, self.high)
        return mala(
            energy,
            x,
            n_steps=n_steps,
            step_size=step_size,
            proposal=proposal if self.jump_every else None,
            jump_every=self.jump_every,
            bounds=bounds,
            generator=generator,
            callback=callback,
        )

    def adapt(self, step_size: Tensor, stats: dict[str, Tensor]) -> Tensor:
        """See `adapt_step_size`."""
        return adapt_step_size(step_size, stats["acceptance"], self.target_acceptance)
