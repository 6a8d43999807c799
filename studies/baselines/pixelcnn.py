"""PixelCNN++: images one pixel after the other, each given all before it, with an exact likelihood.

T. Salimans, A. Karpathy, X. Chen, D. P. Kingma (2017), "PixelCNN++: Improving the PixelCNN with Discretized Logistic
Mixture Likelihood and Other Modifications", made small enough for a processor: two streams (all rows above; the row
itself, to the left), gated residual blocks, two halvings of the side with short cuts around them.
"""

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate, logsigmoid, pad

from pscd.progress import progress_bar
from pscd.rng import generator
from studies.baselines import base
from studies.engine.streams import StudyStream

KIND = "pixelcnn"
HALVINGS = 2
SIDE = 2**HALVINGS  # what the sides of an image must be multiples of
HALF_BIN = 1 / 255  # of a pixel's value, in units in which all 256 go from -1 to 1
LEAST_LOG_SCALE = -7.0


# --- the likelihood of a pixel ---


def n_parameters(channels: int, mixtures: int) -> int:
    """Numbers per pixel: weights, and means, scales and dependences on the channels before for each channel."""
    return mixtures * (1 + 2 * channels + channels * (channels - 1) // 2)


def log_likelihood(x: Tensor, parameters: Tensor, mixtures: int) -> Tensor:
    """Log probability of pixels under a mixture of discretised logistics.

    A value's probability is that of its bin; the outermost bins reach to infinity, so that the 256 probabilities sum
    to 1.

    Args:
        x: bytes `(B, C, H, W)`.
        parameters: of the mixtures, `(B, n_parameters, H, W)`.
        mixtures: number of components.

    Returns:
        `(B, H, W)`.
    """
    y = x.float() / 127.5 - 1
    logits, means, log_scales = _unpacked(parameters, y, mixtures)
    centred, inverse = y[:, None] - means, torch.exp(-log_scales)
    above, below = inverse * (centred + HALF_BIN), inverse * (centred - HALF_BIN)
    # sigmoid(a) - sigmoid(b) = sigmoid(a) sigmoid(-b) (1 - exp(b - a)), which has a logarithm in the far tails too.
    inner = logsigmoid(above) + logsigmoid(-below) + torch.log(-torch.expm1(-2 * HALF_BIN * inverse))
    per_value = torch.where(
        x[:, None] == 0, logsigmoid(above), torch.where(x[:, None] == 255, logsigmoid(-below), inner)
    )
    return torch.logsumexp(torch.log_softmax(logits, 1) + per_value.sum(2), 1)


def draw(parameters: Tensor, channels: int, mixtures: int, generator: torch.Generator) -> Tensor:
    """A value for each pixel: a component, then channel after channel from its logistics.

    Args:
        parameters: of the mixtures, `(B, n_parameters, H, W)`.
        channels: of the image.
        mixtures: number of components.
        generator: source of randomness.

    Returns:
        Bytes `(B, C, H, W)`.
    """
    shape = (len(parameters), channels, *parameters.shape[2:])
    y = torch.zeros(shape)
    logits = parameters[:, :mixtures]
    gumbel = -torch.log(-torch.log(torch.rand(logits.shape, generator=generator).clamp(1e-9, 1 - 1e-7)))
    chosen = (logits + gumbel).argmax(1)[:, None, None]
    u = torch.rand(shape, generator=generator).clamp(1e-6, 1 - 1e-6)
    for c in range(channels):
        _, means, log_scales = _unpacked(parameters, y, mixtures)
        mean, log_scale = (t[:, :, c : c + 1].gather(1, chosen)[:, 0, 0] for t in (means, log_scales))
        value = mean + torch.exp(log_scale) * (torch.log(u[:, c]) - torch.log1p(-u[:, c]))
        y[:, c] = ((value.clamp(-1, 1) + 1) * 127.5).round() / 127.5 - 1
    return ((y + 1) * 127.5).round().to(torch.uint8)


def _unpacked(parameters: Tensor, y: Tensor, mixtures: int) -> tuple[Tensor, Tensor, Tensor]:
    """Logits `(B, K, H, W)`, and means and log scales `(B, K, C, H, W)`, means given the channels before."""
    batch, channels, height, width = y.shape
    logits, rest = parameters[:, :mixtures], parameters[:, mixtures:]
    rest = rest.view(batch, mixtures, -1, height, width)
    means, log_scales, slopes = rest.split([channels, channels, rest.shape[2] - 2 * channels], 2)
    shifted = [means[:, :, 0]]
    slopes, used = torch.tanh(slopes), 0
    for c in range(1, channels):
        shifted.append(means[:, :, c] + (slopes[:, :, used : used + c] * y[:, None, :c]).sum(2))
        used += c
    return logits, torch.stack(shifted, 2), log_scales.clamp(min=LEAST_LOG_SCALE)


# --- the network ---


class Down(nn.Conv2d):
    """A convolution that sees the row and the one above it, on both sides."""

    def forward(self, x: Tensor) -> Tensor:
        """`(B, C, H, W)` to `(B, C', H, W)`, or halved."""
        return super().forward(pad(x, (1, 1, 1, 0)))


class DownRight(nn.Conv2d):
    """A convolution that sees the row and the one above it, up to its own column."""

    def forward(self, x: Tensor) -> Tensor:
        """`(B, C, H, W)` to `(B, C', H, W)`, or halved."""
        return super().forward(pad(x, (1, 0, 1, 0)))


def down(n_in: int, n_out: int, stride: int = 1) -> nn.Module:
    """A convolution for the stream of the rows above.

    Args:
        n_in: channels of the input.
        n_out: channels of the output.
        stride: 2 halves the sides.

    Returns:
        The layer.
    """
    return Down(n_in, n_out, (2, 3), stride=stride)


def down_right(n_in: int, n_out: int, stride: int = 1) -> nn.Module:
    """A convolution for the stream that also sees the row to the left.

    Args:
        n_in: channels of the input.
        n_out: channels of the output.
        stride: 2 halves the sides.

    Returns:
        The layer.
    """
    return DownRight(n_in, n_out, (2, 2), stride=stride)


class Gated(nn.Module):
    """A gated residual block: x + a sigmoid(b), where a and b come from two convolutions of x.

    Args:
        width: channels.
        kind: of convolution.
        n_extra: channels of a second input, which enters between the convolutions; 0 for none.
    """

    def __init__(self, width: int, kind: type[Down] | type[DownRight], n_extra: int) -> None:
        super().__init__()
        make = down if kind is Down else down_right
        self.first = make(2 * width, width)
        self.extra = nn.Conv2d(2 * n_extra, width, 1) if n_extra else None
        self.second = make(2 * width, 2 * width)

    def forward(self, x: Tensor, extra: Tensor | None = None) -> Tensor:
        """`(B, width, H, W)` to the same; `extra` is `(B, n_extra, H, W)`."""
        h = self.first(both_signs(x))
        if self.extra is not None and extra is not None:
            h = h + self.extra(both_signs(extra))
        a, b = self.second(both_signs(h)).chunk(2, 1)
        return x + a * torch.sigmoid(b)


class Pair(nn.Module):
    """A gated block for each stream; the second sees the first, and both see their short cuts."""

    def __init__(self, width: int, *, short_cut: bool) -> None:
        super().__init__()
        self.above = Gated(width, Down, width if short_cut else 0)
        self.left = Gated(width, DownRight, 2 * width if short_cut else width)

    def forward(self, above: Tensor, left: Tensor, short: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """Both streams through their blocks.

        Args:
            above: the stream of the rows above, `(B, width, H, W)`.
            left: the stream that also sees the row to the left, of the same shape.
            short: skip connections of both, of the same shapes.

        Returns:
            Both streams, `(B, width, H, W)` each.
        """
        above = self.above(above, None if short is None else short[0])
        left = self.left(left, above if short is None else torch.cat([above, short[1]], 1))
        return above, left


class PixelNetwork(nn.Module):
    """The parameters of every pixel, given the pixels before it (row by row, from the left).

    Args:
        channels: of the images.
        width: channels of the network.
        mixtures: logistics per pixel.
    """

    def __init__(self, channels: int, width: int, mixtures: int) -> None:
        super().__init__()
        self.rows_above = Down(channels + 1, width, (2, 3))
        self.row_above = nn.Conv2d(channels + 1, width, (1, 3), padding=(0, 1))
        self.from_left = nn.Conv2d(channels + 1, width, (2, 1))
        self.encoding = nn.ModuleList([Pair(width, short_cut=False) for _ in range(HALVINGS + 1)])
        self.halve_above = nn.ModuleList([down(width, width, 2) for _ in range(HALVINGS)])
        self.halve_left = nn.ModuleList([down_right(width, width, 2) for _ in range(HALVINGS)])
        # One block for each short cut: what came out of a block, and what went into it.
        self.decoding = nn.ModuleList([Pair(width, short_cut=True) for _ in range(2 * HALVINGS + 1)])
        self.double_above = nn.ModuleList([down(width, width) for _ in range(HALVINGS)])
        self.double_left = nn.ModuleList([down_right(width, width) for _ in range(HALVINGS)])
        self.leave = nn.Conv2d(2 * width, n_parameters(channels, mixtures), 1)

    def forward(self, x: Tensor) -> Tensor:
        """Pixels uint8 `(B, C, H, W)` to parameters `(B, P, H, W)`."""
        y = x.float() / 127.5 - 1
        y = torch.cat([y, torch.ones_like(y[:, :1])], 1)  # tells the image from the padding around it
        # Shifted down by a row: nothing of the pixel's own row. Shifted right by a column: nothing of the pixel.
        above = _shifted_down(self.rows_above(y))
        left = _shifted_down(self.row_above(y))
        left = left + pad(self.from_left(pad(y, (0, 0, 1, 0))), (1, 0))[:, :, :, :-1]
        streams, short = (above, left), [(above, left)]
        for i, block in enumerate(self.encoding):
            if i:
                streams = self.halve_above[i - 1](streams[0]), self.halve_left[i - 1](streams[1])
                short.append(streams)
            streams = block(*streams)
            short.append(streams)
        streams = short.pop()
        for i, block in enumerate(self.decoding):
            if i in (1, 3):
                wide = [interpolate(s, scale_factor=2.0) for s in streams]
                streams = self.double_above[i // 2](wide[0]), self.double_left[i // 2](wide[1])
            streams = block(*streams, short.pop())
        return self.leave(both_signs(streams[1]))


def both_signs(x: Tensor) -> Tensor:
    """elu(x) and elu(-x), side by side."""
    return nn.functional.elu(torch.cat([x, -x], 1))


def _shifted_down(x: Tensor) -> Tensor:
    return pad(x, (0, 0, 1, 0))[:, :, :-1]


# --- the model ---


@dataclass(frozen=True)
class Settings:
    """What it takes to build the network again.

    Args:
        shape: (channels, height, width) of an image.
        width: channels of the network.
        mixtures: logistics per pixel.
    """

    shape: tuple[int, int, int]
    width: int
    mixtures: int

    def build(self) -> PixelNetwork:
        """The network, with random weights."""
        return PixelNetwork(self.shape[0], self.width, self.mixtures)


class PixelCNN:
    """A trained PixelCNN++. Built by `fit` or `load`."""

    def __init__(self, network: nn.Module, settings: Settings) -> None:
        self.network, self.settings = network, settings

    @torch.no_grad()
    def sample(self, n: int, *, seed: int = 0, progress: bool = False) -> Tensor:
        """Draw images, with a pass of the network for every pixel: minutes for a few hundred.

        Args:
            n: number of images.
            seed: of the draws.
            progress: whether to show a progress line.

        Returns:
            Bytes `(n, C, H, W)`.
        """
        channels, height, width = self.settings.shape
        x = torch.zeros(n, *self.settings.shape, dtype=torch.uint8)
        rng = generator(seed, StudyStream.PIXELCNN_SAMPLE)
        with progress_bar(height, show=progress, unit="row") as bar:
            for row in range(height):
                rows = SIDE * (row // SIDE + 1)  # those below have no say
                for column in range(width):
                    parameters = torch.cat([self.network(part[:, :, :rows]) for part in x.split(base.BLOCK)])
                    here = parameters[:, :, row : row + 1, column : column + 1]
                    value = draw(here, channels, self.settings.mixtures, rng)
                    x[:, :, row : row + 1, column : column + 1] = value
                bar.update()
        return x

    def energy(self, x: Tensor) -> Tensor:
        """Negative log-likelihood of images uint8 `(n, C, H, W)`, in nats: `(n,)`."""
        mixtures = self.settings.mixtures
        x = base.as_images(x, SIDE)
        return base.in_blocks(lambda part: -log_likelihood(part, self.network(part), mixtures).sum((1, 2)), x)

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
    steps: int = 2000,
    batch_size: int = 32,
    width: int = 16,
    mixtures: int = 5,
    lr: float = 2e-3,
    ema: float = 0.998,
    seed: int = 0,
    progress: bool = False,
) -> PixelCNN:
    """Train PixelCNN++ on images by maximum likelihood.

    Args:
        x: bytes `(n, C, H, W)`.
        steps: updates.
        batch_size: images per update.
        width: channels of the network.
        mixtures: logistics per pixel.
        lr: highest learning rate of Adam.
        ema: decay of the averaged weights.
        seed: of weights and batches.
        progress: whether to show how far it is.

    Returns:
        The trained model.
    """
    x = base.as_images(x, SIDE)
    settings = Settings((x.shape[1], x.shape[2], x.shape[3]), width, mixtures)
    network = base.new_network(settings.build, seed)

    def bits(batch: Tensor, generator: torch.Generator) -> Tensor:
        return -log_likelihood(batch, network(batch), mixtures).mean() / (batch.shape[1] * math.log(2))

    training = base.Training(steps, batch_size, lr, ema, seed, progress)
    return PixelCNN(base.optimise(network, bits, x, training), settings)
