"""Which network a configuration means: `Architecture`, and the dictionary of all networks."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pscd.energies.corrected import BoundedNetwork, CorrectedEnergy
from pscd.energies.dense import MLP, Quadratic
from pscd.energies.images import ConvNet, PlainCNN, ResNet
from pscd.energies.levels import NoisyEnergies
from pscd.errors import UserError
from pscd.mixtures import Mixture
from pscd.types import check_types, documented, option


@documented
@dataclass(frozen=True)
class Architecture:
    """Which network, and its size.

    >>> import torch
    >>> Architecture("mlp", width=64, depth=2).build((5,))(torch.zeros(3, 5)).shape
    torch.Size([3])
    """

    name: str = option(
        "mlp",
        "network: mlp, quadratic or corrected (a mixture and a network); for images conv, cnn or resnet",
        flag="energy",
    )
    width: int = option(128, "hidden units per layer, or channels of the first convolution")
    depth: int = option(3, "hidden layers, or how often a convolution halves the image")
    fourier: int = option(16, "random Fourier features of the input, for fine structure; 0: none")
    spectral_norm: bool = option(False, "bound the slope of every layer")
    base_scale: float | None = option(2.0, "width of the Gaussian base in standard deviations; none: no base")
    bound: float | None = option(None, "nats by which a network may correct the mixture that it starts from; none: 4")
    classes: int = option(0, "labels 0 to classes - 1 that a network for images is conditional on; 0: no labels")
    levels: int = option(0, "levels of noise, for recovery likelihood: an energy of images for each; 0: none")
    least_noise: float = option(0.05, "deviation of the noise at the first level")
    most_noise: float = option(3.2, "deviation of the noise that samples start from, above the last level")

    def __post_init__(self) -> None:
        check_types(self)
        if self.name not in ENERGIES:
            raise UserError(f"unknown energy {self.name!r}; there are: {', '.join(sorted(ENERGIES))}")
        if self.width < 1 or self.depth < 1 or self.fourier < 0:
            raise UserError("width and depth must be at least 1, fourier at least 0")
        if self.bound is not None and not self.bound > 0:
            raise UserError(f"bound must be positive or none, got {self.bound}")
        if self.base_scale is not None and not 1e-9 <= self.base_scale <= 1e9:  # its square has to fit into float32
            raise UserError(f"base_scale must be between 1e-09 and 1e+09, or none, got {self.base_scale}")
        if self.classes < 0 or (self.classes and self.name not in CONDITIONAL):
            raise UserError(f"classes needs a network that takes labels: {' or '.join(CONDITIONAL)}")
        if self.levels < 0 or (self.levels and (self.classes or self.name not in CONDITIONAL)):
            raise UserError(f"levels of noise need a network for images, {' or '.join(CONDITIONAL)}, and classes 0")
        if not 0 < self.least_noise < self.most_noise < math.inf:
            raise UserError("noise must rise from a positive least_noise to most_noise")

    def correct(self, mixture: Mixture, frequencies: Tensor) -> CorrectedEnergy:
        """A network, 0 at the start, that corrects a mixture."""
        network = BoundedNetwork(
            mixture.means.shape[1],
            width=self.width,
            depth=self.depth,
            bound=4.0 if self.bound is None else self.bound,
            frequencies=frequencies,
        )
        return CorrectedEnergy(mixture.single(), network)

    def rebuild(self, shape: tuple[int, ...], tensors: dict[str, Tensor]) -> nn.Module:
        """The network that a file's tensors belong to, for inputs of `shape`, before they are read into it.

        Its sizes are compared first, without allocating memory (torch's device `meta`), since a file may declare any.
        """
        if self.depth > 1000:
            raise UserError(f"depth must be at most 1000, got {self.depth}")
        if self.name != "corrected":
            with torch.device("meta"):
                plan = self.build(shape)
            sizes = {name: t.shape for name, t in plan.state_dict().items()}
            if sizes != {name: t.shape for name, t in tensors.items()}:
                raise RuntimeError("these tensors belong to another network")
            return self.build(shape)
        mixture = Mixture(*(tensors[f"mixture.{name}"] for name in ("weights", "means", "factors")))
        return self.correct(mixture, tensors["network.frequencies"])

    def build(self, shape: tuple[int, ...]) -> nn.Module:
        """The network for rows of the given shape, with random weights from torch's global generator."""
        return ENERGIES[self.name](shape, self)


def _mlp(shape: tuple[int, ...], config: Architecture) -> nn.Module:
    return MLP(
        shape,
        width=config.width,
        depth=config.depth,
        fourier=config.fourier,
        spectral_norm=config.spectral_norm,
        base_scale=config.base_scale,
    )


def _quadratic(shape: tuple[int, ...], config: Architecture) -> nn.Module:
    return Quadratic(dim=math.prod(shape))


def _corrected(shape: tuple[int, ...], config: Architecture) -> nn.Module:
    raise UserError("the energy corrected corrects a mixture; set start to mixture")


def _of_images(kind: type[ConvNet] | type[PlainCNN] | type[ResNet]) -> Callable[..., nn.Module]:
    def build(shape: tuple[int, ...], config: Architecture) -> nn.Module:
        _check_image(shape, config)
        net = kind(
            shape,
            width=config.width,
            depth=config.depth,
            classes=config.levels or config.classes,
            spectral_norm=config.spectral_norm,
        )
        if not config.levels:
            return net
        return NoisyEnergies(net, shape, levels=config.levels, least=config.least_noise, most=config.most_noise)

    return build


def _check_image(shape: tuple[int, ...], config: Architecture) -> None:
    if len(shape) != 3:
        raise UserError(f"the energy {config.name} is for images, channels x height x width; use the energy mlp")
    if min(shape[1:]) < 2**config.depth:
        size = f"{shape[1]} x {shape[2]}"
        raise UserError(f"a {config.name} of depth {config.depth} halves an image of {size} too often; lower the depth")


ENERGIES: dict[str, Callable[[tuple[int, ...], Architecture], nn.Module]] = {
    "mlp": _mlp,
    "quadratic": _quadratic,
    "corrected": _corrected,
    "conv": _of_images(ConvNet),
    "cnn": _of_images(PlainCNN),
    "resnet": _of_images(ResNet),
}
CONDITIONAL = ("conv", "cnn", "resnet")
