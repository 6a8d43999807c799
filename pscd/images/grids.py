"""Images as one picture: grids and contact sheets."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pscd.data import to_bytes, to_unit
from pscd.data.pictures import decode_picture, open_picture
from pscd.errors import UserError
from pscd.files import one_line


def grid(x: Tensor, columns: int = 10, *, enlarge: bool = True, gap: int = 2) -> np.ndarray:
    """Images as one picture.

    Args:
        x: `(n, 1 or 3, height, width)`, floats in [0, 1] or bytes.
        columns: images beside each other.
        enlarge: whether to repeat pixels until a small picture is at least 400 wide, at most eightfold.
        gap: pixels between images.

    Returns:
        Bytes `(H, W, 3)`.

    >>> grid(torch.zeros(4, 1, 8, 8), 2, enlarge=False).shape
    (22, 22, 3)
    """
    x = to_unit(x) if x.dtype == torch.uint8 else x.float()
    n, height, width = len(x), *x.shape[2:]
    columns = min(columns, n)
    rows = -(-n // columns)
    canvas = torch.full((rows * (height + gap) + gap, columns * (width + gap) + gap, 3), 0.5)
    for i, image in enumerate(x.cpu()):
        top, left = (gap + (i // columns) * (height + gap), gap + (i % columns) * (width + gap))
        canvas[top : top + height, left : left + width] = image.expand(3, -1, -1).permute(1, 2, 0)
    picture = to_bytes(canvas).numpy()
    factor = min(8, -(-400 // picture.shape[1])) if enlarge else 1
    return picture.repeat(factor, 0).repeat(factor, 1)


def beside(*pictures: np.ndarray, gap: int = 12) -> np.ndarray:
    """Pictures of equal height side by side, with a white gap."""
    white = np.full((pictures[0].shape[0], gap, 3), 255, np.uint8)
    parts = [part for picture in pictures for part in (picture, white)]
    return np.concatenate(parts[:-1], 1)


def contact_sheet(
    paths: Sequence[Path], labels: Sequence[str], columns: int = 10, *, tile: int = 112, line: int = 14, gap: int = 2
) -> np.ndarray:
    """Pictures of any size in a grid, each uncropped, with its label below it.

    Args:
        paths: readable files.
        labels: a line of text for each; what does not fit is cut.
        columns: pictures beside each other.
        tile: pixels of a picture on the sheet.
        line: pixels of a label.
        gap: pixels between pictures.

    Returns:
        Bytes `(H, W, 3)`.
    """
    from PIL import Image, ImageDraw, ImageOps

    columns = min(columns, len(paths))
    rows = -(-len(paths) // columns)
    sheet = Image.new("RGB", (columns * (tile + gap) + gap, rows * (tile + line + gap) + gap), "#c8c8c8")
    draw = ImageDraw.Draw(sheet)
    for i, (path, text) in enumerate(zip(paths, labels, strict=True)):
        left, top = gap + (i % columns) * (tile + gap), gap + (i // columns) * (tile + line + gap)
        sheet.paste(ImageOps.pad(open_picture(path), (tile, tile), color="#c8c8c8"), (left, top))
        fitting = next(n for n in range(len(text), -1, -1) if draw.textlength(text[:n]) <= tile)
        draw.text((left, top + tile), text[:fitting], fill="black")
    return np.asarray(sheet)


def save(picture: np.ndarray, path: Path | str) -> Path:
    """Write a picture; the suffix of the path sets the format."""
    from PIL import Image

    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(path)
    except (OSError, ValueError) as error:
        raise UserError(f"cannot write {path}: {error}") from None
    return path


def read_image(path: Path | str, shape: tuple[int, ...]) -> Tensor:
    """A picture as one image, as training would read it.

    Args:
        path: any file that Pillow reads.
        shape: (channels, height, width) of the model's images; others are cropped to a square and scaled.

    Returns:
        Floats in [0, 1] of this shape.

    Raises:
        UserError: the file is not a picture, or has another size than images that are not square.
    """
    channels, height, width = shape
    try:
        x = decode_picture(Path(path), channels, height if height == width else None)
    except Exception as error:  # Pillow raises a dozen kinds for a damaged file
        raise UserError(f"cannot read {path} as a picture: {one_line(error)}") from None
    if x.shape[1:] != (height, width):
        raise UserError(f"{path} is {x.shape[2]} x {x.shape[1]}; the model's images are {width} x {height}, scale it")
    return to_unit(torch.from_numpy(x))
