"""Glow: an invertible network from images to Gaussians, with an exact likelihood. Needs normflows.

D. P. Kingma, P. Dhariwal (2018), "Glow: Generative Flow with Invertible 1x1 Convolutions", made of the blocks of
normflows (Stimper et al. 2023, Journal of Open Source Software 8 (86)): of the flow libraries with Glow's blocks it
is the one that needs nothing but torch and numpy and has had releases since 2023.
"""

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from pscd.files import needs
from pscd.progress import progress_bar
from pscd.rng import generator
from studies.baselines import base
from studies.engine.streams import StudyStream

KIND = "glow"
FIRST_BATCH = 256  # images that set the scale of the activations before training


@dataclass(frozen=True)
class Settings:
    """What it takes to build the flow again.

    Args:
        shape: (channels, height, width) of an image.
        levels: scales; at each the image is halved.
        blocks: steps of flow at each scale.
        width: hidden channels.
    """

    shape: tuple[int, int, int]
    levels: int
    blocks: int
    width: int

    def build(self) -> nn.Module:
        """The flow, with random weights: at each level the image is halved, and half of its numbers leave."""
        nf: Any = needs("normflows", "baselines", "glow")
        channels, height, width = self.shape
        bases, flows, merges = [], [], []
        for i in range(self.levels):  # from the innermost level outwards
            left = self.levels - i
            inside = channels * 2 ** (left + 1)
            # Without LU factors: torch has given up the function by which the library makes them.
            level = [nf.flows.GlowBlock(inside, self.width, use_lu=False) for _ in range(self.blocks)]
            flows.append([*level, nf.flows.Squeeze()])
            if i:
                merges.append(nf.flows.Merge())
            kept = inside if i == 0 else inside // 2
            bases.append(nf.distributions.DiagGaussian((kept, height // 2**left, width // 2**left)))
        return nf.MultiscaleFlow(bases, flows, merges, class_cond=False)


class Glow:
    """A trained Glow. Built by `fit` or `load`."""

    def __init__(self, network: nn.Module, settings: Settings) -> None:
        self.network: Any = network
        self.settings = settings

    @torch.no_grad()
    def sample(self, n: int, *, seed: int = 0, progress: bool = False, temperature: float = 1.0) -> Tensor:
        """Images in one pass.

        Args:
            n: number of images.
            seed: of the latent numbers.
            progress: whether to show how far it is.
            temperature: factor of the Gaussians' deviations; below 1 as in its authors' figures.

        Returns:
            Bytes `(n, C, H, W)`.
        """
        parts = []
        with progress_bar(n, show=progress, unit="image") as bar:
            for i in range(math.ceil(n / base.BLOCK)):
                rng = generator(seed, StudyStream.GLOW_SAMPLE, i)
                count = min(base.BLOCK, n - i * base.BLOCK)
                latent = [
                    q.loc + temperature * q.log_scale.exp() * torch.randn(count, *q.loc.shape[1:], generator=rng)
                    for q in self.network.q0
                ]
                parts.append(self.network.forward_and_log_det(latent)[0])
                bar.update(count)
        return base.quantised(torch.cat(parts) + 0.5)

    def energy(self, x: Tensor) -> Tensor:
        """Negative log-likelihood of images, with noise that fills the bins of the pixels.

        By Jensen's inequality it is, on average over the noise, at least that of the pixels themselves.

        Args:
            x: bytes `(n, C, H, W)`.

        Returns:
            Nats, `(n,)`.
        """
        x = base.as_images(x, 2**self.settings.levels)

        def values(part: Tensor) -> Tensor:
            # The same noise for every image, so that an energy does not depend on its neighbours.
            noise = torch.rand(part.shape[1:], generator=generator(0, StudyStream.GLOW_DEQUANTISE))
            return -log_density(self.network, (part + noise) / base.LEVELS)

        return base.in_blocks(values, x)

    def save(self, path: Path | str) -> None:
        """Write weights and settings to one `.safetensors` file."""
        base.save_network(path, KIND, self.network, asdict(self.settings))

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Read what `save` wrote."""
        return cls(*base.restored(path, KIND, Settings))


def log_density(network: Any, x: Tensor) -> Tensor:
    """Log-likelihood of pixels from their floats in [0, 1), `(B,)`: the density times the volume of a bin."""
    return network.log_prob(x - 0.5, None) - x[0].numel() * math.log(base.LEVELS)


def fit(
    x: Tensor,
    *,
    steps: int = 2500,
    batch_size: int = 64,
    levels: int = 2,
    blocks: int = 8,
    width: int = 64,
    lr: float = 1e-3,
    ema: float = 0.998,
    seed: int = 0,
    progress: bool = False,
) -> Glow:
    """Train Glow on images by maximum likelihood, with uniform noise on the pixels.

    Args:
        x: bytes `(n, C, H, W)`, whose sides are multiples of 2^levels.
        steps: updates.
        batch_size: images per update.
        levels: scales; at each the image is halved.
        blocks: steps of flow at each scale.
        width: hidden channels.
        lr: highest learning rate of Adam.
        ema: decay of the averaged weights.
        seed: of weights and batches.
        progress: whether to show how far it is.

    Returns:
        The trained model.
    """
    x = base.as_images(x, 2**levels)
    settings = Settings((x.shape[1], x.shape[2], x.shape[3]), levels, blocks, width)
    network = base.new_network(settings.build, seed)
    rng = generator(seed, StudyStream.GLOW_START)
    with torch.no_grad():  # the first images through set the scale of its activations
        log_density(network, base.dequantised(x[torch.randint(len(x), (FIRST_BATCH,), generator=rng)], rng))

    def bits(batch: Tensor, generator: torch.Generator) -> Tensor:
        return -log_density(network, base.dequantised(batch, generator)).mean() / (batch[0].numel() * math.log(2))

    training = base.Training(steps, batch_size, lr, ema, seed, progress)
    return Glow(base.optimise(network, bits, x, training), settings)
