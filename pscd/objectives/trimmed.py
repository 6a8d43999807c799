"""Contrastive divergence that leaves out the least likely rows of each batch."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pscd import losses
from pscd.errors import UserError
from pscd.objectives.protocol import Objective, both_phases, phase_stats
from pscd.types import Energy, documented, option


@documented
@dataclass(frozen=True)
class Trimmed(Objective):
    """Trimmed contrastive divergence: ignores the share alpha of each batch with the highest energies.

    RobustRealNVP (Liu, Tan, Zhou 2022) discards points of low density from the batches of a flow, and ALTBI (Cho et al.
    2024) those of large loss from the batches of deep generative models. Unlike gamma, alpha has to be close to the
    share of contamination, which is seldom known: a smaller one keeps outliers, a larger one cuts off the tails of
    clean data. On clean data the model is always too narrow: at alpha 0.1, a Gaussian's deviation is 20 % too small.

    >>> Trimmed(alpha=0.2).alpha
    0.2
    """

    alpha: float = option(0.1, "share of each batch, of the highest energies, that is ignored; below 1")

    def __post_init__(self) -> None:
        if not 0 <= self.alpha < 1:
            raise UserError(f"alpha is a share between 0 and 1, got {self.alpha}")

    def __call__(
        self,
        energy: Energy,
        aux: nn.Module | None,
        x_pos: Tensor,
        x_neg: Tensor,
        generator: torch.Generator,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Loss over the batches of all processes together: what is high is high among all of them."""
        e_pos, e_neg = both_phases(energy, x_pos, x_neg)
        return losses.trimmed(e_pos, e_neg, self.alpha), phase_stats(e_pos, e_neg, 0.0)
