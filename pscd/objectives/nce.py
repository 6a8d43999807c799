"""Noise-contrastive estimation: the energy learns to classify data against noise of known density."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from pscd import distributed, fast, losses, rng
from pscd.errors import UserError
from pscd.fast import frozen
from pscd.mixtures import Mixture
from pscd.objectives.f_ebm import check_divergence
from pscd.objectives.flow_noise import FlowNoise
from pscd.objectives.protocol import Objective
from pscd.types import Energy, check_types, documented, option


class Noise(nn.Module):
    """The noise, which is fixed, and log Z, which is learnt."""

    def __init__(self, density: Mixture | FlowNoise) -> None:
        super().__init__()
        self.density = density
        self.log_z = nn.Parameter(torch.zeros(()))


@documented
@dataclass(frozen=True)
class NoiseContrastive(Objective):
    """Noise-contrastive estimation (Gutmann and Hyvärinen 2010), with log Z as a parameter.

    The closer the noise is to the data, the more the energy learns from separating them.

    >>> NoiseContrastive(noise="gaussian", ratio=2).needs_negatives  # no chains during training
    False
    """

    noise: Literal["mixture", "gaussian", "flow"] = option(
        "mixture",
        "noise fitted to the data: a mixture of Gaussians, one Gaussian, or a flow (pip install '.[flow]')",
    )
    components: int = option(32, "Gaussians in the mixture of the noise")
    ratio: int = option(4, "rows of noise per row of data; with few, thin structure is learnt badly")
    divergence: str = option("js", f"js is logistic regression; others: {', '.join(losses.DIVERGENCES)}")

    needs_negatives = False
    accepts_labels = False

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("components", "ratio"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be at least 1, got {getattr(self, name)}")
        check_divergence(self.divergence)

    def init(self, energy: nn.Module, x: Tensor) -> Noise:
        """Fit the noise to the data, and estimate log Z at the start from draws of it."""
        seed = rng.integer_seed(torch.default_generator)
        density = self._density(x, seed)
        aux = Noise(density).to(x.device)
        with torch.no_grad(), frozen(energy):
            y = density.sample(10_000, rng.generator(seed, device=x.device))
            log_weights = -energy(y.view(-1, *x.shape[1:]).to(x.dtype)) - density.log_prob(y)
            aux.log_z.fill_(torch.logsumexp(log_weights, 0) - math.log(len(y)))
        return aux

    def _density(self, x: Tensor, seed: int) -> Mixture | FlowNoise:
        if self.noise == "gaussian":
            return Mixture.gaussian(x)
        if self.noise == "flow":
            return FlowNoise.fit(x, seed=seed)
        return Mixture.fit(x, components=self.components, seed=seed)

    def __call__(
        self,
        energy: Energy,
        aux: nn.Module | None,
        x_pos: Tensor,
        x_neg: Tensor,
        generator: torch.Generator,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss over the batches of all processes together, against fresh noise."""
        assert isinstance(aux, Noise)
        y = aux.density.sample(self.ratio * len(x_pos), generator).to(x_pos.dtype)
        x = torch.cat([x_pos, y.view(-1, *x_pos.shape[1:])])
        e = fast.energies(energy, x)
        # Add log Z before gathering, so that its gradient is local too and the sum over processes is right.
        log_ratio = -e - aux.log_z - aux.density.log_prob(x)
        pos, neg = distributed.gather_parts(log_ratio, [len(x_pos), len(y)])
        loss = losses.noise_contrastive(pos, neg, ratio=self.ratio, f=losses.DIVERGENCES[self.divergence])
        stats = {
            "e_pos": distributed.mean(e[: len(x_pos)].detach().mean()),
            "log_z": aux.log_z.detach().clone(),
            "told_apart": ((pos > 0).float().mean() + (neg < 0).float().mean()) / 2,
        }
        return loss, stats
