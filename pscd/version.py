"""The version, without importing torch; and the other versions that results depend on."""

__version__ = "0.1.0"


def versions() -> dict[str, str]:
    """Versions of what the numbers depend on."""
    import platform

    import numpy
    import sklearn
    import torch

    return {
        "pscd": __version__,
        "python": platform.python_version(),
        "torch": f"torch {torch.__version__}",
        "numpy": numpy.__version__,
        "scikit-learn": sklearn.__version__,
    }


def machine() -> str:
    """The kind of machine, without its name."""
    import os
    import platform

    return f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}"
