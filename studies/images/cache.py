"""Features of images that many samples are compared with, computed once and kept in a file."""

import zlib
from pathlib import Path

from safetensors import SafetensorError
from torch import Tensor

from pscd.data import data_root
from pscd.errors import UserError
from pscd.files import read_tensors, write_tensors
from pscd.images.features import FeatureMap, Scripted


def cached_features(feature_map: FeatureMap, x: Tensor, *, cache: Path | str | None = None) -> Tensor:
    """`feature_map(x)`; features of a TorchScript network are kept in a file of `cache`."""
    if not isinstance(feature_map, Scripted):
        return feature_map(x)
    key = zlib.crc32(x.contiguous().numpy().data, zlib.crc32(feature_map.name.encode()))
    path = (Path(cache) if cache is not None else data_root() / "features") / f"{len(x)}-{key:08x}.safetensors"
    about = {"features": feature_map.name}
    if path.is_file():
        try:
            tensors, metadata = read_tensors(path)
            if metadata == about and len(tensors["features"]) == len(x):
                return tensors["features"]
        except (SafetensorError, KeyError, RuntimeError, ValueError, TypeError):
            pass  # a damaged file is computed and written again
    features = feature_map(x)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_tensors(path, {"features": features}, about)
    except OSError as error:
        raise UserError(f"cannot write to {path.parent}: {error.strerror}; give another cache") from None
    return features
