"""How the pictures of the gallery look."""

from typing import Any

import matplotlib as mpl
from cycler import cycler


def reset(gallery_conf: dict[str, Any], file: str) -> None:
    """Set fonts, sizes and colours that colour-blind people can tell apart (Okabe and Ito 2008), before each example.

    Args:
        gallery_conf: settings of the gallery.
        file: of the example.
    """
    mpl.rcParams.update(
        {
            "figure.figsize": (8, 3.6),
            "figure.dpi": 110,
            "figure.constrained_layout.use": True,
            "axes.prop_cycle": cycler(color=["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00"]),
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.titlesize": "medium",
            "legend.frameon": False,
            "image.cmap": "viridis",
        }
    )
