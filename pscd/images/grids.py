"""Images as pictures: grids of samples, strips of chains."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pscd.data import to_bytes, to_unit
from pscd.errors import UserError

GAP = 2  # pixels between the images of a grid
SMALLEST = 400  # pixels; smaller grids are enlarged by a whole factor
LARGEST_FACTOR = 8


def grid(x: Tensor, columns: int = 10, *, enlarge: bool = True) -> np.ndarray:
    """Images as one picture.

    Args:
        x: `(n, 1 or 3, height, width)`, floats in [0, 1] or bytes.
        columns: images beside each other.
        enlarge: whether to repeat pixels until a small picture is at least 400 wide, at most eightfold.

    Returns:
        Bytes `(H, W, 3)`.

    >>> grid(torch.zeros(4, 1, 8, 8), 2, enlarge=False).shape
    (22, 22, 3)
    """
    x = to_unit(x) if x.dtype == torch.uint8 else x.float()
    n, height, width = len(x), *x.shape[2:]
    columns = min(columns, n)
    rows = -(-n // columns)
    canvas = torch.full((rows * (height + GAP) + GAP, columns * (width + GAP) + GAP, 3), 0.5)
    for i, image in enumerate(x.cpu()):
        top, left = (GAP + (i // columns) * (height + GAP), GAP + (i % columns) * (width + GAP))
        canvas[top : top + height, left : left + width] = image.expand(3, -1, -1).permute(1, 2, 0)
    picture = to_bytes(canvas).numpy()
    factor = min(LARGEST_FACTOR, -(-SMALLEST // picture.shape[1])) if enlarge else 1
    return picture.repeat(factor, 0).repeat(factor, 1)


def beside(*pictures: np.ndarray) -> np.ndarray:
    """Pictures of equal height side by side, with a white gap."""
    gap = np.full((pictures[0].shape[0], 6 * GAP, 3), 255, np.uint8)
    parts = [part for picture in pictures for part in (picture, gap)]
    return np.concatenate(parts[:-1], 1)


def save(picture: np.ndarray, path: Path | str) -> Path:
    """Write a picture; the ending of the path says in which format.

    Returns:
        The path.

    Raises:
        UserError: it cannot be written, or there is no such format.
    """
    from PIL import Image

    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(path)
    except (OSError, ValueError) as error:
        raise UserError(f"cannot write {path}: {error}") from None
    return path


def read(path: Path | str, shape: tuple[int, ...]) -> Tensor:
    """A picture as one image, scaled if its size differs.

    Args:
        path: any file that Pillow reads.
        shape: (channels, height, width) of the image.

    Returns:
        Floats in [0, 1] of this shape.

    Raises:
        UserError: the file is no picture.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as file:
            picture = file.convert("L" if shape[0] == 1 else "RGB")
    except (OSError, UnidentifiedImageError) as error:
        raise UserError(f"cannot read {path} as a picture: {error}") from None
    if picture.size != (shape[2], shape[1]):
        picture = picture.resize((shape[2], shape[1]), Image.Resampling.LANCZOS)
    x = to_unit(torch.from_numpy(np.array(picture)))
    return x[None] if x.ndim == 2 else x.permute(2, 0, 1)
