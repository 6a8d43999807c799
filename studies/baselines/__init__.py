"""Image models that are not energy-based, to fill the comparisons: NCSN, Glow and PixelCNN++, small enough for a CPU.

Each module has `fit(x, *, seed, progress, ...)`, which takes images uint8 `(n, C, H, W)` and returns a model with
`sample(n, seed=...)` (images of the same kind), `energy(x)` (a number for each image: the higher, the stranger; the
negative log-likelihood where there is one) and `save`; `load` reads it again.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from pscd.errors import UserError
from studies.baselines import glow, ncsn, pixelcnn
from studies.baselines.base import ImageModel, bits_per_dimension, kind_of

FITS: dict[str, Callable[..., ImageModel]] = {
    "ncsn": ncsn.fit,
    "ncsnv2": partial(ncsn.fit, version=2),
    "glow": glow.fit,
    "pixelcnn": pixelcnn.fit,
}
LOADS: dict[str, Callable[[Path | str], ImageModel]] = {
    ncsn.KIND: ncsn.NCSN.load,
    glow.KIND: glow.Glow.load,
    pixelcnn.KIND: pixelcnn.PixelCNN.load,
}

__all__ = ["FITS", "ImageModel", "bits_per_dimension", "load"]


def load(path: Path | str) -> ImageModel:
    """Read any model that one of these wrote."""
    kind = kind_of(path)
    if kind not in LOADS:
        raise UserError(f"{path}: a baseline of the kind {kind!r}; there are: {', '.join(LOADS)}")
    return LOADS[kind](path)
