"""f-EBM: minimises any f-divergence by a game between the energy and a critic."""

import copy
from dataclasses import dataclass, replace
from typing import Literal, Self

import torch
from torch import Tensor, nn

from pscd import losses
from pscd.energies import Architecture
from pscd.errors import UserError
from pscd.objectives.protocol import Objective, both_phases, check_l2, check_warmup, phase_stats, warmed_up
from pscd.types import Energy, check_types, documented, option


class Critic(nn.Module):
    """An estimate of log p(x) up to a constant: an offset minus a network like the energy."""

    updates: Tensor

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.offset = nn.Parameter(torch.zeros(()))
        # A buffer, like the counter of batch normalisation, so that it is saved and resumed.
        self.register_buffer("updates", torch.zeros((), dtype=torch.long))

    def forward(self, x: Tensor) -> Tensor:
        """Estimates, `(B, *shape)` to `(B,)`."""
        return self.offset - self.network(x)


@documented
@dataclass(frozen=True)
class FEBM(Objective):
    """f-EBM (Yu, Song, Song, Ermon 2020): minimises any f-divergence with the help of a critic.

    The critic is a second network like the energy, with its own initial weights: with the same weights both would have
    the same gradient, which is contrastive divergence. One optimiser updates both, the energy down and the critic up.
    The critic must be able to represent the density of the data; where the energy is a Gaussian and the data are not,
    use an mlp.

    Over the first `warmup` of the run, KL turns into the chosen divergence. Under KL the update of the energy
    is that of contrastive divergence whatever the critic; under the others it depends on a critic that has not yet
    learnt a ratio p / q far from 1, and reverse KL diverges.

    >>> FEBM(divergence="js", warmup=0.5).at(0.25).share  # half-way through the warm-up: half KL
    0.5
    """

    divergence: str = option("kl", f"what to minimise: {', '.join(losses.DIVERGENCES)}")
    share: float = option(1.0, "weight of that divergence, between 0 and 1; the rest is KL")
    warmup: float = option(0.5, "fraction of the run over which the share rises from 0")
    critic: Literal["same", "mlp"] = option(
        "same", "network of the critic: like the energy (same), or an mlp where that is too simple"
    )
    l2: float = option(0.0, "weight of the squares of energy and critic in both phases")
    l2_first: int = option(11, "updates at the start on the squares alone, if they have a weight")

    accepts_labels = False

    def __post_init__(self) -> None:
        check_types(self)
        check_divergence(self.divergence)
        if not 0 <= self.share <= 1:
            raise UserError(f"share must lie between 0 and 1, got {self.share}")
        check_warmup(self.warmup)
        check_l2(self.l2)
        if self.l2_first < 0:
            raise UserError(f"l2_first must not be negative, got {self.l2_first}")

    def init(self, energy: nn.Module, x: Tensor) -> Critic:
        """The critic, with random weights."""
        network = with_new_weights(energy) if self.critic == "same" else Architecture().build(tuple(x.shape[1:]))
        return Critic(network).to(x.device)

    def at(self, progress: float) -> Self:
        """The objective after a fraction `progress` of the run: the divergence's share rises."""
        return replace(self, share=warmed_up(self.share, self.warmup, progress))

    def __call__(
        self,
        energy: Energy,
        aux: nn.Module | None,
        x_pos: Tensor,
        x_neg: Tensor,
        generator: torch.Generator,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss of both players over the batches of all processes together."""
        assert isinstance(aux, Critic)
        e_pos, e_neg = both_phases(energy, x_pos, x_neg)
        c_pos, c_neg = both_phases(aux, x_pos, x_neg)
        f = losses.mixed(losses.DIVERGENCES[self.divergence], losses.DIVERGENCES["kl"], self.share)
        loss = losses.f_ebm(e_pos, e_neg, c_pos, c_neg, f)
        if self.l2:
            squares = self.l2 * (losses.squares(e_pos, e_neg) + losses.squares(c_pos, c_neg))
            loss = squares if aux.updates < self.l2_first else loss + squares
        aux.updates += 1
        value = losses.variational_bound((e_pos + c_pos).detach(), (e_neg + c_neg).detach(), f)
        stats = phase_stats(e_pos, e_neg, 0.0)
        del stats["gamma"]
        return loss, {**stats, "divergence": value, "critic": (e_neg + c_neg).detach().mean()}


def with_new_weights(module: nn.Module) -> nn.Module:
    """A copy on the CPU with new random weights, each tensor drawn with the mean and deviation of its entries."""
    # It works for any module, spectrally normalised ones included; where all entries are equal, the deviation is 0.1.
    module = copy.deepcopy(module).cpu()
    with torch.no_grad():
        for p in module.parameters():
            spread = p.std(correction=0)
            p.copy_(p.mean() + torch.where(spread > 0, spread, 0.1) * torch.randn_like(p))
    return module


def check_divergence(name: str) -> None:
    """Refuse an unknown divergence."""
    if name not in losses.DIVERGENCES:
        raise UserError(f"divergence must be one of {', '.join(losses.DIVERGENCES)}, got {name!r}")
