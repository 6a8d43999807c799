"""Independence Metropolis: chains that only jump, for energies close to a density that can be sampled."""

from dataclasses import dataclass

import torch
from torch import Tensor

from pscd import fast
from pscd.errors import UserError
from pscd.sampling.protocol import ChainCallback, Proposal, Sampler, box, check_box, check_positive
from pscd.types import Energy, documented, option


def jumps(
    energy: Energy,
    x: Tensor,
    *,
    n_steps: int,
    proposal: Proposal,
    bounds: tuple[float, float] | None = None,
    generator: torch.Generator | None = None,
    callback: ChainCallback | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Independence Metropolis: a fresh draw y of the proposal g, accepted with min(1, exp(E(x) - E(y)) g(x) / g(y)).

    It leaves q exactly invariant. A step costs one forward pass and no gradient, and an accepted one is independent of
    the previous point, so few steps are needed where most are accepted.

    Args:
        energy: maps `(B, *shape)` to `(B,)`.
        x: starting points, `(B, *shape)`; not changed.
        n_steps: number of steps.
        proposal: the density g.
        bounds: a box `(low, high)`; proposals outside are rejected.
        generator: source of randomness; torch's global one by default.
        callback: called after each step with a dictionary of `step`, `x`, `energy` and `accept`.

    Returns:
        The points at the end, and the mean acceptance (`jumps`).

    >>> from pscd.mixtures import Mixture
    >>> normal = Mixture(torch.ones(1), torch.zeros(1, 2), torch.eye(2)[None])
    >>> x, stats = jumps(lambda x: 0.5 * x.square().sum(1), torch.zeros(4, 2), n_steps=3, proposal=normal)
    >>> x.shape, round(stats["jumps"].item(), 3)  # the proposal is the model, so every jump is accepted
    (torch.Size([4, 2]), 1.0)
    """
    rows = (-1,) + (1,) * (x.ndim - 1)
    accepted = torch.zeros((), device=x.device)
    with torch.no_grad(), fast.evaluating(energy, x) as evaluate:
        x = x.detach().clone() if bounds is None else x.detach().clamp(*bounds)
        e, before = evaluate.energy(x), proposal.log_prob(x)
        for step in range(n_steps):
            y = proposal.sample(len(x), generator).view_as(x)
            e_y, after = evaluate.energy(y), proposal.log_prob(y)
            log_ratio = e - e_y + before - after
            if bounds is not None:
                outside = ((y < bounds[0]) | (y > bounds[1])).flatten(1).any(1)
                log_ratio = log_ratio.masked_fill(outside, -torch.inf)
            # A NaN ratio compares false, which rejects the proposal.
            accept = torch.rand(e.shape, generator=generator, device=e.device, dtype=e.dtype).log() < log_ratio
            x = torch.where(accept.view(rows), y, x)
            e, before = torch.where(accept, e_y, e), torch.where(accept, after, before)
            accepted += accept.float().mean()
            if callback is not None:
                callback({"step": step, "x": x, "energy": e, "accept": accept})
    return x, {"jumps": accepted / n_steps}


@documented
@dataclass(frozen=True)
class Jumps(Sampler):
    """Independence Metropolis; for energies that correct a density that can be sampled.

    >>> Jumps(n_steps=4).n_steps
    4
    """

    n_steps: int = option(2, "jumps per update", flag="steps")
    low: float | None = option(None, "lower bound of the box that chains stay in, in the network's coordinates")
    high: float | None = option(None, "upper bound of the box that chains stay in, in the network's coordinates")

    def __post_init__(self) -> None:
        check_positive(n_steps=self.n_steps)
        check_box(self.low, self.high)

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
        """Run chains, see `jumps`."""
        if proposal is None:
            raise UserError("jumps need a proposal to draw from")
        return jumps(
            energy,
            x,
            n_steps=n_steps,
            proposal=proposal,
            bounds=box(self.low, self.high),
            generator=generator,
            callback=callback,
        )
