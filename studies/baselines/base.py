"""What the image baselines share: their interface, pixels, the loop that trains them, and their files."""

import copy
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from pscd.errors import Diverged, UserError
from pscd.files import read_tensors, write_tensors
from pscd.progress import progress_bar
from pscd.rng import generator
from pscd.training.loop import update_average
from studies.engine.streams import StudyStream

LEVELS = 256  # values of a pixel
WARMUP_STEPS = 100
BLOCK = 250  # images at a time where no gradient is needed


class ImageModel(Protocol):
    """What every baseline can do."""

    def sample(self, n: int, *, seed: int = 0, progress: bool = False) -> Tensor:
        """Draw images.

        Args:
            n: number of images.
            seed: of the draws.
            progress: whether to show a progress line.

        Returns:
            Bytes `(n, C, H, W)`.
        """
        ...

    def energy(self, x: Tensor) -> Tensor:
        """A number for each of the images uint8 `(n, C, H, W)`, `(n,)`: the higher, the stranger."""
        ...

    def save(self, path: Path | str) -> None:
        """Write weights and settings to one `.safetensors` file."""
        ...


class Buildable(Protocol):
    """Settings of a network."""

    def build(self) -> nn.Module:
        """The network, with random weights."""
        ...


S = TypeVar("S", bound=Buildable)


def as_images(x: Tensor, multiple: int = 1) -> Tensor:
    """The images, if they are uint8 `(n, C, H, W)` with sides that can be halved as often as the network does."""
    if x.dtype != torch.uint8 or x.ndim != 4 or len(x) == 0:
        raise UserError(f"images are uint8 (n, channels, height, width), got {x.dtype} of shape {tuple(x.shape)}")
    if x.shape[2] % multiple or x.shape[3] % multiple:
        raise UserError(f"height and width must be multiples of {multiple}, got {x.shape[2]} x {x.shape[3]}")
    return x


def dequantised(x: Tensor, generator: torch.Generator) -> Tensor:
    """Pixels as floats in [0, 1): uniform noise fills the gap between one value and the next."""
    return (x + torch.rand(x.shape, generator=generator)) / LEVELS


def quantised(x: Tensor) -> Tensor:
    """Floats in [0, 1) back to pixels."""
    return (x * LEVELS).floor().clamp(0, LEVELS - 1).to(torch.uint8)


def bits_per_dimension(energies: Tensor, shape: tuple[int, ...]) -> float:
    """Mean of -log2 p(x) per number in an image, from the negative log-likelihoods `(n,)` of pixels, in nats."""
    return float(energies.mean() / (math.log(2) * math.prod(shape)))


@dataclass(frozen=True)
class Training:
    """How a baseline is trained.

    Args:
        steps: updates.
        batch_size: images per update.
        lr: highest learning rate of Adam.
        ema: decay of the averaged weights.
        seed: of weights and batches.
        progress: whether to show how far it is.
    """

    steps: int
    batch_size: int
    lr: float
    ema: float
    seed: int
    progress: bool


def optimise(
    network: nn.Module, loss: Callable[[Tensor, torch.Generator], Tensor], x: Tensor, training: Training
) -> nn.Module:
    """Minimise a loss by Adam, with a short rise and a cosine decay of the learning rate.

    Args:
        network: what is trained, in place.
        loss: of a batch of images, with a generator for its noise.
        x: bytes `(n, C, H, W)`.
        training: how long and how fast.

    Returns:
        A copy of the network with averaged weights.

    Raises:
        Diverged: the loss is not finite.
    """
    optimiser = torch.optim.Adam(network.parameters(), lr=training.lr, betas=(0.9, 0.99))
    averaged = copy.deepcopy(network).requires_grad_(False)
    with progress_bar(training.steps, show=training.progress) as bar:
        for step in range(training.steps):
            rng = generator(training.seed, StudyStream.BASELINE_UPDATE, step)
            batch = x[torch.randint(len(x), (training.batch_size,), generator=rng)]
            value = loss(batch, rng)
            if not torch.isfinite(value.detach()):
                raise Diverged(f"step {step}: the loss is {value.item()}; try a smaller lr")
            optimiser.zero_grad()
            value.backward()
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            rise, fall = min(1.0, (step + 1) / WARMUP_STEPS), 0.5 * (1 + math.cos(math.pi * step / training.steps))
            for group in optimiser.param_groups:
                group["lr"] = training.lr * rise * fall
            optimiser.step()
            update_average(averaged, network, training.ema, step)
            bar.update()
            bar.set_postfix_str(f"loss {value.item():.4g}", refresh=False)
    return averaged.eval()


def new_network(build: Callable[[], nn.Module], seed: int) -> nn.Module:
    """A network with random weights that depend on the seed alone; torch's global generator stays as it is."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build()


@torch.no_grad()
def in_blocks(function: Callable[[Tensor], Tensor], x: Tensor, block: int = BLOCK) -> Tensor:
    """A function of images, a few at a time, without gradients.

    Args:
        function: `(m, C, H, W)` to `(m, ...)`.
        x: images `(n, C, H, W)`.
        block: images at a time.

    Returns:
        The results together, `(n, ...)`.
    """
    return torch.cat([function(part) for part in x.split(block)])


def save_network(path: Path | str, kind: str, network: nn.Module, settings: dict[str, Any]) -> None:
    """Write weights and settings to one `.safetensors` file.

    Args:
        path: the file.
        kind: of baseline, such as `glow`.
        network: whose weights to keep.
        settings: plain values to build it again.
    """
    write_tensors(path, network.state_dict(), {"kind": kind, "settings": json.dumps(settings)})


def kind_of(path: Path | str) -> str:
    """Which kind of baseline a file holds."""
    return _read(path)[1]["kind"]


def restored(path: Path | str, kind: str, settings_of: Callable[..., S]) -> tuple[nn.Module, S]:
    """The network that `save_network` wrote, ready for use.

    Args:
        path: the file.
        kind: of baseline that is expected in it.
        settings_of: makes the settings from their plain values.

    Returns:
        The network, and its settings.

    Raises:
        UserError: the file is damaged, or holds another kind.
    """
    tensors, values = load_network(path, kind)
    settings = settings_of(**values)
    network = new_network(settings.build, 0)
    network.load_state_dict(tensors)
    return network.requires_grad_(False).eval(), settings


def load_network(path: Path | str, kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Weights and settings that `save_network` wrote for the same kind."""
    tensors, metadata = _read(path)
    if metadata["kind"] != kind:
        raise UserError(f"{path}: holds a {metadata['kind']}, not a {kind}")
    settings = json.loads(metadata["settings"])
    return tensors, {**settings, "shape": tuple(settings["shape"])}


def _read(path: Path | str) -> tuple[dict[str, Tensor], dict[str, str]]:
    if not Path(path).is_file():
        raise UserError(f"{path}: no such file")
    try:
        tensors, metadata = read_tensors(path)
    except SafetensorError as error:
        raise UserError(f"{path}: damaged ({error})") from None
    if not metadata or not {"kind", "settings"} <= metadata.keys():
        raise UserError(f"{path}: not a baseline of pscd")
    return tensors, metadata
