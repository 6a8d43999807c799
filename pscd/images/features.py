"""Feature maps for the image metrics: bytes `(n, channels, height, width)` in, `(n, d)` numbers out.

Each has a `name` to print beside the numbers that it leads to: Fréchet distances of two maps are not comparable.
"""

import zlib
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from pscd.data import data_root, to_unit
from pscd.errors import UserError
from pscd.fast import threads_set
from pscd.progress import progress_bar

BFLOAT16 = "@bfloat16"  # suffix of the path of a TorchScript file


class FeatureMap(Protocol):
    """A callable with a name."""

    @property
    def name(self) -> str:
        """A short description of the features."""
        ...

    def __call__(self, x: Tensor) -> Tensor:
        """Features, float32 `(n, d)`, of `(n, channels, height, width)` bytes."""
        ...


def load_feature_map(spec: str, *, threads: int | None = None, progress: bool = False) -> FeatureMap:
    """The feature map that a word or a path describes.

    Args:
        spec: `pixels`, or the path of a TorchScript file, such as the Inception network of the FID, as it is or below
            the folder of image sets; with `@bfloat16` after it, computed in bfloat16.
        threads: processor threads while features are computed (default: as set).
        progress: whether to show a progress bar.

    Returns:
        The feature map.

    Raises:
        UserError: there is no such map, or the file is not readable.

    >>> load_feature_map("pixels")(torch.zeros(2, 1, 8, 8, dtype=torch.uint8)).shape
    torch.Size([2, 64])
    """
    if spec == "pixels":
        return Pixels()
    file = spec.removesuffix(BFLOAT16)
    for path in (Path(file), data_root() / file):
        if path.is_file():
            return Scripted(path, half=spec != file, threads=threads, progress=progress)
    raise UserError(f"unknown features {spec!r}; give pixels or the path of a TorchScript file")


class Pixels:
    """The pixels in [0, 1]. Distances do not match human perception, but need no network."""

    name = "raw pixels"

    def __call__(self, x: Tensor) -> Tensor:
        """One number for each byte."""
        return to_unit(check_bytes(x).flatten(1))


class Scripted:
    """A network in a TorchScript file, such as the Inception of 2015 that defines the FID."""

    # A network that takes bytes of any size gets them as they are. Any other gets the input that defines the FID: 299 x
    # 299 pixels, scaled as in TensorFlow 1, as (x - 128) / 128. Grey images are repeated to three channels. The first
    # of several outputs is used. In bfloat16 (`half`) features differ by a few per cent, so the name contains the
    # precision.

    def __init__(
        self,
        path: Path | str,
        *,
        half: bool = False,
        batch_size: int = 50,
        input_size: int = 299,
        threads: int | None = None,
        progress: bool = False,
    ) -> None:
        path = Path(path)
        try:
            self.module = torch.jit.load(path, map_location="cpu").eval()
        except (RuntimeError, ValueError, OSError) as error:
            raise UserError(f"{path}: not a readable TorchScript file ({str(error).splitlines()[0]})") from None
        self.half = half
        if half:
            self.module = self.module.to(torch.bfloat16)
        arguments = [argument.name for argument in self.module.forward.schema.arguments]
        self.options = {"return_features": True} if "return_features" in arguments else {}
        self.batch_size, self.input_size, self.threads, self.progress = batch_size, input_size, threads, progress
        self.takes_bytes = True
        size = f"{input_size} x {input_size}"
        if not self._works():
            self.takes_bytes = False
            if not self._works():
                raise UserError(
                    f"{path}: takes neither bytes (n, 3, 32, 32) nor numbers (n, 3, {size}) for (n, d) features"
                )
        how = "bytes" if self.takes_bytes else f"{size} as in TensorFlow 1"
        self.name = f"{path.name} ({zlib.crc32(path.read_bytes()):08x}), {how}{', in bfloat16' if half else ''}"

    def _works(self) -> bool:
        try:
            features = self._features(torch.zeros(2, 3, 32, 32, dtype=torch.uint8))
        except (RuntimeError, TypeError, ValueError, IndexError):
            return False
        return features.ndim == 2 and len(features) == 2

    @torch.inference_mode()
    def _features(self, x: Tensor) -> Tensor:
        x = x.repeat(1, 3, 1, 1) if x.shape[1] == 1 else x
        if not self.takes_bytes:
            x = (scale_as_tensorflow(x.float(), self.input_size) - 128) / 128
            x = x.contiguous(memory_format=torch.channels_last)  # about 15 % faster
            x = x.bfloat16() if self.half else x
        output = self.module(x, **self.options)
        return (output if isinstance(output, Tensor) else output[0]).flatten(1).float()

    def __call__(self, x: Tensor) -> Tensor:
        """The network's features, in batches."""
        parts = []
        with threads_set(self.threads), progress_bar(len(x), show=self.progress, unit="image") as bar:
            for part in check_bytes(x).split(self.batch_size):
                parts.append(self._features(part).clone())
                bar.update(len(part))
        return torch.cat(parts)


def scale_as_tensorflow(x: Tensor, size: int) -> Tensor:
    """Bilinear scaling to a square as in TensorFlow 1: pixel i of the result lies at i * (old / new) of the source."""
    # Other libraries align the centres of pixels, which shifts the image by up to half a pixel and changes the FID.
    rows, columns = (_interpolation(old, size).to(x.dtype) for old in x.shape[2:])
    return rows @ x @ columns.T


def _interpolation(old: int, new: int) -> Tensor:
    """The `(new, old)` matrix of weights."""
    at = torch.arange(new, dtype=torch.float64) * (old / new)
    low = at.floor().long().clamp(max=old - 1)
    high = (low + 1).clamp(max=old - 1)
    share = at - low
    weights = torch.zeros(new, old, dtype=torch.float64)
    weights.scatter_add_(1, low[:, None], (1 - share)[:, None])
    return weights.scatter_add_(1, high[:, None], share[:, None])


def check_bytes(x: Tensor) -> Tensor:
    """Images of bytes, unchanged; a `ValueError` for anything else."""
    if x.ndim != 4 or x.dtype != torch.uint8 or x.shape[1] not in (1, 3):
        raise ValueError(f"give bytes (n, 1 or 3, height, width), not {x.dtype} {tuple(x.shape)}")
    return x
