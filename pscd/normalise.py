"""Log Z of an energy: by importance sampling, or by quadrature in one or two columns where that is more certain."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pscd import exact
from pscd.errors import UserError
from pscd.mixtures import Mixture
from pscd.rng import Stream, generator

N_DRAWS = 65_536
BLOCK = 16_384  # draws at a time
REACHES = (12.0, 48.0, 192.0)  # standard deviations of the proposal to the edge of the box, tried until it holds all
CELLS = 1024  # of the quadrature per axis; sixteen times as many for one column
LARGE_ERROR = 0.1  # nats above which to warn
FEW_DRAWS = 0.01  # share of the draws in effect below which the standard error itself is not to be trusted


@dataclass(frozen=True)
class LogZ:
    """Log of the integral of exp(-E), with its standard error.

    Args:
        value: in nats.
        error: standard error in nats; for a quadrature, the change when half as many cells per axis are used.
        effective: share of the draws that carry the estimate, between 0 and 1; 1 for a quadrature.
    """

    value: float
    error: float
    effective: float = 1.0

    @property
    def warning(self) -> str | None:
        """A sentence if the error is large or not to be trusted, otherwise None."""
        if self.error <= LARGE_ERROR and self.effective >= FEW_DRAWS:
            return None
        at_least = "at least " if self.effective < FEW_DRAWS else ""
        return (
            f"log densities are uncertain by {at_least}{self.error:.2f} nats, the same for all rows: few draws "
            f"({self.effective:.1%}) carry log Z; differences between rows are not affected"
        )


def log_z(energy: nn.Module, proposal: Mixture, *, n: int = N_DRAWS, seed: int = 0) -> LogZ:
    """Log Z of an energy on rows of d columns.

    Z is estimated as E_g[exp(-E) / g] from draws of the proposal g. The weights have finite variance if g's tails are
    at least as heavy as the model's, and are bounded where the energy is a bounded correction of g (it has a method
    `corrected_density`). For any other energy of one or two columns, Z is a quadrature over a box, unless the model
    reaches beyond.

    Args:
        energy: maps `(B, d)` to `(B,)`, with finite Z.
        proposal: g, a density close to the model's.
        n: number of draws.
        seed: of the draws.

    Returns:
        Log Z in the energy's coordinates, with its standard error.
    """
    if proposal.means.shape[1] <= 2 and not hasattr(energy, "corrected_density"):
        for reach in REACHES:
            try:
                return _by_quadrature(energy, proposal, reach)
            except UserError:  # the model reaches beyond the box
                continue
    return _by_draws(energy, proposal, n, seed)


@torch.no_grad()
def _by_draws(energy: nn.Module, proposal: Mixture, n: int, seed: int) -> LogZ:
    rng = generator(seed, Stream.LOG_Z, device=proposal.means.device)
    parts = []
    for start in range(0, n, BLOCK):
        y = proposal.sample(min(BLOCK, n - start), rng)
        parts.append((-energy(y) - proposal.log_prob(y)).double())
    log_w = torch.cat(parts)
    top = log_w.max()
    w = (log_w - top).exp()
    error = float(w.std() / w.mean()) / math.sqrt(n)
    effective = float(w.sum().square() / w.square().sum()) / n
    return LogZ(float(w.mean().log() + top), error, effective)


@torch.no_grad()
def _by_quadrature(energy: nn.Module, proposal: Mixture, reach: float) -> LogZ:
    mean = (proposal.weights @ proposal.means).double().cpu()
    apart = (proposal.means.double().cpu() - mean).abs().amax(0)
    widest = proposal.factors.double().cpu().square().sum(2).sqrt().amax(0)
    low, high = mean - apart - reach * widest, mean + apart + reach * widest
    box = exact.Box(tuple(low.tolist()), tuple(high.tolist()))
    cells = CELLS if len(mean) == 2 else 16 * CELLS

    def value(count: int) -> Tensor:
        return exact.log_partition(energy, exact.grid(box, count))

    fine = value(cells)
    return LogZ(float(fine), abs(float(fine - value(cells // 2))))
