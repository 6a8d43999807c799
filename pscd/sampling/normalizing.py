"""Log Z of an energy: by importance sampling, or by quadrature for one or two columns."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pscd import exact
from pscd.errors import UserError
from pscd.mixtures import Mixture
from pscd.rng import Stream, generator


@dataclass(frozen=True)
class LogZ:
    """Log of the integral of exp(-E), with its standard error.

    Args:
        value: in nats.
        error: standard error in nats; for a quadrature, the change when half as many cells per axis are used.
        effective: effective sample size as a share of the draws, between 0 and 1; 1 for a quadrature.
    """

    value: float
    error: float
    effective: float = 1.0

    @property
    def warning(self) -> str | None:
        """A sentence if the error is above 0.1 nats or unreliable because of few effective draws, otherwise None."""
        is_unreliable = self.effective < 0.01
        if self.error <= 0.1 and not is_unreliable:
            return None
        return (
            f"log densities are uncertain by {'at least ' if is_unreliable else ''}{self.error:.2f} nats, the same for "
            f"all rows: few draws ({self.effective:.1%}) carry log Z; differences between rows are not affected"
        )


def log_z(
    energy: nn.Module,
    proposal: Mixture,
    *,
    n: int = 65_536,
    seed: int = 0,
    reaches: tuple[float, ...] = (12.0, 48.0, 192.0),
) -> LogZ:
    """Log Z of an energy on rows of d columns, in its coordinates.

    Z is estimated as E_g[exp(-E) / g] from draws of the proposal g. The weights have finite variance if g's tails are
    at least as heavy as the model's, and are bounded where the energy is a bounded correction of g (it has a method
    `corrected_density`). For any other energy of one or two columns, Z is a quadrature over the smallest box that holds
    the model, unless none does.

    Args:
        energy: maps `(B, d)` to `(B,)`, with finite Z.
        proposal: g, a density close to the model's.
        n: number of draws.
        seed: of the draws.
        reaches: from the proposal to the edge of each box, in standard deviations.

    Returns:
        Log Z with its standard error.
    """
    if proposal.means.shape[1] <= 2 and not hasattr(energy, "corrected_density"):
        for reach in reaches:
            try:
                return _by_quadrature(energy, proposal, reach)
            except UserError:  # the box cuts mass off
                continue
    return _by_draws(energy, proposal, n, seed)


@torch.no_grad()
def _by_draws(energy: nn.Module, proposal: Mixture, n: int, seed: int, block: int = 16_384) -> LogZ:
    rng = generator(seed, Stream.LOG_Z, device=proposal.means.device)
    parts = []
    for start in range(0, n, block):
        y = proposal.sample(min(block, n - start), rng)
        parts.append((-energy(y) - proposal.log_prob(y)).double())
    log_w = torch.cat(parts)
    top = log_w.max()
    w = (log_w - top).exp()
    error = float(w.std() / w.mean()) / math.sqrt(n)
    effective = float(w.sum().square() / w.square().sum()) / n
    return LogZ(float(w.mean().log() + top), error, effective)


@torch.no_grad()
def _by_quadrature(energy: nn.Module, proposal: Mixture, reach: float, cells: int = 1024) -> LogZ:
    mean = (proposal.weights @ proposal.means).double().cpu()
    distance = (proposal.means.double().cpu() - mean).abs().amax(0)
    widest = proposal.factors.double().cpu().square().sum(2).sqrt().amax(0)
    low, high = mean - distance - reach * widest, mean + distance + reach * widest
    box = exact.Box(tuple(low.tolist()), tuple(high.tolist()))
    cells = cells if len(mean) == 2 else 16 * cells

    def value(count: int) -> Tensor:
        return exact.log_partition(energy, exact.grid(box, count))

    fine = value(cells)
    return LogZ(float(fine), abs(float(fine - value(cells // 2))))
