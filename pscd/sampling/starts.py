"""Where fresh chains start, and what follows from it: a broad Gaussian, a robust mixture, or the unit box."""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from pscd.coordinates import Coordinates
from pscd.errors import UserError
from pscd.mixtures import Mixture
from pscd.sampling.buffer import ReplayBuffer
from pscd.sampling.proposals import Chains
from pscd.sampling.spectrum import spectrum


class Start(Protocol):
    """Where the chains of a training run start; the defaults are those of rows that nothing confines."""

    @property
    def in_bytes(self) -> bool:
        """Whether 256 levels are enough for a coordinate of a chain."""
        return False

    def draw(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw `n` fresh points, `(n, *shape)`."""
        ...

    def confine(self, x: Tensor) -> Tensor:
        """Points moved to where chains can go."""
        return x

    def of_model(self, proposal: Mixture | Chains, buffer: ReplayBuffer) -> Mixture | Chains:
        """What the chains of the trained model start from.

        Args:
            proposal: of the jumps.
            buffer: the chains of the training.

        Returns:
            One of them, or a copy.
        """
        return proposal


class PlainStart(Start, Protocol):
    """A start that is estimated from the rows, without a robust mixture."""

    @classmethod
    def fit(cls, z: Tensor, device: torch.device, *, slope: float = 0.0) -> "PlainStart":
        """Estimate the start.

        Args:
            z: rows `(n, *shape)` in the network's coordinates.
            device: where chains run.
            slope: of the sampler's spectrum of images, 0 for none.

        Returns:
            The start.
        """
        ...

    def proposal(self, z: Tensor, *, components: int, seed: int) -> Mixture | Chains:
        """What chains jump to.

        Args:
            z: rows `(n, *shape)` in the network's coordinates.
            components: number of Gaussians, if it is a mixture.
            seed: of the fit.

        Returns:
            A density, or an empty set of chains if there are no jumps.
        """
        ...


@dataclass(frozen=True)
class GaussianStart(PlainStart):
    """Chains start from a broad Gaussian, and jump to draws of a mixture that is fitted to the data.

    Args:
        centre: mean of the data, of the shape of a row.
        spread: standard deviations of the data, of the same shape.
        width: of the Gaussian, in standard deviations of the data; 2, so that starts cover all of it.
    """

    centre: Tensor
    spread: Tensor
    width: float = 2.0

    @classmethod
    def fit(cls, z: Tensor, device: torch.device, *, slope: float = 0.0) -> "GaussianStart":
        """Estimate centre and spread."""
        data = Coordinates.standard(z)
        return cls(data.shift.float().to(device), data.scale.float().to(device))

    def draw(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw points of the Gaussian."""
        noise = torch.randn(n, *self.centre.shape, generator=generator, device=self.centre.device)
        return self.centre + self.width * self.spread * noise

    def proposal(self, z: Tensor, *, components: int, seed: int) -> Mixture:
        """A mixture of Gaussians fitted to the rows."""
        return Mixture.fit(z, components=components, seed=seed)


@dataclass(frozen=True)
class MixtureStart(Start):
    """Chains start at draws of a robust mixture, and jump to other draws.

    Args:
        mixture: in the network's coordinates.
    """

    mixture: Mixture

    def draw(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw points of the mixture."""
        return self.mixture.sample(n, generator)


@dataclass(frozen=True)
class BoxStart(PlainStart):
    """Chains start in the unit box and never leave it: for images.

    Args:
        shape: of a row.
        device: where chains run.
        slope: 0: uniformly; else with the spectrum of images (see `pscd.sampling.spectrum`), since a chain that is
            preconditioned by it would never lose the fine grain of uniform noise.
    """

    shape: tuple[int, ...]
    device: torch.device
    slope: float = 0.0

    in_bytes = True

    @classmethod
    def fit(cls, z: Tensor, device: torch.device, *, slope: float = 0.0) -> "BoxStart":
        """Check that the rows lie in the box; a `UserError` if one lies outside."""
        if z.min() < 0 or z.max() > 1:
            raise UserError("chains that start in the box need data in [0, 1], or images as bytes; use base gaussian")
        return cls(tuple(z.shape[1:]), device, slope)

    def draw(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw points uniformly, or with the spectrum of images."""
        if self.slope:
            return spectrum(self.shape, self.slope, self.device).draw(n, generator)
        return torch.rand(n, *self.shape, generator=generator, device=self.device)

    def proposal(self, z: Tensor, *, components: int, seed: int) -> Chains:
        """An empty set of chains: there are no jumps."""
        return Chains(torch.empty(0, *self.shape, dtype=torch.uint8))

    def confine(self, x: Tensor) -> Tensor:
        """Points clamped to the box, because chains cannot leave it."""
        return x.clamp(0, 1)

    def of_model(self, proposal: Mixture | Chains, buffer: ReplayBuffer) -> Chains:
        """The chains of the training: in many dimensions a rough density of the data is a bad start."""
        return Chains(buffer.x.clone(), buffer.label)


STARTS: dict[str, type[PlainStart]] = {"gaussian": GaussianStart, "box": BoxStart}
