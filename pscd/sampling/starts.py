"""Where fresh chains start, and what follows from it: a broad Gaussian, a robust mixture, or the unit box."""

from dataclasses import dataclass

import torch
from torch import Tensor

from pscd.coordinates import Coordinates
from pscd.errors import UserError
from pscd.mixtures import Mixture
from pscd.sampling.buffer import ReplayBuffer
from pscd.sampling.proposals import Chains
from pscd.sampling.spectrum import spectrum

BROAD = 2.0  # width of the Gaussian that chains restart from, in standard deviations of the data


@dataclass(frozen=True)
class GaussianStart:
    """Chains start from a broad Gaussian, and jump to draws of a rough density of the data.

    Args:
        centre: mean of the data, of the shape of a row.
        spread: standard deviations of the data, of the same shape.
    """

    centre: Tensor
    spread: Tensor

    in_bytes = False

    @classmethod
    def fit(cls, z: Tensor, device: torch.device) -> "GaussianStart":
        """Estimate centre and spread.

        Args:
            z: rows `(n, *shape)` in the network's coordinates.
            device: where chains run.

        Returns:
            The start.
        """
        found = Coordinates.standard(z)
        return cls(found.shift.float().to(device), found.scale.float().to(device))

    def draw(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw fresh points.

        Args:
            n: number of points.
            generator: source of randomness; torch's global one by default.

        Returns:
            `(n, *shape)`.
        """
        noise = torch.randn(n, *self.centre.shape, generator=generator, device=self.centre.device)
        return self.centre + BROAD * self.spread * noise

    def proposal(self, z: Tensor, *, components: int, seed: int) -> Mixture:
        """The density to draw jumps from: a mixture of Gaussians fitted to the rows.

        Args:
            z: rows `(n, *shape)` in the network's coordinates.
            components: Gaussians in the mixture.
            seed: of the fit.

        Returns:
            The mixture.
        """
        return Mixture.fit(z, components=components, seed=seed)

    def confine(self, x: Tensor) -> Tensor:
        """`x` itself: neither chains nor data are confined."""
        return x

    def kept(self, proposal: Mixture | Chains, buffer: ReplayBuffer) -> Mixture | Chains:
        """What a trained model's chains start from: draws of the proposal.

        Args:
            proposal: of the jumps.
            buffer: not used.

        Returns:
            `proposal`.
        """
        return proposal


@dataclass(frozen=True)
class MixtureStart:
    """Chains start at draws of a robust mixture, and jump to other draws.

    Args:
        mixture: in the network's coordinates.
    """

    mixture: Mixture

    in_bytes = False

    def draw(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw fresh points.

        Args:
            n: number of points.
            generator: source of randomness; torch's global one by default.

        Returns:
            `(n, *shape)`.
        """
        return self.mixture.sample(n, generator)

    def confine(self, x: Tensor) -> Tensor:
        """`x` itself: neither chains nor data are confined."""
        return x

    def kept(self, proposal: Mixture | Chains, buffer: ReplayBuffer) -> Mixture | Chains:
        """What a trained model's chains start from: draws of the proposal.

        Args:
            proposal: of the jumps.
            buffer: not used.

        Returns:
            `proposal`.
        """
        return proposal


@dataclass(frozen=True)
class BoxStart:
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

    in_bytes = True  # 256 levels are enough for a pixel of a chain

    @classmethod
    def fit(cls, z: Tensor, device: torch.device) -> "BoxStart":
        """Check that the rows lie in the box.

        Args:
            z: rows `(n, *shape)` in the network's coordinates.
            device: where chains run.

        Returns:
            The start.

        Raises:
            UserError: a row lies outside.
        """
        if z.min() < 0 or z.max() > 1:
            raise UserError("chains that start in the box need data in [0, 1], or images as bytes; use base gaussian")
        return cls(tuple(z.shape[1:]), device)

    def draw(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw fresh points, uniformly or with the spectrum of images.

        Args:
            n: number of points.
            generator: source of randomness; torch's global one by default.

        Returns:
            `(n, *shape)`.
        """
        if self.slope:
            return spectrum(self.shape, self.slope, self.device).draw(n, generator)
        return torch.rand(n, *self.shape, generator=generator, device=self.device)

    def proposal(self, z: Tensor, *, components: int, seed: int) -> Chains:
        """An empty set of chains: there are no jumps.

        Args:
            z: not used.
            components: not used.
            seed: not used.

        Returns:
            No chains.
        """
        return Chains(torch.empty(0, *self.shape, dtype=torch.uint8))

    def confine(self, x: Tensor) -> Tensor:
        """Points clamped to the box, since noise must not move data to where no chain can go."""
        return x.clamp(0, 1)

    def kept(self, proposal: Mixture | Chains, buffer: ReplayBuffer) -> Chains:
        """What a trained model's chains start from: the chains of the training.

        Args:
            proposal: not used.
            buffer: the chains of the training.

        Returns:
            The chains.
        """
        return Chains(buffer.x.clone(), buffer.label)


Start = GaussianStart | MixtureStart | BoxStart
STARTS: dict[str, type[GaussianStart] | type[BoxStart]] = {"gaussian": GaussianStart, "box": BoxStart}
