"""Fully connected energies, for tables and toys: modules that map `(B, *shape)` to `(B,)`."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm as with_spectral_norm

from pscd.fast import Sequence
from pscd.mixtures import Mixture


class Quadratic(nn.Module):
    """E(x) = |x - mu|^2 / (2 sigma^2): a Gaussian, the paper's 1-D model (Eq. 47).

    `sigma` is parametrised by its logarithm, which keeps it positive.

    Args:
        mu: initial mean, the same for all coordinates.
        sigma: initial standard deviation.
        dim: number of coordinates; each has its own mean and deviation.

    Raises:
        ValueError: sigma is not positive.

    >>> Quadratic(mu=1.0, sigma=2.0)(torch.tensor([[1.0], [5.0]])).tolist()
    [0.0, 2.0]
    """

    def __init__(self, mu: float = 0.0, sigma: float = 1.0, *, dim: int = 1) -> None:
        super().__init__()
        if not sigma > 0:
            raise ValueError(f"sigma must be positive, got {sigma}")
        self.mu = nn.Parameter(torch.full((dim,), float(mu)))
        self.log_sigma = nn.Parameter(torch.full((dim,), math.log(sigma)))

    @property
    def sigma(self) -> Tensor:
        """Standard deviation of each coordinate, `(dim,)`."""
        return self.log_sigma.exp()

    def forward(self, x: Tensor) -> Tensor:
        """Energies, `(B, *shape)` with `dim` numbers per row to `(B,)`."""
        return 0.5 * ((x.flatten(1) - self.mu) / self.sigma).square().sum(1)


class MLP(nn.Module):
    """A fully connected energy for rows of any shape, with SiLU activations.

    Args:
        shape: of a row.
        width: units per hidden layer.
        depth: hidden layers.
        fourier: number of random Fourier features of the input, sin and cos of fixed random projections. Without
            them a network learns fine structure in low dimension, such as a thin ring, very slowly
            (Tancik et al. 2020).
        spectral_norm: normalise every layer, which bounds its slope.
        base_scale: adds |x|^2 / (2 base_scale^2), a Gaussian base. The network itself grows at most linearly, so
            without a base exp(-E) need not be integrable.

    >>> energy = MLP((2,), width=16, depth=2, base_scale=2.0)
    >>> energy(torch.zeros(5, 2)).shape
    torch.Size([5])
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
        wrap = layer_wrapper(spectral_norm)
        layers: list[nn.Module] = []
        size = math.prod(shape)
        # Frequencies of deviation 1.5 are for inputs of unit scale.
        self.register_buffer("frequencies", 1.5 * torch.randn(size, fourier))
        size += 2 * fourier
        for _ in range(depth):
            layers += [wrap(nn.Linear(size, width)), nn.SiLU()]
            size = width
        self.net = nn.Sequential(*layers, wrap(nn.Linear(size, 1)))

    def forward(self, x: Tensor) -> Tensor:
        """Energies, `(B, *shape)` to `(B,)`."""
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
        """The energy as a sequence of layers, which `pscd.fast` computes by hand."""
        return Sequence(
            self.net,
            frequencies=self.frequencies if self.fourier else None,
            precision=self.base_scale**-2 if self.base_scale is not None else None,
        )


class Correction(nn.Module):
    """E(x) = |x|^2 / 2 + f(x): a standard Gaussian, corrected by a network f with |f| < bound.

    It starts as the Gaussian. The density stays within a factor exp(2 bound) of it, so the tails remain Gaussian, and
    jumps to draws of the Gaussian are accepted in any dimension.

    Args:
        dim: number of columns.
        bound: of the correction, in nats.
        width: units per hidden layer.
        depth: hidden layers.
    """

    def __init__(self, dim: int, *, bound: float, width: int = 64, depth: int = 2) -> None:
        super().__init__()
        self.dim, self.bound = dim, bound
        self.net = zero_started(dim, width, depth)

    def forward(self, x: Tensor) -> Tensor:
        """Energies, `(B, dim)` to `(B,)`."""
        return 0.5 * x.square().sum(1) + self.bound * torch.tanh(self.net(x).squeeze(1) / self.bound)

    def corrected_density(self, power: float) -> Mixture:
        """The Gaussian that is corrected, to a power."""
        return Mixture.isotropic(self.dim, power**-0.5)

    def as_sequence(self) -> Sequence:
        """The energy as a sequence of layers, which `pscd.fast` computes by hand."""
        return Sequence(self.net, precision=1.0, bound=self.bound)


def zero_started(size: int, width: int, depth: int) -> nn.Sequential:
    """A fully connected network with SiLU whose output is 0 before it is trained."""
    layers: list[nn.Module] = []
    for _ in range(depth):
        layers += [nn.Linear(size, width), nn.SiLU()]
        size = width
    last = nn.Linear(size, 1)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return nn.Sequential(*layers, last)


def layer_wrapper(spectral_norm: bool) -> Callable[[nn.Module], nn.Module]:
    """What every layer of a network is wrapped in: spectral normalisation, which bounds its slope, or nothing."""
    return with_spectral_norm if spectral_norm else _unchanged


def _unchanged(module: nn.Module) -> nn.Module:
    return module
