"""An energy for each of several levels of noise, for recovery likelihood."""

import math
from functools import cache

import torch
from torch import Tensor, nn

from pscd import fast
from pscd.energies.wrappers import LabelledEnergy
from pscd.fast import Evaluator


class NoisyEnergies(nn.Module):
    """E(x, t), the energy of rows with noise of deviation s_t added, for t = 0 (the least noise) to `levels` - 1.

        E(x, t) = |x|^2 / (2 w_t^2) - sqrt(d) width / s_t f_t(x / w_t),    w_t^2 = s_t^2 + width^2

    At f = 0 this is the energy of rows of deviation `width` with the noise added. The factors are those of Karras et
    al. (2022): the network sees inputs of deviation 1, and the slope that it has to learn is of one size at all levels.

    Args:
        net: f, `(x, label)` to `(B,)`, the label being the level.
        shape: of a row.
        levels: how many.
        least: s_0.
        most: the noise of level `levels`, which has no energy: samples start there.
        width: deviation of the rows; 0.5 is about that of pixels in [0, 1].
    """

    sigmas: Tensor

    def __init__(
        self, net: nn.Module, shape: tuple[int, ...], *, levels: int, least: float, most: float, width: float = 0.5
    ) -> None:
        super().__init__()
        self.net, self.shape, self.levels, self.width = net, shape, levels, width
        ladder = [least * (most / least) ** (i / levels) for i in range(levels + 1)]
        self.register_buffer("sigmas", torch.tensor(ladder), persistent=False)

    def factors(self, level: Tensor) -> tuple[Tensor, Tensor]:
        """What x is divided by, and what f is multiplied by."""
        s = self.sigmas[level]
        return (s.square() + self.width**2).sqrt(), math.sqrt(math.prod(self.shape)) * self.width / s

    def forward(self, x: Tensor, level: Tensor | None = None) -> Tensor:
        """Energies."""
        level = torch.zeros(len(x), dtype=torch.long, device=x.device) if level is None else level
        width, scale = self.factors(level)
        inner = x / width.view(-1, *[1] * (x.ndim - 1))
        return inner.flatten(1).square().sum(1) / 2 - scale * self.net(inner, level)

    def input_gradient(self) -> Evaluator | None:
        """Energy and gradient at the level of the least noise, see `LevelEnergy`."""
        return LevelEnergy(self, 0).input_gradient()


class LevelEnergy(nn.Module):
    """E(x, t) for one t, and, given noisier rows y, E(x, t) + |x - y|^2 / (2 sigma^2), the energy of x given y.

    Here y is x with noise of deviation sigma, sigma^2 = s_{t+1}^2 - s_t^2.

    Args:
        energy: of all levels.
        level: t.
        noisier: y, `(B, *shape)`, of level t + 1; None: the energy of x alone.
    """

    def __init__(self, energy: NoisyEnergies, level: int, noisier: Tensor | None = None) -> None:
        super().__init__()
        self.energy, self.level, self.noisier = energy, level, noisier
        least, most = energy.sigmas[level : level + 2].double().square().tolist()
        self.variance = most - least

    def _label(self, n: int) -> Tensor:
        return torch.full((n,), self.level, dtype=torch.long, device=self.energy.sigmas.device)

    def forward(self, x: Tensor) -> Tensor:
        """Energies, `(B, *shape)` to `(B,)`."""
        e: Tensor = self.energy(x, self._label(len(x)))
        return e if self.noisier is None else e + (x - self.noisier).flatten(1).square().sum(1) / (2 * self.variance)

    def input_gradient(self) -> Evaluator | None:
        """Energy and gradient, the network's by hand; None if that is left to autograd."""
        width, scale = (float(factor) for factor in self.energy.factors(self._label(1)))

        @cache
        def network(n: int) -> Evaluator | None:
            """For batches of n rows, which have a label each."""
            return fast.by_hand(LabelledEnergy(self.energy.net, self._label(n)), self.energy.shape)

        first = network(1 if self.noisier is None else len(self.noisier))
        if first is None:
            return None

        def evaluate(x: Tensor) -> tuple[Tensor, Tensor]:
            inner = x / width
            f, slope = (network(len(x)) or first)(inner)
            e = inner.flatten(1).square().sum(1) / 2 - scale * f
            gradient = (inner - scale * slope) / width
            if self.noisier is None:
                return e, gradient
            noise = x - self.noisier
            return e + noise.flatten(1).square().sum(1) / (2 * self.variance), gradient + noise / self.variance

        return Evaluator(evaluate, first.how)
