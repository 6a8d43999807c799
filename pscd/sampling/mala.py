"""Metropolis-adjusted Langevin with jumps and an adaptive step, for low-dimensional data and tables."""

from dataclasses import dataclass

import torch
from torch import Tensor

from pscd import fast
from pscd.errors import UserError
from pscd.sampling.protocol import ChainCallback, Proposal, Sampler, box, check_box, check_positive, langevin_noise
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
    callback: ChainCallback | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Metropolis-adjusted Langevin, with independence jumps if a `proposal` is given.

    A Langevin step is proposed and accepted with probability min(1, exp(E(x) - E(y)) k(x|y) / k(y|x)), which leaves q
    exactly invariant whatever the step size. Every `jump_every`-th step proposes instead a fresh draw y of the
    proposal g, accepted with probability min(1, exp(E(x) - E(y)) g(x) / g(y)). Local steps cannot cross between modes;
    jumps can, which keeps the proportions of the modes right.

    Args:
        energy: maps `(B, *shape)` to `(B,)`.
        x: starting points, `(B, *shape)`; not changed.
        n_steps: number of steps, jumps included.
        step_size: factor of the gradient in a Langevin step.
        proposal: a density to draw jumps from; None: no jumps.
        jump_every: every so many steps is a jump.
        bounds: a box `(low, high)`; proposals outside are rejected.
        generator: source of randomness; torch's global one by default.
        callback: called after each step with a dictionary of `step`, `x`, `energy` and `accept`.

    Returns:
        The points at the end, and the mean acceptance of Langevin steps (`acceptance`) and of jumps (`jumps`).

    >>> def energy(x):
    ...     return x.square().sum(1) / 2
    >>> rng = torch.Generator().manual_seed(0)
    >>> x, stats = mala(energy, torch.zeros(2000, 1), n_steps=30, step_size=0.5, generator=rng)
    >>> round(x.std().item(), 1), stats["acceptance"].item() > 0.8
    (1.0, True)
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
                # After the last step no gradient is needed.
                e_y, grad_y = evaluate(y) if step < n_steps - 1 else (evaluate.energy(y), grad)
                before, after = proposal.log_prob(torch.cat([x, y])).chunk(2)
                log_ratio = e - e_y + before - after
            else:
                forward = noise * z.normal_(generator=generator)
                y = x - step_size * grad + forward
                e_y, grad_y = evaluate(y)
                # log k(x|y) - log k(y|x) = (|forward|^2 - |step_size (grad + grad_y) - forward|^2) / (4 step_size),
                # where the squares of `forward` cancel.
                both = grad + grad_y
                excess = (both * (2 * forward - step_size * both)).flatten(1).sum(1)
                log_ratio = e - e_y + 0.25 * excess
            if bounds is not None:
                outside = ((y < bounds[0]) | (y > bounds[1])).flatten(1).any(1)
                log_ratio = log_ratio.masked_fill(outside, -torch.inf)
            # A NaN ratio (an overflow far out) compares false, which rejects the proposal.
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
    """Multiply the step size by exp(rate * (acceptance - target) / target), which moves the acceptance to the target.

    Args:
        step_size: of the last call.
        acceptance: the share of steps accepted in it.
        target: the share to reach.
        rate: how fast to adapt.

    Returns:
        The new step size.
    """
    return step_size * torch.exp(rate * (acceptance - target) / target)


@documented
@dataclass(frozen=True)
class Mala(Sampler):
    """Metropolis-adjusted Langevin with jumps and an adaptive step; for low-dimensional data and tables.

    >>> sampler = Mala(n_steps=10)
    >>> step_size, stats = torch.tensor(sampler.step_size), {"acceptance": torch.tensor(0.9)}
    >>> bool(sampler.adapt(step_size, stats) > step_size)  # too many accepted: longer steps
    True
    """

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
        callback: ChainCallback | None = None,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Run chains, see `mala`."""
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
        """The step size for the next call, see `adapt_step_size`."""
        return adapt_step_size(step_size, stats["acceptance"], self.target_acceptance)
