"""The style of the gallery's figures."""

from typing import Any

import matplotlib as mpl
from cycler import cycler


def reset(gallery_conf: dict[str, Any], file: str) -> None:
    """Set fonts, sizes and colours for colour-blind readers (Okabe and Ito 2008), before each example."""
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
