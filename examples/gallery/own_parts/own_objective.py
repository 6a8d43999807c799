"""
An objective of your own
========================

An objective is a frozen dataclass with a loss of two sets of energies. In this one the weight of a row is 1 up to some
nats above the median energy and falls exponentially beyond, so that clean rows have equal weights.
"""

from dataclasses import dataclass, replace

import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn

import pscd
from pscd.objectives import Objective, both_phases, phase_stats
from pscd.types import Energy, option


@dataclass(frozen=True)
class Capped(Objective):
    """Contrastive divergence with the weights min(1, exp(-gamma (E - median - slack))) on the data."""

    gamma: float = option(1.0, "how fast the weight of unlikely rows falls")
    slack: float = option(2.0, "nats above the median up to which a row has full weight")

    def __call__(
        self, energy: Energy, aux: nn.Module | None, x_pos: Tensor, x_neg: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss, and what to log."""
        e_pos, e_neg = both_phases(energy, x_pos, x_neg)
        above = e_pos.detach() - e_pos.detach().median()
        weight = torch.exp(self.gamma * (self.slack - above)).clamp(max=1)
        return (weight * e_pos).sum() / weight.sum() - e_neg.mean(), phase_stats(e_pos, e_neg, gamma=0.0)


clean = torch.randn(4000, 1, generator=torch.Generator().manual_seed(0))
dirty = pscd.contaminate(clean, 0.1, lambda n, rng: 5 + 0.5 * torch.randn(n, 1, generator=rng)).x
settings = pscd.TrainConfig(
    updates=250,
    batch_size=512,
    optimizer=pscd.OptimizerSettings(lr=0.03, ema=0.98),
    rows=pscd.RowSettings(standardise="none"),
)
objectives = {
    "CD": pscd.PseudoSpherical(gamma=0.0),
    "PS-CD": pscd.PseudoSpherical(gamma=1.0, warmup=0),
    "capped": Capped(),
}

# %%
# It is passed like any other objective; on the command line it would be ``--objective mymodule:Capped --slack 3``.

x = torch.linspace(-4, 8, 300, dtype=torch.float64)
figure, axis = plt.subplots()
axis.hist(dirty[:, 0].numpy(), bins=80, density=True, color="lightgrey", label="data")
for name, objective in objectives.items():
    config = replace(settings, objective=objective)
    energy = pscd.fit(dirty, config=config, energy=pscd.Quadratic(0.0, 1.5)).network
    mean, deviation = energy.mu.item(), energy.sigma.item()
    q = torch.distributions.Normal(mean, deviation).log_prob(x).exp()
    axis.plot(x, q, linewidth=2, label=f"{name}: {mean:.2f} ± {deviation:.2f}")
axis.set(xlabel="x", ylabel="density")
axis.legend(loc="best")
plt.show()
