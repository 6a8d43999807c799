"""What models of images are used for: outlier scores, restoration, chains as pictures, features for metrics."""

from pscd.images.chains import chain_frames
from pscd.images.features import load_feature_map
from pscd.images.grids import contact_sheet, grid, read_image
from pscd.images.restoration import denoise, half_mask, inpaint
from pscd.images.scores import OutlierScore
from pscd.images.thumbnails import describe, near_duplicates

__all__ = [
    "OutlierScore",
    "chain_frames",
    "contact_sheet",
    "denoise",
    "describe",
    "grid",
    "half_mask",
    "inpaint",
    "load_feature_map",
    "near_duplicates",
    "read_image",
]
