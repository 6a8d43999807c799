"""Noise-conditional score networks: the slope of the log density of images at every amount of noise.

Y. Song, S. Ermon (2019), "Generative Modeling by Estimating Gradients of the Data Distribution" (NCSN), and (2020),
"Improved Techniques for Training Score-Based Generative Models" (NCSNv2), whose choices these are: a geometric
ladder from the largest distance between images down to 0.01, its factor from the dimension; a network divided by the
noise; averaged weights; steps in proportion to the squared noise; a last denoising step. Version 1 tells the network
how much noise there is, as the first paper does; version 2 does not, as in the second.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import torch
from torch import Tensor, nn

from pscd.errors import UserError
from pscd.progress import progress_bar
from pscd.rng import generator
from studies.baselines import base
from studies.engine.streams import StudyStream

KIND = "ncsn"
SMALLEST = 0.01
STEPS_PER_LEVEL = 3
EMBEDDED = 32  # numbers that tell a block how much noise there is
IMAGE_SCALE = 0.5  # deviation of pixels from the middle of their range
JUDGED_LEVELS = 8  # noise levels, of those between a tenth and one, that `energies` looks at

Score = Callable[[Tensor, Tensor], Tensor]  # images (B, ...) and their sigma (B,) -> (B, ...)


# --- the method ---


def ladder_factor(dim: int) -> float:
    """Ratio of neighbouring sigmas at which half of the mass of one is where the next has its own (Technique 2).

    The norm of noise of deviation sigma in `dim` dimensions is about N(sqrt(dim) sigma, sigma^2 / 2).

    Args:
        dim: numbers in an image.

    Returns:
        The factor, above 1 and at most 2.
    """
    from scipy.optimize import brentq

    root = math.sqrt(2 * dim)

    def overlap(factor: float) -> float:
        return _normal(root * (factor - 1) + 3 * factor) - _normal(root * (factor - 1) - 3 * factor)

    largest = 2.0  # in a few dimensions any two overlap by more
    if overlap(largest) >= 0.5:
        return largest
    return float(brentq(lambda factor: overlap(factor) - 0.5, 1.0, largest, xtol=1e-15))


def ladder(largest: float, dim: int, smallest: float = SMALLEST) -> Tensor:
    """Noise levels from `largest` to `smallest`, a geometric sequence with a factor near `ladder_factor(dim)`.

    Args:
        largest: first sigma.
        dim: numbers in an image.
        smallest: last sigma.

    Returns:
        The sigmas, largest first.
    """
    count = 1 + max(1, round(math.log(largest / smallest) / math.log(ladder_factor(dim))))
    return torch.logspace(math.log10(largest), math.log10(smallest), count)


def largest_distance(x: Tensor) -> float:
    """Between any two of the images, as vectors of floats (Technique 1): noise of that size joins them all."""
    x = x.flatten(1)
    return float(torch.cdist(x, x).max())


def step_size(sigmas: Tensor, n_steps: int) -> float:
    """Epsilon / sigma^2 for which `n_steps` come closest to bringing noise of one sigma to the next (Technique 4).

    Langevin steps on N(0, s^2) with x - a x + sqrt(2 a) s z multiply the excess of the variance over its stationary
    value by (1 - a)^2 each; that stationary value is 2 a / (1 - (1 - a)^2) times s^2.

    Args:
        sigmas: the ladder, largest first.
        n_steps: Langevin steps at each level.

    Returns:
        Epsilon / sigma^2.
    """
    factor = float(sigmas[0] / sigmas[1])
    a = torch.linspace(1e-3, 1.0, 1000, dtype=torch.float64)
    stationary = 2 * a / (1 - (1 - a) ** 2)
    variance = stationary + (1 - a) ** (2 * n_steps) * (factor**2 - stationary)
    return float(a[(variance - 1).abs().argmin()])


def loss(score: Score, x: Tensor, sigmas: Tensor, generator: torch.Generator) -> Tensor:
    """Denoising score matching, weighted by sigma^2: E |sigma s(x + sigma z, sigma) + z|^2 / 2, per number of an image.

    Args:
        score: the network as a score.
        x: clean images `(B, C, H, W)`, as floats.
        sigmas: the ladder; each image gets one at random.
        generator: source of randomness.

    Returns:
        A scalar.
    """
    level = torch.randint(len(sigmas), (len(x),), generator=generator)
    sigma = sigmas[level]
    z = torch.randn(x.shape, generator=generator, dtype=x.dtype)
    return 0.5 * (_rows(sigma, x) * score(x + _rows(sigma, x) * z, sigma) + z).square().mean()


@torch.no_grad()
def annealed_langevin(
    score: Score,
    x: Tensor,
    sigmas: Tensor,
    *,
    n_steps: int,
    step: float,
    generator: torch.Generator,
    callback: Callable[[], object] | None = None,
) -> tuple[Tensor, Tensor]:
    """Langevin dynamics at each noise level in turn, x + a s(x) + sqrt(2 a) z with a = step * sigma^2.

    Args:
        score: of images at a sigma.
        x: where to start, `(B, C, H, W)`.
        sigmas: the ladder, largest first.
        n_steps: steps at each level.
        step: epsilon / sigma^2.
        generator: source of randomness.
        callback: called after each level.

    Returns:
        Where the chains end, and the same after one denoising step, x + sigma^2 s(x).
    """
    for sigma in sigmas:
        size = step * sigma**2
        for _ in range(n_steps):
            z = torch.randn(x.shape, generator=generator, dtype=x.dtype)
            x = x + size * score(x, sigma.expand(len(x))) + (2 * size).sqrt() * z
        if callback is not None:
            callback()
    last = sigmas[-1]
    return x, x + last**2 * score(x, last.expand(len(x)))


# --- the network ---


class Block(nn.Module):
    """Two convolutions with a short cut; between them features are scaled and shifted as the noise asks for."""

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(n_in, n_out, 3, padding=1)
        self.norm = nn.GroupNorm(4, n_out)
        self.told = nn.Linear(EMBEDDED, 2 * n_out)
        self.second = nn.Conv2d(n_out, n_out, 3, padding=1)
        self.short = nn.Conv2d(n_in, n_out, 1)

    def forward(self, x: Tensor, noise: Tensor) -> Tensor:
        """`(B, n_in, H, W)` to `(B, n_out, H, W)`, `noise` being `(B, EMBEDDED)`."""
        scale, shift = self.told(noise)[:, :, None, None].chunk(2, 1)
        h = nn.functional.silu(self.norm(self.first(x)) * (1 + scale) + shift)
        return self.short(x) + self.second(h)


class UNet(nn.Module):
    """A U-Net: down to a quarter of the side and up again, with skip connections.

    Args:
        channels: of the images.
        width: channels at the full size.
        conditional: whether the network is told the deviation of the noise.
    """

    frequencies: Tensor

    def __init__(self, channels: int, width: int, *, conditional: bool) -> None:
        super().__init__()
        self.conditional = conditional
        sizes = [width, 2 * width, 4 * width]
        self.register_buffer("frequencies", torch.linspace(0.5, 4.0, EMBEDDED // 2))
        self.told = nn.Sequential(nn.Linear(EMBEDDED, EMBEDDED), nn.SiLU())
        self.enter = nn.Conv2d(channels, width, 3, padding=1)
        self.down = nn.ModuleList([Block(n, m) for n, m in zip([width, *sizes], sizes, strict=False)])
        self.middle = Block(sizes[2], sizes[2])
        self.up = nn.ModuleList([Block(sizes[2] + sizes[1], sizes[1]), Block(sizes[1] + sizes[0], sizes[0])])
        self.leave = nn.Sequential(nn.GroupNorm(4, width), nn.SiLU(), nn.Conv2d(width, channels, 3, padding=1))

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        """Predict the noise of images, with the sign reversed and scaled to deviation 1.

        A network that is not told the deviation estimates it from the images.

        Args:
            x: noisy images, `(B, C, H, W)`.
            sigma: deviation of the noise, `(B,)`.

        Returns:
            `(B, C, H, W)`.
        """
        if not self.conditional:
            sigma = (x - 0.5).square().mean((1, 2, 3)).sqrt()
        phase = sigma.log()[:, None] * self.frequencies
        noise = self.told(torch.cat([phase.sin(), phase.cos()], 1))
        # At a common scale: noise may be a thousand times larger than the image.
        h = self.enter((x - 0.5) / _rows((sigma**2 + IMAGE_SCALE**2).sqrt(), x))
        kept = []
        for i, block in enumerate(self.down):
            h = block(h if i == 0 else nn.functional.avg_pool2d(h, 2), noise)
            kept.append(h)
        h = self.middle(h, noise)
        for block, short in zip(self.up, (kept[1], kept[0]), strict=True):
            h = block(torch.cat([nn.functional.interpolate(h, scale_factor=2.0), short], 1), noise)
        return self.leave(h)


@dataclass(frozen=True)
class Settings:
    """What it takes to build the network and its ladder again.

    Args:
        shape: (channels, height, width) of an image.
        width: channels at the full size.
        largest: first sigma of the ladder.
        version: 1 tells the network the noise level, 2 does not.
    """

    shape: tuple[int, int, int]
    width: int
    largest: float
    version: int = 1

    def build(self) -> UNet:
        """The network, with random weights."""
        return UNet(self.shape[0], self.width, conditional=self.version == 1)


class NCSN:
    """A trained score network. Built by `fit` or `load`."""

    def __init__(self, network: nn.Module, settings: Settings) -> None:
        self.network, self.settings = network, settings
        self.sigmas = ladder(settings.largest, math.prod(settings.shape))

    def __call__(self, x: Tensor, sigma: Tensor) -> Tensor:
        """The slope of the log density of images with noise: the network divided by sigma (Technique 3)."""
        return self.network(x, sigma) / _rows(sigma, x)

    def sample(self, n: int, *, seed: int = 0, progress: bool = False, denoise: bool = True) -> Tensor:
        """Images by annealed Langevin dynamics.

        Args:
            n: number of images.
            seed: of the chains.
            progress: whether to show how far it is.
            denoise: whether to end with the denoising step.

        Returns:
            Bytes `(n, C, H, W)`.
        """
        return self.draw(n, seed=seed, progress=progress)[int(denoise)]

    def draw(self, n: int, *, seed: int = 0, progress: bool = False) -> tuple[Tensor, Tensor]:
        """Images without and with the last denoising step, from the same chains.

        Args:
            n: number of images.
            seed: of the chains.
            progress: whether to show a progress line.

        Returns:
            Bytes `(n, C, H, W)`, twice.
        """
        step = step_size(self.sigmas, STEPS_PER_LEVEL)
        parts = []
        blocks = math.ceil(n / base.BLOCK)
        with progress_bar(blocks * len(self.sigmas), show=progress, unit="level") as bar:
            for i in range(blocks):
                rng = generator(seed, StudyStream.NCSN_SAMPLE, i)
                count = min(base.BLOCK, n - i * base.BLOCK)
                x = self.sigmas[0] * torch.randn(count, *self.settings.shape, generator=rng)
                parts.append(
                    annealed_langevin(
                        self,
                        x,
                        self.sigmas,
                        n_steps=STEPS_PER_LEVEL,
                        step=step,
                        generator=rng,
                        callback=bar.update,
                    )
                )
        noisy, clean = (base.quantised(torch.cat(images)) for images in zip(*parts, strict=True))
        return noisy, clean

    def energy(self, x: Tensor) -> Tensor:
        """The error of denoising: there is no likelihood, but strange images are denoised badly.

        Args:
            x: bytes `(n, C, H, W)`.

        Returns:
            Mean squared error of the predicted noise, averaged over several noise levels, `(n,)`.
        """
        x = base.as_images(x, 4)
        middle = self.sigmas[(self.sigmas <= 1) & (self.sigmas >= 0.1)]
        levels = middle[torch.linspace(0, len(middle) - 1, JUDGED_LEVELS).long()]

        def errors(part: Tensor) -> Tensor:
            rng = generator(0, StudyStream.NCSN_ENERGIES)
            clean = (part + 0.5) / base.LEVELS
            total = torch.zeros(len(part))
            for sigma in levels:
                # The same noise for every image, so that an energy does not depend on its neighbours.
                z = torch.randn(clean.shape[1:], generator=rng)
                total += (self.network(clean + sigma * z, sigma.expand(len(part))) + z).square().mean((1, 2, 3))
            return total / len(levels)

        return base.in_blocks(errors, x)

    def save(self, path: Path | str) -> None:
        """Write weights and settings to one `.safetensors` file."""
        base.save_network(path, KIND, self.network, asdict(self.settings))

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Read what `save` wrote."""
        return cls(*base.restored(path, KIND, Settings))


def fit(
    x: Tensor,
    *,
    steps: int = 2500,
    batch_size: int = 64,
    width: int = 16,
    lr: float = 2e-3,
    ema: float = 0.999,
    version: int = 1,
    seed: int = 0,
    progress: bool = False,
) -> NCSN:
    """Train a noise-conditional score network by denoising score matching.

    Args:
        x: bytes `(n, C, H, W)`, whose sides are multiples of 4.
        steps: updates.
        batch_size: images per update.
        width: channels at the full size.
        version: 1 tells the network the noise level, 2 does not.
        lr: highest learning rate of Adam.
        ema: decay of the averaged weights.
        seed: of weights and batches.
        progress: whether to show how far it is.

    Returns:
        The trained model.

    Raises:
        UserError: the version is neither 1 nor 2, or these are not images of such a size.
    """
    if version not in (1, 2):
        raise UserError(f"version {version} of NCSN: there are 1 (told how much noise there is) and 2 (not told)")
    x = base.as_images(x, 4)
    largest = largest_distance(x[:2000].float() / base.LEVELS)
    settings = Settings((x.shape[1], x.shape[2], x.shape[3]), width, largest, version)
    network = base.new_network(settings.build, seed)
    sigmas = NCSN(network, settings).sigmas

    def denoising(batch: Tensor, generator: torch.Generator) -> Tensor:
        return loss(NCSN(network, settings), base.dequantised(batch, generator), sigmas, generator)

    training = base.Training(steps, batch_size, lr, ema, seed, progress)
    return NCSN(base.optimise(network, denoising, x, training), settings)


def _normal(value: float) -> float:
    """Distribution function of a standard Gaussian."""
    return 0.5 * (1 + math.erf(value / math.sqrt(2)))


def _rows(sigma: Tensor, x: Tensor) -> Tensor:
    return sigma.view(-1, *[1] * (x.ndim - 1))
