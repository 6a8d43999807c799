"""Convolutional energies for images `(B, channels, height, width)`, optionally conditional on labels.

A conditional network has `classes` and takes a label with the image: `energy(x, label)`. Without a label it returns
the energy of the likeliest one, min over y of E(x, y).
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from pscd.energies.dense import layer_wrapper
from pscd.fast import Sequence

LEAKY_SLOPE = 0.2  # of the leaky ReLU, as in the paper


class ConvNet(nn.Module):
    """Strided convolutions, each of which halves the image, and a small head; fast on a CPU.

    The convolutions have `width`, `2 width`, `4 width`, `4 width` ... channels. The first has a 5 x 5 kernel and
    stride 2, so that no layer runs at full size.

    Args:
        shape: channels, height and width of an image.
        width: channels of the first convolution.
        depth: number of convolutions.
        classes: number of labels, 0 for none; the head has an output for each.
        spectral_norm: normalise every layer, which bounds its slope.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        *,
        width: int = 16,
        depth: int = 4,
        classes: int = 0,
        spectral_norm: bool = False,
    ) -> None:
        super().__init__()
        channels, height, breadth = self.shape = shape
        wrap = layer_wrapper(spectral_norm)
        self.classes = classes
        layers: list[nn.Module] = []
        for i in range(depth):
            wider = width * min(2**i, 4)
            layers += [wrap(_first(channels, wider) if i == 0 else nn.Conv2d(channels, wider, 3, 2, 1)), nn.SiLU()]
            channels, height, breadth = wider, (height + 1) // 2, (breadth + 1) // 2
        hidden = 4 * width
        layers += [nn.Flatten(), wrap(nn.Linear(channels * height * breadth, hidden)), nn.SiLU()]
        self.net = nn.Sequential(*layers, wrap(nn.Linear(hidden, max(classes, 1))))

    def forward(self, x: Tensor, label: Tensor | None = None) -> Tensor:
        """Energies."""
        return _of_label(self.net(x), label)

    def as_sequence(self, label: Tensor | None = None) -> Sequence:
        """The energy given labels `(B,)` as a sequence of layers, which `pscd.fast` computes by hand."""
        return Sequence(self.net, self.shape, label)


class PlainCNN(nn.Module):
    """A stack of convolutions with leaky ReLU: a 3 x 3 one at full size, then `depth` that halve it.

    With width 64, depth 4 and a final 4 x 4 convolution to one number this is the paper's network for 64 x 64
    images (Figure 6b, channels 64, 128, 256, 512, 512, 1); depth 3 is for 32 x 32 images.

    Args:
        shape: channels, height and width of an image.
        width: channels of the first convolution.
        depth: how often the image is halved.
        classes: number of labels, 0 for none; the last convolution has an output for each.
        spectral_norm: normalise every layer, which bounds its slope.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        *,
        width: int = 64,
        depth: int = 3,
        classes: int = 0,
        spectral_norm: bool = False,
    ) -> None:
        super().__init__()
        channels, height, breadth = self.shape = shape
        wrap = layer_wrapper(spectral_norm)
        self.classes = classes
        layers: list[nn.Module] = [wrap(nn.Conv2d(channels, width, 3, 1, 1)), nn.LeakyReLU(LEAKY_SLOPE)]
        channels = width
        for i in range(depth):
            wider = width * min(2 ** (i + 1), 8)
            layers += [wrap(nn.Conv2d(channels, wider, 4, 2, 1)), nn.LeakyReLU(LEAKY_SLOPE)]
            channels, height, breadth = wider, height // 2, breadth // 2
        last = wrap(nn.Conv2d(channels, max(classes, 1), (height, breadth)))
        self.net = nn.Sequential(*layers, last, nn.Flatten())

    def forward(self, x: Tensor, label: Tensor | None = None) -> Tensor:
        """Energies."""
        return _of_label(self.net(x), label)

    def as_sequence(self, label: Tensor | None = None) -> Sequence:
        """The energy given labels `(B,)` as a sequence of layers, which `pscd.fast` computes by hand."""
        return Sequence(self.net, self.shape, label)


class ResNet(nn.Module):
    """The paper's network for 32 x 32 images (Figure 6a): a convolution, six residual blocks, a sum over positions.

    Blocks of `width`, `width`, `2 width` ... channels, every other of which halves the image. Labels enter as a gain
    and an offset for every channel in each block, as in IGEBM (Du and Mordatch 2019).

    Args:
        shape: channels, height and width of an image.
        width: channels of the first two blocks.
        depth: number of pairs of blocks.
        classes: number of labels, 0 for none; each has gains and offsets in every block.
        spectral_norm: normalise every layer, which bounds its slope.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        *,
        width: int = 128,
        depth: int = 3,
        classes: int = 0,
        spectral_norm: bool = True,
    ) -> None:
        super().__init__()
        wrap = layer_wrapper(spectral_norm)
        self.classes = classes
        self.first = wrap(nn.Conv2d(shape[0], width, 3, 1, 1))
        blocks: list[nn.Module] = []
        channels = width
        for i in range(depth):
            wider = width if i == 0 else 2 * width
            blocks += [
                ResBlock(channels, wider, halve=True, classes=classes, wrap=wrap),
                ResBlock(wider, wider, halve=False, classes=classes, wrap=wrap),
            ]
            channels = wider
        self.blocks = nn.ModuleList(blocks)
        self.last = wrap(nn.Linear(channels, 1))

    def forward(self, x: Tensor, label: Tensor | None = None) -> Tensor:
        """Energies."""
        if self.classes and label is None:
            labels = (x.new_full((len(x),), y, dtype=torch.long) for y in range(self.classes))
            return torch.stack([self(x, y) for y in labels]).amin(0)
        h = self.first(x)
        for block in self.blocks:
            h = block(h, label)
        return self.last(functional.leaky_relu(h, LEAKY_SLOPE).sum((2, 3))).squeeze(1)


class ResBlock(nn.Module):
    """A residual block: two convolutions and a shortcut."""

    def __init__(
        self, channels: int, wider: int, *, halve: bool, classes: int, wrap: Callable[[nn.Module], nn.Module]
    ) -> None:
        super().__init__()
        self.halve = halve
        self.one = wrap(nn.Conv2d(channels, wider, 3, 1, 1))
        self.two = wrap(nn.Conv2d(wider, wider, 3, 1, 1))
        self.short = wrap(nn.Conv2d(channels, wider, 1)) if channels != wider else nn.Identity()
        self.gain: nn.Embedding | None = None
        if classes:
            self.gain, self.offset = nn.Embedding(classes, wider), nn.Embedding(classes, wider)
            nn.init.ones_(self.gain.weight)
            nn.init.zeros_(self.offset.weight)

    def forward(self, x: Tensor, label: Tensor | None) -> Tensor:
        """Features of the next block."""
        h = self.one(functional.leaky_relu(x, LEAKY_SLOPE))
        if self.gain is not None:
            h = h * self.gain(label)[:, :, None, None] + self.offset(label)[:, :, None, None]
        h = self.short(x) + self.two(functional.leaky_relu(h, LEAKY_SLOPE))
        return functional.avg_pool2d(h, 2) if self.halve else h


def _first(channels: int, width: int) -> nn.Module:
    return nn.Conv2d(channels, width, 5, 2, 2)


def _of_label(e: Tensor, label: Tensor | None) -> Tensor:
    """The column of `(B, classes)` for each label; without labels the least, or the only one."""
    if label is None:
        return e.squeeze(1) if e.shape[1] == 1 else e.amin(1)
    return e.gather(1, label[:, None]).squeeze(1)
