"""Energy functions: modules that map `(B, *shape)` to `(B,)`. Low energy is likely."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm as with_spectral_norm

from pscd.energies.images import ConvNet, PlainCNN, ResNet
from pscd.errors import UserError
from pscd.fast import Sequence
from pscd.types import option

FOURIER_SCALE = 1.5  # standard deviation of the waves' frequencies, for inputs of unit scale


class Quadratic(nn.Module):
    """E(x) = |x - mu|^2 / (2 sigma^2): a Gaussian, the paper's 1-D model (App. D.2).

    `sigma` is kept positive by its logarithm.
    """

    def __init__(self, mu: float = 0.0, sigma: float = 1.0, *, dim: int = 1) -> None:
        super().__init__()
        if not sigma > 0:
            raise ValueError(f"sigma must be positive, got {sigma}")
        self.mu = nn.Parameter(torch.full((dim,), float(mu)))
        self.log_sigma = nn.Parameter(torch.full((dim,), math.log(sigma)))

    @property
    def sigma(self) -> Tensor:
        """Standard deviation of each coordinate."""
        return self.log_sigma.exp()

    def forward(self, x: Tensor) -> Tensor:
        """`(B, *shape)` with `dim` numbers a row to `(B,)`."""
        return 0.5 * ((x.flatten(1) - self.mu) / self.sigma).square().sum(1)


class MLP(nn.Module):
    """A fully connected energy for inputs of any shape.

    A network with SiLU grows at most linearly, so exp(-E) need not be integrable; `base_scale` adds
    |x|^2 / (2 base_scale^2), a Gaussian base that makes it so. `fourier` puts that many random waves
    beside the input, sin and cos of fixed projections: a plain network learns fine structure in low
    dimension, such as a thin ring, very slowly (Tancik et al. 2020).
    """

    frequencies: Tensor

    def __init__(
        self,
        shape: tuple[int, ...],
        *,
        width: int = 128,
        depth: int = 3,
        fourier: int = 0,
        spectral_norm: bool = False,
        base_scale: float | None = None,
    ) -> None:
        super().__init__()
        self.base_scale = base_scale
        self.fourier = fourier
        wrap = with_spectral_norm if spectral_norm else _unchanged
        layers: list[nn.Module] = []
        size = math.prod(shape)
        self.register_buffer("frequencies", FOURIER_SCALE * torch.randn(size, fourier))
        size += 2 * fourier
        for _ in range(depth):
            layers += [wrap(nn.Linear(size, width)), nn.SiLU()]
            size = width
        self.net = nn.Sequential(*layers, wrap(nn.Linear(size, 1)))

    def forward(self, x: Tensor) -> Tensor:
        """`(B, *shape)` to `(B,)`."""
        x = x.flatten(1)
        features = x
        if self.fourier:
            phase = x @ self.frequencies
            features = torch.cat([x, phase.sin(), phase.cos()], 1)
        e = self.net(features).squeeze(1)
        if self.base_scale is not None:
            e = e + x.square().sum(1) / (2 * self.base_scale**2)
        return e

    def as_sequence(self) -> Sequence:
        """See `pscd.fast`."""
        return Sequence(
            self.net,
            frequencies=self.frequencies if self.fourier else None,
            precision=self.base_scale**-2 if self.base_scale is not None else None,
        )


class Correction(nn.Module):
    """E(x) = |x|^2 / 2 + f(x): a standard Gaussian, corrected by a network of bounded size, |f| < bound.

    It starts as the Gaussian. The density stays within a factor exp(2 bound) of it: tails remain those of
    the Gaussian, and draws from it are accepted as jumps in any dimension.
    """

    def __init__(self, dim: int, *, bound: float, width: int = 64, depth: int = 2) -> None:
        super().__init__()
        self.bound = bound
        layers: list[nn.Module] = []
        size = dim
        for _ in range(depth):
            layers += [nn.Linear(size, width), nn.SiLU()]
            size = width
        last = nn.Linear(size, 1)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        self.net = nn.Sequential(*layers, last)

    def forward(self, x: Tensor) -> Tensor:
        """`(B, dim)` to `(B,)`."""
        return 0.5 * x.square().sum(1) + self.bound * torch.tanh(self.net(x).squeeze(1) / self.bound)

    def as_sequence(self) -> Sequence:
        """See `pscd.fast`."""
        return Sequence(self.net, precision=1.0, bound=self.bound)


@dataclass(frozen=True)
class Architecture:
    """Which network, and its size."""

    name: str = option("mlp", "network: mlp or quadratic; for images conv, cnn or resnet", flag="energy")
    width: int = option(128, "hidden units per layer, or channels of the first convolution")
    depth: int = option(3, "hidden layers, or how often a convolution halves the image")
    fourier: int = option(16, "random waves beside the input, for fine structure; 0: none")
    spectral_norm: bool = option(False, "bound the slope of every layer")
    base_scale: float | None = option(2.0, "width of the Gaussian base in standard deviations; none: no base")
    classes: int = option(0, "labels 0 to classes - 1 that a network for images is conditional on; 0: no labels")

    def __post_init__(self) -> None:
        if self.name not in ENERGIES:
            raise UserError(f"unknown energy {self.name!r}; there are: {', '.join(sorted(ENERGIES))}")
        if self.width < 1 or self.depth < 1 or self.fourier < 0:
            raise UserError("width and depth must be at least 1, fourier at least 0")
        if self.base_scale is not None and not self.base_scale > 0:
            raise UserError(f"base_scale must be positive or none, got {self.base_scale}")
        if self.classes < 0 or (self.classes and self.name not in CONDITIONAL):
            raise UserError(f"classes needs a network that takes labels: {' or '.join(CONDITIONAL)}")

    def build(self, shape: tuple[int, ...]) -> nn.Module:
        """The network for inputs of `shape`, with random weights."""
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


def _of_images(kind: type[ConvNet] | type[PlainCNN] | type[ResNet]) -> Callable[..., nn.Module]:
    def build(shape: tuple[int, ...], config: Architecture) -> nn.Module:
        _check_image(shape, config)
        return kind(
            shape,
            width=config.width,
            depth=config.depth,
            classes=config.classes,
            spectral_norm=config.spectral_norm,
        )

    return build


def _check_image(shape: tuple[int, ...], config: Architecture) -> None:
    if len(shape) != 3:
        raise UserError(f"the energy {config.name} is for images, channels x height x width; use --energy mlp")
    if min(shape[1:]) < 2**config.depth:
        size = f"{shape[1]} x {shape[2]}"
        raise UserError(f"a {config.name} of depth {config.depth} halves an image of {size} too often; lower the depth")


def _unchanged(module: nn.Module) -> nn.Module:
    return module


ENERGIES: dict[str, Callable[[tuple[int, ...], Architecture], nn.Module]] = {
    "mlp": _mlp,
    "quadratic": _quadratic,
    "conv": _of_images(ConvNet),
    "cnn": _of_images(PlainCNN),
    "resnet": _of_images(ResNet),
}
CONDITIONAL = ("conv", "cnn", "resnet")
